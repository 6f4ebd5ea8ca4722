// SPDX-License-Identifier: GPL-2.0

//! Packets of RoCEv2 out of frames. Each is judged before use: a peer may have written anything.

use ferrule_engine::packet::checksum::Sum;
use ferrule_engine::packet::ip::{mapped, IPV4_LEN, IPV6_LEN, UDP, UDP_LEN};
use ferrule_engine::packet::{icrc, PORT};
use ferrule_engine::Gid;

use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::frame::{Frame, HEADER};

/// More bytes than any packet has: 4096 of payload, and less than 100 of headers and CRC.
const LONGEST: usize = 4096 + 100;

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The messages below say it.
pub enum Bad {
    Options,
    Fragment,
    Checksum,
    Length,
    UdpLength,
    UdpChecksum,
}

impl Bad {
    /// All reasons, in order.
    pub const ALL: [Bad; 6] = [
        Bad::Options,
        Bad::Fragment,
        Bad::Checksum,
        Bad::Length,
        Bad::UdpLength,
        Bad::UdpChecksum,
    ];

    /// The reason in words.
    pub fn name(self) -> &'static str {
        match self {
            Bad::Options => "options of IPv4",
            Bad::Fragment => "a fragment",
            Bad::Checksum => "a wrong header checksum",
            Bad::Length => "a wrong length of IP",
            Bad::UdpLength => "a wrong length of UDP",
            Bad::UdpChecksum => "a wrong checksum of UDP",
        }
    }
}

/// Where the parts of a packet lie in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the IP header.
    ip: usize,
    /// Where the packet ends; bytes behind it pad the frame.
    end: usize,
}

/// Looks at a frame: the address that it goes to, and the packet, if it is one for the port of
/// RoCEv2.
///
/// Frames with a VLAN tag are none, nor are the later fragments of a datagram, since the first
/// alone tells the port.
pub fn parse(frame: &[u8]) -> Option<(Gid, Result<Layout, Bad>)> {
    let (ethernet, ip) = frame.split_at_checked(HEADER)?;
    let kind = ethernet.last_chunk().copied().map(u16::from_be_bytes)?;
    match (kind, ip.first()?.wrapping_shr(4)) {
        (ETHERTYPE_IPV4, 4) => parse_ipv4(ip),
        (ETHERTYPE_IPV6, 6) => parse_ipv6(ip),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*word))
}

fn parse_ipv4(ip: &[u8]) -> Option<(Gid, Result<Layout, Bad>)> {
    const OFFSET: u16 = 0x1fff;
    const MORE: u16 = 0x2000;

    let length = usize::from(ip.first()? & 15).checked_mul(4)?;
    let header = ip.get(..length).filter(|_| length >= IPV4_LEN)?;
    let fragment = word(header, 6)?;
    let udp = ip.get(length..)?;
    if *header.get(9)? != UDP || fragment & OFFSET != 0 || word(udp, 2)? != PORT {
        return None;
    }
    let (source, target) = (header.get(12..16)?, header.get(16..20)?);
    let judged = || {
        if length != IPV4_LEN {
            return Err(Bad::Options);
        }
        if fragment & MORE != 0 {
            return Err(Bad::Fragment);
        }
        if Sum::default().with(header).end() != 0 {
            return Err(Bad::Checksum);
        }
        let total = usize::from(word(header, 2).ok_or(Bad::Length)?);
        let payload = total.checked_sub(length).ok_or(Bad::Length)?;
        judge(
            udp,
            length,
            payload,
            Sum::default().with(source).with(target),
        )
    };
    Some((mapped(*target.first_chunk()?), judged()))
}

fn parse_ipv6(ip: &[u8]) -> Option<(Gid, Result<Layout, Bad>)> {
    let (header, udp) = ip.split_at_checked(IPV6_LEN)?;
    if *header.get(6)? != UDP || word(udp, 2)? != PORT {
        return None;
    }
    let target = header.get(24..)?.first_chunk()?;
    let payload = usize::from(word(header, 4)?);
    let addresses = Sum::default().with(header.get(8..)?);
    Some((*target, judge(udp, IPV6_LEN, payload, addresses)))
}

/// Judges what follows an IP header that tells of so many bytes of payload. `addresses` is the sum
/// of both.
fn judge(udp: &[u8], ip: usize, payload: usize, addresses: Sum) -> Result<Layout, Bad> {
    let datagram = udp.get(..payload).ok_or(Bad::Length)?;
    if !(UDP_LEN.saturating_add(icrc::LENGTH)..=LONGEST).contains(&payload) {
        return Err(Bad::Length);
    }
    // Linux takes a datagram that is shorter than its packet. The invariant CRC would then not be
    // at the end of either.
    let length = word(datagram, 4).ok_or(Bad::UdpLength)?;
    if usize::from(length) != payload {
        return Err(Bad::UdpLength);
    }
    if word(datagram, 6) != Some(0) {
        let pseudo = addresses.with_word(length.into()).with_word(UDP.into());
        if pseudo.with(datagram).end() != 0 {
            return Err(Bad::UdpChecksum);
        }
    }
    Ok(Layout {
        ip,
        end: HEADER.saturating_add(ip).saturating_add(payload),
    })
}

/// A packet that has come for a guest.
#[derive(Clone, Debug)]
pub struct Received {
    frame: Frame,
    layout: Layout,
    port: usize,
}

impl Received {
    /// The packet of a frame that was parsed, for the guest of this port.
    pub fn new(frame: Frame, layout: Layout, port: usize) -> Self {
        Self {
            frame,
            layout,
            port,
        }
    }

    /// The same packet to be kept, without what pads its frame: that may be many times as long as
    /// any packet.
    pub fn kept(&self) -> Self {
        let trimmed = match self.frame.bytes().get(..self.layout.end) {
            Some(packet) if packet.len() < self.frame.bytes().len() => Frame::new(packet.to_vec()),
            _ => None,
        };
        Self {
            frame: trimmed.unwrap_or_else(|| self.frame.clone()),
            ..*self
        }
    }

    /// The port that it is for. A packet to a group is for all, whatever the port.
    pub fn port(&self) -> usize {
        self.port
    }

    fn part(&self, from: usize, to: usize) -> &[u8] {
        self.frame.bytes().get(from..to).unwrap_or_default()
    }

    fn udp_at(&self) -> usize {
        HEADER.saturating_add(self.layout.ip)
    }

    /// The IP header.
    pub fn ip(&self) -> &[u8] {
        self.part(HEADER, self.udp_at())
    }

    /// The UDP header.
    pub fn udp(&self) -> &[u8] {
        self.part(self.udp_at(), self.udp_at().saturating_add(UDP_LEN))
    }

    fn icrc_at(&self) -> usize {
        self.layout.end.saturating_sub(icrc::LENGTH)
    }

    /// From the base transport header on, without the invariant CRC.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.part(self.udp_at().saturating_add(UDP_LEN), self.icrc_at())
    }

    /// The invariant CRC.
    pub fn icrc(&self) -> [u8; icrc::LENGTH] {
        let bytes = self.part(self.icrc_at(), self.layout.end).first_chunk();
        bytes.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::headers::{Headers, Way};
    use super::*;

    /// A frame with a packet of so many bytes, as it is sent.
    fn frame(v6: bool, length: usize) -> Vec<u8> {
        let end = |last: u8| match v6 {
            true => [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last],
            false => mapped([192, 0, 2, last]),
        };
        let way = Way {
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            sgid: end(1),
            dgid: end(2),
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 7,
        };
        let mut bytes = Vec::new();
        let headers = Headers::new(&way, 17, 18).unwrap();
        headers.write(length, &mut bytes).unwrap();
        bytes.extend((0..length).map(|i| i as u8));
        bytes
    }

    /// Sets the checksum of an IPv4 header anew.
    fn set_checksum(bytes: &mut [u8]) {
        let end = HEADER + usize::from(bytes[14] & 15) * 4;
        bytes[24..26].fill(0);
        let sum = Sum::default().with(&bytes[HEADER..end]).end();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }

    /// The verdict on a frame of IPv4 after a change.
    fn judged(change: impl FnOnce(&mut Vec<u8>)) -> Option<Result<Layout, Bad>> {
        let mut bytes = frame(false, 20);
        change(&mut bytes);
        parse(&bytes).map(|(_, judged)| judged)
    }

    #[test]
    fn a_sent_packet_is_received() {
        for v6 in [false, true] {
            for length in [4, 5, 1000, LONGEST - UDP_LEN] {
                let mut bytes = frame(v6, length);
                let end = bytes.len();
                bytes.extend([0xaa; 10]);
                let (target, layout) = parse(&bytes).unwrap();
                assert_eq!(target[15], 2);
                let packet = Received::new(Frame::new(bytes.clone()).unwrap(), layout.unwrap(), 3);
                let parts = [
                    packet.ip(),
                    packet.udp(),
                    packet.transport(),
                    &packet.icrc(),
                ];
                assert_eq!(parts.concat(), bytes[HEADER..end]);
                assert_eq!(packet.udp()[2..4], PORT.to_be_bytes());
                assert_eq!((packet.transport().len(), packet.port()), (length - 4, 3));
                let kept = packet.kept();
                assert_eq!(kept.frame.bytes(), &bytes[..end]);
                assert_eq!(kept.transport(), packet.transport());
            }
        }
    }

    #[test]
    fn others_are_no_packets() {
        for (at, byte) in [
            (12, 0x81),
            (14, 0x55),
            (14, 0x44),
            (14, 0x4f),
            (23, 6),
            (21, 1),
            (37, 1),
        ] {
            assert_eq!(judged(|bytes| bytes[at] = byte), None, "{at}");
        }
        let bytes = frame(true, 20);
        for (at, byte) in [(14, 0x40), (20, 6), (57, 0)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(parse(&bytes), None);
        }
        for v6 in [false, true] {
            let bytes = frame(v6, 4);
            let ports = if v6 { 58 } else { 38 };
            for length in 0..ports {
                assert_eq!(parse(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn bad_packets() {
        let bad = |change: &dyn Fn(&mut Vec<u8>)| {
            judged(|bytes| {
                change(bytes);
                set_checksum(bytes);
            })
        };
        assert!(bad(&|_| ()).unwrap().is_ok());
        let options = |bytes: &mut Vec<u8>| {
            bytes[14] = 0x46;
            bytes.splice(34..34, [1, 1, 1, 1]);
            bytes[17] += 4;
        };
        assert_eq!(bad(&options), Some(Err(Bad::Options)));
        assert_eq!(bad(&|bytes| bytes[20] |= 0x20), Some(Err(Bad::Fragment)));
        assert_eq!(judged(|bytes| bytes[22] ^= 1), Some(Err(Bad::Checksum)));
        for total in [0, 19, 27, 31, 49] {
            assert_eq!(
                bad(&|bytes| bytes[17] = total),
                Some(Err(Bad::Length)),
                "{total}"
            );
        }
        assert_eq!(bad(&|bytes| bytes[39] += 1), Some(Err(Bad::UdpLength)));
        assert_eq!(bad(&|bytes| bytes[39] -= 1), Some(Err(Bad::UdpLength)));
        assert_eq!(bad(&|bytes| bytes[41] = 1), Some(Err(Bad::UdpChecksum)));
        let (_, long) = parse(&frame(true, LONGEST)).unwrap();
        assert_eq!(long, Err(Bad::Length));
    }

    #[test]
    fn a_checksum_of_udp_is_looked_at() {
        for (v6, udp) in [(false, 34), (true, 54)] {
            let mut bytes = frame(v6, 21);
            let addresses = if v6 { 22..54 } else { 26..34 };
            let sum = Sum::default().with(&bytes[addresses]);
            let sum = sum.with_word(29).with_word(17).with(&bytes[udp..]);
            bytes[udp + 6..udp + 8].copy_from_slice(&sum.end().to_be_bytes());
            assert!(parse(&bytes).unwrap().1.is_ok());
            bytes[udp + 20] ^= 4;
            assert_eq!(parse(&bytes).unwrap().1, Err(Bad::UdpChecksum));
        }
    }

    proptest! {
        /// For any bytes: a part that is taken for a packet lies in the frame.
        #[test]
        fn parts_lie_in_the_frame(
            v6 in any::<bool>(),
            changes in prop::collection::vec((12usize..70, any::<u8>()), 0..4),
            cut in 14usize..100,
            repair in any::<bool>(),
        ) {
            let mut bytes = frame(v6, 30);
            for (at, byte) in changes {
                if let Some(to) = bytes.get_mut(at) {
                    *to = byte;
                }
            }
            bytes.truncate(cut);
            if repair && bytes.len() >= HEADER + 60 {
                set_checksum(&mut bytes);
            }
            if let Some((_, Ok(layout))) = parse(&bytes) {
                let packet = Received::new(Frame::new(bytes.clone()).unwrap(), layout, 0);
                let parts = [packet.ip(), packet.udp(), packet.transport(), &packet.icrc()];
                prop_assert_eq!(parts.concat(), &bytes[HEADER..layout.end]);
            }
        }
    }
}
