// SPDX-License-Identifier: GPL-2.0

//! How commands name memory.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    dma::{
        self,
        DmaArea, //
    },
    mm::SharedArea, //
};

use super::interface::PageList;

/// A page list, for the time of a command.
pub(super) struct Listed(dma::PageList);

impl Listed {
    /// The list of these pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` without pages.
    pub(super) fn new(
        device: &Device<Bound>,
        pages: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self> {
        Ok(Listed(dma::PageList::new(device, pages)?))
    }

    /// As an operand, which is valid as long as this is there.
    pub(super) fn operand(&self) -> PageList {
        PageList {
            list: self.0.address().into(),
            pages: self.0.len().into(),
            reserved: 0.into(),
        }
    }
}

/// No pages.
pub(super) fn no_pages() -> PageList {
    PageList {
        list: 0.into(),
        pages: 0.into(),
        reserved: 0.into(),
    }
}

/// Maps an area for the device, and lists its pages.
///
/// # Errors
///
/// `ENOMEM`; `EOPNOTSUPP` if the device cannot reach the pages where they are.
pub(super) fn map(device: &Device<Bound>, area: Arc<SharedArea>) -> Result<(DmaArea, Listed)> {
    let area = DmaArea::new(device, area)?;
    let list = Listed::new(device, area.pages())?;
    Ok((area, list))
}
