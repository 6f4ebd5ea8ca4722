// SPDX-License-Identifier: GPL-2.0

//! Datagrams on the wire: one packet each, to one queue pair or to all of a group.

use crate::{
    base::{
        abi,
        counters::Count,
        event::DropReason,
        grh,
        host::{
            Host,
            PacketBytes as _,
            Sends,
            Unsent, //
        },
    },
    object::{
        multicast::MULTICAST_QPN,
        wr_opcode::{
            Extra,
            WrOpcode, //
        },
    },
    operation::{
        request_segment::{
            Bytes,
            RequestSegment, //
        },
        ud_receive::{
            self,
            Area,
            Arrival, //
        },
    },
    packet::{
        self,
        ip::is_multicast,
        opcode::{
            rc,
            Service, //
        },
        Bth,
        Deth,
        Headers,
        ImmDt,
        U24, //
    },
    queue_pair::{
        cx::Cx,
        qp::Qp,
        schedule::Qps, //
    },
    wire::{
        rx_packet::{
            RxPacket,
            Sound, //
        },
        transmit::TxPacket, //
    },
};

/// Where the route of a datagram is.
pub(crate) enum DatagramRoute<H: Host> {
    /// With the address handle of this number.
    Handle(u32),
    /// Here: the host has told it.
    Own(Option<H::Route>),
}

/// Sends the request at hand to the queue pair `target`.
pub(crate) fn send<H: Host>(
    cx: &mut Cx<'_, H>,
    qp: &mut Qp<H>,
    way: &mut DatagramRoute<H>,
    target: u32,
    qkey: u32,
) -> Result<(), Unsent> {
    let Qp { core, sq, .. } = qp;
    let length = sq.request.length;
    let segment = RequestSegment::next(sq, core, length, 1);
    let with_imm = segment.opcode.facts().extra == Extra::Immediate;
    let operation = if with_imm {
        rc::SEND_ONLY_WITH_IMM
    } else {
        rc::SEND_ONLY
    };
    let mut base = Bth::to(target, operation | Service::Ud as u8, segment.psn);
    base.flags |= Bth::pad_flags(packet::pad(length));
    if segment.is_solicited() {
        base.flags |= Bth::SOLICITED;
    }
    let mut headers = Headers::new(&base);
    headers.push(&Deth {
        qkey: qkey.into(),
        src_qp: U24::new(core.id.qpn()),
        ..Deth::default()
    });
    if with_imm {
        headers.push(&ImmDt {
            data: segment.head.imm_or_inv,
        });
    }
    cx.take_packet(length);
    let packet = TxPacket {
        headers,
        payload: segment.local(),
        length,
        keys: cx.keys,
        queue: &core.init.queue,
        kind: Sends::Requests,
        written: 0,
        is_absent: false,
    };
    let route = match way {
        DatagramRoute::Handle(ah) => cx.port.ahs.route(*ah),
        DatagramRoute::Own(route) => route.as_mut(),
    };
    packet.send(core.id, cx.host, cx.counters, route)
}

/// Takes a packet that was sent to the address `to`.
pub(super) fn receive<H: Host>(
    qps: &mut Qps<H>,
    cx: &mut Cx<'_, H>,
    rx: &RxPacket<'_, H>,
    sound: &Sound<'_>,
    deth: &Deth,
) {
    let Sound { packet, to, .. } = sound;
    let bth = packet.bth();
    let target = bth.dest_qp.get();
    let mut head = abi::SendWqe::default();
    if bth.is_solicited() {
        head.flags = abi::wr_flags::SOLICITED;
    }
    let mut opcode = WrOpcode::Send;
    if let Some(imm) = packet.imm() {
        head.imm_or_inv = imm.data;
        opcode = WrOpcode::SendWithImm;
    }
    let length = packet.payload() as u32;
    let segment = || RequestSegment {
        from: deth.src_qp.get(),
        opcode,
        head: &head,
        total: length,
        offset: 0,
        length,
        is_first: true,
        is_last: true,
        psn: bth.psn.get(),
        packets: 1,
        bytes: Bytes::Packet {
            packet: rx.packet,
            start: packet.headers().len(),
        },
        pd: 0,
    };
    let area = Area {
        header: grh::of_packet(rx.ip),
        sl: rx.sl,
        vlan: rx.packet.vlan(),
        to: (!is_multicast(to)).then_some(rx.vport),
        qkey: deth.qkey.get(),
    };
    if !is_multicast(to) {
        let target = rx.vport.number(target);
        let Some(qp) = qps.get(target) else {
            sound.count(rx, cx.counters);
            return cx.drop_packet(bth, DropReason::UnknownQueuePair);
        };
        sound.count(rx, cx.ports.of(qp.core.counted_at));
        let arrival = ud_receive::arrive(qps, cx, target, segment(), Some(&area));
        return trace(cx, bth, &arrival);
    }
    sound.count(rx, cx.counters);
    cx.counters.multicast_received.count(1);
    // A group's queue pairs are called by one number (IBA volume 1, 10.5.2).
    let group = cx.port.groups.members(to);
    let members = group.as_slice();
    if target != MULTICAST_QPN || members.is_empty() {
        return cx.drop_packet(bth, DropReason::Misdirected);
    }
    for &member in members {
        let arrival = ud_receive::arrive(qps, cx, member, segment(), Some(&area));
        trace(cx, bth, &arrival);
    }
}

/// Shows a packet that did not arrive.
#[inline]
fn trace<H: Host>(cx: &mut Cx<'_, H>, bth: Bth, arrival: &Arrival) {
    if let Arrival::Dropped(reason) = *arrival {
        cx.trace_drop(bth, reason);
    }
}
