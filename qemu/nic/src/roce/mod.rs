// SPDX-License-Identifier: GPL-2.0

//! What stands in front of the packets of RoCEv2: the headers of Ethernet, IP and UDP (IBA volume 1, annex A17).
//!
//! - `checksum`: the Internet checksum
//! - `headers`: the headers of packets that are sent
//! - `received`: packets out of frames

pub mod checksum;
pub mod headers;
pub mod received;

/// The UDP port of RoCEv2 (IBA volume 1, A17.3.1.1).
pub const PORT: u16 = 4791;

/// UDP in the headers of IP.
pub const UDP: u8 = 17;

/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// The type of IPv4 in Ethernet headers.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The type of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
