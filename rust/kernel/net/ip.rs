// SPDX-License-Identifier: GPL-2.0

//! The headers of IP and UDP, as values.
//!
//! C headers: `include/uapi/linux/ip.h`, `include/uapi/linux/ipv6.h`, `include/uapi/linux/udp.h`.

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

use kernel::prelude::*;

/// `IPPROTO_UDP`.
const UDP: u8 = 17;

/// The flag "don't fragment" with no offset, as it stands in the header.
const DONT_FRAGMENT: u16 = 0x4000;

/// The bytes of an IPv4 header without options.
const IPV4_LEN: usize = 20;

/// The bytes of an IPv6 header without extensions.
const IPV6_LEN: usize = 40;

/// The bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// The most bytes that [`UdpHeaders`] take in front of a packet.
pub const MAX_LEN: usize = IPV6_LEN + UDP_LEN;

/// How many bytes are in front of the UDP header of a packet that begins with an IP header, without
/// options or extensions.
#[inline]
pub(crate) fn udp_header_at(packet: &[u8]) -> Option<usize> {
    let (len, protocol) = match packet.first()? {
        0x45 => (IPV4_LEN, packet.get(9)?),
        first if first >> 4 == 6 => (IPV6_LEN, packet.get(6)?),
        _ => return None,
    };
    (*protocol == UDP && packet.len() >= len + UDP_LEN).then_some(len)
}

/// The source and the destination of a packet: two addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// The sender.
        source: Ipv4Addr,
        /// The receiver.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The sender.
        source: Ipv6Addr,
        /// The receiver.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Puts two addresses together, if they are of one family.
    pub fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Addresses::V4 {
                source,
                destination,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Addresses::V6 {
                source,
                destination,
            }),
            _ => None,
        }
    }

    /// The sender.
    pub fn source(&self) -> IpAddr {
        match *self {
            Addresses::V4 { source, .. } => source.into(),
            Addresses::V6 { source, .. } => source.into(),
        }
    }

    /// The receiver.
    pub fn destination(&self) -> IpAddr {
        match *self {
            Addresses::V4 { destination, .. } => destination.into(),
            Addresses::V6 { destination, .. } => destination.into(),
        }
    }

    /// Whether they are of IPv6.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        matches!(self, Addresses::V6 { .. })
    }

    /// Those of an answer.
    #[must_use]
    pub fn reversed(&self) -> Self {
        match *self {
            Addresses::V4 {
                source,
                destination,
            } => Addresses::V4 {
                source: destination,
                destination: source,
            },
            Addresses::V6 {
                source,
                destination,
            } => Addresses::V6 {
                source: destination,
                destination: source,
            },
        }
    }
}

/// The fields of the IP and UDP headers of a packet, apart from lengths and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeaders {
    /// Both ends.
    pub addresses: Addresses,
    /// The DSCP in the upper six bits, ECN in the lower two: IPv4's type of service.
    pub traffic_class: u8,
    /// IPv4's time to live.
    pub hop_limit: u8,
    /// 20 bits; 0 for IPv4, which has none.
    pub flow_label: u32,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
}

/// The bytes at `at`, if there are as many.
fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

impl UdpHeaders {
    /// The fields of `ip`, a header with its options or extensions, and of `udp` after it.
    ///
    /// Lengths and checksums are not compared: for a packet that has come through the stack, that
    /// is done.
    pub fn parse(ip: &[u8], udp: &[u8]) -> Option<Self> {
        let (addresses, traffic_class, hop_limit, flow_label) = match *ip.first()? >> 4 {
            4 if ip.len() >= IPV4_LEN => {
                let addresses = Addresses::V4 {
                    source: bytes::<4>(ip, 12)?.into(),
                    destination: bytes::<4>(ip, 16)?.into(),
                };
                (addresses, *ip.get(1)?, *ip.get(8)?, 0)
            }
            6 if ip.len() >= IPV6_LEN => {
                let addresses = Addresses::V6 {
                    source: bytes::<16>(ip, 8)?.into(),
                    destination: bytes::<16>(ip, 24)?.into(),
                };
                let first = u32::from_be_bytes(bytes(ip, 0)?);
                (
                    addresses,
                    (first >> 20) as u8,
                    *ip.get(7)?,
                    first & 0xf_ffff,
                )
            }
            _ => return None,
        };
        Some(UdpHeaders {
            addresses,
            traffic_class,
            hop_limit,
            flow_label,
            source_port: u16::from_be_bytes(bytes(udp, 0)?),
            destination_port: u16::from_be_bytes(bytes(udp, 2)?),
        })
    }

    /// The bytes that they take: 28 or 48.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "headers are never empty")]
    pub fn len(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => IPV4_LEN + UDP_LEN,
            Addresses::V6 { .. } => IPV6_LEN + UDP_LEN,
        }
    }

    /// Writes both headers in front of `payload_len` bytes of payload.
    ///
    /// An IPv4 header has the identification 0 and may not be fragmented: such datagrams are
    /// atomic, and their identification means nothing (RFC 6864). Its checksum is 0 and is left to
    /// the stack. The checksum of UDP is 0, that is none: so it is for tunnels that protect their
    /// packets by themselves, for IPv6 by RFC 6935 and RFC 6936.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the packet gets too long for its length fields; `EINVAL` if `out` is not
    /// [`len`](Self::len) bytes.
    pub fn write(&self, payload_len: usize, out: &mut [u8]) -> Result {
        let too_long = |_| EMSGSIZE;
        let udp_len = u16::try_from(payload_len.saturating_add(UDP_LEN)).map_err(too_long)?;
        if out.len() != self.len() {
            return Err(EINVAL);
        }
        match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let total = u16::try_from(usize::from(udp_len) + IPV4_LEN).map_err(too_long)?;
                let (ip, udp) = out.split_first_chunk_mut::<IPV4_LEN>().ok_or(EINVAL)?;
                let [total_high, total_low] = total.to_be_bytes();
                let [flags, offset] = DONT_FRAGMENT.to_be_bytes();
                let [s0, s1, s2, s3] = source.octets();
                let [d0, d1, d2, d3] = destination.octets();
                *ip = [
                    0x45,
                    self.traffic_class,
                    total_high,
                    total_low,
                    0, // the identification
                    0,
                    flags,
                    offset,
                    self.hop_limit,
                    UDP,
                    0, // the checksum
                    0,
                    s0,
                    s1,
                    s2,
                    s3,
                    d0,
                    d1,
                    d2,
                    d3,
                ];
                self.write_udp(udp_len, udp)
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let (ip, udp) = out.split_first_chunk_mut::<IPV6_LEN>().ok_or(EINVAL)?;
                let first =
                    6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
                let (start, addresses) = ip.split_at_mut(8);
                start[..4].copy_from_slice(&first.to_be_bytes());
                start[4..6].copy_from_slice(&udp_len.to_be_bytes());
                start[6] = UDP;
                start[7] = self.hop_limit;
                addresses[..16].copy_from_slice(&source.octets());
                addresses[16..].copy_from_slice(&destination.octets());
                self.write_udp(udp_len, udp)
            }
        }
    }

    fn write_udp(&self, len: u16, out: &mut [u8]) -> Result {
        let out = out.first_chunk_mut::<UDP_LEN>().ok_or(EINVAL)?;
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [l0, l1] = len.to_be_bytes();
        *out = [s0, s1, d0, d1, l0, l1, 0, 0];
        Ok(())
    }
}
