// SPDX-License-Identifier: GPL-2.0

//! The headers of packets that are sent: those that soft's sockets make (`soft/net/path.rs`), and
//! that of Ethernet.

use ferrule_engine::packet::ip::{ipv4, IpHeader, IPV4_LEN, IPV6_LEN, UDP_LEN};
use ferrule_engine::packet::PORT;
use ferrule_engine::Gid;

use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::frame::{Mac, HEADER};

/// The hop limit for those who have named none.
const HOP_LIMIT: u8 = 64;

/// The bits of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// The most bytes that headers take.
pub const MOST: usize = HEADER + IPV6_LEN + UDP_LEN;

/// The port to send from, by the flow label, or by the queue pairs' numbers where there is none, so
/// that the network can spread connections (IBA volume 1, A17.9.3). All of Linux's drivers compute
/// it in this way.
pub fn source_port(flow_label: u32, qpn: u32, peer: u32) -> u16 {
    let label = match flow_label {
        0 => {
            let product = u64::from(qpn).wrapping_mul(u64::from(peer));
            (product ^ product.wrapping_shr(20) ^ product.wrapping_shr(40)) as u32
        }
        label => label,
    } & FLOW_LABEL;
    0xc000 | (label ^ label.wrapping_shr(14)) as u16 & 0x3fff
}

/// Both ends, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    V4([u8; 4], [u8; 4]),
    V6(Gid, Gid),
}

/// Where a packet comes from, and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The sender's Ethernet address.
    pub source: Mac,
    /// That of the next hop.
    pub destination: Mac,
    /// The sender's address.
    pub sgid: Gid,
    /// The receiver's address.
    pub dgid: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// 0: as usual.
    pub hop_limit: u8,
    /// 20 bits.
    pub flow_label: u32,
}

/// The headers of the packets of a way.
#[derive(Clone, Debug)]
pub struct Headers {
    source: Mac,
    destination: Mac,
    ends: Ends,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    source_port: u16,
}

/// Where the headers of IP and UDP lie in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where that of UDP begins, and that of IP ends.
    pub udp: usize,
    /// Where the packet begins.
    pub packet: usize,
}

impl Headers {
    /// The headers of packets from one queue pair to another; `qpn` and `peer` are their numbers, 0
    /// where they are not known. `None` if the addresses are of two families.
    pub fn new(way: &Way, qpn: u32, peer: u32) -> Option<Self> {
        let ends = match (ipv4(&way.sgid), ipv4(&way.dgid)) {
            (Some(source), Some(target)) => Ends::V4(source, target),
            (None, None) => Ends::V6(way.sgid, way.dgid),
            _ => return None,
        };
        Some(Self {
            source: way.source,
            destination: way.destination,
            ends,
            traffic_class: way.traffic_class,
            hop_limit: match way.hop_limit {
                0 => HOP_LIMIT,
                limit => limit,
            },
            flow_label: way.flow_label & FLOW_LABEL,
            source_port: source_port(way.flow_label, qpn, peer),
        })
    }

    /// The same way, for packets that are marked where they meet congestion instead of dropped:
    /// ECT(0) of RFC 3168.
    #[must_use]
    pub fn with_ecn(mut self) -> Self {
        self.traffic_class = self.traffic_class & !3 | 2;
        self
    }

    /// Where frames go.
    pub fn destination(&self) -> &Mac {
        &self.destination
    }

    /// Writes the headers of a packet of `length` bytes behind `to`, which is empty. `None` if they
    /// are too many.
    pub fn write(&self, length: usize, to: &mut Vec<u8>) -> Option<Places> {
        let udp = u16::try_from(length.checked_add(UDP_LEN)?).ok()?;
        udp.checked_add(IPV4_LEN as u16)?;
        let header = IpHeader {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            payload: udp,
        };
        to.extend(self.destination);
        to.extend(self.source);
        match &self.ends {
            Ends::V4(source, target) => {
                to.extend(ETHERTYPE_IPV4.to_be_bytes());
                to.extend(header.v4(*source, *target));
            }
            Ends::V6(source, target) => {
                to.extend(ETHERTYPE_IPV6.to_be_bytes());
                to.extend(header.v6(source, target));
            }
        }
        let begin = to.len();
        to.extend(self.source_port.to_be_bytes());
        to.extend(PORT.to_be_bytes());
        to.extend(udp.to_be_bytes());
        // None, as tunnels that protect their packets by themselves may have it, for IPv6 by RFC
        // 6935 and RFC 6936.
        to.extend([0, 0]);
        Some(Places {
            udp: begin,
            packet: to.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use ferrule_engine::packet::ip::mapped;

    use super::*;

    /// The answers of Linux's `rdma_get_udp_sport()`.
    #[test]
    fn ports() {
        assert_eq!(source_port(0x12345, 0, 0), 0xc000 | 0x2341);
        assert_eq!(source_port(0xf_ffff, 1, 2), 0xc000 | 0x3fc0);
        assert_eq!(source_port(0, 0x11, 0x12), source_port(0, 0x12, 0x11));
        assert_eq!(source_port(0, 17, 18), 0xc000 | (17 * 18));
        assert_eq!(source_port(0, 0, 5), 0xc000);
    }

    #[test]
    fn families_do_not_mix() {
        let way = |sgid, dgid| Way {
            source: [2; 6],
            destination: [4; 6],
            sgid,
            dgid,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        let (v4, v6) = (mapped([192, 0, 2, 1]), [0xfe; 16]);
        assert!(Headers::new(&way(v4, v6), 1, 2).is_none());
        assert!(Headers::new(&way(v6, v4), 1, 2).is_none());
        let headers = Headers::new(&way(v4, v4), 1, 2).unwrap().with_ecn();
        let mut bytes = Vec::new();
        assert!(headers.write(65_535 - 27, &mut bytes).is_none());
        bytes.clear();
        let places = headers.write(65_535 - 28, &mut bytes).unwrap();
        assert_eq!((places.udp, places.packet), (34, 42));
        assert_eq!(bytes[14..18], [0x45, 2, 0xff, 0xff]);
        assert_eq!(bytes[22], 64);
    }
}
