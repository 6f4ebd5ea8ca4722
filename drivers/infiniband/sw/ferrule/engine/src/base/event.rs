// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events and the steps that tracepoints show.

use crate::{
    base::{
        attr::State,
        id::Vport,
        status::Status, //
    },
    packet::{
        Bth,
        Malformed, //
    },
};

/// Asynchronous events of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// The queue overran and takes no more completions (`IB_EVENT_CQ_ERR`).
    Error,
}

/// Asynchronous events of a queue pair (IBA volume 1, 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The work queue is broken or its completions cannot be told (`IB_EVENT_QP_FATAL`).
    Fatal,
    /// The responder refused an invalid request (`IB_EVENT_QP_REQ_ERR`).
    RequestError,
    /// The responder refused an access to memory (`IB_EVENT_QP_ACCESS_ERR`).
    AccessError,
    /// A message arrived in state RTR (`IB_EVENT_COMM_EST`).
    CommunicationEstablished,
    /// The send queue has drained in state SQD (`IB_EVENT_SQ_DRAINED`).
    SendQueueDrained,
    /// A queue pair in error took its last request from its shared receive queue
    /// (`IB_EVENT_QP_LAST_WQE_REACHED`).
    LastRequestReached,
}

/// Asynchronous events of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrqEvent {
    /// The queue holds fewer requests than its limit (`IB_EVENT_SRQ_LIMIT_REACHED`).
    LimitReached,
    /// The queue is broken (`IB_EVENT_SRQ_ERR`).
    Error,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// It is too short for its headers.
    Short = 0,
    /// Its transport header has another version.
    Version = 1,
    /// Its opcode does not exist.
    Opcode = 2,
    /// Its payload or its pad count does not fit the opcode.
    Length = 3,
    /// The invariant CRC is wrong.
    Icrc = 4,
    /// The P_Key is not the port's.
    Pkey = 5,
    /// There is no queue pair of the number.
    UnknownQueuePair = 6,
    /// The queue pair is of another type, or has another peer.
    Misdirected = 7,
    /// The queue pair is in a state in which it takes no such packet.
    NotReady = 8,
    /// A response that has been taken already, or that belongs to no packet.
    Duplicate = 9,
    /// A response with a syndrome that does not exist.
    Syndrome = 10,
    /// A response of another kind than the oldest request waits for.
    Unexpected = 11,
    /// A packet of an unreliable message that does not follow the one before.
    OutOfSequence = 12,
    /// The Q_Key is not the queue pair's.
    Qkey = 13,
    /// There is no receive request.
    NoReceive = 14,
    /// The buffers of the receive request are too short.
    TooLong = 15,
    /// An unreliable request that its responder refuses: a wrong key, or an operation that it does
    /// not allow.
    Refused = 16,
    /// The memory for an unreliable message is being brought in.
    Absent = 17,
}

impl From<Malformed> for DropReason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short => DropReason::Short,
            Malformed::Version => DropReason::Version,
            Malformed::Opcode => DropReason::Opcode,
            Malformed::Length => DropReason::Length,
        }
    }
}

/// Why a requester sends packets again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RetryReason {
    /// Nothing was acknowledged in time.
    Timeout = 0,
    /// The responder reports a missing packet (NAK, sequence error).
    SequenceNak = 1,
    /// Responses are missing: an implied NAK.
    ImpliedNak = 2,
    /// The responder has no receive request (RNR NAK).
    RnrNak = 3,
    /// A tail-loss probe.
    Probe = 4,
}

/// A step of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A doorbell was taken.
    Doorbell {
        /// The queue pair's number.
        qpn: u32,
        /// Its producer index.
        producer: u32,
    },
    /// A send request was copied out of the ring.
    Request {
        /// The queue pair's virtual port.
        vport: Vport,
        /// The queue pair's number.
        qpn: u32,
        /// The program's name for the request.
        wr_id: u64,
        /// `enum ferrule_wr_opcode`, as it stood in the ring.
        opcode: u8,
        /// The length of the message in bytes.
        length: u32,
    },
    /// A completion was written.
    Completion {
        /// The queue pair's virtual port.
        vport: Vport,
        /// The queue pair's number.
        qpn: u32,
        /// The completion queue's number.
        cqn: u32,
        /// The program's name for the request.
        wr_id: u64,
        /// How the request ended.
        status: Status,
        /// `enum ferrule_wc_opcode`.
        opcode: u8,
        /// The length of the message in bytes.
        length: u32,
    },
    /// A queue pair changed its state.
    State {
        /// The queue pair's number.
        qpn: u32,
        /// The state that it left.
        from: State,
        /// The state that it is in.
        to: State,
    },
    /// Congestion control has taken a round trip into account.
    RoundTrip {
        /// The queue pair's number.
        qpn: u32,
        /// How long it took, in nanoseconds.
        rtt: u64,
        /// The least one that is known of the path, in nanoseconds.
        min_rtt: u64,
        /// The queuing delay that the connection allows for, in nanoseconds.
        target: u64,
        /// The congestion window, in 256ths of a packet.
        cwnd: u32,
        /// Packets in flight.
        in_flight: u32,
        /// The mode of the path's connections: 0 they go by delay, 1 by loss; 2: they drain the
        /// queue.
        mode: u8,
    },
    /// A packet was handed to the network.
    PacketSent {
        /// The queue pair that sent it.
        qpn: u32,
        /// Its base transport header.
        bth: Bth,
        /// The bytes of its payload.
        length: u32,
    },
    /// A sound packet has come.
    PacketReceived {
        /// Its base transport header.
        bth: Bth,
        /// The bytes from its IP header to the invariant CRC.
        length: u32,
    },
    /// A packet was dropped.
    PacketDropped {
        /// Its base transport header; zeroes if it is shorter than that.
        bth: Bth,
        /// Why.
        reason: DropReason,
    },
    /// A requester sends packets again.
    Retry {
        /// The queue pair.
        qpn: u32,
        /// The oldest packet that has not been acknowledged.
        psn: u32,
        /// Why.
        reason: RetryReason,
    },
}
