// SPDX-License-Identifier: GPL-2.0

//! Nothing of what a queue pair has been through remains in it after RESET (IBA volume 1, 10.3.1).
//!
//! A pair is broken off in the middle of random traffic on a bad network, and reset. From then on
//! it has to send the same packets at the same times as a pair that has just been made.

use crate::sim::network::{Faults, Link, Network, Random, BAD};
use crate::sim::*;
use ferrule_engine::{Mtu, State, Status};

const SIZE: u64 = 64 << 10;

struct Scene {
    link: Link,
    ends: [End; 2],
    memory: [TestMr; 2],
    /// Requests at each end that have not ended: sends and receives.
    posted: [[u32; 2]; 2],
}

/// How many there may be.
const DEPTH: u32 = 16;
const RECEIVE: u64 = u64::MAX;

impl Scene {
    /// `subnet` is a byte of the addresses. An engine's knowledge of the path to an address belongs
    /// to no queue pair.
    fn new(seed: u64, faults: Faults, subnet: u8) -> Self {
        let mut link = Link::new(seed, faults, true);
        let ends = link.pair(
            |world, cq| world.qp(cq, cq),
            |modify| {
                if let Some(path) = &mut modify.path {
                    path.sgid[7] = subnet;
                    path.dgid[7] = subnet;
                }
            },
        );
        let memory = [0, 1].map(|i| link.worlds[i].mr(SIZE as usize));
        Self {
            link,
            ends,
            memory,
            posted: Default::default(),
        }
    }

    /// A request of some kind, with such a length and places as its opcode bears.
    fn request(&self, from: usize, random: &mut Random) -> Wr {
        let number = random.next() >> 1;
        let length = 1 << random.below(15);
        let offset = random.below(SIZE - length) & !7;
        let sge = self.memory[from].sge(offset, length as u32);
        let remote = self.memory[1 - from].remote(random.below(SIZE - length) & !7);
        match random.below(9) {
            0..2 => Wr::write(number, &[sge], remote),
            2..4 => Wr::read(number, &[sge], remote),
            4 => Wr::fetch_add(number, self.memory[from].sge(offset, 8), remote, 1),
            5 => Wr::atomic_write(number, remote, number),
            6 => Wr::flush(number, remote, length as u32),
            _ => Wr::send(number, &[sge]),
        }
    }

    /// Posts at both ends and lets things happen, so many times. Receive requests are too few for
    /// all.
    fn work(&mut self, random: &mut Random, times: u64) {
        for _ in 0..times {
            let from = random.below(2) as usize;
            if self.posted[from][0] < DEPTH {
                let request = self.request(from, random);
                self.ends[from].qp.post_send(&request);
                self.posted[from][0] += 1;
            }
            let to = 1 - from;
            if random.happens(600) && self.posted[to][1] < DEPTH {
                let sge = self.memory[to].sge(0, SIZE as u32);
                self.ends[to].qp.post_recv(RECEIVE, &[sge]);
                self.posted[to][1] += 1;
            }
            for _ in 0..random.below(6) {
                self.link.step();
            }
            for (end, posted) in self.ends.iter().zip(&mut self.posted) {
                for wc in end.cq.drain() {
                    assert_eq!(wc.status, Status::Success as u8);
                    posted[usize::from(wc.wr_id == RECEIVE)] -= 1;
                }
            }
        }
    }

    /// Breaks off in the middle of something: a refusal, a host without space, or nothing special.
    fn break_off(&mut self, random: &mut Random) {
        let from = random.below(2) as usize;
        if random.happens(500) && self.posted[from][0] < DEPTH {
            let mut request = self.request(from, random);
            request.remote.1 ^= 1;
            self.ends[from].qp.post_send(&request);
        }
        if random.happens(500) {
            self.link.worlds[from].host.busy = random.below(8) as u32;
        }
        for _ in 0..random.below(20) {
            self.link.step();
        }
    }

    /// Takes both ends back to RESET. Packets on their way are lost.
    fn reset(&mut self, seed: u64) {
        for (world, end) in self.link.worlds.iter_mut().zip(&self.ends) {
            world.host.busy = 0;
            world.to(&end.qp, State::Reset);
            end.qp.rewind();
            end.cq.drain();
        }
        self.posted = Default::default();
        self.link.network = Network::new(seed, BAD);
    }

    fn connect(&mut self) {
        let [one, other] = &self.ends;
        self.link
            .connect([&one.qp, &other.qp], Mtu::Mtu1024, |_| ());
    }
}

#[test]
fn a_queue_pair_that_was_reset_is_as_new() {
    for seed in 1..1500 {
        let mut random = Random::new(seed);
        let mut used = Scene::new(seed, BAD, 1);
        let times = random.below(60);
        used.work(&mut random, times);
        used.break_off(&mut random);
        used.reset(seed);
        used.connect();

        let mut fresh = Scene::new(seed, BAD, 0);
        fresh.link.now = used.link.now;

        for scene in [&mut used, &mut fresh] {
            scene.memory.iter().for_each(|memory| memory.fill(0));
            scene.work(&mut Random::new(!seed), 60);
        }
        assert_eq!(
            used.link.network.trace, fresh.link.network.trace,
            "seed {seed}"
        );
        assert_eq!(used.link.now, fresh.link.now, "seed {seed}");
    }
}
