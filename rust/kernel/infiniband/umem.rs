// SPDX-License-Identifier: GPL-2.0

//! Memory of programs: pinned pages, parts of areas that programs may map, and buffers of other
//! drivers.
//!
//! Pages that are no memory, or not for the kernel to read, are never pinned.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    dma::DMA_PAGE,
    mm::SharedArea, //
};

use crate::{
    dma_buf::{
        self,
        VmappedBuf, //
    },
    extent::Extent,
    memory::Memory,
    origin::Origin,
    paging::{
        Exclusive,
        OnDemand,
        Opened, //
    },
    pin::Pin,
    Access,
    Device,
    Driver, //
};

/// Memory of a program, which stays where it is, unless it is paged on demand.
///
/// The program, and any peer that it lets in, may write to it at any time: each byte may be read
/// only once, and judged only after.
///
/// # Invariants
///
/// The memory is a program's.
pub struct Umem(Memory);

impl Umem {
    /// Pins `length` bytes at `start` in the address space of the calling process, which are
    /// counted against its `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, if the end is beyond that of addresses, or if the caller is a
    /// thread of the kernel; `ENOMEM` if there is no memory, or if the limit is reached; `EFAULT`
    /// if there are no such pages, or if they are not writable but would be written to;
    /// `EOPNOTSUPP` for on-demand paging.
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
        // SAFETY: These are the extents of the pages, which were pinned to be written to if they
        // say so.
        Ok(Umem(unsafe {
            Memory::of_program(Origin::Pinned(pin), start, extents, length, writable)
        }))
    }

    /// `length` bytes at `start` in the address space of the calling process, of which no page is
    /// pinned: each is brought in when it is used. From 0 on, `u64::MAX` bytes stand for all
    /// addresses.
    ///
    /// It is accessed as a [`Memory`] alone: here all accesses fail with `EFAULT`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, or if the caller is a thread of the kernel; `EOVERFLOW` if the
    /// end is beyond that of addresses; `EOPNOTSUPP` if the module has no
    /// [`Workqueues`](crate::Workqueues); `ENOMEM`.
    pub fn on_demand(
        start: u64,
        length: u64,
        access: Access,
        exclusive: Arc<dyn Exclusive>,
    ) -> Result<Self> {
        let opened = Opened(OnDemand::new(start, length, exclusive)?);
        let origin = Origin::OnDemand(opened);
        // INVARIANT: It is a program's.
        //
        // SAFETY: There are no extents, since the memory is paged on demand.
        Ok(Umem(unsafe {
            Memory::of_program(origin, start, KVVec::new(), length, access.writes())
        }))
    }

    /// The bytes, for those who vouch for their accesses.
    #[inline(always)]
    pub fn memory(&self) -> &Memory {
        &self.0
    }

    /// # Errors
    ///
    /// `EFAULT` if it is paged on demand.
    #[inline]
    fn pinned(&self) -> Result<&Memory> {
        match self.0.on_demand() {
            None => Ok(&self.0),
            Some(_) => Err(EFAULT),
        }
    }

    /// The `length` bytes at `offset` of an area.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not all inside, `ENOMEM`.
    pub fn of_area(area: Arc<SharedArea>, offset: u64, length: u64) -> Result<Self> {
        let extent = Extent {
            offset: 0,
            addr: area.at(usize::try_from(offset)?, usize::try_from(length)?)?,
            len: length,
        };
        let mut extents = KVVec::new();
        if length != 0 {
            extents.push(extent, GFP_KERNEL_ACCOUNT)?;
        }
        // INVARIANT: Programs may map areas, and nothing else of the kernel lies in them.
        //
        // SAFETY: An extent lies in the area, which lives as long as the origin, and whose bytes
        // are accessed by whatever may race.
        Ok(Umem(unsafe {
            Memory::of_program(Origin::Area { _area: area }, 0, extents, length, true)
        }))
    }

    /// A part of a buffer of another driver, which the program has as a file. No limit of the
    /// program's is charged with it: the exporter has given it the memory.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file; `EINVAL` if it is no buffer, if the part is empty, or not
    /// all inside; `EACCES` if it would be written to, but the file is not for writing;
    /// `EOPNOTSUPP` if the device cannot reach it; `ENOMEM`; the exporter's.
    pub fn of_dma_buf<D: Driver>(
        dev: &Device<D>,
        part: &dma_buf::Part,
        access: Access,
    ) -> Result<Self> {
        let mut extents = KVVec::new();
        let origin = if dev.parent_users().is_some() {
            Origin::DmaBuf(Pin::of_dma_buf(dev, part, access)?)
        } else {
            let (buf, extent) = VmappedBuf::new(part, access)?;
            // From here on, an error unmaps it.
            let origin = Origin::Vmapped { _buf: buf };
            extents.push(extent, GFP_KERNEL_ACCOUNT)?;
            origin
        };
        // INVARIANT: The program may reach the buffer by its file, and nothing else of the kernel
        // lies in it.
        //
        // SAFETY: The extent, if there is one, is mapped as long as the origin lives, for writing
        // if that is asked for.
        Ok(Umem(unsafe {
            Memory::of_program(origin, part.offset, extents, part.length, access.writes())
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
        // SAFETY: By the type invariants, the memory is no kernel user's, and it is not paged on
        // demand.
        unsafe { self.pinned()?.read(offset, dst) }
    }

    /// Writes bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if they are not all inside; then nothing is
    /// written.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result {
        // SAFETY: By the type invariants, the memory is no kernel user's, and it is not paged on
        // demand.
        unsafe { self.pinned()?.write(offset, src) }
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
        // SAFETY: By the type invariants, neither memory is a kernel user's, and none is paged on
        // demand.
        unsafe { Memory::copy(dst.pinned()?, dst_off, src.pinned()?, src_off, len) }
    }
}

impl From<Umem> for Memory {
    fn from(umem: Umem) -> Self {
        umem.0
    }
}
