// SPDX-License-Identifier: GPL-2.0

//! Timers: one for each object of a table (of queue pairs, completion queues or contexts), in a
//! leftist heap without memory of its own.
//!
//! The nodes of the heap are the timers' parts of the slots of the table, and they are linked by
//! the numbers of the slots. In a leftist heap no node's left child has a lower rank than its right
//! one (C. A. Crane, 1972), so the way down by right children is as long as the logarithm of the
//! timers that run, and so are all steps here. Two heaps become one in as many steps, whatever
//! slots they stand in.

use crate::base::list::NONE;

/// The timers' part of a slot of the table.
#[derive(Clone, Copy)]
pub(crate) struct TimerSlot {
    /// When the timer fires, in nanoseconds.
    deadline: u64,
    /// The nodes below this one, which fire no sooner.
    left: u32,
    right: u32,
    /// The node above this one; of the first one [`NONE`].
    parent: u32,
    /// The nodes on the way down by right children, with this one; 0: the timer does not run.
    rank: u32,
}

impl Default for TimerSlot {
    fn default() -> Self {
        Self {
            deadline: 0,
            left: NONE,
            right: NONE,
            parent: NONE,
            rank: 0,
        }
    }
}

/// Where the slots are found.
pub(crate) trait TimerSlots {
    /// The slot of `index`, if there is such an index.
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot>;
}

/// The timers that run.
///
/// # Invariants
///
/// - Each timer that runs is reached from `first` by children, once, and its parent is the one that
///   it is reached from.
/// - No timer is due before its parent.
/// - The rank of a node is one more than that of its right child, and that of its left child is no
///   lower. A child that is not there has the rank 0.
pub(crate) struct Timers {
    first: u32,
}

impl Timers {
    /// No timer runs.
    pub(crate) const fn new() -> Self {
        Self { first: NONE }
    }

    fn rank(slots: &mut impl TimerSlots, index: u32) -> u32 {
        slots.slot(index).map_or(0, |slot| slot.rank)
    }

    /// Puts the child with the higher rank to the left, and returns whether the rank of the node
    /// has changed.
    fn level(slots: &mut impl TimerSlots, index: u32) -> bool {
        let Some(&mut TimerSlot { left, right, .. }) = slots.slot(index) else {
            return false;
        };
        let (left_rank, right_rank) = (Self::rank(slots, left), Self::rank(slots, right));
        let Some(slot) = slots.slot(index) else {
            return false;
        };
        if left_rank < right_rank {
            (slot.left, slot.right) = (right, left);
        }
        let rank = left_rank.min(right_rank).wrapping_add(1);
        core::mem::replace(&mut slot.rank, rank) != rank
    }

    /// Puts `index`, or nothing, in the place of a child of `parent`, or first.
    fn replace_child(&mut self, slots: &mut impl TimerSlots, parent: u32, old: u32, index: u32) {
        match slots.slot(parent) {
            Some(slot) if slot.left == old => slot.left = index,
            Some(slot) => slot.right = index,
            None => self.first = index,
        }
        if let Some(slot) = slots.slot(index) {
            slot.parent = parent;
        }
    }

    /// Makes one heap of two, and returns its first node. `NONE` is a heap without nodes.
    fn meld(slots: &mut impl TimerSlots, mut one: u32, mut other: u32) -> u32 {
        // The way down: the nodes on the right sides of both, in the order in which they fire.
        let mut last = NONE;
        loop {
            let of_one = slots.slot(one).map(|slot| slot.deadline);
            let of_other = slots.slot(other).map(|slot| slot.deadline);
            match (of_one, of_other) {
                (None, _) => {
                    one = other;
                    break;
                }
                (_, None) => break,
                (Some(of_one), Some(of_other)) if of_other < of_one => {
                    core::mem::swap(&mut one, &mut other);
                }
                _ => (),
            }
            if let Some(slot) = slots.slot(one) {
                slot.parent = last;
                last = one;
                one = slot.right;
            }
        }
        // The way up: the rest of one heap is the right child of the last node.
        let mut node = one;
        if let Some(slot) = slots.slot(node) {
            slot.parent = last;
        }
        while let Some(slot) = slots.slot(last) {
            slot.right = node;
            node = last;
            last = slot.parent;
            Self::level(slots, node);
        }
        node
    }

    /// Lets the timer of `index` fire at `deadline`; one that runs already is set anew.
    pub(crate) fn set(&mut self, slots: &mut impl TimerSlots, index: u32, deadline: u64) {
        self.clear(slots, index);
        let Some(slot) = slots.slot(index) else {
            return;
        };
        *slot = TimerSlot {
            deadline,
            rank: 1,
            ..TimerSlot::default()
        };
        self.first = Self::meld(slots, self.first, index);
    }

    /// Stops the timer of `index`, if it runs.
    pub(crate) fn clear(&mut self, slots: &mut impl TimerSlots, index: u32) {
        let Some(slot) = slots.slot(index).filter(|slot| slot.rank != 0) else {
            return;
        };
        let TimerSlot {
            left,
            right,
            mut parent,
            ..
        } = core::mem::take(slot);
        let below = Self::meld(slots, left, right);
        self.replace_child(slots, parent, index, below);
        // Where a rank stays, so do those above.
        while Self::level(slots, parent) {
            parent = slots.slot(parent).map_or(NONE, |slot| slot.parent);
        }
    }

    /// Takes over all timers of `other`, in the same slots.
    pub(crate) fn take_over(&mut self, slots: &mut impl TimerSlots, other: &mut Timers) {
        let other = core::mem::replace(other, Timers::new());
        self.first = Self::meld(slots, self.first, other.first);
    }

    /// When the timer of `index` fires, if it runs.
    pub(crate) fn deadline(&self, slots: &mut impl TimerSlots, index: u32) -> Option<u64> {
        let slot = slots.slot(index)?;
        (slot.rank != 0).then_some(slot.deadline)
    }

    /// When the next timer fires.
    #[inline]
    pub(crate) fn next(&self, slots: &mut impl TimerSlots) -> Option<u64> {
        if self.first == NONE {
            return None;
        }
        Some(slots.slot(self.first)?.deadline)
    }

    /// Takes a timer that is due at `now`, and says whose it is.
    pub(crate) fn pop_due(&mut self, slots: &mut impl TimerSlots, now: u64) -> Option<u32> {
        if self.next(slots)? > now {
            return None;
        }
        let index = self.first;
        self.clear(slots, index);
        Some(index)
    }
}
