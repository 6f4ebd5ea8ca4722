// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use ferrule_engine::abi;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};
use rdma::{
    cq,
    mmap::{
        Entry,
        Protection, //
    },
    wc::Completions,
    Ucontext,
    UserCall, //
};

use crate::{
    soft::{
        areas::Ring,
        polling::Polling,
        Shared, //
    },
    verbs::{
        abi::{
            CreateCqResp,
            ResizeCqResp, //
        },
        Ferrule, //
    },
};

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`: completions tell their time, as all of ours do.
const TIMESTAMP_COMPLETION: u32 = 1 << 0;

/// A completion queue. Dropping it takes the ring from the engine.
pub(crate) struct Cq {
    soft: Shared,
    cqn: u32,
    consumer: Consumer,
}

/// The side that polls it.
enum Consumer {
    Program(Mapped),
    Kernel(Arc<Polling>),
}

/// The areas that a program has mapped.
struct Mapped {
    /// The ring; another one when the queue is resized.
    ring: Pin<KBox<Mutex<Entry>>>,
    ctrl: Arc<SharedArea>,
    _ctrl_entry: Entry,
}

/// The slots of a ring for at least `cqe` completions.
fn depth(cqe: u32) -> Result<u32> {
    if cqe == 0 || cqe > abi::MAX_CQ_DEPTH {
        return Err(EINVAL);
    }
    Ok(cqe.next_power_of_two())
}

/// Makes a ring of at least `cqe` slots, and answers how many it has.
fn new_ring(ctx: &Ucontext<Ferrule>, cqe: u32) -> Result<(u32, Arc<SharedArea>, Entry)> {
    let depth = depth(cqe)?;
    let slots = Ring::slots(depth)?;
    let entry = ctx.map(slots.clone(), Protection::ReadOnly)?;
    Ok((depth, slots, entry))
}

impl Cq {
    /// The number of the completion queue.
    pub(super) fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Makes a queue for a kernel user.
    fn for_kernel(new: &mut cq::New<'_, Ferrule>, attr: &cq::InitAttr) -> Result<Self> {
        let soft = new.device().shared();
        let depth = depth(attr.cqe)?;
        let (polling, ring) = Polling::new(depth, new.notifier())?;
        let cqn = soft.add_cq(depth, ring, new.notifier())?;
        new.set_cqe(depth);
        Ok(Cq {
            soft,
            cqn,
            consumer: Consumer::Kernel(polling),
        })
    }

    /// The ring of a kernel user.
    pub(super) fn polling(&self) -> Result<&Arc<Polling>> {
        match &self.consumer {
            Consumer::Kernel(polling) => Ok(polling),
            Consumer::Program(_) => Err(EOPNOTSUPP),
        }
    }
}

#[vtable]
impl cq::Operations for Cq {
    type Driver = Ferrule;

    fn create(
        new: &mut cq::New<'_, Ferrule>,
        attr: &cq::InitAttr,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        if attr.flags & !TIMESTAMP_COMPLETION != 0 {
            return Err(EOPNOTSUPP);
        }
        let Some(user) = user else {
            return Self::for_kernel(new, attr);
        };
        let (depth, slots, ring_entry) = new_ring(user.ucontext(), attr.cqe)?;
        let ctrl = Ring::ctrl()?;
        let ctrl_entry = user.ucontext().map(ctrl.clone(), Protection::ReadWrite)?;
        let mut resp = CreateCqResp {
            ring_offset: ring_entry.offset(),
            ctrl_offset: ctrl_entry.offset(),
            ring_size: ring_entry.len() as u32,
            ctrl_size: ctrl_entry.len() as u32,
            depth,
            ..Default::default()
        };
        let ring = KBox::pin_init(new_mutex!(ring_entry, "Cq::ring"), GFP_KERNEL_ACCOUNT)?;

        let soft = new.device().shared();
        let handle = new.notifier();
        let cqn = soft.add_cq(
            depth,
            Ring {
                slots,
                ctrl: ctrl.clone(),
            },
            handle,
        )?;
        let cq = Cq {
            soft,
            cqn,
            consumer: Consumer::Program(Mapped {
                ring,
                ctrl,
                _ctrl_entry: ctrl_entry,
            }),
        };
        new.set_cqe(depth);
        resp.cqn = cqn;
        user.respond(&resp)?;
        Ok(cq)
    }

    fn resize(cq: &rdma::Cq<Ferrule>, cqe: u32, user: UserCall<'_, Ferrule>) -> Result<u32> {
        let Consumer::Program(mapped) = &cq.consumer else {
            return Err(EOPNOTSUPP);
        };
        let (depth, slots, entry) = new_ring(user.ucontext(), cqe)?;
        let mut resp = ResizeCqResp {
            ring_offset: entry.offset(),
            ring_size: entry.len() as u32,
            depth,
            ..Default::default()
        };
        let ring = Ring {
            slots,
            ctrl: mapped.ctrl.clone(),
        };
        resp.base = cq.soft.resize_cq(cq.cqn, depth, ring)?;
        // A program that has mapped the previous ring may read it to its end.
        let _before = core::mem::replace(&mut *mapped.ring.lock(), entry);
        user.respond(&resp)?;
        Ok(depth)
    }

    fn poll(cq: &rdma::Cq<Ferrule>, completions: &mut Completions<'_>) -> Result {
        cq.polling()?.poll(completions)
    }

    fn req_notify(cq: &rdma::Cq<Ferrule>, solicited: bool) -> Result<bool> {
        cq.polling()?.arm(solicited)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.soft.remove_cq(self.cqn);
    }
}
