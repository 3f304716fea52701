//! The kernels on the CPU, for tests: compiled from the same source, run by fibers.
//!
//! Not a backend for use: it is some thousand times slower than the CPU's own. Every launch is checked as a GPU would not
//! (see `kernels/emulator/emulator.h`); what is wrong ends the process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::device::{Address, Argument, Device, Kernel};
use crate::backend::BackendError;

unsafe extern "C" {
    fn emulator_kernel(index: c_int) -> *const c_char;
    fn emulator_launch(
        name: *const c_char,
        grid: *const u32,
        threads: u32,
        order: u32,
        arguments: *mut *mut c_void,
    ) -> c_int;
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

/// 256 bytes, so that memory is aligned as a device's is.
#[derive(Clone, Copy, Debug)]
#[repr(align(256))]
struct Line {
    _bytes: [u8; 256],
}

/// A device that is the CPU.
#[derive(Debug)]
pub struct Emulator {
    order: Order,
    multiprocessors: usize,
    /// By address: the memory and its size in bytes.
    memory: HashMap<u64, (Vec<Line>, usize)>,
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
        let name = |index| {
            // SAFETY: any index may be asked for.
            let name = unsafe { emulator_kernel(index) };
            // SAFETY: what is not null is a constant string.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        };
        (0..).map_while(name).collect()
    }

    /// Whether `bytes` bytes from `at` on belong to one piece of memory.
    fn check(&self, at: Address, bytes: usize) {
        let inside = self
            .memory
            .iter()
            .any(|(start, (_, size))| at.0 >= *start && at.0 + bytes as u64 <= *start + *size as u64);
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
        let lines = bytes.div_ceil(256).max(1);
        let mut memory: Vec<Line> = Vec::new();
        memory
            .try_reserve_exact(lines)
            .map_err(|error| BackendError::Memory {
                bytes,
                reason: error.to_string(),
            })?;
        memory.resize(lines, Line { _bytes: [0; 256] });
        let address = memory.as_ptr().expose_provenance() as u64;
        self.memory.insert(address, (memory, bytes));
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
        // SAFETY: the kernel's arguments are those of its file; what it reads and writes is this device's memory.
        let missing = unsafe {
            emulator_launch(
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
