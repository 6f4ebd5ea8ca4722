// SPDX-License-Identifier: GPL-2.0

//! Tables of objects by number, which grow by chunks that the host hands in.
//!
//! A table is a tree of three levels with 64 branches each. The top is part of the engine; a leaf
//! with 64 slots, and where need be the middle above it, is a chunk. No object is ever moved, and a
//! table never shrinks.
//!
//! The 64 numbers of a leaf are a block. The engines of one device share its numbers: each block is
//! in the table of one of them, and all blocks of a table may go to that of another engine.
//!
//! Free slots stand in a queue, first in, first out, so that a number which became free is used
//! again as late as possible. Each slot counts its uses in a generation, of which numbers made from
//! the index carry the lower 8 bits. Index and generation together name an object for all time, in
//! all engines of the device, since the count goes along with the block.
//!
//! Beside the object a slot has space for what belongs to the number rather than to the object: the
//! links of queues and the timers. These stay in reach while the object itself has been taken out
//! of the table to be worked on.

mod blocks;

use crate::base::{
    error::{
        Error,
        NeedChunk,
        Refused,
        TableKind, //
    },
    host::Host,
    list::NONE, //
};

const FANOUT: usize = 64;

/// How many numbers a block has.
pub(crate) const BLOCK: u32 = FANOUT as u32;

/// The part of a slot that belongs to the number.
pub(crate) trait SlotLink: Default {
    /// Whether the number stands in a list of the table's engine. It may do so without an object.
    fn is_listed(&self) -> bool;
}

impl SlotLink for () {
    fn is_listed(&self) -> bool {
        false
    }
}

/// Space for one object, `B` being its box, and for what belongs to its number.
pub(crate) struct Slot<B, L> {
    object: Option<B>,
    /// How many objects the number has had, from a first value on.
    generation: u64,
    /// Those behind and before it in the free queue.
    next_free: u32,
    previous_free: u32,
    link: L,
}

/// The lowest level of a table.
pub(crate) type Leaf<B, L> = [Slot<B, L>; FANOUT];

/// The level between top and leaves, `B` being a leaf's box.
pub(crate) type Middle<B> = [Option<B>; FANOUT];

type LeafBox<H, T, L> = <H as Host>::Box<Leaf<<H as Host>::Box<T>, L>>;
type MiddleBox<H, T, L> = <H as Host>::Box<Middle<LeafBox<H, T, L>>>;

/// Memory for a table of `T` to grow by one leaf.
pub(crate) struct TableChunk<H: Host, T, L> {
    leaf: LeafBox<H, T, L>,
    middle: MiddleBox<H, T, L>,
    /// The block; the next one behind all of the table if the host does not say.
    block: Option<u32>,
    /// The leaf that was here before that of the block.
    unused: Option<LeafBox<H, T, L>>,
}

impl<H: Host, T, L: SlotLink> TableChunk<H, T, L> {
    /// Allocates it, with [`Host::boxed_array`], so this may sleep.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            block: None,
            unused: None,
            leaf: H::boxed_array(|_| Slot {
                object: None,
                generation: 0,
                next_free: NONE,
                previous_free: NONE,
                link: L::default(),
            })?,
            middle: H::boxed_array(|_| None)?,
        })
    }

    /// It is for this block, which no table has.
    pub(crate) fn set_block(&mut self, block: u32) {
        self.block = Some(block);
    }
}

/// A table of objects by index.
///
/// # Invariants
///
/// - The indices of all leaves are below `end`.
/// - `used` is the number of indices that were handed out and not given back.
/// - `blocks` is the number of leaves.
/// - A slot is in the free queue if and only if its number has no object, neither in the table nor
///   taken out of it, and is not reserved.
/// - `TOPS` is enough for `limit`: see [`tops`].
pub(crate) struct Table<H: Host, T, L, const TOPS: usize = FANOUT> {
    top: [Option<MiddleBox<H, T, L>>; TOPS],
    kind: TableKind,
    limit: u32,
    reserved: u32,
    seed: u32,
    end: u32,
    blocks: u32,
    used: u32,
    free_head: u32,
    free_tail: u32,
    /// Where the search for a block without objects goes on.
    search: u32,
}

/// The branches that the top of a table for `limit` indices needs: a power of two.
pub(crate) const fn tops(limit: u32) -> usize {
    (limit as usize)
        .div_ceil(FANOUT * FANOUT)
        .next_power_of_two()
}

impl<H: Host, T, L: SlotLink, const TOPS: usize> Table<H, T, L, TOPS> {
    /// Makes an empty table for the indices from `reserved` up to, but not including, `limit`.
    ///
    /// Generations begin at values that depend on `seed`, all at 0 if it is 0.
    pub(crate) fn new(kind: TableKind, reserved: u32, limit: u32, seed: u32) -> Self {
        Self {
            top: [const { None }; TOPS],
            kind,
            limit: limit.min(1 << 18),
            reserved,
            seed,
            end: 0,
            blocks: 0,
            used: 0,
            free_head: NONE,
            free_tail: NONE,
            search: 0,
        }
    }

    /// Where the slot of `index` is: in the top, in the middle and in the leaf. `None` if the top
    /// has no such branch.
    ///
    /// Indices come from programs and from the wire. Where the processor guesses that one is in
    /// range which is not, it must not follow what stands behind the top.
    #[inline]
    pub(crate) fn position(index: u32) -> Option<(usize, usize, usize)> {
        const { assert!(TOPS.is_power_of_two()) };
        let size = TOPS.wrapping_mul(FANOUT).wrapping_mul(FANOUT);
        if index as usize >= size {
            return None;
        }
        let index = H::index_nospec(index as usize, size);
        let position = |shift: u32| index.wrapping_shr(shift) & 63;
        Some((index.wrapping_shr(12), position(6), position(0)))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<H::Box<T>, L>> {
        let (top, middle, leaf) = Self::position(index)?;
        let middle = self.top.get(top)?.as_ref()?.get(middle)?.as_ref()?;
        middle.get(leaf)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<H::Box<T>, L>> {
        let (top, middle, leaf) = Self::position(index)?;
        let middle = self.top.get_mut(top)?.as_mut()?.get_mut(middle)?.as_mut()?;
        middle.get_mut(leaf)
    }

    /// The object of `index`.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slot(index)?.object.as_deref()
    }

    /// The object of `index`.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.object.as_deref_mut()
    }

    /// The data of the number rather than of the object.
    #[inline]
    pub(crate) fn link_mut(&mut self, index: u32) -> Option<&mut L> {
        Some(&mut self.slot_mut(index)?.link)
    }

    /// Takes the object out for a while: the number stays its own.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<H::Box<T>> {
        self.slot_mut(index)?.object.take()
    }

    /// Puts an object back where [`Table::take`] took it.
    #[inline]
    pub(crate) fn put_back(&mut self, index: u32, object: H::Box<T>) {
        if let Some(slot) = self.slot_mut(index) {
            slot.object = Some(object);
        }
    }

    /// Adds an object, after `prepare` told it its index and that index's generation.
    pub(crate) fn insert(
        &mut self,
        mut object: H::Box<T>,
        prepare: impl FnOnce(&mut T, u32, u64),
    ) -> Result<u32, Refused<H::Box<T>>> {
        let index = self.free_head;
        let Some(slot) = self.slot_mut(index) else {
            let error = self.growth_error();
            return Err(Refused { error, object });
        };
        prepare(&mut object, index, slot.generation);
        slot.object = Some(object);
        self.remove_free(index);
        self.used = self.used.wrapping_add(1);
        Ok(index)
    }

    /// As [`Table::insert`], but at an index that is reserved.
    ///
    /// [`Error::Busy`] if there is an object already.
    pub(crate) fn insert_reserved(
        &mut self,
        index: u32,
        mut object: H::Box<T>,
        prepare: impl FnOnce(&mut T, u32, u64),
    ) -> Result<u32, Refused<H::Box<T>>> {
        let error = match self.slot(index) {
            Some(_) => Error::Busy,
            None => self.growth_error(),
        };
        let slot = self.slot_mut(index).filter(|slot| slot.object.is_none());
        let Some(slot) = slot else {
            return Err(Refused { error, object });
        };
        prepare(&mut object, index, slot.generation);
        slot.object = Some(object);
        self.used = self.used.wrapping_add(1);
        Ok(index)
    }

    fn growth_error(&self) -> Error {
        if self.blocks < self.limit.div_ceil(BLOCK) {
            Error::NeedChunk(NeedChunk(self.kind))
        } else {
            Error::Full
        }
    }

    /// Removes the object of `index` for good.
    pub(crate) fn remove(&mut self, index: u32) -> Option<H::Box<T>> {
        let slot = self.slot_mut(index)?;
        let object = slot.object.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.used = self.used.wrapping_sub(1);
        if index >= self.reserved {
            self.append_free(index);
        }
        Some(object)
    }

    /// The user of `index` has used up generations, to the one with these lower bits: the next
    /// object gets the one after it.
    pub(crate) fn use_up_generations(&mut self, index: u32, last: u8) {
        if let Some(slot) = self.slot_mut(index) {
            let more = last.wrapping_sub(slot.generation as u8);
            slot.generation = slot.generation.wrapping_add(u64::from(more));
        }
    }

    fn append_free(&mut self, index: u32) {
        let before = core::mem::replace(&mut self.free_tail, index);
        match self.slot_mut(before) {
            Some(tail) => tail.next_free = index,
            None => self.free_head = index,
        }
        if let Some(slot) = self.slot_mut(index) {
            slot.previous_free = before;
        }
    }

    fn remove_free(&mut self, index: u32) {
        let Some(slot) = self.slot_mut(index) else {
            return;
        };
        let next = core::mem::replace(&mut slot.next_free, NONE);
        let before = core::mem::replace(&mut slot.previous_free, NONE);
        match self.slot_mut(before) {
            Some(slot) => slot.next_free = next,
            None => self.free_head = next,
        }
        match self.slot_mut(next) {
            Some(slot) => slot.previous_free = before,
            None => self.free_tail = before,
        }
    }

    /// Grows by a chunk. Hands it back if the table has that block, or has reached its limit, or if
    /// the host does not say which block it is and there is a free slot.
    pub(crate) fn grow(&mut self, chunk: TableChunk<H, T, L>) -> Option<TableChunk<H, T, L>> {
        let (first, is_welcome) = match chunk.block {
            Some(block) => (block.saturating_mul(BLOCK), true),
            None => (self.end, self.free_head == NONE),
        };
        if !is_welcome || first >= self.limit || self.slot(first).is_some() {
            return Some(chunk);
        }
        let TableChunk {
            mut leaf,
            middle,
            unused,
            ..
        } = chunk;
        let after = first.wrapping_add(BLOCK);
        // Numbers of a leaf that another table had go on where they were.
        if unused.is_none() {
            for (slot, index) in leaf.iter_mut().zip(first..after) {
                slot.generation = initial_generation(self.seed, index).into();
            }
        }
        let (top, in_middle, _) = Self::position(first)?;
        let entry = self.top.get_mut(top)?.get_or_insert(middle);
        *entry.get_mut(in_middle)? = Some(leaf);
        self.blocks = self.blocks.wrapping_add(1);
        self.end = self.end.max(after);
        for index in first.max(self.reserved)..after.min(self.limit) {
            self.append_free(index);
        }
        None
    }

    /// Whether the table has the block of an index.
    pub(crate) fn has_block_of(&self, index: u32) -> bool {
        self.slot(index).is_some()
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> u32 {
        self.used
    }

    /// All indices are below this.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }
}

/// The generation that `index` begins with: not to be guessed without `seed`.
fn initial_generation(seed: u32, index: u32) -> u8 {
    if seed == 0 {
        return 0;
    }
    // Multiplication by an odd constant (2^32 divided by the golden ratio) spreads the bits.
    let mixed = (seed ^ index).wrapping_mul(0x9e37_79b1);
    (mixed ^ mixed.wrapping_shr(13))
        .wrapping_mul(0x9e37_79b1)
        .to_be_bytes()[0]
}
