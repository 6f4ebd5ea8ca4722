// SPDX-License-Identifier: GPL-2.0

//! Packets that have come: their addresses, their headers, and whether they are intact.

use crate::{
    base::{
        attr::Gid,
        host::{
            Host,
            Packet as _, //
        },
        id::Vport, //
    },
    packet::{
        icrc,
        Malformed,
        Packet, //
    },
};

/// A packet that has come to port 4791.
pub struct RxPacket<'a, H: Host> {
    /// The IP header: version 4 without options, or version 6 without extensions.
    pub ip: &'a [u8],
    /// The UDP header.
    pub udp: &'a [u8],
    /// All of what follows.
    pub packet: &'a H::Packet,
    /// The last 4 bytes of that, which are the invariant CRC.
    pub icrc: [u8; icrc::LENGTH],
    /// The service level that the completion of a datagram tells.
    pub sl: u8,
    /// The virtual port that it has come to. One to a group is for members at all of them.
    pub vport: Vport,
}

impl<H: Host> RxPacket<'_, H> {
    /// The addresses as GIDs, from where and to where, and whether congestion was met.
    pub(super) fn addresses(&self) -> Option<(Gid, Gid, bool)> {
        const CE: u8 = 3;

        let array = |from: usize, length: usize| self.ip.get(from..from.wrapping_add(length));
        if self.ip.len() == 20 {
            let mapped = |from| {
                let mut gid = [0; 16];
                gid.get_mut(10..12)?.fill(0xff);
                gid.get_mut(12..)?.copy_from_slice(array(from, 4)?);
                Some(gid)
            };
            let marked = self.ip.get(1)? & 3 == CE;
            Some((mapped(12)?, mapped(16)?, marked))
        } else {
            let gid = |from| Gid::try_from(array(from, 16)?).ok();
            let marked = self.ip.get(1)?.wrapping_shr(4) & 3 == CE;
            Some((gid(8)?, gid(24)?, marked))
        }
    }
}

/// Takes the headers of a packet apart.
pub(super) fn parse<H: Host>(bytes: &H::Packet) -> Result<Packet<'_>, Malformed> {
    let (headers, length) = (bytes.headers(), bytes.length());
    let first = headers.len().min(length);
    Packet::parse(headers.get(..first).unwrap_or(&[]), length)
}

/// Whether the invariant CRC of a packet is right.
pub(super) fn is_intact<H: Host>(rx: &RxPacket<'_, H>, headers: &[u8]) -> bool {
    let Some(begun) = icrc::begin(H::crc32, rx.ip, rx.udp, headers) else {
        return false;
    };
    let rest = rx.packet.length().wrapping_sub(headers.len());
    let whole = rx.packet.crc32(begun, headers.len(), rest);
    whole.is_ok_and(|crc| icrc::end(crc) == rx.icrc)
}
