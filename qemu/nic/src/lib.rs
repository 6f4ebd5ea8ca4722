// SPDX-License-Identifier: GPL-2.0

//! A PCI function for each of several guests, served to QEMU by vfio-user.
//!
//! From the ground up, each file importing only from those before it:
//!
//! - `protocol`, `framing`: messages out of bytes
//! - `mapping`: shared memory; all unsafe code but two calls of `switch::tap`
//! - `pinned`, `memory`: a guest's memory; `pages`: the part of it that a page list names; `area`,
//!   `fast`, `region`: the same for the engine
//! - `statistics`: the counters of a guest
//! - `signal`, `events`, `addresses`: vectors, event queues, and the owners of addresses
//! - `frame`, `roce`: Ethernet frames, and the headers in front of a packet; `capture`: files of
//!   frames; `switch`: the port of each frame
//! - `wire`: the state that the engine and the switch's thread share; `route`, `packet`: packets
//!   out and in
//! - `host`, `patience`, `device`, `worker`: the engine's host, its lock, its thread, and when that
//!   is awake
//! - `guest`, `commands`: the objects of a guest, and the commands for them
//! - `vectors`, `config`, `registers`: interrupts, the configuration space and BAR0
//! - `log`: how much of it a guest may fill
//! - `adapter`: the function; `session`: a connection; `drain`: its end; `socket`: the socket that
//!   it is read from; `keeper`: the process that ends connections when this one has died
//! - `captures`: the capture that runs
//! - `request`, `control`: requests to the control socket, and their answers; `show`: the counters
//!   as a table
//! - `options`: the command line; `limits`: those that the process runs under
//!
//! `interface` is the driver's file.

#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

pub mod adapter;
mod addresses;
mod area;
pub mod capture;
pub mod captures;
mod commands;
pub mod config;
pub mod control;
pub mod device;
mod drain;
mod events;
mod fast;
pub mod frame;
pub mod framing;
#[cfg(test)]
mod golden;
mod guest;
mod host;
// The file says what there is to say of each structure; of fields whose names do, it says no more.
#[allow(missing_docs)]
#[path = "../../../drivers/infiniband/sw/ferrule/nic/interface.rs"]
pub mod interface;
pub mod keeper;
pub mod limits;
pub mod log;
pub mod mapping;
pub mod memory;
pub mod options;
mod packet;
mod pages;
mod patience;
pub mod pinned;
pub mod protocol;
mod region;
pub mod registers;
pub mod request;
pub mod roce;
mod route;
pub mod session;
pub mod show;
mod signal;
pub mod socket;
mod statistics;
pub mod switch;
pub mod vectors;
pub mod wire;
pub mod worker;
