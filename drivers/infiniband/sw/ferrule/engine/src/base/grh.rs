// SPDX-License-Identifier: GPL-2.0

//! The header that a datagram's receiver finds before the data: 40 bytes, of which RoCEv2 leaves
//! those of the IP header that the packet had (IBA volume 1, A17.4.5.1).
//!
//! Between queue pairs of one engine no packet is made. The header is what that of the packet would
//! have been, so that programs which answer by it (`ibv_init_ah_from_wc`) find what they look for.

use crate::base::attr::{
    Gid,
    Path, //
};

/// The bytes before the data, whatever the IP version.
pub(crate) const LENGTH: u32 = 40;

/// Where an IPv4 header begins; the bytes before it mean nothing.
const IPV4: usize = 20;

/// What follows the IP header, beside the data: UDP, BTH and DETH headers before them and the
/// invariant checksum behind.
const AROUND: u32 = 8 + 12 + 8 + 4;

/// The protocol that follows: UDP.
const UDP: u8 = 17;

/// The IPv4 address that is mapped into a GID.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    match *gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
        _ => None,
    }
}

/// The header that a packet came with.
pub(crate) fn of_packet(ip: &[u8]) -> [u8; LENGTH as usize] {
    let mut bytes = [0; LENGTH as usize];
    let before = bytes.len().saturating_sub(ip.len());
    for (to, from) in bytes.iter_mut().skip(before).zip(ip) {
        *to = *from;
    }
    bytes
}

/// The version of IP of a header that one of these functions made. The bytes before one of IPv4 are zeroes.
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
    let mut bytes = [0; LENGTH as usize];
    match (ipv4(&path.sgid), ipv4(&path.dgid)) {
        (Some(source), Some(target)) => {
            let header = ipv4_header(path, payload, source, target);
            for (to, from) in bytes.iter_mut().skip(IPV4).zip(header) {
                *to = from;
            }
        }
        _ => {
            let class = u32::from(path.traffic_class).wrapping_shl(20);
            let word = 0x6000_0000 | class | (path.flow_label & 0xf_ffff);
            let [a, b, c, d] = word.to_be_bytes();
            let [high, low] = payload.to_be_bytes();
            let head = [a, b, c, d, high, low, UDP, path.hop_limit];
            let parts = head.iter().chain(&path.sgid).chain(&path.dgid);
            for (to, from) in bytes.iter_mut().zip(parts) {
                *to = *from;
            }
        }
    }
    bytes
}

fn ipv4_header(path: &Path, payload: u16, source: [u8; 4], target: [u8; 4]) -> [u8; IPV4] {
    let [high, low] = payload.wrapping_add(IPV4 as u16).to_be_bytes();
    let [s0, s1, s2, s3] = source;
    let [t0, t1, t2, t3] = target;
    let header = |sum: u16| {
        let [sum_high, sum_low] = sum.to_be_bytes();
        // Version 4, five words of header; not to be fragmented.
        [
            0x45,
            path.traffic_class,
            high,
            low,
            0,
            0,
            0x40,
            0,
            path.hop_limit,
            UDP,
            sum_high,
            sum_low,
            s0,
            s1,
            s2,
            s3,
            t0,
            t1,
            t2,
            t3,
        ]
    };
    header(checksum(&header(0)))
}

/// The checksum of an IPv4 header (RFC 791): the complement of the sum in ones' complement.
fn checksum(header: &[u8; IPV4]) -> u16 {
    let sum = header
        .chunks_exact(2)
        .map(|pair| match pair {
            &[high, low] => u32::from(u16::from_be_bytes([high, low])),
            _ => 0,
        })
        .fold(0u32, u32::wrapping_add);
    // Ten words: two foldings take all carries back.
    let folded = (sum & 0xffff).wrapping_add(sum.wrapping_shr(16));
    let folded = (folded & 0xffff).wrapping_add(folded.wrapping_shr(16));
    !(folded as u16)
}
