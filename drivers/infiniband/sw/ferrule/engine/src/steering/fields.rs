// SPDX-License-Identifier: GPL-2.0

//! The header fields of a frame that rules compare, in the byte order of the wire.
//!
//! Each structure is laid out as the filter of the same name in Linux (`struct ib_flow_eth_filter`
//! and others).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// The bytes of a frame that the fields are in: an Ethernet header, two VLAN tags, the longest
/// header of IPv4, and ports.
pub const HEADERS: usize = 14 + 2 * 4 + 60 + 4;

/// Of the Ethernet header.
#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Ethernet {
    /// Where the frame goes.
    pub dst_mac: [u8; 6],
    /// Where it comes from.
    pub src_mac: [u8; 6],
    /// The type behind the last VLAN tag.
    pub ether_type: [u8; 2],
    /// The first VLAN tag: priority, drop eligibility and identifier. A rule that compares a bit of
    /// it is for frames that have one.
    pub vlan_tag: [u8; 2],
}

/// Of an IPv4 header.
#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Ipv4 {
    /// Source address.
    pub src_ip: [u8; 4],
    /// Destination address.
    pub dst_ip: [u8; 4],
    /// The protocol that follows.
    pub proto: u8,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// 2: not to be fragmented; 4: more fragments follow (`enum ib_ipv4_flags`).
    pub flags: u8,
}

/// Of an IPv6 header.
#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Ipv6 {
    /// Source address.
    pub src_ip: [u8; 16],
    /// Destination address.
    pub dst_ip: [u8; 16],
    /// The flow label, in the low 20 bits.
    pub flow_label: [u8; 4],
    /// The header that follows.
    pub next_hdr: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// Of a TCP or UDP header.
#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Ports {
    /// Destination port.
    pub dst_port: [u8; 2],
    /// Source port.
    pub src_port: [u8; 2],
}

/// The header behind that of Ethernet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Network {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

/// The header behind that of IP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transport {
    /// TCP.
    Tcp(Ports),
    /// UDP.
    Udp(Ports),
}

/// The fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields {
    /// The Ethernet header.
    pub ethernet: Ethernet,
    /// It has a VLAN tag.
    pub has_vlan: bool,
    /// The header of IP, if there is one.
    pub network: Option<Network>,
    /// The ports, if the header of TCP or UDP follows that of IP at once: in a fragment but the
    /// first none does, nor behind extensions of IPv6.
    pub transport: Option<Transport>,
}

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// The types of VLAN tags (IEEE 802.1Q, 802.1ad).
const TYPES_VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Takes bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl Fields {
    /// The fields of a frame, of which [`HEADERS`] bytes suffice. `tag` is a VLAN tag that it has
    /// beside its bytes, which is the first one then. `None` without an Ethernet header.
    pub fn parse(frame: &[u8], tag: Option<u16>) -> Option<Self> {
        let mut rest = frame;
        let mut ethernet = Ethernet {
            dst_mac: take(&mut rest)?,
            src_mac: take(&mut rest)?,
            ether_type: take(&mut rest)?,
            vlan_tag: tag.unwrap_or(0).to_be_bytes(),
        };
        let mut has_vlan = tag.is_some();
        for _ in 0..2 {
            if !TYPES_VLAN.contains(&ethernet.ether_type) {
                break;
            }
            let (Some(vlan_tag), Some(ether_type)) = (take(&mut rest), take(&mut rest)) else {
                break;
            };
            if !has_vlan {
                ethernet.vlan_tag = vlan_tag;
            }
            has_vlan = true;
            ethernet.ether_type = ether_type;
        }
        let (network, transport) = match ethernet.ether_type {
            TYPE_IPV4 => ipv4(rest),
            TYPE_IPV6 => ipv6(rest),
            _ => None,
        }
        .unzip();
        Some(Self {
            ethernet,
            has_vlan,
            network,
            transport: transport.flatten(),
        })
    }

    /// Whether it is to a group of receivers, as a broadcast is.
    pub fn is_multicast(&self) -> bool {
        let [first, ..] = self.ethernet.dst_mac;
        first & 1 != 0
    }
}

/// The header of IPv4, and what follows.
fn ipv4(packet: &[u8]) -> Option<(Network, Option<Transport>)> {
    let mut rest = packet;
    let [version, tos, _, _, _, _, fragment, offset] = take(&mut rest)?;
    let [ttl, proto, _, _] = take(&mut rest)?;
    let (src_ip, dst_ip) = (take(&mut rest)?, take(&mut rest)?);
    let words = usize::from(version & 15);
    if version.wrapping_shr(4) != 4 || words < 5 {
        return None;
    }
    let mut flags = 0;
    if fragment & 0x40 != 0 {
        flags |= 2;
    }
    if fragment & 0x20 != 0 {
        flags |= 4;
    }
    let header = Ipv4 {
        src_ip,
        dst_ip,
        proto,
        tos,
        ttl,
        flags,
    };
    let is_first = fragment & 0x1f == 0 && offset == 0;
    let behind = packet.get(words.wrapping_mul(4)..).unwrap_or(&[]);
    let transport = is_first.then(|| ports(proto, behind)).flatten();
    Some((Network::V4(header), transport))
}

/// The header of IPv6, and what follows.
fn ipv6(packet: &[u8]) -> Option<(Network, Option<Transport>)> {
    let mut rest = packet;
    let [a, b, c, d, _, _, next_hdr, hop_limit] = take(&mut rest)?;
    let (src_ip, dst_ip) = (take(&mut rest)?, take(&mut rest)?);
    if a.wrapping_shr(4) != 6 {
        return None;
    }
    let header = Ipv6 {
        src_ip,
        dst_ip,
        flow_label: [0, b & 15, c, d],
        next_hdr,
        traffic_class: a.wrapping_shl(4) | b.wrapping_shr(4),
        hop_limit,
    };
    Some((Network::V6(header), ports(next_hdr, rest)))
}

/// The ports, which TCP and UDP have at the same place.
fn ports(protocol: u8, segment: &[u8]) -> Option<Transport> {
    let mut rest = segment;
    let src_port = take(&mut rest)?;
    let ports = Ports {
        src_port,
        dst_port: take(&mut rest)?,
    };
    match protocol {
        TCP => Some(Transport::Tcp(ports)),
        UDP => Some(Transport::Udp(ports)),
        _ => None,
    }
}
