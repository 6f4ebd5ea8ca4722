// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: state, and whose turn it is. What they do stands above.

pub(crate) mod cx;
pub(crate) mod qp;
pub(crate) mod qp_core;
pub(crate) mod receive_queue;
pub(crate) mod remote;
pub(crate) mod schedule;
pub(crate) mod send_queue;
