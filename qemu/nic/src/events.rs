// SPDX-License-Identifier: GPL-2.0

//! Event queues: rings of entries in a guest's memory, one a vector, with the events that wait for
//! free entries.
//!
//! The guest's objects bound the events that wait: each object has a set of codes, which ends with
//! its last event or with the object.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Bound;

use rustix::io::Errno;

use crate::interface::{CreateEq, EqCtrl, Eqe};
use crate::memory::Memory;
use crate::pages::{area, Pages};

/// The most entries of an event queue.
pub(crate) const MAX_DEPTH: u32 = 65536;

/// The object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    /// Of [`event`](crate::interface::event).
    pub(crate) kind: u32,
    /// The object's number, as the guest knows it.
    pub(crate) number: u32,
}

/// An event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pages: Pages,
    depth: u32,
    /// Where [`EqCtrl`] is.
    ctrl: u64,
    /// Entries that were written.
    producer: u32,
    /// Events that wait for a free entry: codes as bits.
    waiting: BTreeMap<Source, u32>,
    /// The object that was served last, so that each gets its turn.
    last: Option<Source>,
}

impl EventQueue {
    /// Makes a queue of what a guest asks for.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a depth that is not a power of two or too large, and those of [`area`].
    pub(crate) fn new(memory: &Memory, asked: &CreateEq) -> Result<Self, Errno> {
        let depth = asked.depth.get();
        if !depth.is_power_of_two() || depth > MAX_DEPTH {
            return Err(Errno::INVAL);
        }
        let entries = u64::from(depth).saturating_mul(size_of::<Eqe>() as u64);
        let ctrl = entries.next_multiple_of(64);
        let length = ctrl.saturating_add(size_of::<EqCtrl>() as u64);
        Ok(Self {
            pages: area(memory, &asked.area, length)?,
            depth,
            ctrl,
            producer: 0,
            waiting: BTreeMap::new(),
            last: None,
        })
    }

    /// Adds an event, and returns whether entries were written.
    pub(crate) fn add(&mut self, source: Source, code: u32) -> bool {
        let codes = self.waiting.entry(source).or_default();
        *codes |= 1u32.wrapping_shl(code);
        self.flush()
    }

    /// Whether events wait for space.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets what an object waits with, which is gone.
    pub(crate) fn forget(&mut self, source: Source) {
        self.waiting.remove(&source);
    }

    /// Writes what waits, as far as there is space, and returns whether entries were written.
    pub(crate) fn flush(&mut self) -> bool {
        let mut written = false;
        while let Some((source, code)) = self.next() {
            if self.is_full() {
                break;
            }
            self.write(source, code);
            written = true;
            self.last = Some(source);
            if let Some(codes) = self.waiting.get_mut(&source) {
                *codes &= !1u32.wrapping_shl(code);
                if *codes == 0 {
                    self.waiting.remove(&source);
                }
            }
        }
        written
    }

    /// The event that is to be written next.
    fn next(&self) -> Option<(Source, u32)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.waiting.range((after, Bound::Unbounded));
        let (source, codes) = later.next().or_else(|| self.waiting.iter().next())?;
        Some((*source, codes.trailing_zeros()))
    }

    /// Whether one more entry has to wait. With a consumer's index that makes no sense, it is.
    fn is_full(&self) -> bool {
        let at = self
            .ctrl
            .saturating_add(offset_of!(EqCtrl, consumer) as u64);
        let consumer = self.pages.load32(at).unwrap_or(0);
        self.producer.wrapping_sub(consumer) >= self.depth
    }

    fn write(&mut self, source: Source, code: u32) {
        let slot = self.producer & self.depth.wrapping_sub(1);
        let phase = u32::from(self.producer & self.depth == 0);
        self.producer = self.producer.wrapping_add(1);
        let at = u64::from(slot).saturating_mul(size_of::<Eqe>() as u64);
        let store = |offset: usize, value: u32| {
            self.pages.store32(at.saturating_add(offset as u64), value);
        };
        store(offset_of!(Eqe, kind), source.kind);
        store(offset_of!(Eqe, number), source.number);
        store(offset_of!(Eqe, code), code);
        store(offset_of!(Eqe, phase), phase);
    }
}

/// A completion has the code 0.
pub(crate) const COMPLETION: u32 = 0;
