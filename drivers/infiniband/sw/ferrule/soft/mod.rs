// SPDX-License-Identifier: GPL-2.0

//! The `soft` backend: the engine in the kernel.
//!
//! [`Soft`] is a device to the verbs ([`Backend`](crate::backend::Backend)), and [`shared`] has the
//! handle to its engine.

mod areas;
mod commands;
mod core;
pub(crate) mod debugfs;
mod destination;
mod device;
mod host;
mod join;
mod kicks;
mod memory;
pub(crate) mod net;
mod offers;
mod owners;
mod paging;
mod pending;
mod policy;
mod replicas;
mod report;
#[cfg(not(CONFIG_PREEMPT_RT))]
mod shard;
#[cfg(CONFIG_PREEMPT_RT)]
#[path = "shard_rt.rs"]
mod shard;
mod shards;
mod shared;
mod softirq;
mod statistics;
mod timer_share;
mod worker;

pub(crate) use self::device::Soft;
