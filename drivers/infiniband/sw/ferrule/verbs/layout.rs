// SPDX-License-Identifier: GPL-2.0

//! How the rings of a queue pair lie in the buffer that it shares with its program.

use ferrule_engine::{
    abi,
    Capabilities,
    RingLayout, //
};
use kernel::prelude::*;
use rdma::qp;

use crate::backend::ring::QpRings;

/// The buffer that a queue pair shares with its program: send ring, receive ring, control words.
pub(super) struct Layout {
    pub(super) rings: QpRings,
    pub(super) size: usize,
}

impl Layout {
    /// Lays the rings out for at least the sizes that were asked for. `receives`: there is a
    /// receive ring; else its sizes do not count. `destination`: the bytes for each slot's, if
    /// requests have one of their own.
    pub(super) fn new(asked: &qp::Cap, receives: bool, destination: Option<u32>) -> Result<Self> {
        let mut asked = *asked;
        if !receives {
            (asked.max_recv_wr, asked.max_recv_sge) = (0, 0);
        }
        if asked.max_send_wr > abi::MAX_QP_DEPTH
            || asked.max_recv_wr > abi::MAX_QP_DEPTH
            || asked.max_send_sge > abi::MAX_SGE as u32
            || asked.max_recv_sge > abi::MAX_SGE as u32
            || asked.max_inline_data > abi::MAX_INLINE as u32
        {
            return Err(EINVAL);
        }
        let sge = size_of::<abi::Sge>() as u32;
        let send_head = size_of::<abi::SendWqe>() as u32;

        let send_body = (asked.max_send_sge * sge).max(asked.max_inline_data);
        let sq = ring(0, asked.max_send_wr, send_head + send_body);
        let (rq, max_recv_sge) =
            receive_ring(sq.depth * sq.stride, asked.max_recv_wr, asked.max_recv_sge);
        let ctrl = rq.offset + rq.depth * rq.stride;

        // Space that is left by the rounding up is granted.
        let send_body = sq.stride - send_head;
        let cap = Capabilities {
            max_send_wr: sq.depth,
            max_recv_wr: rq.depth,
            max_send_sge: (send_body / sge).min(abi::MAX_SGE as u32),
            max_recv_sge: if receives { max_recv_sge } else { 0 },
            max_inline: send_body.min(abi::MAX_INLINE as u32),
        };
        let end = ctrl + size_of::<abi::QpCtrl>() as u32;
        Ok(Layout {
            rings: QpRings {
                sq,
                rq,
                ctrl,
                destinations: destination.map(|_| end),
                cap,
            },
            size: (end + sq.depth * destination.unwrap_or(0)) as usize,
        })
    }
}

/// A ring of at least `depth` slots of at least `slot` bytes.
fn ring(offset: u32, depth: u32, slot: u32) -> RingLayout {
    RingLayout {
        offset,
        depth: if depth == 0 {
            0
        } else {
            depth.next_power_of_two()
        },
        stride: slot.next_power_of_two().max(64),
    }
}

/// A ring of at least `depth` receive requests with at least `max_sge` entries each, and the
/// entries that there is space for.
pub(super) fn receive_ring(offset: u32, depth: u32, max_sge: u32) -> (RingLayout, u32) {
    let sge = size_of::<abi::Sge>() as u32;
    let head = size_of::<abi::RecvWqe>() as u32;
    let ring = ring(offset, depth, head + max_sge * sge);
    (ring, ((ring.stride - head) / sge).min(abi::MAX_SGE as u32))
}
