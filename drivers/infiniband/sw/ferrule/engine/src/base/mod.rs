// SPDX-License-Identifier: GPL-2.0

//! Base types, each for itself: numbers, tables, lists and timers, what programs see, and the host.

pub mod abi;
pub(crate) mod attr;
pub(crate) mod bitmap_scan;
pub(crate) mod budget;
pub(crate) mod copy_job;
pub(crate) mod counters;
pub(crate) mod doorbells;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod grh;
pub mod host;
pub(crate) mod id;
pub(crate) mod list;
pub(crate) mod psn;
pub(crate) mod ring;
pub(crate) mod rnr_timer;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod timer;
pub(crate) mod uses;
