// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use ferrule_engine::{
    abi,
    SrqInit, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
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
    UserCall, //
};

use crate::{
    soft::{
        host::Buffer,
        Shared, //
    },
    verbs::{
        abi::CreateSrqResp,
        qp::receive_ring,
        Ferrule, //
    },
};

/// A shared receive queue. Dropping it takes the ring from the engine.
pub(crate) struct Srq {
    soft: Shared,
    number: u32,
    _buffer: Entry,
}

impl Srq {
    /// The number by which the engine knows the queue.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl srq::Operations for Srq {
    type Driver = Ferrule;

    fn create(
        new: &mut srq::New<'_, Ferrule>,
        attr: &srq::Attr,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        let user = user.ok_or(EOPNOTSUPP)?;
        if attr.max_wr == 0 || attr.max_wr > abi::MAX_QP_DEPTH || attr.max_sge > abi::MAX_SGE as u32
        {
            return Err(EINVAL);
        }
        let (ring, max_sge) = receive_ring(0, attr.max_wr, attr.max_sge);
        let ctrl = ring.depth * ring.stride;
        let size = ctrl as usize + size_of::<abi::SrqCtrl>();
        let buffer = Arc::new(SharedArea::new(size)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(buffer.clone(), Protection::ReadWrite)?;

        let soft = new.device().shared();
        let number = soft.add_srq(SrqInit {
            pd: new.pd().id(),
            max_sge,
            ring,
            ctrl,
            queue: Buffer::of_program(buffer),
            handle: new.notifier(),
        })?;
        let srq = Srq {
            soft,
            number,
            _buffer: entry,
        };
        new.set_sizes(ring.depth, max_sge);
        user.respond(&CreateSrqResp {
            buf_offset: srq._buffer.offset(),
            buf_size: srq._buffer.len() as u32,
            ring_offset: ring.offset,
            depth: ring.depth,
            stride: ring.stride,
            ctrl_offset: ctrl,
            ..Default::default()
        })?;
        Ok(srq)
    }

    fn modify(srq: &rdma::Srq<Ferrule>, attr: &srq::ModifyAttr) -> Result {
        // The device does not say that it can resize (IBV_DEVICE_SRQ_RESIZE).
        if attr.max_wr.is_some() {
            return Err(EOPNOTSUPP);
        }
        match attr.limit {
            Some(limit) => srq.soft.set_srq_limit(srq.number, limit),
            None => Ok(()),
        }
    }

    fn query(srq: &rdma::Srq<Ferrule>) -> Result<srq::Attr> {
        let info = srq.soft.query_srq(srq.number)?;
        Ok(srq::Attr {
            max_wr: info.max_wr,
            max_sge: info.max_sge,
            limit: info.limit,
        })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        self.soft.remove_srq(self.number);
    }
}
