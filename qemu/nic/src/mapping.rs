// SPDX-License-Identifier: GPL-2.0

//! Memory that this process shares with a guest, mapped. All unsafe code of the crate is here.
//!
//! The owner of the other end of the memory may change any byte at any time. So no reference to it
//! is ever made, but to atomics: bytes are copied out and in, and a copy is judged. Truncating the
//! file would end the process at its next access; [`Mapping::new`] refuses files where that is
//! possible.
//!
//! An access to a page that is not there waits until the kernel has it, and two things of it nobody
//! here prevents. While the client punches a hole around the page (`FALLOC_FL_PUNCH_HOLE`), or has
//! it written out to swap (`MADV_PAGEOUT`), the access takes as long as that does. Where the kernel
//! has no memory to give, as at the limit of vm.overcommit_memory 2 or of a control group, the
//! process may end.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{
    fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create, MemfdFlags,
    SealFlags,
};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// The granule of mappings.
pub const PAGE: u64 = 4096;

/// The file system of huge pages, by `f_type` of statfs(2).
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why a file is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Offset or length is not a multiple of [`PAGE`], or the length is 0.
    Unaligned,
    /// The range does not lie in the file.
    BeyondFile,
    /// The file could be truncated.
    NotSealed,
    /// The file's pages may be lacking at the time of an access.
    HugePages,
    /// The kernel refuses.
    Kernel(rustix::io::Errno),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Unaligned => write!(f, "it does not consist of whole pages"),
            Unfit::BeyondFile => write!(f, "it reaches beyond the end of its file"),
            Unfit::NotSealed => write!(
                f,
                "its file is not sealed against shrinking (use memory-backend-memfd)"
            ),
            Unfit::HugePages => write!(f, "its file consists of huge pages"),
            Unfit::Kernel(errno) => write!(f, "{errno}"),
        }
    }
}

/// A file of zeroes in memory whose size is fixed, as a client offers one for a guest's memory.
///
/// # Errors
///
/// There is no memory or no file descriptor for it.
pub fn sealed(name: &str, size: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, size)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A part of a file, mapped shared.
///
/// # Invariants
///
/// `start` is the first of `length` bytes that stay mapped as long as this lives, readable, and
/// writable if `writable`. They are a file's that reaches beyond them and cannot shrink, so each
/// access succeeds as long as the kernel has memory. No reference to them exists but to an atomic.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: A `Mapping` is an address and the rights there, neither of which depends on a thread.
unsafe impl Send for Mapping {}
// SAFETY: Through `&Mapping` bytes are only copied, and words are atomic. Other processes write
// there as well, so no code takes what it reads to be stable, or the copies of two threads to be
// apart.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a part of a file.
    ///
    /// # Errors
    ///
    /// The file or the part is not fit to be mapped.
    pub fn new(file: impl AsFd, offset: u64, length: u64, writable: bool) -> Result<Self, Unfit> {
        let file = file.as_fd();
        if offset % PAGE != 0 || length % PAGE != 0 || length == 0 {
            return Err(Unfit::Unaligned);
        }
        // Only files of shared memory have seals: others, a FUSE file for example, could also make
        // an access wait.
        let seals = fcntl_get_seals(file).map_err(|_| Unfit::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Unfit::NotSealed);
        }
        // An access to a hole for which there is no huge page left ends the process.
        if fstatfs(file).map_err(Unfit::Kernel)?.f_type == HUGETLBFS {
            return Err(Unfit::HugePages);
        }
        // The size is read after the seal was seen, so it can only grow.
        let size = u64::try_from(fstat(file).map_err(Unfit::Kernel)?.st_size).unwrap_or(0);
        let end = offset.checked_add(length).ok_or(Unfit::BeyondFile)?;
        if end > size {
            return Err(Unfit::BeyondFile);
        }
        let length = usize::try_from(length).map_err(|_| Unfit::BeyondFile)?;
        let protection = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        // SAFETY: The kernel chooses an address at which nothing is, so no other memory of this
        // process changes.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        let start = NonNull::new(start.map_err(Unfit::Kernel)?.cast()).ok_or(Unfit::BeyondFile)?;
        // INVARIANT: mmap has mapped `length` bytes of the file at `start`; the range was in the
        // file, which is sealed.
        Ok(Self {
            start,
            length,
            writable,
        })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length as u64
    }

    /// Never: there is no mapping of 0 bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether bytes may be written.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The address of `length` bytes at `offset`, if they are all in the mapping.
    #[inline]
    fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(length)? > self.length {
            return None;
        }
        Some(self.start.as_ptr().wrapping_add(offset))
    }

    /// Prefetches the cache line at `offset`, if it is in the mapping.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Some(at) = self.at(offset, 1) {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            // SAFETY: The address is in the mapping, and a prefetch neither changes nor tells what
            // is there.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast_const().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Copies bytes out; false, and none copied, unless all of them are in the mapping.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, into.len()) else {
            return false;
        };
        // SAFETY: `at` has seen that all bytes are in the mapping, which is readable by its
        // invariant, and `into` is a buffer of this process's own, so they do not overlap. A byte
        // that another process writes meanwhile is read old or new: any value is a `u8`.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies bytes in; false, and none copied, unless the mapping is writable and has all of them.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(into) = self.at(offset, from.len()).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: `at` has seen that all bytes are in the mapping, which is writable by its
        // invariant and by the filter, and `from` is memory of this process's own, so they do not
        // overlap. No reference to the mapping exists but to atomics, whose bytes may change.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        true
    }

    /// Copies bytes from one mapping to another, or within one, where the ranges may overlap;
    /// false, and none copied, unless `to` is writable and both have all of them.
    #[inline]
    #[must_use]
    pub fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize) -> bool {
        let source = from.at(from_offset, length);
        let target = to.at(to_offset, length).filter(|_| to.writable);
        let (Some(source), Some(target)) = (source, target) else {
            return false;
        };
        // SAFETY: `at` has seen that all bytes are in the mappings, of which `from` is readable by
        // its invariant and `to` writable by the filter. `copy` is for ranges that may overlap. Two
        // mappings may show the same page at two addresses: then a byte may be read before or after
        // it was written, and any value is a `u8`. No reference to either mapping exists but to
        // atomics, whose bytes may change.
        unsafe { std::ptr::copy(source.cast_const(), target, length) };
        true
    }

    /// The word of 8 bytes at `offset`, if that is aligned and in the mapping.
    #[inline]
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).filter(|_| offset % 8 == 0)?;
        // SAFETY: The word is in the mapping, which lives as long as the borrow of `self`. It is
        // aligned: the mapping begins at a page, and `offset` is a multiple of 8. An atomic may be
        // shared with writers anywhere. Methods write by it only to what is writable; a plain load
        // of 8 bytes works on what is read-only.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The word of 4 bytes at `offset`, if that is aligned and in the mapping.
    #[inline]
    fn half(&self, offset: u64) -> Option<&AtomicU32> {
        let at = self.at(offset, 4).filter(|_| offset % 4 == 0)?;
        // SAFETY: The word is in the mapping, which lives as long as the borrow of `self`. It is
        // aligned: the mapping begins at a page, and `offset` is a multiple of 4. An atomic may be
        // shared with writers anywhere. Methods write by it only to what is writable; a plain load
        // of 4 bytes works on what is read-only.
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// Reads a word whole, and all that was written before it.
    #[inline]
    pub fn load(&self, offset: u64) -> Option<u64> {
        self.word(offset)
            .map(|word| u64::from_le(word.load(Ordering::Acquire)))
    }

    /// Writes a word whole, after all that was written before; false where it cannot.
    #[inline]
    #[must_use]
    pub fn store(&self, offset: u64, value: u64) -> bool {
        let word = self.word(offset).filter(|_| self.writable);
        word.map(|word| word.store(value.to_le(), Ordering::Release))
            .is_some()
    }

    /// As [`Mapping::load`], of 4 bytes.
    #[inline]
    pub fn load32(&self, offset: u64) -> Option<u32> {
        self.half(offset)
            .map(|word| u32::from_le(word.load(Ordering::Acquire)))
    }

    /// As [`Mapping::store`], of 4 bytes.
    #[inline]
    #[must_use]
    pub fn store32(&self, offset: u64, value: u32) -> bool {
        let word = self.half(offset).filter(|_| self.writable);
        word.map(|word| word.store(value.to_le(), Ordering::Release))
            .is_some()
    }

    /// Replaces a word, in the CPU's byte order, with `swap` if it equals `compare`, and returns
    /// what was there.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Option<u64> {
        let word = self.word(offset).filter(|_| self.writable)?;
        let done = word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Some(done.unwrap_or_else(|there| there))
    }

    /// Adds to a word, in the CPU's byte order, and returns what was there.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Option<u64> {
        let word = self.word(offset).filter(|_| self.writable)?;
        Some(word.fetch_add(add, Ordering::AcqRel))
    }

    /// Stores a word, in the CPU's byte order, after all that was written before.
    pub fn store_word(&self, offset: u64, value: u64) -> Option<()> {
        let word = self.word(offset).filter(|_| self.writable)?;
        word.store(value, Ordering::Release);
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariant this is what mmap has mapped. Nobody can name it any more:
        // addresses are only made by methods that borrow the mapping, and none is kept.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(done.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_stay_inside() {
        let mapping = Mapping::new(sealed("test", 8192).unwrap(), 4096, 4096, true).unwrap();
        assert!(mapping.write(4092, &[1, 2, 3, 4]));
        assert!(!mapping.write(4093, &[1, 2, 3, 4]));
        assert!(!mapping.write(u64::MAX, &[1]));
        let mut bytes = [0; 4];
        assert!(mapping.read(4092, &mut bytes) && bytes == [1, 2, 3, 4]);
        assert!(!mapping.read(4096, &mut bytes));
        assert!(mapping.read(4096, &mut []));
        assert!(mapping.store(8, 5) && mapping.load(8) == Some(5));
        assert!(!mapping.store(4096, 5) && !mapping.store(4, 5) && mapping.load(4092).is_none());
    }

    #[test]
    fn read_only_stays_read_only() {
        let file = sealed("test", 4096).unwrap();
        let mapping = Mapping::new(&file, 0, 4096, false).unwrap();
        let other = Mapping::new(&file, 0, 4096, true).unwrap();
        assert!(other.write(64, &[1; 64]));
        assert!(!mapping.write(0, &[1]) && !mapping.store(0, 1) && !mapping.store32(0, 1));
        assert!(!Mapping::copy(&other, 64, &mapping, 0, 64));
        assert_eq!(mapping.compare_swap(0, 0, 1), None);
        assert_eq!(mapping.fetch_add(0, 1), None);
        assert_eq!(mapping.load(0), Some(0));
        assert!(Mapping::copy(&mapping, 64, &other, 0, 64));
        assert_eq!(mapping.load32(60), Some(0x0101_0101));
    }

    #[test]
    fn copies_may_overlap() {
        let mapping = Mapping::new(sealed("test", 4096).unwrap(), 0, 4096, true).unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        for (from, to) in [(0, 10), (10, 0), (50, 50)] {
            assert!(mapping.write(from, &bytes));
            assert!(Mapping::copy(&mapping, from, &mapping, to, 100));
            let mut read = [0; 100];
            assert!(mapping.read(to, &mut read) && read[..] == bytes);
        }
        assert!(!Mapping::copy(&mapping, 4000, &mapping, 0, 97));
        assert!(!Mapping::copy(&mapping, 0, &mapping, 4000, 97));
    }

    #[test]
    fn atomics() {
        let mapping = Mapping::new(sealed("test", 4096).unwrap(), 0, 4096, true).unwrap();
        assert_eq!(mapping.fetch_add(8, 7), Some(0));
        assert_eq!(mapping.fetch_add(8, u64::MAX), Some(7));
        assert_eq!(mapping.compare_swap(8, 7, 1), Some(6));
        assert_eq!(mapping.compare_swap(8, 6, 1), Some(6));
        assert_eq!(mapping.fetch_add(8, 0), Some(1));
        assert_eq!(mapping.fetch_add(4, 0), None);
        assert_eq!(mapping.compare_swap(4096, 0, 0), None);
        assert!(mapping.store32(4, 5) && mapping.load(0) == Some(5 << 32));
        assert!(!mapping.store32(2, 5) && mapping.load32(4096).is_none());
    }

    #[test]
    fn unfit_files() {
        let file = sealed("test", 8192).unwrap();
        let unfit = |offset, length| Mapping::new(&file, offset, length, true).unwrap_err();
        assert_eq!(unfit(0, 0), Unfit::Unaligned);
        assert_eq!(unfit(1, 4096), Unfit::Unaligned);
        assert_eq!(unfit(4096, 8192), Unfit::BeyondFile);
        assert_eq!(unfit(u64::MAX - 4095, 4096), Unfit::BeyondFile);
        let open = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(
            Mapping::new(&open, 0, 4096, true).unwrap_err(),
            Unfit::NotSealed
        );
        let plain = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(
            Mapping::new(plain, 0, 4096, false).unwrap_err(),
            Unfit::NotSealed
        );
        rustix::fs::fcntl_add_seals(&open, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        assert!(matches!(
            Mapping::new(&open, 0, 4096, true),
            Err(Unfit::Kernel(_))
        ));
    }
}
