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

pub mod abi;
mod address;
mod atomic;
mod attr;
mod bind;
mod budget;
mod bus;
mod chunk;
mod completer;
mod congestion;
mod context;
mod counters;
mod cq;
mod datagram;
mod datagram_send;
mod doorbell;
mod ending;
mod engine;
mod error;
mod event;
pub mod fast;
mod grh;
pub mod host;
mod id;
mod key;
mod key_use;
mod list;
mod local;
mod local_wr;
mod message;
mod multicast;
pub mod packet;
mod port;
mod psn;
mod qp;
mod qp_core;
mod qp_init;
mod read;
mod receive_queue;
mod reply;
mod request;
mod requester;
mod responder;
mod ring;
mod rnr_timer;
mod schedule;
mod send_queue;
mod sgl;
mod srq;
mod state;
mod status;
mod table;
mod timer;
mod uc;
mod unreliable;
mod walk;
mod window;
mod wire;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;
#[cfg(test)]
mod tests;

pub use crate::{
    address::{
        Ah,
        MAX_AH, //
    },
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
    budget::Budget,
    chunk::Chunk,
    context::{
        Context,
        Sleep, //
    },
    counters::{
        Counters,
        Objects, //
    },
    cq::{
        Cq,
        CqInfo,
        CqInit,
        CqResize,
        MAX_CQ, //
    },
    engine::{
        Config,
        Engine,
        Outcome, //
    },
    error::{
        Error,
        NeedChunk,
        Refused,
        TableKind, //
    },
    event::{
        CqEvent,
        QpEvent,
        SrqEvent,
        Trace, //
    },
    host::{
        CompletionRing,
        Doorbells,
        Early,
        Fault,
        Host,
        Outgoing,
        Packet,
        Queue,
        Region,
        Sends,
        Sink,
        Unsent, //
    },
    id::{
        ContextId,
        QpId, //
    },
    key::{
        Memory,
        Mr,
        MrChange,
        MrInit,
        MAX_MR, //
    },
    multicast::{
        Attached,
        Group,
        MAX_MCAST_GRP,
        MAX_MCAST_QP_ATTACH, //
    },
    qp::Qp,
    qp_init::{
        QpInit,
        GSI, //
    },
    request::MAX_MESSAGE,
    ring::RingLayout,
    srq::{
        Srq,
        SrqInfo,
        SrqInit,
        MAX_SRQ, //
    },
    status::Status,
    walk::Walk,
    window::{
        Mw,
        MwType,
        MAX_MW, //
    },
    wire::received::Datagram,
};
