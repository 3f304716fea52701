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
    /// What was allocated.
    base: NonNull<u8>,
    /// The first cache line in it.
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
        // SAFETY: the layout has a size.
        let base = NonNull::new(unsafe { alloc_zeroed(Self::layout(len)?) })?;
        // SAFETY: the layout has room for a cache line's worth of shift.
        let start = unsafe { base.add(base.align_offset(ALIGNMENT)) };
        Some(Self {
            base,
            start: start.cast(),
            len,
            owns: PhantomData,
        })
    }

    /// Room for the numbers behind a cache line. Asked for that alignment itself, the allocator would write the zeros,
    /// every page of them; with the one it has anyway it takes pages that the system hands out as zeros.
    fn layout(len: usize) -> Option<Layout> {
        let bytes = len.checked_mul(size_of::<T>())?.checked_add(ALIGNMENT)?;
        Layout::from_size_align(bytes, align_of::<T>()).ok()
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.base.as_ptr(), layout) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeros_on_a_cache_line() {
        for len in [0, 1, 7, 64, 100_003] {
            let mut bytes = Buffer::<u8>::zeroed(len).unwrap();
            let mut floats = Buffer::<f32>::zeroed(len).unwrap();
            assert!(
                bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
                    && floats.as_ptr().addr().is_multiple_of(ALIGNMENT)
            );
            assert_eq!((bytes.len(), floats.len()), (len, len));
            assert!(bytes.iter().all(|x| *x == 0) && floats.iter().all(|x| *x == 0.0));
            bytes.fill(7);
            floats.fill(7.0);
        }
        assert!(Buffer::<f32>::zeroed(usize::MAX / 2).is_none());
    }
}
