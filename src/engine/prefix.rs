//! The prefix cache: which computed prefixes of earlier prompts can be continued.
//!
//! Not the keys and values themselves: those stay in the backend under the sequence that this cache names. A prefix
//! is known by the hash chain of its blocks, is always a whole number of [`BLOCK`]s, and the least recently used go
//! first when the byte budget is reached.

use crate::backend::{BLOCK, SequenceId};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

type Chain = [u8; 32];

struct Entry {
    sequence: SequenceId,
    positions: usize,
    used: u64,
}

/// Prefixes by hash chain.
pub struct PrefixCache {
    entries: HashMap<Chain, Entry>,
    bytes_per_position: usize,
    budget: usize,
    held: usize,
    clock: u64,
}

impl PrefixCache {
    /// An empty cache that holds at most `budget` bytes.
    pub fn new(budget: usize, bytes_per_position: usize) -> Self {
        Self {
            entries: HashMap::new(),
            bytes_per_position,
            budget,
            held: 0,
            clock: 0,
        }
    }

    /// The longest cached prefix of `tokens` that leaves at least one token to compute, and its positions.
    pub fn longest(&mut self, tokens: &[u32]) -> Option<(SequenceId, usize)> {
        let most = tokens.len().saturating_sub(1) / BLOCK;
        let chain = chains(&tokens[..most * BLOCK]);
        // Every shorter prefix has been of use too: what many prompts share must not age behind their tails.
        self.clock += 1;
        let mut found = None;
        for key in &chain {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.used = self.clock;
                found = Some((entry.sequence, entry.positions));
            }
        }
        found
    }

    /// Whether the prefix `tokens`, a whole number of blocks, is here.
    pub fn holds(&self, tokens: &[u32]) -> bool {
        chains(tokens)
            .last()
            .is_some_and(|key| self.entries.contains_key(key))
    }

    /// Takes `sequence` as the holder of the prefix `tokens`, a whole number of blocks, and returns the sequences
    /// to be released: those pushed out, or `sequence` itself when it is larger than the whole budget.
    pub fn insert(&mut self, tokens: &[u32], sequence: SequenceId) -> Vec<SequenceId> {
        let bytes = tokens.len() * self.bytes_per_position;
        let Some(key) = chains(tokens).pop().filter(|_| bytes <= self.budget) else {
            return vec![sequence];
        };
        self.clock += 1;
        let entry = Entry {
            sequence,
            positions: tokens.len(),
            used: self.clock,
        };
        let mut out = Vec::new();
        self.held += bytes;
        if let Some(old) = self.entries.insert(key, entry) {
            self.held -= old.positions * self.bytes_per_position;
            out.push(old.sequence);
        }
        while self.held > self.budget {
            let Some(key) = self.entries.iter().min_by_key(|(_, e)| e.used).map(|(k, _)| *k) else {
                break;
            };
            if let Some(old) = self.entries.remove(&key) {
                self.held -= old.positions * self.bytes_per_position;
                out.push(old.sequence);
            }
        }
        out
    }
}

/// The hash chain over the blocks of `tokens`: entry i stands for the first i + 1 blocks.
fn chains(tokens: &[u32]) -> Vec<Chain> {
    let mut previous = [0; 32];
    tokens
        .chunks_exact(BLOCK)
        .map(|block| {
            let mut hash = Sha256::new_with_prefix(previous);
            for token in block {
                hash.update(token.to_le_bytes());
            }
            previous = hash.finalize().into();
            previous
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(n: usize) -> Vec<u32> {
        (0..n as u32).collect()
    }

    #[test]
    fn finds_the_longest_prefix_that_leaves_a_token() {
        let mut cache = PrefixCache::new(usize::MAX, 1);
        assert!(cache.insert(&tokens(BLOCK), SequenceId(1)).is_empty());
        assert!(cache.insert(&tokens(2 * BLOCK), SequenceId(2)).is_empty());
        assert_eq!(
            cache.longest(&tokens(3 * BLOCK)),
            Some((SequenceId(2), 2 * BLOCK))
        );
        assert_eq!(cache.longest(&tokens(2 * BLOCK)), Some((SequenceId(1), BLOCK)));
        assert_eq!(cache.longest(&tokens(BLOCK)), None);
        let mut other = tokens(3 * BLOCK);
        other[BLOCK] = 9999;
        assert_eq!(cache.longest(&other), Some((SequenceId(1), BLOCK)));
        assert_eq!(cache.longest(&[]), None);
    }

    #[test]
    fn least_recently_used_goes_first_and_the_budget_holds() {
        let mut cache = PrefixCache::new(3 * BLOCK, 1);
        let (mut a, mut b) = (tokens(BLOCK), tokens(BLOCK));
        (a[0], b[0]) = (100, 200);
        assert!(cache.insert(&a, SequenceId(1)).is_empty());
        assert!(cache.insert(&b, SequenceId(2)).is_empty());
        let longer: Vec<u32> = a.iter().copied().chain([1]).collect();
        assert_eq!(cache.longest(&longer), Some((SequenceId(1), BLOCK)));
        assert_eq!(cache.insert(&tokens(2 * BLOCK), SequenceId(3)), [SequenceId(2)]);
        assert_eq!(cache.held, 3 * BLOCK);
        assert_eq!(cache.longest(&longer), Some((SequenceId(1), BLOCK)));
        assert_eq!(
            cache.insert(&tokens(4 * BLOCK), SequenceId(4)),
            [SequenceId(4)],
            "larger than the budget"
        );
        assert!(cache.holds(&a) && !cache.holds(&b));
    }
}
