// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use core::mem::offset_of;

use ferrule_engine::{
    abi,
    RingLayout,
    XrcSrq, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};
use rdma::{
    mmap::{
        Entry,
        Protection, //
    },
    srq,
    wr::RecvRequests,
    UserCall, //
};
use zerocopy::IntoBytes;

use crate::{
    backend::{
        object::{
            SrqInit,
            SrqResize, //
        },
        ring::new_area,
        srq_posting::SrqPosting,
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            CreateSrqResp,
            ModifySrqCmd,
            ResizeSrqResp, //
        },
        doorbells::doorbells,
        layout::receive_ring,
        Ferrule, //
    },
};

/// A shared receive queue. Dropping it takes the ring from the engine.
pub(crate) struct Srq<B: Backend> {
    commands: B::Commands,
    number: u32,
    producer: Producer,
}

/// The side that fills the ring.
enum Producer {
    /// The ring is another one when the queue is resized.
    Program(Pin<KBox<Mutex<Mapped>>>),
    Kernel(Pin<KBox<SrqPosting>>),
}

/// The ring in the buffer that a program has mapped.
struct Mapped {
    buffer: Entry,
    ring: RingLayout,
}

/// The offset of the control words in the buffer of a ring, in bytes.
fn ctrl(ring: &RingLayout) -> u32 {
    ring.depth * ring.stride
}

/// Bytes of the buffer of a ring.
fn size(ring: &RingLayout) -> usize {
    ctrl(ring) as usize + size_of::<abi::SrqCtrl>()
}

/// Copies the requests that may wait from the old buffer to the new one, and the producer index.
///
/// A program that posts meanwhile, or that has stored another index than it has posted up to, gets
/// other requests than it meant.
fn carry_over(
    from: &SharedArea,
    before: &RingLayout,
    to: &SharedArea,
    ring: &RingLayout,
) -> Result {
    const PRODUCER: usize = offset_of!(abi::SrqCtrl, producer);
    let producer = from.load_u32_acquire(ctrl(before) as usize + PRODUCER)?;
    for back in 1..=before.depth.min(ring.depth) {
        let index = producer.wrapping_sub(back);
        let (at, source) = (ring.slot(index) as usize, before.slot(index) as usize);
        to.copy_from(at, from, source, ring.stride as usize)?;
    }
    to.store_u32_release(ctrl(ring) as usize + PRODUCER, producer)
}

impl<B: Backend> Srq<B> {
    /// The number by which the engine knows the queue.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The command channel of its device.
    pub(super) fn commands(&self) -> &B::Commands {
        &self.commands
    }

    /// Gives the queue another ring. A kernel user's keeps the one that it has: none of them asks.
    fn resize(
        &self,
        max_wr: u32,
        limit: Option<u32>,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result {
        let (Producer::Program(mapped), Some(user)) = (&self.producer, user) else {
            return Err(EOPNOTSUPP);
        };
        let ModifySrqCmd { resp } = user.copy_in(size_of::<ModifySrqCmd>())?;
        if !(1..=abi::MAX_QP_DEPTH).contains(&max_wr) {
            return Err(EINVAL);
        }
        let mut mapped = mapped.lock();
        let ring = RingLayout {
            depth: max_wr.next_power_of_two(),
            ..mapped.ring
        };
        let area = new_area(size(&ring))?;
        carry_over(mapped.buffer.area(), &mapped.ring, &area, &ring)?;
        let buffer = user.ucontext().map(area.clone(), Protection::ReadWrite)?;
        let answer = ResizeSrqResp {
            buf_offset: buffer.offset(),
            buf_size: buffer.len() as u32,
            ring_offset: ring.offset,
            depth: ring.depth,
            ctrl_offset: ctrl(&ring),
        };
        // The core has no response for this verb, so the program tells where it wants one.
        UserSlice::new(UserPtr::from_addr(resp as usize), size_of_val(&answer))
            .writer()
            .write_slice(answer.as_bytes())?;
        self.commands.resize_srq(
            self.number,
            SrqResize {
                ring,
                ctrl: ctrl(&ring),
                area,
                limit,
            },
        )?;
        *mapped = Mapped { buffer, ring };
        Ok(())
    }
}

impl<B: Backend> srq::Operations for Srq<B> {
    type Driver = Ferrule<B>;

    fn create(
        new: &mut srq::New<'_, Ferrule<B>>,
        attr: &srq::Attr,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        if !(1..=abi::MAX_QP_DEPTH).contains(&attr.max_wr) || attr.max_sge > abi::MAX_SGE as u32 {
            return Err(EINVAL);
        }
        let xrc = new.xrc().map(|xrc| XrcSrq {
            domain: xrc.domain.id(),
            cq: xrc.cq.cqn(),
        });
        if xrc.is_some() && user.is_none() {
            return Err(EOPNOTSUPP);
        }
        let pd = new.pd().id();
        let doorbells = user.as_ref().map(doorbells).transpose()?;
        let context = doorbells.as_ref().map(|doorbells| doorbells.id());
        if let (Some(threads), Some(context)) = (new.pd().threads(), context) {
            threads.add_queue(context, xrc.is_none().then_some(pd))?;
        }
        let (ring, max_sge) = receive_ring(0, attr.max_wr, attr.max_sge);
        let ctrl = ctrl(&ring);
        let buffer = new_area(size(&ring))?;
        let (producer, answer) = match user {
            Some(user) => {
                let entry = user.ucontext().map(buffer.clone(), Protection::ReadWrite)?;
                let answer = CreateSrqResp {
                    buf_offset: entry.offset(),
                    buf_size: entry.len() as u32,
                    ring_offset: ring.offset,
                    depth: ring.depth,
                    stride: ring.stride,
                    ctrl_offset: ctrl,
                    ..Default::default()
                };
                let mapped = Mapped {
                    buffer: entry,
                    ring,
                };
                let mapped = new_mutex!(mapped, "Srq::producer");
                let mapped = KBox::pin_init(mapped, GFP_KERNEL_ACCOUNT)?;
                (Producer::Program(mapped), Some((user, answer)))
            }
            None => {
                let posting = SrqPosting::new(buffer.clone(), ring, max_sge, ctrl)?;
                (Producer::Kernel(posting), None)
            }
        };

        let commands = new.device().commands();
        let number = commands.add_srq(SrqInit {
            pd,
            context,
            xrc,
            max_sge,
            ring,
            ctrl,
            area: buffer,
            notifier: new.notifier(),
        })?;
        let srq = Srq {
            commands,
            number,
            producer,
        };
        if xrc.is_some() {
            new.set_number(number);
        }
        new.set_sizes(ring.depth, max_sge);
        if let Some((user, answer)) = answer {
            user.respond(&answer)?;
        }
        Ok(srq)
    }

    fn modify(
        srq: &rdma::Srq<Ferrule<B>>,
        attr: &srq::ModifyAttr,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result {
        match (attr.max_wr, attr.limit) {
            (Some(max_wr), limit) => srq.resize(max_wr, limit, user),
            (None, Some(limit)) => srq.commands.set_srq_limit(srq.number, limit),
            (None, None) => Ok(()),
        }
    }

    fn query(srq: &rdma::Srq<Ferrule<B>>) -> Result<srq::Attr> {
        let info = srq.commands.query_srq(srq.number)?;
        Ok(srq::Attr {
            max_wr: info.max_wr,
            max_sge: info.max_sge,
            limit: info.limit,
        })
    }

    fn post_recv(srq: &rdma::Srq<Ferrule<B>>, requests: &mut RecvRequests<'_>) -> Result {
        match &srq.producer {
            Producer::Kernel(posting) => posting.post(requests),
            Producer::Program(_) => Err(EOPNOTSUPP),
        }
    }
}

impl<B: Backend> Drop for Srq<B> {
    fn drop(&mut self) {
        self.commands.remove_srq(self.number);
    }
}
