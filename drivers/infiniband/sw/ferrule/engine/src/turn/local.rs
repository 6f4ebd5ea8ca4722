// SPDX-License-Identifier: GPL-2.0

//! Local delivery: the peer is a queue pair of the same engine, and no packet is made.
//!
//! What a peer can observe is as on the wire: sequence numbers, receiver not ready, refusals,
//! silence, and the order of completions.

use crate::{
    base::{
        attr::{
            PathKind,
            QpType,
            State, //
        },
        host::Host, //
    },
    operation::{
        accept,
        response::Response,
        uc_receive, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
};

/// Hands a segment of `length` bytes of the request at hand to the peer, and brings the response.
#[inline(always)]
pub(crate) fn deliver<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    length: u32,
) -> Response {
    let Qp { core, sq, rq, .. } = qp;
    // Without a way to it, or by the wire, nothing comes here.
    let Some(PathKind::Local(vport)) = core.attr.path.map(|path| path.kind) else {
        return Response::None;
    };
    let mut message = sq.message(core, length);
    let qp_type = core.init.qp_type;
    let peer = core.attr.dest_qpn;
    let (core, rq) = if peer == core.id.number {
        (core, rq)
    } else {
        let Some(peer) = qps.get_mut(peer) else {
            return Response::None;
        };
        (&mut peer.core, &mut peer.rq)
    };
    if core.init.qp_type != qp_type || core.init.vport != vport {
        return Response::None;
    }
    let response = match qp_type {
        QpType::Uc => uc_receive::receive(cx, core, rq, &mut message),
        QpType::Rc | QpType::Ud => accept::receive(cx, core, rq, &mut message),
    };
    if let Response::Nak(_) = response {
        core.set_state(cx.host, State::Err);
        let index = core.index();
        qps.stop(index);
    }
    response
}
