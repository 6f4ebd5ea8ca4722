// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use ferrule_engine::abi;
use kernel::{
    prelude::*,
    sync::Arc, //
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
    UserCall, //
};

use crate::{
    soft::{
        host::Ring,
        Shared, //
    },
    verbs::{
        abi::CreateCqResp,
        Ferrule, //
    },
};

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`: completions tell their time, as all of ours do.
const TIMESTAMP_COMPLETION: u32 = 1 << 0;

/// A completion queue. Dropping it takes the ring from the engine.
pub(crate) struct Cq {
    soft: Shared,
    cqn: u32,
    _ring: Entry,
    _ctrl: Entry,
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
        if attr.cqe == 0 || attr.cqe > abi::MAX_CQ_DEPTH {
            return Err(EINVAL);
        }
        let depth = attr.cqe.next_power_of_two();
        let ring_size = depth as usize * size_of::<abi::Cqe>();

        let slots = Arc::new(SharedArea::new(ring_size)?, GFP_KERNEL)?;
        let ctrl = Arc::new(SharedArea::new(size_of::<abi::CqCtrl>())?, GFP_KERNEL)?;
        let ring_entry = user.ucontext().map(slots.clone(), Protection::ReadOnly)?;
        let ctrl_entry = user.ucontext().map(ctrl.clone(), Protection::ReadWrite)?;

        let soft = new.device().shared();
        let cqn = soft.add_cq(depth, Ring { slots, ctrl }, new.notifier()?)?;
        let cq = Cq {
            soft,
            cqn,
            _ring: ring_entry,
            _ctrl: ctrl_entry,
        };
        new.set_cqe(depth);
        user.respond(&CreateCqResp {
            ring_offset: cq._ring.offset(),
            ctrl_offset: cq._ctrl.offset(),
            ring_size: cq._ring.len() as u32,
            ctrl_size: cq._ctrl.len() as u32,
            depth,
            cqn,
        })?;
        Ok(cq)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.soft.remove_cq(self.cqn);
    }
}
