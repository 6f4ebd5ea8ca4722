// SPDX-License-Identifier: GPL-2.0

//! RDMA READ at the responder: bytes of this side's memory for the peer.

use crate::{
    base::{
        attr::Access,
        host::Host, //
    },
    memory::{
        carry::Carry,
        sgl::{
            Memory,
            Unreachable, //
        },
    },
    operation::message::{
        Message,
        Refusal,
        Response, //
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore, //
    },
};

/// Hands a segment of what the peer asks for to it.
pub(crate) fn execute<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    message: Message<'_, H>,
    way: &mut impl Carry<H>,
) -> Result<Response, Refusal> {
    if !core.attr.responds_to(Access::REMOTE_READ) {
        return Err(Refusal::InvalidRequest);
    }
    // Checked for the whole range before a byte is handed out, and again with every segment.
    let whole = message.remote(core, Access::REMOTE_READ);
    let source = Memory::opened(cx.keys, &whole, message.offset).ok_or(Refusal::Access)?;
    if message.is_packet() {
        return Ok(Response::Acknowledge);
    }
    let length = message.length;
    match way.carry(cx.keys, source, message.local(), length) {
        Ok(()) => Ok(Response::Acknowledge),
        Err(Unreachable::Absent) => Ok(Response::Absent),
        Err(Unreachable::Later) => Ok(Response::Later),
        Err(Unreachable::Source) => Err(Refusal::Access),
        Err(Unreachable::Target) => Ok(Response::RequesterFault),
    }
}
