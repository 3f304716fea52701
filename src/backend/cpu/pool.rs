//! Parallel loops over independent tasks, and the right of each task to its own part of a shared output.
//!
//! Not a scheduler: which thread computes a task never changes its bits. A step of a small model is hundreds of loops of
//! some microseconds, so threads wait for the next one awake for a moment before they sleep, and the calling thread
//! computes too: a thread that sleeps, or that the system has put aside, holds nobody up unless it has a task in hand.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::BackendError;

/// How long a thread waits awake for the next loop: longer than what lies between two loops of a step.
const AWAKE: Duration = Duration::from_micros(100);
/// Looks at the clock once per so many waits.
const SPINS: u32 = 64;

/// Threads that compute together; the one that calls is one of them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a loop runs.
    caller: Mutex<()>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    /// Number of the loop in the upper half; in the lower half how many of its tasks nobody has taken. A task is taken
    /// by lowering it. While some are left the loop cannot end, so whoever takes one has read this loop's fields.
    ticket: AtomicU64,
    /// The loop: its closure, the function that calls it with an index, how many tasks there are.
    closure: AtomicPtr<()>,
    call: AtomicPtr<()>,
    count: AtomicU32,
    /// Tasks that have ended.
    ended: AtomicUsize,
    /// What a task panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    sleeping: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
}

thread_local! {
    /// Whether this thread is in a task: a loop inside of one runs on its own thread.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

type Call = unsafe fn(*const (), usize);

impl Pool {
    /// A pool of `threads` threads; 0 means one per core.
    pub(super) fn new(threads: usize) -> Result<Self, BackendError> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let mut pool = Self {
            shared: Arc::default(),
            workers: Vec::new(),
            caller: Mutex::new(()),
        };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(format!("cpu-{index}"));
            let worker = builder.spawn(move || shared.work());
            pool.workers.push(worker.map_err(|error| BackendError::Compute {
                op: "starting threads",
                reason: error.to_string(),
            })?);
        }
        Ok(pool)
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0) .. task(count - 1)`, in any order and on any threads. A task's panic goes on here.
    pub(super) fn each<F: Fn(usize) + Sync>(&self, count: usize, task: F) {
        let alone = count < 2 || self.workers.is_empty() || BUSY.get();
        let (Some(_caller), Ok(tasks)) = ((!alone).then(|| lock(&self.caller)), u32::try_from(count)) else {
            return (0..count).for_each(task);
        };
        /// Safety: `closure` points to an `F`.
        unsafe fn call<F: Fn(usize)>(closure: *const (), index: usize) {
            // SAFETY: the caller's word.
            unsafe { (*closure.cast::<F>())(index) }
        }
        let shared = &*self.shared;
        shared.closure.store((&raw const task).cast_mut().cast(), Relaxed);
        shared.call.store(call::<F> as Call as *mut (), Relaxed);
        shared.count.store(tasks, Relaxed);
        shared.ended.store(0, Relaxed);
        let loop_number = (shared.ticket.load(Relaxed) >> 32).wrapping_add(1);
        shared.ticket.store(loop_number << 32 | u64::from(tasks), SeqCst);
        if shared.sleeping.load(SeqCst) > 0 {
            let _asleep = lock(&shared.asleep);
            shared.wake.notify_all();
        }
        shared.compute();
        // `task` lives until all of its calls have ended.
        let mut spins = 0u32;
        while shared.ended.load(Acquire) < count {
            spins = spins.wrapping_add(1);
            match spins % (16 * SPINS) {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        if let Some(panic) = lock(&shared.panic).take() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        {
            let _asleep = lock(&self.shared.asleep);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join(); // a task's panic was caught; nothing else of a worker panics
        }
    }
}

impl Shared {
    /// Computes tasks until none is left to take.
    fn compute(&self) {
        let mut ticket = self.ticket.load(Acquire);
        while ticket as u32 > 0 {
            let (closure, call) = (self.closure.load(Relaxed), self.call.load(Relaxed));
            let index = self.count.load(Relaxed).wrapping_sub(ticket as u32);
            match self
                .ticket
                .compare_exchange_weak(ticket, ticket - 1, AcqRel, Acquire)
            {
                Ok(_) => {
                    // SAFETY: a `Call` was stored there; see `ticket` for why it belongs to this loop.
                    let call = unsafe { std::mem::transmute::<*mut (), Call>(call) };
                    BUSY.set(true);
                    // SAFETY: the closure is borrowed by `each`, which waits for this task's end.
                    let result = catch_unwind(AssertUnwindSafe(|| unsafe { call(closure, index as usize) }));
                    BUSY.set(false);
                    if let Err(panic) = result {
                        *lock(&self.panic) = Some(panic);
                    }
                    self.ended.fetch_add(1, Release);
                    ticket = self.ticket.load(Acquire);
                }
                Err(now) => ticket = now,
            }
        }
    }

    /// A worker's life.
    fn work(&self) {
        while !self.stop.load(SeqCst) {
            self.compute();
            let since = Instant::now();
            let mut spins = 0u32;
            while self.ticket.load(Relaxed) as u32 == 0 {
                spins += 1;
                if spins.is_multiple_of(SPINS) && since.elapsed() > AWAKE {
                    self.sleep();
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Sleeps until there is a task, or the end. Whoever brings one looks for sleepers after it has said so, and the
    /// sleeper looks for tasks after it has said that it sleeps: one of them sees the other.
    fn sleep(&self) {
        let mut asleep = lock(&self.asleep);
        self.sleeping.fetch_add(1, SeqCst);
        while self.ticket.load(SeqCst) as u32 == 0 && !self.stop.load(SeqCst) {
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, SeqCst);
    }
}

/// What these mutexes guard is whole at any time, a panic or not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_task_runs_once_in_many_loops() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            for count in (0..40).chain([1000]).cycle().take(2000) {
                let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.each(count, |index| {
                    runs[index].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
            }
            // Long enough for the others to fall asleep.
            std::thread::sleep(3 * AWAKE);
        }
    }

    #[test]
    fn loops_nest_and_callers_share() {
        let pool = Pool::new(3).unwrap();
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.each(5, |_| {
                            pool.each(7, |index| {
                                sum.fetch_add(index, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 50 * 5 * 21);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = Pool::new(2).unwrap();
        for _ in 0..20 {
            let run = || pool.each(8, |index| assert!(index != 5, "the fifth"));
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"the fifth"));
            let count = AtomicUsize::new(0);
            pool.each(8, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 8);
        }
    }
}
