// SPDX-License-Identifier: GPL-2.0

//! A turn of the send queue: takes send requests in order, sends each in segments, and waits for
//! the response.
//!
//! No packet is made where the peer of a connection is a queue pair of the same engine. A peer
//! observes the same as on the wire: sequence numbers, receiver not ready, refusals, silence, and
//! the order of completions.

use crate::{
    base::{
        attr::{
            QpType,
            State, //
        },
        counters::Count,
        host::{
            Host,
            Unsent, //
        },
        psn,
        status::Status, //
    },
    memory::{
        bind::BindError,
        copy::AtOnce,
        key_use::CheckedUse, //
    },
    operation::{
        completion::flush_send_queue,
        ending::{
            enter_fatal_error,
            report_drained,
            retries_exhausted, //
        },
        local_wr::{
            change_key,
            invalidate_own, //
        },
        request_segment::Response, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        schedule::Qps,
        send_queue::{
            Taken,
            Wait, //
        },
    },
    turn::{
        large,
        outcome::{
            acknowledged,
            fail,
            finish_request,
            give_up,
            not_acknowledged,
            sent,
            succeed, //
        },
        peer::{
            break_peer,
            Peer,
            SegmentSize, //
        },
        ud_send, //
    },
    wire, //
};

/// A turn of the send queue, in state RTS or SQD.
///
/// This is one function, without the rare steps: few registers have to be saved while a request
/// goes from the ring to the peer's memory, and the code of that lies together.
#[inline(never)]
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        match serve(qps, cx, qp) {
            Stop::Idle => return Next::Idle,
            Stop::Spent => return Next::Again,
            Stop::Malformed(status) => fail(qps, cx, qp, status),
            Stop::Jump => {
                cx.counters.producer_jumps.count(1);
                enter_fatal_error(qps, cx, qp);
            }
            Stop::Flush => match flush_send_queue(cx, qp) {
                Next::Again => return Next::Again,
                Next::Idle => {
                    qp.sq.wait = Wait::Nothing;
                    if qp.core.state == State::Sqd {
                        report_drained(cx.host, &qp.core);
                    }
                }
            },
            Stop::Overrun => enter_fatal_error(qps, cx, qp),
            Stop::KeyChange => match change_key(cx, qp) {
                Ok(()) => succeed(qps, cx, qp),
                Err(BindError) => fail(qps, cx, qp, Status::WindowBind),
            },
            Stop::NoPeer => match qp.core.init.qp_type {
                QpType::Uc => step_unreliable(qps, cx, qp),
                QpType::Ud => step_datagram(qps, cx, qp),
                QpType::RawPacket => step_frame(qps, cx, qp),
                QpType::Rc | QpType::XrcIni | QpType::XrcTgt => {
                    not_acknowledged(qps, cx, qp, Response::None)
                }
            },
            Stop::Large(checked) => large::step(qps, cx, qp, checked),
            Stop::Copied(length) => large::judge_again(qps, cx, qp, length),
            Stop::Response(response) => not_acknowledged(qps, cx, qp, response),
        }
    }
    // In error the queues are flushed, in turns of their own.
    Next::Again
}

/// Why requests do not simply go on, one after the other, to the peer of a reliable connection.
enum Stop {
    /// The queue is empty, or waits.
    Idle,
    /// The turn's budget is spent.
    Spent,
    /// The request at hand ends at once, with this status.
    Malformed(Status),
    /// The ring is broken.
    Jump,
    /// Requests are to be flushed before any is sent.
    Flush,
    /// The completion queue is full.
    Overrun,
    /// The request at hand changes a key.
    KeyChange,
    /// No peer on this engine acknowledges the request at hand: the service has no
    /// acknowledgements, or the peer is absent or not ready.
    NoPeer,
    /// The next segment has many bytes.
    Large(CheckedUse),
    /// A copy job has copied the next segment, which has so many bytes.
    Copied(u32),
    /// The peer has answered anything but an acknowledgement.
    Response(Response),
}

/// Sends the requests of a reliable connection, as long as each is acknowledged. So the peer is
/// looked up once.
#[inline(always)]
fn serve<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Stop {
    let Qp { core, sq, rq, .. } = qp;
    let mut peer = match core.init.qp_type {
        QpType::Rc | QpType::XrcIni => {
            Peer::find(qps, core, rq).filter(|peer| peer.core.answers(core.id.number, false))
        }
        QpType::Uc | QpType::Ud | QpType::XrcTgt | QpType::RawPacket => None,
    };
    match sq.wait {
        Wait::Nothing => (),
        Wait::Copied(length) => return Stop::Copied(length),
        Wait::Flush => return Stop::Flush,
        _ => return Stop::Idle,
    }
    loop {
        let mut checked = CheckedUse::NONE;
        if cx.allowance.is_spent() {
            return Stop::Spent;
        }
        if !sq.busy {
            if core.state == State::Sqd {
                return Stop::Idle;
            }
            match sq.take(cx, core) {
                Taken::Request(used) => {
                    checked = used;
                    cx.allowance.take_request();
                }
                Taken::Nothing => return Stop::Idle,
                Taken::Malformed(status) => {
                    cx.allowance.take_request();
                    return Stop::Malformed(status);
                }
                Taken::Jump => return Stop::Jump,
            }
        }
        if sq.request.opcode.is_local() {
            return Stop::KeyChange;
        }
        let Some(peer) = &mut peer else {
            return Stop::NoPeer;
        };
        let size = SegmentSize::next(sq, core.attr.path_mtu, cx.allowance.bytes);
        if large::is_large(cx.host, sq, size) {
            return Stop::Large(checked);
        }
        let response = peer.hand(cx, core, sq, size, checked, &mut AtOnce);
        if response != Response::Acknowledge {
            return Stop::Response(response);
        }
        cx.allowance.take_bytes(size.length);
        if !acknowledged(core, sq, size) {
            continue;
        }
        if invalidate_own(cx, core, &sq.request).is_err() {
            return Stop::Malformed(Status::WindowBind);
        }
        if finish_request(cx, core, sq).is_err() {
            return Stop::Overrun;
        }
    }
}

/// Sends a segment of a message of an unreliable connection. Nobody answers: a segment that was
/// sent is done, even if it gets lost (IBA volume 1, 9.8.2.1).
#[inline(never)]
fn step_unreliable<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let mtu = qp.core.attr.path_mtu;
    if qp.core.remote_path().is_none() {
        let size = SegmentSize::next(&qp.sq, mtu, cx.allowance.bytes);
        if large::is_large(cx.host, &qp.sq, size) && large::begin(qps, cx, qp, CheckedUse::NONE) {
            return;
        }
        let Qp { core, sq, rq, .. } = &mut *qp;
        let response = match Peer::find(qps, core, rq) {
            Some(mut peer) => peer.hand_unreliable(cx, core, sq, size, &mut AtOnce),
            None => Response::None,
        };
        if let Response::Nak(_) = response {
            break_peer(qps, cx, qp);
        }
        if response == Response::Absent {
            return give_up(qps, cx, qp, Unsent::Absent.into());
        }
        if response == Response::RequesterFault {
            return fail(qps, cx, qp, Status::LocalProtection);
        }
        cx.allowance.take_bytes(size.length);
        return sent(qps, cx, qp, size);
    }
    let size = SegmentSize::next(&qp.sq, mtu, mtu.bytes().into());
    match wire::uc::send(cx, qp, size.length) {
        Ok(()) => {
            cx.take_packet(size.length);
            sent(qps, cx, qp, size);
        }
        Err(unsent) => give_up(qps, cx, qp, unsent.into()),
    }
}

/// Sends the datagram at hand, which is done with that.
#[inline(never)]
fn step_datagram<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    match ud_send::send(qps, cx, qp) {
        Ok(()) => {
            qp.sq.psn = psn::advance(qp.sq.psn, 1);
            succeed(qps, cx, qp);
        }
        Err(unfinished) => give_up(qps, cx, qp, unfinished),
    }
}

/// Sends the frame at hand, which is done with that.
#[inline(never)]
fn step_frame<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    match wire::frame::send(cx, qp) {
        Ok(()) => succeed(qps, cx, qp),
        Err(unfinished) => give_up(qps, cx, qp, unfinished),
    }
}

/// The timer of a queue pair has fired: it tries again, if it may.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.core.is_acknowledged() {
        return wire::timer_fired(qps, cx, qp);
    }
    if matches!(qp.sq.wait, Wait::Copy | Wait::Copied(_) | Wait::Flush) {
        // The timer is of an earlier wait.
        return;
    }
    let wait = core::mem::replace(&mut qp.sq.wait, Wait::Nothing);
    if wait == Wait::Acknowledgement && retries_exhausted(cx, qp) {
        fail(qps, cx, qp, Status::RetryExceeded);
    }
    qps.activate(qp.core.index());
}
