// SPDX-License-Identifier: GPL-2.0

//! The completer on the wire: takes the responses to requests, and ends them in order, with a
//! completion where one is due.

use crate::{
    base::{
        attr::State,
        counters::Count,
        event::{
            DropReason,
            RetryReason, //
        },
        host::Host,
        psn,
        rnr_timer,
        status::Status, //
    },
    congestion::Ack,
    memory::sgl::{
        InPacket,
        PrivateBytes, //
    },
    object::{
        cq::Overrun,
        wr_opcode::completion_opcode, //
    },
    operation::{
        completion::complete_slot,
        ending::{
            enter_error,
            enter_fatal_error,
            report_drained,
            retries_exhausted,
            trace_retry, //
        },
        local_wr::invalidate_own,
    },
    packet::{
        self,
        opcode::{
            Kind,
            Position, //
        },
        Aeth,
        Nak,
        Packet,
        Syndrome, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        remote::{
            gap::Gap,
            requester_state::{
                Mark,
                Record,
                RequesterState, //
            },
        },
        schedule::Qps, //
    },
    wire::place::{
        await_memory,
        place,
        Unplaced, //
    },
};

/// Takes a response: an acknowledgement, a NAK or data.
pub(super) fn receive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    if !matches!(qp.core.state, State::Rts | State::Sqd) {
        return cx.drop_packet(packet.bth(), DropReason::NotReady);
    }
    let psn = packet.bth().psn.get();
    let first = qp.wire.requester.snd_una;
    // A response to a packet before the oldest one has been seen already, and a packet that was
    // never sent has none: both are dropped (IBA volume 1, 9.7.5.1.2).
    let is_due = psn::within(psn, first, psn::distance(first, qp.wire.requester.snd_nxt));
    if !is_due && psn != psn::before(first) {
        return cx.drop_packet(packet.bth(), DropReason::Duplicate);
    }
    let mut syndrome = None;
    if let Some(aeth) = packet.aeth() {
        syndrome = Syndrome::parse(aeth.syndrome);
        if syndrome.is_none() {
            return cx.drop_packet(packet.bth(), DropReason::Syndrome);
        }
    }
    if !is_due {
        return update_credits(cx, &mut qp.wire.requester, packet, syndrome);
    }
    // All packets before have arrived, whatever the response says of this one (IBA volume 1,
    // 9.7.5.1.1).
    if !acknowledge_before(qps, cx, qp, psn) {
        return qp.wire.reorder_response(psn, bytes, cx.now());
    }
    if let (Some(aeth), Some(Syndrome::Acknowledge(credits))) = (packet.aeth(), syndrome) {
        qp.wire.requester.lsn = lsn(aeth, credits);
    }
    match (packet.info().kind, syndrome) {
        (Kind::ReadResponse, None | Some(Syndrome::Acknowledge(_))) => {
            take_read(qps, cx, qp, packet, bytes);
        }
        (Kind::AtomicAcknowledge, Some(Syndrome::Acknowledge(_))) => {
            take_atomic(qps, cx, qp, packet, bytes);
        }
        // Data and a refusal in one packet are no response (IBA volume 1, 9.7.5.2).
        (Kind::ReadResponse | Kind::AtomicAcknowledge, _) => {
            fail(qps, cx, qp, Status::BadResponse);
        }
        (_, Some(Syndrome::Acknowledge(_))) => {
            acknowledge_before(qps, cx, qp, psn::advance(psn, 1));
        }
        (_, Some(Syndrome::RnrNak(code))) => rnr_nak(qps, cx, qp, code),
        (_, Some(Syndrome::Negative(nak))) => refused(qps, cx, qp, nak),
        (_, None) => (),
    }
    // A READ that was asked for again in parts may be several messages to the responder. Its
    // credits are by its own count, so the requester goes on from that when all that was sent has
    // been answered.
    let requester = &mut qp.wire.requester;
    let is_idle = requester.outstanding(qp.sq.consumer()) == 0;
    if let Some(aeth) = packet.aeth().filter(|_| is_idle) {
        requester.ssn = aeth.msn.get();
    }
}

/// The limit sequence number that an acknowledgement reports; `None`: no limit.
fn lsn(aeth: &Aeth, credits: u8) -> Option<u32> {
    packet::credits_of(credits).map(|credits| psn::advance(aeth.msn.get(), credits))
}

/// The newest packet that has been acknowledged is acknowledged again. By that a responder tells of
/// receive requests that have come since (IBA volume 1, 9.7.7.2); if it tells of no more, it is a
/// duplicate.
#[cold]
fn update_credits<H: Host>(
    cx: &mut Cx<'_, H>,
    requester: &mut RequesterState<H>,
    packet: &Packet<'_>,
    syndrome: Option<Syndrome>,
) {
    let reported = match (packet.info().kind, packet.aeth(), syndrome) {
        (Kind::Acknowledge, Some(aeth), Some(Syndrome::Acknowledge(credits))) => lsn(aeth, credits),
        _ => requester.lsn,
    };
    let is_more = |lsn| reported.is_none_or(|reported| psn::is_ahead(reported, lsn));
    if requester.lsn.is_some_and(is_more) {
        requester.lsn = reported;
    } else {
        cx.counters.duplicates.count(1);
    }
}

/// Packets up to `psn` have been acknowledged: retries and timers begin anew.
fn progress<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, psn: u32) {
    let Qp { core, sq, wire, .. } = qp;
    let now = cx.now();
    let mtu = core.attr.path_mtu;
    let ack = Ack {
        packets: psn::distance(wire.requester.snd_una, psn),
        in_flight: psn::distance(wire.requester.snd_una, wire.requester.snd_nxt),
        rtt: wire.requester.tlp.on_ack(psn, now),
        now,
    };
    if let Some(path) = &core.attr.path {
        let congestion = &mut wire.requester.congestion;
        congestion.on_ack(cx.paths, &path.dgid, &ack);
        if ack.rtt.is_some() {
            cx.host
                .trace(&congestion.trace(core.id.number, ack.in_flight));
        }
    }
    wire.requester.snd_una = psn;
    // The receiver has taken the packet for which it was not ready.
    wire.requester.rnr_until = None;
    wire.requester.ack_deadline = None;
    wire.requester.retransmit.on_ack(psn);
    if psn != wire.requester.snd_nxt {
        wire.start_ack_timer(core, sq, now);
    }
    wire.completer.gap = Gap::default();
    // The packets that were to be sent again may have arrived after all.
    if wire.requester.retransmit.is_complete(psn) {
        wire.requester.end_retransmit(None);
    }
    if let Some(record) = wire.requester.record(wire.requester.sending) {
        let next = wire.requester.next_psn(record, mtu);
        if wire.requester.sending != sq.consumer() && psn::is_ahead(psn, next) {
            wire.requester.retransmit.on_ack_beyond_sent();
            wire.requester.seek(psn, sq.consumer(), mtu);
        }
    }
}

/// Ends requests that get no data, up to but not including packet `psn`.
///
/// Returns whether all before `psn` has come. It has not where data are missing: then they are
/// asked for again, once (C9-148 and 9.7.5.1.1).
fn acknowledge_before<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    psn: u32,
) -> bool {
    while qp.core.state != State::Err {
        let consumer = qp.sq.consumer();
        if qp.wire.requester.snd_una == psn || qp.wire.requester.outstanding(consumer) == 0 {
            return qp.wire.requester.snd_una == psn;
        }
        let Some(&record) = qp.wire.requester.record(qp.wire.requester.oldest) else {
            return false;
        };
        if record.is_local() {
            return false;
        }
        if record.has_response() {
            data_missing(qps, cx, qp, psn);
            return false;
        }
        let first = qp.wire.requester.snd_una;
        let end = record.end();
        qp.sq.refill_retries(&qp.core.attr);
        if psn::distance(first, end) > psn::distance(first, psn) {
            progress(cx, qp, psn);
            return true;
        }
        // The record goes first: the search for the next packet to send looks at those that are
        // left.
        retire(qps, cx, qp);
        progress(cx, qp, end);
    }
    false
}

/// Packet `psn` has come, and data that should have come before it are missing: they are asked for
/// again, if there are retries left.
fn data_missing<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, psn: u32) {
    if !qp.wire.completer.gap.should_report(psn) {
        return;
    }
    cx.counters.sequence_errors.count(1);
    retransmit(qps, cx, qp, Some(psn));
}

/// Sends lost packets again, if there are retries left; see [`retransmit`](super::retransmit).
fn retransmit<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    hole_end: Option<u32>,
) {
    if retries_exhausted(cx, qp) {
        return fail(qps, cx, qp, Status::RetryExceeded);
    }
    let reason = match hole_end {
        Some(_) => RetryReason::ImpliedNak,
        None => RetryReason::SequenceNak,
    };
    trace_retry(cx.host, qp, reason);
    let Qp { core, sq, wire, .. } = qp;
    wire.retransmit(core, sq.consumer(), hole_end);
    wire.start_ack_timer(core, sq, cx.now());
}

/// Places the data of a read.
fn take_read<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    let Some((index, record)) = oldest(qp, Kind::ReadResponse) else {
        return cx.drop_packet(packet.bth(), DropReason::Unexpected);
    };
    let mtu = qp.core.attr.path_mtu;
    // That of a FLUSH or an ATOMIC WRITE is the one of a READ of no bytes (annex A19.4.3).
    let rest = record.response_length().wrapping_sub(record.done);
    let length = rest.min(mtu.bytes());
    // The response is cut as the request says, and nothing else is one (IBA volume 1, 9.7.5.2.8).
    // Where the data were asked for in parts or again, a response may begin or end in the middle of
    // them, too.
    let position = packet.info().position;
    let due = Position::of(record.done == 0, length == rest);
    let is_in_order = position == due
        || record.mark == Mark::Parted
            && position.begins() >= due.begins()
            && position.ends() >= due.ends();
    if packet.payload() != length as usize || !is_in_order {
        return fail(qps, cx, qp, Status::BadResponse);
    }
    let payload = InPacket {
        packet: bytes,
        offset: packet.headers().len(),
    };
    match place(cx, qp, index, record.done, payload, length) {
        Ok(()) => (),
        Err(Unplaced::Failed(status)) => return fail(qps, cx, qp, status),
        Err(Unplaced::Absent) => return await_memory(cx, qp, packet, bytes),
    }
    data_placed(qps, cx, qp, length, length == rest);
}

/// Places the value that an atomic operation found.
fn take_atomic<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    let oldest = oldest(qp, Kind::AtomicAcknowledge);
    let (Some((index, record)), Some(found)) = (oldest, packet.atomic_ack()) else {
        return cx.drop_packet(packet.bth(), DropReason::Unexpected);
    };
    // Memory has the number as the CPU has it.
    let found = found.original.get().to_ne_bytes();
    match place(cx, qp, index, 0, PrivateBytes(&found), record.length) {
        Ok(()) => (),
        Err(Unplaced::Failed(status)) => return fail(qps, cx, qp, status),
        Err(Unplaced::Absent) => return await_memory(cx, qp, packet, bytes),
    }
    data_placed(qps, cx, qp, record.length, true);
}

/// The oldest request, if it is one that such a response answers.
fn oldest<H: Host>(qp: &Qp<H>, response: Kind) -> Option<(u32, Record)> {
    let wire = &qp.wire;
    if wire.requester.outstanding(qp.sq.consumer()) == 0 {
        return None;
    }
    let record = wire.requester.record(wire.requester.oldest)?;
    let fits = record.is_answered_by(response);
    (fits && record.failed.is_none()).then_some((wire.requester.oldest, *record))
}

/// So many bytes have come back for the oldest request, and those may have been the last.
fn data_placed<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    length: u32,
    is_last: bool,
) {
    let Qp { core, sq, wire, .. } = qp;
    let next = psn::advance(wire.requester.snd_una, 1);
    sq.refill_retries(&core.attr);
    let oldest = wire.requester.oldest;
    let mut done = 0;
    if let Some(record) = wire.requester.record_mut(oldest) {
        record.done = record.done.wrapping_add(length);
        done = record.done;
    }
    if wire.requester.part == Some(done) {
        wire.requester.part = None;
        wire.requester.is_part_sent = false;
    }
    if is_last {
        wire.completer.request_index = None;
        if invalidate_own(cx, core, &wire.completer.request).is_err() {
            return fail(qps, cx, qp, Status::WindowBind);
        }
        retire(qps, cx, qp);
    }
    progress(cx, qp, next);
}

/// The receiver had no receive request: the same packet again after the time that it asked for
/// (C9-155, C9-157). While that time runs, the packet has not been sent again, so another refusal
/// of it is a copy of the first and costs no retry.
fn rnr_nak<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, code: u8) {
    let wire = &qp.wire;
    if wire.requester.rnr_until.is_some() {
        return cx.counters.duplicates.count(1);
    }
    cx.counters.receiver_not_ready.count(1);
    if !qp.sq.take_rnr_retry(&qp.core.attr) {
        return fail(qps, cx, qp, Status::RnrRetryExceeded);
    }
    trace_retry(cx.host, qp, RetryReason::RnrNak);
    let Qp { core, sq, wire, .. } = qp;
    // The packet has come, so it is not among those that were lost.
    sq.refill_transport_retries(&core.attr);
    wire.go_back(sq.consumer(), core.attr.path_mtu);
    wire.requester.rnr_until = Some(cx.now().saturating_add(rnr_timer::nanoseconds(code)));
    wire.requester.ack_deadline = None;
    wire.completer.gap = Gap::default();
}

/// The oldest request was refused.
fn refused<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, nak: Nak) {
    cx.counters.naks_received.count(1);
    let status = match nak {
        // A requester that goes back already learns nothing by it. rdma_rxe sends it for packets
        // behind the one for which it was not ready, and means that one.
        Nak::Sequence if qp.wire.requester.is_back(qp.core.attr.path_mtu) => return,
        Nak::Sequence => return retransmit(qps, cx, qp, None),
        Nak::InvalidRequest => Status::RemoteInvalidRequest,
        Nak::RemoteAccess => Status::RemoteAccess,
        Nak::RemoteOperation => Status::RemoteOperation,
    };
    fail(qps, cx, qp, status);
}

/// Ends the oldest request, and so writes its completion where one is due.
fn end<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) -> Result<(), Overrun> {
    let Qp { core, wire, .. } = qp;
    let index = wire.requester.oldest;
    let Some(&record) = wire.requester.record(index) else {
        return Ok(());
    };
    wire.requester.oldest = index.wrapping_add(1);
    if status == Status::Success && !core.reports_success(record.flags) {
        return Ok(());
    }
    complete_slot(
        cx,
        core,
        index,
        record.wr_id,
        completion_opcode(record.opcode),
        record.length,
        status,
    )
}

/// The oldest request has done what it should, and so have those behind it that have registered
/// regions meanwhile. If it is the one to be sent next, the one after it is.
pub(super) fn retire<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) {
    let completed = loop {
        let wire = &mut qp.wire;
        if wire.requester.sending == wire.requester.oldest {
            wire.requester.advance();
        }
        let completed = end(cx, qp, Status::Success);
        let wire = &qp.wire;
        let is_next_done = wire.requester.outstanding(qp.sq.consumer()) != 0
            && wire
                .requester
                .record(wire.requester.oldest)
                .is_some_and(|next| next.is_registered());
        if completed.is_err() || !is_next_done {
            break completed;
        }
    };
    if qp.wire.requester.outstanding(qp.sq.consumer()) == 0 {
        qp.wire.requester.ack_deadline = None;
        if qp.core.state == State::Sqd {
            report_drained(cx.host, &qp.core);
        }
    }
    if completed.is_err() {
        enter_fatal_error(qps, cx, qp);
    }
}

/// The oldest request ends with an error, and so does the work of the queue pair.
pub(super) fn fail<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>, status: Status) {
    if qp.wire.requester.outstanding(qp.sq.consumer()) == 0 {
        return;
    }
    if end(cx, qp, status).is_err() {
        return enter_fatal_error(qps, cx, qp);
    }
    enter_error(qps, cx.host, &mut qp.core);
}
