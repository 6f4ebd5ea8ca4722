// SPDX-License-Identifier: GPL-2.0

//! The responder on the wire: takes the peer's requests in order, and sends the responses in order.

use crate::{
    base::{
        abi,
        attr::{
            Access,
            Mtu,
            State, //
        },
        counters::Count,
        event::{
            DropReason,
            QpEvent, //
        },
        host::{
            Host,
            Reorder,
            Sends,
            Unsent, //
        },
        psn,
        rnr_timer,
        status::Status, //
    },
    memory::{
        copy::AtOnce,
        key_use::KeyUse,
        sgl::{
            OpenedMemory,
            PrivateBytes,
            Side, //
        },
    },
    operation::{
        accept,
        ending::enter_error,
        request_segment::{
            Response, //
        },
    },
    packet::{
        self,
        opcode::{
            rc,
            Kind,
            Position, //
        },
        Aeth,
        AtomicAckEth,
        Bth,
        Headers,
        Nak,
        Packet,
        Syndrome,
        U24, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        qp_core::QpCore,
        receive_queue::ReceiveQueue,
        remote::{
            gap::Gap,
            responder_state::{
                Resource,
                ResponderState, //
            },
        },
        schedule::Qps, //
    },
    wire::{
        assemble::assemble,
        cnp::notify,
        transmit::{
            bth,
            transmit,
            TxPacket, //
        },
    },
};

/// Takes a packet of a request, which has just come or was in the reorder buffer.
pub(super) fn receive<H: Host>(
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
    is_buffered: bool,
) {
    // A queue pair that is not ready does not answer (C9-48 and following).
    let ready = matches!(qp.core.state, State::Rtr | State::Rts | State::Sqd);
    if !ready || qp.wire.responder.error_after_nak {
        return cx.drop_packet(packet.bth(), DropReason::NotReady);
    }
    let Qp { core, rq, wire, .. } = qp;
    let psn = packet.bth().psn.get();
    if psn != rq.psn {
        if psn::is_ahead(psn, rq.psn) {
            // Packets were lost. Those that follow wait until the missing one comes (C9-113).
            cx.counters.sequence_errors.count(1);
            wire.reorder_request(rq.psn, psn, bytes, cx.now());
            if wire.responder.gap.should_report(psn) {
                wire.responder.nak = None;
                wire.responder.pending_ack = Some((rq.psn, Syndrome::Negative(Nak::Sequence)));
            }
        } else {
            duplicate(cx, &mut wire.responder, packet, core.attr.path_mtu);
        }
        return;
    }
    let responder = &mut wire.responder;
    responder.gap = Gap::default();
    match request(cx, core, rq, responder, packet, bytes) {
        Response::Acknowledge => {
            responder.executed(psn, packet.info(), packet.bth().wants_acknowledge());
        }
        // The peer goes back to what is before this packet, and sends this one again, too.
        Response::RnrNak(_) if is_buffered && responder.peer_goes_back() => {
            responder.reorder.insert(psn, bytes);
        }
        Response::RnrNak(code) => {
            responder.gap.reported = true;
            // The peer waits before it sends the packet again, by a clock that may be a little
            // faster. A copy that comes sooner was on its way when the NAK came, and a NAK of it
            // would cost the peer another retry. One copy alone is passed over: the peer may not
            // have got the NAK.
            let is_copy = responder
                .rnr_nak
                .take()
                .is_some_and(|(refused, until)| refused == psn && cx.now() < until);
            if !is_copy {
                let wait = rnr_timer::nanoseconds(code);
                let until = cx.now().saturating_add(wait.saturating_sub(wait / 16));
                responder.rnr_nak = Some((psn, until));
                responder.pending_ack = Some((psn, Syndrome::RnrNak(code)));
            }
        }
        Response::Nak(status) => {
            let nak = match status {
                Status::RemoteAccess => Nak::RemoteAccess,
                Status::RemoteOperation => Nak::RemoteOperation,
                _ => Nak::InvalidRequest,
            };
            // In error nothing is sent any more: ERR is entered when this NAK has been sent, after
            // the responses to earlier requests.
            responder.pending_ack = Some((psn, Syndrome::Negative(nak)));
            responder.error_after_nak = true;
        }
        // The packet waits, and so do those behind it, of which none is lost. By the time it is
        // taken, a peer that goes back has sent them again. No job copies what comes by packet.
        Response::Absent | Response::Later => {
            responder.gap.reported = true;
            responder.nak = None;
            wire.reorder_request(psn, psn, bytes, cx.now());
            wire.await_memory(cx.now());
        }
        Response::SequenceError | Response::None | Response::RequesterFault => (),
    }
}

/// Makes a message of a packet and hands it on to the responder that local peers have, too.
fn request<H: Host>(
    cx: &mut Cx<'_, H>,
    core: &QpCore<H>,
    rq: &mut ReceiveQueue,
    responder: &mut ResponderState<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) -> Response {
    let mut head = abi::SendWqe::default();
    let Some(segment) = assemble(core, responder, packet, bytes, &mut head) else {
        return refuse(cx, core);
    };
    let opcode = segment.opcode;
    let kind = packet.info().kind;
    // Each takes a resource (9.4.4).
    let place = if opcode.has_response() {
        responder.free_place(core, kind)
    } else {
        None
    };
    if opcode.has_response() && place.is_none() {
        return refuse(cx, core);
    }
    if !core.answers(segment.from, true) {
        return Response::None;
    }
    let response = accept::receive(cx, core, rq, segment, &mut AtOnce);
    if response != Response::Acknowledge {
        return response;
    }
    responder.offset_in = segment.offset.wrapping_add(segment.length);
    if let Some(place) = place {
        responder.add_resource(
            place,
            Resource {
                kind: Some(kind),
                psn: segment.psn,
                packets: segment.packets,
                msn: psn::advance(responder.msn, 1),
                addr: responder.target.0,
                rkey: responder.target.1,
                srq: rq.srq,
                length: opcode.response_length(segment.total),
                next: segment.psn,
                start: segment.psn,
                again: None,
                found: opcode.is_atomic().then_some(rq.found),
                active: true,
                responded: false,
            },
        );
    }
    response
}

/// A request that no packet of a sound peer makes (NAK Invalid Request, class C).
fn refuse<H: Host>(cx: &mut Cx<'_, H>, core: &QpCore<H>) -> Response {
    cx.counters.responder_errors.count(1);
    let handle = &core.init.handle;
    cx.host.qp_event(handle, QpEvent::RequestError);
    Response::Nak(Status::RemoteInvalidRequest)
}

/// A packet that was seen before: answered as it was then, and not carried out again (C9-105, and
/// 9.7.5.1.4).
///
/// If the packet asks, the responder acknowledges the newest packet that an acknowledgement may
/// name ([`ResponderState::last_coalescable`]), which covers this one, too (C9-105). Else it
/// acknowledges the packet's own number.
fn duplicate<H: Host>(
    cx: &mut Cx<'_, H>,
    responder: &mut ResponderState<H>,
    packet: &Packet<'_>,
    mtu: Mtu,
) {
    cx.counters.duplicates.count(1);
    let psn = packet.bth().psn.get();
    let known = responder
        .resources
        .iter_mut()
        .find(|resource| resource.packets != 0 && psn::within(psn, resource.psn, resource.packets));
    match (packet.info().kind, known, packet.reth()) {
        (kind @ Kind::ReadRequest, Some(resource), Some(reth)) if resource.kind == Some(kind) => {
            // It may ask for some packets only, of the same memory.
            let offset = psn::distance(resource.psn, psn).wrapping_shl(mtu.shift());
            let (length, rest) = (reth.length.get(), resource.length.saturating_sub(offset));
            let is_part = reth.rkey.get() == resource.rkey
                && reth.addr.get() == resource.addr.wrapping_add(offset.into())
                && (length == rest || length < rest && length & mtu.bytes().wrapping_sub(1) == 0);
            if !is_part {
                return;
            }
            let end = psn::advance(psn, psn::packets(length, mtu));
            if resource.active && psn::is_ahead(end, resource.next) {
                resource.next = psn;
                resource.start = psn;
                resource.again = None;
            } else {
                resource.again = Some((psn, psn, end));
            }
        }
        (kind @ (Kind::CompareSwap | Kind::FetchAdd), Some(resource), _)
            if resource.kind == Some(kind) =>
        {
            resource.active = true;
        }
        (kind @ (Kind::Flush | Kind::AtomicWrite), Some(resource), _)
            if resource.kind == Some(kind) =>
        {
            if !resource.active {
                resource.again = Some((psn, psn, psn::advance(psn, 1)));
            }
        }
        (Kind::Send | Kind::Write, _, _) => {
            let asks = packet.bth().wants_acknowledge();
            let last = responder
                .last_coalescable
                .filter(|&last_coalescable| asks && psn::is_ahead(last_coalescable, psn))
                .unwrap_or(psn);
            // A pending NAK stays, and so does an acknowledgement of more than this.
            let is_better = responder.pending_ack.is_none_or(|(known, syndrome)| {
                matches!(syndrome, Syndrome::Acknowledge(_)) && psn::is_ahead(last, known)
            });
            if is_better {
                responder.pending_ack = Some((last, Syndrome::Acknowledge(0)));
            }
        }
        // The resource was dropped, or the packet is not the one that it was.
        (
            Kind::ReadRequest
            | Kind::CompareSwap
            | Kind::FetchAdd
            | Kind::Flush
            | Kind::AtomicWrite,
            _,
            _,
        ) => (),
        (
            Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion,
            _,
            _,
        ) => (),
    }
}

/// Sends the responses that are due, in the order of the requests.
pub(super) fn run<H: Host>(qps: &mut Qps<H>, cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Next {
    if !matches!(qp.core.state, State::Rtr | State::Rts | State::Sqd) {
        return Next::Idle;
    }
    let expected = qp.rq.psn;
    loop {
        if qp
            .wire
            .tx_blocked_until
            .is_some_and(|until| until > cx.now())
        {
            return Next::Idle;
        }
        // Before the responses, which may be many.
        if qp.wire.notification.is_due() {
            if let Err(unsent @ (Unsent::Busy | Unsent::Full | Unsent::Absent)) = notify(cx, qp) {
                qp.wire.block_tx(Sends::Responses, unsent, cx.now());
                return Next::Idle;
            }
        }
        // The resource whose request lies furthest behind the expected packet is the oldest.
        let resources = &qp.wire.responder.resources;
        let place = (0..resources.len())
            .zip(resources.iter())
            .filter(|(_, resource)| resource.is_due())
            .max_by_key(|(_, resource)| psn::distance(resource.psn, expected))
            .map(|(place, _)| place);
        let Some(place) = place else {
            break;
        };
        if cx.allowance.is_spent() {
            return Next::Again;
        }
        match respond(cx, qp, place) {
            Ok(psn) => qp.wire.responder.drop_ack_before(psn),
            Err(unsent @ (Unsent::Busy | Unsent::Full | Unsent::Absent)) => {
                qp.wire.block_tx(Sends::Responses, unsent, cx.now());
                return Next::Idle;
            }
            Err(Unsent::Fault) if qp.wire.responder.has_responded(place) => {
                // A duplicate of a READ that was answered in full, and the memory is gone: the
                // requester may have had the data and let the region be deregistered. That is no
                // error.
                cx.counters.dropped.count(1);
                if let Some(resource) = qp.wire.responder.resources.get_mut(place) {
                    resource.stop();
                }
            }
            Err(Unsent::Fault) => {
                // The memory is not what it was when the read was accepted.
                let psn = qp
                    .wire
                    .responder
                    .resources
                    .get(place)
                    .map_or(0, |gone| gone.next().0);
                cx.counters.responder_errors.count(1);
                let handle = &qp.core.init.handle;
                cx.host.qp_event(handle, QpEvent::AccessError);
                qp.wire.responder.pending_ack = Some((psn, Syndrome::Negative(Nak::RemoteAccess)));
                qp.wire.responder.error_after_nak = true;
                for resource in qp.wire.responder.resources.iter_mut() {
                    resource.stop();
                }
            }
        }
    }
    if qp.wire.responder.pending_ack.is_some() {
        if let Err(unsent @ (Unsent::Busy | Unsent::Full | Unsent::Absent)) = send_ack(cx, qp) {
            qp.wire.block_tx(Sends::Responses, unsent, cx.now());
            return Next::Idle;
        }
    }
    if qp.wire.responder.error_after_nak {
        enter_error(qps, cx.host, &mut qp.core);
        return Next::Again;
    }
    Next::Idle
}

/// The acknowledgement header of a response, after which `msn` messages have been carried out.
fn aeth<H: Host>(core: &QpCore<H>, rq: &mut ReceiveQueue, msn: u32, syndrome: Syndrome) -> Aeth {
    let syndrome = match syndrome {
        // The receive requests are counted when the credits are sent; of a shared queue's,
        // nobody can say whose they are (IBA volume 1, 9.7.7.2).
        Syndrome::Acknowledge(_) => {
            let is_shared = core.init.srq.is_some() || core.init.qp_type.is_target();
            Syndrome::Acknowledge(if is_shared {
                packet::UNLIMITED
            } else {
                packet::encode_credits(rq.available(core))
            })
        }
        refusal => refusal,
    };
    Aeth {
        syndrome: syndrome.bits(),
        msn: U24::new(msn),
    }
}

/// Sends the acknowledgement that is due.
fn send_ack<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>) -> Result<(), Unsent> {
    let Qp { core, rq, wire, .. } = qp;
    let Some((psn, syndrome)) = wire.responder.pending_ack else {
        return Ok(());
    };
    let mut headers = Headers::new(&bth(core, rc::ACKNOWLEDGE, psn));
    headers.push(&aeth(core, rq, wire.responder.msn, syndrome));
    let nothing = Side::Private(PrivateBytes(&[]));
    let kind = Sends::Responses;
    transmit(cx, core, kind, &mut wire.route, headers, nothing, 0)?;
    if !matches!(syndrome, Syndrome::Acknowledge(_)) {
        cx.counters.naks_sent.count(1);
        wire.responder.nak = Some((psn, syndrome));
    }
    wire.responder.pending_ack = None;
    Ok(())
}

/// Sends the next packet of a response with data, and returns its number.
fn respond<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, place: usize) -> Result<u32, Unsent> {
    let Qp { core, rq, wire, .. } = qp;
    let Some(&resource) = wire.responder.resources.get(place) else {
        return Err(Unsent::Fault);
    };
    let (psn, first, end) = resource.next();
    if let Some(found) = resource.found {
        let mut headers = Headers::new(&bth(core, rc::ATOMIC_ACKNOWLEDGE, psn));
        headers.push(&aeth(core, rq, resource.msn, Syndrome::Acknowledge(0)));
        headers.push(&AtomicAckEth {
            original: found.into(),
        });
        let nothing = Side::Private(PrivateBytes(&[]));
        let kind = Sends::Responses;
        transmit(cx, core, kind, &mut wire.route, headers, nothing, 0)?;
        cx.take_packet(0);
        if let Some(resource) = wire.responder.resources.get_mut(place) {
            resource.active = false;
            resource.responded = true;
        }
        return Ok(psn);
    }
    let mtu = core.attr.path_mtu;
    let offset = psn::distance(resource.psn, psn).wrapping_shl(mtu.shift());
    let length = resource.length.wrapping_sub(offset).min(mtu.bytes());
    let position = Position::of(psn == first, psn::advance(psn, 1) == end);
    let opcode = match position {
        Position::First => rc::READ_RESPONSE_FIRST,
        Position::Middle => rc::READ_RESPONSE_MIDDLE,
        Position::Last => rc::READ_RESPONSE_LAST,
        Position::Only => rc::READ_RESPONSE_ONLY,
    };
    let mut base = bth(core, opcode, psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    let mut headers = Headers::new(&base);
    if position != Position::Middle {
        headers.push(&aeth(core, rq, resource.msn, Syndrome::Acknowledge(0)));
    }
    let pd = core.remote_pd(cx.srqs, resource.srq);
    let whole = KeyUse {
        pd: pd.ok_or(Unsent::Fault)?,
        key: resource.rkey,
        need: Access::REMOTE_READ,
        addr: resource.addr,
        length: resource.length.into(),
        peer_of: Some(core.id),
    };
    let payload = OpenedMemory::opened(cx.keys, &whole, offset).ok_or(Unsent::Fault)?;
    let packet = TxPacket {
        headers,
        payload: Side::Memory(payload),
        length,
        keys: cx.keys,
        queue: &core.init.queue,
        kind: Sends::Responses,
        written: 0,
        is_absent: false,
    };
    packet.send(core.id, cx.host, cx.counters, wire.route.as_mut())?;
    cx.take_packet(length);
    cx.counters.bytes.count(length.into());
    if let Some(resource) = wire.responder.resources.get_mut(place) {
        resource.sent();
    }
    Ok(psn)
}
