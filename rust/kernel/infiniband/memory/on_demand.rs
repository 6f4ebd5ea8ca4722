// SPDX-License-Identifier: GPL-2.0

//! A [`Memory`] of which pages come and go.

use kernel::sync::Arc;

use super::Memory;
use crate::{
    origin::Origin,
    paging::{
        OnDemand,
        Presence, //
    },
};

impl Memory {
    /// The pages, if it is paged on demand.
    #[inline]
    pub fn on_demand(&self) -> Option<&Arc<OnDemand>> {
        match &self.origin {
            Origin::OnDemand(opened) => Some(&opened.0),
            _ => None,
        }
    }

    /// The address of `len` bytes at `offset` if they lie together, for reading or writing.
    ///
    /// # Safety
    ///
    /// As for [`Memory::read`], or [`Memory::write`].
    #[inline]
    pub(super) unsafe fn together(&self, offset: u64, len: u64, write: bool) -> Option<*mut u8> {
        let Some(pages) = self.on_demand() else {
            return self.in_one(offset, len);
        };
        self.check(offset, len).ok()?;
        // SAFETY: By the requirements of this function.
        let (at, found) = unsafe { pages.piece(offset, len as usize, write) }?;
        (found as u64 == len).then_some(at.as_ptr())
    }

    /// Has `len` bytes at `offset` brought into memory, if they are absent. Any context.
    ///
    /// That they cannot be had is answered to an `asker` that has asked for them before, and once.
    ///
    /// # Safety
    ///
    /// As for [`Memory::read`].
    #[cold]
    pub unsafe fn page_in(&self, offset: u64, len: u64, write: bool, asker: u64) -> Presence {
        match self.on_demand() {
            None => Presence::Present,
            Some(_) if write && !self.writable => Presence::Gone,
            // SAFETY: By the requirements of this function.
            Some(pages) => unsafe { pages.page_in(offset, len, write, asker) },
        }
    }
}
