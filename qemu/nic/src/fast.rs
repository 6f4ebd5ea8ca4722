// SPDX-License-Identifier: GPL-2.0

//! Fast registration: the bytes that a guest's list of extents names at the time of a request that
//! registers.
//!
//! The list lies in the guest's memory, and its driver may write there at any time. So each entry
//! is copied once and judged as a copy, like any other address of the guest's: the memory that a
//! request has registered is pinned, and stays what it is whatever the list says later.

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
    /// The extents that it has read.
    extents: u32,
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
            extents: 0,
        })
    }

    /// Goes over to what the list names now, and returns how many bytes that is.
    pub(crate) fn renew(&mut self) -> Option<u64> {
        // The old registration counts no more.
        self.registered = None;
        self.extents = 0;
        let extents =
            entries(&self.list).inspect(|_| self.extents = self.extents.saturating_add(1));
        let pages = Pages::extents(&self.memory, extents, MAX_PIECES).ok()?;
        Some(self.registered.insert(pages).length())
    }

    /// How many extents or pieces the last registration has gone through, whichever are more; and
    /// as many as there can be if it has failed.
    pub(crate) fn pieces(&self) -> u32 {
        let pieces = self.registered.as_ref().map(Pages::count);
        pieces.map_or(MAX_PIECES as u32, |pieces| pieces.max(self.extents))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{sealed, Mapping, PAGE};
    use crate::protocol::Range;

    #[test]
    fn extents_and_pieces_are_counted() {
        const SIZE: u64 = 8 * PAGE;
        let memory = Arc::new(Memory::default());
        let file = sealed("test", SIZE).unwrap();
        let bytes = Mapping::new(&file, 0, SIZE, true).unwrap();
        let range = Range {
            address: 0,
            size: SIZE,
        };
        memory.map(range, Some(file), 0, true).unwrap();
        // The first page names the second one, which is the list.
        assert!(bytes.store(0, PAGE));
        let pages = PageList {
            list: 0.into(),
            pages: 1.into(),
            reserved: 0.into(),
        };
        let mut fast = Fast::new(&memory, &pages, 2 * ENTRY).unwrap();
        for (second, length, pieces) in [
            (4 * PAGE, Some(16), 2),
            // Behind the first one, and one piece with it.
            (2 * PAGE + 8, Some(16), 2),
            (SIZE, None, MAX_PIECES as u32),
        ] {
            for (at, word) in [(0, 2 * PAGE), (8, 8), (16, second), (24, 8)] {
                assert!(bytes.store(PAGE + at, word));
            }
            assert_eq!((fast.renew(), fast.pieces()), (length, pieces));
        }
    }
}
