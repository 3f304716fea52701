//! The cached blocks that follow the same beginning: which of them agrees longest with what a row has there.
//!
//! Not full matches, which `blocks` finds by chain. A prompt that leaves another one's tokens within a block takes a copy
//! of that block and computes from where they part.

use super::blocks::Chain;
use crate::backend::{BLOCK, BlockId};
use std::collections::HashMap;

/// Blocks and their tokens by the chain before them; `None` stands for the beginning of a sequence.
#[derive(Default)]
pub struct Siblings {
    after: HashMap<Option<Chain>, Vec<(BlockId, [u32; BLOCK])>>,
}

impl Siblings {
    /// Takes in a block that is cached now. `tokens` are its [`BLOCK`] tokens.
    pub fn add(&mut self, before: Option<Chain>, tokens: &[u32], id: BlockId) {
        let mut own = [0; BLOCK];
        own.copy_from_slice(tokens);
        self.after.entry(before).or_default().push((id, own));
    }

    /// Forgets a block.
    pub fn remove(&mut self, before: Option<Chain>, id: BlockId) {
        if let Some(blocks) = self.after.get_mut(&before) {
            blocks.retain(|(other, _)| *other != id);
            if blocks.is_empty() {
                self.after.remove(&before);
            }
        }
    }

    /// The block that begins with the most of `tokens`, and how many; none that begins with none. Of equals the one
    /// that was cached first.
    pub fn nearest(&self, before: Option<Chain>, tokens: &[u32]) -> Option<(BlockId, usize)> {
        let blocks = self.after.get(&before)?;
        let same = |own: &[u32; BLOCK]| own.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let all = blocks.iter().rev().map(|(id, own)| (*id, same(own)));
        all.max_by_key(|(_, same)| *same).filter(|(_, same)| *same > 0)
    }

    /// How many blocks there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.after.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nearest_is_the_longest_common_beginning(
            blocks in prop::collection::vec((any::<bool>(), 0usize..6, 0u32..3), 0..12),
            wanted in prop::collection::vec(0u32..3, 0..40),
            gone in 0usize..12,
        ) {
            let mut siblings = Siblings::default();
            let mut all = Vec::new();
            for (index, (first, same, then)) in blocks.into_iter().enumerate() {
                let before = first.then_some([1; 32]);
                let mut tokens = [7; BLOCK];
                for (place, token) in tokens.iter_mut().enumerate() {
                    *token = if place < same { wanted.get(place).copied().unwrap_or(9) } else { then };
                }
                let id = BlockId(index as u32);
                siblings.add(before, &tokens, id);
                all.push((before, tokens, id));
            }
            if gone < all.len() {
                let (before, _, id) = all.remove(gone);
                siblings.remove(before, id);
            }
            prop_assert_eq!(siblings.len(), all.len());
            for before in [None, Some([1; 32])] {
                let common = |tokens: &[u32]| (0..=BLOCK.min(wanted.len())).rev().find(|n| tokens[..*n] == wanted[..*n]);
                let mine = all.iter().filter(|(other, ..)| *other == before);
                let best = mine.map(|(_, tokens, _)| common(tokens).unwrap_or(0)).max().unwrap_or(0);
                let found = siblings.nearest(before, &wanted);
                prop_assert_eq!(found.map_or(0, |(_, same)| same), best);
                if let Some((id, same)) = found {
                    let (_, tokens, _) = all.iter().find(|(.., other)| *other == id).unwrap();
                    prop_assert_eq!(common(tokens), Some(same));
                }
            }
        }
    }
}
