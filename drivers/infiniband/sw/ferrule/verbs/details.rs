// SPDX-License-Identifier: GPL-2.0

//! The details of objects that `rdma resource show -dd` shows: what the engine knows, and the core
//! does not.
//!
//! Anybody may see them, so there are no addresses: those of the kernel or of other programs would
//! help attackers.
//!
//! Names are those of the engine and of the verbs. Indices are free-running counters of 32 bits.

use kernel::prelude::*;
use rdma::details::{
    Details,
    Functions, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::Ferrule, //
};

/// The functions for the devices of a backend.
pub(super) const fn functions<B: Backend>() -> Functions<Ferrule<B>> {
    Functions {
        qp: qp::<B>,
        cq: cq::<B>,
        mr: mr::<B>,
        srq: srq::<B>,
    }
}

fn qp<B: Backend>(qp: &rdma::Qp<Ferrule<B>>, details: &mut Details<'_>) -> Result {
    let info = qp.commands().query_qp(qp.qpn())?;
    let (cap, attr) = (&info.cap, &info.attr);
    details.number(c"max_send_wr", cap.max_send_wr)?;
    details.number(c"max_send_sge", cap.max_send_sge)?;
    details.number(c"max_inline", cap.max_inline)?;
    details.number(c"sq_consumer", info.sq_consumer)?;
    details.number(c"max_recv_wr", cap.max_recv_wr)?;
    details.number(c"max_recv_sge", cap.max_recv_sge)?;
    details.number(c"rq_consumer", info.rq_consumer)?;
    details.bits(c"access", attr.access.0)?;
    details.number(c"timeout", attr.timeout.into())?;
    details.number(c"retry_cnt", attr.retry_cnt.into())?;
    details.number(c"rnr_retry", attr.rnr_retry.into())
}

fn cq<B: Backend>(cq: &rdma::Cq<Ferrule<B>>, details: &mut Details<'_>) -> Result {
    let info = cq.commands().query_cq(cq.cqn())?;
    details.number(c"depth", info.depth)?;
    details.number(c"producer", info.producer)?;
    details.number(c"consumer", info.consumer)?;
    details.number(c"overrun", info.overrun.into())
}

fn mr<B: Backend>(mr: &rdma::Mr<Ferrule<B>>, details: &mut Details<'_>) -> Result {
    let info = mr.commands().query_mr(mr.key())?;
    details.bits(c"access", info.region.access.bits())?;
    details.number(c"writable", info.writable.into())?;
    details.number(c"has_windows", info.has_windows.into())?;
    details.number(c"extents", info.extents)
}

fn srq<B: Backend>(srq: &rdma::Srq<Ferrule<B>>, details: &mut Details<'_>) -> Result {
    let info = srq.commands().query_srq(srq.number())?;
    details.number(c"max_wr", info.max_wr)?;
    details.number(c"max_sge", info.max_sge)?;
    details.number(c"limit", info.limit)
}
