// SPDX-License-Identifier: GPL-2.0

//! The process's work for one operation, to be counted in instructions.
//!
//! usage: instructions LINE COUNT
//!        instructions --list
//!
//! Does the list of LINE as often as told, by a kick of the guest's each time, and checks that all
//! has completed. Under callgrind, which counts within the engine alone, the difference of two
//! counts is what an operation takes, with the host's services (`tests/bench/instructions` does
//! this). There is no thread of the engine, so the figures do not vary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
#![allow(unreachable_pub, dead_code)]

#[path = "../tests/client.rs"]
mod client;
#[path = "../tests/driver/mod.rs"]
mod driver;

use driver::queues::*;
use driver::*;
use ferrule_engine::abi::wr_opcode::{RDMA_WRITE, SEND};
use ferrule_nic::device::Device;
use ferrule_nic::interface::*;

/// The lists: by name, opcode, bytes, and requests before each kick. A kick does fewer than 32
/// requests, and 64 KiB.
const LINES: [(&str, u8, u32, u32); 6] = [
    ("nic_write_8", RDMA_WRITE, 8, 1),
    ("nic_write_8_list_16", RDMA_WRITE, 8, 16),
    ("nic_send_8", SEND, 8, 1),
    ("nic_send_8_list_16", SEND, 8, 16),
    ("nic_write_4096", RDMA_WRITE, 4096, 1),
    ("nic_write_65536", RDMA_WRITE, 65536, 1),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => LINES
            .iter()
            .for_each(|line| println!("{} {}", line.0, line.3)),
        [name, count] => {
            let line = LINES.iter().find(|line| line.0 == name).expect("a line");
            run(line, count.parse().expect("a count"));
        }
        // cargo test runs it as well, to see that it works.
        _ => LINES.iter().for_each(|line| run(line, 3)),
    }
}

fn run(&(_, opcode, length, list): &(&str, u8, u32, u32), count: u32) {
    let mut guest = Guest::new(&Device::new(1).unwrap(), 0);
    guest.up();
    let context = guest.context();
    let pd = guest.pd();
    let cq = [(); 2].map(|()| guest.cq(64, NONE));
    let [local, remote] = [(); 2].map(|()| {
        let area = guest.memory.alloc(65536);
        guest.register(pd, &area, ALL_RIGHTS)
    });
    let [mut from, mut to] = [0, 1].map(|end: usize| guest.qp(qp_type::RC, &context, pd, &cq[end]));
    let gid = guest.gid;
    guest.connect(&from, to.number, gid).unwrap();
    guest.connect(&to, from.number, gid).unwrap();
    let [mut sent, mut received] = cq;
    for _ in 0..count {
        for id in 0..u64::from(list) {
            if opcode == SEND {
                to.receive(id, 0, length, remote);
            }
            let request = Wqe::new(id, opcode).local(0, length, local);
            from.post(&request.remote(0, remote));
        }
        context.ring(from.doorbell);
        guest.write(register::KICK, context.number);
        for _ in 0..list {
            assert_eq!(sent.poll().expect("a completion").status, 0);
            if opcode == SEND {
                assert_eq!(received.poll().expect("a receive").status, 0);
            }
        }
    }
}
