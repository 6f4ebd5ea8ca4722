// SPDX-License-Identifier: GPL-2.0

//! Memory regions, their keys, and the one check of every use of a key.
//!
//! A key is the region's index in the upper 24 bits and the index's generation in the lower 8, so that a key which was
//! deregistered does not open the region that is registered next. Local and remote key of a region are the same number:
//! they differ by the rights that they open.

use crate::{
    base::{
        abi,
        attr::Access,
        error::{
            Error,
            Refused,
            TableKind, //
        },
        host::{
            Asker,
            Host,
            Region, //
        },
        table::{
            Table,
            TableChunk, //
        },
        uses::Uses, //
    },
    memory::{
        key_use::{
            CheckedUse,
            KeyError,
            KeyUse,
            Piece, //
        },
        memory_window::{
            window_index,
            Binding,
            Mws,
            TAG, //
        },
    },
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
    key: u32,
    /// With the index in the key, this names the region for all time: a key returns after 256 regions of an index.
    generation: u64,
    /// The key that opens it, or none: small numbers are no keys.
    open: u32,
    /// It is for fast registration: requests register and invalidate it.
    fast: bool,
    /// The memory windows that are bound to it.
    mws: u32,
    /// The copy jobs that use it.
    uses: Uses,
    init: MrInit<H>,
}

impl<H: Host> Mr<H> {
    /// Makes a memory region, to be handed to [`Engine::add_mr`](crate::Engine::add_mr).
    pub fn new(init: MrInit<H>) -> Self {
        Self {
            key: 0,
            generation: 0,
            open: 0,
            fast: false,
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

    /// The key, once the region has been added. Requests that register a region may change the lower
    /// 8 bits.
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
    fn is_named(&self, key: u32) -> bool {
        let tag = if self.fast { TAG } else { 0 };
        (self.key ^ key) & !tag == 0
    }

    /// Whether memory windows are bound to it. They open nothing when it is removed.
    pub fn has_windows(&self) -> bool {
        self.mws != 0
    }
}

/// Whether a region may give these rights. No memory of an engine persists, so none may be flushed until it does.
fn may_be_given(access: Access) -> bool {
    !access.allows(Access::FLUSH_PERSISTENT)
}

/// All memory regions and windows by their keys.
pub(crate) struct Keys<H: Host> {
    table: Table<H, Mr<H>, ()>,
    /// A region is paged on demand, or was.
    is_paging: bool,
    /// The queue pair that asks for absent memory: it has its turn, or a packet or a timer is for it.
    pub(crate) asker: Asker,
    /// The uses of any region by copy jobs.
    pub(crate) uses: Uses,
    pub(crate) mws: Mws<H>,
}

impl<H: Host> Keys<H> {
    pub(crate) fn new(seed: u32) -> Self {
        // Index 0 is left out, so that small numbers are no keys. A seed of 0 would begin with
        // known generations.
        Self {
            table: Table::new(TableKind::Keys, 1, MAX_MR, seed | 1),
            is_paging: false,
            asker: Asker::default(),
            uses: Uses::default(),
            mws: Mws::new(seed | 1),
        }
    }

    pub(crate) fn add(&mut self, mr: H::Box<Mr<H>>) -> Result<u32, Refused<H::Box<Mr<H>>>> {
        if !mr.init.memory.is_addressable() || !may_be_given(mr.init.access) {
            return Err(Refused {
                error: Error::Invalid,
                object: mr,
            });
        }
        self.is_paging |= mr.init.access.allows(Access::ON_DEMAND);
        let mut key = 0;
        self.table.insert(mr, |mr, index, generation| {
            key = index.wrapping_shl(8) | u32::from(generation as u8);
            mr.key = key;
            mr.generation = generation;
            mr.open = if mr.fast { 0 } else { key };
        })?;
        Ok(key)
    }

    pub(crate) fn remove(&mut self, key: u32) -> Result<H::Box<Mr<H>>, Error> {
        let index = key.wrapping_shr(8);
        let last = match self.table.get_mut(index) {
            Some(mr) if mr.is_named(key) => {
                mr.uses.claim()?;
                mr.key
            }
            _ => return Err(Error::NotFound),
        };
        // The user of a region for fast registration has used up generations as well.
        self.table.use_up_generations(index, last as u8);
        self.table.remove(index).ok_or(Error::NotFound)
    }

    pub(crate) fn rereg(&mut self, key: u32, change: &mut MrChange<H>) -> Result<(), Error> {
        let mr = match self.table.get_mut(key.wrapping_shr(8)) {
            Some(mr) if mr.key == key && !mr.fast => mr,
            _ => return Err(Error::NotFound),
        };
        // Jobs begin again with any other answer than that one is in use: the command does not come again.
        mr.uses.claim()?;
        if mr.mws != 0 {
            return Err(Error::Busy);
        }
        if !change.access.is_none_or(may_be_given) {
            return Err(Error::Invalid);
        }
        let init = &mut mr.init;
        if let Some(memory) = &mut change.memory {
            if !memory.is_addressable() {
                return Err(Error::Invalid);
            }
            core::mem::swap(&mut init.memory, memory);
        }
        init.pd = change.pd.unwrap_or(init.pd);
        init.access = change.access.unwrap_or(init.access);
        self.is_paging |= init.access.allows(Access::ON_DEMAND);
        Ok(())
    }

    /// A reference for a copy job to the bytes of the region that a key has opened.
    ///
    /// There is none by the key of a window, nor of a region for fast registration: requests close these keys, and would
    /// have to wait for the job.
    pub(crate) fn share(&self, key: u32, write: bool) -> Option<<H::Region as Region>::Shared> {
        let mr = self.table.get(key.wrapping_shr(8))?;
        if mr.open != key || mr.fast || !mr.uses.may_begin() {
            return None;
        }
        mr.init.memory.region.share(write)
    }

    /// The uses of the region of a key by copy jobs. While there is one, the region stays.
    pub(crate) fn uses_mut(&mut self, key: u32) -> Option<&mut Uses> {
        Some(&mut self.table.get_mut(key.wrapping_shr(8))?.uses)
    }

    pub(crate) fn mr(&self, key: u32) -> Result<&Mr<H>, Error> {
        let mr = self.table.get(key.wrapping_shr(8));
        mr.filter(|mr| mr.is_named(key)).ok_or(Error::NotFound)
    }

    /// The region for fast registration that a key names, whether it opens it or not.
    pub(crate) fn fast_mut(&mut self, key: u32) -> Option<&mut Mr<H>> {
        let mr = self.table.get_mut(key.wrapping_shr(8))?;
        (mr.fast && mr.is_named(key)).then_some(mr)
    }

    /// The generation of the region that a key names.
    pub(crate) fn generation(&self, key: u32) -> Option<u64> {
        Some(self.table.get(key.wrapping_shr(8))?.generation)
    }

    /// A memory window was bound to a region, or is not any more.
    pub(crate) fn count_window(&mut self, binding: &Binding, bound: bool) {
        match self.table.get_mut(binding.region.wrapping_shr(8)) {
            Some(mr) if mr.generation == binding.generation => {
                let step = if bound { 1 } else { u32::MAX };
                mr.mws = mr.mws.wrapping_add(step);
            }
            _ => (),
        }
    }

    /// Whether an access that a key allows may fail since bytes are not in memory at present.
    #[inline]
    pub(crate) fn is_paging(&self) -> bool {
        self.is_paging
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Mr<H>, ()>,
    ) -> Option<TableChunk<H, Mr<H>, ()>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, Mr<H>, ()>) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all regions of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
        self.is_paging |= other.is_paging;
    }

    /// Checks a remote use of a key, which may be a window's. All uses, local and remote, end in
    /// [`Keys::check_region`].
    ///
    /// Returns the region and the offset of the first byte in it (IBA volume 1, C10-56 and
    /// following: key, protection domain, rights and bounds all must match).
    #[inline(always)]
    pub(crate) fn check(&self, want: &KeyUse) -> Result<(&H::Region, u64), KeyError> {
        if window_index(want.key).is_some() {
            self.check_window(*want)
        } else {
            self.check_region(want)
        }
    }

    /// [`Keys::check`] of a window's key. It is not inlined and takes a copy, so that the check of a
    /// region's key needs no function and no memory.
    #[inline(never)]
    fn check_window(&self, want: KeyUse) -> Result<(&H::Region, u64), KeyError> {
        let (want, generation) = self.mws.translate(&want)?;
        if self.generation(want.key) != Some(generation) {
            return Err(KeyError::Stale);
        }
        self.check_region(&want)
    }

    /// The use `want`, but of all that its key opens: a FLUSH may ask for that. It is to be checked like any other.
    pub(crate) fn whole(&self, want: &KeyUse) -> Option<KeyUse> {
        let (addr, length) = match window_index(want.key) {
            Some(_) => {
                let bound = self.mws.of(want.key)?.bound?;
                (bound.start, bound.length)
            }
            None => {
                let mr = self.table.get(want.key.wrapping_shr(8))?;
                (mr.init.memory.iova, mr.init.memory.length)
            }
        };
        Some(KeyUse {
            addr,
            length,
            ..*want
        })
    }

    /// The use of the memory of all entries of a list by the program itself, if it may use them as `need` says. A use of more
    /// than one entry cannot be had again without a check: it is [`CheckedUse::NONE`].
    #[inline(always)]
    pub(crate) fn check_list(
        &self,
        pd: u32,
        need: Access,
        entries: &[abi::Sge],
    ) -> Option<CheckedUse> {
        match entries {
            [entry] => self.check_entry(pd, need, entry),
            _ => self.check_entries(pd, need, entries),
        }
    }

    #[inline(never)]
    fn check_entries(&self, pd: u32, need: Access, entries: &[abi::Sge]) -> Option<CheckedUse> {
        for entry in entries {
            self.check_entry(pd, need, entry)?;
        }
        Some(CheckedUse::NONE)
    }

    /// An entry of no bytes opens nothing.
    #[inline(always)]
    fn check_entry(&self, pd: u32, need: Access, entry: &abi::Sge) -> Option<CheckedUse> {
        if entry.length.get() == 0 {
            return Some(CheckedUse::NONE);
        }
        let key = entry.lkey.get();
        let (_, offset) = self
            .check_region(&KeyUse {
                pd,
                key,
                need,
                addr: entry.addr.get(),
                length: u64::from(entry.length.get()),
                peer_of: None,
            })
            .ok()?;
        Some(CheckedUse { key, offset })
    }

    /// The memory of a use that was checked before. `None` if there is none.
    #[inline(always)]
    pub(crate) fn piece(&self, checked: CheckedUse) -> Option<Piece<'_, H>> {
        let CheckedUse { key, offset } = checked;
        let mr = self.table.get(key.wrapping_shr(8))?;
        (mr.open == key).then_some(Piece {
            region: &mr.init.memory.region,
            offset,
            key,
        })
    }

    /// [`Keys::check`] of what has to be a region's key, as that of every local use: a window opens to peers only (C10-70).
    #[inline(always)]
    pub(crate) fn check_region(&self, want: &KeyUse) -> Result<(&H::Region, u64), KeyError> {
        let mr = match self.table.get(want.key.wrapping_shr(8)) {
            Some(mr) if mr.open == want.key => mr,
            _ => return Err(KeyError::Stale),
        };
        if mr.init.pd != want.pd {
            return Err(KeyError::Domain);
        }
        if !mr.init.access.allows(want.need) {
            return Err(KeyError::Right);
        }
        let memory = &mr.init.memory;
        let offset = want.addr.checked_sub(memory.iova).ok_or(KeyError::Range)?;
        match offset.checked_add(want.length) {
            Some(end) if end <= memory.length => Ok((&memory.region, offset)),
            _ => Err(KeyError::Range),
        }
    }
}
