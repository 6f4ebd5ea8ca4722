// SPDX-License-Identifier: GPL-2.0

//! Two worlds, virtual time, and a network between them that loses, duplicates, reorders, delays
//! and corrupts packets, all by a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ferrule_engine::{packet, Config, Modify, Mtu, PathKind, QpType};

use super::{init, path, rtr, rts, End, QpSpec, SentPacket, TestCq, TestQp, World, PLENTY, US};

/// Numbers by a seed (xorshift).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of a thousand is so many.
    pub fn happens(&mut self, of_1000: u64) -> bool {
        self.below(1000) < of_1000
    }
}

/// How long a packet is under way.
pub const DELAY: u64 = 5 * US;

/// How bad the network is: of 1000 packets each.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    /// So many packets are under way at most; more are lost. 0: no limit.
    pub capacity: usize,
    /// How long a packet with data takes to leave, in nanoseconds; those behind it wait. 0: no
    /// time.
    pub packet_time: u64,
    /// How much longer than usual each packet is on its way, in nanoseconds.
    pub distance: u64,
}

/// The network: packets under way, by the time at which they arrive.
pub struct Network {
    pub random: Random,
    pub faults: Faults,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    packets: BTreeMap<u64, SentPacket>,
    count: u64,
    /// When the last packet to either side has left.
    left: [u64; 2],
    /// How many were sent to either side.
    pub sent: [u64; 2],
    /// These are lost: to which side, and which one, counted from 0.
    pub doomed: BTreeSet<(usize, u64)>,
    /// Of all that happened: two runs with one seed have the same.
    pub trace: u64,
}

impl Network {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            random: Random::new(seed),
            faults,
            queue: BinaryHeap::new(),
            packets: BTreeMap::new(),
            count: 0,
            left: [0; 2],
            sent: [0; 2],
            doomed: BTreeSet::new(),
            trace: 0xcbf2_9ce4_8422_2325,
        }
    }

    pub fn note(&mut self, word: u64) {
        self.trace = (self.trace ^ word).wrapping_mul(0x100_0000_01b3);
    }

    pub fn post(&mut self, at: u64, to: usize, packet: SentPacket) {
        self.count += 1;
        self.packets.insert(self.count, packet);
        self.queue.push(Reverse((at, self.count, to)));
    }

    pub fn send(&mut self, now: u64, to: usize, mut packet: SentPacket) {
        let crc = u32::from_le_bytes(packet.icrc);
        self.note(now ^ u64::from(crc) << 20 ^ to as u64);
        let number = self.sent[to];
        self.sent[to] += 1;
        if self.doomed.contains(&(to, number)) {
            return;
        }
        let is_full = self.faults.capacity != 0 && self.packets.len() >= self.faults.capacity;
        if is_full || self.random.happens(self.faults.lost) {
            return;
        }
        let takes = if packet.transport.len() > packet::MAX_HEADERS {
            self.faults.packet_time
        } else {
            0
        };
        self.left[to] = self.left[to].max(now) + takes;
        let mut at = self.left[to] + DELAY + self.faults.distance;
        if self.random.happens(self.faults.reordered) {
            at += self.random.below(40 * US);
        }
        if self.random.happens(self.faults.duplicated) {
            let later = at + self.random.below(100 * US);
            self.post(later, to, packet.clone());
        }
        if self.random.happens(self.faults.corrupted) {
            let place = self.random.below(packet.transport.len() as u64) as usize;
            // The byte with the congestion marks is not covered.
            if place != 4 {
                packet.transport[place] ^= 1 << self.random.below(8);
            }
        }
        self.post(at, to, packet);
    }

    pub fn next(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn arrived(&mut self, now: u64) -> Option<(usize, SentPacket)> {
        let Reverse((at, number, to)) = *self.queue.peek()?;
        if at > now {
            return None;
        }
        self.queue.pop();
        Some((to, self.packets.remove(&number)?))
    }
}

/// Hands a packet to an engine.
pub fn deliver(world: &mut World, packet: &SentPacket) {
    world.engine.receive(&mut world.host, &packet.rx_packet());
}

/// Two worlds and the network between them.
pub struct Link {
    pub now: u64,
    pub worlds: [World; 2],
    pub network: Network,
}

pub const GIDS: [[u8; 16]; 2] = [
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
];

impl Link {
    pub fn new(seed: u64, faults: Faults, retries_for_ever: bool) -> Self {
        let world = || {
            World::with(Config {
                random: 0x5eed,
                retries_for_ever,
                ..Config::default()
            })
        };
        Self {
            now: 0,
            worlds: [world(), world()],
            network: Network::new(seed, faults),
        }
    }

    /// Runs both engines until neither has anything to do now.
    pub fn run(&mut self) {
        for (i, world) in self.worlds.iter_mut().enumerate() {
            world.host.now = self.now;
            while world.engine.run(&mut world.host, PLENTY, None).more {}
            for packet in world.host.sent.drain(..) {
                self.network.send(self.now, 1 - i, packet);
            }
            world.host.traces.clear();
        }
    }

    /// Goes on to what happens next; returns whether there was anything.
    pub fn step(&mut self) -> bool {
        self.run();
        let deadlines = [
            self.network.next(),
            self.worlds[0].engine.deadline(),
            self.worlds[1].engine.deadline(),
        ];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        for world in &mut self.worlds {
            world.host.now = self.now;
        }
        while let Some((to, packet)) = self.network.arrived(self.now) {
            deliver(&mut self.worlds[to], &packet);
        }
        true
    }

    /// Lets all happen that is to happen.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// The packets that side `from` has to send now. They are handed to nobody.
    pub fn sent(&mut self, from: usize) -> Vec<SentPacket> {
        let world = &mut self.worlds[from];
        world.run();
        std::mem::take(&mut world.host.sent)
    }

    /// Hands packets to side `to`, which has turns when all have come.
    pub fn give(&mut self, to: usize, packets: &[SentPacket]) {
        for packet in packets {
            deliver(&mut self.worlds[to], packet);
        }
    }

    /// Hands packets to side `to`, which has a turn after each; returns what it sends.
    pub fn answers(&mut self, to: usize, packets: &[SentPacket]) -> Vec<SentPacket> {
        let mut answers = Vec::new();
        for packet in packets {
            self.give(to, std::slice::from_ref(packet));
            answers.extend(self.sent(to));
        }
        answers
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: u64) {
        self.now += time;
        for world in &mut self.worlds {
            world.host.now = self.now;
        }
    }

    /// Connects two unreliable connections.
    pub fn connect_uc(&mut self, qps: [&TestQp; 2], mtu: Mtu) {
        self.connect(qps, mtu, |modify| {
            modify.max_dest_rd_atomic = None;
            modify.min_rnr_timer = None;
            modify.timeout = None;
            modify.retry_cnt = None;
            modify.rnr_retry = None;
            modify.max_rd_atomic = None;
        });
    }

    /// Two ends of an unreliable connection, one of each world, with packets of 1024 bytes.
    pub fn pair_uc(&mut self) -> [End; 2] {
        let spec = QpSpec {
            qp_type: QpType::Uc,
            ..QpSpec::default()
        };
        let ends = [0, 1].map(|i| {
            let world = &mut self.worlds[i];
            let cq = world.cq(64);
            let qp = world.qp_with(&spec, &cq, &cq);
            End { qp, cq }
        });
        self.connect_uc([&ends[0].qp, &ends[1].qp], Mtu::Mtu1024);
        ends
    }

    /// Two ends, one of each world, connected with packets of 1024 bytes. `make` makes their queue
    /// pairs.
    pub fn pair(
        &mut self,
        make: impl Fn(&mut World, &TestCq) -> TestQp,
        change: impl Fn(&mut Modify),
    ) -> [End; 2] {
        let ends = [0, 1].map(|i| {
            let world = &mut self.worlds[i];
            let cq = world.cq(64);
            let qp = make(world, &cq);
            End { qp, cq }
        });
        self.connect([&ends[0].qp, &ends[1].qp], Mtu::Mtu1024, change);
        ends
    }

    /// Connects two queue pairs.
    pub fn connect(&mut self, qps: [&TestQp; 2], mtu: Mtu, change: impl Fn(&mut Modify)) {
        for (i, world) in self.worlds.iter_mut().enumerate() {
            let mut way = path(PathKind::Remote);
            way.sgid = GIDS[i];
            way.dgid = GIDS[1 - i];
            let mut modifies = [init(), rtr(qps[1 - i].id.number), rts()];
            modifies[1].path = Some(way);
            modifies[1].path_mtu = Some(mtu);
            modifies[1].max_dest_rd_atomic = Some(4);
            modifies[2].max_rd_atomic = Some(4);
            for modify in &mut modifies {
                change(modify);
                world.modify(qps[i], modify).unwrap();
            }
        }
    }
}

/// The faults of a network that is as bad as can be borne.
pub const BAD: Faults = Faults {
    lost: 100,
    duplicated: 50,
    reordered: 50,
    corrupted: 5,
    capacity: 0,
    packet_time: 0,
    distance: 0,
};
