// SPDX-License-Identifier: GPL-2.0

//! Unreliable connections on the wire: packets in order, and what was lost stays lost.

use crate::{
    base::{
        abi,
        counters::Count,
        host::{
            Host,
            Sends,
            Unsent, //
        },
        psn, //
    },
    operation::{
        ending::enter_error,
        message::Response,
        uc_receive, //
    },
    packet::{
        self,
        opcode::{
            Position,
            Service, //
        },
        Bth,
        Packet, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        assemble::assemble,
        request_packet::headers,
        transmit::{
            bth,
            transmit, //
        },
    },
};

/// Sends a segment of the request at hand, which is one packet.
pub(crate) fn send<H: Host>(cx: &mut Cx<'_, H>, qp: &mut Qp<H>, length: u32) -> Result<(), Unsent> {
    let Qp { core, sq, wire, .. } = qp;
    let mut message = sq.message(core, length);
    let position = Position::of(message.is_first, message.is_last);
    let opcode = message.opcode.packet(position) | Service::Uc as u8;
    let mut base = bth(core, opcode, message.psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    let range = (0, message.total);
    let headers = headers(message.head, message.opcode, range, base, position);
    let payload = message.local();
    let kind = Sends::Requests;
    transmit(cx, core, kind, &mut wire.route, headers, payload, length)
}

/// Takes a packet.
pub(super) fn receive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    packet: &Packet<'_>,
    bytes: &H::Packet,
) {
    let Qp { core, rq, wire, .. } = qp;
    let mut head = abi::SendWqe::default();
    let Some(mut message) = assemble(core, &mut wire.responder, packet, bytes, &mut head) else {
        // What is not made as the message needs it ends the message (C9-188).
        let psn = packet.bth().psn.get();
        cx.counters
            .sequence_errors
            .count(u64::from(psn != rq.psn()));
        cx.counters.dropped.count(1);
        rq.set_psn(psn::advance(psn, 1));
        return rq.abandon();
    };
    let response = uc_receive::receive(cx, core, rq, &mut message);
    match response {
        Response::Acknowledge => {
            wire.responder.offset_in = message.offset.wrapping_add(message.length)
        }
        Response::Nak(_) => enter_error(qps, cx.host, core),
        _ => (),
    }
}
