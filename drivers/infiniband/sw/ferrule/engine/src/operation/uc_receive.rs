// SPDX-License-Identifier: GPL-2.0

//! The responder of unreliable connections: a packet that it cannot take is dropped, without a
//! response.

use crate::{
    base::{
        attr::State,
        counters::Count,
        event::DropReason,
        host::Host,
        status::Status, //
    },
    memory::copy::CopyWay,
    operation::{
        accept::accept,
        request_segment::{
            Refusal,
            RequestSegment,
            Response, //
        },
        unreliable::{
            drop_too_long,
            end_in_error,
            report_fatal, //
        },
    },
    queue_pair::{
        cx::Cx,
        qp_core::QpCore,
        receive_queue::ReceiveQueue, //
    },
};

/// Takes a segment of a message from a peer. Bytes that lie in memory on both sides go the `way`
/// that the requester says.
///
/// The caller moves the queue pair to error where the response is [`Response::Nak`], which the peer
/// does not get to know.
///
/// # Errors
///
/// Why the segment was dropped, which has been counted.
pub(crate) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    segment: RequestSegment<'_, H>,
    way: &mut impl CopyWay<H>,
) -> Result<Response, DropReason> {
    let ready = matches!(
        core.state,
        State::Rtr | State::Rts | State::Sqd | State::Sqe
    );
    if !ready || !core.is_connected(segment.from, segment.is_packet()) {
        let is_counted = segment.is_first || segment.is_packet();
        cx.counters.dropped.count(u64::from(is_counted));
        return Err(DropReason::NotReady);
    }
    if segment.psn != rq.psn {
        cx.counters.sequence_errors.count(1);
    }
    if segment.is_first {
        // A message that begins is taken with the number that it has, whatever was lost before it.
        // The unfinished message before it is dropped (C9-184 and following).
        rq.abandon();
        rq.psn = segment.psn;
    } else if segment.psn != rq.psn || !rq.is_within_message() {
        cx.counters.dropped.count(u64::from(segment.is_packet()));
        rq.abandon();
        rq.skip(segment.psn, segment.packets);
        return Err(DropReason::OutOfSequence);
    }
    rq.establish(cx, core);
    let reason = match accept(cx, core, rq, segment, way) {
        Ok(response @ (Response::Acknowledge | Response::Later)) => return Ok(response),
        Ok(Response::Absent) if !segment.is_packet() => return Ok(Response::Absent),
        Ok(Response::Absent) => DropReason::Absent,
        Ok(Response::RequesterFault) => {
            rq.abandon();
            return Ok(Response::RequesterFault);
        }
        Ok(Response::RnrNak(_)) => DropReason::NoReceive,
        Ok(_) | Err(Refusal::InvalidRequest | Refusal::Access) => DropReason::Refused,
        Err(Refusal::Broken) => {
            report_fatal(cx, core);
            return Ok(Response::Nak(Status::RemoteOperation));
        }
        Err(Refusal::Receive {
            local: Status::LocalLength,
            ..
        }) => DropReason::TooLong,
        Err(Refusal::Receive { local, remote }) => {
            // Moved to error whether that could be completed or not.
            let _ = end_in_error(cx, core, rq, local);
            return Ok(Response::Nak(remote));
        }
    };
    let is_broken = reason == DropReason::TooLong && drop_too_long(cx, core, rq).is_err();
    cx.counters.dropped.count(1);
    rq.abandon();
    rq.skip(segment.psn, segment.packets);
    if is_broken {
        return Ok(Response::Nak(Status::RemoteOperation));
    }
    Err(reason)
}
