// SPDX-License-Identifier: GPL-2.0

//! The peers of a switch send frames, as told by a string of bytes, and the same rules hold
//! whatever these are.
//!
//! The string is a row of pieces: a byte that tells the port, one for the length, and so many bytes
//! of that port's stream. No socket is involved: the switch takes frames, and their stream is a
//! state machine of its own.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ferrule_engine::packet::icrc;
use ferrule_engine::packet::ip::mapped;
use ferrule_nic::frame::{Frame, Mac, HEADER, MOST};
use ferrule_nic::roce::received::Received;
use ferrule_nic::switch::forward::Switch;
use ferrule_nic::switch::stream::{Input, Output};

const PORTS: usize = 4;

/// The golden packets of the engine go to these.
const TO_V4: [u8; 16] = mapped([192, 0, 2, 2]);
const TO_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn mac(port: usize) -> Mac {
    [2, 0, 0, 0, 0, port as u8]
}

/// Two guests, of which one has a function with addresses, and two links.
fn switch() -> Switch {
    let mut switch = Switch::default();
    for port in 0..PORTS {
        switch.add((port < 2).then(|| mac(port)), true);
        switch.set_up(port, true);
    }
    switch.set_gids(0, HashSet::from([TO_V4, TO_V6]));
    switch
}

/// The frames that have come out of a port.
fn out(switch: &mut Switch, port: usize) -> Vec<Vec<u8>> {
    let (mut input, mut found) = (Input::default(), Vec::new());
    while switch.waits(port) {
        let mut output = Output::default();
        switch.take(port, &mut output);
        for slice in output.slices() {
            input.push(&slice, |frame| found.push(frame)).unwrap();
        }
    }
    found
}

/// A packet for the engine lies in its frame.
fn judge(packet: &Received, frame: &[u8]) {
    let parts = [
        packet.ip(),
        packet.udp(),
        packet.transport(),
        &packet.icrc(),
    ]
    .concat();
    assert!(matches!(packet.ip().len(), 20 | 40));
    assert!(packet.udp().len() == 8 && parts.len() >= 28 + icrc::LENGTH);
    assert_eq!(&parts, &frame[HEADER..HEADER + parts.len()]);
    assert!(parts.len() < 4300);
}

/// Runs a script. Returns how many packets were for the engine.
pub fn run(mut script: &[u8]) -> usize {
    let mut switch = switch();
    let mut inputs = [(); PORTS].map(|()| Input::default());
    let mut now = Instant::now();
    let mut packets = 0;
    while let [how, length, rest @ ..] = script {
        let from = usize::from(how % PORTS as u8);
        let (piece, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        script = rest;
        now += Duration::from_secs(u64::from(how / 16));
        let mut frames = Vec::new();
        if inputs[from]
            .push(piece, |frame| frames.push(frame))
            .is_err()
        {
            inputs[from] = Input::default();
            switch.set_up(from, false);
            switch.set_up(from, true);
        }
        for bytes in frames {
            assert!(bytes.len() <= MOST);
            if let Some(packet) = switch.input(from, bytes.clone(), now) {
                judge(&packet, &bytes);
                packets += 1;
            }
            for port in 0..PORTS {
                let found = out(&mut switch, port);
                assert!(found.is_empty() || port != from && found == [bytes.clone()]);
            }
        }
        // The engine sends such a frame as well, for the second guest.
        if let Some(frame) = Frame::new(piece.to_vec()) {
            if let Some(packet) = switch.send(1, &frame) {
                judge(&packet, frame.bytes());
            }
            assert!(out(&mut switch, 1).is_empty());
            (0..PORTS).for_each(|port| drop(out(&mut switch, port)));
        }
    }
    packets
}

/// Scripts that send a frame each, to begin with: packets for the engine, and others.
pub fn seeds() -> Vec<Vec<u8>> {
    let golden = include_str!("../../../../tests/guest/packets.txt").lines();
    let packets = golden.filter_map(|line| {
        let hex = line.split(' ').next_back()?;
        let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        let kind = if hex.starts_with('4') {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        Some([&mac(0)[..], &[2, 0, 0, 0, 0, 9], &kind, &bytes?].concat())
    });
    let others = [
        [&[0xff; 6][..], &mac(1), &[8, 6], &[0; 28]].concat(),
        [&mac(0)[..], &mac(1), &[0x81, 0, 0, 1, 8, 0], &[0x45; 30]].concat(),
        vec![1; 13],
    ];
    packets
        .filter(|frame| frame.len() < 250)
        .chain(others)
        .map(|frame| {
            let stream = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
            [&[2, stream.len() as u8][..], &stream].concat()
        })
        .collect()
}
