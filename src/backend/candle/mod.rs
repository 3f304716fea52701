//! The reference backend: candle's quantised products on the CPU.
//!
//! Not fast and not batched: sequences of a batch are computed one after the other, and every sequence owns its keys
//! and values, so block tables are ignored. It stays to say what the right logits are.

mod decoder;
mod source;

use std::collections::HashMap;

use decoder::{Decoder, KvCache};

use super::{BLOCK, Backend, BackendError, SequenceId, Step};
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
    sequences: HashMap<SequenceId, KvCache>,
}

impl CandleBackend {
    /// Reads the weights of a model.
    ///
    /// # Errors
    /// The file became unreadable, or candle refuses a tensor.
    pub fn load(model: &Model, products: Products) -> Result<Self, BackendError> {
        Ok(Self {
            decoder: Decoder::load(model, products)?,
            sequences: HashMap::new(),
        })
    }

    fn step(&mut self, step: &Step<'_>) -> Result<Vec<f32>, BackendError> {
        let sequence = step.sequence;
        let held = self.sequences.get(&sequence);
        let expected = held.map_or(0, KvCache::positions);
        if step.start != expected || step.tokens.is_empty() {
            return Err(BackendError::Position {
                sequence,
                expected,
                found: step.start,
            });
        }
        let (found, limit) = (step.start + step.tokens.len(), self.context());
        if found > limit {
            return Err(BackendError::Context {
                sequence,
                found,
                limit,
            });
        }
        let mut cache = held.cloned().unwrap_or_default();
        let mut logits = Vec::new();
        let mut rest = step.tokens;
        while !rest.is_empty() {
            // Candle's sums depend on how many rows it is given, and 8-bit activations make a last bit of difference
            // grow to tenths of a logit. In pieces that end at multiples of BLOCK a position's arithmetic is the
            // same whether the blocks before it come from this step, an earlier one or a fork. It bounds the score
            // matrix too, at `heads * BLOCK * context` numbers.
            let room = BLOCK - cache.positions() % BLOCK;
            let (piece, after) = rest.split_at(room.min(rest.len()));
            logits = self.decoder.forward(piece, &mut cache, after.is_empty())?;
            rest = after;
        }
        self.sequences.insert(sequence, cache);
        Ok(logits)
    }
}

impl Backend for CandleBackend {
    fn name(&self) -> &'static str {
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

    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        batch.iter().map(|step| self.step(step)).collect()
    }

    fn fork(&mut self, from: SequenceId, to: SequenceId) -> Result<(), BackendError> {
        // Keys and values are never written in place, so a copy of the handles is a copy of the sequence.
        let cache = self.sequences.get(&from).cloned().unwrap_or_default();
        self.sequences.insert(to, cache);
        Ok(())
    }

    fn release(&mut self, sequence: SequenceId) {
        self.sequences.remove(&sequence);
    }

    fn bytes_per_position(&self) -> usize {
        let config = self.decoder.config();
        2 * config.layers * config.kv_heads * config.head_dim * size_of::<f32>()
    }
}
