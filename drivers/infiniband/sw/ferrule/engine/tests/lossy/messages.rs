// SPDX-License-Identifier: GPL-2.0

//! Any messages over a network that loses some.

use std::collections::BTreeSet;

use ferrule_engine::abi::{wc_opcode, wr_flags, wr_opcode};
use ferrule_engine::{Mtu, Path, PathKind, QpType, State, Status, Vport};

use super::{GRH, QKEY};
use crate::sim::network::{Faults, Link, Random, BAD, GIDS};
use crate::sim::*;

const DEPTH: u32 = 16;
const LARGEST: u64 = 64 * 1024;

/// A message of a number: its length and where in the pattern its bytes begin.
fn message(number: u64, largest: u64) -> (u32, u64) {
    let mut random = Random::new(number);
    let magnitude = random.below(18);
    let length = random.below(1 << magnitude).min(largest) as u32;
    (length, random.below(LARGEST))
}

fn pattern(world: &mut World) -> TestMr {
    let mr = world.mr(2 * LARGEST as usize);
    let mut random = Random::new(7);
    let bytes: Vec<u8> = (0..2 * LARGEST).map(|_| random.next() as u8).collect();
    let start = mr.region.start;
    mr.region.memory.borrow_mut()[start..start + bytes.len()].copy_from_slice(&bytes);
    mr
}

fn number_of(wc: &Wc) -> u64 {
    u32::from_be_bytes(wc.imm).into()
}

/// The messages that a receiver has got.
#[derive(Default)]
struct Got {
    receives: u64,
    taken: u64,
    numbers: Vec<u64>,
}

/// Sends so many messages by UC and by UD; answers the numbers that arrived of each.
fn send_unreliably(seed: u64, count: u64, faults: Faults) -> ([Vec<u64>; 2], u64) {
    const WRITES: u64 = DEPTH as u64 * LARGEST;

    let mut link = Link::new(seed, faults, false);
    let patterns = [0, 1].map(|i| pattern(&mut link.worlds[i]));
    let mtu = 1024;
    let spec = QpSpec {
        qp_type: QpType::Uc,
        ..QpSpec::default()
    };
    let uc = [0, 1].map(|i| {
        let world = &mut link.worlds[i];
        let cq = world.cq(64);
        let qp = world.qp_with(&spec, &cq, &cq);
        End { qp, cq }
    });
    link.connect_uc([&uc[0].qp, &uc[1].qp], Mtu::Mtu1024);
    let ud = [0, 1].map(|i| {
        link.worlds[i]
            .engine
            .set_port_mtu(Vport::default(), Mtu::Mtu1024);
        link.worlds[i].ud(&QpSpec::default(), QKEY)
    });
    let way = Path {
        sgid: GIDS[0],
        dgid: GIDS[1],
        ..path(PathKind::Remote)
    };
    let ah = link.worlds[0].ah(1, way);
    let buffers = [0, 1].map(|_| link.worlds[1].mr(2 * WRITES as usize + 4096));
    let mut got = [Got::default(), Got::default()];
    let mut sent = [0u64; 2];
    let mut ended = [0u64; 2];
    let largest = [LARGEST, mtu];
    loop {
        for (i, end) in [&uc[1], &ud[1]].into_iter().enumerate() {
            let (got, buffer) = (&mut got[i], &buffers[i]);
            while let Some(wc) = end.cq.poll() {
                assert_eq!((wc.status, wc.wr_id), (Status::Success as u8, got.taken));
                let number = number_of(&wc);
                let (length, from) = message(number, largest[i]);
                let before = if i == 1 { GRH } else { 0 };
                assert_eq!(wc.byte_len, length + before, "message {number}");
                let place = if wc.opcode == wc_opcode::RECV {
                    got.taken % u64::from(DEPTH) * LARGEST + u64::from(before)
                } else {
                    WRITES + number % u64::from(DEPTH) * LARGEST
                };
                assert_eq!(
                    buffer.bytes(place as usize, length as usize),
                    patterns[1].bytes(from as usize, length as usize),
                    "message {number}"
                );
                got.taken += 1;
                got.numbers.push(number);
            }
            while got.receives - got.taken < u64::from(DEPTH) {
                let slot = got.receives % u64::from(DEPTH) * LARGEST;
                end.qp
                    .post_recv(got.receives, &[buffer.sge(slot, LARGEST as u32)]);
                got.receives += 1;
            }
        }
        for (i, end) in [&uc[0], &ud[0]].into_iter().enumerate() {
            while let Some(wc) = end.cq.poll() {
                assert_eq!((wc.status, wc.wr_id), (Status::Success as u8, ended[i]));
                ended[i] += 1;
            }
            // One at a time is under way, so that the receiver has requests enough for all.
            while sent[i] < count && sent[i] == ended[i] {
                let number = sent[i];
                sent[i] += 1;
                let (length, from) = message(number, largest[i]);
                let half = length / 2;
                let sges = [
                    patterns[0].sge(from, half),
                    patterns[0].sge(from + u64::from(half), length - half),
                ];
                let imm = (number as u32).to_be_bytes();
                let wr = if i == 1 {
                    let to = (ah, ud[1].qp.id.number);
                    let wr = Wr::datagram(number, &sges, to, QKEY);
                    wr.with_opcode(wr_opcode::SEND_WITH_IMM)
                } else if number % 3 == 0 {
                    let slot = WRITES + number % u64::from(DEPTH) * LARGEST;
                    let wr = Wr::write(number, &sges, buffers[0].remote(slot));
                    wr.with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM)
                } else {
                    Wr::send(number, &sges).with_opcode(wr_opcode::SEND_WITH_IMM)
                };
                end.qp
                    .post_send(&wr.with_imm(imm).with_flags(wr_flags::SIGNALED));
            }
        }
        if !link.step() {
            break;
        }
    }
    assert_eq!((sent, ended), ([count; 2], [count; 2]));
    for (i, world) in link.worlds.iter_mut().enumerate() {
        assert_eq!(world.engine.deadline(), None);
        world.state(&uc[i].qp, State::Rts);
        world.state(&ud[i].qp, State::Rts);
    }
    (got.map(|got| got.numbers), link.network.trace)
}

#[test]
fn a_sound_network_loses_nothing() {
    let (numbers, _) = send_unreliably(1, 2000, Faults::default());
    let all: Vec<u64> = (0..2000).collect();
    assert_eq!(numbers, [all.clone(), all]);
}

#[test]
fn messages_over_a_bad_network_are_whole() {
    for seed in 1..=5 {
        let count = 4000;
        let (numbers, trace) = send_unreliably(seed, count, BAD);
        for numbers in &numbers {
            // Of the packets a tenth is lost, and some come twice.
            let different: BTreeSet<u64> = numbers.iter().copied().collect();
            assert!(different.len() > 1000 && (different.len() as u64) < count);
        }
        assert!(numbers[1].len() as u64 > count * 8 / 10);
        assert_eq!(send_unreliably(seed, count, BAD), (numbers, trace));
    }
}
