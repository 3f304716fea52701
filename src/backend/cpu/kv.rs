//! The paged KV cache: for each block, layer and KV head the keys and values of 32 positions.
//!
//! Not who owns a block (that is the engine). Keys lie `(head_dim, BLOCK)`, so that the scores of all positions of a
//! block are one vector; values lie `(BLOCK, head_dim)`. Both in float32.

use super::buffer::Buffer;
use crate::backend::{BLOCK, BackendError, BlockId};
use crate::model::config::Config;

/// Keys and values by block.
#[derive(Debug)]
pub(super) struct KvCache {
    layers: usize,
    heads: usize,
    head_dim: usize,
    numbers: Buffer<f32>,
}

impl KvCache {
    /// Room for `blocks` blocks.
    pub(super) fn new(config: &Config, blocks: usize) -> Result<Self, BackendError> {
        let len = blocks.checked_mul(config.numbers_per_position() * BLOCK);
        let bytes = len.map_or(usize::MAX, |len| len.saturating_mul(size_of::<f32>()));
        let numbers = len.and_then(Buffer::zeroed).ok_or_else(|| BackendError::Memory {
            bytes,
            reason: "the allocation failed".into(),
        })?;
        Ok(Self {
            layers: config.layers,
            heads: config.kv_heads,
            head_dim: config.head_dim,
            numbers,
        })
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        let block = 2 * self.layers * self.heads * self.head_dim * BLOCK;
        self.numbers.len() / block
    }

    fn at(&self, block: BlockId, layer: usize, head: usize) -> usize {
        ((block.0 as usize * self.layers + layer) * self.heads + head) * 2 * self.head_dim * BLOCK
    }

    /// Keys `(head_dim, BLOCK)` and values `(BLOCK, head_dim)` of a block.
    pub(super) fn read(&self, block: BlockId, layer: usize, head: usize) -> (&[f32], &[f32]) {
        let size = self.head_dim * BLOCK;
        self.numbers[self.at(block, layer, head)..][..2 * size].split_at(size)
    }

    /// Stores the key and value `(heads, head_dim)` of one position.
    pub(super) fn write(&mut self, block: BlockId, layer: usize, place: usize, key: &[f32], value: &[f32]) {
        let size = self.head_dim * BLOCK;
        let heads = key
            .chunks_exact(self.head_dim)
            .zip(value.chunks_exact(self.head_dim));
        for (head, (key, value)) in heads.enumerate() {
            let start = self.at(block, layer, head);
            let (keys, values) = self.numbers[start..start + 2 * size].split_at_mut(size);
            for (row, number) in keys.chunks_exact_mut(BLOCK).zip(key) {
                row[place] = *number;
            }
            values[place * self.head_dim..][..self.head_dim].copy_from_slice(value);
        }
    }
}
