//! The kernels on the CPU, for tests: compiled from the same source, run by fibers.
//!
//! Not a backend for use: it is some thousand times slower than the CPU's own. Every launch is checked as a GPU would not
//! (see `kernels/emulator/emulator.h`); what is wrong ends the process.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::{Library, Symbol};

use super::device::{Address, Argument, Device, Kernel};
use crate::backend::BackendError;

/// Names another library of kernels than the one that was built with the program.
pub const LIBRARY: &str = "VERIHARNESS_EMULATOR";

type LaunchKernel = unsafe extern "C" fn(*const c_char, *const u32, u32, u32, *mut *mut c_void) -> c_int;
type KernelName = unsafe extern "C" fn(c_int) -> *const c_char;

/// The kernels, loaded once.
fn library() -> &'static Library {
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        let built = concat!(env!("EMULATED_DRIVER"), "/libcuda.so.1");
        let path = std::env::var_os(LIBRARY).unwrap_or_else(|| OsString::from(built));
        // SAFETY: a library of this project, whose loading does nothing but load.
        unsafe { Library::new(&path) }
            .unwrap_or_else(|error| panic!("cannot load {}: {error}", path.display()))
    })
}

/// A function of [`library`].
///
/// # Safety
/// `T` is the function's type.
unsafe fn function<T>(name: &str) -> Symbol<'static, T> {
    // SAFETY: the caller's word.
    unsafe { library().get(name) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// In which order the threads of a block take turns. No result may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By number.
    Ascending,
    /// The last first.
    Descending,
    /// Another in each block.
    Shuffled(u32),
}

/// Memory of exactly its size, so that whatever watches the program's memory sees what lies outside.
#[derive(Debug)]
struct Piece {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: memory that belongs to whoever has the piece.
unsafe impl Send for Piece {}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at, self.layout) };
    }
}

/// A device that is the CPU.
#[derive(Debug)]
pub struct Emulator {
    order: Order,
    multiprocessors: usize,
    /// By address.
    memory: HashMap<u64, Piece>,
    recording: Option<Vec<Launch>>,
    kept: HashMap<u64, Vec<Launch>>,
}

type Launch = (Kernel, [usize; 3], Vec<Argument>);

impl Emulator {
    /// One whose threads take turns in this order. The number of multiprocessors decides which kernels are chosen.
    pub fn new(order: Order, multiprocessors: usize) -> Self {
        Self {
            order,
            multiprocessors,
            memory: HashMap::new(),
            recording: None,
            kept: HashMap::new(),
        }
    }

    /// Names of the kernels that were compiled.
    pub fn kernels() -> Vec<String> {
        // SAFETY: its type in emulator.cpp.
        let name_of = unsafe { function::<KernelName>("emulator_kernel") };
        let name = |index| {
            // SAFETY: any index may be asked for.
            let name = unsafe { name_of(index) };
            // SAFETY: what is not null is a constant string.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        };
        (0..).map_while(name).collect()
    }

    /// Whether `bytes` bytes from `at` on belong to one piece of memory.
    fn check(&self, at: Address, bytes: usize) {
        let inside = self.memory.iter().any(|(start, piece)| {
            at.0 >= *start && at.0 + bytes as u64 <= *start + piece.layout.size() as u64
        });
        assert!(inside, "{bytes} bytes at {at:?} are not in one piece of memory");
    }
}

impl Device for Emulator {
    fn name(&self) -> &str {
        "emulator"
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn allocate(&mut self, bytes: usize) -> Result<Address, BackendError> {
        let none = |reason: String| BackendError::Memory { bytes, reason };
        let layout = Layout::from_size_align(bytes.max(1), 256).map_err(|error| none(error.to_string()))?;
        // SAFETY: at least one byte.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(none("the allocation failed".into()));
        }
        let address = at.expose_provenance() as u64;
        self.memory.insert(address, Piece { at, layout });
        Ok(Address(address))
    }

    fn free(&mut self, at: Address) -> Result<(), BackendError> {
        assert!(self.memory.remove(&at.0).is_some(), "{at:?} is not in use");
        Ok(())
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), BackendError> {
        self.check(to, bytes.len());
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to.0 as usize);
        // SAFETY: the place was checked, and nothing borrows this memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check(from, bytes.len());
        let from = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<(), BackendError> {
        self.check(from, bytes);
        self.check(to, bytes);
        let from = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to.0 as usize);
        // SAFETY: as in `write`; the places may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
        Ok(())
    }

    fn launch(
        &mut self,
        kernel: Kernel,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<(), BackendError> {
        if let Some(launches) = &mut self.recording {
            launches.push((kernel, grid, arguments.to_vec()));
            return Ok(());
        }
        let mut words: Vec<u64> = arguments.iter().map(|a| a.word()).collect::<Result<_, _>>()?;
        let mut pointers: Vec<*mut c_void> = words
            .iter_mut()
            .map(|word| std::ptr::from_mut(word).cast())
            .collect();
        let failed = |reason: String| BackendError::Compute { op: "launch", reason };
        let name = CString::new(kernel.name()).map_err(|error| failed(error.to_string()))?;
        let grid = grid.map(|blocks| blocks as u32);
        let order = match self.order {
            Order::Ascending => 0,
            Order::Descending => 1,
            Order::Shuffled(seed) => seed.max(2),
        };
        // SAFETY: its type in emulator.cpp.
        let launch = unsafe { function::<LaunchKernel>("emulator_launch") };
        // SAFETY: the kernel's arguments are those of its file; what it reads and writes is this device's memory.
        let missing = unsafe {
            launch(
                name.as_ptr(),
                grid.as_ptr(),
                kernel.threads(),
                order,
                pointers.as_mut_ptr(),
            )
        };
        match missing {
            0 => Ok(()),
            _ => Err(failed(format!("the emulator has no kernel {}", kernel.name()))),
        }
    }
    fn record(&mut self) -> Result<(), BackendError> {
        self.recording = Some(Vec::new());
        Ok(())
    }

    fn keep(&mut self, key: u64) -> Result<(), BackendError> {
        let launches = self.recording.take();
        self.kept.extend(launches.map(|launches| (key, launches)));
        Ok(())
    }

    fn replay(&mut self, key: u64) -> Result<bool, BackendError> {
        let launches = self.kept.get(&key).cloned();
        for (kernel, grid, arguments) in launches.iter().flatten() {
            self.launch(*kernel, *grid, arguments)?;
        }
        Ok(launches.is_some())
    }

    fn forget(&mut self) {
        self.kept.clear();
    }

    fn bandwidth(&mut self) -> Option<f64> {
        None
    }

    fn products(&self) -> f64 {
        0.0
    }
}
