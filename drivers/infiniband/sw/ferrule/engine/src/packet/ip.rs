// SPDX-License-Identifier: GPL-2.0

//! The IP headers in front of packets, and the addresses of IP in GIDs (IBA volume 1, annex A17).
//!
//! A network stack makes these headers by itself. Hosts that make frames without one build them
//! here, and so does a datagram between queue pairs of one engine: its receiver gets the header
//! that a packet would have had.

use super::checksum::Sum;

/// UDP in the headers of IP.
pub const UDP: u8 = 17;

/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// Bytes of an IPv4 header without options, the only one that there is in RoCEv2.
pub const IPV4_LEN: usize = 20;

/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;

/// "Don't fragment", as it stands in the header.
const DONT_FRAGMENT: u8 = 0x40;

/// The IPv4 address that is mapped into a GID.
#[inline]
pub fn ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    match *gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
        _ => None,
    }
}

/// The GID of an IPv4 address.
pub const fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Whether a GID is that of a multicast group of IPv6, or, mapped, of IPv4.
#[inline]
pub fn is_multicast(gid: &[u8; 16]) -> bool {
    matches!(
        gid,
        [0xff, ..] | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xe0..=0xef, ..]
    )
}

/// The fields in which the IP headers of packets differ, beside the addresses.
#[derive(Clone, Copy, Debug)]
pub struct IpHeader {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The hop limit; the time to live of IPv4.
    pub hop_limit: u8,
    /// 20 bits, of IPv6 alone.
    pub flow_label: u32,
    /// Bytes behind the header: the UDP header and the packet.
    pub payload: u16,
}

impl IpHeader {
    /// The header of IPv4. The identification is 0, since a datagram that is not fragmented needs
    /// none (RFC 6864).
    pub fn v4(&self, source: [u8; 4], destination: [u8; 4]) -> [u8; IPV4_LEN] {
        let [high, low] = self.payload.wrapping_add(IPV4_LEN as u16).to_be_bytes();
        let [s0, s1, s2, s3] = source;
        let [d0, d1, d2, d3] = destination;
        let header = |sum: u16| {
            let [sum_high, sum_low] = sum.to_be_bytes();
            // Version 4, five words of header.
            [
                0x45,
                self.traffic_class,
                high,
                low,
                0,
                0,
                DONT_FRAGMENT,
                0,
                self.hop_limit,
                UDP,
                sum_high,
                sum_low,
                s0,
                s1,
                s2,
                s3,
                d0,
                d1,
                d2,
                d3,
            ]
        };
        header(Sum::default().with(&header(0)).end())
    }

    /// The header of IPv6.
    pub fn v6(&self, source: &[u8; 16], destination: &[u8; 16]) -> [u8; IPV6_LEN] {
        let class = u32::from(self.traffic_class).wrapping_shl(20);
        let word = 0x6000_0000 | class | (self.flow_label & 0xf_ffff);
        let [a, b, c, d] = word.to_be_bytes();
        let [high, low] = self.payload.to_be_bytes();
        let head = [a, b, c, d, high, low, UDP, self.hop_limit];
        let mut bytes = [0; IPV6_LEN];
        let parts = head.iter().chain(source).chain(destination);
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = *from;
        }
        bytes
    }
}
