// SPDX-License-Identifier: GPL-2.0

//! Packets: the meaning of their bytes, and that they are printed as they were parsed; the
//! invariant CRC and the Internet checksum.

use ferrule_engine::packet::{
    self,
    checksum::Sum,
    icrc::{self, crc32, icrc},
    opcode::{self, rc, Kind, Position, Service},
    Bth, Header, Headers, Malformed, Nak, OpcodeInfo, Packet, Syndrome, U24,
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::{golden, sim};

/// A payload that a rule allows with a path MTU, near what `wish` says.
fn payload_length(info: &OpcodeInfo, mtu: usize, wish: usize) -> usize {
    let fits = |length: &usize| info.payload.fits(*length, mtu as u32);
    [wish % (mtu + 1), mtu, 0, 8, 16]
        .into_iter()
        .find(fits)
        .unwrap()
}

/// Prints a packet from what its parts say, one by one.
fn print(packet: &Packet<'_>) -> Vec<u8> {
    let mut headers = Headers::new(&packet.bth());
    macro_rules! push {
        ($($header:ident)*) => { $(
            if let Some(header) = packet.$header() {
                headers.push(header);
            }
        )* };
    }
    push!(xrceth deth feth reth atomic aeth atomic_ack imm ieth);
    headers.as_bytes().to_vec()
}

fn check_bytes(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Packet::parse(bytes, bytes.len()) {
        Err(Malformed::Short) => prop_assert!(bytes.len() < packet::MAX_HEADERS),
        Err(Malformed::Version) => prop_assert!(bytes[1] & 0xf != 0),
        Err(Malformed::Opcode) => prop_assert!(opcode::info(bytes[0]).is_none()),
        Err(Malformed::Length) => (),
        Ok(packet) => {
            let mut printed = print(&packet);
            prop_assert_eq!(&printed, packet.headers());
            let bth = packet.bth();
            prop_assert_eq!(packet::pad(packet.payload() as u32), bth.pad());
            let end = printed.len() + packet.payload() + usize::from(bth.pad());
            prop_assert_eq!(end, bytes.len());
            printed.extend_from_slice(&bytes[printed.len()..]);
            prop_assert_eq!(printed, bytes);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(sim::cases(20_000))]

    #[test]
    fn any_bytes_parse_to_an_error_or_print_back(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        check_bytes(&bytes)?;
    }

    /// As above, of bytes that have the opcode, the version and often the length of a packet.
    #[test]
    fn likely_bytes_parse_to_an_error_or_print_back(
        mut bytes in proptest::collection::vec(any::<u8>(), 64..6000),
        opcode in any::<u8>(),
        length in 0usize..6000,
        mtu in 8u32..13,
        honest in any::<bool>(),
    ) {
        bytes[0] = opcode;
        bytes[1] &= 0xf0;
        if let (true, Some(info)) = (honest, opcode::info(opcode)) {
            let payload = payload_length(info, 1 << mtu, length);
            bytes[1] = bytes[1] & 0xc0 | packet::pad(payload as u32) << 4;
            let pad = usize::from(packet::pad(payload as u32));
            bytes.resize(info.length() + payload + pad, 0x5a);
            prop_assert!(Packet::parse(&bytes, bytes.len()).is_ok());
        }
        check_bytes(&bytes)?;
    }

    /// The CRC as its definition has it, bit by bit, in however many pieces it is taken.
    #[test]
    fn crc_is_that_of_ethernet(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
        seed in any::<u32>(),
    ) {
        let mut plain = seed;
        for byte in &bytes {
            plain ^= u32::from(*byte);
            for _ in 0..8 {
                plain = (plain >> 1) ^ if plain & 1 != 0 { 0xedb8_8320 } else { 0 };
            }
        }
        prop_assert_eq!(crc32(seed, &bytes), plain);
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(crc32(crc32(seed, head), tail), plain);
    }

    /// The bits that a router may change do not matter, and every other bit does.
    #[test]
    fn icrc_covers_what_no_router_changes(
        ipv6 in any::<bool>(),
        which in any::<prop::sample::Index>(),
        bit in 0u32..8,
        cut in any::<prop::sample::Index>(),
    ) {
        let ip = if ipv6 { golden::IPV6.to_vec() } else { golden::IPV4.to_vec() };
        let length = ip.len();
        let mut bytes = ip;
        bytes.extend_from_slice(&golden::UDP);
        let mut bth = Bth { opcode: rc::SEND_ONLY, psn: U24::new(7), ..Bth::default() };
        bth.pkey.set(0xffff);
        bytes.extend_from_slice(bth.as_bytes());
        bytes.extend_from_slice(b"to be carried");
        let of = |bytes: &[u8]| {
            let (ip, rest) = bytes.split_at(length);
            let (udp, transport) = rest.split_at(8);
            let (first, second) = transport.split_at(12 + cut.index(transport.len() - 11));
            let whole = icrc(crc32, ip, udp, transport);
            let begun = icrc::begin(crc32, ip, udp, first);
            assert_eq!(whole, begun.map(|crc| icrc::end(crc32(crc, second))));
            whole
        };
        let before = of(&bytes).unwrap();
        let at = which.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let changes = if ipv6 { &[1, 2, 3, 7, 46, 47, 52][..] } else { &[1, 8, 10, 11, 26, 27, 32][..] };
        match of(&bytes) {
            None => prop_assert_eq!(at, 0),
            Some(after) if changes.contains(&at) || (ipv6 && at == 0) => prop_assert_eq!(before, after),
            Some(after) => prop_assert_ne!(before, after),
        }
    }
}

#[test]
fn crc_of_the_usual_digits() {
    assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
}

#[test]
fn the_table_has_what_the_specification_has() {
    let of = |service| {
        (0..=255u8)
            .filter_map(opcode::info)
            .filter(|info| info.service == service)
            .count()
    };
    assert_eq!(of(Service::Rc), 25);
    assert_eq!(of(Service::Uc), 12);
    assert_eq!(of(Service::Ud), 2);
    assert_eq!(of(Service::Xrc), 23);
    assert_eq!(of(Service::Congestion), 1);
    for opcode in 0..=255u8 {
        let Some(info) = opcode::info(opcode) else {
            continue;
        };
        assert!(info.length() <= packet::MAX_HEADERS);
        // More than one packet has no space for values that only the first or the last one carries.
        if !info.position.begins() {
            assert!(!info.has(Header::Reth));
        }
        if !info.position.ends() {
            assert!(!info.has(Header::Imm) && !info.has(Header::Ieth));
        }
        assert_eq!(
            info.position,
            Position::of(info.position.begins(), info.position.ends())
        );
    }
    let length = |opcode| opcode::info(opcode).unwrap().length();
    assert_eq!(length(rc::WRITE_ONLY_WITH_IMM), 12 + 16 + 4);
    assert_eq!(length(rc::FLUSH), 12 + 4 + 16);
    assert_eq!(length(0xa0 | rc::COMPARE_SWAP), packet::MAX_HEADERS);
    assert_eq!(length(0xa0 | rc::ACKNOWLEDGE), 12 + 4);
    assert_eq!(length(0x64), 12 + 8);
    assert_eq!(opcode::info(0x16).unwrap().kind, Kind::Send);
    assert!(opcode::info(0x15).is_none());
    assert!(opcode::info(0x40).is_none());
}

#[test]
fn credits_are_rounded_down() {
    let table = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    for (code, requests) in table.into_iter().enumerate() {
        assert_eq!(packet::credits_of(code as u8), Some(requests));
        assert_eq!(packet::encode_credits(requests), code as u8);
        if !table.contains(&(requests + 1)) {
            assert_eq!(packet::encode_credits(requests + 1), code as u8);
        }
    }
    assert_eq!(packet::credits_of(packet::UNLIMITED), None);
    assert_eq!(packet::encode_credits(u32::MAX), 30);
}

#[test]
fn every_syndrome_prints_as_it_parsed() {
    let mut known = 0;
    for bits in 0..=255u8 {
        if let Some(syndrome) = Syndrome::parse(bits) {
            assert_eq!(syndrome.bits(), bits);
            known += 1;
        }
    }
    assert_eq!(known, 32 + 32 + 4);
    assert_eq!(Syndrome::Negative(Nak::RemoteOperation).bits(), 0x63);
}

/// The example of RFC 1071, 3.
#[test]
fn internet_checksum() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::default().with(&bytes).end(), !0xddf2);
    assert_eq!(Sum::default().with(&bytes[..3]).end(), !0xf201);
    assert_eq!(Sum::default().with_word(0x0001_f203).end(), !0xf204);
    assert_eq!(Sum::default().end(), 0xffff);
}
