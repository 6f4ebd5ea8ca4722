// SPDX-License-Identifier: GPL-2.0

//! A PCI function for each of several guests, served to QEMU by vfio-user.
//!
//! From the ground up, each file importing only from those before it:
//!
//! - `protocol`, `framing`: messages out of bytes
//! - `mapping`: shared memory; all unsafe code
//! - `memory`: a guest's memory; `doorbells`: the pages of BAR2; `vectors`: interrupts
//! - `config`, `registers`: the configuration space and BAR0
//! - `log`: how much of it a guest may fill
//! - `adapter`: the function; `session`: a connection; `socket`: what it is read from

#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

pub mod adapter;
pub mod config;
pub mod doorbells;
pub mod framing;
pub mod log;
pub mod mapping;
pub mod memory;
pub mod protocol;
pub mod registers;
pub mod session;
pub mod socket;
pub mod vectors;
