// SPDX-License-Identifier: GPL-2.0

//! The RDMA core, for providers.
//!
//! A provider implements [`Driver`] and, for each kind of object, the trait `Operations` of that
//! kind's module. The rules are the same for all of them:
//!
//! - An object of the driver is a plain value. The verb that creates it returns the value, which is
//!   put behind the core's own part in memory that the core allocates. The verb that destroys it is
//!   the value's [`Drop`], which cannot fail.
//! - [`Device`], [`Ucontext`], [`Pd`], [`Mr`], [`Dm`], [`Cq`], [`Qp`] and [`Ah`] dereference to
//!   that value. They are only lent, for the time of a verb: the core frees them as soon as their
//!   destroy verb returns. The driver keeps longer-lived state in an [`Arc`](kernel::sync::Arc) of
//!   its own.
//! - Kernel users post and poll by optional verbs ([`wr`], [`wc`]): only a driver that has all of
//!   them gets such users, and must be ready for them in any context.
//! - What a program sends along with a call and gets back ([`Udata`]) follows the rules of `struct
//!   ib_udata` even if a driver's verb does not read it.
//! - A verb that a driver does not implement is not there at all: the core answers `EOPNOTSUPP`.
//!
//! C headers: `include/rdma/ib_verbs.h`, `include/rdma/uverbs_ioctl.h`, `include/rdma/ib_umem.h`,
//! `include/rdma/rdma_netlink.h`.

mod access;
mod advice;
pub mod ah;
mod charge;
pub mod counter;
pub mod cq;
pub mod details;
pub mod device;
pub mod dm;
pub mod dma_buf;
mod driver;
mod extent;
pub mod flow;
mod gate;
pub mod gid;
mod link;
mod mapped;
pub mod memory;
pub mod method;
pub mod mmap;
mod module;
pub mod mr;
pub mod mw;
pub mod neighbours;
mod object;
mod ops;
mod origin;
mod page_requests;
mod page_table;
pub mod paging;
pub mod pd;
mod pin;
pub mod pma;
pub mod port;
pub mod qp;
mod registered;
mod registration;
pub mod srq;
pub mod stats;
mod uapi;
pub mod ucontext;
mod udata;
pub mod umem;
mod unregistered;
mod user_call;
pub mod wc;
mod workqueues;
pub mod wr;
pub mod xrcd;

pub(crate) use bindings_ext as bindings;

pub use access::Access;
pub use advice::Advice;
pub use ah::{
    Ah,
    AhAttr, //
};
pub use charge::HandleCharge;
pub use cq::Cq;
pub use device::Device;
pub use dm::Dm;
pub use driver::{
    Driver,
    Unsupported, //
};
pub use flow::Flow;
pub use gid::{
    Gid,
    GidAttr,
    HeldGidAttr, //
};
pub use link::{
    Link,
    Offered, //
};
pub use memory::Memory;
pub use mr::Mr;
pub use mw::Mw;
pub use pd::Pd;
pub use qp::Qp;
pub use registered::{
    Handle,
    Registered, //
};
pub use registration::Registration;
pub use srq::Srq;
pub use ucontext::Ucontext;
pub use udata::Udata;
pub use unregistered::UnregisteredDevice;
pub use user_call::UserCall;
pub use workqueues::Workqueues;
pub use xrcd::Xrcd;
