//! The reference backend: candle's quantised products on the CPU.
//!
//! Not fast and not batched: the steps of a batch are computed one after the other. It stays to say what the right
//! logits are.

mod decoder;
mod source;

use decoder::{Decoder, KvCache};

use super::{BLOCK, Backend, BackendError, BlockId, Step};
use crate::model::Model;

/// How the products with the weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// With the weights as stored and activations rounded to 8 bits: small, and what other engines do with such
    /// files. The rounding moves logits by tenths.
    Quantized,
    /// With the weights decoded to float32 once: the exact arithmetic of the file, at 4 bytes per weight.
    Float32,
}

/// Candle's arithmetic behind [`Backend`].
#[derive(Debug)]
pub struct CandleBackend {
    decoder: Decoder,
    blocks: Vec<KvCache>,
}

impl CandleBackend {
    /// Reads the weights of a model.
    ///
    /// # Errors
    /// The file became unreadable, or candle refuses a tensor.
    pub fn load(model: &Model, products: Products) -> Result<Self, BackendError> {
        Ok(Self {
            decoder: Decoder::load(model, products)?,
            blocks: Vec::new(),
        })
    }

    fn step(&mut self, step: &Step<'_>) -> Result<Vec<f32>, BackendError> {
        step.check(self.vocab(), self.context(), self.blocks.len())?;
        let held = step.start.div_ceil(BLOCK);
        let parts = step.blocks[..held].iter().map(|id| &self.blocks[id.0 as usize]);
        let mut cache = KvCache::join(parts, step.start)?;
        let mut logits = Vec::new();
        let mut rest = step.tokens;
        while !rest.is_empty() {
            // Candle's sums depend on how many rows it is given, and 8-bit activations make a last bit of difference
            // grow to tenths of a logit. In pieces that end at multiples of BLOCK a position's arithmetic is the
            // same whether the blocks before it come from this step or an earlier one. It bounds the score matrix
            // too, at `heads * BLOCK * context` numbers.
            let first = cache.positions() / BLOCK * BLOCK;
            let (piece, after) = rest.split_at((first + BLOCK - cache.positions()).min(rest.len()));
            let wanted = step.logits.saturating_sub(after.len()).min(piece.len());
            logits.extend(self.decoder.forward(piece, &mut cache, wanted)?);
            let block = step.blocks[first / BLOCK].0 as usize;
            self.blocks[block] = cache.from(first)?;
            rest = after;
        }
        Ok(logits)
    }
}

impl Backend for CandleBackend {
    fn name(&self) -> &str {
        // candle chooses its kernels at compile time, and they do not all give the same bits.
        if cfg!(target_feature = "avx2") {
            "candle avx2"
        } else if cfg!(target_feature = "neon") {
            "candle neon"
        } else {
            "candle scalar"
        }
    }

    fn vocab(&self) -> usize {
        self.decoder.config().vocab
    }

    fn context(&self) -> usize {
        self.decoder.config().context
    }

    fn block_bytes(&self) -> usize {
        self.decoder.config().numbers_per_position() * BLOCK * size_of::<f32>()
    }

    fn invariant(&self) -> bool {
        false
    }

    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.blocks.clear();
        self.blocks.resize_with(blocks, KvCache::default);
        Ok(())
    }

    fn copy(&mut self, from: BlockId, to: BlockId) {
        self.blocks[to.0 as usize] = self.blocks[from.0 as usize].clone();
    }

    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        batch.iter().map(|step| self.step(step)).collect()
    }
}
