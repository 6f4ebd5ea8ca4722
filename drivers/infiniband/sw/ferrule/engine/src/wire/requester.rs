// SPDX-License-Identifier: GPL-2.0

//! The requester on the wire: takes requests in order, carries the local ones out, and has the
//! packets of the others sent, until there is nothing to be sent or that has to wait.
//!
//! If the requester has to wait and no packet in flight asks for an acknowledgement, it sends the
//! last packet again with AckReq set: when it first sent that packet it could not know that it
//! would wait.

use crate::{
    base::{
        abi,
        attr::{
            Mtu,
            State, //
        },
        counters::Count,
        event::RetryReason,
        host::Host,
        psn,
        status::Status, //
    },
    object::wr_opcode::WrOpcode,
    operation::{
        ending::{
            enter_fatal_error,
            retries_exhausted,
            trace_retry, //
        },
        local_wr::change_key, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        remote::requester_state::{
            Mark,
            Record,
            RequesterState,
            REQUESTS, //
        },
        schedule::Qps,
        send_queue::Taken, //
    },
    wire::{
        completer::{
            fail,
            retire, //
        },
        request_packet::{
            send,
            Step, //
        },
    },
};

/// A turn of the requester.
pub(super) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    loop {
        let next = send_pending(qps, cx, qp);
        let may_wait_in_vain = next == Next::Idle && !qp.wire.is_paused();
        let mtu = qp.core.attr.path_mtu;
        if !may_wait_in_vain || !request_ack(&mut qp.wire.requester, qp.sq.consumer(), mtu) {
            return next;
        }
    }
}

/// Sends until there is nothing to be sent, or the next packet has to wait.
fn send_pending<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        if qp.wire.is_paused() {
            return Next::Idle;
        }
        if cx.allowance.is_spent() {
            return Next::Again;
        }
        if qp.wire.requester.sending == qp.sq.consumer() {
            if qp.core.state == State::Sqd
                || qp.wire.requester.outstanding(qp.sq.consumer()) == REQUESTS
            {
                return Next::Idle;
            }
            match qp.sq.take(cx, &qp.core) {
                Taken::Nothing => return Next::Idle,
                Taken::Request(_) => {
                    cx.allowance.take_request();
                    record_request(qp, None);
                }
                Taken::Malformed(status) => {
                    cx.allowance.take_request();
                    record_request(qp, Some(status));
                }
                Taken::Jump => {
                    cx.counters.producer_jumps.count(1);
                    enter_fatal_error(qps, cx, qp);
                    continue;
                }
            }
        }
        match step(qps, cx, qp) {
            Step::Done => (),
            Step::Wait => return Next::Idle,
        }
    }
    Next::Again
}

/// Records the request that has just been taken.
fn record_request<H: Host>(qp: &mut Qp<H>, failed: Option<Status>) {
    let Qp { core, sq, wire, .. } = qp;
    let request = &sq.request;
    let index = request.index;
    let is_message = failed.is_none() && !request.opcode.is_local();
    let (packets, length) = match failed {
        Some(_) => (0, 0),
        None if is_message => (
            psn::packets(request.length, core.attr.path_mtu),
            request.length,
        ),
        None => (0, request.length),
    };
    if is_message {
        wire.requester.ssn = psn::advance(wire.requester.ssn, 1);
    }
    let record = Record {
        wr_id: request.slot.head.wr_id.get(),
        psn: sq.psn,
        packets,
        length,
        done: 0,
        ssn: wire.requester.ssn,
        opcode: WrOpcode::of(request.slot.head.opcode),
        flags: request.slot.head.flags,
        mark: Mark::None,
        failed,
    };
    if let Some(place) = wire.requester.record_mut(index) {
        *place = record;
    }
    wire.requester.loaded = Some(index);
    wire.requester.sending = index;
    wire.requester.offset = 0;
    sq.psn = record.end();
    sq.finish();
}

/// Goes one step on with the request at hand: mostly sends its next packet, if that may be sent
/// now.
fn step<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Step {
    let index = qp.wire.requester.sending;
    let Some(&record) = qp.wire.requester.record(index) else {
        return Step::Wait;
    };
    let is_oldest = index == qp.wire.requester.oldest;
    if let Some(status) = record.failed {
        // Requests that were begun before end first.
        if is_oldest {
            fail(qps, cx, qp, status);
            return Step::Done;
        }
        return Step::Wait;
    }
    // A registration that has been carried out is passed over when requests before it are sent
    // again.
    if record.is_registered() {
        qp.wire.requester.advance();
        return Step::Done;
    }
    if qp.wire.requester.loaded != Some(index) && !load(cx, qp, index, &record) {
        return Step::Done;
    }
    if record.is_local() {
        return execute_local(qps, cx, qp, &record);
    }
    send(cx, qp, &record)
}

/// Executes the local request that is at hand, if it may be now.
fn execute_local<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    record: &Record,
) -> Step {
    let index = qp.wire.requester.sending;
    let is_oldest = index == qp.wire.requester.oldest;
    // Requests before may still need the key that another one changes. A region opens nothing
    // before it is registered, so nobody needs its key, and the requests behind need not wait for a
    // round trip.
    let is_fenced = record.flags & abi::wr_flags::FENCE != 0;
    let may_be_early = qp.sq.request.opcode.may_be_early() && !is_fenced;
    if !is_oldest && !may_be_early {
        return Step::Wait;
    }
    let changed = change_key(cx, qp);
    if is_oldest {
        match changed {
            Ok(()) => retire(qps, cx, qp),
            Err(_) => fail(qps, cx, qp, Status::WindowBind),
        }
    } else if let Some(record) = qp.wire.requester.record_mut(index) {
        // Requests that were begun before end first.
        match changed {
            Ok(()) => record.mark = Mark::Registered,
            Err(_) => record.failed = Some(Status::WindowBind),
        }
    }
    Step::Done
}

/// Copies a request out of the ring again, and compares it with what is known of it. Returns
/// whether it is the same; if not, the request has failed, and its record says so.
fn load<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, index: u32, record: &Record) -> bool {
    let Qp { core, sq, wire, .. } = qp;
    match sq.reload(cx, core, index) {
        Ok(request)
            if Some(request.opcode) == record.opcode
                && request.slot.head.flags == record.flags
                && request.length == record.length =>
        {
            wire.requester.loaded = Some(index);
            true
        }
        changed => {
            let status = match changed {
                Err(status) => status,
                Ok(_) => Status::LocalOperation,
            };
            if let Some(record) = wire.requester.record_mut(index) {
                record.failed = Some(status);
            }
            false
        }
    }
}

/// The requester has to wait. If no packet in flight asks for an acknowledgement or has a response
/// with data, the last packet is sent again to ask, or else nothing would ever arrive. Returns
/// `true` if it is.
fn request_ack<H: Host>(requester: &mut RequesterState<H>, consumer: u32, mtu: Mtu) -> bool {
    let next = match requester.record(requester.sending) {
        _ if requester.sending == consumer => requester.snd_nxt,
        // Nothing is sent again of a request that has failed.
        Some(failed) if failed.failed.is_some() => failed.psn,
        Some(record) => requester.next_psn(record, mtu),
        None => return false,
    };
    let sent = psn::distance(requester.snd_una, next);
    if sent == 0
        || requester.retransmit.is_active()
        || psn::within(requester.ack_requested, requester.snd_una, sent)
    {
        return false;
    }
    let last = psn::before(next);
    let is_of = |record: &Record| psn::within(last, record.psn, record.packets);
    let mut index = requester.sending;
    while index == consumer || !requester.record(index).is_some_and(is_of) {
        if index == requester.oldest {
            return false;
        }
        index = index.wrapping_sub(1);
    }
    if requester.record(index).is_some_and(Record::has_response) {
        return false;
    }
    let position = requester.position();
    requester.seek(last, consumer, mtu);
    requester.retransmit.resume = Some(position);
    true
}

/// A timer has fired: some of the queue pair's deadlines may have passed.
pub(super) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let is_to_come = |until: &u64| *until > cx.now();
    let wire = &mut qp.wire;
    wire.requester.rnr_until = wire.requester.rnr_until.filter(is_to_come);
    wire.tx_blocked_until = wire.tx_blocked_until.filter(is_to_come);
    wire.requester.full_until = wire.requester.full_until.filter(is_to_come);
    wire.requester.congestion.timer_fired(cx.now());
    let probe = wire.requester.tlp.deadline;
    if probe.is_some_and(|deadline| deadline <= cx.now()) && !wire.is_paused() {
        cx.counters.probes.count(1);
        trace_retry(cx.host, qp, RetryReason::Probe);
        let wire = &mut qp.wire;
        let is_selective = wire.probe(qp.sq.consumer(), qp.core.attr.path_mtu);
        let requester = &mut wire.requester;
        requester
            .tlp
            .sent(cx.now(), requester.ack_deadline, is_selective);
    }
    if qp
        .wire
        .requester
        .ack_deadline
        .is_some_and(|ack_deadline| ack_deadline <= cx.now())
    {
        qp.wire.requester.ack_deadline = None;
        if qp.wire.requester.snd_una != qp.wire.requester.snd_nxt {
            cx.counters.unanswered.count(1);
            // Responses to packets that were sent before bring nothing new.
            qp.wire.completer.gap.reported = true;
            // All is sent again, if there are retries left (C9-139, C9-140).
            if retries_exhausted(cx, qp) {
                return fail(qps, cx, qp, Status::RetryExceeded);
            }
            trace_retry(cx.host, qp, RetryReason::Timeout);
            qp.wire.requester.congestion.on_timeout();
            qp.wire.go_back(qp.sq.consumer(), qp.core.attr.path_mtu);
        }
    }
}
