// SPDX-License-Identifier: GPL-2.0

//! Memory that a device reaches: bytes as the processor sees them, of programs and of the kernel.
//!
//! For a device without a parent the core maps for the processor: DMA addresses are kernel
//! addresses of the direct map (`ib_uses_virt_dma()`), which is there for all memory since
//! `CONFIG_INFINIBAND_VIRT_DMA` excludes high memory. For one with a parent they are that one's,
//! and name nothing that is reached here.
//!
//! # Whom to trust
//!
//! The memory of a program is pinned ([`Umem`](crate::umem::Umem)): an access at any offset reaches
//! bytes of that program, or is refused. So safe code may read and write it.
//!
//! The memory of a kernel user is all that has a kernel address
//! ([`get_dma`](crate::mr::Operations::get_dma)), or pages that are the device's for some time
//! ([`alloc`](crate::mr::Operations::alloc)). There is nothing to check an offset against: that it
//! is no other's memory, or memory at all, follows from what others promise.
//!
//! - The user has a key for the memory, and promises, as for any RDMA device, that what its
//!   requests name by the key, and what it lets peers name, is mapped for the device
//!   (`ib_dma_map_single()`, `ib_map_mr_sg()`) until the request has completed, or until a remote
//!   key is invalidated or no queue pair is left by which a peer could use it; and that nobody who
//!   has a reference to the bytes counts on them meanwhile.
//! - The driver promises to reach nothing but what a request or a peer names by a key of the
//!   memory, as long as the key is valid, in its range and for what it gives the right to.
//!
//! So each access is unsafe, with that as its contract. A driver that is safe code, such as an
//! engine behind a trait, is called by the one place that vouches for its checks of keys: a fault
//! in those is a fault in memory safety, and its cause is there.
//!
//! The memory of a program that is paged on demand
//! ([`Umem::on_demand`](crate::umem::Umem::on_demand)) is there while the program's pages are, and
//! the driver accesses it as it has promised ([`Exclusive`](crate::paging::Exclusive)). An access
//! to an absent page fails with `EFAULT`; some of the bytes may have been copied then.
//!
//! # Races
//!
//! A program, a peer, or a user's processor may write to the memory at any time. Bytes are copied
//! by [`copy_racing`], and words are accessed by volatile or atomic operations: each is read once,
//! and then judged.
//!
//! # Order
//!
//! An access that begins after another has ended is seen after it: stores after stores, loads after
//! loads. So a program that waits for one message by looking at memory, and acquires what it finds,
//! sees all messages before it. Inside of one access the bytes come in any order. Words of atomic
//! operations are fully ordered, and stored words release.

mod on_demand;
mod word;

use core::{
    mem::MaybeUninit,
    ptr, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    mm::copy_racing,
    sync::smp_rmb_wmb, //
};
use net_ext::skb::SkBuff;

use crate::{
    bindings,
    extent::Extent,
    mapped::Mapped,
    origin::Origin, //
};

/// Memory of a program, pinned or paged on demand; for kernel users all memory, or what they map.
///
/// # Invariants
///
/// Extents follow each other by their offsets without gaps, none is empty, and together they have
/// `len` bytes, unless the memory is paged on demand, or only the parent of the device reaches it:
/// then there are none. If they are a program's, those bytes are there as long as this is, and may
/// be read and, if `writable`, written by whatever may race.
pub struct Memory {
    extents: KVVec<Extent>,
    len: u64,
    writable: bool,
    start: u64,
    origin: Origin,
}

// SAFETY: The pages belong to no thread, and any task may unpin them.
unsafe impl Send for Memory {}

// SAFETY: All access is by copies and words that may race with each other.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of a program: `len` bytes, that begin at `start` there, or in a buffer of its.
    ///
    /// # Safety
    ///
    /// `extents` are as the type invariants say, of what `origin` keeps; to write if `writable`.
    pub(crate) unsafe fn of_program(
        origin: Origin,
        start: u64,
        extents: KVVec<Extent>,
        len: u64,
        writable: bool,
    ) -> Self {
        // INVARIANT: By the requirements of this function.
        Memory {
            extents,
            len,
            writable,
            start,
            origin,
        }
    }

    /// All that has kernel addresses: memory that kernel users map for the device is found there by
    /// the address that the core answers, which is the kernel's own.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_kernel() -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let start = unsafe { bindings::kernel_addresses_start() };
        let len = 0usize.wrapping_sub(start) as u64;
        let extent = Extent {
            offset: 0,
            addr: ptr::NonNull::new(ptr::with_exposed_provenance_mut(start)).ok_or(EFAULT)?,
            len,
        };
        let mut extents = KVVec::new();
        extents.push(extent, GFP_KERNEL_ACCOUNT)?;
        // INVARIANT: The one extent goes from the first kernel address to the end.
        Ok(Memory {
            extents,
            len,
            writable: true,
            start: start as u64,
            origin: Origin::User,
        })
    }

    /// Nothing that could be reached here: what kernel users map for a device with a parent.
    pub(crate) fn of_parent() -> Self {
        // INVARIANT: There are no extents, which have 0 bytes together.
        Memory {
            extents: KVVec::new(),
            len: 0,
            writable: false,
            start: 0,
            origin: Origin::User,
        }
    }

    /// No memory yet, and what is mapped by `mapped` with each call of [`Memory::renew`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_mapped(mapped: Arc<Mapped>) -> Result<Self> {
        let pages = mapped.max_pages() as usize;
        // INVARIANT: There are no extents, which have 0 bytes together.
        Ok(Memory {
            extents: KVVec::with_capacity(pages, GFP_KERNEL_ACCOUNT)?,
            len: 0,
            writable: true,
            start: 0,
            origin: Origin::Mapped(mapped),
        })
    }

    /// Becomes the memory that a kernel user has mapped for a fast registration, and answers its
    /// length in bytes. `None` if nothing is mapped, or if it is not for that. Any context.
    pub fn renew(&mut self) -> Option<u64> {
        let Origin::Mapped(mapped) = &self.origin else {
            return None;
        };
        // INVARIANT: The extents that were taken, now or the last time, were mapped, follow each
        // other, and have so many bytes.
        self.len = mapped.take(&mut self.extents)?;
        Some(self.len)
    }

    /// The addresses by which the parent of the device reaches a program's memory, page by page.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not, and those of [`Umem::dma_pages`](crate::umem::Umem::dma_pages).
    pub(crate) fn dma_pages(&self) -> Result<impl ExactSizeIterator<Item = u64> + '_> {
        match &self.origin {
            Origin::Pinned(pin) | Origin::DmaBuf(pin) => pin.dma_pages(self.start, self.len),
            _ => Err(EINVAL),
        }
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it may change by `renew`")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is part of a process, which can have it pinned anew, or paged on demand.
    pub fn is_of_process(&self) -> bool {
        matches!(self.origin, Origin::Pinned(_) | Origin::OnDemand(_))
    }

    /// The address in the process that pinned it, or in the kernel; or the offset in a buffer.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether it may be written to.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The pieces in which the bytes lie, each with contiguous kernel addresses. Memory that is
    /// paged on demand has none, nor has what only the parent of the device reaches.
    pub fn extents(&self) -> u32 {
        u32::try_from(self.extents.len()).unwrap_or(u32::MAX)
    }

    /// Whether `len` bytes at `offset` are inside.
    #[inline]
    fn check(&self, offset: u64, len: u64) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// The address of `len` bytes at `offset` if they lie in one extent, as few bytes mostly do. If
    /// the first one has them, no other is searched for.
    #[inline(always)]
    fn in_one(&self, offset: u64, len: u64) -> Option<*mut u8> {
        match self.extents.first() {
            // By the type invariants, it begins with the memory.
            Some(first) if offset < first.len && len <= first.len - offset => {
                Some(first.at(offset))
            }
            _ => Extent::search(&self.extents, offset, len),
        }
    }

    /// Calls `piece` with the address and length of each contiguous piece of `len` bytes at
    /// `offset`, one after the other: so many bytes from the address on are in one extent.
    #[inline]
    fn for_each(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut piece: impl FnMut(*mut u8, usize),
    ) -> Result {
        if let Some(addr) = self.in_one(offset, len as u64) {
            piece(addr, len);
            return Ok(());
        }
        self.check(offset, len as u64)?;
        if let Some(pages) = self.on_demand() {
            // SAFETY: By the requirements of the functions that access on-demand memory.
            return unsafe { pages.for_each(offset, len, write, piece) };
        }
        let mut left = len as u64;
        let mut offset = offset;
        let mut extents = self
            .extents
            .iter()
            .skip(Extent::find(&self.extents, offset));
        while left > 0 {
            let extent = extents.next().ok_or(EFAULT)?;
            let skip = offset - extent.offset;
            let len = left.min(extent.len - skip);
            piece(extent.at(skip), len as usize);
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
    ///
    /// # Safety
    ///
    /// If the memory is a kernel user's, the user has opened these bytes to the device, and they
    /// are read for somebody who has named them by a valid key. If it is paged on demand, nobody is
    /// in an `f` of its [`Exclusive`](crate::paging::Exclusive) (see the [module](self)).
    #[inline]
    pub unsafe fn read(&self, offset: u64, dst: &mut [u8]) -> Result {
        // SAFETY: `dst` is as long, and ours alone; the rest by the requirements of this function.
        unsafe { self.read_raw(offset, dst.as_mut_ptr(), dst.len()) }
    }

    /// Reads bytes at `offset` into memory that need not be initialised, and answers it: now it is.
    ///
    /// # Errors
    ///
    /// As for [`Memory::read`].
    ///
    /// # Safety
    ///
    /// As for [`Memory::read`].
    #[inline]
    pub unsafe fn read_to<'a>(
        &self,
        offset: u64,
        dst: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8]> {
        let (to, len) = (dst.as_mut_ptr().cast::<u8>(), dst.len());
        // SAFETY: `dst` is as long, and ours alone; the rest by the requirements of this function.
        unsafe { self.read_raw(offset, to, len) }?;
        // SAFETY: Each of its bytes was written.
        Ok(unsafe { core::slice::from_raw_parts_mut(to, len) })
    }

    /// Reads `len` bytes at `offset`.
    ///
    /// # Safety
    ///
    /// As for [`Memory::read`]; and so many bytes may be written at `to`, which is the caller's.
    #[inline]
    unsafe fn read_raw(&self, offset: u64, to: *mut u8, len: usize) -> Result {
        let mut to = to;
        smp_rmb_wmb();
        self.for_each(offset, len, false, |from, len| {
            // SAFETY: The bytes of the piece are pinned, by the type invariants, or are there by
            // the requirements of this function, as are those at `to`: the pieces have `len` bytes
            // together.
            unsafe { copy_racing(to, from, len) };
            to = to.wrapping_add(len);
        })
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if not all are inside: nothing is written.
    ///
    /// # Safety
    ///
    /// If the memory is a kernel user's, the user has opened these bytes to the device for writing,
    /// and they are written for somebody who has named them by a valid key. If it is paged on
    /// demand, nobody is in an `f` of its [`Exclusive`](crate::paging::Exclusive) (see the
    /// [module](self)).
    #[inline]
    pub unsafe fn write(&self, offset: u64, src: &[u8]) -> Result {
        if !self.writable {
            return Err(EACCES);
        }
        let mut from = src.as_ptr();
        smp_rmb_wmb();
        self.for_each(offset, src.len(), true, |to, len| {
            // SAFETY: The bytes of the piece are pinned to be written to, by the type invariants
            // and the check, or may be written to by the requirements of this function. As many
            // bytes of `src` are left, to which nobody writes.
            unsafe { copy_racing(to, from, len) };
            from = from.wrapping_add(len);
        })
    }

    /// Writes `len` bytes of a received packet, from `from` on, at `offset`. Any context.
    ///
    /// # Errors
    ///
    /// - `EACCES` if the memory may not be written to.
    /// - `EFAULT` if the bytes are not all inside, of the memory or of the packet. In the latter
    ///   case some may have been written.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`].
    #[inline]
    pub unsafe fn write_packet(
        &self,
        offset: u64,
        packet: &SkBuff,
        from: usize,
        len: usize,
    ) -> Result {
        if !self.writable {
            return Err(EACCES);
        }
        let mut from = from;
        let mut result = Ok(());
        smp_rmb_wmb();
        self.for_each(offset, len, true, |to, len| {
            if result.is_ok() {
                // SAFETY: The `len` bytes of the piece are pinned to be written to, by the type
                // invariants and the check, or may be written to by the requirements of this
                // function. The function is C, and so its copy may race.
                result = unsafe { packet.copy_bits_raw(from, to, len) };
                from = from.saturating_add(len);
            }
        })?;
        result
    }

    /// Copies `len` bytes from one memory to another, or inside of one. If they overlap, each
    /// contiguous piece is copied as if it were done at once.
    ///
    /// # Errors
    ///
    /// `EACCES` if the destination may not be written to, `EFAULT` if the bytes are not all inside.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`] to `dst`, and for [`Memory::read`] of `src`.
    #[inline(always)]
    pub unsafe fn copy(dst: &Memory, dst_off: u64, src: &Memory, src_off: u64, len: u64) -> Result {
        if !dst.writable {
            return Err(EACCES);
        }
        smp_rmb_wmb();
        if let (Some(from), Some(to)) = (src.in_one(src_off, len), dst.in_one(dst_off, len)) {
            // SAFETY: Both have `len` bytes, which are pinned, by the type invariants, or are there
            // by the requirements of this function; those at `to` may be written to.
            unsafe { copy_in_one(from, to, len as usize) };
            return Ok(());
        }
        // SAFETY: By the requirements of this function.
        unsafe { Self::copy_scattered(dst, dst_off, src, src_off, len) }
    }

    /// Copies bytes that do not all lie in one extent on each side, for [`Memory::copy`]. Not
    /// inlined, since few are copied by it.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not all inside; then nothing is copied.
    ///
    /// # Safety
    ///
    /// As for [`Memory::copy`], and `dst` may be written to.
    #[inline(never)]
    unsafe fn copy_scattered(
        dst: &Memory,
        dst_off: u64,
        src: &Memory,
        src_off: u64,
        len: u64,
    ) -> Result {
        dst.check(dst_off, len)?;
        // SAFETY: By the requirements of this function.
        let both = unsafe {
            (
                src.together(src_off, len, false),
                dst.together(dst_off, len, true),
            )
        };
        if let (Some(from), Some(to)) = both {
            // SAFETY: Both have `len` bytes, and are there by the requirements of this function.
            unsafe { copy_in_one(from, to, len as usize) };
            return Ok(());
        }
        let mut dst_off = dst_off;
        let mut result = Ok(());
        src.for_each(src_off, usize::try_from(len)?, false, |from, len| {
            if result.is_err() {
                return;
            }
            let mut from = from;
            result = dst.for_each(dst_off, len, true, |to, len| {
                // SAFETY: The bytes of both pieces are pinned, by the type invariants, or are there
                // by the requirements of this function; those at `to` may be written to. The pieces
                // at `to` have as many bytes together as the one at `from`.
                unsafe { copy_racing(to, from, len) };
                from = from.wrapping_add(len);
            });
            dst_off += len as u64;
        })?;
        result
    }
}

/// Copies `len` bytes that may overlap. Those of a word are not worth a call.
///
/// # Safety
///
/// As for [`copy_racing`].
#[inline(always)]
unsafe fn copy_in_one(from: *const u8, to: *mut u8, len: usize) {
    let (word, to_word) = (from.cast::<u64>(), to.cast::<u64>());
    if len == size_of::<u64>() && word.is_aligned() && to_word.is_aligned() {
        // SAFETY: Both have as many bytes, and are aligned. A volatile access is a `READ_ONCE()`,
        // and a `WRITE_ONCE()`, which may race.
        unsafe { to_word.write_volatile(word.read_volatile()) };
    } else {
        // SAFETY: By the requirements of this function.
        unsafe { copy_racing(to, from, len) };
    }
}
