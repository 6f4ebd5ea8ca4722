// SPDX-License-Identifier: GPL-2.0

//! The list of a region for fast registration: the extents that the device registers with the next
//! request.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    dma::DmaArea,
    mm::SharedArea, //
};
use zerocopy::IntoBytes;

use super::{
    area::{
        self,
        Listed, //
    },
    interface::{
        mr_flag,
        Extent,
        RegMr, //
    },
};
use crate::backend::ring::new_area;

/// The list, in memory that the device reads.
pub(super) struct List {
    mapped: DmaArea,
    entries: usize,
}

impl List {
    /// An empty list with space for so many extents, and how a command names it.
    pub(super) fn new(device: &Device<Bound>, entries: u32) -> Result<(Self, Listed)> {
        let entries = entries as usize;
        let area = new_area(entries * size_of::<Extent>())?;
        let (mapped, pages) = area::map(device, area)?;
        Ok((List { mapped, entries }, pages))
    }

    /// The region of the list as a command has it. `pages` are those of the list.
    pub(super) fn region(&self, pd: u32, pages: &Listed) -> RegMr {
        RegMr {
            pd: pd.into(),
            access: 0.into(),
            iova: 0.into(),
            length: ((self.entries * size_of::<Extent>()) as u64).into(),
            offset: 0.into(),
            flags: mr_flag::FAST.into(),
            memory: pages.operand(),
        }
    }

    /// The memory of the list, as [`fill`] has it.
    pub(super) fn memory(&self) -> (Arc<SharedArea>, usize) {
        (self.mapped.area().clone(), self.entries)
    }
}

/// Fills a list: of each extent the address and the length. Any context. The caller keeps others
/// from filling it.
///
/// # Errors
///
/// `EINVAL` if it has no space for so many.
pub(super) fn fill(
    (area, entries): &(Arc<SharedArea>, usize),
    extents: impl Iterator<Item = (u64, u64)>,
) -> Result {
    // An entry of no bytes ends the list.
    let end = core::iter::once((0, 0));
    for (index, (address, length)) in extents.chain(end).enumerate() {
        if index == *entries {
            return if length == 0 { Ok(()) } else { Err(EINVAL) };
        }
        let entry = Extent {
            address: address.into(),
            length: length.into(),
        };
        area.write_bytes(index * size_of::<Extent>(), entry.as_bytes())?;
    }
    Ok(())
}
