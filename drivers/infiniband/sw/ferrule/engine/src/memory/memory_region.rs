// SPDX-License-Identifier: GPL-2.0

//! Memory regions: bytes of a host, and what a key opens of them.

use crate::{
    base::{
        attr::Access,
        host::{
            Host,
            Region, //
        },
        uses::Uses, //
    },
    memory::memory_window::TAG,
};

/// The most memory regions of an engine.
pub const MAX_MR: u32 = 1 << 18;

/// The parameters of a memory region.
pub struct MrInit<H: Host> {
    /// The protection domain.
    pub pd: u32,
    /// The rights to the memory. To read it locally is always allowed.
    pub access: Access,
    /// The memory.
    pub memory: Memory<H>,
}

/// The memory of a region.
pub struct Memory<H: Host> {
    /// The address by which requests name the first byte.
    pub iova: u64,
    /// The length in bytes. `iova + length` does not exceed 2^64.
    pub length: u64,
    /// The bytes.
    pub region: H::Region,
}

impl<H: Host> Memory<H> {
    /// Whether all bytes have addresses.
    pub(crate) fn is_addressable(&self) -> bool {
        let last = self.length.saturating_sub(1);
        self.iova.checked_add(last).is_some()
    }
}

/// The changes of a memory region. `None` leaves a part as it is.
pub struct MrChange<H: Host> {
    /// The protection domain.
    pub pd: Option<u32>,
    /// The rights to the memory.
    pub access: Option<Access>,
    /// The memory. After the change, this is the old memory.
    pub memory: Option<Memory<H>>,
}

/// A memory region.
pub struct Mr<H: Host> {
    /// The key by which it is known.
    pub(super) key: u32,
    /// With the index in the key, this names the region for all time: a key returns after 256
    /// regions of an index.
    pub(super) generation: u64,
    /// The key that opens it, or none: small numbers are no keys.
    pub(super) open: u32,
    /// It is for fast registration: requests register and invalidate it.
    pub(super) fast: bool,
    /// It is about to go, and gets no replica any more.
    is_leaving: bool,
    /// The memory windows that are bound to it.
    pub(super) mws: u32,
    /// The copy jobs that use it.
    pub(super) uses: Uses,
    pub(super) init: MrInit<H>,
}

impl<H: Host> Mr<H> {
    /// Makes a memory region, to be handed to [`Engine::add_mr`](crate::Engine::add_mr).
    pub fn new(init: MrInit<H>) -> Self {
        Self {
            key: 0,
            generation: 0,
            open: 0,
            fast: false,
            is_leaving: false,
            mws: 0,
            uses: Uses::default(),
            init,
        }
    }

    /// Makes a memory region that opens nothing before a request registers it ([`crate::fast`]).
    pub fn fast(init: MrInit<H>) -> Self {
        Self {
            fast: true,
            ..Self::new(init)
        }
    }

    /// The key, once the region has been added. Requests that register a region may change the
    /// lower 8 bits.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Its present parameters.
    pub fn init(&self) -> &MrInit<H> {
        &self.init
    }

    /// As [`Mr::init`], to be changed.
    pub(crate) fn init_mut(&mut self) -> &mut MrInit<H> {
        &mut self.init
    }

    /// Whether its key opens it now.
    pub(crate) fn opens(&self) -> bool {
        self.open == self.key
    }

    /// It has this key from now on, which opens it.
    pub(crate) fn open(&mut self, key: u32) {
        self.key = key;
        self.open = key;
    }

    /// It opens nothing.
    pub(crate) fn close(&mut self) {
        self.open = 0;
    }

    /// Whether this is its key, or, of a region for fast registration, was or may become it.
    pub(super) fn is_named(&self, key: u32) -> bool {
        let tag = if self.fast { TAG } else { 0 };
        (self.key ^ key) & !tag == 0
    }

    /// It gets no replica from here on.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether memory windows are bound to it. They open nothing when it is removed.
    pub fn has_windows(&self) -> bool {
        self.mws != 0
    }

    /// The same region for another engine. None of one for fast registration: requests open and
    /// close it.
    pub(crate) fn replica(&self) -> Option<Self> {
        if self.fast {
            return None;
        }
        let MrInit { pd, access, memory } = &self.init;
        let mut replica = Self::new(MrInit {
            pd: *pd,
            access: *access,
            memory: Memory {
                iova: memory.iova,
                length: memory.length,
                region: memory.region.replica()?,
            },
        });
        replica.key = self.key;
        replica.open = self.open;
        Some(replica)
    }
}
