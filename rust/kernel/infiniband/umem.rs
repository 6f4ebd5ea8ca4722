// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned pages, as the processor sees them.
//!
//! Pages that are no memory, or not for the kernel to read, are never pinned.

use kernel::prelude::*;
use kernel_ext::dma::DMA_PAGE;

use crate::{
    memory::Memory,
    pin::Pin,
    Access,
    Device,
    Driver, //
};

/// Memory of a program, pinned.
///
/// The program, and any peer that it lets in, may write to it at any time: each byte may be read
/// only once, and judged only after.
///
/// # Invariants
///
/// The memory is pinned.
pub struct Umem(Memory);

impl Umem {
    /// Pins `length` bytes at `start` in the address space of the calling process, which are counted
    /// against its `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, if the end is beyond that of addresses, or if the caller is a thread
    /// of the kernel; `ENOMEM` if there is no memory, or if the limit is reached; `EFAULT` if there are
    /// no such pages, or if they are not writable but would be written to; `EOPNOTSUPP` for on-demand
    /// paging.
    pub fn pin<D: Driver>(
        dev: &Device<D>,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        // From here on, an error unpins the pages.
        let pin = Pin::new(dev, start, length, access)?;
        let extents = pin.extents(start, length)?;
        let writable = pin.writable();
        // INVARIANT: It is.
        //
        // SAFETY: These are the extents of the pages, which were pinned to be written to if they say so.
        Ok(Umem(unsafe {
            Memory::pinned(pin, start, extents, length, writable)
        }))
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether it may be written to.
    pub fn writable(&self) -> bool {
        self.0.writable()
    }

    /// Where the first byte lies in the first of the [`dma_pages`](Self::dma_pages).
    pub fn page_offset(&self) -> u32 {
        (self.0.start() % DMA_PAGE as u64) as u32
    }

    /// The addresses by which the parent of the device
    /// ([`Device::parent`]) reaches the memory, in order, one for each [`DMA_PAGE`] bytes. They are
    /// valid as long as the memory is pinned.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if there is no parent; `EFAULT` if it sees the memory as no such pages.
    pub fn dma_pages(&self) -> Result<impl ExactSizeIterator<Item = u64> + '_> {
        self.0.dma_pages()
    }

    /// Reads bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all inside; then nothing is read.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result {
        // SAFETY: By the type invariants, the memory is no kernel user's.
        unsafe { self.0.read(offset, dst) }
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if they are not all inside; then nothing is
    /// written.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result {
        // SAFETY: By the type invariants, the memory is no kernel user's.
        unsafe { self.0.write(offset, src) }
    }

    /// Copies `len` bytes from one memory to another, or inside of one. If they overlap, each
    /// contiguous piece is copied as if it were done at once.
    ///
    /// # Errors
    ///
    /// `EACCES` if the destination may not be written to, `EFAULT` if the bytes are not all inside;
    /// then nothing is copied.
    #[inline]
    pub fn copy(dst: &Umem, dst_off: u64, src: &Umem, src_off: u64, len: u64) -> Result {
        // SAFETY: By the type invariants, neither memory is a kernel user's.
        unsafe { Memory::copy(&dst.0, dst_off, &src.0, src_off, len) }
    }
}

impl From<Umem> for Memory {
    fn from(umem: Umem) -> Self {
        umem.0
    }
}
