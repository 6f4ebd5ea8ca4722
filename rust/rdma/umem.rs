// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned pages, as the processor sees them.
//!
//! Devices of this crate have no DMA device. The core then maps for the processor itself: what it
//! calls DMA addresses are kernel addresses of the direct map (`ib_uses_virt_dma()`), which is there
//! for all memory since `CONFIG_INFINIBAND_VIRT_DMA` excludes high memory. Pages that are no memory,
//! or not for the kernel to look at, are never pinned.
//!
//! C header: `include/rdma/ib_umem.h`.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    device,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    scatterlist::SGTable,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

use net_ext::skb::SkBuff;

use crate::{
    bindings,
    extent::Extent,
    mapped::Mapped,
    Access,
    Device,
    Driver, //
};

/// Memory of a program, pinned; or, for kernel users, all of the kernel's, or what they have mapped.
///
/// The program, and any peer that it lets in, may write to it at any time: what is read from it may
/// be read only once, and judged only after.
///
/// # Invariants
///
/// `raw` is valid, and pins the pages of `extents`; or there is none, and the one extent is all that
/// has kernel addresses, or, if there is `mapped`, extents are what the user has mapped by it, who does
/// not take it back before it is used no more. Extents follow each other by their offsets without gaps,
/// none is empty, and together they have `len` bytes. `_device` keeps the device that `raw` refers to.
pub struct Umem {
    raw: Option<NonNull<bindings::ib_umem>>,
    start: u64,
    extents: KVVec<Extent>,
    len: u64,
    writable: bool,
    /// Where the memory comes from that it is to be next.
    mapped: Option<Arc<Mapped>>,
    _device: ARef<device::Device>,
}

// SAFETY: The pages belong to no thread, and any task may unpin them.
unsafe impl Send for Umem {}

// SAFETY: All access is by copies and atomic operations, which tolerate that of others.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `length` bytes at `start` in the address space of the calling process, which are counted
    /// against its `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, or if the end is beyond that of addresses; `ENOMEM` if there is no
    /// memory, or if the limit is reached; `EFAULT` if there are no such pages, or if they are not
    /// writable but would be written to; `EOPNOTSUPP` for on-demand paging.
    pub fn pin<D: Driver>(
        dev: &Device<D>,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        let len = usize::try_from(length)?;
        // SAFETY: The device is valid, and without attributes the address says where the memory is.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_get_attr_or_va(
                dev.as_raw(),
                ptr::null(),
                0,
                start,
                len,
                access.bits() as c_int,
            )
        })?;
        let mut umem = Umem {
            raw: Some(NonNull::new(raw).ok_or(EINVAL)?),
            start,
            extents: KVVec::new(),
            len: length,
            // SAFETY: The function has returned a valid object.
            writable: unsafe { (*raw).writable() != 0 },
            mapped: None,
            _device: dev.as_device().into(),
        };
        // From here on, an error unpins the pages.
        umem.find_extents(raw)?;
        Ok(umem)
    }

    /// All that has kernel addresses: what kernel users map for the device is found there by the
    /// address that the core answers, and that is the kernel's own.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// Whoever uses the memory names bytes that are there, and that may be read or written so.
    pub(crate) unsafe fn of_kernel<D: Driver>(dev: &Device<D>) -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let start = unsafe { bindings::kernel_addresses_start() };
        let len = 0usize.wrapping_sub(start) as u64;
        let extent = Extent {
            offset: 0,
            addr: NonNull::new(ptr::with_exposed_provenance_mut(start)).ok_or(EFAULT)?,
            len,
        };
        let mut extents = KVVec::new();
        extents.push(extent, GFP_KERNEL_ACCOUNT)?;
        // INVARIANT: The extent goes from the first kernel address to the end.
        Ok(Umem {
            raw: None,
            start: start as u64,
            extents,
            len,
            writable: true,
            mapped: None,
            _device: dev.as_device().into(),
        })
    }

    /// No memory yet, and what is mapped by `mapped` with each call of [`Umem::renew`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// What is mapped stays memory until it is used no more.
    pub(crate) unsafe fn of_mapped<D: Driver>(
        dev: &Device<D>,
        mapped: Arc<Mapped>,
    ) -> Result<Self> {
        let pages = mapped.max_pages() as usize;
        // INVARIANT: There are no extents, which have 0 bytes together.
        Ok(Umem {
            raw: None,
            start: 0,
            extents: KVVec::with_capacity(pages, GFP_KERNEL_ACCOUNT)?,
            len: 0,
            writable: true,
            mapped: Some(mapped),
            _device: dev.as_device().into(),
        })
    }

    /// Becomes the memory that a kernel user has mapped for a fast registration, and answers its length
    /// in bytes. `None` if nothing is mapped, or for memory that is not for that. Any context.
    pub fn renew(&mut self) -> Option<u64> {
        // INVARIANT: What is taken, now or the last time, was mapped, follows each other, and has so many
        // bytes.
        self.len = self.mapped.as_ref()?.take(&mut self.extents)?;
        Some(self.len)
    }

    /// Fills in `extents` with the pages of `raw`, which is that of this object.
    fn find_extents(&mut self, raw: *mut bindings::ib_umem) -> Result {
        // SAFETY: By the type invariants; the table was filled and mapped when it was made.
        let table = unsafe { SGTable::from_raw(&raw mut (*raw).sgt_append.sgt) };
        // The first page starts before the memory does.
        let mut skip = self.start % PAGE_SIZE as u64;
        let mut offset = 0;
        for entry in table.iter() {
            let addr = (entry.dma_address() + skip) as usize;
            let len = (entry.dma_len() - skip).min(self.len - offset);
            skip = 0;
            if len == 0 {
                continue;
            }
            let extent = Extent {
                offset,
                addr: NonNull::new(ptr::with_exposed_provenance_mut(addr)).ok_or(EFAULT)?,
                len,
            };
            offset += len;
            self.extents.push(extent, GFP_KERNEL_ACCOUNT)?;
        }
        // INVARIANT: Offsets were counted up by the lengths.
        if offset != self.len {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// The length in bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "memory of length 0 cannot be pinned"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The address in the process that pinned it, or in the kernel.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether it may be written to.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The pieces that it is made of.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether `len` bytes at `offset` are inside.
    #[inline]
    fn check(&self, offset: u64, len: u64) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// The index of the extent in which `offset` is, if it is in one.
    #[inline]
    fn find(&self, offset: u64) -> usize {
        // Most memory has few extents, and an access is mostly near to the start of one.
        self.extents
            .partition_point(|extent| extent.offset + extent.len <= offset)
    }

    /// The address of `len` bytes at `offset` if they lie in one extent, as few bytes mostly do.
    /// Where the first one has them, no other is looked for.
    #[inline(always)]
    fn in_one(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let mut extent = self.extents.first()?;
        if offset >= extent.len {
            extent = self.extents.get(self.find(offset))?;
        }
        let skip = offset - extent.offset;
        if len > extent.len - skip {
            return None;
        }
        // SAFETY: `skip` is less than the length of the extent.
        Some(unsafe { extent.addr.as_ptr().add(skip as usize) })
    }

    /// Calls `piece` with the address and length of each contiguous piece of `len` bytes at `offset`.
    #[inline]
    fn for_each(&self, offset: u64, len: usize, mut piece: impl FnMut(*mut u8, usize)) -> Result {
        if let Some(addr) = self.in_one(offset, len as u64) {
            piece(addr, len);
            return Ok(());
        }
        self.check(offset, len as u64)?;
        let mut left = len as u64;
        let mut offset = offset;
        let mut extents = self.extents.iter().skip(self.find(offset));
        while left > 0 {
            let extent = extents.next().ok_or(EFAULT)?;
            let skip = offset - extent.offset;
            let len = left.min(extent.len - skip);
            // SAFETY: `skip` is less than the length of the extent.
            let addr = unsafe { extent.addr.as_ptr().add(skip as usize) };
            piece(addr, len as usize);
            offset += len;
            left -= len;
        }
        Ok(())
    }

    /// Reads bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all inside; then nothing is read.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result {
        let mut to = dst.as_mut_ptr();
        self.for_each(offset, dst.len(), |from, len| {
            // SAFETY: The piece is pinned memory, and as many bytes of `dst`, which is not pinned
            // memory, are left. What the program writes meanwhile, it may or may not find read.
            unsafe {
                ptr::copy(from, to, len);
                to = to.add(len);
            }
        })
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if they are not all inside; then nothing is
    /// written.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result {
        if !self.writable {
            return Err(EACCES);
        }
        let mut from = src.as_ptr();
        self.for_each(offset, src.len(), |to, len| {
            // SAFETY: As in `read`, the other way round.
            unsafe {
                ptr::copy(from, to, len);
                from = from.add(len);
            }
        })
    }

    /// Writes `len` bytes of a received packet, from `from` on, at `offset`. This is the one copy of
    /// them. Any context.
    ///
    /// # Errors
    ///
    /// - `EACCES` if the memory may not be written to.
    /// - `EFAULT` if the bytes are not all inside, of the memory or of the packet. In the latter case
    ///   some may have been written.
    #[inline]
    pub fn write_packet(&self, offset: u64, packet: &SkBuff, from: usize, len: usize) -> Result {
        if !self.writable {
            return Err(EACCES);
        }
        let mut from = from;
        let mut result = Ok(());
        self.for_each(offset, len, |to, len| {
            if result.is_ok() {
                // SAFETY: The piece is pinned memory with at least `len` bytes. A program may write
                // to it at the same time.
                result = unsafe { packet.copy_bits_raw(from, to, len) };
                from = from.saturating_add(len);
            }
        })?;
        result
    }

    /// Copies `len` bytes from one memory to another, or inside of one. Where they overlap, each
    /// contiguous piece is copied as if it were done at once.
    ///
    /// # Errors
    ///
    /// `EACCES` if the destination may not be written to, `EFAULT` if the bytes are not all inside;
    /// then nothing is copied.
    #[inline(always)]
    pub fn copy(dst: &Umem, dst_off: u64, src: &Umem, src_off: u64, len: u64) -> Result {
        if !dst.writable {
            return Err(EACCES);
        }
        if let (Some(from), Some(to)) = (src.in_one(src_off, len), dst.in_one(dst_off, len)) {
            // SAFETY: Both have `len` bytes of pinned memory.
            unsafe { copy_in_one(from, to, len as usize) };
            return Ok(());
        }
        dst.check(dst_off, len)?;
        let mut dst_off = dst_off;
        src.for_each(src_off, usize::try_from(len)?, |from, len| {
            let mut from = from;
            let _ = dst.for_each(dst_off, len, |to, len| {
                // SAFETY: Both pieces are pinned memory with at least `len` bytes.
                unsafe {
                    ptr::copy(from, to, len);
                    from = from.add(len);
                }
            });
            dst_off += len as u64;
        })
    }

    /// The word at `offset`, for atomic operations.
    #[inline]
    fn word(&self, offset: u64) -> Result<&Atomic<u64>> {
        const WORD: u64 = size_of::<u64>() as u64;

        if !self.writable {
            return Err(EACCES);
        }
        self.check(offset, WORD)?;
        let extent = self.extents.get(self.find(offset)).ok_or(EFAULT)?;
        let skip = offset - extent.offset;
        // SAFETY: `skip` is less than the length of the extent.
        let word = unsafe { extent.addr.as_ptr().add(skip as usize) }.cast::<u64>();
        if !word.is_aligned() || extent.len - skip < WORD {
            return Err(EFAULT);
        }
        // SAFETY: The word is aligned and inside of the extent, which is pinned while `self` is
        // borrowed. Other accesses of the kernel to it are copies, which may come before or after as
        // those of the program may, and whatever they store is a valid value.
        Ok(unsafe { Atomic::from_ptr(word) })
    }

    /// Adds to the word at `offset`, in CPU order, and returns what it was. A full barrier.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if the word is not inside or not aligned.
    #[inline]
    pub fn fetch_add_u64(&self, offset: u64, add: u64) -> Result<u64> {
        Ok(self.word(offset)?.fetch_add(add, Full))
    }

    /// Replaces the word at `offset`, in CPU order, by `new` if it is `old`, and returns what it was.
    /// A full barrier.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if the word is not inside or not aligned.
    #[inline]
    pub fn cmpxchg_u64(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        match self.word(offset)?.cmpxchg(old, new, Full) {
            Ok(was) | Err(was) => Ok(was),
        }
    }
}

/// Copies `len` bytes that may overlap. Those of a word are not worth a call.
///
/// # Safety
///
/// As of [`ptr::copy`].
#[inline(always)]
unsafe fn copy_in_one(from: *const u8, to: *mut u8, len: usize) {
    if len == size_of::<u64>() {
        // SAFETY: Both have as many bytes, which need not be aligned.
        unsafe {
            to.cast::<u64>()
                .write_unaligned(from.cast::<u64>().read_unaligned())
        };
    } else {
        // SAFETY: By the safety requirements.
        unsafe { ptr::copy(from, to, len) };
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if let Some(raw) = self.raw {
            // SAFETY: By the type invariants; nobody uses the pages by this object any more. The
            // device is dropped after this.
            unsafe { bindings::ib_umem_release(raw.as_ptr()) };
        }
    }
}
