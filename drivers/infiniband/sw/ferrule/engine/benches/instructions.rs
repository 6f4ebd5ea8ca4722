// SPDX-License-Identifier: GPL-2.0

//! The engine's work for one operation, to be counted in instructions.
//!
//! usage: instructions LINE COUNT
//!        instructions --list
//!
//! Does the operation LINE as often as told, and checks that each has completed. Under callgrind,
//! which counts within the engine alone, the difference of two counts is what the operation takes,
//! both ends of it, with the simulated host (`tests/bench/instructions` does this). A clock would
//! tell more about the machine than about the engine.

#![allow(missing_docs)]

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::process::ExitCode;

use ferrule_engine::{abi::wr_flags::SIGNALED, Mtu, Status};

use sim::network::{Faults, Link};
use sim::{End, QpSpec, TestMr, World, Wr, PLENTY, US};

/// The largest list.
const DEPTH: u32 = 64;

#[derive(Clone, Copy)]
enum Verb {
    Write,
    Send,
    Read,
}

use Verb::{Read, Send, Write};

/// The caller that runs the engine.
#[derive(Clone, Copy)]
enum Way {
    /// The program, by a kick: both ends are on one device.
    Kicked,
    /// The worker, which is awake: both ends are on one device.
    Awake,
    /// Packets go from one device to another.
    Wire,
}

use Way::{Awake, Kicked, Wire};

struct Line {
    name: &'static str,
    way: Way,
    verb: Verb,
    length: u32,
    /// Requests that are posted before the engine runs.
    list: u32,
}

const fn line(name: &'static str, way: Way, verb: Verb, length: u32, list: u32) -> Line {
    Line {
        name,
        way,
        verb,
        length,
        list,
    }
}

const LINES: [Line; 19] = [
    line("local_write_8", Kicked, Write, 8, 1),
    line("local_write_8_awake", Awake, Write, 8, 1),
    line("local_write_8_list_16", Kicked, Write, 8, 16),
    line("local_write_8_list_64", Kicked, Write, 8, 64),
    line("local_send_8", Kicked, Send, 8, 1),
    line("local_read_8", Kicked, Read, 8, 1),
    line("local_write_4096", Kicked, Write, 4096, 1),
    line("local_write_65536", Kicked, Write, 65536, 1),
    line("local_write_4096_list_16", Kicked, Write, 4096, 16),
    line("local_write_65536_list_16", Kicked, Write, 65536, 16),
    line("wire_write_8", Wire, Write, 8, 1),
    line("wire_write_8_list_16", Wire, Write, 8, 16),
    line("wire_send_8", Wire, Send, 8, 1),
    line("wire_send_8_list_16", Wire, Send, 8, 16),
    line("wire_read_8", Wire, Read, 8, 1),
    line("wire_write_4096", Wire, Write, 4096, 1),
    line("wire_write_65536", Wire, Write, 65536, 1),
    line("wire_read_65536", Wire, Read, 65536, 1),
    line("wire_write_65536_list_16", Wire, Write, 65536, 16),
];

impl Line {
    /// Writes the requests into all slots of the queues. Of each list only the last is signalled.
    fn fill(&self, ends: &[End; 2], memory: &[TestMr; 2]) {
        for end in ends {
            end.qp.queue.reads.borrow_mut().clear();
        }
        for index in 0..DEPTH {
            let sges = [memory[0].sge(0, self.length)];
            let wr = match self.verb {
                Write => Wr::write(0, &sges, memory[1].remote(0)),
                Send => Wr::send(0, &sges),
                Read => Wr::read(0, &sges, memory[1].remote(0)),
            };
            let signalled = if (index + 1) % self.list == 0 {
                wr.flags
            } else {
                wr.flags & !SIGNALED
            };
            ends[0].qp.fill_send(index, &wr.with_flags(signalled));
            ends[1].qp.post_recv(0, &[memory[1].sge(0, self.length)]);
        }
        ends[1].qp.set_rq_producer(0);
    }

    /// Posts the requests of a list, whose slots are written.
    fn post(&self, ends: &[End; 2]) {
        if let Send = self.verb {
            let [_, End { qp, .. }] = ends;
            qp.set_rq_producer(qp.rq_producer.get().wrapping_add(self.list));
        }
        let [End { qp, .. }, _] = ends;
        qp.set_sq_producer(qp.sq_producer.get().wrapping_add(self.list));
        qp.ring();
    }

    /// Whether the list has ended. Each receive has then, too.
    fn ended(&self, ends: &[End; 2]) -> bool {
        let Some(wc) = ends[0].cq.poll() else {
            return false;
        };
        assert_eq!(wc.status, Status::Success as u8);
        if let Send = self.verb {
            for _ in 0..self.list {
                let wc = ends[1].cq.poll().expect("a receive");
                assert_eq!(wc.status, Status::Success as u8);
            }
        }
        true
    }

    fn local(&self, count: u32) {
        let mut world = World::new();
        world.host.is_quiet = true;
        world.host.has_job_place = true;
        let spec = QpSpec {
            depth: DEPTH,
            ..QpSpec::default()
        };
        let (a, b) = world.pair_with(&spec);
        let memory = [(); 2].map(|()| world.mr(self.length as usize));
        let ends = [a, b];
        self.fill(&ends, &memory);
        if let Kicked = self.way {
            world.run();
            assert!(world.try_sleep());
        }
        for _ in 0..count {
            self.post(&ends);
            loop {
                match self.way {
                    Kicked => world
                        .engine
                        .run_for(&mut world.host, PLENTY, world.context.id),
                    _ => world.engine.run(&mut world.host, PLENTY, None),
                };
                let Some(job) = world.host.job.take() else {
                    break;
                };
                world.carry(job);
            }
            assert!(self.ended(&ends));
        }
    }

    fn wire(&self, count: u32) {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = [0, 1].map(|i| {
            let world = &mut link.worlds[i];
            world.host.is_quiet = true;
            let cq = world.cq(256);
            let spec = QpSpec {
                depth: DEPTH,
                ..QpSpec::default()
            };
            let qp = world.qp_with(&spec, &cq, &cq);
            End { qp, cq }
        });
        link.connect([&ends[0].qp, &ends[1].qp], Mtu::Mtu4096, |modify| {
            modify.max_rd_atomic = modify.max_rd_atomic.map(|_| 16);
            modify.max_dest_rd_atomic = modify.max_dest_rd_atomic.map(|_| 16);
        });
        let memory = [0, 1].map(|i| link.worlds[i].mr(self.length as usize));
        self.fill(&ends, &memory);
        for _ in 0..count {
            self.post(&ends);
            while !self.ended(&ends) {
                let mut moved = false;
                for from in [0, 1] {
                    let packets = link.sent(from);
                    moved |= !packets.is_empty();
                    link.give(1 - from, &packets);
                    link.wait(US);
                }
                if !moved {
                    assert!(link.step(), "nothing more happens");
                }
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds an argument of its own.
    let arguments: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|&argument| argument != "--bench")
        .collect();
    match arguments[..] {
        ["--list"] => {
            for line in &LINES {
                println!("{} {}", line.name, line.list);
            }
            return ExitCode::SUCCESS;
        }
        [name, count] => {
            let line = LINES.iter().find(|line| line.name == name);
            if let (Some(line), Ok(count)) = (line, count.parse()) {
                match line.way {
                    Wire => line.wire(count),
                    _ => line.local(count),
                }
                return ExitCode::SUCCESS;
            }
        }
        _ => (),
    }
    eprintln!("usage: instructions LINE COUNT | --list");
    ExitCode::FAILURE
}
