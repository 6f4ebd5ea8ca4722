// SPDX-License-Identifier: GPL-2.0

//! Fast registration: the bytes that a guest's list of extents names at the time of a request that registers.
//!
//! The list lies in the guest's memory, and its driver may write there at any time. So each entry is copied once and
//! judged as a copy, like any other address of the guest's: the memory that a request has registered is pinned, and
//! stays what it is whatever the list says later.

use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use crate::interface::{Extent, PageList, MAX_EXTENTS};
use crate::memory::{Access, Memory};
use crate::pages::Pages;
use crate::protocol::MAX_RANGES;

/// Bytes of an entry.
const ENTRY: u64 = size_of::<Extent>() as u64;

/// The most pieces. Extents that do not overlap cross the end of each range once at most.
const MAX_PIECES: usize = MAX_EXTENTS as usize + MAX_RANGES;

/// The bytes of a region for fast registration.
#[derive(Debug)]
pub(crate) struct Fast {
    memory: Arc<Memory>,
    list: Pages,
    /// The memory of the last registration.
    registered: Option<Pages>,
}

impl Fast {
    /// A region whose list has so many bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a list that has not from 1 to [`MAX_EXTENTS`] entries; those of [`Pages::new`].
    pub(crate) fn new(memory: &Arc<Memory>, list: &PageList, length: u64) -> Result<Self, Errno> {
        if length % ENTRY != 0 || length > ENTRY.saturating_mul(MAX_EXTENTS.into()) {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            memory: Arc::clone(memory),
            list: Pages::new(memory, list, (0, length), Access::Read)?,
            registered: None,
        })
    }

    /// Goes over to what the list names now, and returns how many bytes that is.
    pub(crate) fn renew(&mut self) -> Option<u64> {
        // The old registration counts no more.
        self.registered = None;
        let pages = Pages::extents(&self.memory, entries(&self.list), MAX_PIECES).ok()?;
        Some(self.registered.insert(pages).length())
    }

    /// The bytes, if some were registered.
    #[inline]
    pub(crate) fn pages(&self) -> Option<&Pages> {
        self.registered.as_ref()
    }
}

/// The extents of a list: addresses and lengths.
fn entries(list: &Pages) -> impl Iterator<Item = Result<(u64, u64), Errno>> + '_ {
    let places = (0..list.length()).step_by(size_of::<Extent>());
    let read = |at| {
        let mut entry = Extent::new_zeroed();
        match list.read(at, entry.as_mut_bytes()) {
            true => Ok((entry.address.get(), entry.length.get())),
            false => Err(Errno::FAULT),
        }
    };
    places
        .map(read)
        .take_while(|entry| !matches!(entry, Ok((_, 0))))
}
