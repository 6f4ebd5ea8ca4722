// SPDX-License-Identifier: GPL-2.0

//! A narrow place that connections share: each way a queue that is served at one rate and that
//! drops, or marks, packets that do not fit; and beside the connections a TCP flow that follows
//! Reno.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ferrule_engine::{Config, Modify, Mtu, PathKind, Status};

use super::network::{deliver, Random, GIDS};
use super::*;

/// A packet with 4 KiB of data takes so long to leave the queue.
pub const PACKET_TIME: u64 = 10 * US;
/// From the queue to the other side.
const DISTANCE: u64 = 95 * US;
/// The time that is not measured: connections begin, and so does the TCP flow.
const BEGINNING: u64 = 100 * MS;
/// One message.
const SIZE: u32 = 64 * 1024;
/// Messages of a connection that are under way.
const DEPTH: u64 = 8;

/// The operation of the connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verb {
    Write,
    Read,
}

/// The connections and the queue that they share.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub verb: Verb,
    pub connections: usize,
    /// Packets of 4 KiB that the queue has space for.
    pub buffer: u64,
    /// A packet that finds so many others in the queue is marked, if it is capable of that.
    pub mark: Option<u64>,
    /// So many of 1000 packets are lost beside, whatever the queue does.
    pub lost: u64,
    /// A TCP flow goes the same way.
    pub with_reno: bool,
    /// How long it is measured.
    pub time: u64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            verb: Verb::Write,
            connections: 1,
            buffer: 64,
            mark: None,
            lost: 0,
            with_reno: false,
            time: 400 * MS,
        }
    }
}

/// The result after the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The share of the rate that data of completed messages had.
    pub goodput: f64,
    /// The same of the connection that had least, times the number of connections.
    pub least: f64,
    /// The share of the rate that the TCP flow had.
    pub reno: f64,
    /// The share of what was sent that the queue dropped.
    pub dropped: f64,
    /// The most packets that were in the queue, and how many on average when a packet came.
    pub longest: u64,
    pub mean: f64,
    /// Packets that were marked.
    pub marked: u64,
    /// A connection has ended with an error.
    pub is_broken: bool,
}

enum Event {
    Packet(usize, SentPacket),
    Segment(u64),
    Acknowledgement(u64),
    Tick,
}

/// A flow that halves its window when it loses and else adds a packet each round trip (RFC 5681),
/// and that learns of each loss from the third packet behind it, as by SACK (RFC 6675).
struct Reno {
    window: f64,
    threshold: f64,
    next: u64,
    /// Sent and neither acknowledged nor known to be lost.
    flying: BTreeSet<u64>,
    /// Losses of what was sent before this belong to one that has been answered.
    recover: u64,
    timeout: u64,
    arrived: u64,
}

impl Reno {
    const TIMEOUT: u64 = 200 * MS;

    fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            next: 0,
            flying: BTreeSet::new(),
            recover: 0,
            timeout: 0,
            arrived: 0,
        }
    }

    fn acknowledged(&mut self, number: u64, now: u64) {
        self.timeout = now + Self::TIMEOUT;
        if self.flying.remove(&number) {
            self.window += if self.window < self.threshold {
                1.0
            } else {
                1.0 / self.window
            };
        }
        while let Some(&lost) = self.flying.first().filter(|&&first| first + 3 <= number) {
            self.flying.remove(&lost);
            if lost >= self.recover {
                self.recover = self.next;
                self.threshold = (self.window / 2.0).max(2.0);
                self.window = self.threshold;
            }
        }
    }

    fn timer(&mut self, now: u64) {
        if !self.flying.is_empty() && now >= self.timeout {
            self.timeout = now + Self::TIMEOUT;
            self.flying.clear();
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = 1.0;
            self.recover = self.next;
        }
    }

    fn send(&mut self, now: u64) -> Option<u64> {
        if self.flying.len() as f64 + 1.0 > self.window {
            return None;
        }
        if self.flying.is_empty() {
            self.timeout = now + Self::TIMEOUT;
        }
        self.flying.insert(self.next);
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Both ends, and the queue between them.
struct Bottleneck {
    shared: Shared,
    now: u64,
    worlds: [World; 2],
    events: BinaryHeap<Reverse<(u64, u64)>>,
    contents: BTreeMap<u64, Event>,
    count: u64,
    /// When the queue each way is empty if nothing more comes.
    empty_at: [u64; 2],
    random: Random,
    reno: Reno,
    sent: u64,
    dropped: u64,
    queued: u64,
    outcome: Outcome,
}

impl Bottleneck {
    fn new(shared: Shared) -> Self {
        let world = || {
            World::with(Config {
                random: 0x5eed,
                ..Config::default()
            })
        };
        Self {
            shared,
            now: 0,
            worlds: [world(), world()],
            events: BinaryHeap::new(),
            contents: BTreeMap::new(),
            count: 0,
            empty_at: [0; 2],
            random: Random::new(7),
            reno: Reno::new(),
            sent: 0,
            dropped: 0,
            queued: 0,
            outcome: Outcome::default(),
        }
    }

    fn post(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count)));
        self.contents.insert(self.count, event);
    }

    /// A packet that takes so long to leave comes to the queue to side `to`. Returns when it
    /// arrives there, unless there is no space for it, and whether it is marked.
    fn enqueue(&mut self, to: usize, takes: u64, is_capable: bool) -> Option<(u64, bool)> {
        let begins = self.empty_at[to].max(self.now);
        let packets = (begins - self.now).div_ceil(PACKET_TIME);
        let is_full = begins - self.now + takes > self.shared.buffer * PACKET_TIME;
        let is_dropped = is_full || self.random.happens(self.shared.lost);
        let is_marked = is_capable && self.shared.mark.is_some_and(|mark| packets >= mark);
        if self.now >= BEGINNING && takes == PACKET_TIME {
            self.sent += 1;
            self.dropped += u64::from(is_dropped);
            self.queued += packets;
            self.outcome.longest = self.outcome.longest.max(packets);
            self.outcome.marked += u64::from(is_marked && !is_dropped);
        }
        if is_dropped {
            return None;
        }
        self.empty_at[to] = begins + takes;
        Some((begins + takes + DISTANCE, is_marked))
    }

    fn send(&mut self, to: usize, mut packet: SentPacket) {
        let is_data = packet.transport.len() >= 4096;
        let takes = if is_data {
            PACKET_TIME
        } else {
            packet.transport.len() as u64 * PACKET_TIME / 4096
        };
        let is_capable = packet.ip[1] & 0x30 != 0;
        if let Some((at, is_marked)) = self.enqueue(to, takes, is_capable) {
            if is_marked {
                packet.ip[1] |= 0x30;
            }
            self.post(at, Event::Packet(to, packet));
        }
    }

    /// Has both engines and the TCP flow do what they can at this moment.
    fn run(&mut self) {
        for i in 0..2 {
            let world = &mut self.worlds[i];
            world.host.now = self.now;
            while world.engine.run(&mut world.host, PLENTY, None).more {}
            world.host.traces.clear();
            for packet in std::mem::take(&mut world.host.sent) {
                self.send(1 - i, packet);
            }
        }
        while let Some(number) = self
            .shared
            .with_reno
            .then(|| self.reno.send(self.now))
            .flatten()
        {
            if let Some((at, _)) = self.enqueue(1, PACKET_TIME, false) {
                self.post(at, Event::Segment(number));
            }
        }
    }

    /// Goes on to what happens next.
    fn step(&mut self) {
        self.run();
        let deadlines = [
            self.events.peek().map(|&Reverse((at, _))| at),
            self.worlds[0].engine.deadline(),
            self.worlds[1].engine.deadline(),
        ];
        let next = deadlines.into_iter().flatten().min();
        self.now = self.now.max(next.expect("nothing more happens"));
        for world in &mut self.worlds {
            world.host.now = self.now;
        }
        while let Some(&Reverse((at, number))) = self.events.peek() {
            if at > self.now {
                break;
            }
            self.events.pop();
            match self.contents.remove(&number).unwrap() {
                Event::Packet(to, packet) => deliver(&mut self.worlds[to], &packet),
                Event::Segment(number) => {
                    self.post(self.now + DISTANCE, Event::Acknowledgement(number));
                }
                Event::Acknowledgement(number) => {
                    self.reno.arrived += u64::from(self.now >= BEGINNING);
                    self.reno.acknowledged(number, self.now);
                }
                Event::Tick => {
                    self.reno.timer(self.now);
                    self.post(self.now + 10 * MS, Event::Tick);
                }
            }
        }
    }
}

/// Has connections, and the TCP flow if there is one, transfer what they can.
pub fn share(shared: Shared) -> Outcome {
    let mut way = Bottleneck::new(shared);
    let connections: Vec<_> = (0..shared.connections)
        .map(|_| {
            [0, 1].map(|i| {
                let world = &mut way.worlds[i];
                let cq = world.cq(64);
                let spec = QpSpec {
                    depth: 16,
                    ..QpSpec::default()
                };
                let qp = world.qp_with(&spec, &cq, &cq);
                End { qp, cq }
            })
        })
        .collect();
    for ends in &connections {
        for (i, world) in way.worlds.iter_mut().enumerate() {
            let mut path = path(PathKind::Remote);
            (path.sgid, path.dgid) = (GIDS[i], GIDS[1 - i]);
            // Capable of ECN, ECT(0), as the driver has packets of RC.
            path.traffic_class = 2;
            let rtr = Modify {
                path: Some(path),
                path_mtu: Some(Mtu::Mtu4096),
                max_dest_rd_atomic: Some(16),
                ..rtr(ends[1 - i].qp.id.number)
            };
            // 67 ms, and 7 retries, as perftest has it.
            let rts = Modify {
                max_rd_atomic: Some(16),
                ..rts()
            };
            for modify in [init(), rtr, rts] {
                world.modify(&ends[i].qp, &modify).unwrap();
            }
        }
    }
    let memory = [0, 1].map(|i| way.worlds[i].mr(SIZE as usize));
    let mut posted = vec![0; connections.len()];
    let mut ended = vec![0; connections.len()];
    let mut counted = vec![0; connections.len()];
    way.post(0, Event::Tick);
    while way.now < BEGINNING + shared.time && !way.outcome.is_broken {
        for (i, [requester, _]) in connections.iter().enumerate() {
            while let Some(wc) = requester.cq.poll() {
                way.outcome.is_broken |= wc.status != Status::Success as u8;
                ended[i] += 1;
                counted[i] += u64::from(way.now >= BEGINNING);
            }
            while posted[i] < ended[i] + DEPTH {
                let sge = [memory[0].sge(0, SIZE)];
                requester.qp.post_send(&match shared.verb {
                    Verb::Write => Wr::write(posted[i], &sge, memory[1].remote(0)),
                    Verb::Read => Wr::read(posted[i], &sge, memory[1].remote(0)),
                });
                posted[i] += 1;
            }
        }
        way.step();
    }
    let rate = |packets: u64| (packets * PACKET_TIME) as f64 / shared.time as f64;
    let packets = |messages: u64| messages * u64::from(SIZE) / 4096;
    let outcome = Outcome {
        goodput: rate(packets(counted.iter().sum())),
        least: rate(packets(counted.iter().copied().min().unwrap_or(0))) * counted.len() as f64,
        reno: rate(way.reno.arrived),
        dropped: way.dropped as f64 / way.sent as f64,
        mean: way.queued as f64 / way.sent as f64,
        ..way.outcome
    };
    println!("{shared:?}\n    {outcome:?}");
    outcome
}
