// SPDX-License-Identifier: GPL-2.0

//! Packets of any bytes, from a peer that knows its own connections and keys and does what it
//! likes, beside a connection that behaves.

mod steps;

pub use steps::seeds;

use std::collections::BTreeMap;

use ferrule_engine::abi::wc_opcode;
use ferrule_engine::{Gid, Group, Mtu, Path, PathKind, QpType, State, Vport};

use super::each;
use crate::sim::memory::{shared, Shared};
use crate::sim::network::{deliver, Faults, Link, GIDS};
use crate::sim::{
    add, init, of_xrc_side, path, End, QpSpec, SentPacket, TestCq, TestMr, TestQp, TestSrq, World,
    ALL, MS, PLENTY,
};

const DEPTH: u32 = 8;

/// Things to do; the rest of the input is left.
const LIMIT: usize = 100;

/// More runs than this in a row with work left would be work that feeds on itself.
const RUNS: usize = 10_000;
const QKEY: u32 = 0x1234;
const MULTICAST: u32 = 0xff_ffff;

const XRCD: u32 = 4;

/// The queue pairs that the peer may send to.
const TYPES: [QpType; 6] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::Ud,
    QpType::XrcTgt,
    QpType::XrcIni,
];

/// The number of the peer's queue pair, for all of its connections.
const PEER: u32 = 0x99;

/// The memory of which a part is registered for the peer; the rest must never change.
const ARENA: usize = 16 << 10;
const OPEN: std::ops::Range<usize> = 4096..12288;

const HOSTILE: Gid = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
const GROUP: Gid = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// A queue pair that the peer may send to, and the requests that were posted to it since its last
/// reset.
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
    /// Of the XRC domain of the targets.
    srq: TestSrq,
    ah: u32,
    a: End,
    b: End,
    memory: [TestMr; 2],
    transfers: u64,
    /// The engine's packets to the peer, the last of each opcode.
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
        let shared_cq = world.cq(64);
        let srq = world.xrc_srq(2, XRCD, &shared_cq);
        let targets = TYPES
            .into_iter()
            .map(|qp_type| {
                let is_target = qp_type == QpType::XrcTgt;
                let cq = if is_target {
                    shared_cq.clone()
                } else {
                    world.cq(64)
                };
                let domain = if is_target { XRCD } else { 2 };
                let qp = world.qp_with(&spec(domain, qp_type), &cq, &cq);
                Target {
                    qp,
                    cq,
                    qp_type,
                    posted: [0; 2],
                    completed: [0; 2],
                }
            })
            .collect();
        world.engine.set_port_mtu(Vport::default(), Mtu::Mtu256);
        let ah = world.ah(2, way());
        let mut scene = Self {
            link,
            targets,
            arena,
            open,
            srq,
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
        for mut modify in [init(), rtr, rts] {
            if matches!(qp_type, QpType::XrcIni | QpType::XrcTgt) {
                of_xrc_side(&mut modify, qp_type == QpType::XrcIni);
            }
            self.world().modify(&qp, &modify).unwrap();
        }
    }

    fn reset(&mut self, target: usize) {
        let qp = self.targets[target].qp.clone();
        self.collect();
        self.world().to(&qp, State::Reset);
        qp.rewind();
        // Requests of the shared queue stay.
        if self.targets[target].qp_type != QpType::XrcTgt {
            self.targets[target].posted = [0; 2];
            self.targets[target].completed = [0; 2];
        }
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

    /// Packets to the neighbour's peer go there, packets to the other are kept.
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
            vlan: 0,
        };
        if is_sealed && packet.transport.len() > 4 {
            packet.seal();
        }
        self.receive_packet(&packet);
    }

    fn receive_packet(&mut self, packet: &SentPacket) {
        let before = self.world().engine.counters();
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
                // Of the shared queue, the request at hand ends without a completion when its
                // target is reset.
                if target.qp_type == QpType::XrcTgt {
                    assert!(wc.wr_id >= target.completed[receive].into(), "{wc:?}");
                    target.completed[receive] = wc.wr_id as u32;
                }
                assert_eq!(wc.wr_id, target.completed[receive].into(), "{wc:?}");
                target.completed[receive] += 1;
                assert!(target.completed[receive] <= target.posted[receive]);
            }
        }
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
