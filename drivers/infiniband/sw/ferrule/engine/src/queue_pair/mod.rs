// SPDX-License-Identifier: GPL-2.0

//! State of queue pairs, and whose turn it is; their behaviour is in `operation/`, `wire/` and
//! `turn/`.

pub(crate) mod cx;
pub(crate) mod qp;
pub(crate) mod qp_core;
pub(crate) mod receive_queue;
pub(crate) mod remote;
pub(crate) mod schedule;
pub(crate) mod send_queue;
