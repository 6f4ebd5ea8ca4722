// SPDX-License-Identifier: GPL-2.0

//! The headers in front of the packets of RoCEv2: Ethernet, IP and UDP (IBA volume 1, annex A17).
//!
//! - `headers`: the headers of packets that are sent
//! - `received`: packets out of frames
//!
//! `ferrule_engine::packet` has the headers of IP and the Internet checksum.

pub mod headers;
pub mod received;

/// The type of IPv4 in Ethernet headers.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The type of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
