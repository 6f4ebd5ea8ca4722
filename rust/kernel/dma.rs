// SPDX-License-Identifier: GPL-2.0

//! Memory that a device shares with the kernel and with programs.
//!
//! A shared page is one memory for all: a mapping that the platform could only make by copying
//! (`swiotlb`), or whose caches would have to be told of each access, is refused.
//!
//! C header: `include/linux/dma-mapping.h`.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        UniqueArc, //
    },
    types::ScopeGuard, //
};

use crate::{
    bindings,
    device,
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};

/// The granule in which devices are told of memory, whatever the page size of the kernel is.
pub const DMA_PAGE: usize = 4096;

const _: () = assert!(PAGE_SIZE % DMA_PAGE == 0);

/// The mapping of a whole area.
///
/// # Invariants
///
/// `pages` are the addresses by which `device` reaches the pages of `_area`, one each. They are
/// mapped, and are unmapped when this is dropped. The device is bound until then.
struct Mapping {
    device: ARef<Device>,
    pages: Arc<KVVec<u64>>,
    _area: Arc<SharedArea>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(&self.device, &self.pages);
    }
}

/// Unmaps pages.
fn unmap(device: &Device, pages: &[u64]) {
    for &page in pages {
        // SAFETY: The callers give pages that are mapped for the device, which is bound.
        unsafe { bindings::dma_unmap_shared_page(device::as_raw(device), page) };
    }
}

/// A [`SharedArea`] that a device reaches, too, until this is dropped or the device is unbound.
///
/// The device reads and writes at any time, as a program does.
///
/// The addresses can be asked for even when the device has been unbound. Nobody can tell them to
/// the device then: its registers are gone as well ([`Bar`](crate::pci::Bar)).
pub struct DmaArea {
    /// Unmaps the pages, and goes with the device's driver at the latest.
    _mapping: Devres<Mapping>,
    pages: Arc<KVVec<u64>>,
    area: Arc<SharedArea>,
}

impl DmaArea {
    /// Maps `area` for `device`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP` if the device cannot reach the area as it is: it is not coherent, its
    /// DMA mask leaves pages out, or there are no addresses left.
    pub fn new(device: &Device<Bound>, area: Arc<SharedArea>) -> Result<Self> {
        let count = area.len() / PAGE_SIZE;
        let pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let pages = UniqueArc::new(pages, GFP_KERNEL_ACCOUNT)?;
        // An error unmaps what was mapped.
        let mut pages = ScopeGuard::new_with_data(pages, |pages| unmap(device, &pages));
        for index in 0..count {
            let page = area.page(index)?;
            let mut address = 0;
            // SAFETY: The device is bound, and the page is one of the area, which the mapping
            // keeps.
            if !unsafe { bindings::dma_map_shared_page(device::as_raw(device), page, &mut address) }
            {
                return Err(EOPNOTSUPP);
            }
            // There is space for it.
            pages.push_within_capacity(address).map_err(|_| ENOMEM)?;
        }
        let pages = Arc::from(pages.dismiss());
        // INVARIANT: All pages have just been mapped. `Devres` drops the mapping before the device
        // is unbound, and so does an error.
        let mapping = Mapping {
            device: device.into(),
            pages: pages.clone(),
            _area: area.clone(),
        };
        Ok(DmaArea {
            _mapping: Devres::new(device, mapping)?,
            pages,
            area,
        })
    }

    /// The memory.
    pub fn area(&self) -> &Arc<SharedArea> {
        &self.area
    }

    /// The addresses by which the device reaches the memory, in order, one for each [`DMA_PAGE`]
    /// bytes. Those of the bytes that were asked for: larger pages of the kernel have more, of
    /// which a device need not know.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        (0..self.area.asked().div_ceil(DMA_PAGE)).map(|index| {
            let offset = index * DMA_PAGE;
            // There are as many as the area has pages.
            let page = self.pages.get(offset / PAGE_SIZE).copied().unwrap_or(0);
            page + (offset % PAGE_SIZE) as u64
        })
    }
}

/// A list of addresses in memory that a device reads, as long as this is.
///
/// The list is a chain of pages of [`DMA_PAGE`] bytes, of little-endian words: the last word of a
/// page is the address of the next page of the list, 0 in the last page, and all others are
/// addresses of the list.
pub struct PageList {
    list: DmaArea,
    len: u32,
}

/// Addresses in a page of a list.
const ENTRIES: usize = DMA_PAGE / size_of::<u64>() - 1;

impl PageList {
    /// Makes a list for `device`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are no addresses, or more than 32 bits can count; those of
    /// [`DmaArea::new`].
    pub fn new(
        device: &Device<Bound>,
        addresses: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self> {
        let count = addresses.len();
        let len = u32::try_from(count)?;
        let lists = count.div_ceil(ENTRIES);
        let area = SharedArea::new(lists * DMA_PAGE)?;
        let list = DmaArea::new(device, Arc::new(area, GFP_KERNEL_ACCOUNT)?)?;
        // The end of the chain is 0 already: areas are zeroed.
        for (index, address) in addresses.take(count).enumerate() {
            let word = index % ENTRIES * size_of::<u64>();
            list.area
                .store_u64(index / ENTRIES * DMA_PAGE + word, address)?;
        }
        for (index, next) in list.pages().skip(1).enumerate() {
            let word = ENTRIES * size_of::<u64>();
            list.area.store_u64(index * DMA_PAGE + word, next)?;
        }
        Ok(PageList { list, len })
    }

    /// The address of the first page of the list.
    pub fn address(&self) -> u64 {
        self.list.pages().next().unwrap_or(0)
    }

    /// The number of addresses in the list.
    #[allow(clippy::len_without_is_empty, reason = "a list is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }
}
