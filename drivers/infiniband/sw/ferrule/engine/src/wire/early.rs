// SPDX-License-Identifier: GPL-2.0

//! Packets that come before one that is missing.
//!
//! To a responder they are nothing but a sign that something was lost (C9-113), and go-back-N has them
//! sent again. Here they are kept until what is missing has come, and are taken then, as if the network
//! had put all in order. A peer sees nothing new. It is told of the loss at once; if it sends but the one
//! packet again and asks, one acknowledgement tells it of what has come ([`plain`] says how much); if it
//! goes back and sends all again, the rest are duplicates.
//!
//! What is taken at once is no more than two windows, whose packets were nearly free when they came.
//!
//! [`plain`]: crate::queue_pair::remote::response::Responses::plain

use crate::{
    base::{
        attr::State,
        host::{
            Early,
            Host, //
        },
        psn, //
    },
    packet::Syndrome,
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        completer,
        kept::next,
        received::parse,
        responder, //
    },
};

/// The responder expected packet `before`. If that has come, a copy of it that was kept goes, what was kept
/// behind it is taken, and who asks is told of it. `asks`: packet `before` does.
#[inline]
pub(super) fn requests<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, before: u32, asks: bool) {
    if qp.rq.psn() != before && !qp.wire.responses.early.is_empty() {
        qp.wire.responses.early.take(before);
        take_requests(cx, qp);
        let wire = &mut qp.wire;
        let is_due = match wire.responses.answer {
            Some((_, Syndrome::Acknowledge(_))) => true,
            Some(_) => false,
            None => asks,
        };
        // What was kept may have asked in vain when it came, and may not be sent again.
        let plain = wire
            .responses
            .plain
            .filter(|&plain| !psn::is_ahead(before, plain));
        if let (Some(plain), true) = (plain, is_due) {
            wire.responses.answer = Some((plain, Syndrome::Acknowledge(0)));
        }
        wire.took(cx.now);
    }
}

#[cold]
fn take_requests<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    loop {
        let expected = qp.rq.psn();
        match next(&mut qp.wire.responses.early, expected) {
            Some(number) if number == expected => (),
            // Another packet is missing, perhaps. Who goes back sends that next, so it is not told before
            // something comes behind it.
            _ => return,
        }
        let Some(bytes) = qp.wire.responses.early.take(expected) else {
            return;
        };
        let Ok(packet) = parse::<H>(&bytes) else {
            return;
        };
        responder::receive(cx, qp, &packet, &bytes, true);
        // It was refused, or there is no receive request for it: it will come again if it may.
        if qp.rq.psn() == expected {
            return;
        }
    }
}

/// Packet `before` was the oldest that had not been acknowledged. If it has been now, what was kept of
/// answers to those behind it is taken.
#[inline]
pub(super) fn answers<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, before: u32) {
    if qp.wire.requester.unacknowledged != before && !qp.wire.completer.early.is_empty() {
        take_answers(qps, cx, qp);
        qp.wire.took(cx.now);
    }
}

#[cold]
fn take_answers<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        let before = qp.wire.requester.unacknowledged;
        let Some(number) = next(&mut qp.wire.completer.early, before) else {
            return;
        };
        let Some(bytes) = qp.wire.completer.early.take(number) else {
            return;
        };
        let Ok(packet) = parse::<H>(&bytes) else {
            return;
        };
        // If data before it are missing, they are asked for, and it is kept once more.
        completer::receive(qps, cx, qp, &packet, &bytes);
        if qp.wire.requester.unacknowledged == before {
            return;
        }
    }
}
