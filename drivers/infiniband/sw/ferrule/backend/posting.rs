// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of the kernel's own users: how requests get into the rings.
//!
//! The rings are those of programs, and the engine treats them alike. This file does the provider's
//! part: it fills slots, and keeps count of those that are free. Posting never runs the engine: the
//! user may hold locks that its own handlers take, and interrupts may be off.

use ferrule_engine::{
    abi::{
        self,
        wr_flags,
        wr_opcode, //
    },
    fast,
    RingLayout, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea,
    new_spinlock_irq,
    sync::{
        virt_mb,
        SpinLockIrq, //
    },
};
use rdma::{
    qp::{
        Notifier,
        State, //
    },
    wr::{
        Operation,
        RecvRequest,
        SendRequest,
        Sge, //
    },
    Access,
    Driver, //
};
use zerocopy::IntoBytes;

use super::{
    destination::{
        Destination,
        Slots, //
    },
    ring::QpRings, //
};

const SQ_PRODUCER: usize = core::mem::offset_of!(abi::QpCtrl, sq_producer);
const RQ_PRODUCER: usize = core::mem::offset_of!(abi::QpCtrl, rq_producer);
const RQ_DOORBELL: usize = core::mem::offset_of!(abi::QpCtrl, rq_doorbell);
const SEND_WR_ID: usize = core::mem::offset_of!(abi::SendWqe, wr_id);
const RECV_WR_ID: usize = core::mem::offset_of!(abi::RecvWqe, wr_id);

/// How far a ring has been filled.
#[derive(Default)]
struct Filled {
    producer: u32,
    /// The queue pair is in a state in which requests are taken.
    is_open: bool,
}

impl Filled {
    /// The index for the next request, if fewer than `most` slots are in use.
    fn next(&self, free: &Atomic<u32>, most: u32) -> Result<u32> {
        if !self.is_open {
            return Err(EINVAL);
        }
        if self.producer.wrapping_sub(free.load(Acquire)) >= most {
            return Err(ENOMEM);
        }
        Ok(self.producer)
    }
}

/// State that posters to the send queue share, under its lock.
struct Sender<D: Destination> {
    filled: Filled,
    /// The destination of each slot's datagram; none for other services.
    destinations: Option<D::Slots>,
}

/// The rings of a queue pair, for those who post.
#[pin_data]
pub(crate) struct Posting<D: Destination> {
    area: Arc<SharedArea>,
    rings: QpRings,
    /// Events for the queue pair's owner go by this.
    pub(super) notifier: Arc<Notifier>,
    #[pin]
    sender: SpinLockIrq<Sender<D>>,
    #[pin]
    receiver: SpinLockIrq<Filled>,
    /// All slots before these indices are free: completions tell.
    sq_free: Atomic<u32>,
    rq_free: Atomic<u32>,
}

impl<D: Destination> Posting<D> {
    /// Empty rings in a buffer.
    pub(crate) fn new(
        area: Arc<SharedArea>,
        rings: QpRings,
        notifier: Arc<Notifier>,
    ) -> Result<Arc<Self>> {
        let destinations = match rings.destinations {
            Some(offset) => Some(D::Slots::new(&area, offset, rings.sq.depth)?),
            None => None,
        };
        let sender = Sender {
            filled: Filled::default(),
            destinations,
        };
        Arc::pin_init(
            pin_init!(Posting {
                area,
                rings,
                notifier,
                sender <- new_spinlock_irq!(sender, "Posting::sender"),
                receiver <- new_spinlock_irq!(Filled::default(), "Posting::receiver"),
                sq_free: Atomic::new(0),
                rq_free: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Posts send requests, as many as go, and says whether there is anything new. `destination`
    /// tells that of a datagram.
    ///
    /// # Errors
    ///
    /// Of the first request that was not posted (`bad_wr`): `ENOMEM` if the queue is full, `EINVAL`
    /// for what does not fit a slot or has no destination, or before RTS, `EOPNOTSUPP` for an
    /// unknown operation.
    pub(crate) fn post_send<'a, V: Driver>(
        &self,
        mut requests: impl Iterator<Item = SendRequest<'a, V>>,
        destination: impl Fn(&SendRequest<'a, V>) -> Option<D>,
    ) -> (bool, Result) {
        self.sender.with(|sender| {
            let before = sender.filled.producer;
            let result =
                requests.try_for_each(|request| self.put_send(sender, &request, &destination));
            let any = sender.filled.producer != before;
            if any {
                let _ = self.store(SQ_PRODUCER, sender.filled.producer);
            }
            (any, result)
        })
    }

    /// Posts receive requests, as many as go, and says whether the engine has to run for them.
    ///
    /// # Errors
    ///
    /// As for [`Posting::post_send`], but `EINVAL` in RESET only.
    pub(crate) fn post_recv<'a>(
        &self,
        mut requests: impl Iterator<Item = RecvRequest<'a>>,
    ) -> (bool, Result) {
        self.receiver.with(|receiver| {
            let before = receiver.producer;
            let result = requests.try_for_each(|request| self.put_recv(receiver, &request));
            if receiver.producer == before {
                return (false, result);
            }
            let _ = self.store(RQ_PRODUCER, receiver.producer);
            // Either this sees that requests are to be flushed, or the flush sees the request.
            virt_mb();
            let wanted = self.area.load_u32(self.rings.ctrl as usize + RQ_DOORBELL);
            (wanted != Ok(0), result)
        })
    }

    /// Fills the next slot of the send queue.
    fn put_send<'a, V: Driver>(
        &self,
        sender: &mut Sender<D>,
        request: &SendRequest<'a, V>,
        destination: &impl Fn(&SendRequest<'a, V>) -> Option<D>,
    ) -> Result {
        let QpRings { sq, cap, .. } = &self.rings;
        let index = sender.filled.next(&self.sq_free, cap.max_send_wr)?;
        let slot = index & (sq.depth - 1);
        let mut head = send_head(request)?;
        if let Some(destinations) = &mut sender.destinations {
            let to = request.destination().ok_or(EINVAL)?;
            destinations.put(slot, destination(request).ok_or(EINVAL)?)?;
            let words = abi::Destination {
                remote_qpn: to.qpn.into(),
                remote_qkey: to.qkey.into(),
                ..Default::default()
            };
            head.extra.copy_from_slice(words.as_bytes());
        }
        let at = sq.slot(index) as usize;
        let body = at + size_of::<abi::SendWqe>();
        if request.is_inline() {
            let mut bytes = [0; abi::MAX_INLINE];
            let buffer = bytes.get_mut(..cap.max_inline as usize).ok_or(EINVAL)?;
            let length = request.inline(buffer)?;
            head.inline_len = (length as u32).into();
            let data = bytes.get(..length).ok_or(EINVAL)?;
            self.area.write_bytes(body, data)?;
        } else {
            head.num_sge = put_sges(&self.area, body, request.sges(), cap.max_send_sge)?.into();
        }
        self.area.write_bytes(at, head.as_bytes())?;
        sender.filled.producer = index.wrapping_add(1);
        Ok(())
    }

    /// Fills the next slot of the receive queue.
    fn put_recv(&self, receiver: &mut Filled, request: &RecvRequest<'_>) -> Result {
        let QpRings { rq, cap, .. } = &self.rings;
        let index = receiver.next(&self.rq_free, cap.max_recv_wr)?;
        put_recv(&self.area, rq, index, request, cap.max_recv_sge)?;
        receiver.producer = index.wrapping_add(1);
        Ok(())
    }

    fn store(&self, word: usize, value: u32) -> Result {
        self.area
            .store_u32_release(self.rings.ctrl as usize + word, value)
    }

    /// Finds the destination of a send request's datagram: `find` is called with the slot.
    pub(crate) fn destination(
        &self,
        index: u32,
        find: impl FnOnce(&D::Slots, u32) -> Option<D>,
    ) -> Option<D> {
        let slot = index & self.rings.sq.depth.wrapping_sub(1);
        self.sender
            .with(|sender| find(sender.destinations.as_ref()?, slot))
    }

    /// A completion tells that all slots before this index are free.
    pub(super) fn completed(&self, is_receive: bool, index: u32) {
        let free = if is_receive {
            &self.rq_free
        } else {
            &self.sq_free
        };
        free.store(index, Release);
    }

    /// The index of the oldest request of which no completion has told.
    pub(super) fn unflushed(&self, is_receive: bool) -> Option<u32> {
        let (index, producer) = if is_receive {
            // The ring stays empty beside a shared receive queue, whatever completions say.
            if self.rings.rq.depth == 0 {
                return None;
            }
            let producer = self.receiver.with(|receiver| receiver.producer);
            (self.rq_free.load(Acquire), producer)
        } else {
            let producer = self.sender.with(|sender| sender.filled.producer);
            (self.sq_free.load(Acquire), producer)
        };
        (index != producer).then_some(index)
    }

    /// Frees the oldest request of which no completion has told, and never will, and answers its
    /// number. The caller keeps others from polling.
    pub(super) fn flush_next(&self, is_receive: bool) -> Result<Option<u64>> {
        let Some(index) = self.unflushed(is_receive) else {
            return Ok(None);
        };
        let QpRings { sq, rq, .. } = &self.rings;
        let (slot, free) = if is_receive {
            (rq.slot(index) as usize + RECV_WR_ID, &self.rq_free)
        } else {
            (sq.slot(index) as usize + SEND_WR_ID, &self.sq_free)
        };
        let wr_id = self.area.load_u64(slot)?;
        free.store(index.wrapping_add(1), Release);
        Ok(Some(wr_id))
    }

    /// The owner of the queue pair has moved it to a state. In RESET a ring is empty. The caller
    /// keeps others from polling.
    ///
    /// Send requests are taken from RTS on, receive requests from INIT on (IBA volume 1, 10.3.1 and
    /// C10-97.2.1).
    pub(super) fn moved(&self, is_receive: bool, to: State) {
        if is_receive {
            self.receiver.with(|receiver| {
                receiver.is_open = to != State::Reset;
                if to == State::Reset {
                    receiver.producer = 0;
                    self.rq_free.store(0, Relaxed);
                    let _ = self.store(RQ_PRODUCER, 0);
                }
            });
            return;
        }
        self.sender.with(|sender| {
            sender.filled.is_open = !matches!(to, State::Reset | State::Init | State::Rtr);
            if to == State::Reset {
                sender.filled.producer = 0;
                self.sq_free.store(0, Relaxed);
                let _ = self.store(SQ_PRODUCER, 0);
            }
        });
    }
}

/// Fills slot `index` of a ring with a receive request of no more than `most` entries.
pub(super) fn put_recv(
    area: &SharedArea,
    ring: &RingLayout,
    index: u32,
    request: &RecvRequest<'_>,
    most: u32,
) -> Result {
    let at = ring.slot(index) as usize;
    let body = at + size_of::<abi::RecvWqe>();
    let head = abi::RecvWqe {
        wr_id: request.wr_id().into(),
        num_sge: put_sges(area, body, request.sges(), most)?.into(),
        ..Default::default()
    };
    area.write_bytes(at, head.as_bytes())
}

/// Writes a scatter/gather list, and answers its length.
fn put_sges(area: &SharedArea, at: usize, sges: &[Sge], most: u32) -> Result<u16> {
    if sges.len() > most as usize {
        return Err(EINVAL);
    }
    for (entry, at) in sges.iter().zip((at..).step_by(size_of::<abi::Sge>())) {
        let entry = abi::Sge {
            addr: entry.addr().into(),
            length: entry.length().into(),
            lkey: entry.lkey().into(),
        };
        area.write_bytes(at, entry.as_bytes())?;
    }
    Ok(sges.len() as u16)
}

/// The head of a send request's slot, without the fields about its data.
fn send_head<D: Driver>(request: &SendRequest<'_, D>) -> Result<abi::SendWqe> {
    let mut head = abi::SendWqe {
        wr_id: request.wr_id().into(),
        ..Default::default()
    };
    for (is_set, flag) in [
        (request.is_signaled(), wr_flags::SIGNALED),
        (request.is_solicited(), wr_flags::SOLICITED),
        (request.is_fenced(), wr_flags::FENCE),
        (request.is_inline(), wr_flags::INLINE),
    ] {
        if is_set {
            head.flags |= flag;
        }
    }
    let mut remote = |addr: u64, key: u32| {
        head.remote_addr = addr.into();
        head.rkey = key.into();
    };
    let mut extra = [0; 16];
    let mut atomic = |compare_add: u64, swap: u64| {
        let words = abi::AtomicWords {
            compare_add: compare_add.into(),
            swap: swap.into(),
        };
        extra.copy_from_slice(words.as_bytes());
    };
    let (opcode, imm_or_inv) = match request.operation().ok_or(EOPNOTSUPP)? {
        Operation::Send => (wr_opcode::SEND, [0; 4]),
        Operation::SendWithImm(imm) => (wr_opcode::SEND_WITH_IMM, imm),
        Operation::SendWithInv(key) => (wr_opcode::SEND_WITH_INV, key.to_le_bytes()),
        Operation::Write { remote_addr, rkey } => {
            remote(remote_addr, rkey);
            (wr_opcode::RDMA_WRITE, [0; 4])
        }
        Operation::WriteWithImm {
            remote_addr,
            rkey,
            imm,
        } => {
            remote(remote_addr, rkey);
            (wr_opcode::RDMA_WRITE_WITH_IMM, imm)
        }
        Operation::Read { remote_addr, rkey } => {
            remote(remote_addr, rkey);
            (wr_opcode::RDMA_READ, [0; 4])
        }
        Operation::ReadWithInv {
            remote_addr,
            rkey,
            local,
        } => {
            remote(remote_addr, rkey);
            (fast::WR_READ_WITH_INV, local.to_le_bytes())
        }
        Operation::CompareSwap {
            remote_addr,
            rkey,
            compare,
            swap,
        } => {
            remote(remote_addr, rkey);
            atomic(compare, swap);
            (wr_opcode::ATOMIC_CMP_AND_SWP, [0; 4])
        }
        Operation::FetchAdd {
            remote_addr,
            rkey,
            add,
        } => {
            remote(remote_addr, rkey);
            atomic(add, 0);
            (wr_opcode::ATOMIC_FETCH_AND_ADD, [0; 4])
        }
        Operation::LocalInv(key) => (wr_opcode::LOCAL_INV, key.to_le_bytes()),
        Operation::Register {
            key,
            access,
            iova,
            length,
        } => {
            remote(iova, key);
            let words = abi::BindWords {
                access: access.without(Access::OPTIONAL).bits().into(),
                length: length.into(),
                ..Default::default()
            };
            extra.copy_from_slice(words.as_bytes());
            (fast::WR_REGISTER, [0; 4])
        }
    };
    head.opcode = opcode;
    head.imm_or_inv = imm_or_inv;
    head.extra = extra;
    Ok(head)
}
