// SPDX-License-Identifier: GPL-2.0

//! Blocks that go from one table to another.

use super::{
    Slot,
    SlotLink,
    Table,
    TableChunk,
    BLOCK, //
};
use crate::base::{
    host::Host,
    list::NONE, //
};

impl<H: Host, T, L: SlotLink, const TOPS: usize> Table<H, T, L, TOPS> {
    /// Takes over all blocks of `other`, and tells of each. Links and timers that name slots stay
    /// as they are, since the numbers do.
    ///
    /// The steps are as many as there are blocks.
    pub(crate) fn take_over(&mut self, other: &mut Self, mut each: impl FnMut(u32)) {
        let tops = self.top.iter_mut().zip(&mut other.top);
        for (top, (own, others)) in (0..TOPS as u32).zip(tops) {
            let Some(middle) = others else {
                continue;
            };
            let first = top.wrapping_mul(BLOCK);
            let taken = (first..first.wrapping_add(BLOCK)).zip(middle.iter_mut());
            match own {
                Some(own) => {
                    for ((block, leaf), own) in taken.zip(own.iter_mut()) {
                        if let Some(leaf) = leaf.take() {
                            *own = Some(leaf);
                            each(block);
                        }
                    }
                }
                None => {
                    taken
                        .filter(|(_, leaf)| leaf.is_some())
                        .for_each(|(block, _)| each(block));
                    *own = others.take();
                }
            }
        }
        self.end = self.end.max(core::mem::take(&mut other.end));
        self.blocks = self.blocks.wrapping_add(core::mem::take(&mut other.blocks));
        self.used = self.used.wrapping_add(core::mem::take(&mut other.used));
        let head = core::mem::replace(&mut other.free_head, NONE);
        let tail = core::mem::replace(&mut other.free_tail, NONE);
        if head != NONE {
            let last = core::mem::replace(&mut self.free_tail, tail);
            match self.slot_mut(last) {
                Some(slot) => slot.next_free = head,
                None => self.free_head = head,
            }
            if let Some(slot) = self.slot_mut(head) {
                slot.previous_free = last;
            }
        }
    }

    /// Puts a block without objects into the chunk of another engine's table, and returns its
    /// number. The block 0 stays where it is. So do the last free slots, unless `all` may go.
    ///
    /// Looks at some blocks, and the next call goes on behind them.
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, T, L>) -> Option<u32> {
        // Reserved slots, all of them in the block 0, count as free.
        let free = self.blocks.wrapping_mul(BLOCK).wrapping_sub(self.used);
        if free < BLOCK || free == BLOCK && !all {
            return None;
        }
        let block = (0..BLOCK).find_map(|_| {
            self.search = self.search.wrapping_add(1);
            if self.search.wrapping_mul(BLOCK) >= self.end {
                self.search = 1;
            }
            self.is_free(self.search).then_some(self.search)
        })?;
        let first = block.wrapping_mul(BLOCK);
        for index in first..first.wrapping_add(BLOCK) {
            self.remove_free(index);
        }
        let (top, in_middle, _) = Self::position(first)?;
        let leaf = self
            .top
            .get_mut(top)?
            .as_mut()?
            .get_mut(in_middle)?
            .take()?;
        chunk.block = Some(block);
        chunk.unused = Some(core::mem::replace(&mut chunk.leaf, leaf));
        self.blocks = self.blocks.wrapping_sub(1);
        Some(block)
    }

    /// Whether the table has a block, with no object there, and no number that stands in a list.
    fn is_free(&self, block: u32) -> bool {
        let Some((top, in_middle, _)) = Self::position(block.wrapping_mul(BLOCK)) else {
            return false;
        };
        let middle = self.top.get(top).and_then(Option::as_ref);
        let leaf = middle.and_then(|middle| middle.get(in_middle)?.as_ref());
        let is_free = |slot: &Slot<H::Box<T>, L>| slot.object.is_none() && !slot.link.is_listed();
        leaf.is_some_and(|leaf| leaf.iter().all(is_free))
    }
}
