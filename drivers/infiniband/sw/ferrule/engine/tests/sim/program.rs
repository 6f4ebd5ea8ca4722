// SPDX-License-Identifier: GPL-2.0

//! The objects as a program has them, which posts and polls as the provider does.

use std::cell::Cell;
use std::rc::Rc;

use ferrule_engine::host::Queue;
use ferrule_engine::{abi, Access, ContextId, QpId, RingLayout, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::memory::{SimDoorbells, SimQueue, SimRegion, SimRing};
use super::post::{fill_recv, put_sges, Wr};

#[derive(Clone)]
pub struct TestContext {
    pub id: ContextId,
    pub doorbells: SimDoorbells,
}

/// A completion queue as a program has it.
#[derive(Clone)]
pub struct TestCq {
    pub cqn: u32,
    pub name: u32,
    pub depth: u32,
    pub ring: SimRing,
    /// The index of the first completion in this ring.
    pub(super) base: u32,
    pub(super) next: Rc<Cell<u32>>,
}

/// A memory region as a program has it.
#[derive(Clone)]
pub struct TestMr {
    pub key: u32,
    pub iova: u64,
    pub region: SimRegion,
}

/// A queue pair as a program has it.
#[derive(Clone)]
pub struct TestQp {
    pub id: QpId,
    pub name: u32,
    pub queue: SimQueue,
    pub sq: RingLayout,
    pub rq: RingLayout,
    pub ctrl: u32,
    pub doorbells: Option<SimDoorbells>,
    pub sq_producer: Rc<Cell<u32>>,
    pub rq_producer: Rc<Cell<u32>>,
}

/// A shared receive queue as a program has it.
#[derive(Clone)]
pub struct TestSrq {
    pub number: u32,
    pub name: u32,
    pub queue: SimQueue,
    pub ring: RingLayout,
    pub ctrl: u32,
    pub producer: Rc<Cell<u32>>,
}

impl TestSrq {
    /// Posts as the provider does: answers whether there was a free slot.
    pub fn post(&self, wr_id: u64, sges: &[(u64, u32, u32)]) -> bool {
        let index = self.producer.get();
        if index.wrapping_sub(self.consumer()) >= self.ring.depth {
            return false;
        }
        fill_recv(&self.queue, &self.ring, index, wr_id, sges);
        self.set_producer(index.wrapping_add(1));
        true
    }

    /// Another ring, filled as the driver does it.
    pub fn copy(&self, depth: u32) -> TestSrq {
        let ring = RingLayout { depth, ..self.ring };
        let ctrl = ring.depth * ring.stride;
        let copy = TestSrq {
            queue: SimQueue::new(ctrl as usize + 128),
            ring,
            ctrl,
            producer: Rc::clone(&self.producer),
            ..*self
        };
        // No more than there is, whatever the program's index says.
        let waiting = (self.consumer()..self.producer.get()).take(self.ring.depth as usize);
        for index in waiting {
            let mut request = vec![0; ring.stride as usize];
            self.queue.read(self.ring.slot(index), &mut request);
            copy.queue.write(ring.slot(index) as usize, &request);
        }
        copy.set_producer(self.producer.get());
        copy
    }

    pub fn set_producer(&self, index: u32) {
        self.producer.set(index);
        self.queue.set_word(self.ctrl as usize, index);
    }

    /// The consumer index that the engine has stored.
    pub fn consumer(&self) -> u32 {
        self.queue.word(self.ctrl as usize + 64)
    }
}

impl TestQp {
    /// Writes a slot of the send queue without telling anybody.
    pub fn fill_send(&self, index: u32, wr: &Wr) {
        let head = abi::SendWqe {
            wr_id: wr.wr_id.into(),
            opcode: wr.opcode,
            flags: wr.flags,
            num_sge: (wr.sges.len() as u16).into(),
            inline_len: (wr.inline.as_ref().map_or(0, Vec::len) as u32).into(),
            remote_addr: wr.remote.0.into(),
            rkey: wr.remote.1.into(),
            imm_or_inv: wr.imm,
            extra: wr.extra,
        };
        let mut slot = head.as_bytes().to_vec();
        put_sges(&mut slot, &wr.sges);
        slot.extend_from_slice(wr.inline.as_deref().unwrap_or(&[]));
        assert!(slot.len() <= self.sq.stride as usize);
        let offset = self.sq.offset + index % self.sq.depth * self.sq.stride;
        self.queue.write(offset as usize, &slot);
    }

    /// Posts without ringing.
    pub fn put_send(&self, wr: &Wr) {
        let index = self.sq_producer.get();
        self.fill_send(index, wr);
        self.set_sq_producer(index.wrapping_add(1));
    }

    pub fn set_sq_producer(&self, index: u32) {
        self.sq_producer.set(index);
        self.queue.set_word(self.ctrl as usize, index);
    }

    pub fn set_rq_producer(&self, index: u32) {
        self.rq_producer.set(index);
        self.queue.set_word(self.ctrl as usize + 64, index);
    }

    /// Rings the doorbell; returns whether a kick is due.
    pub fn ring(&self) -> bool {
        let doorbell = self.id.number & abi::DB_INDEX_MASK;
        self.doorbells.as_ref().unwrap().ring(doorbell)
    }

    pub fn post_send(&self, wr: &Wr) {
        self.put_send(wr);
        self.ring();
    }

    pub fn post_recv(&self, wr_id: u64, sges: &[(u64, u32, u32)]) {
        let index = self.rq_producer.get();
        fill_recv(&self.queue, &self.rq, index, wr_id, sges);
        self.set_rq_producer(index.wrapping_add(1));
        if self.queue.word(self.ctrl as usize + 68) != 0 {
            self.ring();
        }
    }

    /// Resets the program's indices, as the provider does after a change to RESET.
    pub fn rewind(&self) {
        self.set_sq_producer(0);
        self.set_rq_producer(0);
    }
}

/// A completion as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u8,
    pub opcode: u8,
    pub flags: u8,
    pub byte_len: u32,
    pub imm: [u8; 4],
    pub qp_num: u32,
    pub qp_gen: u32,
    pub src_qp: u32,
    pub sl: u8,
    pub vlan: u16,
    pub ip_version: u8,
    /// Of an XRC shared receive queue, its number.
    pub srq: Option<u32>,
    pub queue_index: u32,
    pub timestamp: u64,
}

impl TestCq {
    /// Polls as the provider does, and stores the consumer index.
    pub fn poll(&self) -> Option<Wc> {
        let wc = self.peek()?;
        self.next.set(self.next.get().wrapping_add(1));
        self.ring.0.consumer.set(self.next.get());
        Some(wc)
    }

    pub fn peek(&self) -> Option<Wc> {
        let nth = self.next.get().wrapping_sub(self.base);
        let start = (nth % self.depth) as usize * 64;
        let ring = self.ring.0.ring.borrow();
        let cqe = abi::Cqe::read_from_bytes(&ring[start..start + 64]).unwrap();
        let phase = u32::from(nth & self.depth == 0);
        if cqe.phase.get() != phase {
            return None;
        }
        assert_eq!(cqe.reserved, [0; 8]);
        let srq = (cqe.is_xrc != 0).then_some(cqe.queue_index.get());
        Some(Wc {
            wr_id: cqe.wr_id.get(),
            status: cqe.status,
            opcode: cqe.opcode,
            flags: cqe.flags,
            byte_len: cqe.byte_len.get(),
            imm: cqe.imm_or_inv,
            qp_num: cqe.qp_num.get(),
            qp_gen: cqe.qp_gen.get(),
            src_qp: cqe.src_qp.get(),
            sl: cqe.sl,
            vlan: cqe.vlan.get(),
            ip_version: cqe.ip_version,
            srq,
            queue_index: cqe.queue_index.get(),
            timestamp: cqe.timestamp.get(),
        })
    }

    pub fn drain(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// Goes on as if so many completions had been polled; the ring is made to fit.
    pub fn set_next(&self, index: u32) {
        self.next.set(index);
        self.ring.0.consumer.set(index);
        for slot in 0..self.depth {
            // The last entry written, of this lap or the one before, has another phase than the
            // next one.
            let lap = if slot < index % self.depth {
                index
            } else {
                index.wrapping_sub(self.depth)
            };
            let phase = u32::from(lap & self.depth == 0);
            let start = slot as usize * 64 + 60;
            self.ring.0.ring.borrow_mut()[start..start + 4].copy_from_slice(&phase.to_le_bytes());
        }
    }

    /// The next completion has to be this one.
    #[track_caller]
    pub fn expect(&self, wr_id: u64, status: Status) -> Wc {
        let wc = self.poll().expect("no completion");
        assert_eq!((wc.wr_id, wc.status), (wr_id, status as u8), "{wc:?}");
        wc
    }

    #[track_caller]
    pub fn expect_none(&self) {
        assert_eq!(self.poll(), None);
    }

    /// Arms for the event after the `taken`-th.
    pub fn arm(&self, taken: u32, solicited: bool) {
        let number = taken.wrapping_add(1);
        self.ring.0.arm.set((number << 1) | u32::from(solicited));
    }
}

impl TestMr {
    pub fn sge(&self, offset: u64, length: u32) -> (u64, u32, u32) {
        (self.iova + offset, length, self.key)
    }

    pub fn remote(&self, offset: u64) -> (u64, u32) {
        (self.iova + offset, self.key)
    }

    pub fn fill(&self, seed: u8) {
        let range = self.region.start..self.region.start + self.region.length;
        for (i, byte) in self.region.memory.borrow_mut()[range]
            .iter_mut()
            .enumerate()
        {
            *byte = (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed;
        }
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let start = self.region.start + offset;
        self.region.memory.borrow()[start..start + length].to_vec()
    }
}

/// All rights of a region, but that to bind windows.
pub const ALL: Access = Access(0x10f);

/// All rights of a region.
pub const BINDABLE: Access = Access(0x11f);
