//! The backend of this project on NVIDIA GPUs: 4-bit and fp16 weights, a paged fp16 KV cache, kernels of our own.
//!
//! Not the kernels, which are CUDA C++ in `kernels/`, and not the driver. A row's bits depend on its own sequence alone,
//! on every kind of device; between kinds, and between this backend and the CPU's, they differ in the last places.

#![allow(unsafe_code)] // calls of the driver and the emulator; each use says why it is sound

mod decoder;
pub mod device;
pub mod driver;
#[cfg(feature = "emulator")]
pub mod emulator;
mod image;
mod linear;
pub mod memory;
mod pass;
pub mod probe;
mod source;
mod workspace;

use decoder::{Cache, Decoder};
use device::{Address, Device, upload};
use linear::Linear;
use workspace::Workspace;

use super::{BLOCK, Backend, BackendError, BlockId, Bounds, Largest, Step};
use crate::model::Network;

/// A GPU behind [`Backend`].
#[derive(Debug)]
pub struct CudaBackend {
    name: String,
    device: Box<dyn Device>,
    decoder: Decoder,
    space: Workspace,
    cache: Option<Cache>,
    blocks: usize,
    /// What went wrong on the device: nothing after that can be trusted.
    broken: Option<String>,
}

impl CudaBackend {
    /// Reads the weights of a model and copies them to a device.
    ///
    /// # Errors
    /// A file became unreadable, a format or shape is not computed with, the device has not enough memory or failed.
    pub fn load(model: Network<'_>, mut device: Box<dyn Device>) -> Result<Self, BackendError> {
        let decoder = Decoder::load(model, &mut *device)?;
        Ok(Self {
            name: format!("cuda {}", device.name()),
            space: Workspace::new(&mut *device, decoder.config())?,
            decoder,
            cache: None,
            blocks: 0,
            broken: None,
            device,
        })
    }

    /// Bytes of the weights that a pass reads.
    pub fn weight_bytes(&self) -> usize {
        let (layers, output) = self.decoder.linears();
        layers.iter().map(|linear| linear.bytes()).sum::<usize>() + output.bytes()
    }

    /// Notes a failure of the device, after which every pass fails.
    fn note<T>(&mut self, result: Result<T, BackendError>) -> Result<T, BackendError> {
        if let Err(error) = &result {
            self.broken = Some(error.to_string());
        }
        result
    }

    fn make_room(&mut self, blocks: usize) -> Result<(), BackendError> {
        if let Some(old) = self.cache.take() {
            self.device.forget();
            self.device.free(old.at)?;
            self.device.free(old.angles)?;
        }
        self.blocks = 0;
        // One more, for rows that pad a pass.
        let at = self.device.allocate((blocks + 1) * self.block_bytes())?;
        let positions = self.context().min(blocks * BLOCK);
        let angles = self.decoder.config().rope_angles(0..positions);
        let angles = upload(&mut *self.device, &angles)?;
        self.cache = Some(Cache {
            at,
            angles,
            spare: blocks,
        });
        self.blocks = blocks;
        Ok(())
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn vocab(&self) -> usize {
        self.decoder.config().vocab
    }

    fn context(&self) -> usize {
        self.decoder.config().context
    }

    fn block_bytes(&self) -> usize {
        self.decoder.config().numbers_per_position() * BLOCK * size_of::<u16>()
    }

    fn invariant(&self) -> bool {
        true
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let bytes_per_second = self.device.bandwidth()?;
        let (layers, output) = self.decoder.linears();
        let products = |linear: &Linear| linear.outputs() * linear.inputs();
        Some(Bounds {
            bytes_per_second,
            products_per_second: self.device.products(),
            pass_bytes: self.weight_bytes(),
            position_products: layers.iter().map(|l| products(l)).sum(),
            logits_products: products(output),
        })
    }

    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        let made = self.make_room(blocks);
        self.note(made)
    }

    fn copy(&mut self, from: BlockId, to: BlockId) {
        let bytes = self.block_bytes();
        let place = |cache: &Cache, id: BlockId| Address(cache.at.0 + id.0 as u64 * bytes as u64);
        if let Some(cache) = &self.cache {
            let copied = self.device.copy(place(cache, from), place(cache, to), bytes);
            // The next pass reports it.
            let _ = self.note(copied);
        }
    }

    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        let vocab = self.vocab();
        let mut logits: Vec<f32> = Vec::new();
        self.compute(batch, |device, space, rows| {
            let from = logits.len();
            logits.resize(from + rows * vocab, 0.0);
            device.read(space.logits, bytemuck::cast_slice_mut(&mut logits[from..]))
        })?;
        Ok(by_step(batch, vocab, &logits))
    }

    fn largest(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<Largest>>, BackendError> {
        let of = self.vocab();
        let mut largest = Vec::new();
        self.compute(batch, |device, space, rows| {
            let mut found = vec![[0u32; 2]; rows];
            device.read(space.largest, bytemuck::cast_slice_mut(&mut found))?;
            largest.extend(found.into_iter().map(|[id, non_finite]| Largest {
                id,
                non_finite: non_finite as usize,
                of,
            }));
            Ok(())
        })?;
        Ok(by_step(batch, 1, &largest))
    }
}

impl CudaBackend {
    /// Computes the steps of a batch; for `read` see [`Decoder::forward`].
    fn compute(
        &mut self,
        batch: &[Step<'_>],
        read: impl FnMut(&mut dyn Device, &Workspace, usize) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        for step in batch {
            step.check(self.vocab(), self.context(), self.blocks)?;
        }
        if let Some(reason) = &self.broken {
            return Err(BackendError::Compute {
                op: "a pass on a device that failed before",
                reason: reason.clone(),
            });
        }
        // Without blocks there is no step that could pass the check.
        let Some(cache) = self.cache else {
            return Ok(());
        };
        let done = self
            .decoder
            .forward(&mut *self.device, cache, &mut self.space, batch, read);
        self.note(done)
    }
}

/// What was found at the wanted positions, `width` of it at each, by step.
fn by_step<T: Clone>(batch: &[Step<'_>], width: usize, all: &[T]) -> Vec<Vec<T>> {
    let mut rest = all;
    let mut next = |step: &Step<'_>| {
        let (mine, others) = rest.split_at(step.logits * width);
        rest = others;
        mine.to_vec()
    };
    batch.iter().map(&mut next).collect()
}

#[cfg(all(test, feature = "emulator"))]
mod tests;
