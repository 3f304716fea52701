//! The backend of this project on the CPU: quantised weights in tiles, a paged KV cache, one decoder for all rows.
//!
//! Not scheduling, and not a tensor library. One file per operation. A row's bits depend on its own sequence alone:
//! not on the batch, the cuts of its prompt, the number of threads or the instructions of the processor.

#![allow(unsafe_code)] // instructions chosen at run time, memory shared by tasks; each use says why it is sound

mod attention;
mod buffer;
mod decoder;
mod exp;
mod isa;
mod kv;
mod limits;
mod linear;
mod norm;
mod pool;
mod quantize;
mod residual;
mod rope;
mod silu;
#[doc(hidden)]
pub mod single;
mod source;

pub use decoder::{Site, Watch};
pub use isa::Isa;
pub use linear::Arithmetic;

use decoder::Decoder;
use kv::KvCache;
use linear::{Context, Linear};
use pool::Pool;

use super::{BLOCK, Backend, BackendError, BlockId, Bounds, Step};
use crate::model::Model;

/// How to compute; nothing but `arithmetic` changes a bit of the results.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether activations are rounded.
    pub arithmetic: Arithmetic,
    /// Threads; 0 means one per core.
    pub threads: usize,
    /// Instructions.
    pub isa: Isa,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            arithmetic: Arithmetic::Fast,
            threads: 0,
            isa: Isa::best(),
        }
    }
}

/// The CPU behind [`Backend`].
#[derive(Debug)]
pub struct CpuBackend {
    options: Options,
    pool: Pool,
    decoder: Decoder,
    cache: KvCache,
}

impl CpuBackend {
    /// Reads and packs the weights of a model.
    ///
    /// # Errors
    /// A file became unreadable, a format is not computed with, or there is not enough memory.
    pub fn load(model: &Model, options: Options) -> Result<Self, BackendError> {
        let pool = Pool::new(options.threads)?;
        let decoder = Decoder::load(model, &pool)?;
        Ok(Self {
            cache: KvCache::new(decoder.config(), 0)?,
            options,
            pool,
            decoder,
        })
    }

    /// Bytes of the packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.decoder.bytes()
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        match self.options.arithmetic {
            Arithmetic::Fast => "cpu fast",
            Arithmetic::Exact => "cpu exact",
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
        true
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let (layers, output) = self.decoder.linears();
        let products = |linear: &Linear| linear.outputs() * linear.inputs();
        Some(Bounds {
            bytes_per_second: limits::read(&self.pool, self.options.isa),
            products_per_second: limits::multiply(&self.pool, self.options.isa),
            pass_bytes: layers.iter().map(|l| l.bytes()).sum::<usize>() + output.bytes(),
            position_products: layers.iter().map(|l| products(l)).sum(),
            logits_products: products(output),
        })
    }

    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.cache = KvCache::new(self.decoder.config(), blocks)?;
        Ok(())
    }

    fn copy(&mut self, from: BlockId, to: BlockId) {
        self.cache.copy(from, to);
    }

    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        self.compute(batch, None)
    }
}

impl CpuBackend {
    /// As [`Backend::forward`]; `watch` is shown what goes into the layers, row after row in the order of the batch.
    ///
    /// # Errors
    /// As there.
    pub fn observe(&mut self, batch: &[Step<'_>], watch: Watch<'_>) -> Result<Vec<Vec<f32>>, BackendError> {
        self.compute(batch, Some(watch))
    }

    fn compute(
        &mut self,
        batch: &[Step<'_>],
        watch: Option<Watch<'_>>,
    ) -> Result<Vec<Vec<f32>>, BackendError> {
        for step in batch {
            step.check(self.vocab(), self.context(), self.cache.blocks())?;
        }
        let Self {
            options,
            pool,
            decoder,
            cache,
        } = self;
        let context = Context {
            isa: options.isa,
            arithmetic: options.arithmetic,
            pool,
        };
        Ok(decoder.forward(context, cache, batch, watch))
    }
}

#[cfg(test)]
mod tests;
