// SPDX-License-Identifier: GPL-2.0

//! The wire: RoCEv2 packets between the engine and the network.
//!
//! | what | where |
//! |---|---|
//! | the port 4791 of a network namespace, which its devices share; whose a packet is | [`ports`] |
//! | the way to a peer: headers, prepared, and a route; sending by it | [`path`] |
//! | the network device below a device, and whether it is still there | [`lower`] |
//! | multicast groups of the network device | [`multicast`] |
//! | a packet that has come, as the engine sees it | [`received`] |
//! | packets out of order, until those before them come | [`reorder`] |
//! | packets that leave together | [`gso`] |
//! | how much a queue pair may have on its way | [`sender`] |
//! | Ethernet frames of raw packet queue pairs, and the rules by which they come | [`frames`] |
//! | what the network tells the engine | [`device`] |
//!
//! Received packets come in softirq context and are handed to the engine by [`device::Device`]. The
//! owner of the shard sends, in whatever context that is.

pub(crate) mod device;
pub(crate) mod frames;
pub(crate) mod gso;
pub(crate) mod lower;
pub(crate) mod multicast;
pub(crate) mod path;
pub(crate) mod ports;
pub(crate) mod received;
pub(crate) mod reorder;
pub(crate) mod sender;
