// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events and the steps that tracepoints show.

use crate::base::{
    attr::State,
    status::Status, //
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
        /// The congestion window, in 256ths of a packet.
        cwnd: u32,
        /// Packets in flight.
        in_flight: u32,
        /// What the connections of the path go by: 0 delay, 1 loss; 2: they drain the queue.
        mode: u8,
    },
}
