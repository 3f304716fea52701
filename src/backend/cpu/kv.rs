//! The paged KV cache: for each block, layer and KV head the keys and values of 32 positions.
//!
//! Not who owns a block (that is the engine). Keys lie `(head_dim, BLOCK)`, so that the scores of all positions of a
//! block are one vector; values lie `(BLOCK, head_dim)`. Both in float32.

use super::buffer::Buffer;
use super::pool::Parts;
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
    /// Room for `blocks` blocks of a model.
    pub(super) fn new(config: &Config, blocks: usize) -> Result<Self, BackendError> {
        Self::sized(config.layers, config.kv_heads, config.head_dim, blocks)
    }

    /// Room for `blocks` blocks.
    pub(super) fn sized(
        layers: usize,
        heads: usize,
        head_dim: usize,
        blocks: usize,
    ) -> Result<Self, BackendError> {
        let len = blocks.checked_mul(2 * layers * heads * head_dim * BLOCK);
        let bytes = len.map_or(usize::MAX, |len| len.saturating_mul(size_of::<f32>()));
        let numbers = len.and_then(Buffer::zeroed).ok_or_else(|| BackendError::Memory {
            bytes,
            reason: "the allocation failed".into(),
        })?;
        Ok(Self {
            layers,
            heads,
            head_dim,
            numbers,
        })
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        let block = 2 * self.layers * self.heads * self.head_dim * BLOCK;
        self.numbers.len() / block
    }

    /// Keys `(head_dim, BLOCK)` and values `(BLOCK, head_dim)` of a block.
    pub(super) fn read(&self, block: BlockId, layer: usize, head: usize) -> (&[f32], &[f32]) {
        let size = self.head_dim * BLOCK;
        let start = at(self.layers, self.heads, self.head_dim, block, layer, head);
        self.numbers[start..][..2 * size].split_at(size)
    }

    /// Copies a block.
    pub(super) fn copy(&mut self, from: BlockId, to: BlockId) {
        let size = 2 * self.layers * self.heads * self.head_dim * BLOCK;
        let start = from.0 as usize * size;
        self.numbers
            .copy_within(start..start + size, to.0 as usize * size);
    }

    /// Stores the key and value `(heads, head_dim)` of one position.
    pub(super) fn write(&mut self, block: BlockId, layer: usize, place: usize, key: &[f32], value: &[f32]) {
        // SAFETY: nobody else has the places.
        unsafe { self.places().write(block, layer, place, key, value) }
    }

    /// The cache, to be written to by several tasks.
    pub(super) fn places(&mut self) -> Places<'_> {
        let (layers, heads, head_dim) = (self.layers, self.heads, self.head_dim);
        Places {
            layers,
            heads,
            head_dim,
            numbers: Parts::of(&mut self.numbers),
        }
    }
}

/// The places of a cache, each of which one task may write.
pub(super) struct Places<'a> {
    layers: usize,
    heads: usize,
    head_dim: usize,
    numbers: Parts<'a, f32>,
}

impl Places<'_> {
    /// As [`KvCache::write`].
    ///
    /// # Safety
    /// No other task may write to this place of this block and layer.
    pub(super) unsafe fn write(
        &self,
        block: BlockId,
        layer: usize,
        place: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let dim = self.head_dim;
        let heads = key.chunks_exact(dim).zip(value.chunks_exact(dim));
        for (head, (key, value)) in heads.enumerate() {
            let start = at(self.layers, self.heads, dim, block, layer, head);
            for (row, number) in key.iter().enumerate() {
                // SAFETY: the caller's word.
                unsafe { self.numbers.part(start + row * BLOCK + place, 1) }.fill(*number);
            }
            // SAFETY: as above.
            let values = unsafe { self.numbers.part(start + (BLOCK + place) * dim, dim) };
            values.copy_from_slice(value);
        }
    }
}

/// Where the keys of a block, layer and head start; its values follow.
fn at(layers: usize, heads: usize, dim: usize, block: BlockId, layer: usize, head: usize) -> usize {
    ((block.0 as usize * layers + layer) * heads + head) * 2 * dim * BLOCK
}
