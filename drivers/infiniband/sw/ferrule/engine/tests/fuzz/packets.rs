// SPDX-License-Identifier: GPL-2.0

//! Packets of any bytes, from a peer that knows its own connections and keys and does what it likes,
//! beside a connection that behaves.

use std::collections::BTreeMap;

use ferrule_engine::{
    abi::wc_opcode,
    packet::{self, opcode, Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Header, Headers, Reth, U24},
    Gid, Group, Mtu, Path, PathKind, QpType, State, Status,
};
use zerocopy::IntoBytes;

use super::{each, Input};
use crate::sim::memory::{shared, Shared};
use crate::sim::network::{deliver, Faults, Link, GIDS};
use crate::sim::{
    add, init, path, End, QpSpec, SentPacket, TestCq, TestMr, TestQp, World, Wr, ALL, MS, PLENTY,
    SQ_PSN, US,
};

const DEPTH: u32 = 8;
/// Things to do; the rest of the input is left.
const LIMIT: usize = 100;
/// More runs than this in a row with work left would be work that feeds on itself.
const RUNS: usize = 10_000;
const QKEY: u32 = 0x1234;
const MULTICAST: u32 = 0xff_ffff;
/// The number of the peer's queue pair, for all of its connections.
const PEER: u32 = 0x99;

/// The memory of which a part is registered for the peer; the rest must never change.
const ARENA: usize = 16 << 10;
const OPEN: std::ops::Range<usize> = 4096..12288;

const HOSTILE: Gid = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
const GROUP: Gid = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// A queue pair that the peer may send to, and what was posted to it since its last reset.
struct Target {
    qp: TestQp,
    cq: TestCq,
    qp_type: QpType,
    posted: [u32; 2],
    completed: [u32; 2],
}

struct Scene {
    /// The engine that gets the packets is the first one; the neighbour's peer is on the other.
    link: Link,
    targets: Vec<Target>,
    arena: Shared,
    open: TestMr,
    ah: u32,
    a: End,
    b: End,
    memory: [TestMr; 2],
    transfers: u64,
    /// What the engine has sent to the peer, the last of each opcode.
    seen: BTreeMap<u8, SentPacket>,
}

fn pattern() -> Vec<u8> {
    (0..ARENA).map(|i| ((i * 131) >> 3) as u8).collect()
}

fn way() -> Path {
    Path {
        sgid: GIDS[0],
        dgid: HOSTILE,
        ..path(PathKind::Remote)
    }
}

impl Scene {
    fn new() -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let spec = |pd, qp_type| QpSpec {
            pd,
            qp_type,
            depth: DEPTH,
            max_sge: 2,
            max_inline: 16,
            sq_sig_all: true,
            ..QpSpec::default()
        };
        let [a, b] = [0, 1].map(|i| {
            let world = &mut link.worlds[i];
            let cq = world.cq(64);
            let qp = world.qp_with(&spec(1, QpType::Rc), &cq, &cq);
            End { qp, cq }
        });
        link.connect([&a.qp, &b.qp], Mtu::Mtu256, |_| ());
        let memory = [0, 1].map(|i| link.worlds[i].mr(2048));
        let world = &mut link.worlds[0];
        let arena = shared(ARENA);
        arena.borrow_mut().copy_from_slice(&pattern());
        let open = world.mr_with(2, ALL, arena.clone(), OPEN.start, OPEN.len());
        let targets = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Ud]
            .into_iter()
            .map(|qp_type| {
                let cq = world.cq(64);
                let qp = world.qp_with(&spec(2, qp_type), &cq, &cq);
                Target {
                    qp,
                    cq,
                    qp_type,
                    posted: [0; 2],
                    completed: [0; 2],
                }
            })
            .collect();
        world.engine.set_port_mtu(Mtu::Mtu256);
        let ah = world.ah(2, way());
        let mut scene = Self {
            link,
            targets,
            arena,
            open,
            ah,
            a,
            b,
            memory,
            transfers: 0,
            seen: BTreeMap::new(),
        };
        for target in 0..scene.targets.len() {
            scene.connect(target);
        }
        for target in [2, 3] {
            let number = scene.targets[target].qp.id.number;
            let attached = add(&mut scene.world().engine, Group::new(), |engine, memory| {
                engine.attach_mcast(number, &GROUP, memory)
            });
            assert!(attached.is_ok());
        }
        scene
    }

    fn world(&mut self) -> &mut World {
        &mut self.link.worlds[0]
    }

    fn connect(&mut self, target: usize) {
        let Target { qp, qp_type, .. } = &self.targets[target];
        let (qp, qp_type) = (qp.clone(), *qp_type);
        if qp_type == QpType::Ud {
            return self.world().ready_ud(&qp, QKEY);
        }
        let mut rtr = crate::sim::rtr(PEER);
        let mut rts = crate::sim::rts();
        rtr.path = Some(way());
        rtr.path_mtu = Some(Mtu::Mtu256);
        rtr.max_dest_rd_atomic = Some(2);
        rts.max_rd_atomic = Some(2);
        rts.timeout = Some(8);
        if qp_type == QpType::Uc {
            rtr.max_dest_rd_atomic = None;
            rtr.min_rnr_timer = None;
            rts.timeout = None;
            rts.retry_cnt = None;
            rts.rnr_retry = None;
            rts.max_rd_atomic = None;
        }
        for modify in [init(), rtr, rts] {
            self.world().modify(&qp, &modify).unwrap();
        }
    }

    fn reset(&mut self, target: usize) {
        let qp = self.targets[target].qp.clone();
        self.collect();
        self.world().to(&qp, State::Reset);
        qp.rewind();
        self.targets[target].posted = [0; 2];
        self.targets[target].completed = [0; 2];
        self.connect(target);
    }

    /// Runs until nothing is left to do at this time, which has to come.
    fn run(&mut self) {
        for _ in 0..RUNS {
            let world = &mut self.link.worlds[0];
            let more = world.engine.run(&mut world.host, PLENTY, None).more;
            world.host.traces.clear();
            world.host.events.clear();
            if !more {
                return self.sort();
            }
        }
        panic!("there is always more to do");
    }

    /// What was sent to the neighbour's peer goes there, what was sent to the other is kept.
    fn sort(&mut self) {
        for packet in std::mem::take(&mut self.world().host.sent) {
            if packet.ip.ends_with(&HOSTILE) {
                self.seen.insert(packet.transport[0], packet);
            } else {
                let now = self.link.now;
                self.link.network.send(now, 1, packet);
            }
        }
    }

    /// Goes on to a time, and lets all happen that happens until then.
    fn advance(&mut self, until: u64) {
        for _ in 0..RUNS {
            self.run();
            let [first, second] = &mut self.link.worlds;
            second.host.now = self.link.now;
            while second.engine.run(&mut second.host, PLENTY, None).more {}
            for packet in std::mem::take(&mut second.host.sent) {
                self.link.network.send(self.link.now, 0, packet);
            }
            let next = [
                self.link.network.next(),
                first.engine.deadline(),
                second.engine.deadline(),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
            self.link.now = self.link.now.max(next.min(until));
            for world in &mut self.link.worlds {
                world.host.now = self.link.now;
                world.host.traces.clear();
                world.host.events.clear();
            }
            while let Some((to, packet)) = self.link.network.arrived(self.link.now) {
                deliver(&mut self.link.worlds[to], &packet);
            }
            if next > until {
                return;
            }
        }
        panic!("timers fire without end");
    }

    /// Hands the engine a packet of the peer.
    fn receive(&mut self, to: &Gid, transport: Vec<u8>, is_sealed: bool) {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
        ip.extend_from_slice(&HOSTILE);
        ip.extend_from_slice(to);
        let mut packet = SentPacket {
            ip,
            udp: vec![0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0],
            transport,
            icrc: [0; 4],
        };
        if is_sealed && packet.transport.len() > 4 {
            packet.seal();
        }
        self.receive_packet(&packet);
    }

    fn receive_packet(&mut self, packet: &SentPacket) {
        let before = *self.world().engine.counters();
        let world = &mut self.link.worlds[0];
        world.engine.receive(&mut world.host, &packet.rx_packet());
        let after = self.world().engine.counters();
        assert_eq!(after.packets_received, before.packets_received + 1);
    }

    /// Takes the completions, which have to be of what was posted, in order and once.
    fn collect(&mut self) {
        for target in &mut self.targets {
            for wc in target.cq.drain() {
                let receive = usize::from(wc.opcode & wc_opcode::RECV != 0);
                assert_eq!(wc.wr_id, target.completed[receive].into(), "{wc:?}");
                target.completed[receive] += 1;
                assert!(target.completed[receive] <= target.posted[receive]);
            }
        }
    }

    /// A packet that is right but for what the input says.
    fn packet(&mut self, input: &mut Input<'_>) {
        let opcode = input.byte();
        let whom = input.byte();
        let how = input.byte();
        let delta = i32::from(input.byte() as i8);
        let target = &self.targets[usize::from(whom) % self.targets.len()];
        let info = self.link.worlds[0].query(&target.qp);
        let is_answer = opcode::rule(opcode)
            .is_some_and(|rule| rule.has(Header::Aeth) || rule.kind == opcode::Kind::ReadResponse);
        // Numbers near to those that the engine expects: of requests the next one, of answers those
        // of what it has sent.
        let expected = if is_answer { SQ_PSN } else { info.attr.rq_psn };
        let mut bth = Bth {
            opcode,
            flags: Bth::MIGRATED | how & Bth::SOLICITED,
            dest_qp: U24::new(match whom >> 4 {
                0 => MULTICAST,
                1 => self.a.qp.id.number,
                2 => input.u32(),
                _ => target.qp.id.number,
            }),
            psn: U24::new(expected.wrapping_add_signed(delta)),
            acknowledge: input.byte(),
            ..Bth::default()
        };
        bth.pkey.set(if how & 1 != 0 { 0x7fff } else { 0xffff });
        let length = usize::from(input.u16()) % 1100;
        // Most of the lengths are such that the opcode may have them.
        let length = match opcode::rule(opcode).map(|rule| rule.payload) {
            Some(payload) if how & 2 == 0 => match payload {
                opcode::Payload::None => 0,
                opcode::Payload::Full => 256,
                opcode::Payload::Exactly(bytes) => bytes.into(),
                _ => length % 257,
            },
            _ => length,
        };
        let pad = packet::pad(length as u32);
        bth.flags |= Bth::pad_flags(if how & 4 != 0 { how >> 3 } else { pad });
        let mut headers = Headers::new(&bth);
        let key = if how & 8 != 0 {
            input.u32()
        } else {
            self.open.key
        };
        let addr = self
            .open
            .iova
            .wrapping_add_signed(i16::from_le_bytes(input.array()).into());
        let claimed = if how & 16 != 0 {
            input.u32()
        } else {
            input.byte().into()
        };
        for header in Header::ALL {
            if !opcode::rule(opcode).is_some_and(|rule| rule.has(header)) {
                continue;
            }
            match header {
                Header::Deth => headers.push(&Deth {
                    qkey: if how & 32 != 0 { 5 } else { QKEY }.into(),
                    src_qp: U24::new(PEER),
                    ..Deth::default()
                }),
                Header::Reth => headers.push(&Reth {
                    addr: addr.into(),
                    rkey: key.into(),
                    length: claimed.into(),
                }),
                Header::Atomic => headers.push(&AtomicEth {
                    addr: (addr & !7).into(),
                    rkey: key.into(),
                    swap_or_add: 1.into(),
                    compare: 2.into(),
                }),
                Header::Aeth => headers.push(&Aeth {
                    syndrome: input.byte(),
                    msn: U24::new(input.byte().into()),
                }),
                Header::AtomicAck => headers.push(&AtomicAckEth { original: 3.into() }),
                _ => headers.push(&input.array::<4>()),
            }
        }
        let mut transport = headers.as_bytes().to_vec();
        transport.resize(transport.len() + length + usize::from(pad), 0xa5);
        let to = if whom >> 4 == 0 { GROUP } else { GIDS[0] };
        self.receive(&to, transport, true);
    }

    /// What the engine has sent comes back, with a few bytes changed.
    fn reflect(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte());
        let Some(packet) = self.seen.values().nth(which % self.seen.len().max(1)) else {
            return;
        };
        let mut packet = packet.clone();
        packet.ip[8..24].copy_from_slice(&HOSTILE);
        packet.ip[24..40].copy_from_slice(&GIDS[0]);
        let target = &self.targets[which / 16 % self.targets.len()];
        packet.transport[5..8].copy_from_slice(&target.qp.id.number.to_be_bytes()[1..]);
        for _ in 0..input.byte() % 4 {
            let place = usize::from(input.byte()) % packet.transport.len();
            packet.transport[place] ^= input.byte();
        }
        packet.seal();
        self.receive_packet(&packet);
    }

    fn post_send(&mut self, target: usize, input: &mut Input<'_>) {
        let kind = input.byte();
        let length = u32::from(input.u16()) % 2000;
        let (open, ah) = (self.open.clone(), self.ah);
        let target = &mut self.targets[target];
        if target.posted[0] - target.completed[0] == DEPTH {
            return;
        }
        let number = target.posted[0].into();
        let sges = [open.sge(2048, length)];
        let remote = (0x1000, 0x55);
        let word = [open.sge(0, 8)];
        let wr = match (target.qp_type, kind % 5) {
            (QpType::Ud, _) => Wr::datagram(number, &[open.sge(0, length % 257)], (ah, 7), QKEY),
            (QpType::Rc, 1) => Wr::read(number, &sges, remote),
            (QpType::Rc, 2) => Wr::fetch_add(number, word[0], remote, 5),
            (_, 3) => Wr::write(number, &sges, remote),
            _ => Wr::send(number, &sges),
        };
        target.posted[0] += 1;
        target.qp.post_send(&wr);
    }

    fn post_receive(&mut self, target: usize, length: u32) {
        let open = self.open.clone();
        let target = &mut self.targets[target];
        if target.posted[1] - target.completed[1] < DEPTH {
            let number = target.posted[1].into();
            target.posted[1] += 1;
            target
                .qp
                .post_recv(number, &[open.sge(4096, length % 4096)]);
        }
    }

    /// The one who behaves moves bytes, whatever else is going on.
    fn transfer(&mut self, length: u32) {
        let id = self.transfers;
        let length = 1 + length % 1024;
        self.transfers += 1;
        let [from, to] = &self.memory;
        from.fill(id as u8);
        let sent = from.bytes(0, length as usize);
        self.b.qp.post_recv(id, &[to.sge(0, length)]);
        self.a.qp.post_send(&Wr::send(id, &[from.sge(0, length)]));
        self.advance(self.link.now + MS);
        self.a.cq.expect(id, Status::Success);
        self.b.cq.expect(id, Status::Success);
        assert_eq!(self.memory[1].bytes(0, length as usize), sent);
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let target = usize::from(what >> 4) % self.targets.len();
        match what & 15 {
            0..=4 => self.packet(input),
            5 => self.reflect(input),
            6 => {
                // Bytes of the input, as they are.
                let mut bytes = input.array::<64>().to_vec();
                bytes.truncate(usize::from(what >> 4) * 4 + 4);
                self.receive(&GIDS[0], bytes, input.byte() & 1 != 0);
            }
            7 => {
                // A sound header before bytes of the input, sealed or not.
                let number = self.targets[target].qp.id.number;
                let mut bth = Bth {
                    opcode: input.byte(),
                    dest_qp: U24::new(number),
                    ..Bth::default()
                };
                bth.pkey.set(0xffff);
                let mut bytes = bth.as_bytes().to_vec();
                bytes.extend(input.array::<32>());
                self.receive(&GIDS[0], bytes, what & 0x80 == 0);
            }
            8 => self.post_send(target, input),
            9 => {
                let length = input.u16();
                self.post_receive(target, length.into());
            }
            10 => self.advance(self.link.now + u64::from(input.u16()) * US),
            11 => self.reset(target),
            12 => self.transfer(input.u16().into()),
            13 => self.world().host.busy = u32::from(input.byte()) % 8,
            _ => self.run(),
        }
        self.collect();
    }

    fn end(mut self) {
        self.transfer(1000);
        // Nobody answers any more, so everything ends by itself.
        self.advance(self.link.now + 100_000 * MS);
        self.collect();
        self.transfer(700);
        let (arena, before) = (self.arena.borrow(), pattern());
        assert!(arena[..OPEN.start] == before[..OPEN.start]);
        assert!(arena[OPEN.end..] == before[OPEN.end..]);
        for (world, end) in self.link.worlds.iter().zip([&self.a, &self.b]) {
            world.state(&end.qp, State::Rts);
            end.cq.expect_none();
        }
        // Without retries left, the send queue of the acknowledged connection has ended.
        let info = self.link.worlds[0].query(&self.targets[0].qp);
        let outstanding = self.targets[0].posted[0] - self.targets[0].completed[0];
        assert!(outstanding == 0 || info.state == State::Rts, "{info:?}");
    }
}

/// Does what the bytes say.
pub fn run(data: &[u8]) {
    let mut scene = Scene::new();
    each(data, LIMIT, |what, input| scene.step(what, input));
    scene.end();
}

/// Inputs to begin with: a packet of each opcode to each kind of queue pair, with requests of the
/// program's own under way.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for opcode in (0..=255u8).filter(|&opcode| opcode::rule(opcode).is_some()) {
        let target = match opcode >> 5 {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        let send = |kind, length| [8 | target << 4, kind, length, 1];
        let packet = |delta| {
            [
                0,
                opcode,
                0x30 | target,
                0,
                delta,
                0x80,
                40,
                0,
                8,
                0,
                40,
                0,
                0,
            ]
        };
        let mut seed = Vec::new();
        seed.extend([9 | target << 4, 0, 2, 9 | target << 4, 0, 1]);
        seed.extend(send(opcode % 5, 100));
        seed.extend(send(opcode % 3, 0));
        seed.extend([14]);
        seed.extend(packet(0));
        seed.extend([14]);
        seed.extend(packet(1));
        seed.extend([14]);
        seed.extend(packet(0));
        seed.extend([14, 12, 0, 2, 10, 0, 4]);
        seed.extend([5, target * 16, 0, 5, target * 16 + 1, 1, 9, 3, 14]);
        seeds.push(seed);
    }
    for what in 0..=255 {
        seeds.push(vec![
            what, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 14, 12, 0, 1,
        ]);
    }
    seeds
}
