//! The KV blocks: who holds which, and which full blocks can be used again by a sequence with the same beginning.
//!
//! Not the keys and values themselves (the backend has them), and not who gets blocks when there are too few
//! (`scheduler`). A full block is known by the hash chain of the tokens up to its end. It stays in the prefix cache
//! when nobody holds it any more, until a block is needed and it is the one that was let go longest ago.

use super::siblings::Siblings;
use crate::backend::{BLOCK, BlockId};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Stands for the tokens of a block and of all blocks before it.
pub type Chain = [u8; 32];

/// The chain of a block of [`BLOCK`] tokens behind `before`; `None` for the first block.
pub fn chain(before: Option<&Chain>, tokens: &[u32]) -> Chain {
    let mut hash = Sha256::new_with_prefix(before.unwrap_or(&[0; 32]));
    for token in tokens {
        hash.update(token.to_le_bytes());
    }
    hash.finalize().into()
}

/// The chains of the full blocks of `tokens`.
pub fn chains(tokens: &[u32]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::with_capacity(tokens.len() / BLOCK);
    for block in tokens.chunks_exact(BLOCK) {
        chains.push(chain(chains.last(), block));
    }
    chains
}

/// What a full block holds.
#[derive(Clone, Copy)]
pub struct Full<'a> {
    /// Its chain.
    pub chain: Chain,
    /// The chain of the block before it.
    pub before: Option<Chain>,
    /// Its tokens.
    pub tokens: &'a [u32],
}

/// One block. It is free (no chain, no holder), idle (a chain, no holder) or held.
#[derive(Clone, Default)]
struct Slot {
    holders: usize,
    chain: Option<Chain>,
    /// The chain of the block before it, when it has one itself.
    before: Option<Chain>,
    /// When it became idle.
    let_go: u64,
}

/// All blocks of a backend.
///
/// Whoever holds a cached block holds its predecessors too: [`BlockPool::publish`] keeps one block per chain and
/// puts it into the caller's table. So a block becomes idle no later than its predecessor, and taking the idle
/// block that was let go first never leaves a successor behind that cannot be found.
pub struct BlockPool {
    slots: Vec<Slot>,
    free: Vec<BlockId>,
    idle: BTreeMap<u64, BlockId>,
    cached: HashMap<Chain, BlockId>,
    siblings: Siblings,
    clock: u64,
}

impl BlockPool {
    /// A pool of `capacity` free blocks, with the ids `0 .. capacity`.
    pub fn new(capacity: u32) -> Self {
        Self {
            slots: vec![Slot::default(); capacity as usize],
            free: (0..capacity).rev().map(BlockId).collect(),
            idle: BTreeMap::new(),
            cached: HashMap::new(),
            siblings: Siblings::default(),
            clock: 0,
        }
    }

    /// How many blocks there are.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many hold nothing.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many nobody holds, but the prefix cache keeps.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// The cached blocks of the longest prefix of `chains` that is all cached. They are not held yet.
    pub fn find(&self, chains: &[Chain]) -> Vec<BlockId> {
        chains
            .iter()
            .map_while(|chain| self.cached.get(chain).copied())
            .collect()
    }

    /// The cached block behind `before` that begins with the most of `tokens`, and how many; it is not held.
    pub fn nearest(&self, before: Option<Chain>, tokens: &[u32]) -> Option<(BlockId, usize)> {
        self.siblings.nearest(before, tokens)
    }

    /// Holds the cached blocks `found` and `fresh` blocks more, which it returns behind them; changes nothing when
    /// they cannot all be had.
    pub fn acquire(&mut self, found: Vec<BlockId>, fresh: usize) -> Option<Vec<BlockId>> {
        let revived = found.iter().filter(|id| self.slot(**id).holders == 0).count();
        if fresh > self.free() + self.idle() - revived {
            return None;
        }
        for &id in &found {
            self.hold(id);
        }
        let mut blocks = found;
        for _ in 0..fresh {
            blocks.push(self.take()?);
        }
        Some(blocks)
    }

    /// Holds a block whose contents are of no use: a free one, else the idle one that was let go longest ago.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                let (_, id) = self.idle.pop_first()?;
                let slot = self.slot_mut(id);
                let (chain, before) = (slot.chain.take(), slot.before.take());
                if let Some(chain) = chain {
                    self.cached.remove(&chain);
                    self.siblings.remove(before, id);
                }
                id
            }
        };
        self.slot_mut(id).holders = 1;
        Some(id)
    }

    /// Puts a full block that the caller alone holds into the prefix cache, and returns the block that the caller
    /// holds from now on: `id`, or the one that was there for this chain already.
    pub fn publish(&mut self, full: Full<'_>, id: BlockId) -> BlockId {
        if let Some(&other) = self.cached.get(&full.chain) {
            self.hold(other);
            self.release(&[id]);
            return other;
        }
        self.cached.insert(full.chain, id);
        self.siblings.add(full.before, full.tokens, id);
        let slot = self.slot_mut(id);
        (slot.chain, slot.before) = (Some(full.chain), full.before);
        id
    }

    /// Lets go of the blocks of a table, given in the table's order.
    pub fn release(&mut self, table: &[BlockId]) {
        for &id in table.iter().rev() {
            self.clock += 1;
            let now = self.clock;
            let slot = self.slot_mut(id);
            slot.holders -= 1;
            if slot.holders > 0 {
                continue;
            }
            slot.let_go = now;
            if slot.chain.is_some() {
                self.idle.insert(now, id);
            } else {
                self.free.push(id);
            }
        }
    }

    fn hold(&mut self, id: BlockId) {
        let slot = self.slot_mut(id);
        slot.holders += 1;
        if slot.holders == 1 {
            let let_go = slot.let_go;
            self.idle.remove(&let_go);
        }
    }

    fn slot(&self, id: BlockId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    fn slot_mut(&mut self, id: BlockId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    /// Says which rule of the books is broken, given the block tables of all sequences.
    #[cfg(test)]
    pub fn audit<'a>(&self, tables: impl Iterator<Item = &'a [BlockId]>) -> Result<(), String> {
        let mut holders = vec![0; self.capacity()];
        for id in tables.flatten() {
            holders[id.0 as usize] += 1;
        }
        let mut listed = vec![0; self.capacity()];
        for id in self.free.iter().chain(self.idle.values()) {
            listed[id.0 as usize] += 1;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let id = BlockId(index as u32);
            let idle = self.idle.get(&slot.let_go) == Some(&id);
            let known = slot
                .chain
                .is_some_and(|chain| self.cached.get(&chain) == Some(&id));
            let sound = slot.holders == holders[index]
                && listed[index] == usize::from(slot.holders == 0)
                && known == slot.chain.is_some()
                && idle == (slot.holders == 0 && slot.chain.is_some());
            if !sound {
                return Err(format!(
                    "block {index}: {} holders, {} tables, listed {} times, idle {idle}, cached {known}",
                    slot.holders, holders[index], listed[index]
                ));
            }
        }
        let chained = self.slots.iter().filter(|slot| slot.chain.is_some()).count();
        if chained != self.cached.len() || chained != self.siblings.len() {
            return Err(format!(
                "{chained} blocks with chains, {} cached, {} by what is before them",
                self.cached.len(),
                self.siblings.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(first: u32, blocks: usize) -> Vec<u32> {
        (0..(blocks * BLOCK) as u32).map(|i| first + i).collect()
    }

    /// Computes `tokens` into the pool and lets go of them: what is cached then.
    fn pass(pool: &mut BlockPool, tokens: &[u32]) {
        let chains = chains(tokens);
        let found = pool.find(&chains);
        let known = found.len();
        let mut table = pool.acquire(found, chains.len() - known).unwrap();
        for (i, id) in table.iter_mut().enumerate().skip(known) {
            *id = pool.publish(full(tokens, &chains, i), *id);
        }
        pool.release(&table);
        pool.audit(std::iter::empty()).unwrap();
    }

    fn full<'a>(tokens: &'a [u32], chains: &[Chain], index: usize) -> Full<'a> {
        Full {
            chain: chains[index],
            before: index.checked_sub(1).map(|before| chains[before]),
            tokens: &tokens[index * BLOCK..(index + 1) * BLOCK],
        }
    }

    fn depth(pool: &BlockPool, tokens: &[u32]) -> usize {
        pool.find(&chains(tokens)).len()
    }

    #[test]
    fn a_chain_stands_for_all_tokens_before_it() {
        let a = chains(&tokens(0, 3));
        let mut other = tokens(0, 3);
        other[5] = 999;
        let b = chains(&other);
        assert_eq!(a.len(), 3);
        assert!(a.iter().zip(&b).all(|(x, y)| x != y));
        assert_eq!(chains(&tokens(0, 3)[..2 * BLOCK + 31]), a[..2]);
        assert_eq!(chain(Some(&a[0]), &tokens(0, 3)[BLOCK..2 * BLOCK]), a[1]);
    }

    #[test]
    fn the_longest_unused_goes_first_and_the_deepest_of_a_chain_before_its_parents() {
        let mut pool = BlockPool::new(6);
        let (a, b, c) = (tokens(0, 3), tokens(1000, 3), tokens(2000, 1));
        pass(&mut pool, &a);
        pass(&mut pool, &b);
        assert_eq!((pool.free(), pool.idle()), (0, 6));
        // A prompt that only shares the first block of `a` makes that block young, not its successors.
        pass(&mut pool, &a[..BLOCK]);
        pass(&mut pool, &c);
        assert_eq!((depth(&pool, &a), depth(&pool, &b), depth(&pool, &c)), (2, 3, 1));
        pass(&mut pool, &tokens(3000, 3));
        assert_eq!((depth(&pool, &a), depth(&pool, &b), depth(&pool, &c)), (1, 1, 1));
        assert_eq!(pool.free() + pool.idle(), 6);
    }

    #[test]
    fn a_held_block_is_never_taken() {
        let mut pool = BlockPool::new(2);
        let a = tokens(0, 1);
        pass(&mut pool, &a);
        let found = pool.find(&chains(&a));
        let held = pool.acquire(found, 0).unwrap();
        let other = pool.take().unwrap();
        assert_ne!(held[0], other);
        assert_eq!(pool.take(), None);
        assert_eq!(
            pool.acquire(held.clone(), 1),
            None,
            "and nothing is held by a failed try"
        );
        pool.release(&[other]);
        pool.release(&held);
        assert_eq!((pool.free(), pool.idle(), depth(&pool, &a)), (1, 1, 1));
    }

    #[test]
    fn one_block_per_chain_is_kept() {
        let mut pool = BlockPool::new(3);
        let (tokens, chains) = (tokens(0, 1), chains(&tokens(0, 1)));
        let full = full(&tokens, &chains, 0);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(pool.publish(full, a), a);
        assert_eq!(
            pool.publish(full, b),
            a,
            "the second computation takes the first one's block"
        );
        pool.audit([[a].as_slice(), &[a]].into_iter()).unwrap();
        assert_eq!(pool.free(), 2);
        pool.release(&[a]);
        assert_eq!(pool.idle(), 0);
        pool.release(&[a]);
        assert_eq!(pool.idle(), 1);
    }

    proptest! {
        /// Sequences that share beginnings come and go; the books stay right, and what is idle can be found.
        #[test]
        fn the_books_are_right(
            capacity in 1u32..12,
            acts in prop::collection::vec((0usize..4, 1usize..5, 0u32..2, any::<bool>()), 1..60),
        ) {
            let mut pool = BlockPool::new(capacity);
            let mut tables: Vec<Vec<BlockId>> = Vec::new();
            for (which, blocks, branch, come) in acts {
                if come {
                    let mut tokens = tokens(0, blocks);
                    if blocks > 1 {
                        tokens[BLOCK] += branch;
                    }
                    let chains = chains(&tokens);
                    let found = pool.find(&chains);
                    let known = found.len();
                    if let Some(mut table) = pool.acquire(found, blocks - known) {
                        for (i, id) in table.iter_mut().enumerate().skip(known) {
                            *id = pool.publish(full(&tokens, &chains, i), *id);
                        }
                        tables.push(table);
                    }
                } else if !tables.is_empty() {
                    let table = tables.remove(which % tables.len());
                    pool.release(&table);
                }
                let books = pool.audit(tables.iter().map(Vec::as_slice));
                prop_assert!(books.is_ok(), "{books:?}");
                let reachable: std::collections::HashSet<_> = (1..5)
                    .flat_map(|n| (0..2u32).map(move |branch| (n, branch)))
                    .flat_map(|(n, branch)| {
                        let mut tokens = super::tests::tokens(0, n);
                        if n > 1 {
                            tokens[BLOCK] += branch;
                        }
                        pool.find(&chains(&tokens))
                    })
                    .collect();
                prop_assert!(pool.idle.values().all(|id| reachable.contains(id)));
            }
        }
    }
}
