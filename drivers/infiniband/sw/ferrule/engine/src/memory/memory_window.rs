// SPDX-License-Identifier: GPL-2.0

//! Memory windows: a part of a region that peers reach by a key of its own, bound and taken back
//! by work requests (IBA volume 1, 10.6.7).
//!
//! A window's key has the bit [`MW_KEY`], so that it is never mistaken for a region's. The upper 24
//! bits name the window for all its life; the lower 8 are the owner's to choose with each bind, so
//! that the key before opens nothing any more.
//!
//! A window refers to its region by key and generation. When the region goes, the window opens
//! nothing, however it went, nor does a later region of that key know of it.

use crate::{
    base::{
        attr::Access,
        error::{
            Error,
            Refused,
            TableKind, //
        },
        host::Host,
        id::QpId,
        table::{
            Table,
            TableChunk, //
        },
    },
    memory::key_use::{
        KeyError,
        KeyUse, //
    },
};

/// The most memory windows of an engine.
pub const MAX_MW: u32 = 1 << 18;

/// Set in the keys of windows. Regions have keys below it.
const MW_KEY: u32 = 1 << 31;

/// The part of a key that its owner chooses.
pub(crate) const TAG: u32 = 0xff;

/// The types of windows (IBA volume 1, 10.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Opens to all queue pairs of its protection domain.
    Type1,
    /// Opens to the queue pair by which it was bound, and can be invalidated (2B).
    Type2,
}

/// The part of a region that a window is bound to.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// The key of the region.
    pub(crate) region: u32,
    /// Tells it from later regions of that key.
    pub(crate) generation: u64,
    /// The first byte, as the region's addresses have it.
    pub(crate) addr: u64,
    /// The address by which peers name the first byte.
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    /// The queue pair that a window of type 2 opens to.
    pub(crate) qp: QpId,
}

/// A memory window.
pub struct Mw {
    pub(crate) key: u32,
    pub(crate) pd: u32,
    pub(crate) mw_type: MwType,
    pub(crate) bound: Option<Binding>,
}

impl Mw {
    /// Makes a window, to be handed to [`Engine::add_mw`](crate::Engine::add_mw).
    pub fn new(pd: u32, mw_type: MwType) -> Self {
        Self {
            key: 0,
            pd,
            mw_type,
            bound: None,
        }
    }
}

/// The index of a window's key; none for a region's.
#[inline(always)]
pub(crate) fn window_index(key: u32) -> Option<u32> {
    (key & MW_KEY != 0).then_some((key & !MW_KEY).wrapping_shr(8))
}

/// All windows by their keys.
pub(crate) struct Mws<H: Host> {
    table: Table<H, Mw, ()>,
}

impl<H: Host> Mws<H> {
    pub(crate) fn new(seed: u32) -> Self {
        Self {
            table: Table::new(TableKind::Mws, 0, MAX_MW, seed),
        }
    }

    /// Adds a window and returns its key, which opens nothing before it is bound.
    pub(crate) fn add(&mut self, mw: H::Box<Mw>) -> Result<u32, Refused<H::Box<Mw>>> {
        let mut key = 0;
        self.table.insert(mw, |mw, index, generation| {
            key = MW_KEY | index.wrapping_shl(8) | u32::from(generation as u8);
            mw.key = key;
        })?;
        Ok(key)
    }

    /// Removes the window that has or had this key.
    pub(crate) fn remove(&mut self, key: u32) -> Result<H::Box<Mw>, Error> {
        let index = window_index(key).ok_or(Error::NotFound)?;
        let last = self.table.get(index).ok_or(Error::NotFound)?.key;
        // Each bind has used up a key, and the next window of the number begins behind the last
        // one.
        self.table.use_up_generations(index, last as u8);
        self.table.remove(index).ok_or(Error::NotFound)
    }

    /// The window that has or had this key.
    pub(crate) fn of(&self, key: u32) -> Option<&Mw> {
        self.table.get(window_index(key)?)
    }

    /// As [`Mws::of`].
    pub(crate) fn of_mut(&mut self, key: u32) -> Option<&mut Mw> {
        self.table.get_mut(window_index(key)?)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(&mut self, chunk: TableChunk<H, Mw, ()>) -> Option<TableChunk<H, Mw, ()>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, Mw, ()>) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all windows of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
    }

    /// The use of the region that a use of a window's key stands for, and the region's generation.
    pub(crate) fn translate(&self, want: &KeyUse) -> Result<(KeyUse, u64), KeyError> {
        let mw = self.of(want.key).filter(|mw| mw.key == want.key);
        let mw = mw.ok_or(KeyError::Stale)?;
        let bound = mw.bound.as_ref().ok_or(KeyError::Stale)?;
        // A window opens to peers only (C10-70): to those of its protection domain, and one of type
        // 2 to that of a single queue pair. A name of a queue pair that is gone may come back in
        // another domain.
        let qp = want.peer_of.ok_or(KeyError::Right)?;
        let admitted = match mw.mw_type {
            MwType::Type1 => true,
            MwType::Type2 => qp == bound.qp,
        };
        if want.pd != mw.pd || !admitted {
            return Err(KeyError::Domain);
        }
        if !bound.access.allows(want.need) {
            return Err(KeyError::Right);
        }
        let offset = want.addr.checked_sub(bound.start).ok_or(KeyError::Range)?;
        match offset.checked_add(want.length) {
            Some(end) if end <= bound.length => {
                let on_region = KeyUse {
                    key: bound.region,
                    // The bind judged the rights that a window gives; those that the region gives
                    // peers do not matter.
                    need: Access::NONE,
                    addr: bound.addr.wrapping_add(offset),
                    ..*want
                };
                Ok((on_region, bound.generation))
            }
            _ => Err(KeyError::Range),
        }
    }
}
