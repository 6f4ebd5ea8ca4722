// SPDX-License-Identifier: GPL-2.0

//! Unreliable services over the wire: what arrives is whole, and what is lost stays lost.

use std::collections::BTreeSet;

use ferrule_engine::{
    abi::{wc_flags, wc_opcode, wr_flags, wr_opcode},
    packet::opcode::{rc, Service, CONGESTION},
    Gid, Group, Mtu, Path, PathKind, QpType, Sends, State, Status,
};

use crate::sim::network::{deliver, Faults, Link, Random, BAD, GIDS};
use crate::sim::*;

const DEPTH: u32 = 16;
const LARGEST: u64 = 64 * 1024;
const QKEY: u32 = 0x1111_1111;
const GRH: u32 = 40;
const MULTICAST: u32 = 0xff_ffff;
const UC: u8 = Service::Uc as u8;

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

/// What a receiver has got.
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
        link.worlds[i].engine.set_port_mtu(Mtu::Mtu1024);
        link.worlds[i].ud(&QpSpec::default(), QKEY)
    });
    let way = Path {
        sgid: GIDS[0],
        dgid: GIDS[1],
        ..path(PathKind::Remote)
    };
    let ah = link.worlds[0].ah(1, way);
    let rooms = [0, 1].map(|_| link.worlds[1].mr(2 * WRITES as usize + 4096));
    let mut got = [Got::default(), Got::default()];
    let mut sent = [0u64; 2];
    let mut ended = [0u64; 2];
    let largest = [LARGEST, mtu];
    loop {
        for (i, end) in [&uc[1], &ud[1]].into_iter().enumerate() {
            let (got, room) = (&mut got[i], &rooms[i]);
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
                    room.bytes(place as usize, length as usize),
                    patterns[1].bytes(from as usize, length as usize),
                    "message {number}"
                );
                got.taken += 1;
                got.numbers.push(number);
            }
            while got.receives - got.taken < u64::from(DEPTH) {
                let slot = got.receives % u64::from(DEPTH) * LARGEST;
                end.qp
                    .post_recv(got.receives, &[room.sge(slot, LARGEST as u32)]);
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
                    let wr = Wr::write(number, &sges, rooms[0].remote(slot));
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
fn what_arrives_over_a_bad_network_is_whole() {
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

/// Two ends of an unreliable connection, and what their packets carry.
struct Scene {
    link: Link,
    ends: [End; 2],
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let spec = QpSpec {
            qp_type: QpType::Uc,
            ..QpSpec::default()
        };
        let ends = [0, 1].map(|i| {
            let world = &mut link.worlds[i];
            let cq = world.cq(64);
            let qp = world.qp_with(&spec, &cq, &cq);
            End { qp, cq }
        });
        link.connect_uc([&ends[0].qp, &ends[1].qp], Mtu::Mtu1024);
        let (from, to) = (link.worlds[0].mr(8192), link.worlds[1].mr(8192));
        from.fill(5);
        Self {
            link,
            ends,
            from,
            to,
        }
    }

    /// The packets of a request.
    fn packets(&mut self, wr: &Wr) -> Vec<SentPacket> {
        self.ends[0].qp.post_send(wr);
        let world = &mut self.link.worlds[0];
        world.run();
        self.ends[0].cq.expect(wr.wr_id, Status::Success);
        std::mem::take(&mut world.host.sent)
    }

    fn deliver<'a>(&mut self, packets: impl IntoIterator<Item = &'a SentPacket>) {
        for packet in packets {
            deliver(&mut self.link.worlds[1], packet);
        }
        self.link.worlds[1].run();
        assert_eq!(self.link.worlds[1].host.sent, [], "nobody answers");
    }

    fn dropped(&self) -> u64 {
        self.link.worlds[1].engine.counters().dropped
    }
}

#[test]
fn a_message_is_cut_into_packets() {
    let mut s = Scene::new();
    let sent = Wr::send(1, &[s.from.sge(0, 2500)])
        .with_opcode(wr_opcode::SEND_WITH_IMM)
        .with_imm([1, 2, 3, 4]);
    let packets = s.packets(&sent);
    let opcodes: Vec<u8> = packets.iter().map(|packet| packet.transport[0]).collect();
    assert_eq!(
        opcodes,
        [rc::SEND_FIRST, rc::SEND_MIDDLE, rc::SEND_LAST_WITH_IMM].map(|opcode| opcode | UC)
    );
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    s.deliver(&packets);
    let wc = s.ends[1].cq.expect(2, Status::Success);
    assert_eq!((wc.byte_len, wc.imm), (2500, [1, 2, 3, 4]));
    assert_eq!(s.to.bytes(0, 2500), s.from.bytes(0, 2500));

    let write = Wr::write(1, &[s.from.sge(100, 1025)], s.to.remote(4096));
    let packets = s.packets(&write);
    let opcodes: Vec<u8> = packets.iter().map(|packet| packet.transport[0]).collect();
    assert_eq!(
        opcodes,
        [rc::WRITE_FIRST, rc::WRITE_LAST].map(|opcode| opcode | UC)
    );
    s.deliver(&packets);
    s.ends[1].cq.expect_none();
    assert_eq!(s.to.bytes(4096, 1025), s.from.bytes(100, 1025));
    assert_eq!(s.dropped(), 0);
}

/// Whatever is lost of a message, all of it is dropped, and the next one arrives. A receive request
/// that had been taken for it is there for the next.
#[test]
fn a_message_arrives_whole_or_not_at_all() {
    let orders: [&[usize]; 8] = [
        &[1, 2],
        &[0, 2],
        &[0, 1],
        &[0, 2, 1],
        &[1, 0, 2],
        &[2],
        &[0, 0],
        &[0, 1, 1],
    ];
    for write in [false, true] {
        for order in orders {
            let mut s = Scene::new();
            let mut wr = Wr::send(1, &[s.from.sge(0, 3000)]);
            if write {
                wr = Wr::write(1, &[s.from.sge(0, 3000)], s.to.remote(4096))
                    .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM);
            }
            let packets = s.packets(&wr);
            assert_eq!(packets.len(), 3);
            let mut next = wr.clone();
            next.wr_id = 2;
            let whole = s.packets(&next);
            s.ends[1].qp.post_recv(7, &[s.to.sge(0, 4096)]);
            s.deliver(order.iter().map(|&i| &packets[i]));
            s.ends[1].cq.expect_none();
            s.deliver(&whole);
            let wc = s.ends[1].cq.expect(7, Status::Success);
            s.ends[1].cq.expect_none();
            assert_eq!(wc.byte_len, 3000);
            let place = if write { 4096 } else { 0 };
            assert_eq!(s.to.bytes(place, 3000), s.from.bytes(0, 3000));
            assert!(s.link.worlds[1].engine.counters().sequence_errors > 0);
        }
    }
}

/// A packet that does not fit the ones before it is dropped with its message.
#[test]
fn packets_of_two_messages_make_none() {
    let mut s = Scene::new();
    s.ends[1].qp.post_recv(7, &[s.to.sge(0, 4096)]);
    let sent = s.packets(&Wr::send(1, &[s.from.sge(0, 3000)]));
    let written = s.packets(&Wr::write(2, &[s.from.sge(0, 3000)], s.to.remote(4096)));
    // The number is the one that is expected, and the kind is not.
    let mut middle = written[1].clone();
    middle.transport[9..12].copy_from_slice(&sent[1].transport[9..12]);
    middle.seal();
    let before = s.dropped();
    s.deliver([&sent[0], &middle, &sent[2]]);
    s.ends[1].cq.expect_none();
    assert_eq!(s.dropped(), before + 2);
    // A write that is longer or shorter than it said.
    for claim in [2022u32, 2024] {
        let mut packets = s.packets(&Wr::write(3, &[s.from.sge(0, 2023)], s.to.remote(4096)));
        packets[0].transport[24..28].copy_from_slice(&claim.to_be_bytes());
        packets[0].seal();
        let before = s.dropped();
        s.deliver(&packets);
        assert_eq!(s.dropped(), before + 1);
    }
    let last = s.packets(&Wr::send(4, &[s.from.sge(0, 3000)]));
    s.deliver(&last);
    s.ends[1].cq.expect(7, Status::Success);
    s.link.worlds[1].state(&s.ends[1].qp, State::Rts);
}

/// Two datagram queue pairs, and the way from the first to the second.
struct Datagrams {
    link: Link,
    ends: [End; 2],
    from: TestMr,
    to: TestMr,
    way: Path,
}

impl Datagrams {
    fn new(sgid: Gid, dgid: Gid) -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = [0, 1].map(|i| {
            link.worlds[i].engine.set_port_mtu(Mtu::Mtu1024);
            link.worlds[i].ud(&QpSpec::default(), QKEY)
        });
        let (from, to) = (link.worlds[0].mr(8192), link.worlds[1].mr(8192));
        from.fill(5);
        let way = Path {
            sgid,
            dgid,
            hop_limit: 9,
            ..path(PathKind::Remote)
        };
        Self {
            link,
            ends,
            from,
            to,
            way,
        }
    }

    fn send(&mut self, length: u32, target: u32, qkey: u32) -> SentPacket {
        let ah = self.link.worlds[0].ah(1, self.way);
        let wr = Wr::datagram(1, &[self.from.sge(0, length)], (ah, target), qkey);
        self.ends[0].qp.post_send(&wr);
        let world = &mut self.link.worlds[0];
        world.run();
        let packet = world.host.sent.pop().unwrap();
        assert_eq!(world.host.sent, []);
        self.ends[0].cq.expect(1, Status::Success);
        packet
    }

    fn deliver(&mut self, packet: &SentPacket) {
        deliver(&mut self.link.worlds[1], packet);
        self.link.worlds[1].run();
        assert_eq!(self.link.worlds[1].host.sent, []);
    }

    fn target(&self) -> u32 {
        self.ends[1].qp.id.number
    }
}

fn mapped(a: u8, b: u8, c: u8, d: u8) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

#[test]
fn a_datagram_arrives_behind_the_header_that_it_had() {
    let v4 = (mapped(10, 0, 0, 1), mapped(10, 0, 0, 2));
    for (sgid, dgid) in [v4, (GIDS[0], GIDS[1])] {
        let mut s = Datagrams::new(sgid, dgid);
        s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
        let packet = s.send(301, s.target(), QKEY);
        s.deliver(&packet);
        let wc = s.ends[1].cq.expect(2, Status::Success);
        assert_eq!(wc.byte_len, 301 + GRH);
        assert_eq!((wc.opcode, wc.flags), (wc_opcode::RECV, wc_flags::GRH));
        assert_eq!(wc.src_qp, s.ends[0].qp.id.number);
        let before = GRH as usize - packet.ip.len();
        assert_eq!(s.to.bytes(before, packet.ip.len()), packet.ip);
        assert_eq!(s.to.bytes(GRH as usize, 301), s.from.bytes(0, 301));
    }
}

#[test]
fn a_datagram_that_nobody_takes_is_counted() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    let target = s.target();
    let good = s.send(100, target, QKEY);
    let counters = |s: &Datagrams| *s.link.worlds[1].engine.counters();
    s.deliver(&good);
    assert_eq!(counters(&s).dropped, 1, "no receive request");
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let nobody = s.send(100, 0x1234, QKEY);
    s.deliver(&nobody);
    assert_eq!(counters(&s).unknown_queue_pairs, 1);
    let other = s.send(100, target, 5);
    s.deliver(&other);
    assert_eq!((counters(&s).qkey_violations, counters(&s).dropped), (1, 2));
    let mut partition = good.clone();
    partition.transport[2..4].copy_from_slice(&[0x80, 1]);
    partition.seal();
    s.deliver(&partition);
    assert_eq!(counters(&s).pkey_errors, 1);
    // The service of a connection.
    let mut connected = good.clone();
    connected.transport[0] = rc::SEND_ONLY;
    connected.seal();
    s.deliver(&connected);
    assert_eq!(counters(&s).misdirected, 1);
    s.ends[1].cq.expect_none();
    s.deliver(&good);
    assert_eq!(s.ends[1].cq.expect(2, Status::Success).byte_len, 140);
}

/// A program cannot send with a controlled Q_Key: what it asks for is that of its queue pair.
#[test]
fn a_controlled_qkey_is_not_sent() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    let packet = s.send(8, s.target(), 0x8001_0000);
    assert_eq!(packet.transport[12..16], QKEY.to_be_bytes());
}

#[test]
fn a_datagram_to_a_group_goes_to_all_of_it() {
    let mut s = Datagrams::new(mapped(10, 0, 0, 1), mapped(239, 1, 2, 3));
    let gid = s.way.dgid;
    let mut more = Vec::new();
    for (i, world) in s.link.worlds.iter_mut().enumerate() {
        let room = world.mr(4096);
        for j in 0..3 {
            let end = world.ud(&QpSpec::default(), QKEY);
            let attached = add(&mut world.engine, Group::new(), |engine, memory| {
                engine.attach_mcast(end.qp.id.number, &gid, memory)
            });
            assert!(attached.is_ok());
            end.qp.post_recv(j, &[room.sge(j * 1000, 1000)]);
            more.push((i, j, end, room.clone()));
        }
    }
    let packet = s.send(200, MULTICAST, QKEY);
    s.deliver(&packet);
    for (i, j, end, room) in &more {
        let wc = end.cq.expect(*j, Status::Success);
        assert_eq!(wc.byte_len, 200 + GRH, "{i} {j}");
        let at = *j as usize * 1000;
        assert_eq!(room.bytes(at + 20, 20), packet.ip, "{i} {j}");
        assert_eq!(room.bytes(at + 40, 200), s.from.bytes(0, 200));
    }
    // By another number than that of groups, and to a group that nobody is attached to.
    let mut single = packet.clone();
    single.transport[5..8].copy_from_slice(&s.target().to_be_bytes()[1..]);
    single.seal();
    s.deliver(&single);
    let mut empty = packet.clone();
    empty.ip[19] = 4;
    empty.seal();
    s.deliver(&empty);
    assert_eq!(s.link.worlds[1].engine.counters().misdirected, 2);
}

#[test]
fn a_host_without_room_is_asked_again() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let ah = s.link.worlds[0].ah(1, s.way);
    let wr = Wr::datagram(1, &[s.from.sge(0, 99)], (ah, s.target()), QKEY);
    s.ends[0].qp.post_send(&wr);
    s.link.worlds[0].host.busy = 3;
    s.link.settle();
    s.ends[0].cq.expect(1, Status::Success);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.link.now, 3 * 50 * US + 5 * US);

    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    s.ends[0].qp.post_send(&Wr::send(1, &[s.from.sge(0, 3000)]));
    s.link.worlds[0].host.busy = 3;
    s.link.settle();
    s.ends[0].cq.expect(1, Status::Success);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.to.bytes(0, 3000), s.from.bytes(0, 3000));
    assert_eq!(s.dropped(), 0);
}

/// Who has as much on its way as it may have is not asked for more before it is rung.
#[test]
fn whoever_has_too_much_on_its_way_waits_to_be_rung() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let ah = s.link.worlds[0].ah(1, s.way);
    let wr = Wr::datagram(1, &[s.from.sge(0, 99)], (ah, s.target()), QKEY);
    let rung = |link: &mut Link, ends: &[End; 2], wr: &Wr| {
        link.worlds[0].host.full = Some(Sends::Requests);
        ends[0].qp.post_send(wr);
        assert_eq!(link.sent(0), []);
        link.wait(MS);
        assert_eq!(link.sent(0), []);
        let world = &mut link.worlds[0];
        assert_eq!(world.engine.counters().send_waits, 1);
        world.host.full = None;
        world.engine.ring_qp(ends[0].qp.id.number);
        let sent = link.sent(0);
        assert!(!sent.is_empty());
        link.give(1, &sent);
        ends[0].cq.expect(1, Status::Success);
        ends[1].cq.expect(2, Status::Success);
    };
    rung(&mut s.link, &s.ends, &wr);

    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    let wr = Wr::send(1, &[s.from.sge(0, 3000)]);
    rung(&mut s.link, &s.ends, &wr);
    assert_eq!(s.to.bytes(0, 3000), s.from.bytes(0, 3000));
}

/// Memory that has gone since the request was taken ends the sender's work, and no packet is sent.
#[test]
fn what_cannot_be_read_is_not_sent() {
    let mut s = Scene::new();
    s.ends[0].qp.post_send(&Wr::send(1, &[s.from.sge(0, 3000)]));
    let world = &mut s.link.worlds[0];
    world.host.busy = 1;
    world.run();
    world.engine.remove_mr(s.from.key).map(|_| ()).unwrap();
    s.link.settle();
    s.ends[0].cq.expect(1, Status::LocalProtection);
    s.link.worlds[0].state(&s.ends[0].qp, State::Sqe);
    assert_eq!(s.link.worlds[0].engine.counters().packets_sent, 0);
}

#[test]
fn congestion_is_counted() {
    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    let mut packets = s.packets(&Wr::send(1, &[s.from.sge(0, 100)]));
    // Both bits of explicit congestion notification, in the traffic class of IPv6.
    packets[0].ip[1] |= 0x30;
    s.deliver(&packets);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.link.worlds[1].engine.counters().congestion_marks, 1);
    let mut notification = packets[0].clone();
    notification.transport.truncate(12);
    notification.transport[0] = CONGESTION;
    notification.transport[1] = 0x40;
    notification.transport.extend([0; 16]);
    notification.seal();
    s.deliver([&notification]);
    assert_eq!(
        s.link.worlds[1].engine.counters().congestion_notifications,
        1
    );
}
