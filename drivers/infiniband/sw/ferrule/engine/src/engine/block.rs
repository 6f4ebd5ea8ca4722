// SPDX-License-Identifier: GPL-2.0

//! Blocks of numbers, which the engines of one device share among themselves.

use zerocopy::FromBytes;

use crate::{
    base::{
        abi,
        error::TableKind,
        id::ContextId,
        table::BLOCK, //
    },
    memory::{
        memory_region::MAX_MR,
        memory_window::{
            window_index,
            MAX_MW, //
        }, //
    },
    object::{
        address::MAX_AH,
        cq::MAX_CQ,
        multicast::{
            MAX_MCAST_GRP,
            MULTICAST_QPN, //
        },
        protection_domain::MAX_PD,
        srq::{
            INDEX_MASK,
            MAX_SRQ, //
        },
    },
    packet::Bth,
};

impl TableKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Contexts,
        Self::Pds,
        Self::Keys,
        Self::Mws,
        Self::Cqs,
        Self::Qps,
        Self::Srqs,
        Self::Ahs,
        Self::Groups,
    ];

    /// How many blocks of numbers there are for objects of this kind.
    pub const fn blocks(self) -> u32 {
        let limit = match self {
            Self::Contexts => ContextId::LIMIT,
            Self::Pds => MAX_PD,
            Self::Keys => MAX_MR,
            Self::Mws => MAX_MW,
            Self::Cqs => MAX_CQ,
            Self::Qps => abi::MAX_QP,
            Self::Srqs => MAX_SRQ,
            Self::Ahs => MAX_AH,
            Self::Groups => MAX_MCAST_GRP,
        };
        limit.div_ceil(BLOCK)
    }
}

/// 64 numbers of one kind of objects, all of which are in the table of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The kind of objects.
    pub kind: TableKind,
    /// The number of the block, below [`TableKind::blocks`]. Of queue pairs, the block 0 has those
    /// for general services.
    pub number: u32,
}

impl Block {
    fn of_index(kind: TableKind, index: u32) -> Self {
        Self {
            kind,
            number: index / BLOCK,
        }
    }

    /// The block of a context.
    #[inline]
    pub fn of_context(id: ContextId) -> Self {
        Self::of_index(TableKind::Contexts, id.0)
    }

    /// The block of a protection domain.
    #[inline]
    pub fn of_pd(pd: u32) -> Self {
        Self::of_index(TableKind::Pds, pd)
    }

    /// The block of a queue pair's number.
    #[inline]
    pub fn of_qp(qpn: u32) -> Self {
        Self::of_index(TableKind::Qps, qpn & abi::DB_INDEX_MASK)
    }

    /// The block of the queue pair that a packet is for, from its base transport header on. That of
    /// packets to multicast groups, and to nobody, is the first one.
    #[inline]
    pub fn of_packet(headers: &[u8]) -> Self {
        let qpn = match Bth::ref_from_prefix(headers) {
            Ok((bth, _)) => bth.dest_qp.get(),
            Err(_) => MULTICAST_QPN,
        };
        Self::of_qp(if qpn == MULTICAST_QPN { 0 } else { qpn })
    }

    /// The block of a region's key, or of a memory window's.
    pub fn of_key(key: u32) -> Self {
        match window_index(key) {
            Some(index) => Self::of_index(TableKind::Mws, index),
            None => Self::of_index(TableKind::Keys, key.wrapping_shr(8)),
        }
    }

    /// The block of a completion queue.
    pub fn of_cq(cqn: u32) -> Self {
        Self::of_index(TableKind::Cqs, cqn)
    }

    /// The block of a shared receive queue.
    pub fn of_srq(number: u32) -> Self {
        Self::of_index(TableKind::Srqs, number & INDEX_MASK)
    }

    /// The block of an address handle.
    pub fn of_ah(number: u32) -> Self {
        Self::of_index(TableKind::Ahs, number.wrapping_shr(8))
    }
}
