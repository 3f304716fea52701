//! Whether there is a GPU to compute with, and calls of a driver that may lack what is called.
//!
//! Not the computing. A driver that lacks a function makes cudarc panic: here that becomes an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, DriverError};

use super::image::image;
use crate::backend::BackendError;

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name, `NVIDIA L4`.
    pub name: String,
    /// 89 for compute capability 8.9.
    pub chip: u32,
    /// The image of the kernels that it runs.
    pub image: String,
    /// Bytes of its memory.
    pub memory: usize,
    /// How many of them are free.
    pub free: usize,
    /// The CUDA version that the driver knows, 12080 for 12.8.
    pub driver: i32,
}

/// Why there is no GPU to compute with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// No driver is installed.
    #[error("no NVIDIA driver: libcuda is not to be found")]
    NoDriver,
    /// A driver without something that is needed.
    #[error("the NVIDIA driver is broken or too old (525 or newer is needed): {0}")]
    Broken(String),
    /// The driver says no.
    #[error("the NVIDIA driver found no usable GPU: {0}")]
    Failed(String),
}

/// Looks for a GPU; never panics, and leaves nothing behind.
///
/// # Errors
/// Why there is none.
pub fn probe() -> Result<Found, Absent> {
    quietly(|| {
        // SAFETY: loads a library by its usual name; its initialisers are the driver's.
        if !unsafe { sys::is_culib_present() } {
            return Err(Absent::NoDriver);
        }
        let failed = |error: DriverError| Absent::Failed(error.to_string());
        let context = CudaContext::new(0).map_err(failed)?;
        let chip = chip(&context).map_err(failed)?;
        let mut driver = 0;
        // SAFETY: writes one integer.
        let code = unsafe { sys::cuDriverGetVersion(&raw mut driver) };
        code.result().map_err(failed)?;
        let (free, memory) = context.mem_get_info().map_err(failed)?;
        let image = image(chip).map_err(|error| Absent::Failed(error.to_string()))?;
        Ok(Found {
            name: context.name().map_err(failed)?,
            chip,
            image: image.name,
            memory,
            free,
            driver,
        })
    })
    .unwrap_or_else(|reason| Err(Absent::Broken(reason)))
}

/// 89 for compute capability 8.9.
pub(super) fn chip(context: &CudaContext) -> Result<u32, DriverError> {
    let (major, minor) = context.compute_capability()?;
    Ok((10 * major + minor).cast_unsigned())
}

/// Runs `work`, turning a panic into its message, which is not printed.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let done = catch_unwind(AssertUnwindSafe(work));
    std::panic::set_hook(hook);
    done.map_err(|panic| message(&*panic))
}

/// What a panic said, its first line.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next())
        .unwrap_or("it failed without a word")
        .to_owned()
}

/// Runs calls of the driver; what fails says which of ours it was.
pub(super) fn guard<T>(
    op: &'static str,
    calls: impl FnOnce() -> Result<T, DriverError>,
) -> Result<T, BackendError> {
    // An error's text is the driver's own: it too is asked for in here.
    let done = catch_unwind(AssertUnwindSafe(|| {
        calls().map_err(|error| (error.0, error.to_string()))
    }));
    let (code, reason) = match done {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err((code, reason))) => (Some(code), reason),
        Err(panic) => (None, message(&*panic)),
    };
    match code {
        Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => Err(BackendError::Memory { bytes: 0, reason }),
        _ => Err(BackendError::Compute { op, reason }),
    }
}
