// SPDX-License-Identifier: GPL-2.0

//! Turns a packet into a segment of a message.

use crate::{
    base::{
        abi::{
            self,
            wr_flags, //
        },
        host::Host,
        psn, //
    },
    object::{
        opcode::{
            Atomic,
            Class,
            Opcode, //
        },
        request::{
            MAX_MESSAGE,
            WORD, //
        },
    },
    operation::message::{
        Bytes,
        Message, //
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

/// Makes a message of a packet: what its headers say, and what the packets before it have said.
///
/// `None`: no packet of a sound peer is like this.
pub(super) fn assemble<'a, H: Host>(
    core: &QpCore<H>,
    responder: &mut ResponderState<H>,
    packet: &Packet<'_>,
    bytes: &'a H::Packet,
    head: &'a mut abi::SendWqe,
) -> Option<Message<'a, H>> {
    let rule = packet.rule();
    let bth = packet.bth();
    let mtu = core.attr.path_mtu;
    if bth.is_solicited() {
        head.flags = wr_flags::SOLICITED;
    }
    let opcode = match rule.kind {
        Kind::Send => match (packet.imm(), packet.ieth()) {
            (Some(imm), _) => {
                head.imm_or_inv = imm.data;
                Opcode::SendWithImm
            }
            (None, Some(ieth)) => {
                head.imm_or_inv = ieth.rkey.get().to_le_bytes();
                Opcode::SendWithInv
            }
            (None, None) => Opcode::Send,
        },
        Kind::Write => match packet.imm() {
            Some(imm) => {
                head.imm_or_inv = imm.data;
                Opcode::WriteWithImm
            }
            None => Opcode::Write,
        },
        Kind::ReadRequest => Opcode::Read,
        Kind::CompareSwap => Opcode::CompareSwap,
        Kind::FetchAdd => Opcode::FetchAdd,
        // Operations that are not offered.
        Kind::Flush | Kind::AtomicWrite => return None,
        // Responses go to the completer.
        Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion => {
            return None
        }
    };
    let is_first = rule.position.begins();
    let is_last = rule.position.ends();
    let length = packet.payload() as u32;
    if !rule.payload.fits(packet.payload(), mtu.bytes()) {
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
        if reth.length.get() > MAX_MESSAGE {
            return None;
        }
        responder.target = (reth.addr.get(), reth.rkey.get());
        responder.total = reth.length.get();
    }
    if let Some(atomic) = packet.atomic() {
        responder.target = (atomic.addr.get(), atomic.rkey.get());
        responder.total = WORD;
        let (compare_add, swap) = match opcode.facts().class {
            Class::Atomic(Atomic::CompareSwap) => (atomic.compare.get(), atomic.swap_or_add.get()),
            Class::Atomic(Atomic::FetchAdd) => (atomic.swap_or_add.get(), 0),
            // No other operation has this header.
            Class::Send | Class::Write | Class::Read | Class::Key(_) => return None,
        };
        head.extra = zerocopy::transmute!(abi::AtomicWords {
            compare_add: compare_add.into(),
            swap: swap.into(),
        });
    }
    let total = match rule.kind {
        Kind::Send => end,
        Kind::Write | Kind::ReadRequest | Kind::CompareSwap | Kind::FetchAdd => responder.total,
        Kind::Flush
        | Kind::AtomicWrite
        | Kind::ReadResponse
        | Kind::Acknowledge
        | Kind::AtomicAcknowledge
        | Kind::Congestion => return None,
    };
    // A write has as many bytes as its first packet says (C9-94).
    if rule.kind == Kind::Write && (end > total || is_last != (end == total)) {
        return None;
    }
    head.remote_addr = responder.target.0.into();
    head.rkey = responder.target.1.into();
    Some(Message {
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
            Class::Send | Class::Write | Class::Atomic(_) | Class::Key(_) => 1,
        },
        bytes: Bytes::Packet {
            packet: bytes,
            start: packet.headers().len(),
            found: 0,
        },
    })
}
