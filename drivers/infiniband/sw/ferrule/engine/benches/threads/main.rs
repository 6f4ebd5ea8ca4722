// SPDX-License-Identifier: GPL-2.0

//! Threads with queue pairs of their own, natively, each on an engine of its own or all on one: how
//! much they reach together.
//!
//! usage: cargo bench --bench threads [-- PART]
//!
//! PART is a part of the names of lines.
//!
//! Each thread posts RDMA WRITEs in lists, serves them by a kick, carries out their copy jobs and
//! polls, as a program does by the driver. Prints the rate of all of them together with one, two
//! and more threads, up to one for each processor and eight at most: the median of several rounds,
//! the least and the greatest, and the ratio to one thread.
//!
//! `cargo test` runs a short round, to see that it works.

#![allow(missing_docs)]
#![allow(clippy::float_arithmetic, reason = "the engine has none; rates do")]

#[path = "../../tests/local.rs"]
mod local;
mod memory;
mod shard;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ferrule_engine::abi::{wr_flags::SIGNALED, wr_opcode::RDMA_WRITE, SendWqe, Sge, DB_INDEX_MASK};
use ferrule_engine::Status;
use zerocopy::IntoBytes;

use memory::{Apart, DEPTH};
use shard::{Program, Shard};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(200);
const MOST_THREADS: usize = 8;

/// The length of a message, and how many have one kick.
const LINES: [(&str, u32, u32); 5] = [
    ("64 KiB in lists of 8", 64 << 10, 8),
    ("4 KiB in lists of 64", 4 << 10, 64),
    ("8 B in lists of 64", 8, 64),
    ("8 B in lists of 16", 8, 16),
    ("8 B one by one", 8, 1),
];

/// Writes the requests into all slots. Of each list the last one is signalled.
fn fill(program: &Program, length: u32, list: u32) {
    for index in 0..DEPTH {
        let slot = SendWqe {
            wr_id: u64::from(index).into(),
            opcode: RDMA_WRITE,
            flags: if (index + 1) % list == 0 { SIGNALED } else { 0 },
            num_sge: 1.into(),
            remote_addr: u64::from(length).into(),
            rkey: program.key.into(),
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: 0.into(),
            length: length.into(),
            lkey: program.key.into(),
        };
        program
            .queue
            .fill(index, &[slot.as_bytes(), sge.as_bytes()].concat());
    }
}

/// Posts lists, serves them and polls until told to stop, and returns the count of messages.
fn stream(shard: &Shard, program: &Program, list: u32, stop: &AtomicBool, posted: &mut u32) -> u64 {
    let mut messages = 0;
    while !stop.load(Relaxed) {
        *posted = posted.wrapping_add(list);
        program.queue.publish(*posted);
        program.doorbells.ring(program.qpn & DB_INDEX_MASK);
        shard.kick(program.context);
        let status = program.ring.poll(*posted / list - 1);
        assert_eq!(status, Some(Status::Success as u8));
        messages += u64::from(list);
    }
    messages
}

/// The messages a second of so many threads together. With one shard, all are in that one; else
/// each is in its own.
fn round(
    shards: &[Shard],
    programs: &mut [Apart<(Program, u32)>],
    list: u32,
    length: Duration,
) -> f64 {
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(programs.len() + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = programs
            .iter_mut()
            .zip(shards.iter().cycle())
            .map(|(Apart((program, posted)), shard)| {
                let (stop, barrier) = (&stop, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let begin = Instant::now();
                    let messages = stream(shard, program, list, stop, posted);
                    messages as f64 / begin.elapsed().as_secs_f64()
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(length);
        stop.store(true, Relaxed);
        let rates = threads.into_iter().map(|thread| thread.join());
        rates.map(|rate| rate.expect("a thread")).sum()
    })
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let is_bench = words.iter().any(|word| word == "--bench");
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    let (rounds, length) = if is_bench {
        (ROUNDS, ROUND)
    } else {
        (1, ROUND / 20)
    };
    let most = thread::available_parallelism().map_or(1, usize::from);
    let threads = most.min(MOST_THREADS);
    for (kind, shards) in [("an engine each", threads), ("one engine", 1)] {
        for (what, bytes, list) in LINES {
            let what = format!("{what}, {kind}");
            if wanted.is_none_or(|word| what.contains(word)) {
                line(&what, shards, threads, (bytes, list), (rounds, length));
            }
        }
    }
}

/// Measures a line, with so many shards and threads.
fn line(
    what: &str,
    shards: usize,
    threads: usize,
    (bytes, list): (u32, u32),
    (rounds, length): (usize, Duration),
) {
    let shards: Vec<_> = (0..shards).map(|_| Shard::new()).collect();
    let mut programs: Vec<_> = (0..threads)
        .zip(shards.iter().cycle())
        .map(|(_, shard)| Apart((shard.program(2 * bytes), 0)))
        .collect();
    for Apart((program, _)) in &programs {
        fill(program, bytes, list);
    }
    let mut figures = vec![Vec::new(); programs.len()];
    for _ in 0..rounds {
        for (index, figures) in figures.iter_mut().enumerate() {
            figures.push(round(&shards, &mut programs[..=index], list, length));
        }
    }
    let mut one = None;
    for (index, mut rates) in figures.into_iter().enumerate() {
        rates.sort_by(f64::total_cmp);
        let [least, median, most] = [0, rates.len() / 2, rates.len() - 1].map(|n| rates[n] / 1e3);
        let one = *one.get_or_insert(median);
        let count = index + 1;
        println!(
            "{what}, threads: {count}: {median:.0} thousand/s ({least:.0} to {most:.0}), {:.2} of one",
            median / one,
        );
    }
}
