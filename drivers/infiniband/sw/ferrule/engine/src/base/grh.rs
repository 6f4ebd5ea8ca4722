// SPDX-License-Identifier: GPL-2.0

//! The header that a datagram's receiver finds before the data: 40 bytes, of which RoCEv2 leaves
//! those of the IP header that the packet had (IBA volume 1, A17.4.5.1).
//!
//! Between queue pairs of one engine no packet is made. The header is what that of the packet would
//! have been, so that programs which answer by it (`ibv_init_ah_from_wc`) find what they look for.

use crate::{
    base::attr::Path,
    packet::ip::{
        ipv4,
        IpHeader, //
    },
};

/// The bytes before the data, whatever the IP version.
pub(crate) const LENGTH: u32 = 40;

/// The length of all that follows the IP header but the data: UDP, BTH and DETH headers before them
/// and the invariant checksum behind.
const AROUND: u32 = 8 + 12 + 8 + 4;

/// The header of a packet with this IP header. One of IPv4 stands at the end, and the bytes before
/// it mean nothing.
pub(crate) fn of_packet(ip: &[u8]) -> [u8; LENGTH as usize] {
    let mut bytes = [0; LENGTH as usize];
    let before = bytes.len().saturating_sub(ip.len());
    for (to, from) in bytes.iter_mut().skip(before).zip(ip) {
        *to = *from;
    }
    bytes
}

/// The version of IP of a header that one of these functions made. The bytes before one of IPv4 are
/// zeroes.
pub(crate) fn ip_version(header: &[u8; LENGTH as usize]) -> u8 {
    let [first, ..] = *header;
    if first.wrapping_shr(4) == 6 {
        6
    } else {
        4
    }
}

/// The header of a packet with `length` bytes of data, and with immediate data or without.
pub(crate) fn header(path: &Path, length: u32, with_imm: bool) -> [u8; LENGTH as usize] {
    // Data are padded to a multiple of 4 bytes.
    let padded = length.wrapping_add(3) & !3;
    let imm = if with_imm { 4 } else { 0 };
    let payload = AROUND.wrapping_add(imm).wrapping_add(padded) as u16;
    let header = IpHeader {
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        payload,
    };
    match (ipv4(&path.sgid), ipv4(&path.dgid)) {
        (Some(source), Some(target)) => of_packet(&header.v4(source, target)),
        _ => header.v6(&path.sgid, &path.dgid),
    }
}
