// SPDX-License-Identifier: GPL-2.0

//! Abstractions that an RDMA driver needs and the `kernel` crate lacks. Networking is in the crate
//! `net_ext`.
//!
//! The modules are named and laid out as those of `kernel`, so that each could move there.

pub mod boxed;
pub mod crc32;
pub mod device;
pub mod dma;
pub mod error;
pub mod mm;
pub mod nospec;
pub mod pci;
pub mod random;
pub mod rcu;
pub mod sync;
pub mod task;
pub mod time;
mod tracepoint;

/// The bindings, for the macros of this crate and for crates on its floor.
#[doc(hidden)]
pub use bindings_ext as bindings;

/// For the macros of this crate.
#[doc(hidden)]
pub use kernel;
