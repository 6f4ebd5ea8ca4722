// SPDX-License-Identifier: GPL-2.0

//! Golden packets: one of each opcode, over IPv4 and IPv6, as they stand in
//! `tests/guest/packets.txt`.
//!
//! tests/guest/packets.py has other programs decode that file.

use ferrule_engine::packet::{
    self,
    icrc::{crc32, icrc},
    opcode::{self, Kind, Service},
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Header, Headers, Ieth, ImmDt, Packet, Reth,
    Syndrome, XrcEth, U24,
};

pub(crate) const IPV4: [u8; 20] = [
    0x45, 0x02, 0, 0, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
];

pub(crate) const IPV6: [u8; 40] = [
    0x60, 0x20, 0x12, 0x34, 0, 0, 17, 64, // what comes before the addresses
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // 2001:db8::1
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // 2001:db8::2
];

pub(crate) const UDP: [u8; 8] = [0xc1, 0x23, 0x12, 0xb7, 0, 0, 0, 0];

/// The Internet checksum of an IPv4 header.
fn checksum(header: &[u8]) -> [u8; 2] {
    let mut sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The packet of an opcode, from the IP header to the invariant CRC.
fn packet(opcode: u8, ipv6: bool) -> Vec<u8> {
    let info = opcode::info(opcode).unwrap();
    let payload: Vec<u8> = match info.kind {
        Kind::Congestion => vec![0; 16],
        _ if info.payload.fits(13, 256) => (0..13).collect(),
        _ if info.payload.fits(256, 256) => (0..=255).collect(),
        _ if info.payload.fits(8, 256) => (1..9).collect(),
        _ => Vec::new(),
    };
    let pad = packet::pad(payload.len() as u32);
    let mut bth = Bth {
        opcode,
        flags: Bth::MIGRATED | Bth::pad_flags(pad),
        dest_qp: U24::new(0x01_2345),
        psn: U24::new(0xfe_dcba),
        ..Bth::default()
    };
    bth.pkey.set(packet::DEFAULT_PKEY);
    let request = !matches!(
        info.kind,
        Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::Congestion
    );
    if request && info.position.ends() && info.service != Service::Ud && info.service != Service::Uc
    {
        bth.acknowledge = Bth::ACK_REQ;
    }
    if matches!(info.kind, Kind::Send) && info.position.ends() {
        bth.flags |= Bth::SOLICITED;
    }
    let mut headers = Headers::new(&bth);
    for header in Header::ALL {
        if !info.has(header) {
            continue;
        }
        match header {
            Header::Xrceth => headers.push(&XrcEth {
                reserved: 0,
                srq: U24::new(0x77),
            }),
            Header::Deth => headers.push(&Deth {
                qkey: 0x1122_3344.into(),
                reserved: 0,
                src_qp: U24::new(0x54_3210),
            }),
            Header::Feth => headers.push(&Feth { bits: 0x11.into() }),
            Header::Reth => headers.push(&Reth {
                addr: 0x7f00_1234_5678.into(),
                rkey: 0x0a0b_0c0d.into(),
                length: (if info.position.ends() {
                    payload.len() as u32
                } else {
                    1000
                })
                .into(),
            }),
            Header::Atomic => headers.push(&AtomicEth {
                addr: 0x7f00_1234_5670.into(),
                rkey: 0x0a0b_0c0d.into(),
                swap_or_add: 0x0102_0304_0506_0708.into(),
                compare: (if info.kind == Kind::CompareSwap {
                    42
                } else {
                    0
                })
                .into(),
            }),
            Header::Aeth => headers.push(&Aeth {
                syndrome: Syndrome::Acknowledge(packet::UNLIMITED).bits(),
                msn: U24::new(3),
            }),
            Header::AtomicAck => headers.push(&AtomicAckEth {
                original: 41.into(),
            }),
            Header::Imm => headers.push(&ImmDt {
                data: [0xde, 0xad, 0xbe, 0xef],
            }),
            Header::Ieth => headers.push(&Ieth {
                rkey: 0x0102_0304.into(),
            }),
        }
    }
    let mut transport = headers.as_bytes().to_vec();
    transport.extend_from_slice(&payload);
    transport.resize(transport.len() + usize::from(pad), 0);
    Packet::parse(&transport, transport.len()).unwrap();

    let udp_length = (UDP.len() + transport.len() + 4) as u16;
    let mut udp = UDP;
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    let mut ip = if ipv6 { IPV6.to_vec() } else { IPV4.to_vec() };
    if ipv6 {
        ip[4..6].copy_from_slice(&udp_length.to_be_bytes());
    } else {
        ip[2..4].copy_from_slice(&(udp_length + 20).to_be_bytes());
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum);
    }
    let crc = icrc(crc32, &ip, &udp, &transport).unwrap();
    if ipv6 {
        // Over IPv6 the checksum of UDP may not be left out as it is over IPv4; it comes last.
        let mut sum = Vec::new();
        sum.extend_from_slice(&ip[8..40]);
        sum.extend_from_slice(&u32::from(udp_length).to_be_bytes());
        sum.extend_from_slice(&[0, 0, 0, 17]);
        sum.extend_from_slice(&udp);
        sum.extend_from_slice(&transport);
        sum.extend_from_slice(&crc);
        udp[6..8].copy_from_slice(&checksum(&sum));
    }
    [&ip[..], &udp, &transport, &crc].concat()
}

/// A line for each packet: the opcode, the version of IP, and the bytes from the IP header on.
fn lines() -> String {
    let mut lines = String::new();
    for opcode in (0..=255u8).filter(|&opcode| opcode::info(opcode).is_some()) {
        for ipv6 in [false, true] {
            let bytes = packet(opcode, ipv6);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            lines += &format!("{opcode:02x} {} {hex}\n", if ipv6 { 6 } else { 4 });
        }
    }
    lines
}

/// `FERRULE_GOLDEN=write` writes the file anew.
#[test]
fn golden_packets() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../../../tests/guest/packets.txt"
    );
    let lines = lines();
    if std::env::var_os("FERRULE_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(path, &lines).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == lines,
        "{path} is not what is made"
    );
}
