// SPDX-License-Identifier: GPL-2.0

//! The program's footprint: what it takes of the machine for guests that do little. The bounds are
//! those of Documentation/performance.md.

use std::path::Path;
use std::time::{Duration, Instant};

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::show::parse;

use crate::data::{pair, program, Program};
use crate::driver::queues::*;
use crate::driver::*;
use crate::running::{run, Running};
use crate::wire::Sockets;

/// Memory of the process for a guest with 1000 idle queue pairs.
const MEMORY: u64 = 32 << 20;

/// Processor time while nothing happens: 0.1 % of a core.
const IDLE_SHARE: f64 = 0.001;
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Accesses to BAR0 for a message, where programs always have some outstanding.
const TRAPS: f64 = 0.001;

/// Two guests of a running program.
fn running(sockets: &Sockets, more: &[&str]) -> (Running, [Guest; 2]) {
    let path = |name: &str| sockets.path(name).display().to_string();
    let guest =
        |name: &str, last: u8| format!("--guest={},mac=02:00:00:00:00:{last:02x}", path(name));
    let options = [
        guest("a", 1),
        guest("b", 2),
        format!("--control={}", path("c")),
    ];
    let more = more.iter().map(|&option| option.to_owned());
    let options: Vec<_> = options.into_iter().chain(more).collect();
    let running = Running::new(&options, sockets.path("log"));
    eventually("a control socket", || {
        sockets.path("c").exists().then_some(())
    });
    let guests = [("a", 0), ("b", 1)].map(|(name, port)| Guest::at(&sockets.path(name), port));
    (running, guests)
}

/// Bytes of the process's own memory that are there: not those that it shares with a guest.
fn own_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Processor time of all of the process's threads.
fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanoseconds = threads.map(|thread| {
        let path = thread.unwrap().path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// A thousand queue pairs as small programs have them, each with a neighbour.
fn thousand(guest: &mut Guest, p: &Program) {
    for _ in 0..500 {
        pair(guest, p);
    }
}

/// Runs two guests with a thousand queue pairs each.
fn memory(options: &[&str]) {
    let sockets = Sockets::new();
    let (running, guests) = running(&sockets, options);
    let pid = running.pid();
    let mut last = own_memory(pid);
    println!("{} KiB at first", last >> 10);
    let mut programs = Vec::new();
    for mut guest in guests {
        let p = program(&mut guest);
        thousand(&mut guest, &p);
        let now = own_memory(pid);
        println!("{} KiB more for a guest {options:?}", (now - last) >> 10);
        assert!(now - last <= MEMORY);
        last = now;
        programs.push((guest, p));
    }
    assert!(last <= 2 * MEMORY, "{last} bytes of both");
    drop(programs);
    running.end();
}

#[test]
fn memory_of_a_thousand_queue_pairs() {
    memory(&[]);
}

#[test]
fn memory_of_a_thousand_queue_pairs_on_the_wire() {
    memory(&["--wire-only"]);
}

#[test]
fn processor_time_of_idle_guests() {
    let sockets = Sockets::new();
    let (running, guests) = running(&sockets, &[]);
    let pid = running.pid();
    let mut programs = Vec::new();
    for mut guest in guests {
        let mut p = program(&mut guest);
        let (mut a, mut b) = pair(&mut guest, &p);
        b.receive(1, 0, 8, p.key);
        guest.send(&mut a, &Wqe::new(2, wr_opcode::SEND).local(8, 8, p.key));
        p.cq.all(2);
        programs.push((guest, p));
    }
    // The engine's thread looks for more work before it sleeps.
    std::thread::sleep(Duration::from_secs(1));
    let (before, since) = (processor_time(pid), Instant::now());
    std::thread::sleep(IDLE_TIME);
    assert!(before > Duration::ZERO, "there is no account of it");
    let (used, passed) = (processor_time(pid) - before, since.elapsed());
    println!("{used:?} of {passed:?}");
    assert!(
        used.as_secs_f64() <= IDLE_SHARE * passed.as_secs_f64(),
        "{used:?}"
    );
    drop(programs);
    running.end();
}

/// A counter of a guest, as the program tells it.
fn counter(control: &Path, name: &str, guest: &Path) -> f64 {
    let words = ["stats", "--prometheus", control.to_str().unwrap()];
    let (status, text, _) = run(&words.map(str::to_owned));
    assert_eq!(status, Some(0));
    let values = parse(&text);
    values[name][guest.to_str().unwrap()]
}

/// A doorbell traps when the engine's thread sleeps. On a machine that others load it sleeps for as
/// long as it has no processor (`src/patience.rs`), so only the best of several runs tells of the
/// device.
#[test]
fn traps_of_a_bandwidth_run() {
    const MESSAGES: u64 = 20_000;
    const LENGTH: u32 = 64 << 10;
    const RUNS: u32 = 20;
    let sockets = Sockets::new();
    let (running, [mut one, _two]) = running(&sockets, &[]);
    let mut p = program(&mut one);
    let (mut a, _b) = pair(&mut one, &p);
    let (control, guest) = (sockets.path("c"), sockets.path("a"));
    let counts =
        || ["accesses_total", "messages_total"].map(|name| counter(&control, name, &guest));
    let outstanding = u64::from(DEPTH) / 2;
    let mut run = || {
        let before = counts();
        for number in 0..MESSAGES {
            if number >= outstanding {
                p.cq.done();
            }
            let write = Wqe::new(number, wr_opcode::RDMA_WRITE).local(0, LENGTH, p.key);
            one.send(&mut a, &write.remote(512 << 10, p.key));
        }
        p.cq.all(outstanding as usize);
        let after = counts();
        let [accesses, messages] = [0, 1].map(|at| after[at] - before[at]);
        println!("{accesses} accesses to BAR0 for {messages} messages");
        assert_eq!(messages, MESSAGES as f64);
        accesses <= TRAPS * messages
    };
    assert!((0..RUNS).any(|_| run()), "in none of {RUNS} runs");
    drop(one);
    running.end();
}
