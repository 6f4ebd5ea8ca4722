// SPDX-License-Identifier: GPL-2.0

//! The kernel as the engine's host: pinned pages, shared areas, the clock and the way up.
//!
//! The engine knows the world by the traits of `ferrule_engine::host`; here the kernel's objects
//! put them on. Nothing in this file decides anything.

use core::convert::Infallible;

use ferrule_engine::{
    abi,
    host::{
        CompletionRing,
        Doorbells,
        Fault,
        Host,
        Packet,
        Queue,
        Region, //
    },
    CqEvent,
    Outgoing,
    QpEvent,
    SrqEvent,
    Trace,
    Unsent, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    mm::SharedArea,
    sync::smp_mb,
    time::monotonic_raw_ns, //
};
use rdma::{
    cq,
    qp,
    srq,
    umem::Umem, //
};
use zerocopy::IntoBytes;

use crate::trace;

/// The services of one call into the engine.
pub(crate) struct Kernel;

impl Host for Kernel {
    type Box<T> = KBox<T>;
    type Region = Pinned;
    type Queue = Buffer;
    type CompletionRing = Ring;
    type Doorbells = Areas;
    // There is no network behind the engine yet, so there are no routes and no packets.
    type Packet = Infallible;
    type Route = Infallible;
    type CqHandle = Arc<cq::Notifier>;
    type QpHandle = Arc<qp::Notifier>;
    type SrqHandle = Arc<srq::Notifier>;

    fn boxed<T>(value: T) -> Option<KBox<T>> {
        KBox::new(value, GFP_KERNEL_ACCOUNT).ok()
    }

    #[inline]
    fn fence() {
        smp_mb();
    }

    /// `CLOCK_MONOTONIC_RAW`, which is the clock of completions' timestamps.
    #[inline]
    fn now(&mut self) -> u64 {
        monotonic_raw_ns()
    }

    fn transmit(
        &mut self,
        route: &mut Infallible,
        _packet: &mut Outgoing<'_, Self>,
    ) -> Result<(), Unsent> {
        match *route {}
    }

    fn completion_event(&mut self, cq: &Arc<cq::Notifier>) {
        cq.complete();
    }

    fn cq_event(&mut self, cq: &Arc<cq::Notifier>, event: CqEvent) {
        match event {
            CqEvent::Error => cq.error(),
        }
    }

    fn qp_event(&mut self, qp: &Arc<qp::Notifier>, event: QpEvent) {
        qp.event(match event {
            QpEvent::Fatal => qp::Event::Fatal,
            QpEvent::RequestError => qp::Event::RequestError,
            QpEvent::AccessError => qp::Event::AccessError,
            QpEvent::CommunicationEstablished => qp::Event::CommEstablished,
            QpEvent::SendQueueDrained => qp::Event::SqDrained,
            QpEvent::LastRequestReached => qp::Event::LastWqeReached,
        });
    }

    fn srq_event(&mut self, srq: &Arc<srq::Notifier>, event: SrqEvent) {
        srq.event(match event {
            SrqEvent::LimitReached => srq::Event::LimitReached,
            SrqEvent::Error => srq::Event::Error,
        });
    }

    #[inline]
    fn trace(&mut self, step: &Trace) {
        trace::step(step);
    }
}

/// A memory region of user space: its pages, pinned.
pub(crate) struct Pinned(pub(crate) Umem);

impl Region for Pinned {
    #[inline]
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.0.read(offset, to).map_err(|_| Fault)
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.0.write(offset, from).map_err(|_| Fault)
    }

    #[inline]
    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        Umem::copy(&to.0, to_offset, &from.0, from_offset, length as u64).map_err(|_| Fault)
    }

    #[inline]
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.0.cmpxchg_u64(offset, compare, swap).map_err(|_| Fault)
    }

    #[inline]
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        self.0.fetch_add_u64(offset, add).map_err(|_| Fault)
    }
}

impl Packet<Pinned> for Infallible {
    fn crc32(&self, _crc: u32, _offset: usize, _length: usize) -> Result<u32, Fault> {
        match *self {}
    }

    fn copy(
        &self,
        _offset: usize,
        _to: &Pinned,
        _to_offset: u64,
        _length: usize,
    ) -> Result<(), Fault> {
        match *self {}
    }
}

/// The buffer of a queue pair or a shared receive queue: the rings and the indices.
pub(crate) struct Buffer(pub(crate) Arc<SharedArea>);

impl Queue for Buffer {
    #[inline]
    fn size(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn read(&self, offset: u32, to: &mut [u8]) {
        if self.0.read_bytes(offset as usize, to).is_err() {
            to.fill(0);
        }
    }

    #[inline]
    fn load(&self, offset: u32) -> u32 {
        self.0.load_u32_acquire(offset as usize).unwrap_or(0)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32) {
        let _ = self.0.store_u32_release(offset as usize, value);
    }
}

/// A completion queue: the slots, which user space can only read, and its control words.
pub(crate) struct Ring {
    pub(crate) slots: Arc<SharedArea>,
    pub(crate) ctrl: Arc<SharedArea>,
}

const CQE_SIZE: usize = size_of::<abi::Cqe>();
const CQE_PHASE: usize = core::mem::offset_of!(abi::Cqe, phase);

impl CompletionRing for Ring {
    #[inline]
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        if let Some(body) = cqe.as_bytes().get(..CQE_PHASE) {
            let _ = self.slots.write_bytes(slot as usize * CQE_SIZE, body);
        }
    }

    #[inline]
    fn publish(&self, slot: u32, phase: u32) {
        let _ = self
            .slots
            .store_u32_release(slot as usize * CQE_SIZE + CQE_PHASE, phase);
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

/// A user context's doorbell area, which it writes, and its status area, which we write.
pub(crate) struct Areas {
    pub(crate) doorbell: Arc<SharedArea>,
    pub(crate) status: Arc<SharedArea>,
}

const TOP: usize = core::mem::offset_of!(abi::Db, top);
const LEAF: usize = abi::DB_LEAF_OFFSET;

impl Doorbells for Areas {
    #[inline]
    fn seq(&self) -> u32 {
        self.doorbell
            .load_u32_acquire(core::mem::offset_of!(abi::Db, seq))
            .unwrap_or(0)
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

    fn set_sleeping(&self, sleeping: bool) {
        let _ = self.status.store_u32(
            core::mem::offset_of!(abi::Status, sleeping),
            sleeping.into(),
        );
    }

    fn set_dead(&self) {
        let _ = self
            .status
            .store_u32(core::mem::offset_of!(abi::Status, dead), 1);
    }
}
