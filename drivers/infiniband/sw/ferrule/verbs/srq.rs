// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use ferrule_engine::abi;
use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    mmap::{
        Entry,
        Protection, //
    },
    srq,
    wr::RecvRequests,
    UserCall, //
};

use crate::{
    backend::{
        object::SrqInit,
        ring::new_area,
        srq_posting::SrqPosting,
        Backend,
        Commands, //
    },
    verbs::{
        abi::CreateSrqResp,
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
    Program {
        /// The buffer that it has mapped.
        _buffer: Entry,
    },
    Kernel(Pin<KBox<SrqPosting>>),
}

impl<B: Backend> Srq<B> {
    /// The number by which the engine knows the queue.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl<B: Backend> srq::Operations for Srq<B> {
    type Driver = Ferrule<B>;

    fn create(
        new: &mut srq::New<'_, Ferrule<B>>,
        attr: &srq::Attr,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        if attr.max_wr == 0 || attr.max_wr > abi::MAX_QP_DEPTH || attr.max_sge > abi::MAX_SGE as u32
        {
            return Err(EINVAL);
        }
        let (ring, max_sge) = receive_ring(0, attr.max_wr, attr.max_sge);
        let ctrl = ring.depth * ring.stride;
        let size = ctrl as usize + size_of::<abi::SrqCtrl>();
        let buffer = new_area(size)?;
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
                (Producer::Program { _buffer: entry }, Some((user, answer)))
            }
            None => {
                let posting = SrqPosting::new(buffer.clone(), ring, max_sge, ctrl)?;
                (Producer::Kernel(posting), None)
            }
        };

        let commands = new.device().commands();
        let number = commands.add_srq(SrqInit {
            pd: new.pd().id(),
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
        new.set_sizes(ring.depth, max_sge);
        if let Some((user, answer)) = answer {
            user.respond(&answer)?;
        }
        Ok(srq)
    }

    fn modify(srq: &rdma::Srq<Ferrule<B>>, attr: &srq::ModifyAttr) -> Result {
        // The device does not say that it can resize (IBV_DEVICE_SRQ_RESIZE).
        if attr.max_wr.is_some() {
            return Err(EOPNOTSUPP);
        }
        match attr.limit {
            Some(limit) => srq.commands.set_srq_limit(srq.number, limit),
            None => Ok(()),
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
            Producer::Program { .. } => Err(EOPNOTSUPP),
        }
    }
}

impl<B: Backend> Drop for Srq<B> {
    fn drop(&mut self) {
        self.commands.remove_srq(self.number);
    }
}
