// SPDX-License-Identifier: GPL-2.0

//! A guest whose driver is hostile, beside one whose transfers have to stay correct.
//!
//! The hostile driver sends commands that are random or nearly good, names memory that it does not
//! have and objects of its neighbour, rings without a pause, has random requests in its queues,
//! resets, takes memory back, and leaves in the middle of transfers. Nothing of that may reach the
//! neighbour or memory that the driver has not registered, and the process lives.

mod operands;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ferrule_engine::abi::{self, wr_opcode};
use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::interface::*;
use ferrule_nic::worker::Worker;

use crate::client::{request, unmap_body, DMA_UNMAP, REGION_WRITE, RESET};
use crate::data::{pair, program, program_without_address, Program};
use crate::driver::queues::*;
use crate::driver::*;
use crate::ends::{flood, is_still};
use crate::neighbour::{Names, Neighbour};
use crate::xrc::{self, send_to, Srq};

/// The number of deeds of a hostile driver before it leaves.
const DEEDS: u32 = 60;

/// How often the hostile driver comes: `FERRULE_HOSTILE_ROUNDS`, or so often as takes a few
/// seconds.
fn rounds() -> u64 {
    number("FERRULE_HOSTILE_ROUNDS").unwrap_or(30)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// Random numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.word() % u64::from(end)) as u32
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u32) as usize]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.word() as u8).collect()
    }
}

/// A hostile driver: it begins as a good one, with queues that work.
struct Hostile<'a> {
    guest: Guest,
    random: &'a mut Random,
    names: Names,
    p: Program,
    ends: (Qp, Qp),
    xrc: (Qp, Qp),
    queue: Srq,
    /// Pages that it gives to whatever wants one.
    spare: Area,
}

impl<'a> Hostile<'a> {
    fn new(mut guest: Guest, random: &'a mut Random, names: Names) -> Self {
        let p = program(&mut guest);
        let ends = pair(&mut guest, &p);
        let xrc = xrc::ends(&mut guest, &p);
        let queue = xrc::srq(&mut guest, &p);
        let spare = guest.memory.alloc(4 * PAGE);
        Self {
            guest,
            random,
            names,
            p,
            ends,
            xrc,
            queue,
            spare,
        }
    }

    /// After a reset: its objects are gone.
    fn again(&mut self) {
        self.guest.begin();
        self.p = program(&mut self.guest);
        self.ends = pair(&mut self.guest, &self.p);
        self.xrc = xrc::ends(&mut self.guest, &self.p);
        self.queue = xrc::srq(&mut self.guest, &self.p);
    }

    /// An address that is none, or is not all there; seldom one that it may well name.
    fn address(&mut self) -> u64 {
        let spare = self.spare.addresses()[0];
        self.random.of(&[
            spare,
            spare + 1,
            spare | 0xff8,
            // Behind each of both ranges of its memory, and before the second.
            32 << 20,
            (4 << 30) - 4096,
            (4 << 30) + (32 << 20),
            (4 << 30) + (32 << 20) - 8,
            1 << 52,
            u64::MAX,
            u64::MAX - 4095,
        ])
    }

    /// A number that may mean something.
    fn number(&mut self) -> u32 {
        let Names {
            context,
            cq,
            key,
            srq,
            qps,
            ..
        } = self.names;
        let own = [
            self.p.context.number,
            self.p.cq.number,
            self.p.key,
            self.p.pd,
            self.ends.0.number,
            self.xrc.0.number,
            self.xrc.1.number,
            self.queue.number,
        ];
        match self.random.below(4) {
            0 => self.random.of(&own),
            1 => self
                .random
                .of(&[context, cq, key, srq, qps[0], qps[1], qps[2], qps[3]]),
            2 => self
                .random
                .of(&[0, 1, 2, 16, 4095, 4096, 1 << 16, 1 << 31, NONE - 1, NONE]),
            _ => self.random.word() as u32,
        }
    }

    /// A page list with pages that are not there, or with one that has itself for the next.
    fn list(&mut self) -> PageList {
        let addresses: Vec<u64> = (0..self.random.below(6)).map(|_| self.address()).collect();
        let mut list = self.guest.memory.list_of(&addresses);
        match self.random.below(4) {
            0 => list.list = self.address().into(),
            1 => list.pages = self.number().into(),
            _ => (),
        }
        list
    }

    fn command(&mut self) {
        let (opcode, mut operands) = if self.random.below(2) == 0 {
            self.operands()
        } else {
            let words = self.random.of(&[0, 1, 2, 4, 8, 12, 30, 40]);
            let operands = (0..words)
                .flat_map(|_| self.number().to_le_bytes())
                .collect();
            (self.random.below(40) as u16, operands)
        };
        // A word or two that are others.
        for _ in 0..self.random.below(3) {
            let count = operands.len() as u32 / 4;
            if count > 0 {
                let at = self.random.below(count) as usize * 4;
                operands[at..at + 4].copy_from_slice(&self.number().to_le_bytes());
            }
        }
        let _ = self.guest.command(opcode, &operands[..]);
    }

    /// A request of random bytes, or one of which some are.
    fn request(&mut self) {
        let key = self.random.of(&[self.p.key, self.names.key]);
        let length = self.random.of(&[0, 8, 4096, 1 << 20, u32::MAX]);
        let code = self.random.below(16) as u8;
        let offset = self.random.of(&[0, 1, 1 << 20, u64::MAX - 4096]);
        let mut wqe = Wqe::new(1, code).local(0, length, key);
        wqe = wqe.remote(offset, key);
        wqe.extra = [self.random.word(), self.random.word()];
        self.ends.0.post(&wqe);
        if self.random.below(2) == 0 {
            let at = u64::from(self.random.below(QP_BYTES as u32 - 64));
            let bytes = self.random.bytes(64);
            self.ends.0.area.write(at, &bytes);
        }
        self.guest.ring(&self.ends.0);
    }

    /// A message to a shared receive queue of somebody, by an extended connection.
    fn xrc_request(&mut self) {
        let queue = self.number();
        let key = self.random.of(&[self.p.key, self.names.key]);
        let length = self.random.of(&[0, 8, 4096, 1 << 20]);
        if self.random.below(2) == 0 {
            let at = self.random.word() >> self.random.below(64);
            self.queue.receive(1, at, length, key);
        }
        self.xrc.0.post(&send_to(queue, 1).local(0, length, key));
        self.guest.ring(&self.xrc.0);
    }

    /// Bits that no queue pair has, and kicks for all and nobody.
    fn storm(&mut self) {
        for _ in 0..32 {
            let at = u64::from(self.random.below(abi::DB_AREA_SIZE as u32 / 8)) * 8;
            self.p.context.doorbell.store64(at, self.random.word());
            let context = self.number();
            self.guest.write(register::KICK, context);
        }
    }

    /// Connects itself with a queue pair of the neighbour's, which is connected elsewhere, and
    /// writes by its key, or sends to its shared receive queue.
    fn intrude(&mut self) {
        let peer = self.random.of(&self.names.qps);
        let extended = self.random.below(2) == 0;
        let Self { guest, p, .. } = self;
        let made = if extended {
            guest.qp_with(qp_type::XRC_INI, &p.context, p.pd, &p.cq, xrc::initiator)
        } else {
            guest.qp_with(qp_type::RC, &p.context, p.pd, &p.cq, |_| ())
        };
        // It may have destroyed what a queue pair needs.
        let Ok(mut qp) = made else { return };
        let to = vector(self.names.gid);
        let sides = if extended {
            xrc::INITIATOR
        } else {
            [true, true]
        };
        if guest.connect_as(&qp, sides, peer, to).is_err() {
            return;
        }
        let request = if extended {
            send_to(self.names.srq, 9)
        } else {
            Wqe::new(9, wr_opcode::RDMA_WRITE)
        };
        let request = request.local(0, 4096, p.key);
        guest.send(&mut qp, &request.remote(0, self.names.key));
    }

    fn registers(&mut self) {
        let offset = u64::from(self.random.below(0x60));
        let length = self.random.of(&[1, 2, 4, 8, 16]);
        let bytes = self.random.bytes(length);
        match self.random.below(3) {
            // Not the registers that hold addresses: those follow.
            0 if !(0x20..0x30).contains(&offset) && !(0x38..0x48).contains(&offset) => {
                let _ = self.guest.client.write(0, offset, &bytes);
            }
            1 => {
                let address = self.address().to_le_bytes();
                let at = self
                    .random
                    .of(&[register::CHECK_ADDRESS, register::COMMAND_ADDRESS]);
                let _ = self.guest.client.write(0, at as u64, &address);
                self.guest.write(register::CHECK, 1);
                self.guest.write(register::COMMAND, self.random.below(3));
            }
            _ => {
                let _ = self.guest.client.write(7, offset, &bytes);
            }
        }
        // The next deed finds a function that works.
        self.reset(0);
    }

    fn reset(&mut self, kind: u32) {
        let client = &mut self.guest.client;
        match kind {
            0 => assert_eq!(client.call(RESET, &[], &[]).error, None),
            1 => assert_eq!(client.write(7, 0x48, &[0x10, 0xa8]), None),
            2 => assert_eq!(client.write(7, 4, &[0, 0]), None),
            _ => self.guest.write(register::RESET, 1),
        }
        self.again();
    }

    /// Gives half of its memory back, or all, while transfers use it, and takes it again.
    fn take_back(&mut self) {
        flood(&mut self.guest, &self.p, &mut self.ends.0);
        let half = 32 << 20;
        let whole = self.random.below(2) == 0;
        let body = if whole {
            unmap_body(2, 0, 0)
        } else {
            unmap_body(0, 4 << 30, half)
        };
        let Guest { client, memory, .. } = &mut self.guest;
        assert_eq!(client.call(DMA_UNMAP, &body, &[]).error, None);
        let file = &memory.file;
        if whole {
            assert_eq!(client.map(Some(file), 0, 0, half, 3), None);
        }
        assert_eq!(client.map(Some(file), half, 4 << 30, half, 3), None);
        self.reset(0);
    }

    fn deed(&mut self) {
        match self.random.below(32) {
            0 => {
                let kind = self.random.below(4);
                self.reset(kind);
            }
            1 => self.take_back(),
            2 => self.registers(),
            3..=5 => self.intrude(),
            6..=8 => self.storm(),
            9..=14 => self.request(),
            15..=17 => self.xrc_request(),
            _ => self.command(),
        }
    }

    /// Leaves in the middle of transfers, perhaps of a message, too. Returns its function, and the
    /// memory that it has had.
    fn leave(mut self) -> (Adapter, Memory) {
        self.reset(3);
        flood(&mut self.guest, &self.p, &mut self.ends.0);
        let message = request(REGION_WRITE, &self.random.bytes(64));
        let length = self.random.below(message.len() as u32) as usize;
        if length > 0 {
            self.guest.client.send(&message[..length], &[]);
        }
        (self.guest.client.leave().0, self.guest.memory)
    }
}

#[test]
fn a_neighbour_of_a_hostile_driver() {
    let (rounds, begin) = (rounds(), Instant::now());
    let seed = number("FERRULE_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    println!("{rounds} rounds; FERRULE_SEED={seed} does the same again");
    let device = Device::new(2).unwrap();
    let _worker = Worker::new(&device).unwrap();
    let mut neighbour = Neighbour::new(&device);
    let (names, own) = (neighbour.names(), device.objects());
    let over = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    let mut adapter = Adapter::new(&device, 1, "hostile", [2, 0, 0, 0, 0, 1]).unwrap();
    let mut neighbour = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                neighbour.turn(turns.fetch_add(1, Ordering::Relaxed));
            }
            neighbour
        });
        let mut random = Random(seed);
        for round in 0..rounds {
            if beside.is_finished() {
                break;
            }
            let mut hostile = Hostile::new(Guest::with(adapter, 1), &mut random, names);
            for _ in 0..DEEDS {
                hostile.deed();
            }
            let memory;
            (adapter, memory) = hostile.leave();
            assert_eq!(adapter.memory().count(), (0, 0), "round {round}");
            assert_eq!(device.objects(), own, "round {round}");
            assert_eq!(memory.damage(), 0, "round {round}");
            if round % 32 == 0 {
                is_still(&memory.bytes);
            }
        }
        over.store(true, Ordering::Relaxed);
        beside.join().expect("the neighbour has failed")
    });
    neighbour.turn(0);
    assert_eq!(neighbour.guest.memory.damage(), 0);
    let (turns, time) = (turns.into_inner(), begin.elapsed());
    println!("{rounds} rounds, {turns} turns of the neighbour, {time:.1?}");
    // The neighbour has not been kept waiting for all that time.
    assert!(turns > rounds);
}

/// The address of commands is 0 after a reset, and a driver that does not know of the reset has
/// other things there.
#[test]
fn a_command_after_a_reset_writes_nothing() {
    let (_worker, [mut guest]) = guests();
    let p = program_without_address(&mut guest);
    guest.write(register::RESET, 1);
    let first = [0x77; PAGE as usize];
    assert!(guest.memory.bytes.write(0, &first));
    guest.write(register::COMMAND, 1);
    assert_eq!(guest.read(register::COMMAND), 0);
    let mut after = first;
    assert!(guest.memory.bytes.read(0, &mut after));
    assert!(after == first);
    assert_eq!(guest.memory.damage(), 0);
    drop(p);
}
