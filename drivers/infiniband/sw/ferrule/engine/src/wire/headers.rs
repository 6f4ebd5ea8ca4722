// SPDX-License-Identifier: GPL-2.0

//! The headers of a request's packets: which opcode each has by its place in the message, and what
//! follows the base transport header (IBA volume 1, 9.2 and 9.3).

use crate::{
    base::abi,
    object::request::Opcode,
    packet::{
        opcode::{
            rc,
            Position, //
        },
        AtomicEth,
        Bth,
        Headers,
        Ieth,
        ImmDt,
        Reth, //
    },
};

/// Whether the message takes a receive request of the responder.
pub(super) fn takes_receive(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Send | Opcode::SendWithImm | Opcode::SendWithInv | Opcode::WriteWithImm
    )
}

/// The opcode of a packet in its message, of a reliable connection.
pub(super) fn packet_opcode(opcode: Opcode, position: Position) -> u8 {
    use Position::*;

    let is_write = matches!(opcode, Opcode::Write | Opcode::WriteWithImm);
    match (opcode, position) {
        (Opcode::Read, _) => rc::READ_REQUEST,
        (Opcode::CompareSwap, _) => rc::COMPARE_SWAP,
        (Opcode::FetchAdd, _) => rc::FETCH_ADD,
        (_, First) if is_write => rc::WRITE_FIRST,
        (_, First) => rc::SEND_FIRST,
        (_, Middle) if is_write => rc::WRITE_MIDDLE,
        (_, Middle) => rc::SEND_MIDDLE,
        (Opcode::Write, Last) => rc::WRITE_LAST,
        (Opcode::Write, Only) => rc::WRITE_ONLY,
        (Opcode::WriteWithImm, Last) => rc::WRITE_LAST_WITH_IMM,
        (Opcode::WriteWithImm, Only) => rc::WRITE_ONLY_WITH_IMM,
        (Opcode::SendWithImm, Last) => rc::SEND_LAST_WITH_IMM,
        (Opcode::SendWithImm, Only) => rc::SEND_ONLY_WITH_IMM,
        (Opcode::SendWithInv, Last) => rc::SEND_LAST_WITH_INV,
        (Opcode::SendWithInv, Only) => rc::SEND_ONLY_WITH_INV,
        (_, Last) => rc::SEND_LAST,
        (_, Only) => rc::SEND_ONLY,
    }
}

/// The headers of a packet of a request. Of a read or a write, the range is what is named of the peer's
/// memory: by the bytes of the message.
pub(super) fn headers(
    head: &abi::SendWqe,
    opcode: Opcode,
    (from, until): (u32, u32),
    mut base: Bth,
    position: Position,
) -> Headers {
    let ends = position.ends();
    if ends && takes_receive(opcode) && head.flags & abi::wr_flags::SOLICITED != 0 {
        base.flags |= Bth::SOLICITED;
    }
    let mut headers = Headers::new(&base);
    if opcode.is_atomic() {
        let words: abi::AtomicWords = zerocopy::transmute!(head.extra);
        let (swap_or_add, compare) = match opcode {
            Opcode::CompareSwap => (words.swap.get(), words.compare_add.get()),
            _ => (words.compare_add.get(), 0),
        };
        headers.push(&AtomicEth {
            addr: head.remote_addr.get().into(),
            rkey: head.rkey.get().into(),
            swap_or_add: swap_or_add.into(),
            compare: compare.into(),
        });
        return headers;
    }
    let is_write = matches!(opcode, Opcode::Write | Opcode::WriteWithImm);
    if opcode == Opcode::Read || (is_write && position.begins()) {
        let length = until.wrapping_sub(from);
        // Where there are no bytes, no key is looked at (C9-88). rdma_rxe remembers none of such a read
        // (qp_resp_from_reth) and, if the response was lost, does not know it again by any other.
        let rkey = match (opcode, length) {
            (Opcode::Read, 0) => 0,
            _ => head.rkey.get(),
        };
        headers.push(&Reth {
            addr: head.remote_addr.get().wrapping_add(from.into()).into(),
            rkey: rkey.into(),
            length: length.into(),
        });
    }
    match opcode {
        Opcode::SendWithImm | Opcode::WriteWithImm if ends => headers.push(&ImmDt {
            data: head.imm_or_inv,
        }),
        Opcode::SendWithInv if ends => headers.push(&Ieth {
            rkey: u32::from_le_bytes(head.imm_or_inv).into(),
        }),
        _ => (),
    }
    headers
}
