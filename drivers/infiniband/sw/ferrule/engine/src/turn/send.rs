// SPDX-License-Identifier: GPL-2.0

//! A turn of the send queue: takes send requests in order, sends each in segments, and waits for the response.
//!
//! No packet is made where the peer of a connection is a queue pair of the same engine. What a peer can observe is as
//! on the wire: sequence numbers, receiver not ready, refusals, silence, and the order of completions.

use crate::{
    base::{
        attr::{
            Mtu,
            PathKind,
            QpType,
            State, //
        },
        budget::Budget,
        counters::Count,
        host::Host,
        psn,
        rnr_timer,
        status::Status, //
    },
    memory::bind::BindError,
    operation::{
        accept,
        completion::complete_send,
        ending::{
            enter_error,
            enter_fatal_error,
            report_drained,
            retries_exhausted, //
        },
        local_wr::change_key,
        message::Response,
        uc_receive,
        unreliable::Unfinished, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        schedule::Qps,
        send_queue::{
            SendQueue,
            Taken,
            Wait, //
        },
    },
    turn::ud_send,
    wire, //
};

/// The most bytes of a message that are sent in one segment: a multiple of every path MTU.
const MAX_SEGMENT: u32 = 256 * 1024;

/// A turn of the send queue, in state RTS or SQD.
///
/// This is one function, and what is rare is none of it: a request goes from the ring to the peer's memory without
/// a call, so with few registers to be saved, and its code lies together.
#[inline(never)]
pub(crate) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        if qp.sq.wait != Wait::Nothing {
            return Next::Idle;
        }
        if cx.allowance.is_spent() {
            return Next::Again;
        }
        if !qp.sq.busy {
            if qp.core.state == State::Sqd {
                return Next::Idle;
            }
            match qp.sq.take(cx, &qp.core) {
                Taken::Request => cx.allowance.take_request(),
                Taken::Nothing => return Next::Idle,
                Taken::Malformed(status) => {
                    cx.allowance.take_request();
                    fail(qps, cx, qp, status);
                    continue;
                }
                Taken::Jump => {
                    cx.counters.producer_jumps.count(1);
                    enter_fatal_error(qps, cx, qp);
                    continue;
                }
            }
        }
        step(qps, cx, qp);
    }
    // In error the queues are flushed, in turns of their own.
    Next::Again
}

/// Sends one segment of the request at hand and does what the response says.
#[inline(always)]
fn step<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.sq.request.opcode.is_local() {
        return match change_key(cx, qp) {
            Ok(()) => succeed(qps, cx, qp),
            Err(BindError) => fail(qps, cx, qp, Status::WindowBind),
        };
    }
    match qp.core.init.qp_type {
        QpType::Rc => (),
        QpType::Uc => return step_unreliable(qps, cx, qp),
        QpType::Ud => return step_datagram(qps, cx, qp),
    }
    let length = segment_length(&qp.sq, qp.core.attr.path_mtu, cx.allowance.bytes);
    match deliver(qps, cx, qp, length) {
        Response::Acknowledge => {
            cx.allowance.take_bytes(length);
            acknowledge(qps, cx, qp, length);
        }
        Response::RnrNak(code) => receiver_not_ready(qps, cx, qp, code),
        Response::SequenceError => {
            // The peer expects an earlier packet. To send again is all there is to do, as often as
            // the attributes allow (C9-103, C9-139).
            if retries_exhausted(cx, qp) {
                fail(qps, cx, qp, Status::RetryExceeded);
            }
        }
        Response::None => {
            cx.counters.unanswered.count(1);
            qp.sq.wait = Wait::Acknowledgement;
            if let Some(timeout) = qp.core.attr.ack_timeout() {
                qps.set_timer(qp.core.index(), cx.now.saturating_add(timeout));
            }
        }
        Response::Nak(status) => fail(qps, cx, qp, status),
        Response::RequesterFault => fail(qps, cx, qp, Status::LocalProtection),
    }
}

/// The bytes of the next segment: as many as the turn allows, and whole packets but for the last.
#[inline]
fn segment_length(sq: &SendQueue, mtu: Mtu, allowed: u64) -> u32 {
    let rest = sq.request.length.wrapping_sub(sq.done);
    let allowed = allowed.min(u64::from(MAX_SEGMENT)) as u32;
    if rest <= allowed {
        return rest;
    }
    let whole = allowed & !mtu.bytes().wrapping_sub(1);
    rest.min(whole.max(mtu.bytes()))
}

/// Hands a segment of `length` bytes of the request at hand to a peer on the same engine, and brings the response.
#[inline(always)]
fn deliver<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, length: u32) -> Response {
    let Qp { core, sq, rq, .. } = qp;
    // Without a way to it, or by the wire, nothing comes here.
    let Some(PathKind::Local(vport)) = core.attr.path.map(|path| path.kind) else {
        return Response::None;
    };
    let mut message = sq.message(core, length);
    let (qp_type, own_vport) = (core.init.qp_type, core.init.vport);
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
    // A message counts where it is taken, which mostly is the sender's own virtual port.
    let own = cx.counters;
    if vport != own_vport {
        cx.counters = cx.ports.of(vport);
    }
    let response = match qp_type {
        QpType::Uc => uc_receive::receive(cx, core, rq, &mut message),
        QpType::Rc | QpType::Ud => accept::receive(cx, core, rq, &mut message),
    };
    cx.counters = own;
    if let Response::Nak(_) = response {
        core.set_state(cx.host, State::Err);
        let index = core.index();
        qps.stop(index);
    }
    response
}

/// Sends a segment of a message of an unreliable connection. Nobody answers: what was sent is done,
/// whatever became of it (IBA volume 1, 9.8.2.1).
#[inline(never)]
fn step_unreliable<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let mtu = qp.core.attr.path_mtu;
    if qp.core.remote_path().is_none() {
        let length = segment_length(&qp.sq, mtu, cx.allowance.bytes);
        if deliver(qps, cx, qp, length) == Response::RequesterFault {
            return fail(qps, cx, qp, Status::LocalProtection);
        }
        cx.allowance.take_bytes(length);
        return acknowledge(qps, cx, qp, length);
    }
    let length = segment_length(&qp.sq, mtu, mtu.bytes().into());
    let begin = qp.sq.cursor;
    match wire::uc::send(cx, qp, length) {
        Ok(()) => {
            cx.allowance.take_bytes(length.max(Budget::PACKET));
            acknowledge(qps, cx, qp, length);
        }
        Err(unsent) => {
            qp.sq.cursor = begin;
            give_up(qps, cx, qp, unsent.into());
        }
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

/// Gives the segment up, for good or for a while.
fn give_up<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, unfinished: Unfinished) {
    match unfinished {
        Unfinished::Failed(status) => fail(qps, cx, qp, status),
        Unfinished::Later(wait) => {
            qp.sq.wait = Wait::Host;
            qps.set_timer(qp.core.index(), cx.now.saturating_add(wait));
        }
    }
}

/// A segment arrived: the request has ended if it was the last.
#[inline(always)]
fn acknowledge<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, length: u32) {
    let Qp { core, sq, .. } = qp;
    sq.psn = psn::advance(sq.psn, psn::packets(length, core.attr.path_mtu));
    sq.done = sq.done.wrapping_add(length);
    sq.refill_retries(&core.attr);
    if sq.done == sq.request.length {
        succeed(qps, cx, qp);
    }
}

/// The request at hand has done what it should.
#[inline(always)]
fn succeed<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let Qp { core, sq, .. } = qp;
    let completed = complete_send(cx, core, sq, Status::Success);
    sq.finish();
    if completed.is_err() {
        enter_fatal_error(qps, cx, qp);
    } else if core.state == State::Sqd {
        report_drained(cx.host, core);
    }
}

/// The receiver had no receive request: try again after the time it asked for (C9-155, C9-157).
#[cold]
fn receiver_not_ready<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, code: u8) {
    cx.counters.receiver_not_ready.count(1);
    if !qp.sq.take_rnr_retry(&qp.core.attr) {
        return fail(qps, cx, qp, Status::RnrRetryExceeded);
    }
    qp.sq.wait = Wait::Receiver;
    qps.set_timer(
        qp.core.index(),
        cx.now.saturating_add(rnr_timer::nanoseconds(code)),
    );
}

/// The timer of a queue pair has fired: it tries again, if it may.
pub(crate) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    if qp.core.is_acknowledged() {
        return wire::timer_fired(qps, cx, qp);
    }
    let wait = core::mem::replace(&mut qp.sq.wait, Wait::Nothing);
    if wait == Wait::Acknowledgement && retries_exhausted(cx, qp) {
        fail(qps, cx, qp, Status::RetryExceeded);
    }
    qps.activate(qp.core.index());
}

/// The request at hand ends with an error, and so does the work of the send queue.
///
/// A queue pair of a connected, reliable service is in error then; of the others, only its send
/// queue is (IBA volume 1, 10.3.1 and 9.9.2.1).
#[cold]
fn fail<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) {
    let Qp { core, sq, .. } = qp;
    let completed = complete_send(cx, core, sq, status);
    sq.finish();
    if completed.is_err() {
        return enter_fatal_error(qps, cx, qp);
    }
    match core.init.qp_type {
        QpType::Rc => enter_error(qps, cx.host, core),
        // It may be in error by what it sent to itself.
        QpType::Uc | QpType::Ud if core.state == State::Err => (),
        QpType::Uc | QpType::Ud => {
            core.set_state(cx.host, State::Sqe);
            qps.activate(core.index());
        }
    }
}
