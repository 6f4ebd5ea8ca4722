// SPDX-License-Identifier: GPL-2.0

//! The headers of a request's packets: which opcode each has by its place in the message, and what
//! follows the base transport header (IBA volume 1, 9.2 and 9.3).

use crate::{
    base::abi,
    object::opcode::{
        Atomic,
        Class,
        Extra,
        Opcode, //
    },
    packet::{
        opcode::Position,
        AtomicEth,
        Bth,
        Headers,
        Ieth,
        ImmDt,
        Reth, //
    },
};

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
    if ends && opcode.takes_receive() && head.flags & abi::wr_flags::SOLICITED != 0 {
        base.flags |= Bth::SOLICITED;
    }
    let mut headers = Headers::new(&base);
    let length = until.wrapping_sub(from);
    let reth = |rkey: u32| Reth {
        addr: head.remote_addr.get().wrapping_add(from.into()).into(),
        rkey: rkey.into(),
        length: length.into(),
    };
    let facts = opcode.facts();
    match facts.class {
        // Where there are no bytes, no key is looked at (C9-88). rdma_rxe remembers none of such a read
        // (qp_resp_from_reth) and, if the response was lost, does not know it again by any other.
        Class::Read if length == 0 => headers.push(&reth(0)),
        Class::Read => headers.push(&reth(head.rkey.get())),
        Class::Write if position.begins() => headers.push(&reth(head.rkey.get())),
        Class::Atomic(operation) => {
            let words: abi::AtomicWords = zerocopy::transmute!(head.extra);
            let (swap_or_add, compare) = match operation {
                Atomic::CompareSwap => (words.swap.get(), words.compare_add.get()),
                Atomic::FetchAdd => (words.compare_add.get(), 0),
            };
            headers.push(&AtomicEth {
                addr: head.remote_addr.get().into(),
                rkey: head.rkey.get().into(),
                swap_or_add: swap_or_add.into(),
                compare: compare.into(),
            });
        }
        Class::Send | Class::Write | Class::Key(_) => (),
    }
    match facts.extra {
        Extra::Immediate if ends => headers.push(&ImmDt {
            data: head.imm_or_inv,
        }),
        Extra::Invalidate if ends => headers.push(&Ieth {
            rkey: u32::from_le_bytes(head.imm_or_inv).into(),
        }),
        Extra::None | Extra::Immediate | Extra::Invalidate => (),
    }
    headers
}
