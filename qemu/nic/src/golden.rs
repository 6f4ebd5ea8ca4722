// SPDX-License-Identifier: GPL-2.0

//! Tests of routes: the engine's golden packets, sent and received; and a queue that is full.

use ferrule_engine::packet::checksum::Sum;
use ferrule_engine::packet::icrc;
use ferrule_engine::packet::ip::mapped;
use ferrule_engine::{Fault, Gid, Outgoing, Path, PathKind, Sends, Sink, Unsent};

use crate::area::Queue;
use crate::frame::Frame;
use crate::host::Nic;
use crate::packet::crc32;
use crate::region::Region;
use crate::roce::headers;
use crate::roce::received::{parse, Received};
use crate::route::Route;
use crate::switch::forward::Switch;
use crate::switch::stream::Output;
use crate::wire::Wire;

const GOLDEN: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/guest/packets.txt"
));

/// The golden packets of the engine, which other programs decode: the bytes of the IP header, and
/// all bytes from there.
fn golden() -> impl Iterator<Item = (usize, Vec<u8>)> {
    GOLDEN.lines().map(|line| {
        let hex = line.split(' ').next_back().unwrap().as_bytes();
        let digits = |pair: &[u8]| std::str::from_utf8(pair).unwrap().to_owned();
        let byte = |pair: &[u8]| u8::from_str_radix(&digits(pair), 16).unwrap();
        let bytes: Vec<u8> = hex.chunks(2).map(byte).collect();
        (if bytes[0] == 0x45 { 20 } else { 40 }, bytes)
    })
}

/// A packet in the making, of which all bytes but the invariant CRC are there.
struct Made(Vec<u8>);

impl<'a> Outgoing<'a, Nic> for Made {
    fn queue(&self) -> &'a Queue {
        unreachable!("no route asks for it")
    }

    fn kind(&self) -> Sends {
        Sends::Requests
    }

    fn length(&self) -> usize {
        self.0.len() + icrc::LENGTH
    }

    fn write(&mut self, ip: &[u8], udp: &[u8], to: &mut impl Sink<Region>) -> Result<(), Fault> {
        to.put(&self.0)?;
        let crc = icrc::icrc(crc32, ip, udp, to.bytes()).unwrap();
        to.put(&crc)
    }
}

#[test]
fn golden_packets_are_sent() {
    let (source, dmac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for (ip, mut bytes) in golden() {
        let gid = |at: usize| match ip {
            20 => mapped(bytes[at..at + 4].try_into().unwrap()),
            _ => Gid::try_from(&bytes[at..at + 16]).unwrap(),
        };
        let (sgid, dgid) = if ip == 20 {
            (gid(12), gid(16))
        } else {
            (gid(8), gid(24))
        };
        let path = Path {
            kind: PathKind::Remote,
            sgid_index: 0,
            sgid,
            dgid,
            dmac,
            flow_label: 0x1_2345,
            hop_limit: 64,
            traffic_class: 0,
            sl: 0,
            static_rate: 0,
        };
        let route = Route::new(0, source, &path, (1, 2)).unwrap().with_ecn();

        // These fields differ in soft's packets, and so here: identification, flow label, source
        // port, checksum of UDP.
        let port = headers::source_port(0x1_2345, 1, 2);
        if ip == 20 {
            bytes[4..6].fill(0);
            bytes[10..12].fill(0);
            let sum = Sum::default().with(&bytes[..20]).end();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[1..4].copy_from_slice(&[0x21, 0x23, 0x45]);
        }
        bytes[ip..ip + 2].copy_from_slice(&port.to_be_bytes());
        bytes[ip + 6..ip + 8].fill(0);
        let end = bytes.len() - icrc::LENGTH;
        let (packet, udp) = (ip + 8, ip..ip + 8);
        let crc = icrc::icrc(icrc::crc32, &bytes[..ip], &bytes[udp], &bytes[packet..end]);
        bytes[end..].copy_from_slice(&crc.unwrap());
        let kind = if ip == 20 { [8, 0] } else { [0x86, 0xdd] };
        let expected = [&dmac[..], &source, &kind, &bytes].concat();

        let mut switch = Switch::default();
        switch.add(Some(source), false);
        switch.add(None, true);
        switch.set_up(1, true);
        let wire = Wire::new(switch).unwrap();
        let mut made = Made(bytes[packet..end].to_vec());
        route.send::<Nic>(&wire, &mut made).unwrap();
        let mut output = Output::default();
        wire.switch().take(1, &mut output);
        let slices = output.slices();
        let sent: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(sent[4..], expected);
    }
}

#[test]
fn golden_packets_are_received() {
    let mut count = 0;
    for (ip, bytes) in golden() {
        let kind = if ip == 20 { [8, 0] } else { [0x86, 0xdd] };
        let frame = [&[2; 12][..], &kind, &bytes].concat();
        let (_, layout) = parse(&frame).unwrap();
        let frame = Frame::new(frame).unwrap();
        let packet = Received::new(frame, layout.unwrap(), 0);
        let crc = icrc::icrc(crc32, packet.ip(), packet.udp(), packet.transport());
        assert_eq!(crc, Some(packet.icrc()));
        count += 1;
    }
    assert!(count > 50);
}

#[test]
fn a_full_queue_is_busy() {
    let mut switch = Switch::default();
    let source = [2, 0, 0, 0, 0, 1];
    let gid = |last| mapped([192, 0, 2, last]);
    switch.add(Some(source), false);
    switch.add(None, true);
    switch.set_up(1, true);
    // The peer is known at the link.
    let dmac = [2, 0, 0, 0, 0, 2];
    let hello = [&source[..], &dmac, &[8, 6]].concat();
    switch.input(1, hello, std::time::Instant::now());
    let wire = Wire::new(switch).unwrap();
    let path = Path {
        kind: PathKind::Remote,
        sgid_index: 0,
        sgid: gid(1),
        dgid: gid(2),
        dmac,
        flow_label: 0,
        hop_limit: 0,
        traffic_class: 0,
        sl: 0,
        static_rate: 0,
    };
    let route = Route::new(0, source, &path, (1, 2)).unwrap();
    let mut made = Made(vec![7; 60]);
    let mut sent = 0;
    let refused = loop {
        match route.send::<Nic>(&wire, &mut made) {
            Ok(()) => sent += 1,
            Err(unsent) => break unsent,
        }
    };
    assert_eq!(
        (sent, refused),
        (crate::switch::queue::FRAMES, Unsent::Busy)
    );
    assert_eq!(wire.dropped_to(1), 0);
    wire.switch().take(1, &mut Output::default());
    assert_eq!(route.send::<Nic>(&wire, &mut made), Ok(()));
}
