// SPDX-License-Identifier: GPL-2.0

//! The requester on the wire: cuts requests into packets, and sends again what was lost.

use crate::{
    base::{
        abi,
        attr::State,
        budget::Budget,
        counters::Count,
        host::{
            Host,
            Sends,
            Unsent, //
        },
        psn,
        status::Status, //
    },
    memory::sgl::{
        PrivateBytes,
        Side, //
    },
    object::opcode::Opcode,
    operation::{
        ending::{
            enter_fatal_error,
            retries_exhausted, //
        },
        local_wr::change_key, //
    },
    packet::{
        self,
        opcode::Position,
        Bth, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        remote::{
            record::{
                Mark,
                Record, //
            },
            requester_state::REQUESTS,
            responder_state::SPAN, //
        },
        schedule::Qps,
        send_queue::Taken, //
    },
    wire::{
        headers::headers,
        retire::{
            fail,
            retire, //
        },
        transmit::{
            bth,
            transmit, //
        },
    },
};

/// A turn of the requester.
pub(super) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    loop {
        let next = send_pending(qps, cx, qp);
        let may_wait_in_vain = next == Next::Idle && !qp.wire.is_paused();
        let mtu = qp.core.attr.path_mtu;
        if !may_wait_in_vain || !qp.wire.request_ack(qp.sq.consumer(), mtu) {
            return next;
        }
    }
}

/// Sends until there is nothing to be sent, or what is to be sent has to wait.
fn send_pending<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    while matches!(qp.core.state, State::Rts | State::Sqd) {
        if qp.wire.is_paused() {
            return Next::Idle;
        }
        if cx.allowance.is_spent() {
            return Next::Again;
        }
        if qp.wire.requester.sending == qp.sq.consumer() {
            if qp.core.state == State::Sqd || qp.wire.outstanding(qp.sq.consumer()) == REQUESTS {
                return Next::Idle;
            }
            match qp.sq.take(cx, &qp.core) {
                Taken::Nothing => return Next::Idle,
                Taken::Request => {
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
            Step::Sent => (),
            Step::Wait => return Next::Idle,
        }
    }
    Next::Again
}

/// Records the request that has just been taken.
fn record_request<H: Host>(qp: &mut Qp<H>, failed: Option<Status>) {
    let Qp { core, sq, wire, .. } = qp;
    let request = sq.request();
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
        wr_id: request.head.wr_id.get(),
        psn: sq.psn(),
        packets,
        length,
        done: 0,
        ssn: wire.requester.ssn,
        opcode: Opcode::of(request.head.opcode),
        flags: request.head.flags,
        mark: Mark::None,
        failed,
    };
    if let Some(place) = wire.record_mut(index) {
        *place = record;
    }
    wire.requester.loaded = Some(index);
    wire.requester.sending = index;
    wire.requester.offset = 0;
    sq.set_psn(record.end());
    sq.finish();
}

/// What came of a step.
enum Step {
    Sent,
    Wait,
}

/// Sends the next packet, if it may be sent now.
fn step<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Step {
    let index = qp.wire.requester.sending;
    let Some(&record) = qp.wire.record(index) else {
        return Step::Wait;
    };
    let is_oldest = index == qp.wire.requester.oldest;
    if let Some(status) = record.failed {
        // What was begun before ends first.
        if is_oldest {
            fail(qps, cx, qp, status);
            return Step::Sent;
        }
        return Step::Wait;
    }
    // What is sent again before it does not register its region again.
    if record.is_registered() {
        qp.wire.advance();
        return Step::Sent;
    }
    if qp.wire.requester.loaded != Some(index) && !load(cx, qp, index, &record) {
        return Step::Sent;
    }
    if record.is_local() {
        return execute_local(qps, cx, qp, &record);
    }
    // A packet that is retransmitted alone has been sent before, and waits for nothing.
    let is_selective = qp.wire.requester.retransmit.is_active();
    if !is_selective && (!qp.wire.requester.congestion.may_send(cx.now) || !may_send(qp, &record)) {
        return Step::Wait;
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
    // Requests before may still need the key that another one changes. A region opens nothing before it
    // is registered, so nobody needs its key, and the requests behind need not wait for a round trip.
    let is_fenced = record.flags & abi::wr_flags::FENCE != 0;
    let may_be_early = qp.sq.request().opcode.may_be_early() && !is_fenced;
    if !is_oldest && !may_be_early {
        return Step::Wait;
    }
    let changed = change_key(cx, qp);
    if is_oldest {
        match changed {
            Ok(()) => retire(qps, cx, qp),
            Err(_) => fail(qps, cx, qp, Status::WindowBind),
        }
    } else if let Some(record) = qp.wire.record_mut(index) {
        // What was begun before ends first.
        match changed {
            Ok(()) => record.mark = Mark::Registered,
            Err(_) => record.failed = Some(Status::WindowBind),
        }
    }
    Step::Sent
}

/// Copies a request out of the ring again, and compares it with what is known of it.
fn load<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, index: u32, record: &Record) -> bool {
    let Qp { core, sq, wire, .. } = qp;
    match sq.reload(cx, core, index) {
        Ok(request)
            if Some(request.opcode) == record.opcode
                && request.head.flags == record.flags
                && request.length == record.length =>
        {
            wire.requester.loaded = Some(index);
            let offset = wire.requester.offset;
            let (request, cursor) = sq.current();
            cursor.seek(request.entries(), offset);
            true
        }
        changed => {
            let status = match changed {
                Err(status) => status,
                Ok(_) => Status::LocalOperation,
            };
            if let Some(record) = wire.record_mut(index) {
                record.failed = Some(status);
            }
            false
        }
    }
}

/// Whether the next packet of a request may be sent now.
fn may_send<H: Host>(qp: &Qp<H>, record: &Record) -> bool {
    let Qp { core, sq, wire, .. } = qp;
    let index = wire.requester.sending;
    // Of the request whose first packets have been acknowledged, none is before it.
    let before = if index == wire.requester.oldest {
        0
    } else {
        psn::distance(wire.requester.snd_una, record.psn)
    };
    if record.has_response_data() || record.flags & abi::wr_flags::FENCE != 0 {
        let mut open = 0u8;
        let mut other = wire.requester.oldest;
        while other != index {
            let data = wire.record(other).is_some_and(Record::has_response_data);
            open = open.saturating_add(u8::from(data));
            other = other.wrapping_add(1);
        }
        // No more than the responder has resources for (IBA volume 1, 9.4.4); behind a fence, none
        // (10.8.3.3).
        let limit = if record.flags & abi::wr_flags::FENCE != 0 {
            1
        } else {
            core.attr.max_rd_atomic
        };
        if open >= limit {
            return false;
        }
    }
    // Part of a read that is asked for again comes before the next part is.
    if wire.requester.is_part_sent {
        return false;
    }
    // The window must have room for all the data of a read, too. One that is larger is asked for in
    // parts, when all before it has ended.
    if record.has_response_data()
        && index != wire.requester.oldest
        && (record.packets > wire.requester.congestion.window()
            || psn::distance(wire.requester.snd_una, record.end()) > wire.send_window())
    {
        return false;
    }
    // Sequence numbers in use are never so many that older and newer ones look alike.
    if before != 0 && wire.requester.offset == 0 && before.saturating_add(record.packets) >= SPAN {
        return false;
    }
    let sent = wire
        .requester
        .offset
        .wrapping_shr(core.attr.path_mtu.shift());
    let next = psn::advance(record.psn, sent);
    if !record.has_response_data()
        && psn::distance(wire.requester.snd_una, next) >= wire.send_window()
    {
        return false;
    }
    // Beyond the receive requests that the responder has reported, only one packet of one message
    // is sent, to learn more (IBA volume 1, 9.7.7.2). When it has been acknowledged, there was a
    // receive request for the message.
    !wire.exceeds_credits(record, sq.request().opcode)
        || if wire.requester.offset == 0 {
            wire.requester.snd_una == record.psn
        } else {
            wire.requester.snd_una != record.psn && index == wire.requester.oldest
        }
}

/// Sends the next packet of the request at hand.
fn send<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, record: &Record) -> Step {
    let Qp { core, sq, wire, .. } = qp;
    let mtu = core.attr.path_mtu;
    let opcode = sq.request().opcode;
    let is_data_back = record.has_response_data();
    let (length, position) = if is_data_back {
        (0, Position::Only)
    } else {
        let rest = record.length.wrapping_sub(wire.requester.offset);
        let length = rest.min(mtu.bytes());
        (
            length,
            Position::of(wire.requester.offset == 0, length == rest),
        )
    };
    let psn = wire.next_psn(record, mtu);
    // No more of a read is asked for at once than the window has room for: the responder knows none,
    // and would flood whatever is between. It goes on where the response ended or broke off.
    let is_selective = wire.requester.retransmit.is_active();
    let range = if record.is_read() {
        let rest = record.length.wrapping_sub(record.done);
        let part = if is_selective {
            rest
        } else {
            rest.min(wire.requester.congestion.window().wrapping_shl(mtu.shift()))
        };
        let until = record.done.wrapping_add(part);
        let until = wire.requester.part.unwrap_or(until);
        (
            record.done,
            until.min(wire.requester.retransmit.read_end(record, mtu.shift())),
        )
    } else {
        (0, record.length)
    };
    let mut base = bth(core, opcode.packet(position), psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    // An acknowledgement is asked for when nothing follows for the present, or what follows waits for
    // it or sends nothing, and often enough that the window does not run dry; also of the message that
    // takes the last credit, and of the one packet by which more are to be learned. A window that is
    // full waits for one that was asked for before, or else it would have every packet acknowledged from
    // then on.
    wire.requester.since_ack_request = wire.requester.since_ack_request.saturating_add(1);
    let is_last = position.ends() && !sq.is_followed(core);
    let ahead = psn::distance(wire.requester.snd_una, psn);
    let is_window_full = ahead.saturating_add(1) >= wire.send_window()
        && !psn::within(wire.requester.ack_requested, wire.requester.snd_una, ahead);
    let exceeds_credits = wire.exceeds_credits(record, opcode);
    let takes_last_credit =
        position.ends() && opcode.takes_receive() && wire.requester.lsn == Some(record.ssn);
    if is_last
        || is_window_full
        || exceeds_credits
        || takes_last_credit
        || is_selective
        || wire.requester.since_ack_request >= wire.requester.congestion.window() / 4
        || (position.ends() && wire.outstanding(sq.consumer()) % (REQUESTS / 4) == 0)
    {
        base.acknowledge = Bth::ACK_REQ;
    }
    let (request, cursor) = sq.current();
    let headers = headers(&request.head, opcode, range, base, position);
    let saved = *cursor;
    let payload = if is_data_back {
        Side::Private(PrivateBytes(&[]))
    } else {
        request.side(core.init.pd, wire.requester.offset, cursor)
    };
    let kind = Sends::Requests;
    match transmit(cx, core, kind, &mut wire.route, headers, payload, length) {
        Ok(()) => (),
        Err(unsent) => {
            *cursor = saved;
            if unsent != Unsent::Fault {
                wire.block_tx(kind, unsent, cx.now);
                return Step::Wait;
            }
            // The program's own memory cannot be read; what was begun before ends first.
            let sending = wire.requester.sending;
            if let Some(record) = wire.record_mut(sending) {
                record.failed = Some(Status::LocalProtection);
            }
            return Step::Sent;
        }
    }
    if base.wants_acknowledge() {
        wire.requester.since_ack_request = 0;
        wire.requester.ack_requested = psn;
    }
    cx.allowance.take_bytes(length.max(Budget::PACKET));
    let next = if record.is_read() {
        psn::advance(record.psn, psn::packets(range.1, mtu))
    } else {
        psn::advance(psn, 1)
    };
    let is_new = psn::is_ahead(next, wire.requester.snd_nxt);
    if base.wants_acknowledge() || is_data_back {
        wire.requester.tlp.start_sample(psn, cx.now, !is_new);
    }
    wire.requester.congestion.sent(cx.now);
    if record.is_read() && (!is_new || range != (0, record.length)) {
        let sending = wire.requester.sending;
        if let Some(record) = wire.record_mut(sending) {
            record.mark = Mark::Parted;
        }
    }
    if is_new {
        wire.requester.snd_nxt = next;
        // To the responder, each part of a read is a message.
        if range.0 != 0 {
            wire.requester.ssn = psn::advance(wire.requester.ssn, 1);
        }
    }
    if wire.requester.ack_deadline.is_none() {
        wire.start_ack_timer(core, cx.now);
    }
    if wire.end_retransmit(Some(psn)) {
        return Step::Sent;
    }
    if range.1 != record.length {
        wire.requester.part = Some(range.1);
        wire.requester.is_part_sent = true;
    }
    if position.ends() && range.1 == record.length {
        wire.advance();
    } else if !is_data_back {
        wire.requester.offset = wire.requester.offset.wrapping_add(length);
    }
    Step::Sent
}

/// What is waited for may be due.
pub(super) fn timer_fired<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let is_to_come = |until: &u64| *until > cx.now;
    let wire = &mut qp.wire;
    wire.requester.rnr_until = wire.requester.rnr_until.filter(is_to_come);
    wire.tx_blocked_until = wire.tx_blocked_until.filter(is_to_come);
    wire.requester.full_until = wire.requester.full_until.filter(is_to_come);
    wire.requester.congestion.timer_fired(cx.now);
    let probe = wire.requester.tlp.deadline;
    if probe.is_some_and(|deadline| deadline <= cx.now) && !wire.is_paused() {
        cx.counters.probes.count(1);
        let is_selective = wire.probe(qp.sq.consumer(), qp.core.attr.path_mtu);
        wire.requester
            .tlp
            .sent(cx.now, wire.requester.ack_deadline, is_selective);
    }
    if qp
        .wire
        .requester
        .ack_deadline
        .is_some_and(|ack_deadline| ack_deadline <= cx.now)
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
            qp.wire.requester.congestion.on_timeout();
            qp.wire.go_back(qp.sq.consumer(), qp.core.attr.path_mtu);
        }
    }
}
