// SPDX-License-Identifier: GPL-2.0

//! Flow steering: which raw packet queue pairs get an Ethernet frame (`ibv_create_flow(3)`).
//!
//! The host keeps the rules, sorted ([`sort`](rule_table::sort)), and asks
//! [`steer`](rule_table::steer) where a frame goes before anything of it is copied. So the frames
//! that nobody wants never reach the engine.

pub mod fields;
pub mod rule;
pub mod rule_table;
