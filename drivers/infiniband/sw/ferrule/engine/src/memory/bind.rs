// SPDX-License-Identifier: GPL-2.0

//! Memory windows as the keys that they are: bound to regions, and taken back, by work requests
//! (IBA volume 1, 10.6.7).

use crate::{
    base::{
        abi,
        attr::Access,
        error::Error,
        host::Host,
        id::QpId, //
    },
    memory::{
        key::Keys,
        key_use::KeyUse,
        memory_window::{
            window_index,
            Binding,
            Mw,
            MwType,
            TAG, //
        },
    },
};

/// A window could not be bound or invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindError;

/// A request to bind a window.
pub(crate) struct Bind {
    /// A key that the window has or had: it says which window.
    pub(crate) window: u32,
    /// The key that the window is to have: its lower 8 bits count.
    pub(crate) key: u32,
    /// The key of the region.
    pub(crate) region: u32,
    /// The first byte, as the region's addresses have it.
    pub(crate) addr: u64,
    /// The length in bytes; 0 takes a window of type 1 back.
    pub(crate) length: u64,
    pub(crate) access: Access,
}

impl<H: Host> Keys<H> {
    /// Removes the window that has or had this key, and its region knows of one less.
    pub(crate) fn remove_mw(&mut self, key: u32) -> Result<H::Box<Mw>, Error> {
        let mw = self.mws.remove(key)?;
        if let Some(bound) = mw.bound {
            self.count_window(&bound, false);
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

        let mw = self.mws.of(bind.window).ok_or(BindError)?;
        let (before, mw_type) = (mw.bound, mw.mw_type);
        // The lower bits are the program's to choose, and the others name the window whatever the
        // program says.
        let key = mw.key & !TAG | bind.key & TAG;
        if mw.pd != pd || mw.key == key {
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
            // A window that lets peers write needs a region that may be written to; one that lets
            // them flush, a region that gives the right to.
            let writes = Access::REMOTE_WRITE.or(Access::REMOTE_ATOMIC);
            let need = if bind.access.allows_some(writes) {
                Access::MW_BIND.or(Access::LOCAL_WRITE)
            } else {
                Access::MW_BIND
            };
            let need = need.or(bind.access.and(Access::FLUSH_GLOBAL));
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
                generation: self.generation(bind.region).ok_or(BindError)?,
                addr: bind.addr,
                start: if zero_based { 0 } else { bind.addr },
                length: bind.length,
                access: bind.access.and(Access::REMOTE),
                qp,
            })
        };
        if let Some(before) = before {
            self.count_window(&before, false);
        }
        if let Some(bound) = bound {
            self.count_window(&bound, true);
        }
        let mw = self.mws.of_mut(bind.window).ok_or(BindError)?;
        mw.key = key;
        mw.bound = bound;
        Ok(())
    }

    /// As [`Keys::invalidate`], asked for by the peer. Of regions it can name those that give it a
    /// right: the keys of others are its owner's alone.
    pub(crate) fn invalidate_by_peer(
        &mut self,
        pd: u32,
        qp: QpId,
        key: u32,
    ) -> Result<(), BindError> {
        let is_mw = window_index(key).is_some();
        let region = self.fast_mut(key);
        if !is_mw && !region.is_some_and(|mr| mr.init().access.allows_some(Access::REMOTE)) {
            return Err(BindError);
        }
        self.invalidate(pd, qp, key)
    }

    /// Invalidates a key: those of windows of type 2 can be, and of regions for fast registration.
    ///
    /// `qp` is the queue pair that was asked to, by its program or by its peer.
    pub(crate) fn invalidate(&mut self, pd: u32, qp: QpId, key: u32) -> Result<(), BindError> {
        if window_index(key).is_none() {
            return self.invalidate_region(pd, key);
        }
        let mw = self.mws.of_mut(key).ok_or(BindError)?;
        if mw.key != key || mw.mw_type != MwType::Type2 || mw.pd != pd {
            return Err(BindError);
        }
        match mw.bound {
            Some(bound) if bound.qp != qp => Err(BindError),
            Some(bound) => {
                mw.bound = None;
                self.count_window(&bound, false);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

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
