// SPDX-License-Identifier: GPL-2.0

//! The shard of each block of numbers.
//!
//! A number of an object says by this in which shard the object is. The owner of a shard reads what
//! concerns it as it is: a block changes its shard in the hands of a caller who owns both. Others
//! may read what has just changed, and look again when they own the shard.

use ferrule_engine::{
    Block,
    TableKind, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The shard of each block, by kinds of objects.
pub(super) struct Owners {
    /// One more than the index of the shard; 0: nobody has the block.
    kinds: [KVec<Atomic<i8>>; TableKind::ALL.len()],
}

/// The most shards beside the shard 0: as many as an entry can tell apart.
pub(super) const MOST: usize = i8::MAX as usize - 1;

impl Owners {
    /// Nobody has a block.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let mut kinds = [const { KVec::new() }; TableKind::ALL.len()];
        for (blocks, kind) in kinds.iter_mut().zip(TableKind::ALL) {
            let count = kind.blocks() as usize;
            blocks.reserve(count, GFP_KERNEL)?;
            for _ in 0..count {
                blocks.push(Atomic::new(0), GFP_KERNEL)?;
            }
        }
        Ok(Owners { kinds })
    }

    fn place(&self, block: Block) -> Option<&Atomic<i8>> {
        self.kinds
            .get(block.kind as usize)?
            .get(block.number as usize)
    }

    /// The shard of a block, if anybody has it.
    #[inline]
    pub(super) fn of(&self, block: Block) -> Option<usize> {
        let owner = self.place(block)?.load(Relaxed);
        usize::try_from(owner).ok()?.checked_sub(1)
    }

    /// The block is in this shard from now on. The caller owns the shard that had it, and this one,
    /// too, if the block has objects.
    pub(super) fn set(&self, block: Block, shard: usize) {
        if let Some(place) = self.place(block) {
            place.store((shard + 1) as i8, Relaxed);
        }
    }

    /// Gives a block that nobody has to a shard; `None` if all are taken. The first one of each
    /// kind is for the shard 0: objects of the port's own have numbers there. One caller at a time.
    pub(super) fn take(&self, kind: TableKind, shard: usize) -> Option<Block> {
        let from = u32::from(shard != 0);
        let block = (from..kind.blocks())
            .map(|number| Block { kind, number })
            .find(|&block| self.of(block).is_none())?;
        self.set(block, shard);
        Some(block)
    }
}
