// SPDX-License-Identifier: GPL-2.0

//! Memory that the kernel shares with others, which write to it at any time.
//!
//! C headers: `include/linux/vmalloc.h`, `include/linux/string.h`.

use core::ptr::NonNull;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        AtomicType,
        Full,
        Release, //
    }, //
};
use zerocopy::FromBytes;

use crate::bindings;

/// Copies `len` bytes, which others may read and write meanwhile: a program, a peer, a processor
/// that does the same. The two places may overlap.
///
/// This is C's `memmove()`, and not [`core::ptr::copy`], which must not race with a write. In the
/// words of Linux's memory model each byte is loaded by a `READ_ONCE()` and stored by a
/// `WRITE_ONCE()`, some of them more than once and in any order: the compiler does not see the
/// function, so it assumes nothing of what was loaded. A byte that is written meanwhile comes as it
/// was or as it is; of a longer value, parts of both may come.
///
/// # Safety
///
/// - From `from` on `len` bytes may be read, and from `to` on as many may be written.
/// - Whoever accesses those bytes meanwhile does so in a way that may race as well: by this
///   function, by volatile or atomic accesses, or from user space.
#[inline(always)]
pub unsafe fn copy_racing(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the requirements of this function.
    unsafe { bindings::copy_racing(to.cast(), from.cast(), len) };
}

/// Zeroed pages with contiguous kernel addresses, charged to the calling process, which may be
/// mapped to user space.
///
/// A program may write to them at any time. So no reference to them is ever made: bytes are copied,
/// each once, and words are loaded and stored whole. Words are little-endian in memory and in CPU
/// order in the caller's hand. An access that is out of range or misaligned fails with `EFAULT`,
/// and does nothing.
///
/// The words are accessed as Linux's memory model has it: by [`Atomic`], or where nothing is
/// ordered by volatile accesses, which are what `READ_ONCE()` and `WRITE_ONCE()` are. They do the
/// same as [`Relaxed`](kernel::sync::atomic::Relaxed) ones, which are calls of functions in a
/// kernel that GCC has built. The program on the other side has another model, that of C. Both
/// agree on this: a load that acquires sees all writes before the store that released the value.
///
/// # Invariants
///
/// `start` is the first of `len` bytes of memory from `vmalloc`, where `len` is a multiple of the
/// page size and not 0. `asked` is at most `len`.
pub struct SharedArea {
    start: NonNull<u8>,
    len: usize,
    asked: usize,
}

// SAFETY: The pages belong to no thread.
unsafe impl Send for SharedArea {}

// SAFETY: All access is by volatile copies and atomic words, which tolerate that of others.
unsafe impl Sync for SharedArea {}

macro_rules! words {
    (
        $word:ident,
        $load:ident, $load_acquire:ident, $store:ident, $store_release:ident
    ) => {
        /// Loads the word at `off` bytes.
        #[inline]
        pub fn $load(&self, off: usize) -> Result<$word> {
            let word = self.word::<$word>(off)?.as_ptr();
            // SAFETY: The word is valid and aligned. Volatile, this is a `READ_ONCE()`.
            Ok($word::from_le(unsafe { word.read_volatile() }))
        }

        /// Loads the word at `off` bytes: no later access is done before.
        #[inline]
        pub fn $load_acquire(&self, off: usize) -> Result<$word> {
            Ok($word::from_le(self.word::<$word>(off)?.load(Acquire)))
        }

        /// Stores the word at `off` bytes.
        #[inline]
        pub fn $store(&self, off: usize, value: $word) -> Result {
            let word = self.word::<$word>(off)?.as_ptr();
            // SAFETY: The word is valid and aligned. Volatile, this is a `WRITE_ONCE()`.
            unsafe { word.write_volatile(value.to_le()) };
            Ok(())
        }

        /// Stores the word at `off` bytes: all earlier accesses are done before.
        #[inline]
        pub fn $store_release(&self, off: usize, value: $word) -> Result {
            self.word(off)?.store(value.to_le(), Release);
            Ok(())
        }
    };
}

impl SharedArea {
    /// Allocates `asked` bytes, rounded up to pages.
    pub fn new(asked: usize) -> Result<Self> {
        if asked == 0 {
            return Err(EINVAL);
        }
        let len = asked.checked_next_multiple_of(PAGE_SIZE).ok_or(ENOMEM)?;
        // SAFETY: The function has no preconditions but a context that may sleep.
        let start = unsafe { bindings::vmalloc_account(len) };
        // INVARIANT: The memory has `len` bytes, whole pages, of which `asked` are no more.
        Ok(SharedArea {
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            len,
            asked,
        })
    }

    /// The length in bytes, a multiple of the page size.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "an area is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The length that was asked for, in bytes.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// The page at `index`, for mapping it. It is freed with the area, or with the last mapping.
    pub fn page(&self, index: usize) -> Result<*mut bindings::page> {
        if index >= self.len / PAGE_SIZE {
            return Err(EFAULT);
        }
        // SAFETY: The address is inside of the area.
        let addr = unsafe { self.start.as_ptr().add(index * PAGE_SIZE) };
        // SAFETY: By the type invariants, the address is one of `vmalloc`.
        Ok(unsafe { bindings::vmalloc_to_page(addr.cast()) })
    }

    /// The address of `len` bytes at `off`. They are there as long as the area, and are accessed by
    /// whatever may race with others ([`copy_racing`]).
    #[inline]
    pub fn at(&self, off: usize, len: usize) -> Result<NonNull<u8>> {
        match off.checked_add(len) {
            // SAFETY: The bytes are inside of the area.
            Some(end) if end <= self.len => Ok(unsafe { self.start.add(off) }),
            _ => Err(EFAULT),
        }
    }

    /// The word at `off`.
    #[inline]
    fn word<T: AtomicType + FromBytes>(&self, off: usize) -> Result<&Atomic<T>> {
        let ptr = self.at(off, size_of::<T>())?.as_ptr().cast::<T>();
        if !ptr.is_aligned() {
            return Err(EFAULT);
        }
        // SAFETY: The word is aligned and inside of the area, which lives as long as `self` is
        // borrowed. The kernel accesses it by words of this type, or by copies that may race with
        // them. Any bytes that user space stores are a valid value.
        Ok(unsafe { Atomic::from_ptr(ptr) })
    }

    /// Copies bytes at `off` out of the area, loading each once.
    #[inline]
    pub fn read_bytes(&self, off: usize, dst: &mut [u8]) -> Result {
        let src = self.at(off, dst.len())?.as_ptr();
        copy_out(src, dst);
        Ok(())
    }

    /// Copies bytes to `off` in the area.
    #[inline]
    pub fn write_bytes(&self, off: usize, src: &[u8]) -> Result {
        let dst = self.at(off, src.len())?.as_ptr();
        copy_in(src, dst);
        Ok(())
    }

    /// Copies `len` bytes at `src_off` in another area, or in this one, to `off`, as
    /// [`copy_racing`] does.
    pub fn copy_from(&self, off: usize, src: &Self, src_off: usize, len: usize) -> Result {
        let (to, from) = (self.at(off, len)?, src.at(src_off, len)?);
        // SAFETY: Both places have as many bytes, which live as long as the areas are borrowed.
        // Others access them by marked or volatile accesses, or from user space.
        unsafe { copy_racing(to.as_ptr(), from.as_ptr(), len) };
        Ok(())
    }

    /// Stores the word at `off` bytes, and returns what was there: one access, between two full
    /// barriers.
    #[inline]
    pub fn exchange_u32(&self, off: usize, value: u32) -> Result<u32> {
        let word = self.word::<u32>(off)?;
        Ok(u32::from_le(word.xchg(value.to_le(), Full)))
    }

    words!(
        u32,
        load_u32,
        load_u32_acquire,
        store_u32,
        store_u32_release
    );
    words!(
        u64,
        load_u64,
        load_u64_acquire,
        store_u64,
        store_u64_release
    );
}

const WORD: usize = size_of::<u64>();

/// Copies bytes out of a shared area, loading each once: in words as far as that goes.
#[inline]
fn copy_out(src: *const u8, dst: &mut [u8]) {
    let mut src = src;
    let mut rest = dst;
    if src.cast::<u64>().is_aligned() {
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            // SAFETY: The caller gives as many bytes at `src` as `dst` has, and both go on by a
            // word each time, so that `src` stays aligned. Volatile accesses are not split, merged
            // or repeated.
            let value = unsafe {
                let value = src.cast::<u64>().read_volatile();
                src = src.add(WORD);
                value
            };
            word.copy_from_slice(&value.to_ne_bytes());
        }
        rest = words.into_remainder();
    }
    for byte in rest {
        // SAFETY: As many bytes are left at `src` as in `rest`, and both go on by one each time.
        unsafe {
            *byte = src.read_volatile();
            src = src.add(1);
        }
    }
}

/// Copies bytes to a shared area, storing each once: in words as far as that goes.
#[inline]
fn copy_in(src: &[u8], dst: *mut u8) {
    let mut dst = dst;
    let mut rest = src;
    if dst.cast::<u64>().is_aligned() {
        let mut words = rest.chunks_exact(WORD);
        for word in &mut words {
            let mut value = [0; WORD];
            value.copy_from_slice(word);
            // SAFETY: The caller gives as many bytes at `dst` as `src` has, and both go on by a
            // word each time, so that `dst` stays aligned.
            unsafe {
                dst.cast::<u64>().write_volatile(u64::from_ne_bytes(value));
                dst = dst.add(WORD);
            }
        }
        rest = words.remainder();
    }
    for byte in rest {
        // SAFETY: As many bytes are left at `dst` as in `rest`, and both go on by one each time.
        unsafe {
            dst.write_volatile(*byte);
            dst = dst.add(1);
        }
    }
}

impl Drop for SharedArea {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the memory is of `vmalloc`, and nobody uses it any more:
        // mappings hold references to the pages of their own.
        unsafe { bindings::vfree(self.start.as_ptr().cast()) };
    }
}
