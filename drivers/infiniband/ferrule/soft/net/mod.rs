// SPDX-License-Identifier: GPL-2.0

//! The wire: RoCEv2 packets between the engine and the network.
//!
//! | what | where |
//! |---|---|
//! | the port 4791 of a network namespace, which its devices share; whose a packet is | [`ports`] |
//!
//! Received packets come in softirq context and are handed to [`policy`](super::policy).

pub(crate) mod ports;
