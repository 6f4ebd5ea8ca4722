// SPDX-License-Identifier: GPL-2.0

//! An Ethernet switch between the guests' network devices, links to other processes, and the
//! engine.
//!
//! From the ground up:
//!
//! - `stream`: frames out of a stream of bytes, and back
//! - `counters`, `queue`: the counters of a port, and the frames that wait at it; `table`: the port
//!   of each address
//! - `forward`: the switch, without I/O
//! - `address`, `tap`: sockets and TAP devices; `connection`, `endpoint`: the other end of a port
//! - `poll`: the thread that serves them

pub mod address;
pub mod connection;
pub mod counters;
pub mod endpoint;
pub mod forward;
pub mod poll;
pub mod queue;
pub mod stream;
pub mod table;
pub mod tap;
