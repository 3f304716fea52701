//! Zeroed memory aligned to a cache line, whose allocation may fail without ending the process.
//!
//! Not a growing vector: weights and the KV cache get their size once.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const ALIGNMENT: usize = 64;

/// Types of which any bytes, zeros too, are a value.
pub(super) trait Plain: Copy + Send + Sync {}
impl Plain for u8 {}
impl Plain for f32 {}

/// `len` numbers, at first zero; pages of a fresh buffer cost nothing until they are written.
#[derive(Debug)]
pub(super) struct Buffer<T: Plain> {
    start: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: the buffer owns its memory as a Vec does.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// A buffer of zeros; none if the memory cannot be had.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let start = match Self::layout(len)? {
            layout if layout.size() == 0 => NonNull::dangling(),
            // SAFETY: the layout has a size.
            layout => NonNull::new(unsafe { alloc_zeroed(layout) })?.cast(),
        };
        Some(Self {
            start,
            len,
            owns: PhantomData,
        })
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::array::<T>(len).ok()?.align_to(ALIGNMENT).ok()
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.len).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there, initialised since zeros are values of T.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
