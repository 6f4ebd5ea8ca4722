// SPDX-License-Identifier: GPL-2.0

//! The areas that the engine shares with those who post and poll: rings, control words and
//! doorbells, as `include/uapi/rdma/ferrule-abi.h` lays them out.

use ferrule_engine::{
    abi,
    CompletionRing,
    Queue, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;
use zerocopy::IntoBytes;

use super::{
    destination::Destination,
    net::sender::Sender, //
};
use crate::backend::{
    posting::Posting,
    ring::{
        CqRing,
        Doorbells,
        CQE_SIZE, //
    }, //
};

/// The buffer of a queue pair or a shared receive queue: the rings and the indices.
pub(crate) struct Buffer {
    area: Arc<SharedArea>,
    /// The rings of a kernel user, for those who post.
    pub(super) posting: Option<Arc<Posting<Destination>>>,
    /// The account that its packets are charged to, once it sends any.
    pub(super) sender: Option<Sender>,
}

impl Buffer {
    /// A buffer, with `posting` if a kernel user posts to it.
    pub(super) fn new(area: Arc<SharedArea>, posting: Option<Arc<Posting<Destination>>>) -> Self {
        Buffer {
            area,
            posting,
            sender: None,
        }
    }

    /// Whether there is an account for packets.
    pub(super) fn has_sender(&self) -> bool {
        self.sender.is_some()
    }

    /// Charges packets to this account from now on, and returns the previous one.
    pub(super) fn set_sender(&mut self, sender: Sender) -> Option<Sender> {
        self.sender.replace(sender)
    }
}

impl Queue for Buffer {
    #[inline]
    fn size(&self) -> usize {
        self.area.len()
    }

    #[inline]
    fn read(&self, offset: u32, to: &mut [u8]) {
        if self.area.read_bytes(offset as usize, to).is_err() {
            to.fill(0);
        }
    }

    #[inline]
    fn load(&self, offset: u32) -> u32 {
        self.area.load_u32_acquire(offset as usize).unwrap_or(0)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32) {
        let _ = self.area.store_u32_release(offset as usize, value);
    }
}

/// The last word of 64 bits: the phase is its upper half, and below it is what is reserved.
const CQE_LAST: usize = CQE_SIZE - size_of::<u64>();
const _: () = assert!(core::mem::offset_of!(abi::Cqe, phase) == CQE_LAST + size_of::<u32>());

impl CompletionRing for CqRing {
    #[inline]
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        if let Some(body) = cqe.as_bytes().get(..CQE_LAST) {
            let _ = self.slots.write_bytes(slot as usize * CQE_SIZE, body);
        }
    }

    #[inline]
    fn publish(&self, slot: u32, phase: u32) {
        let _ = self
            .slots
            .store_u64_release(slot as usize * CQE_SIZE + CQE_LAST, u64::from(phase) << 32);
    }

    #[inline]
    fn consumer(&self) -> u32 {
        self.ctrl
            .load_u32_acquire(core::mem::offset_of!(abi::CqCtrl, consumer))
            .unwrap_or(0)
    }

    #[inline]
    fn arm(&self) -> u32 {
        self.ctrl
            .load_u32(core::mem::offset_of!(abi::CqCtrl, arm))
            .unwrap_or(0)
    }
}

const TOP: usize = core::mem::offset_of!(abi::Db, top);
const LEAF: usize = abi::DB_LEAF_OFFSET;

impl ferrule_engine::Doorbells for Doorbells {
    #[inline]
    fn rung(&self) -> abi::Rung {
        let word = self
            .doorbell
            .load_u64_acquire(core::mem::offset_of!(abi::Db, rung));
        abi::Rung::from_word(word.unwrap_or(0))
    }

    #[inline]
    fn top(&self, word: usize) -> u64 {
        self.doorbell.load_u64(TOP + word * 8).unwrap_or(0)
    }

    #[inline]
    fn leaf(&self, word: usize) -> u64 {
        self.doorbell.load_u64(LEAF + word * 8).unwrap_or(0)
    }

    #[inline]
    fn ack_top(&self, word: usize) -> u64 {
        self.status.load_u64(TOP + word * 8).unwrap_or(0)
    }

    #[inline]
    fn ack_leaf(&self, word: usize) -> u64 {
        self.status.load_u64(LEAF + word * 8).unwrap_or(0)
    }

    #[inline]
    fn set_ack_top(&self, word: usize, value: u64) {
        let _ = self.status.store_u64(TOP + word * 8, value);
    }

    #[inline]
    fn set_ack_leaf(&self, word: usize, value: u64) {
        let _ = self.status.store_u64(LEAF + word * 8, value);
    }

    #[inline]
    fn set_taken(&self, count: u32) {
        let _ = self
            .status
            .store_u32(core::mem::offset_of!(abi::StatusArea, taken), count);
    }

    fn set_sleeping(&self, sleeping: bool) {
        let _ = self.status.store_u32_release(
            core::mem::offset_of!(abi::StatusArea, sleeping),
            sleeping.into(),
        );
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.doorbell
            .load_u32(core::mem::offset_of!(abi::Db, backlog))
            .is_ok_and(|backlog| backlog != 0)
    }

    fn set_deferred(&self, deferred: bool) {
        let _ = self.status.store_u32(
            core::mem::offset_of!(abi::StatusArea, deferred),
            deferred.into(),
        );
    }

    fn set_dead(&self) {
        let dead = core::mem::offset_of!(abi::StatusArea, dead);
        let _ = self.status.store_u32(dead, abi::dead::DEAD);
    }
}
