// SPDX-License-Identifier: GPL-2.0

//! A guest beside a hostile one: it compares every byte that it moves.

use std::sync::Arc;

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::device::Device;

use crate::data::{pair, pattern, program, Program};
use crate::driver::queues::*;
use crate::driver::*;
use crate::xrc::{self, send_to, Srq};

/// The neighbour's names, for a driver that wants to guess them.
#[derive(Clone, Copy)]
pub struct Names {
    pub gid: [u8; 16],
    pub context: u32,
    pub cq: u32,
    pub key: u32,
    pub srq: u32,
    /// Those of a reliable connection, and of an extended one.
    pub qps: [u32; 4],
}

/// The neighbour: moves bytes from one queue pair to the other and back, and compares all of them.
pub struct Neighbour {
    pub guest: Guest,
    pub p: Program,
    ends: (Qp, Qp),
    xrc: (Qp, Qp),
    queue: Srq,
}

/// Bytes of a message of the neighbour's.
const MESSAGE: u32 = 20_000;

impl Neighbour {
    pub fn new(device: &Arc<Device>) -> Self {
        let mut guest = Guest::new(device, 0);
        let p = program(&mut guest);
        let ends = pair(&mut guest, &p);
        let xrc = xrc::ends(&mut guest, &p);
        let queue = xrc::srq(&mut guest, &p);
        Self {
            guest,
            p,
            ends,
            xrc,
            queue,
        }
    }

    pub fn names(&self) -> Names {
        Names {
            gid: self.guest.gid,
            context: self.p.context.number,
            cq: self.p.cq.number,
            key: self.p.key,
            srq: self.queue.number,
            qps: [&self.ends.0, &self.ends.1, &self.xrc.0, &self.xrc.1].map(|qp| qp.number),
        }
    }

    /// One message of each kind, compared.
    pub fn turn(&mut self, turn: u64) {
        let Self {
            guest,
            p,
            ends,
            xrc,
            queue,
        } = self;
        let (a, b) = ends;
        let bytes = pattern(MESSAGE as usize, turn as u8);
        let (from, to) = (turn % 5000, 100_000 + turn % 7000);
        p.area.write(from, &bytes);
        b.receive(turn, to, MESSAGE, p.key);
        guest.send(
            a,
            &Wqe::new(turn, wr_opcode::SEND).local(from, MESSAGE, p.key),
        );
        p.cq.all(2);
        assert!(p.area.read(to, bytes.len()) == bytes, "SEND, turn {turn}");
        let write = Wqe::new(turn, wr_opcode::RDMA_WRITE).local(to, MESSAGE, p.key);
        guest.send(b, &write.remote(200_000 + from, p.key));
        p.cq.all(1);
        let read = Wqe::new(turn, wr_opcode::RDMA_READ).local(300_000 + to, MESSAGE, p.key);
        guest.send(a, &read.remote(200_000 + from, p.key));
        p.cq.all(1);
        let back = p.area.read(300_000 + to, bytes.len());
        assert!(back == bytes, "WRITE and READ, turn {turn}");
        queue.receive(turn, 500_000 + to, MESSAGE, p.key);
        let send = send_to(queue.number, turn).local(from, MESSAGE, p.key);
        guest.send(&mut xrc.0, &send);
        p.cq.all(2);
        let got = p.area.read(500_000 + to, bytes.len());
        assert!(got == bytes, "XRC, turn {turn}");
    }
}
