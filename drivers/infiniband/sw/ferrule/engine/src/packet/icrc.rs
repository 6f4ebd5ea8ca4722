// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC of RoCEv2: the last four bytes of each packet, over all that no router
//! changes (IBA volume 1, 7.8.1; annex A17).
//!
//! It is the CRC of Ethernet. The bits that routers may change count as ones: of IPv4 the type of
//! service, the time to live and the header checksum; of IPv6 the traffic class, the flow label and
//! the hop limit; of UDP the checksum; of the base transport header the byte with the congestion
//! marks. In the place of the local header that InfiniBand would have there are eight bytes of
//! ones.

use super::ip::{
    IPV4_LEN,
    IPV6_LEN,
    UDP_LEN, //
};

/// The length of an invariant CRC in bytes.
pub const LENGTH: usize = 4;

/// The byte of the base transport header with the congestion marks.
const CONGESTION: usize = 4;

/// The polynomial of Ethernet, with the bit of the lowest power highest.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Bytes that are looked up at once. With 8 it is about a third slower, and the tables take 8 KiB
/// instead of 16.
const SLICE: usize = 16;

/// For each byte, the term that it adds to the CRC when so many bytes follow it.
static TABLES: [[u32; 256]; SLICE] = tables();

#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // At compile time.
const fn tables() -> [[u32; 256]; SLICE] {
    let mut tables = [[0; 256]; SLICE];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut after = 1;
    while after < SLICE {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[after - 1][byte];
            tables[after][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// The CRC of the eight bytes in the place of the local header, with which each packet begins.
const LOCAL_HEADER: u32 = 0xdebb_20e3;

/// The term that `byte` adds to the CRC when `after` bytes follow it in the slice.
#[inline(always)]
fn term(after: usize, byte: u8) -> u32 {
    match TABLES.get(after) {
        Some(table) => table.get(usize::from(byte)).copied().unwrap_or(0),
        None => 0,
    }
}

/// Continues a CRC, not inverted at either end, over `bytes`: as `crc32_le` of Linux.
///
/// This is what [`Host::crc32`](crate::Host::crc32) does if the host knows nothing better.
pub fn crc32(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut slices = bytes.chunks_exact(SLICE);
    for slice in &mut slices {
        let Ok(mut slice) = <[u8; SLICE]>::try_from(slice) else {
            continue;
        };
        for (byte, crc) in slice.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= crc;
        }
        crc = 0;
        for (i, byte) in slice.iter().enumerate() {
            crc ^= term(SLICE.wrapping_sub(1).wrapping_sub(i), *byte);
        }
    }
    for byte in slices.remainder() {
        let [low, ..] = crc.to_le_bytes();
        crc = crc.wrapping_shr(8) ^ term(0, low ^ byte);
    }
    crc
}

/// The invariant CRC of a packet, as the four bytes that end it.
///
/// `transport` is all from the base transport header to the padding; the rest is as for [`begin`].
pub fn icrc(
    crc32: impl Fn(u32, &[u8]) -> u32,
    ip: &[u8],
    udp: &[u8],
    transport: &[u8],
) -> Option<[u8; LENGTH]> {
    begin(crc32, ip, udp, transport).map(end)
}

/// The invariant CRC that stands so when all bytes have been seen.
#[inline]
pub fn end(crc: u32) -> [u8; LENGTH] {
    (!crc).to_le_bytes()
}

/// Begins the invariant CRC of a packet: over all headers and the bytes of `transport`, which may
/// not be all of them. The others are for [`crc32`] to go on with.
///
/// `ip` is the IP header, version 4 without options or version 6 without extensions; `udp` the UDP
/// header; `transport` has the whole base transport header at least. `crc32` is [`crc32`] or
/// something that does the same faster. `None` if a header is not what it should be.
pub fn begin(
    crc32: impl Fn(u32, &[u8]) -> u32,
    ip: &[u8],
    udp: &[u8],
    transport: &[u8],
) -> Option<u32> {
    // One run over all headers, with ones in place of the fields that may change.
    let mut headers = [0xff; IPV6_LEN + UDP_LEN + CONGESTION + 1];
    let mut end = 0;
    let mut push = |bytes: &[u8], ones: &[usize]| {
        let after = bytes.len().wrapping_add(end);
        let to = headers.get_mut(end..after)?;
        to.copy_from_slice(bytes);
        for &one in ones {
            *to.get_mut(one)? = 0xff;
        }
        end = after;
        Some(())
    };
    match (ip.first()?, ip.len()) {
        (0x45, IPV4_LEN) => push(ip, &[1, 8, 10, 11])?,
        (version, IPV6_LEN) if version & 0xf0 == 0x60 => {
            // The version shares its byte with the upper half of the traffic class.
            let mut ip = <[u8; IPV6_LEN]>::try_from(ip).ok()?;
            *ip.first_mut()? |= 0x0f;
            push(&ip, &[1, 2, 3, 7])?;
        }
        _ => return None,
    }
    if udp.len() != UDP_LEN {
        return None;
    }
    push(udp, &[6, 7])?;
    let (begin, rest) = transport.split_at_checked(CONGESTION.wrapping_add(1))?;
    push(begin, &[CONGESTION])?;
    let crc = crc32(LOCAL_HEADER, headers.get(..end)?);
    Some(crc32(crc, rest))
}
