//! An NVIDIA GPU by way of its driver, which is looked up when the program runs.
//!
//! Not linked: a machine without a driver runs the program too, and is told so when it asks for a GPU. A driver that
//! lacks a function makes cudarc panic, so every call goes through `probe::guard`.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::{CUdevice_attribute, CUfunction, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError, result};

use super::device::{Address, Argument, Device, Kernel};
use super::image::{Image, image};
use super::probe::{chip, guard, probe};
use crate::backend::BackendError;

/// Bytes of the pinned buffer through which everything is copied: large enough to hide the call, and small to pin.
const PINNED: usize = 8 << 20;
/// Bytes that the measurement of the memory's speed copies.
const MEASURED: usize = 256 << 20;

/// A GPU.
pub struct Driver {
    /// The image, which decides the bits.
    name: String,
    multiprocessors: usize,
    products: f64,
    functions: HashMap<Kernel, CUfunction>,
    graphs: HashMap<u64, CudaGraph>,
    pinned: *mut u8,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

// SAFETY: the driver's objects may be used by any thread that binds the context, as each method here does, and by one at
// a time, which `&mut self` sees to.
unsafe impl Send for Driver {}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// The first GPU, with its kernels loaded.
    ///
    /// # Errors
    /// There is none ([`probe`] says why), or it does not take the kernels.
    pub fn open() -> Result<Self, BackendError> {
        probe().map_err(|absent| BackendError::Compute {
            op: "cuda",
            reason: absent.to_string(),
        })?;
        let (context, stream, chip, multiprocessors, hertz) = guard("opening the GPU", || {
            let context = CudaContext::new(0)?;
            // SAFETY: everything here happens on one stream, so no events are needed to order it.
            unsafe { context.disable_event_tracking() };
            let stream = context.new_stream()?;
            let chip = chip(&context)?;
            let count = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
            let kilohertz = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
            Ok((context, stream, chip, count as usize, 1e3 * f64::from(kilohertz)))
        })?;
        let image = image(chip)?;
        let functions = functions(&image)?;
        // SAFETY: allocates; freed when this is dropped. Not write-combined, for it is read from too.
        let pinned = guard("pinning memory", || unsafe { result::malloc_host(PINNED, 0) })?;
        Ok(Self {
            name: image.name,
            multiprocessors,
            products: multiprocessors as f64 * hertz * products_per_cycle(chip),
            functions,
            graphs: HashMap::new(),
            pinned: pinned.cast(),
            stream,
            context,
        })
    }

    /// Bytes of the GPU's memory that are free, and all of them.
    ///
    /// # Errors
    /// The driver failed.
    pub fn memory(&self) -> Result<(usize, usize), BackendError> {
        guard("asking for memory", || self.context.mem_get_info())
    }

    /// Runs calls of the driver with this GPU's context.
    fn on_gpu<T>(
        &self,
        op: &'static str,
        calls: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, BackendError> {
        guard(op, || {
            self.context.bind_to_thread()?;
            calls()
        })
    }
}

/// Products of halves, summed in fp32, per cycle and multiprocessor. Source: the tables of NVIDIA's architecture white
/// papers, dense; Hopper's by way of `mma`, which reaches half of what its own instruction does.
fn products_per_cycle(chip: u32) -> f64 {
    match chip {
        80 | 90.. => 1024.0,
        _ => 512.0,
    }
}

/// Loads a module, which stays until the process ends, and finds its kernels.
fn functions(image: &Image) -> Result<HashMap<Kernel, CUfunction>, BackendError> {
    let module = guard("loading the kernels", || {
        // SAFETY: an image as the driver takes it, PTX with its zero byte.
        unsafe { result::module::load_data(image.bytes.as_ptr().cast()) }
    })?;
    let mut functions = HashMap::new();
    for kernel in Kernel::all() {
        let name = CString::new(kernel.name()).map_err(|error| BackendError::Compute {
            op: "loading the kernels",
            reason: error.to_string(),
        })?;
        // SAFETY: the module was just loaded.
        let function = guard("finding a kernel", || unsafe {
            result::module::get_function(module, name)
        })?;
        functions.insert(kernel, function);
    }
    Ok(functions)
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What fails here has failed before and been reported.
        let _ = self.on_gpu("closing the GPU", || {
            self.stream.synchronize()?;
            // SAFETY: nothing is under way, and nobody else has the buffer.
            unsafe { result::free_host(self.pinned.cast()) }
        });
    }
}

impl Device for Driver {
    fn name(&self) -> &str {
        &self.name
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn allocate(&mut self, bytes: usize) -> Result<Address, BackendError> {
        let made = self.on_gpu("allocating", || {
            // SAFETY: memory that nobody has yet.
            unsafe {
                let at = result::malloc_sync(bytes.max(1))?;
                result::memset_d8_async(at, 0, bytes, self.stream.cu_stream())?;
                Ok(Address(at))
            }
        });
        made.map_err(|error| match error {
            BackendError::Memory { reason, .. } => BackendError::Memory { bytes, reason },
            other => other,
        })
    }

    fn free(&mut self, at: Address) -> Result<(), BackendError> {
        self.on_gpu("freeing", || {
            self.stream.synchronize()?;
            // SAFETY: nothing that was asked for is under way any more.
            unsafe { result::free_sync(at.0) }
        })
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), BackendError> {
        self.on_gpu("copying to the GPU", || {
            for (index, piece) in bytes.chunks(PINNED).enumerate() {
                // The buffer may still be read by the copy before.
                self.stream.synchronize()?;
                // SAFETY: the buffer is this long and not in use.
                let pinned = unsafe { std::slice::from_raw_parts_mut(self.pinned, piece.len()) };
                pinned.copy_from_slice(piece);
                // SAFETY: the caller's memory; the buffer stays as it is until the next wait.
                unsafe {
                    result::memcpy_htod_async(
                        to.of::<u8>(index * PINNED).0,
                        pinned,
                        self.stream.cu_stream(),
                    )?;
                }
            }
            Ok(())
        })
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.on_gpu("copying from the GPU", || {
            for (index, piece) in bytes.chunks_mut(PINNED).enumerate() {
                self.stream.synchronize()?;
                // SAFETY: the buffer is this long and not in use.
                let pinned = unsafe { std::slice::from_raw_parts_mut(self.pinned, piece.len()) };
                // SAFETY: the caller's memory; the copy is waited for.
                unsafe {
                    result::memcpy_dtoh_async(
                        pinned,
                        from.of::<u8>(index * PINNED).0,
                        self.stream.cu_stream(),
                    )?;
                }
                self.stream.synchronize()?;
                piece.copy_from_slice(pinned);
            }
            Ok(())
        })
    }

    fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<(), BackendError> {
        self.on_gpu("copying on the GPU", || {
            // SAFETY: the caller's memory.
            unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, self.stream.cu_stream()) }
        })
    }

    fn launch(
        &mut self,
        kernel: Kernel,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<(), BackendError> {
        let function = self.functions.get(&kernel).copied();
        let function = function.ok_or_else(|| BackendError::Compute {
            op: "launch",
            reason: format!("no kernel {}", kernel.name()),
        })?;
        let mut words: Vec<u64> = arguments.iter().map(|a| a.word()).collect::<Result<_, _>>()?;
        let mut pointers: Vec<*mut c_void> = words
            .iter_mut()
            .map(|word| std::ptr::from_mut(word).cast())
            .collect();
        let [x, y, z] = grid.map(|blocks| blocks as u32);
        let threads = (kernel.threads(), 1, 1);
        self.on_gpu("launch", || {
            // SAFETY: the kernel's arguments are those of its file, and what it reads and writes is this GPU's memory.
            unsafe {
                result::launch_kernel(
                    function,
                    (x, y, z),
                    threads,
                    0,
                    self.stream.cu_stream(),
                    &mut pointers,
                )
            }
        })
    }

    fn record(&mut self) -> Result<(), BackendError> {
        self.on_gpu("recording", || {
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            self.stream.begin_capture(mode)
        })
    }

    fn keep(&mut self, key: u64) -> Result<(), BackendError> {
        let graph = self.on_gpu("recording", || {
            self.stream.end_capture(CUgraphInstantiate_flags(0))
        })?;
        self.graphs.extend(graph.map(|graph| (key, graph)));
        Ok(())
    }

    fn replay(&mut self, key: u64) -> Result<bool, BackendError> {
        match self.graphs.get(&key) {
            None => Ok(false),
            Some(graph) => self.on_gpu("launch of a graph", || graph.launch()).map(|()| true),
        }
    }

    fn forget(&mut self) {
        self.graphs.clear();
    }

    fn bandwidth(&mut self) -> Option<f64> {
        let (from, to) = (self.allocate(MEASURED).ok()?, self.allocate(MEASURED).ok()?);
        let mut run = |times| {
            for _ in 0..times {
                self.copy(from, to, MEASURED).ok()?;
            }
            self.stream.synchronize().ok()
        };
        run(2)?;
        let started = Instant::now();
        run(8)?;
        let seconds = started.elapsed().as_secs_f64();
        self.free(from).ok()?;
        self.free(to).ok()?;
        // Each byte is read and written.
        Some(2.0 * 8.0 * MEASURED as f64 / seconds)
    }

    fn products(&self) -> f64 {
        self.products
    }
}
