// SPDX-License-Identifier: GPL-2.0

//! The data path: rings that programs map, and the copy from a send request to a receive request.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};
use kernel_ext::mm::SharedArea;
use rdma::{
    cq,
    qp,
    umem::Umem, //
};

use super::edu::Edu;

/// Slots of each ring, and bytes of each slot.
pub(super) const DEPTH: u32 = 64;
const SLOT: usize = 32;
pub(super) const RING: usize = DEPTH as usize * SLOT;

/// A queue pair's memory: the producer indices, then the send ring, then the receive ring.
const SQ_PRODUCER: usize = 0;
const RQ_PRODUCER: usize = 64;
const SQ: usize = 4096;
const RQ: usize = SQ + RING;
pub(super) const QUEUES: usize = RQ + RING;

/// `enum ibv_wc_status` and `enum ibv_wc_opcode`.
const SUCCESS: u32 = 0;
const PROTECTION_ERROR: u32 = 4;
const SEND: u32 = 0;
const RECV: u32 = 128;

/// The place of the slot `index` in a ring.
fn slot(index: u32) -> usize {
    (index % DEPTH) as usize * SLOT
}

/// A request in a ring: `u64 wr_id, addr; u32 length, lkey`.
struct Request {
    wr_id: u64,
    addr: u64,
    length: u32,
    lkey: u32,
}

impl Request {
    fn read(area: &SharedArea, at: usize) -> Result<Self> {
        Ok(Request {
            wr_id: area.load_u64(at)?,
            addr: area.load_u64(at + 8)?,
            length: area.load_u32(at + 16)?,
            lkey: area.load_u32(at + 20)?,
        })
    }
}

/// A memory region as requests name it.
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) iova: u64,
    pub(super) umem: Umem,
}

/// The data of the device: memory regions, the next number for anything, and the network device's
/// MTU.
#[pin_data]
pub(super) struct Table {
    #[pin]
    pub(super) regions: Mutex<KVec<Region>>,
    next: Atomic<u32>,
    pub(super) mtu: Atomic<u32>,
    /// The engine that copies, or else the processor does.
    edu: Option<Arc<Edu>>,
}

impl Table {
    pub(super) fn new(edu: Option<Arc<Edu>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Table {
                regions <- new_mutex!(KVec::new(), "Table::regions"),
                next: Atomic::new(2), // queue pairs 0 and 1 are special
                mtu: Atomic::new(0),
                edu,
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn number(&self) -> u32 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Copies what `send` names to where `recv` wants it. The lock is held meanwhile, so that a
    /// region stays registered while it is used.
    fn copy(&self, send: &Request, recv: &Request) -> Result {
        let regions = self.regions.lock();
        let find = |request: &Request| {
            let region = regions.iter().find(|region| region.key == request.lkey)?;
            Some((&region.umem, request.addr.checked_sub(region.iova)?))
        };
        let (src, from) = find(send).ok_or(EACCES)?;
        let (dst, to) = find(recv).ok_or(EACCES)?;
        if send.length > recv.length {
            return Err(EINVAL);
        }
        match &self.edu {
            None => Umem::copy(dst, to, src, from, send.length.into()),
            Some(edu) => edu.copy_memory(dst, to, src, from, send.length.into()),
        }
    }
}

/// A completion queue's ring: `u64 wr_id; u32 qp_num, byte_len, status, opcode, 0, number`, where
/// the number, written last, is that of the completion, from 1.
#[pin_data]
pub(super) struct Completions {
    area: Arc<SharedArea>,
    notifier: Arc<cq::Notifier>,
    #[pin]
    producer: Mutex<u32>,
}

impl Completions {
    pub(super) fn new(area: Arc<SharedArea>, notifier: Arc<cq::Notifier>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Completions {
                area,
                notifier,
                producer <- new_mutex!(0, "Completions::producer"),
            }),
            GFP_KERNEL,
        )
    }

    fn write(&self, qp_num: u32, wr_id: u64, length: u32, status: u32, opcode: u32) -> Result {
        let mut producer = self.producer.lock();
        let at = slot(*producer);
        *producer = producer.wrapping_add(1);
        self.area.store_u64(at, wr_id)?;
        self.area.store_u32(at + 8, qp_num)?;
        self.area.store_u32(at + 12, length)?;
        self.area.store_u32(at + 16, status)?;
        self.area.store_u32(at + 20, opcode)?;
        self.area.store_u32_release(at + 28, *producer)?;
        drop(producer);
        self.notifier.complete();
        Ok(())
    }
}

/// A queue pair as its context serves it.
#[pin_data]
pub(super) struct Queue {
    pub(super) qp_num: u32,
    area: Arc<SharedArea>,
    send_cq: Arc<Completions>,
    recv_cq: Arc<Completions>,
    /// The state and the next request. Each send takes one receive, so one index does for both.
    #[pin]
    pub(super) state: Mutex<(qp::State, u32)>,
}

impl Queue {
    pub(super) fn new(
        qp_num: u32,
        area: Arc<SharedArea>,
        send_cq: Arc<Completions>,
        recv_cq: Arc<Completions>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Queue {
                qp_num,
                area,
                send_cq,
                recv_cq,
                state <- new_mutex!((qp::State::Reset, 0), "Queue::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Does what is posted, at most one ring of it.
    pub(super) fn serve(&self, table: &Table) -> Result {
        let mut guard = self.state.lock();
        let (state, next) = &mut *guard;
        for _ in 0..DEPTH {
            if *state != qp::State::Rts
                || *next == self.area.load_u32_acquire(SQ_PRODUCER)?
                || *next == self.area.load_u32_acquire(RQ_PRODUCER)?
            {
                break;
            }
            let send = Request::read(&self.area, SQ + slot(*next))?;
            let recv = Request::read(&self.area, RQ + slot(*next))?;
            *next = next.wrapping_add(1);
            let status = match table.copy(&send, &recv) {
                Ok(()) => SUCCESS,
                Err(_) => PROTECTION_ERROR,
            };
            (self.recv_cq).write(self.qp_num, recv.wr_id, send.length, status, RECV)?;
            (self.send_cq).write(self.qp_num, send.wr_id, send.length, status, SEND)?;
        }
        Ok(())
    }
}
