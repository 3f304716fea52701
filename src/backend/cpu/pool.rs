//! Parallel loops over independent tasks, and the right of each task to its own part of a shared output.
//!
//! Not a scheduler: which thread computes a task never changes its bits.

use std::marker::PhantomData;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use crate::backend::BackendError;

/// Threads that compute together.
#[derive(Debug)]
pub(super) struct Pool(rayon::ThreadPool);

impl Pool {
    /// A pool of `threads` threads; 0 means one per core.
    pub(super) fn new(threads: usize) -> Result<Self, BackendError> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.thread_name(|index| format!("cpu-{index}")).build();
        pool.map(Self).map_err(|error| BackendError::Compute {
            op: "starting threads",
            reason: error.to_string(),
        })
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Runs `work` on a thread of the pool; loops inside of it use all threads.
    pub(super) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.install(work)
    }

    /// Runs `task(0) .. task(count - 1)`, in any order and on any threads.
    pub(super) fn each(&self, count: usize, task: impl Fn(usize) + Send + Sync) {
        match count {
            0 => (),
            1 => task(0),
            _ => (0..count).into_par_iter().with_max_len(1).for_each(task),
        }
    }
}

/// A slice whose parts are written by different tasks.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: what `Parts` hands out is disjoint by the contract of `part`.
unsafe impl<T: Send> Send for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Borrows `slice` until the parts are done with.
    pub(super) fn of(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// The numbers `from .. from + len`.
    ///
    /// # Safety
    /// No other part with any of these numbers may be alive.
    #[allow(clippy::mut_from_ref)] // the contract says what makes it sound
    pub(super) unsafe fn part(&self, from: usize, len: usize) -> &'a mut [T] {
        assert!(from + len <= self.len, "a part outside of its slice");
        // SAFETY: inside the slice, and nobody else's by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}
