// SPDX-License-Identifier: GPL-2.0

//! The responder of unreliable connections: what cannot be taken is dropped, without a response.

use crate::{
    base::{
        attr::State,
        counters::Count,
        host::Host,
        status::Status, //
    },
    operation::{
        accept::{
            accept,
            is_from_peer, //
        },
        message::{
            Message,
            Refusal,
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

/// Takes a segment of a message from a peer.
///
/// The caller moves the queue pair to error where the response is [`Response::Nak`], which the peer
/// does not get to know.
pub(crate) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    message: &mut Message<'_, H>,
) -> Response {
    let ready = matches!(
        core.state,
        State::Rtr | State::Rts | State::Sqd | State::Sqe
    );
    if !ready || !is_from_peer(core, message) {
        let is_counted = message.is_first || message.is_packet();
        cx.counters.dropped.count(u64::from(is_counted));
        return Response::None;
    }
    if message.psn != rq.psn() {
        cx.counters.sequence_errors.count(1);
    }
    if message.is_first {
        // Whatever was lost before, a message that begins is taken with the number that it has, and
        // what was left of the one before is dropped (C9-184 and following).
        rq.abandon();
        rq.set_psn(message.psn);
    } else if message.psn != rq.psn() || !rq.is_within_message() {
        cx.counters.dropped.count(u64::from(message.is_packet()));
        rq.abandon();
        rq.skip(message.psn, message.packets);
        return Response::None;
    }
    if core.state == State::Rtr {
        rq.establish(cx, core);
    }
    let dropped = match accept(cx, core, rq, message) {
        Ok(Response::Acknowledge) => return Response::Acknowledge,
        Ok(Response::RequesterFault) => {
            rq.abandon();
            return Response::RequesterFault;
        }
        Ok(_) | Err(Refusal::InvalidRequest | Refusal::Access) => Ok(()),
        Err(Refusal::Broken) => {
            report_fatal(cx, core);
            return Response::Nak(Status::RemoteOperation);
        }
        Err(Refusal::Receive {
            local: Status::LocalLength,
            ..
        }) => drop_too_long(cx, core, rq),
        Err(Refusal::Receive { local, remote }) => {
            // Moved to error whether that could be completed or not.
            let _ = end_in_error(cx, core, rq, local);
            return Response::Nak(remote);
        }
    };
    cx.counters.dropped.count(1);
    rq.abandon();
    rq.skip(message.psn, message.packets);
    match dropped {
        Ok(()) => Response::None,
        Err(_) => Response::Nak(Status::RemoteOperation),
    }
}
