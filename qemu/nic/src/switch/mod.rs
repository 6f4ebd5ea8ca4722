// SPDX-License-Identifier: GPL-2.0

//! An Ethernet switch between the guests' network devices, links to other processes, and the engine.
//!
//! From the ground up:
//!
//! - `stream`: frames out of a stream of bytes, and back
//! - `queue`: the frames that wait at a port; `table`: the port of each address
//! - `forward`: the switch, without I/O
//! - `address`, `connection`, `endpoint`: sockets of the ports
//! - `poll`: the thread that serves them

pub mod address;
pub mod connection;
pub mod endpoint;
pub mod forward;
pub mod poll;
pub mod queue;
pub mod stream;
pub mod table;
