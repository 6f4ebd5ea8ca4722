// SPDX-License-Identifier: GPL-2.0

//! The data path without QEMU: a thread that posts and polls as a program does, and the engine's
//! thread.
//!
//! Prints the latency of small writes, their rate, and the bandwidth of large ones beside that of a
//! copy. Each figure is the median of several rounds, with the least and the greatest.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
#![allow(unreachable_pub, dead_code)]

#[path = "../tests/client.rs"]
mod client;
#[path = "../tests/driver/mod.rs"]
mod driver;

use std::time::Instant;

use driver::queues::*;
use driver::*;
use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;
use ferrule_nic::mapping::Mapping;

const ROUNDS: usize = 9;
const LARGE: u32 = 1 << 20;
/// Requests that are outstanding, of small writes and of large ones.
const QUEUE: u64 = 128;
/// See [`QUEUE`].
const LARGE_QUEUE: u64 = 8;

/// Two queue pairs of a guest, and a region with space for two large messages.
struct Bench {
    guest: Guest,
    cq: Cq,
    a: Qp,
    b: Qp,
    area: Area,
    key: u32,
}

fn main() {
    // cargo test runs it as well, to see that it works.
    let rounds = if std::env::args().any(|word| word == "--bench") {
        ROUNDS
    } else {
        1
    };
    let (_worker, [guest]) = guests();
    let mut bench = Bench::new(guest);
    report(rounds, "WRITE 8 B, one way", "us", || bench.latency(20_000));
    report(rounds, "WRITE 8 B, 128 outstanding", "thousand/s", || {
        bench.writes(200_000, 8, QUEUE) / 1e3
    });
    report(rounds, "WRITE 1 MiB", "MiB/s", || {
        bench.writes(500, LARGE, LARGE_QUEUE)
    });
    report(rounds, "copy of 1 MiB", "MiB/s", || bench.copies(500));
}

fn report(rounds: usize, what: &str, unit: &str, mut f: impl FnMut() -> f64) {
    let mut figures: Vec<f64> = (0..rounds).map(|_| f()).collect();
    figures.sort_by(f64::total_cmp);
    let (least, most) = (figures[0], figures[rounds - 1]);
    let median = figures[rounds / 2];
    println!("{what}: {median:.2} {unit} ({least:.2} to {most:.2})");
}

impl Bench {
    fn new(mut guest: Guest) -> Self {
        guest.up();
        // As two programs have them.
        let (mine, peers) = (guest.context(), guest.context());
        let pd = guest.pd();
        let cq = guest.cq(512, NONE);
        let area = guest.memory.alloc(2 * u64::from(LARGE));
        let key = guest.register(pd, &area, ALL_RIGHTS);
        let a = guest.qp(qp_type::RC, &mine, pd, &cq);
        let b = guest.qp(qp_type::RC, &peers, pd, &cq);
        let gid = guest.gid;
        guest.connect(&a, b.number, gid).unwrap();
        guest.connect(&b, a.number, gid).unwrap();
        Self {
            guest,
            cq,
            a,
            b,
            area,
            key,
        }
    }

    /// Microseconds until a write is seen: each is answered by one of the other queue pair, at
    /// once, with inline data, as `ib_write_lat` does. The completion is polled behind the answer.
    fn latency(&mut self, count: u64) -> f64 {
        let Self {
            guest,
            cq,
            a,
            b,
            area,
            key,
        } = self;
        let mut outstanding = false;
        let start = Instant::now();
        for number in 1..=count {
            for (qp, to) in [(&mut *a, PAGE), (&mut *b, 2 * PAGE)] {
                let write = Wqe::new(number, wr_opcode::RDMA_WRITE).inline(number);
                guest.send(qp, &write.remote(to, *key));
                if outstanding {
                    assert_eq!(cq.wait().status, 0);
                }
                outstanding = true;
                while area.load64(to) != number {
                    std::hint::spin_loop();
                }
            }
        }
        assert_eq!(cq.wait().status, 0);
        let micros = start.elapsed().as_secs_f64() * 1e6;
        // The next round begins with other numbers than are there.
        area.store64(PAGE, 0);
        area.store64(2 * PAGE, 0);
        micros / (2 * count) as f64
    }

    /// Writes a second, with so many outstanding.
    fn writes(&mut self, count: u64, length: u32, queue: u64) -> f64 {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            let before = posted;
            while posted < count && posted - done < queue {
                let write = Wqe::new(posted, wr_opcode::RDMA_WRITE).local(0, length, self.key);
                self.a.post(&write.remote(LARGE.into(), self.key));
                posted += 1;
            }
            if posted != before {
                self.guest.ring(&self.a);
            }
            let before = done;
            while let Some(cqe) = self.cq.poll() {
                assert_eq!(cqe.status, 0);
                done += 1;
            }
            if done == before {
                std::hint::spin_loop();
            }
        }
        count as f64 / start.elapsed().as_secs_f64()
    }

    /// MiB a second that this thread copies in the same memory.
    fn copies(&self, count: u64) -> f64 {
        let bytes = &self.guest.memory.bytes;
        let start = Instant::now();
        for _ in 0..count {
            let length = LARGE as usize;
            assert!(Mapping::copy(bytes, 8 << 20, bytes, 40 << 20, length));
        }
        count as f64 / start.elapsed().as_secs_f64()
    }
}
