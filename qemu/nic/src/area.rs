// SPDX-License-Identifier: GPL-2.0

//! The areas that the engine shares with those who post and poll: rings, control words and
//! doorbells, as `include/uapi/rdma/ferrule-abi.h` lays them out.
//!
//! Bytes that cannot be reached any more, since their range was given back, read as zero.

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::Arc;

use ferrule_engine::abi;
use ferrule_engine::host;
use zerocopy::{FromZeros, IntoBytes};

use crate::interface::AddressVector;
use crate::pages::Pages;

/// The buffer of a queue pair or of a shared receive queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pages: Pages,
    /// The port that it belongs to.
    port: usize,
    /// Where the address vectors of the driver's own datagrams are, and how many: a power of two,
    /// or 0.
    destinations: (u32, u32),
}

impl Queue {
    pub(crate) fn new(pages: Pages, port: usize, destinations: (u32, u32)) -> Self {
        Self {
            pages,
            port,
            destinations,
        }
    }

    /// The port that it belongs to.
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// A copy of the address vector of the send request of this index, if there is one.
    pub(crate) fn destination(&self, index: u32) -> Option<AddressVector> {
        const SIZE: u64 = size_of::<AddressVector>() as u64;
        let (offset, count) = self.destinations;
        let slot = u64::from(index & count.checked_sub(1)?).saturating_mul(SIZE);
        let mut vector = AddressVector::new_zeroed();
        let at = u64::from(offset).saturating_add(slot);
        let read = self.pages.read(at, vector.as_mut_bytes());
        (read && vector.valid == 1).then_some(vector)
    }
}

impl host::Queue for Queue {
    #[inline]
    fn size(&self) -> usize {
        usize::try_from(self.pages.length()).unwrap_or(0)
    }

    #[inline]
    fn read(&self, offset: u32, to: &mut [u8]) {
        if !self.pages.read(offset.into(), to) {
            to.fill(0);
        }
    }

    #[inline]
    fn load(&self, offset: u32) -> u32 {
        self.pages.load32(offset.into()).unwrap_or(0)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32) {
        self.pages.store32(offset.into(), value);
    }

    #[inline]
    fn prefetch(&self, offset: u32) {
        self.pages.prefetch(offset.into());
    }
}

/// Bytes of a slot of a completion queue.
pub(crate) const CQE_SIZE: u64 = size_of::<abi::Cqe>() as u64;
/// Where a slot's phase is.
const PHASE: usize = offset_of!(abi::Cqe, phase);

/// The ring of a completion queue and its control words, which another ring may share.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Pages,
    ctrl: Arc<Pages>,
}

impl Ring {
    pub(crate) fn new(slots: Pages, ctrl: Arc<Pages>) -> Self {
        Self { slots, ctrl }
    }

    fn slot(slot: u32) -> u64 {
        u64::from(slot).saturating_mul(CQE_SIZE)
    }
}

impl host::CompletionRing for Ring {
    #[inline]
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        if let Some(body) = cqe.as_bytes().get(..PHASE) {
            let _ = self.slots.write(Self::slot(slot), body);
        }
    }

    #[inline]
    fn publish(&self, slot: u32, phase: u32) {
        let at = Self::slot(slot).saturating_add(PHASE as u64);
        self.slots.store32(at, phase);
    }

    #[inline]
    fn consumer(&self) -> u32 {
        let at = offset_of!(abi::CqCtrl, consumer) as u64;
        self.ctrl.load32(at).unwrap_or(0)
    }

    #[inline]
    fn arm(&self) -> u32 {
        let at = offset_of!(abi::CqCtrl, arm) as u64;
        self.ctrl.load32(at).unwrap_or(0)
    }
}

/// Bytes of a doorbell or status area.
pub(crate) const DB_AREA_SIZE: u64 = abi::DB_AREA_SIZE as u64;

/// The doorbell area and the status area of a context.
///
/// The status area is the guest's memory as well, so the acknowledgements are kept here and only
/// told there.
#[derive(Debug)]
pub(crate) struct Doorbells {
    doorbell: Pages,
    status: Pages,
    top: [Cell<u64>; abi::DB_TOP_WORDS],
    leaf: Box<[Cell<u64>]>,
}

impl Doorbells {
    /// Areas that are zeroed.
    pub(crate) fn new(doorbell: Pages, status: Pages) -> Self {
        Self {
            doorbell,
            status,
            top: Default::default(),
            leaf: vec![Cell::new(0); abi::DB_LEAF_WORDS].into(),
        }
    }
}

fn top(word: usize) -> u64 {
    (word as u64)
        .saturating_mul(8)
        .saturating_add(offset_of!(abi::Db, top) as u64)
}

fn leaf(word: usize) -> u64 {
    (word as u64)
        .saturating_mul(8)
        .saturating_add(abi::DB_LEAF_OFFSET as u64)
}

impl ferrule_engine::Doorbells for Doorbells {
    #[inline]
    fn rung(&self) -> abi::Rung {
        let at = offset_of!(abi::Db, rung) as u64;
        abi::Rung::from_word(self.doorbell.load64(at).unwrap_or(0))
    }

    #[inline]
    fn top(&self, word: usize) -> u64 {
        self.doorbell.load64(top(word)).unwrap_or(0)
    }

    #[inline]
    fn leaf(&self, word: usize) -> u64 {
        self.doorbell.load64(leaf(word)).unwrap_or(0)
    }

    #[inline]
    fn prefetch(&self, word: usize) {
        self.doorbell.prefetch(leaf(word));
    }

    #[inline]
    fn ack_top(&self, word: usize) -> u64 {
        self.top.get(word).map_or(0, Cell::get)
    }

    #[inline]
    fn ack_leaf(&self, word: usize) -> u64 {
        self.leaf.get(word).map_or(0, Cell::get)
    }

    #[inline]
    fn set_ack_top(&self, word: usize, value: u64) {
        if let Some(ack) = self.top.get(word) {
            ack.set(value);
            self.status.store64(top(word), value);
        }
    }

    #[inline]
    fn set_ack_leaf(&self, word: usize, value: u64) {
        if let Some(ack) = self.leaf.get(word) {
            ack.set(value);
            self.status.store64(leaf(word), value);
        }
    }

    #[inline]
    fn set_taken(&self, count: u32) {
        let at = offset_of!(abi::StatusArea, taken) as u64;
        self.status.store32(at, count);
    }

    fn set_sleeping(&self, sleeping: bool) {
        let at = offset_of!(abi::StatusArea, sleeping) as u64;
        self.status.store32(at, sleeping.into());
    }

    fn set_dead(&self) {
        let at = offset_of!(abi::StatusArea, dead) as u64;
        self.status.store32(at, abi::dead::DEAD);
    }
}
