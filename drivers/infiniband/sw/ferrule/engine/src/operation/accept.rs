// SPDX-License-Identifier: GPL-2.0

//! The rules of the responder, for memory and packets alike: judges what a peer sends, places it,
//! and says how the peer is to be answered.

use crate::{
    base::{
        attr::Access,
        counters::Count,
        event::QpEvent,
        host::{
            Fault,
            Host,
            PacketBytes,
            Region, //
        },
        psn,
        status::Status, //
    },
    memory::{
        copy::{
            CopyWay,
            Unreachable, //
        },
        key::Keys,
        key_use::Piece,
        sgl::{
            InPacket,
            OpenedMemory,
            PrivateBytes,
            Side, //
        },
    },
    object::{
        request::{
            remote_srq,
            NoReceive, //
        },
        wr_opcode::{
            Class,
            Extra,
            Receive, //
        },
    },
    operation::{
        atomic, atomic_write,
        completion::{
            complete_receive,
            complete_receive_in_error, //
        },
        flush, read,
        request_segment::{
            Refusal,
            RequestSegment,
            Response, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore,
        receive_queue::{
            Inbound,
            ReceiveQueue, //
        },
    },
};

/// Takes a segment of a message from a peer that this queue pair [answers](QpCore::answers). Bytes
/// that lie in memory on both sides go the `way` that the requester says.
///
/// The caller moves the queue pair to error where the response is [`Response::Nak`].
#[inline(always)]
pub(crate) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Response {
    if segment.psn != rq.psn {
        cx.counters.sequence_errors.count(1);
        // Ahead of the expected packet, others were lost: that is reported (C9-112). Behind, it
        // would be a packet that was seen before; no peer on this engine sends one twice, so the
        // two were given numbers that do not fit, and there is no response.
        return if psn::is_ahead(segment.psn, rq.psn) {
            Response::SequenceError
        } else {
            Response::None
        };
    }
    rq.establish(cx, core);
    let refusal = match accept(cx, core, rq, segment, way) {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    cx.counters.responder_errors.count(1);
    let handle = &core.init.handle;
    let (status, event) = match refusal {
        Refusal::InvalidRequest => (Status::RemoteInvalidRequest, Some(QpEvent::RequestError)),
        Refusal::Access => (Status::RemoteAccess, Some(QpEvent::AccessError)),
        Refusal::Broken => (Status::RemoteOperation, Some(QpEvent::Fatal)),
        Refusal::Receive { local, remote } => {
            // The completion tells the error, so no event does (IBA volume 1, 9.9.3.1, class A).
            let completed = complete_receive_in_error(cx, core, rq, local);
            rq.finish();
            (remote, completed.is_err().then_some(QpEvent::Fatal))
        }
    };
    if let Some(event) = event {
        cx.host.qp_event(handle, event);
    }
    Response::Nak(status)
}

/// Judges the segment, places its bytes and completes the receive request it may end.
#[inline(always)]
pub(crate) fn accept<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    mut segment: RequestSegment<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Result<Response, Refusal> {
    let facts = segment.opcode.facts();
    let kind = match facts.class {
        Class::Send => Inbound::Send,
        Class::Write => Inbound::Write,
        // A single packet asks for all of these, so that this side is never in the middle of one.
        Class::Read | Class::Atomic(_) | Class::AtomicWrite | Class::Flush => Inbound::Nothing,
        // The requester keeps these to itself.
        Class::Key(_) => return Err(Refusal::InvalidRequest),
    };
    // A message begins after the one before has ended, and goes on as it began (C9-87, table 33).
    let expected = if segment.is_first {
        Inbound::Nothing
    } else {
        kind
    };
    if rq.inbound != expected {
        return Err(Refusal::InvalidRequest);
    }
    segment.pd = if core.init.qp_type.is_target() {
        enter_srq(cx, core, rq, segment)?
    } else {
        core.init.pd
    };
    let response = match kind {
        Inbound::Send | Inbound::Write => place(cx, core, rq, segment, kind, way)?,
        Inbound::Nothing => execute(cx, core, rq, segment, way)?,
    };
    if response != Response::Acknowledge {
        return Ok(response);
    }
    rq.psn = psn::advance(rq.psn, segment.packets);
    cx.counters.bytes.count(u64::from(segment.length));
    segment.count_taken(cx.counters);
    if !segment.is_last {
        rq.inbound = kind;
        return Ok(response);
    }
    rq.inbound = Inbound::Nothing;
    if facts.extra == Extra::Invalidate {
        // The data have been placed. If the key stays valid, the receiver has to know that
        // (IBA volume 1, 9.9.3.1, class J).
        let key = u32::from_le_bytes(segment.head.imm_or_inv);
        cx.keys
            .invalidate_by_peer(segment.pd, core.id, key)
            .map_err(|_| Refusal::Receive {
                local: Status::RemoteInvalidRequest,
                remote: Status::RemoteAccess,
            })?;
    }
    cx.counters.messages.count(1);
    // A receive request may be at hand that another message has left.
    if facts.receive != Receive::None {
        let completed = complete_receive(cx, core, rq, segment);
        rq.finish();
        completed.map_err(|_| Refusal::Broken)?;
    }
    Ok(response)
}

/// Carries out a request that is answered by a response of its own.
#[inline(never)]
fn execute<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Result<Response, Refusal> {
    match segment.opcode.facts().class {
        Class::Read => read::execute(cx, core, segment, way),
        Class::Atomic(operation) => atomic::execute(cx, core, rq, segment, operation),
        Class::AtomicWrite => atomic_write::execute(cx, core, segment),
        Class::Flush => flush::execute(cx, core, segment),
        // `accept` has refused the last, and places the others.
        Class::Send | Class::Write | Class::Key(_) => Err(Refusal::InvalidRequest),
    }
}

/// Goes to the shared receive queue that a request over XRC names, which is one of the XRC domain
/// and the same for all of a message (annex A14). Returns its protection domain, by which keys are
/// judged.
#[inline(never)]
fn enter_srq<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
) -> Result<u32, Refusal> {
    let srq = remote_srq(segment.head, segment.opcode);
    let pd = core.remote_pd(cx.srqs, srq);
    let pd = pd.ok_or(Refusal::InvalidRequest)?;
    if srq != rq.srq {
        if !segment.is_first {
            return Err(Refusal::InvalidRequest);
        }
        // A request stays at hand when its sender could not read the message any more. It cannot go
        // back to its queue.
        if rq.busy {
            let completed = complete_receive_in_error(cx, core, rq, Status::Flushed);
            rq.finish();
            completed.map_err(|_| Refusal::Broken)?;
        }
        rq.srq = srq;
    }
    Ok(pd)
}

/// Places the bytes of a segment of a SEND or an RDMA WRITE.
#[inline(always)]
fn place<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    kind: Inbound,
    way: &mut impl CopyWay<H>,
) -> Result<Response, Refusal> {
    let length = segment.total;
    if kind == Inbound::Write && !core.attr.access.allows(Access::REMOTE_WRITE) {
        return Err(Refusal::InvalidRequest);
    }
    let takes_receive = match segment.opcode.facts().receive {
        Receive::First => segment.is_first,
        Receive::Last => segment.is_last,
        Receive::None => false,
    };
    if takes_receive {
        match rq.take(cx, core) {
            Ok(()) => (),
            Err(NoReceive::Empty) => return Ok(Response::RnrNak(core.attr.min_rnr_timer)),
            Err(NoReceive::Malformed(local)) => {
                return Err(Refusal::Receive {
                    local,
                    remote: Status::RemoteOperation,
                });
            }
            Err(NoReceive::Jump) => return Err(Refusal::Broken),
        }
    }
    // Where the bytes belong, if that is in one piece.
    let target = match kind {
        Inbound::Send => {
            if !rq.fits(length) {
                // The message is longer than the buffer for it (C9-97 and following).
                return Err(Refusal::Receive {
                    local: Status::LocalLength,
                    remote: Status::RemoteInvalidRequest,
                });
            }
            rq.target(segment.offset).piece(cx.keys, segment.length)
        }
        Inbound::Write | Inbound::Nothing => {
            let memory = named_memory(cx.keys, core, segment).ok_or(Refusal::Access)?;
            memory.piece(segment.length)
        }
    };
    if let Some(target) = target {
        match copy_piece(cx.keys, segment, target, way) {
            Ok(()) => return Ok(Response::Acknowledge),
            Err(Unreachable::Later) => return Ok(Response::Later),
            Err(_) => (),
        }
    }
    match copy(cx.keys, core, rq, segment, kind, way) {
        Ok(()) => Ok(Response::Acknowledge),
        Err(Unreachable::SourceAbsent | Unreachable::TargetAbsent) => Ok(Response::Absent),
        Err(Unreachable::Later) => Ok(Response::Later),
        Err(Unreachable::Source) => Ok(Response::RequesterFault),
        Err(Unreachable::Target) if kind == Inbound::Send => {
            // The buffer of the receive request is not what it should be (C9-99, class A).
            Err(Refusal::Receive {
                local: Status::LocalProtection,
                remote: Status::RemoteOperation,
            })
        }
        Err(Unreachable::Target) => Err(Refusal::Access),
    }
}

/// The memory that a WRITE names. It is checked for the whole range before a byte is placed, and
/// again with every segment, for the region may have been deregistered since.
#[inline(always)]
fn named_memory<'k, H: Host>(
    keys: &'k Keys<H>,
    core: &QpCore<H>,
    segment: RequestSegment<'_, H>,
) -> Option<OpenedMemory<'k, H>> {
    let whole = segment.remote(core, Access::REMOTE_WRITE);
    OpenedMemory::opened(keys, &whole, segment.offset)
}

/// Copies the bytes of a segment that lie in one piece on both sides, as those of most do. The one
/// copy for all kinds of segments keeps the code of short messages small.
///
/// # Errors
///
/// As [`CopyWay::copy_piece`], also if they do not. Some of the bytes may have been copied.
#[inline(always)]
fn copy_piece<H: Host>(
    keys: &Keys<H>,
    segment: RequestSegment<'_, H>,
    target: Piece<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Result<(), Unreachable> {
    if !segment.checked().is_none() {
        let source = keys.piece(segment.checked()).ok_or(Unreachable::Source)?;
        return way.copy_piece(keys, source, target, segment.length);
    }
    // These have no other way.
    let (to, to_offset) = (target.region, target.offset);
    let length = segment.length as usize;
    match segment.local() {
        Side::Private(PrivateBytes(bytes)) => {
            let bytes = bytes.get(..length).ok_or(Unreachable::Source)?;
            to.write(to_offset, bytes)
        }
        Side::Packet(InPacket { packet, offset }) => packet.copy(offset, to, to_offset, length),
        Side::List(_) | Side::Memory(_) => Err(Fault),
    }
    .map_err(|_| Unreachable::Target)
}

/// Copies the bytes of a segment the `way` that they go.
///
/// # Errors
///
/// As [`CopyWay::copy`].
#[inline(never)]
fn copy<H: Host>(
    keys: &Keys<H>,
    core: &QpCore<H>,
    rq: &ReceiveQueue,
    segment: RequestSegment<'_, H>,
    kind: Inbound,
    way: &mut impl CopyWay<H>,
) -> Result<(), Unreachable> {
    let target = if kind == Inbound::Send {
        Side::List(rq.target(segment.offset))
    } else {
        Side::Memory(named_memory(keys, core, segment).ok_or(Unreachable::Target)?)
    };
    way.copy(keys, segment.local(), target, segment.length)
}
