// SPDX-License-Identifier: GPL-2.0

//! The wire: queue pairs whose peer is remote, by packets of RoCEv2.
//!
//! Requests are judged, keys checked, bytes placed and completions written by the same code as for
//! local peers; these files add all that packets need beyond that: cutting messages, sequence
//! numbers, acknowledgements, and retransmission (IBA volume 1, 9.7).
//!
//! [`requester`] sends requests and does so again, each [`request_packet`] if it may be sent;
//! [`completer`] takes the responses to them and ends them, and [`place`] puts their data where
//! they belong. [`responder`] takes requests of the peer and responds. Where packets were lost,
//! [`reorder`] buffers those behind them until they are in order, and [`retransmit`] sends only
//! what was lost. [`cnp`] reports marks to the peer. Of the unreliable services, [`uc`] and [`ud`]
//! are both sides. All state beyond that of a local queue pair is one
//! [`Wire`](crate::queue_pair::remote::state::Wire), of bounded size (less than 8 KiB) and
//! allocated with the queue pair.
//!
//! # Requests are read again
//!
//! A request stays in its slot of the ring until it has ended, and is copied out of it again when
//! its packets have to be sent again, or when data come back for it. The program may have written
//! the slot meanwhile. So the values that shape the packets (sequence numbers, opcode, flags,
//! length) are kept in a [`Record`](crate::queue_pair::remote::requester_state::Record) that no
//! program can reach; each copy is judged as the first one was, and one that does not fit its
//! record ends the queue pair's work with an error. Other differences (addresses, keys, data)
//! change the program's own message, as it could by changing the data.

mod assemble;
mod cnp;
mod completer;
pub(crate) mod frame;
mod place;
mod reorder;
mod request_packet;
mod requester;
mod responder;
mod retransmit;
pub(crate) mod rx_packet;
mod transmit;
pub(crate) mod uc;
pub(crate) mod ud;

use crate::{
    base::{
        attr::{
            QpType,
            State, //
        },
        counters::Count,
        event::{
            DropReason,
            Trace, //
        },
        host::{
            Host,
            Reorder, //
        },
    },
    packet::opcode::{
        Kind,
        Service, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        reorder::{
            release_requests,
            release_responses,
            retry_in_order, //
        },
        rx_packet::{
            RxPacket,
            Sound, //
        },
    },
};

/// A turn of a queue pair whose peer is remote: first responses, then requests. A peer that reads
/// without end would leave no turn to the requests, so they are first after a turn that has not
/// sent all responses.
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    let is_requester_first = qp.wire.is_requester_first && qp.wire.tx_blocked_until.is_none();
    let requests = is_requester_first.then(|| run_requester(qps, cx, qp));
    let responses = responder::run(qps, cx, qp);
    let is_due = responses == Next::Again || qp.wire.tx_blocked_until.is_some();
    qp.wire.is_requester_first = is_due && !is_requester_first;
    let next = match (responses, requests) {
        (Next::Idle, None) => run_requester(qps, cx, qp),
        (Next::Idle, Some(requests)) => requests,
        (Next::Again, _) => Next::Again,
    };
    set_timer(qps, qp);
    if qp.core.state == State::Err {
        return Next::Again;
    }
    next
}

/// The requester's part of a turn.
fn run_requester<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    if matches!(qp.core.state, State::Rts | State::Sqd) {
        requester::run(qps, cx, qp)
    } else {
        Next::Idle
    }
}

/// Arms the timer for the earliest deadline. The timer stays as it is when a deadline moves to a
/// later time, since a timer that fires too early does no harm.
fn set_timer<H: Host>(qps: &mut Qps<H>, qp: &Qp<H>) {
    if qp.core.state == State::Err {
        return;
    }
    let wire = &qp.wire;
    // A probe is sent no earlier than anything else.
    let probe = wire.requester.tlp.deadline;
    let probe = probe.filter(|_| !wire.is_paused());
    let dues = [
        wire.requester.congestion.paced(),
        wire.requester.ack_deadline,
        wire.requester.rnr_until,
        wire.tx_blocked_until,
        wire.absent_until,
        wire.requester.full_until,
        probe,
        wire.reorder_expires,
    ];
    // Never stands for what is not waited for: a comparison costs less than a branch.
    const NEVER: u64 = u64::MAX;
    let due = dues.map(|due| due.unwrap_or(NEVER));
    let due = due.into_iter().fold(NEVER, u64::min);
    if due != NEVER {
        qps.set_timer_before(qp.core.index(), due);
    }
}

/// The timer of a queue pair has fired.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.wire.absent_until.is_some_and(|until| until <= cx.now()) {
        retry_in_order(qps, cx, qp);
    }
    if qp
        .wire
        .reorder_expires
        .is_some_and(|until| until <= cx.now())
    {
        qp.wire.clear_reorder_buffers();
    }
    requester::timer_fired(qps, cx, qp);
    set_timer(qps, qp);
    qps.activate(qp.core.index());
}

/// Whether a reliable queue pair of this type may get such a packet. One side of XRC sends the
/// requests, and the other side the responses (annex A14).
#[inline]
fn may_get(qp_type: QpType, kind: Kind) -> bool {
    match qp_type {
        QpType::XrcIni => !kind.is_request(),
        QpType::XrcTgt => kind.is_request(),
        QpType::Rc | QpType::Uc | QpType::Ud => true,
        QpType::RawPacket => false,
    }
}

/// Judges a packet and hands it to the queue pair that it is for.
///
/// Nothing is placed before the invariant CRC has been found right.
pub(crate) fn receive<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, rx: &RxPacket<'_, H>) {
    let sound = match rx.judge() {
        Ok(sound) => sound,
        Err(reason) => {
            rx.count(cx.counters);
            return cx.drop_packet(rx.bth(), reason);
        }
    };
    let Sound {
        packet,
        from,
        to,
        is_marked,
    } = &sound;
    let bth = packet.bth();
    let info = packet.info();
    cx.host.trace(&Trace::PacketReceived {
        bth,
        length: rx.length() as u32,
    });
    if info.service == Service::Ud {
        let Some(deth) = packet.deth() else {
            sound.count(rx, cx.counters);
            return cx.drop_packet(bth, DropReason::Short);
        };
        return ud::receive(qps, cx, rx, &sound, deth);
    }
    let Some(mut qp) = qps.take(bth.dest_qp.get()) else {
        sound.count(rx, cx.counters);
        return cx.drop_packet(bth, DropReason::UnknownQueuePair);
    };
    cx.counters = cx.ports.of(qp.core.counted_at);
    sound.count(rx, cx.counters);
    cx.keys.asker = qp.core.asker();
    let is_of_peer = qp
        .core
        .remote_path()
        .is_some_and(|path| path.sgid == *to && path.dgid == *from);
    match (info.service, qp.core.init.qp_type) {
        (Service::Rc, QpType::Rc) | (Service::Xrc, QpType::XrcIni | QpType::XrcTgt)
            if is_of_peer && may_get(qp.core.init.qp_type, info.kind) =>
        {
            if *is_marked {
                qp.wire.marked(info.kind, cx.now());
            }
            if info.kind.is_request() {
                let before = qp.rq.psn;
                responder::receive(cx, &mut qp, packet, rx.packet, false);
                if qp.rq.psn != before && !qp.wire.responder.reorder.is_empty() {
                    release_requests(cx, &mut qp, before, bth.wants_acknowledge());
                }
            } else {
                let before = qp.wire.requester.snd_una;
                completer::receive(qps, cx, &mut qp, packet, rx.packet);
                if qp.wire.requester.snd_una != before && !qp.wire.completer.reorder.is_empty() {
                    release_responses(qps, cx, &mut qp);
                }
            }
            set_timer(qps, &qp);
            // Most packets of a long message lead to nothing that is to be sent.
            if !info.kind.is_request() || qp.wire.has_responses() {
                qps.activate(qp.core.index());
            }
        }
        (Service::Uc, QpType::Uc) if is_of_peer => {
            uc::receive(qps, cx, &mut qp, packet, rx.packet);
        }
        (Service::Congestion, QpType::Rc | QpType::XrcIni | QpType::XrcTgt) if is_of_peer => {
            cx.counters.congestion_notifications_handled.count(1);
            qp.wire.requester.congestion.on_mark();
        }
        // UC has no acknowledgements, and so no window.
        (Service::Congestion, QpType::Uc) if is_of_peer => (),
        _ => cx.drop_packet(bth, DropReason::Misdirected),
    }
    qps.put_back(qp);
}
