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
    Ucontext,
    UserCall, //
};

use crate::{
    soft::{
        host::Ring,
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
    /// The ring; another one when the queue is resized.
    ring: Pin<KBox<Mutex<Entry>>>,
    ctrl: Arc<SharedArea>,
    _ctrl_entry: Entry,
}

/// Makes a ring of at least `cqe` slots, and answers how many it has.
fn new_ring(ctx: &Ucontext<Ferrule>, cqe: u32) -> Result<(u32, Arc<SharedArea>, Entry)> {
    if cqe == 0 || cqe > abi::MAX_CQ_DEPTH {
        return Err(EINVAL);
    }
    let depth = cqe.next_power_of_two();
    let size = depth as usize * size_of::<abi::Cqe>();
    let slots = Arc::new(SharedArea::new(size)?, GFP_KERNEL)?;
    let entry = ctx.map(slots.clone(), Protection::ReadOnly)?;
    Ok((depth, slots, entry))
}

impl Cq {
    /// The number of the completion queue.
    pub(super) fn cqn(&self) -> u32 {
        self.cqn
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
        let user = user.ok_or(EOPNOTSUPP)?;
        if attr.flags & !TIMESTAMP_COMPLETION != 0 {
            return Err(EOPNOTSUPP);
        }
        let (depth, slots, ring_entry) = new_ring(user.ucontext(), attr.cqe)?;
        let ctrl = Arc::new(SharedArea::new(size_of::<abi::CqCtrl>())?, GFP_KERNEL)?;
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
            ring,
            ctrl,
            _ctrl_entry: ctrl_entry,
        };
        new.set_cqe(depth);
        resp.cqn = cqn;
        user.respond(&resp)?;
        Ok(cq)
    }

    fn resize(cq: &rdma::Cq<Ferrule>, cqe: u32, user: UserCall<'_, Ferrule>) -> Result<u32> {
        let (depth, slots, entry) = new_ring(user.ucontext(), cqe)?;
        let mut resp = ResizeCqResp {
            ring_offset: entry.offset(),
            ring_size: entry.len() as u32,
            depth,
            ..Default::default()
        };
        let ring = Ring {
            slots,
            ctrl: cq.ctrl.clone(),
        };
        resp.base = cq.soft.resize_cq(cq.cqn, depth, ring)?;
        // Who has mapped the ring of before may read it to its end.
        let _before = core::mem::replace(&mut *cq.ring.lock(), entry);
        user.respond(&resp)?;
        Ok(depth)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.soft.remove_cq(self.cqn);
    }
}
