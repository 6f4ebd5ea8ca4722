// SPDX-License-Identifier: GPL-2.0

//! The server against clients: good ones, hostile ones, and two at a time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub)]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod bad_options;
mod client;
mod data;
mod datagrams;
mod death;
mod driver;
mod ends;
mod events;
mod fast;
mod footprint;
mod fuzz;
mod good;
mod hostile;
mod hostile_driver;
mod limits;
mod neighbour;
mod objects;
mod random;
mod refused;
mod running;
mod seeing;
mod wire;
mod xrc;
