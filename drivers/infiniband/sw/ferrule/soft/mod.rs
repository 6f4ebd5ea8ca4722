// SPDX-License-Identifier: GPL-2.0

//! The `soft` backend: the engine in the kernel.
//!
//! The verbs see [`Soft`], a device, and [`Shared`], a handle to the engine of one.

pub(crate) mod areas;
mod core;
pub(crate) mod debugfs;
mod device;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod net;
mod offers;
mod pending;
mod policy;
pub(crate) mod polling;
pub(crate) mod posting;
mod report;
mod shard;
mod shared;
pub(crate) mod srq;
mod statistics;
mod worker;

pub(crate) use self::{
    device::Soft,
    shared::{
        Shared,
        MAX_PD, //
    },
    statistics::COUNTERS, //
};
