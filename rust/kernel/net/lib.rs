// SPDX-License-Identifier: GPL-2.0

//! Networking, for drivers that speak a protocol of their own on UDP.
//!
//! | what | where |
//! |---|---|
//! | network devices, namespaces, data of each namespace | [`NetDevice`], [`Namespace`], [`pernet`] |
//! | what happens to devices and addresses | [`notifier`] |
//! | groups of receivers | [`NetDevice::join_multicast`], and the lock for it, [`Rtnl`] |
//! | packets | [`skb`], and the headers of IP and UDP in [`ip`] |
//! | receiving: a UDP port in a namespace | [`udp`] |
//! | Ethernet frames as they are | [`frame`] |
//! | sending: a route, then a packet by it | [`route`], [`udp::Port::send`], [`Batch`], [`Flow`], [`backlog_len`] |
//!
//! A driver receives in softirq context and may send from there, too. Each method says in which
//! contexts it may be called; "any context" excludes hard interrupts and code with interrupts
//! disabled everywhere in this crate, for the network stack is not made for those.
//!
//! Nothing here writes to the kernel log: a bad packet is answered by an error or dropped, and the
//! driver counts it.

pub mod account;
mod backlog;
mod batch;
mod device;
pub mod frame;
pub mod ip;
mod namespace;
pub mod notifier;
pub mod pernet;
pub mod route;
mod rtnl;
pub mod skb;
pub mod udp;

pub(crate) use bindings_ext as bindings;

pub use backlog::{
    backlog_len,
    Flow, //
};
pub use batch::Batch;
pub use device::{
    eui64_from_mac,
    NetDevice,
    Vlan,
    ETH_ALEN, //
};
pub use namespace::{
    HeldNamespace,
    Namespace, //
};
pub use rtnl::{
    Rtnl,
    RtnlGuard, //
};
