// SPDX-License-Identifier: GPL-2.0

//! Timers: one for each object of a table (of queue pairs, completion queues or contexts), in a binary heap without
//! memory of its own.
//!
//! The heap's array is spread over the slots of the table: place `n` of the array stands in slot `n`. There are never
//! more timers than slots, so there is always space. Setting, clearing and firing a timer take steps in proportion to
//! the logarithm of the timers that run.

/// The timers' part of a slot of the table.
#[derive(Clone, Copy, Default)]
pub(crate) struct TimerSlot {
    /// Place of the heap that has this slot's number: whose timer stands there.
    entry: u32,
    /// The timer of the slot's own object: when it fires, in nanoseconds.
    deadline: u64,
    /// And its place in the heap, counted from 1; 0: it does not run.
    place: u32,
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
/// - For each place below `length`, the timer that stands there knows the place.
/// - No timer is due before that at its parent's place, which is (place − 1) / 2.
pub(crate) struct Timers {
    length: u32,
}

impl Timers {
    /// No timer runs.
    pub(crate) const fn new() -> Self {
        Self { length: 0 }
    }

    fn entry(slots: &mut impl TimerSlots, place: u32) -> u32 {
        slots.slot(place).map_or(0, |slot| slot.entry)
    }

    fn deadline_of(slots: &mut impl TimerSlots, index: u32) -> u64 {
        slots.slot(index).map_or(u64::MAX, |slot| slot.deadline)
    }

    /// Puts the timer of `index` at `place`.
    fn settle(slots: &mut impl TimerSlots, place: u32, index: u32) {
        if let Some(slot) = slots.slot(place) {
            slot.entry = index;
        }
        if let Some(slot) = slots.slot(index) {
            slot.place = place.wrapping_add(1);
        }
    }

    /// Moves the timer of `index` from `place` up or down to where it belongs.
    fn sift(&mut self, slots: &mut impl TimerSlots, mut place: u32, index: u32) {
        let deadline = Self::deadline_of(slots, index);
        while place > 0 {
            let parent = place.wrapping_sub(1) / 2;
            let above = Self::entry(slots, parent);
            if Self::deadline_of(slots, above) <= deadline {
                break;
            }
            Self::settle(slots, place, above);
            place = parent;
        }
        loop {
            let left = place.wrapping_mul(2).wrapping_add(1);
            let right = left.wrapping_add(1);
            if left >= self.length {
                break;
            }
            let mut child = left;
            let mut below = Self::entry(slots, left);
            if right < self.length {
                let other = Self::entry(slots, right);
                if Self::deadline_of(slots, other) < Self::deadline_of(slots, below) {
                    child = right;
                    below = other;
                }
            }
            if deadline <= Self::deadline_of(slots, below) {
                break;
            }
            Self::settle(slots, place, below);
            place = child;
        }
        Self::settle(slots, place, index);
    }

    /// Lets the timer of `index` fire at `deadline`; one that runs already is set anew.
    pub(crate) fn set(&mut self, slots: &mut impl TimerSlots, index: u32, deadline: u64) {
        let Some(slot) = slots.slot(index) else {
            return;
        };
        slot.deadline = deadline;
        let place = match slot.place.checked_sub(1) {
            Some(place) => place,
            None => {
                let last = self.length;
                self.length = last.wrapping_add(1);
                last
            }
        };
        self.sift(slots, place, index);
    }

    /// Stops the timer of `index`, if it runs.
    pub(crate) fn clear(&mut self, slots: &mut impl TimerSlots, index: u32) {
        let Some(slot) = slots.slot(index) else {
            return;
        };
        let Some(place) = slot.place.checked_sub(1) else {
            return;
        };
        slot.place = 0;
        let last = self.length.wrapping_sub(1);
        self.length = last;
        if place != last {
            let moved = Self::entry(slots, last);
            self.sift(slots, place, moved);
        }
    }

    /// When the timer of `index` fires, if it runs.
    pub(crate) fn deadline(&self, slots: &mut impl TimerSlots, index: u32) -> Option<u64> {
        let slot = slots.slot(index)?;
        (slot.place != 0).then_some(slot.deadline)
    }

    /// When the next timer fires.
    pub(crate) fn next(&self, slots: &mut impl TimerSlots) -> Option<u64> {
        if self.length == 0 {
            return None;
        }
        let first = Self::entry(slots, 0);
        Some(Self::deadline_of(slots, first))
    }

    /// Takes a timer that is due at `now`, and says whose it is.
    pub(crate) fn pop_due(&mut self, slots: &mut impl TimerSlots, now: u64) -> Option<u32> {
        if self.next(slots)? > now {
            return None;
        }
        let index = Self::entry(slots, 0);
        self.clear(slots, index);
        Some(index)
    }
}
