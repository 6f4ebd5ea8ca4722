// SPDX-License-Identifier: GPL-2.0

//! Packets that have come: judged by their headers and their invariant CRC before anybody takes
//! them.

use crate::{
    base::{
        attr::Gid,
        counters::{
            Cells,
            Count, //
        },
        event::DropReason,
        host::{
            Host,
            PacketBytes as _, //
        },
        id::Vport, //
    },
    packet::{
        self,
        icrc,
        opcode::Kind,
        Bth,
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

/// A packet that is sound.
pub(super) struct Sound<'a> {
    pub(super) packet: Packet<'a>,
    /// The addresses.
    pub(super) from: Gid,
    pub(super) to: Gid,
    /// It met congestion on its way.
    pub(super) is_marked: bool,
}

impl Sound<'_> {
    /// Counts it where its queue pair does; at the port if it has none, or several.
    #[inline(always)]
    pub(super) fn count<H: Host>(&self, rx: &RxPacket<'_, H>, counters: &Cells) {
        rx.count(counters);
        if self.is_marked {
            counters.congestion_marks.count(1);
        }
        if self.packet.info().kind == Kind::Congestion {
            counters.congestion_notifications.count(1);
        }
    }
}

impl<'a, H: Host> RxPacket<'a, H> {
    /// Judges a packet as far as no queue pair is needed for that.
    ///
    /// # Errors
    ///
    /// Why it is to be dropped.
    #[inline(always)]
    pub(super) fn judge(&self) -> Result<Sound<'a>, DropReason> {
        let packet = parse::<H>(self.packet)?;
        if !self.is_intact(packet.headers()) {
            return Err(DropReason::Icrc);
        }
        let (from, to, is_marked) = self.addresses().ok_or(DropReason::Short)?;
        // The only P_Key is the default one; bit 15 (full or limited member) is not compared
        // (10.9.3).
        if packet.bth().pkey.get() & 0x7fff != packet::DEFAULT_PKEY & 0x7fff {
            return Err(DropReason::Pkey);
        }
        Ok(Sound {
            packet,
            from,
            to,
            is_marked,
        })
    }

    /// Counts a packet that has come.
    #[inline(always)]
    pub(super) fn count(&self, counters: &Cells) {
        counters.packets_received.count(1);
        counters.bytes_received.count(self.length());
    }

    /// The base transport header; zeroes if the packet is shorter.
    pub(super) fn bth(&self) -> Bth {
        packet::bth(self.packet.headers()).unwrap_or_default()
    }

    /// The bytes, from the IP header to the invariant CRC.
    pub(super) fn length(&self) -> u64 {
        let network = self.ip.len().wrapping_add(self.udp.len());
        let length = self.packet.length().wrapping_add(icrc::LENGTH);
        network.wrapping_add(length) as u64
    }

    /// Whether the invariant CRC is right.
    fn is_intact(&self, headers: &[u8]) -> bool {
        let Some(begun) = icrc::begin(H::crc32, self.ip, self.udp, headers) else {
            return false;
        };
        let rest = self.packet.length().wrapping_sub(headers.len());
        let whole = self.packet.crc32(begun, headers.len(), rest);
        whole.is_ok_and(|crc| icrc::end(crc) == self.icrc)
    }

    /// The addresses as GIDs, from where and to where, and whether congestion was met.
    fn addresses(&self) -> Option<(Gid, Gid, bool)> {
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
