// SPDX-License-Identifier: GPL-2.0

//! Memory windows: a part of a region that peers reach by a key of its own, bound and taken back
//! by work requests (IBA volume 1, 10.6.7).
//!
//! A window's key has the bit [`WINDOW`], so that it is never mistaken for a region's. The upper 24
//! bits name the window for all its life; the lower 8 are the owner's to choose with each bind, so
//! that the key before opens nothing any more.
//!
//! A window refers to its region by key. When the region goes, the window opens nothing, however
//! it went.

use crate::{
    abi,
    attr::Access,
    error::{
        Error,
        Refused,
        TableKind, //
    },
    host::Host,
    id::QpId,
    key::{
        KeyError,
        KeyUse,
        Keys, //
    },
    table::{
        Table,
        TableChunk, //
    },
};

/// The most memory windows of an engine.
pub const MAX_MW: u32 = 1 << 18;

/// Set in the keys of windows. Regions have keys below it.
const WINDOW: u32 = 1 << 31;

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

/// What a window is bound to.
#[derive(Clone, Copy)]
struct Binding {
    /// The key of the region.
    region: u32,
    /// The first byte, as the region's addresses have it.
    addr: u64,
    /// The address by which peers name the first byte.
    start: u64,
    length: u64,
    access: Access,
    /// The queue pair that a window of type 2 opens to.
    qp: QpId,
}

/// A memory window.
pub struct Mw {
    key: u32,
    pd: u32,
    mw_type: MwType,
    bound: Option<Binding>,
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

/// A window could not be bound or invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindError;

/// What a bind asks for.
pub(crate) struct Bind {
    /// A key that the window has or had: it says which window.
    pub(crate) window: u32,
    /// The key that the window is to have.
    pub(crate) key: u32,
    /// The key of the region.
    pub(crate) region: u32,
    /// The first byte, as the region's addresses have it.
    pub(crate) addr: u64,
    /// The length in bytes; 0 takes a window of type 1 back.
    pub(crate) length: u64,
    pub(crate) access: Access,
}

/// All windows by their keys.
pub(crate) struct Windows<H: Host> {
    table: Table<H, Mw, ()>,
}

impl<H: Host> Windows<H> {
    pub(crate) fn new(seed: u32) -> Self {
        Self {
            table: Table::new(TableKind::Windows, 0, MAX_MW, seed),
        }
    }

    /// The index of a window's key; none for a region's.
    #[inline]
    pub(crate) fn index(key: u32) -> Option<u32> {
        (key & WINDOW != 0).then_some((key & !WINDOW).wrapping_shr(8))
    }

    fn of(&self, key: u32) -> Option<&Mw> {
        self.table.get(Self::index(key)?)
    }

    fn of_mut(&mut self, key: u32) -> Option<&mut Mw> {
        self.table.get_mut(Self::index(key)?)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(&mut self, chunk: TableChunk<H, Mw, ()>) -> Option<TableChunk<H, Mw, ()>> {
        self.table.grow(chunk)
    }

    /// What a use of a window's key means for the region that the window is bound to.
    pub(crate) fn translate(&self, want: &KeyUse) -> Result<KeyUse, KeyError> {
        let mw = self.of(want.key).filter(|mw| mw.key == want.key);
        let mw = mw.ok_or(KeyError::Stale)?;
        let bound = mw.bound.as_ref().ok_or(KeyError::Stale)?;
        // A window opens to peers only (C10-70), each type to others.
        let qp = want.peer_of.ok_or(KeyError::Right)?;
        let admitted = match mw.mw_type {
            MwType::Type1 => want.pd == mw.pd,
            MwType::Type2 => qp == bound.qp,
        };
        if !admitted {
            return Err(KeyError::Domain);
        }
        if !bound.access.allows(want.need) {
            return Err(KeyError::Right);
        }
        let offset = want.addr.checked_sub(bound.start).ok_or(KeyError::Range)?;
        match offset.checked_add(want.length) {
            Some(end) if end <= bound.length => Ok(KeyUse {
                pd: mw.pd,
                key: bound.region,
                // What a window gives is judged when it is bound, whatever the region gives peers.
                need: Access::NONE,
                addr: bound.addr.wrapping_add(offset),
                ..*want
            }),
            _ => Err(KeyError::Range),
        }
    }
}

impl<H: Host> Keys<H> {
    /// Adds a window and answers its key, which opens nothing before it is bound.
    pub(crate) fn add_mw(&mut self, mw: H::Box<Mw>) -> Result<u32, Refused<H::Box<Mw>>> {
        let mut key = 0;
        self.windows.table.insert(mw, |mw, index, generation| {
            key = WINDOW | index.wrapping_shl(8) | u32::from(generation);
            mw.key = key;
        })?;
        Ok(key)
    }

    /// Removes the window that has or had this key.
    pub(crate) fn remove_mw(&mut self, key: u32) -> Result<H::Box<Mw>, Error> {
        let index = Windows::<H>::index(key).ok_or(Error::NotFound)?;
        let mw = self.windows.table.remove(index).ok_or(Error::NotFound)?;
        if let Some(bound) = mw.bound {
            self.count_window(bound.region, false);
        }
        Ok(mw)
    }

    /// Binds a window for a queue pair, as far as IBA volume 1 allows (10.6.7.2 and C10-72 to
    /// C10-75).
    pub(crate) fn bind(&mut self, pd: u32, qp: QpId, bind: &Bind) -> Result<(), BindError> {
        // To write locally is nothing that a window gives, but programs ask for it with the rest.
        const KNOWN: Access = Access::REMOTE
            .or(Access::LOCAL_WRITE)
            .or(Access::ZERO_BASED);

        let mw = self.windows.of(bind.window).ok_or(BindError)?;
        let (before, mw_type) = (mw.bound, mw.mw_type);
        let same_window = (mw.key ^ bind.key) & !TAG == 0;
        if mw.pd != pd || !same_window || mw.key == bind.key {
            return Err(BindError);
        }
        // A window of type 2 has to be invalidated first, and that is not done by a bind.
        if mw_type == MwType::Type2 && (before.is_some() || bind.length == 0) {
            return Err(BindError);
        }
        let zero_based = bind.access.allows(Access::ZERO_BASED);
        if !KNOWN.allows(bind.access) || (zero_based && mw_type == MwType::Type1) {
            return Err(BindError);
        }
        let bound = if bind.length == 0 {
            None
        } else {
            // Who may write through the window has to write to what may be written to.
            let writes = Access::REMOTE_WRITE.or(Access::REMOTE_ATOMIC);
            let need = if bind.access.allows_some(writes) {
                Access::MW_BIND.or(Access::LOCAL_WRITE)
            } else {
                Access::MW_BIND
            };
            // A window is not bound to a window.
            self.check_region(&KeyUse {
                pd,
                key: bind.region,
                need,
                addr: bind.addr,
                length: bind.length,
                peer_of: None,
            })
            .map_err(|_| BindError)?;
            Some(Binding {
                region: bind.region,
                addr: bind.addr,
                start: if zero_based { 0 } else { bind.addr },
                length: bind.length,
                access: Access(bind.access.0 & Access::REMOTE.0),
                qp,
            })
        };
        if let Some(before) = before {
            self.count_window(before.region, false);
        }
        if let Some(bound) = bound {
            self.count_window(bound.region, true);
        }
        let mw = self.windows.of_mut(bind.window).ok_or(BindError)?;
        mw.key = bind.key;
        mw.bound = bound;
        Ok(())
    }

    /// As [`Keys::invalidate`], asked for by the peer. Of regions it can name those that give it a right:
    /// the keys of others are its owner's alone.
    pub(crate) fn invalidate_by_peer(
        &mut self,
        pd: u32,
        qp: QpId,
        key: u32,
    ) -> Result<(), BindError> {
        let is_window = Windows::<H>::index(key).is_some();
        let region = self.fast_mut(key);
        if !is_window && !region.is_some_and(|mr| mr.init().access.allows_some(Access::REMOTE)) {
            return Err(BindError);
        }
        self.invalidate(pd, qp, key)
    }

    /// Invalidates a key: those of windows of type 2 can be, and of regions for fast registration.
    ///
    /// `qp` is the queue pair that was asked to, by its program or by its peer.
    pub(crate) fn invalidate(&mut self, pd: u32, qp: QpId, key: u32) -> Result<(), BindError> {
        if Windows::<H>::index(key).is_none() {
            return self.invalidate_region(pd, key);
        }
        let mw = self.windows.of_mut(key).ok_or(BindError)?;
        if mw.key != key || mw.mw_type != MwType::Type2 || mw.pd != pd {
            return Err(BindError);
        }
        match mw.bound {
            Some(bound) if bound.qp != qp => Err(BindError),
            Some(bound) => {
                mw.bound = None;
                self.count_window(bound.region, false);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// What a bind request of a ring asks for.
impl From<&abi::SendWqe> for Bind {
    fn from(head: &abi::SendWqe) -> Self {
        let words: abi::BindWords = zerocopy::transmute!(head.extra);
        Self {
            window: words.mw_rkey.get(),
            key: head.rkey.get(),
            region: u32::from_le_bytes(head.imm_or_inv),
            addr: head.remote_addr.get(),
            length: words.length.get(),
            access: Access(words.access.get()),
        }
    }
}
