// SPDX-License-Identifier: GPL-2.0

//! RDMA READ at the responder: bytes of this side's memory for the peer.

use crate::{
    base::{
        attr::Access,
        host::Host, //
    },
    memory::{
        copy::{
            CopyWay,
            Unreachable, //
        },
        sgl::{
            OpenedMemory,
            Side, //
        },
    },
    operation::request_segment::{
        Refusal,
        RequestSegment,
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
    segment: RequestSegment<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Result<Response, Refusal> {
    if !core.attr.responds_to(Access::REMOTE_READ) {
        return Err(Refusal::InvalidRequest);
    }
    // Checked for the whole range before a byte is handed out, and again with every segment.
    let whole = segment.remote(core, Access::REMOTE_READ);
    let source = OpenedMemory::opened(cx.keys, &whole, segment.offset).ok_or(Refusal::Access)?;
    if segment.is_packet() {
        return Ok(Response::Acknowledge);
    }
    let length = segment.length;
    let pieces = source.piece(length).zip(cx.keys.piece(segment.checked()));
    if let Some((source, target)) = pieces {
        match way.copy_piece(cx.keys, source, target, length) {
            Ok(()) => return Ok(Response::Acknowledge),
            Err(Unreachable::Later) => return Ok(Response::Later),
            Err(_) => (),
        }
    }
    match way.copy(cx.keys, Side::Memory(source), segment.local(), length) {
        Ok(()) => Ok(Response::Acknowledge),
        Err(Unreachable::SourceAbsent | Unreachable::TargetAbsent) => Ok(Response::Absent),
        Err(Unreachable::Later) => Ok(Response::Later),
        Err(Unreachable::Source) => Err(Refusal::Access),
        Err(Unreachable::Target) => Ok(Response::RequesterFault),
    }
}
