// SPDX-License-Identifier: GPL-2.0

//! Turns a packet into a segment of a message.

use crate::{
    base::{
        abi::{
            self,
            wr_flags, //
        },
        host::{
            Host,
            PacketBytes as _, //
        },
        psn, //
    },
    object::{
        request::{
            set_remote_srq,
            MAX_MESSAGE, //
        },
        wr_opcode::{
            Atomic,
            Class,
            WrOpcode,
            WORD, //
        },
    },
    operation::request_segment::{
        Bytes,
        RequestSegment, //
    },
    packet::{
        opcode::Kind,
        Packet, //
    },
    queue_pair::{
        qp_core::QpCore,
        remote::responder_state::ResponderState, //
    },
};

/// Makes a message of a packet, from its own headers and those of the packets before it.
///
/// `None`: no packet of a sound peer is like this.
pub(super) fn assemble<'a, H: Host>(
    core: &QpCore<H>,
    responder: &mut ResponderState<H>,
    packet: &Packet<'_>,
    bytes: &'a H::Packet,
    head: &'a mut abi::SendWqe,
) -> Option<RequestSegment<'a, H>> {
    let info = packet.info();
    let bth = packet.bth();
    let mtu = core.attr.path_mtu;
    if bth.is_solicited() {
        head.flags = wr_flags::SOLICITED;
    }
    let opcode = match info.kind {
        Kind::Send => match (packet.imm(), packet.ieth()) {
            (Some(imm), _) => {
                head.imm_or_inv = imm.data;
                WrOpcode::SendWithImm
            }
            (None, Some(ieth)) => {
                head.imm_or_inv = ieth.rkey.get().to_le_bytes();
                WrOpcode::SendWithInv
            }
            (None, None) => WrOpcode::Send,
        },
        Kind::Write => match packet.imm() {
            Some(imm) => {
                head.imm_or_inv = imm.data;
                WrOpcode::WriteWithImm
            }
            None => WrOpcode::Write,
        },
        Kind::ReadRequest => WrOpcode::Read,
        Kind::CompareSwap => WrOpcode::CompareSwap,
        Kind::FetchAdd => WrOpcode::FetchAdd,
        Kind::Flush => WrOpcode::Flush,
        Kind::AtomicWrite => WrOpcode::AtomicWrite,
        // Responses go to the completer.
        Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => {
            return None
        }
    };
    let is_first = info.position.begins();
    let is_last = info.position.ends();
    let length = packet.payload() as u32;
    if !info.payload.fits(packet.payload(), mtu.bytes()) {
        return None;
    }
    if is_first {
        responder.offset_in = 0;
        responder.total = length;
    }
    let offset = responder.offset_in;
    let end = offset
        .checked_add(length)
        .filter(|&end| end <= MAX_MESSAGE)?;
    if let Some(reth) = packet.reth() {
        let named = reth.length.get();
        // A flush moves no bytes, so any range may be flushed.
        if named > MAX_MESSAGE && info.kind != Kind::Flush {
            return None;
        }
        responder.target = (reth.addr.get(), reth.rkey.get());
        responder.total = named;
    }
    if let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) {
        head.extra = zerocopy::transmute!(abi::FlushWords {
            length: reth.length.get().into(),
            placement: feth.placement(),
            level: feth.level(),
            reserved: [0; 10],
        });
    }
    if let Some(atomic) = packet.atomic() {
        responder.target = (atomic.addr.get(), atomic.rkey.get());
        responder.total = WORD;
        let (compare_add, swap) = match opcode.facts().class {
            Class::Atomic(Atomic::CompareSwap) => (atomic.compare.get(), atomic.swap_or_add.get()),
            Class::Atomic(Atomic::FetchAdd) => (atomic.swap_or_add.get(), 0),
            // No other operation has this header.
            Class::Send
            | Class::Write
            | Class::Read
            | Class::AtomicWrite
            | Class::Flush
            | Class::Key(_) => return None,
        };
        head.extra = zerocopy::transmute!(abi::AtomicWords {
            compare_add: compare_add.into(),
            swap: swap.into(),
        });
    }
    let total = match info.kind {
        Kind::Send => end,
        Kind::Write
        | Kind::ReadRequest
        | Kind::CompareSwap
        | Kind::FetchAdd
        | Kind::AtomicWrite => responder.total,
        Kind::Flush => 0,
        Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => {
            return None
        }
    };
    // A write has as many bytes as its first packet says (C9-94).
    if info.kind == Kind::Write && (end > total || is_last != (end == total)) {
        return None;
    }
    let start = packet.headers().len();
    if info.kind == Kind::AtomicWrite {
        // The value is as long as the range that is named (annex A19, oA19-28).
        let value = bytes
            .headers()
            .get(start..)
            .and_then(|rest| rest.first_chunk());
        let value = *value.filter(|_| total == WORD)?;
        head.extra = zerocopy::transmute!(abi::AtomicWriteWords {
            value,
            reserved: [0; 8],
        });
    }
    if let Some(xrceth) = packet.xrceth() {
        set_remote_srq(head, opcode, xrceth.srq.get());
    }
    head.remote_addr = responder.target.0.into();
    head.rkey = responder.target.1.into();
    Some(RequestSegment {
        from: core.attr.dest_qpn,
        opcode,
        head,
        total,
        offset,
        length,
        is_first,
        is_last,
        psn: bth.psn.get(),
        packets: match opcode.facts().class {
            Class::Read => psn::packets(total, mtu),
            Class::Send
            | Class::Write
            | Class::Atomic(_)
            | Class::AtomicWrite
            | Class::Flush
            | Class::Key(_) => 1,
        },
        bytes: Bytes::Packet {
            packet: bytes,
            start,
        },
        pd: 0,
    })
}
