// SPDX-License-Identifier: GPL-2.0

//! The reorder buffers: out-of-order packets, one buffer for requests and one for responses.
//!
//! To a responder, an out-of-order packet is nothing but a sign of a loss (C9-113), and go-back-N
//! sends it again. Here it is buffered until the missing packet has come, and is then taken as if
//! the network had put all in order. A peer sees nothing new. It is told of the loss at once. If it
//! sends the missing packet alone and asks for an acknowledgement, one acknowledgement names all
//! that has come ([`last_coalescable`] says how much). If it goes back and sends all again, the
//! rest are duplicates.
//!
//! At most two windows of packets are released at once, and each cost next to nothing when it came.
//!
//! [`last_coalescable`]: crate::queue_pair::remote::responder_state::ResponderState::last_coalescable

use crate::{
    base::{
        attr::State,
        host::{
            Host,
            Reorder, //
        },
        psn, //
    },
    packet::Syndrome,
    queue_pair::{
        cx::Cx,
        qp::Qp,
        remote::state::{
            first_buffered,
            Wire, //
        },
        schedule::Qps, //
    },
    wire::{
        completer,
        responder,
        rx_packet::parse, //
    },
};

/// Packet `before`, which the responder expected, has come. Its copy in the buffer is dropped, the
/// responder takes the packets behind it, and a peer that asks gets an acknowledgement. `asks`:
/// packet `before` does.
#[cold]
pub(super) fn release_requests<H: Host>(
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    before: u32,
    asks: bool,
) {
    qp.wire.responder.reorder.remove(before);
    take_requests(cx, qp);
    acknowledge_taken(&mut qp.wire, before, asks);
    qp.wire.restart_reorder_timer(cx.now());
}

/// Acknowledges the buffered requests from `before` on that have been taken, if the peer `asks` or
/// one of them did.
fn acknowledge_taken<H: Host>(wire: &mut Wire<H>, before: u32, asks: bool) {
    let responder = &mut wire.responder;
    let from = match responder.pending_ack {
        // The end of a message has asked, and without a NAK the peer does not send it again.
        Some((asked, Syndrome::Acknowledge(_))) if responder.nak.is_none() => asked,
        Some((_, Syndrome::Acknowledge(_))) => before,
        None if asks => before,
        Some(_) | None => return,
    };
    // A buffered packet may have asked in vain when it came, and may not be sent again.
    let last_coalescable = responder
        .last_coalescable
        .filter(|&last_coalescable| !psn::is_ahead(from, last_coalescable));
    if let Some(last_coalescable) = last_coalescable {
        responder.pending_ack = Some((last_coalescable, Syndrome::Acknowledge(0)));
    }
}

/// The responder takes the buffered requests that are in order now.
fn take_requests<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    loop {
        let expected = qp.rq.psn;
        match first_buffered(&mut qp.wire.responder.reorder, expected) {
            Some(psn) if psn == expected => (),
            // Another packet is missing, perhaps. A peer that goes back sends that next, so the
            // responder does not report it before a packet behind it comes.
            _ => return,
        }
        let Some(bytes) = qp.wire.responder.reorder.remove(expected) else {
            return;
        };
        let Ok(packet) = parse::<H>(&bytes) else {
            return;
        };
        responder::receive(cx, qp, &packet, &bytes, true);
        // It was refused, or there is no receive request for it: it will come again if it may.
        if qp.rq.psn == expected {
            return;
        }
    }
}

/// The oldest packet that had not been acknowledged has been now. The completer takes the buffered
/// responses to the packets behind it.
#[cold]
pub(super) fn release_responses<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    take_responses(qps, cx, qp);
    qp.wire.restart_reorder_timer(cx.now());
}

/// Takes the packets that are in order, and waited for memory that was being brought in. If it
/// still is, they wait on, but no longer than for a missing packet: memory may never come.
#[cold]
pub(super) fn retry_in_order<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let (request, response) = (qp.rq.psn, qp.wire.requester.snd_una);
    qp.wire.absent_until = None;
    take_requests(cx, qp);
    take_responses(qps, cx, qp);
    let is_taken = qp.rq.psn != request;
    if is_taken {
        // The next page may take as long. So the peer is told how far this side has come, whether
        // it asks or not.
        acknowledge_taken(&mut qp.wire, request, true);
    }
    if is_taken || qp.wire.requester.snd_una != response {
        qp.wire.restart_reorder_timer(cx.now());
    }
}

/// The completer takes the buffered responses, as far as none is missing.
fn take_responses<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        let before = qp.wire.requester.snd_una;
        let Some(psn) = first_buffered(&mut qp.wire.completer.reorder, before) else {
            return;
        };
        let Some(bytes) = qp.wire.completer.reorder.remove(psn) else {
            return;
        };
        let Ok(packet) = parse::<H>(&bytes) else {
            return;
        };
        // If data before it are missing, the completer asks for them and buffers the packet once
        // more.
        completer::receive(qps, cx, qp, &packet, &bytes);
        if qp.wire.requester.snd_una == before {
            return;
        }
    }
}
