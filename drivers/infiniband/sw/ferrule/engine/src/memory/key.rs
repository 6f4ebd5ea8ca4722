// SPDX-License-Identifier: GPL-2.0

//! Memory regions, their keys, and the one check of every use of a key.
//!
//! A key is the region's index in the upper 24 bits and the index's generation in the lower 8, so
//! that a key which was deregistered does not open the region that is registered next. Local and
//! remote key of a region are the same number: they differ by the rights that they open.

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
            TableChunk,
            BLOCK, //
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
        memory_region::{
            Mr,
            MrChange,
            MAX_MR, //
        },
        memory_window::{
            window_index,
            Binding,
            Mws, //
        },
        replica::ReplicaTrees,
    },
};

/// Whether a region may give these rights. No memory of an engine persists, so none may be flushed
/// until it does.
fn may_be_given(access: Access) -> bool {
    !access.allows(Access::FLUSH_PERSISTENT)
}

/// All memory regions and windows by their keys.
pub(crate) struct Keys<H: Host> {
    table: Table<H, Mr<H>, ()>,
    /// Those of other engines, for queue pairs of this one ([`replica`](crate::memory::replica)).
    pub(crate) replicas: ReplicaTrees<H>,
    /// A region is paged on demand, or was.
    is_paging: bool,
    /// The queue pair that asks for absent memory: it has its turn, or a packet or a timer is for
    /// it.
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
            replicas: ReplicaTrees::default(),
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
        // Jobs begin again with any other answer than that one is in use: the command does not come
        // again.
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
    /// There is none by the key of a window, nor of a region for fast registration: requests close
    /// these keys, and would have to wait for the job.
    pub(crate) fn share(&self, key: u32, write: bool) -> Option<<H::Region as Region>::Shared> {
        let mr = self.opened(key)?;
        if mr.fast || !mr.uses.may_begin() {
            return None;
        }
        mr.init.memory.region.share(write)
    }

    /// The uses by copy jobs of the region that a key opens. While there is one, it stays, and the
    /// key opens it.
    pub(crate) fn uses_mut(&mut self, key: u32) -> Option<&mut Uses> {
        match self.table.get_mut(key.wrapping_shr(8)) {
            Some(mr) if mr.open == key => Some(&mut mr.uses),
            _ => Some(&mut self.replicas.find_mut(key)?.uses),
        }
    }

    /// The region that a key opens.
    #[inline(always)]
    fn opened(&self, key: u32) -> Option<&Mr<H>> {
        match self.table.get(key.wrapping_shr(8)) {
            Some(mr) if mr.open == key => Some(mr),
            _ => self.replicas.opened(key),
        }
    }

    pub(crate) fn mr(&self, key: u32) -> Result<&Mr<H>, Error> {
        let mr = self.table.get(key.wrapping_shr(8));
        mr.filter(|mr| mr.is_named(key)).ok_or(Error::NotFound)
    }

    /// As [`Keys::mr`], to be changed.
    pub(crate) fn mr_mut(&mut self, key: u32) -> Option<&mut Mr<H>> {
        let mr = self.table.get_mut(key.wrapping_shr(8))?;
        mr.is_named(key).then_some(mr)
    }

    /// The key of the first region of a protection domain from an index on, and where the search
    /// goes on; `None` at its end. It looks at some indices at a time.
    pub(crate) fn next_of(&self, pd: u32, from: u32) -> (Option<u32>, Option<u32>) {
        let end = self.table.end();
        let mut index = from;
        for _ in 0..BLOCK {
            if index >= end {
                return (None, None);
            }
            let here = index;
            index = match self.table.has_block_of(here) {
                true => here.wrapping_add(1),
                false => (here | (BLOCK - 1)).wrapping_add(1),
            };
            match self.table.get(here) {
                Some(mr) if mr.init.pd == pd => return (Some(mr.key), Some(index)),
                _ => (),
            }
        }
        (None, Some(index))
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
        self.replicas.take_over(&mut other.replicas);
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

    /// [`Keys::check`] of a window's key. It is not inlined and takes a copy, so that the check of
    /// a region's key needs no function and no memory.
    #[inline(never)]
    fn check_window(&self, want: KeyUse) -> Result<(&H::Region, u64), KeyError> {
        let (want, generation) = self.mws.translate(&want)?;
        if self.generation(want.key) != Some(generation) {
            return Err(KeyError::Stale);
        }
        self.check_region(&want)
    }

    /// The use `want`, but of all that its key opens: a FLUSH may ask for that. It is to be checked
    /// like any other.
    pub(crate) fn whole(&self, want: &KeyUse) -> Option<KeyUse> {
        let (addr, length) = match window_index(want.key) {
            Some(_) => {
                let bound = self.mws.of(want.key)?.bound?;
                (bound.start, bound.length)
            }
            None => {
                let mr = self.opened(want.key)?;
                (mr.init.memory.iova, mr.init.memory.length)
            }
        };
        Some(KeyUse {
            addr,
            length,
            ..*want
        })
    }

    /// The use of the memory of all entries of a list by the program itself, if it may use them as
    /// `need` says. A use of more than one entry cannot be had again without a check: it is
    /// [`CheckedUse::NONE`].
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
        let mr = self.opened(key)?;
        Some(Piece {
            region: &mr.init.memory.region,
            offset,
            key,
        })
    }

    /// [`Keys::check`] of what has to be a region's key, as that of every local use: a window opens
    /// to peers only (C10-70).
    #[inline(always)]
    pub(crate) fn check_region(&self, want: &KeyUse) -> Result<(&H::Region, u64), KeyError> {
        let mr = self.opened(want.key).ok_or(KeyError::Stale)?;
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
