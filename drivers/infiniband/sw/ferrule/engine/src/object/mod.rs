// SPDX-License-Identifier: GPL-2.0

//! The objects that programs create beside queue pairs, and the requests that they post.

pub(crate) mod address;
pub(crate) mod cq;
pub(crate) mod deferral;
pub(crate) mod doorbell;
pub(crate) mod multicast;
pub(crate) mod opcodes;
pub(crate) mod port;
pub(crate) mod protection_domain;
pub(crate) mod qp_init;
pub(crate) mod request;
pub(crate) mod srq;
pub(crate) mod user_context;
pub(crate) mod user_contexts;
pub(crate) mod wr_opcode;
