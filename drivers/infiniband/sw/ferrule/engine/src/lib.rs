// SPDX-License-Identifier: GPL-2.0

//! The engine of ferrule: an RDMA adapter as a state machine, without I/O of its own.

// Kbuild, which sets `MODULE`, adds the attribute by itself.
#![cfg_attr(not(any(MODULE, test)), no_std)]
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

// The simulated host of the tests names this crate as every other host does.
#[cfg(test)]
extern crate self as ferrule_engine;

// Each may name those above it in this list, and no other: tests/floors.rs.
pub mod packet;

mod base;

mod congestion;

pub mod steering;

mod memory;

mod object;

mod queue_pair;

mod operation;

mod wire;

mod turn;

mod engine;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;
#[cfg(test)]
mod tests;

pub use crate::{
    base::{
        abi,
        attr::{
            Access,
            Attributes,
            Capabilities,
            Gid,
            Modify,
            Mtu,
            Path,
            PathKind,
            QpInfo,
            QpType,
            State,
            MAX_RD_ATOMIC, //
        },
        bitmap_scan::BitmapScan,
        budget::Budget,
        copy_job::{
            Carried,
            CopyJob,
            SharedBytes,
            Unshared, //
        },
        counters::{
            CounterSet,
            Counters,
            Objects, //
        },
        doorbells::Doorbells,
        error::{
            Error,
            NeedChunk,
            Refused,
            TableKind, //
        },
        event::{
            CqEvent,
            DropReason,
            QpEvent,
            RetryReason,
            SrqEvent,
            Trace, //
        },
        host::{
            self,
            Asker,
            CompletionRing,
            Fault,
            Host,
            Job,
            JobPlace,
            Outgoing,
            PacketBytes,
            Presence,
            Queue,
            Region,
            Reorder,
            Sends,
            Sink,
            Unsent, //
        },
        id::{
            ContextId,
            CountedAt,
            QpId,
            Vport,
            GSI, //
        },
        ring::RingLayout,
        status::Status, //
    },
    engine::{
        block::Block,
        chunk::Chunk,
        run::Outcome,
        Config,
        Engine, //
    },
    memory::{
        fast,
        memory_region::{
            Memory,
            Mr,
            MrChange,
            MrInit,
            MAX_MR, //
        },
        memory_window::{
            Mw,
            MwType,
            MAX_MW, //
        },
        replica::{
            Pruned,
            Removed,
            Replicas, //
        },
    },
    object::{
        address::{
            Ah,
            MAX_AH, //
        },
        cq::{
            cqe_phase,
            Cq,
            CqInfo,
            CqInit,
            CqResize,
            Moderation,
            MAX_CQ, //
        },
        multicast::{
            Attached,
            Group,
            MAX_MCAST_GRP,
            MAX_MCAST_QP_ATTACH, //
        },
        protection_domain::{
            Pd,
            MAX_PD, //
        },
        qp_init::{
            QpInit,
            QpUser,
            NO_CQ, //
        },
        request::MAX_MESSAGE,
        srq::{
            Srq,
            SrqInfo,
            SrqInit,
            SrqResize,
            XrcSrq,
            MAX_SRQ, //
        },
        user_context::UserContext,
        user_contexts::Sleep, //
    },
    queue_pair::qp::Qp,
    wire::rx_packet::RxPacket, //
};
