// SPDX-License-Identifier: GPL-2.0

//! Rings and doorbells with any words in them, and any order of commands, beside a context that
//! behaves.

use ferrule_engine::{abi, Access, Budget, Modify, QpType, State, Status};

use super::{each, Input};
use crate::sim::{
    init, memory, of_xrc_side, rtr, rts, End, QpSpec, SentPacket, TestContext, TestCq, TestMr,
    TestQp, TestSrq, World, Wr, ALL, PLENTY, US,
};

const DEPTH: u32 = 8;
/// The place of the queue pair for frames among the hostile ones, and those of the two of XRC.
const RAW: usize = 3;
const INITIATOR: usize = 4;
const TARGET: usize = 5;
const PD: u32 = 2;
/// The XRC domain of the target and of the shared receive queue.
const DOMAIN: u32 = 3;
/// Things to do; the rest of the input is left.
const LIMIT: usize = 200;
/// More runs than this in a row with work left would be work that feeds on itself.
const RUNS: usize = 10_000;

struct Scene {
    world: World,
    /// The one who writes what it likes.
    hostile: TestContext,
    cq: TestCq,
    qps: Vec<TestQp>,
    /// Of the XRC domain.
    srq: TestSrq,
    mr: TestMr,
    /// Memory that may have to be brought in.
    paged: TestMr,
    /// The neighbour, which behaves, and its objects.
    a: End,
    b: End,
    memory: TestMr,
    transfers: u64,
}

fn spec(pd: u32) -> QpSpec {
    QpSpec {
        pd,
        depth: DEPTH,
        max_sge: 1,
        max_inline: 16,
        ..QpSpec::default()
    }
}

/// That of a hostile queue pair.
fn spec_of(qp: usize) -> QpSpec {
    let qp_type = match qp {
        RAW => QpType::RawPacket,
        INITIATOR => QpType::XrcIni,
        TARGET => QpType::XrcTgt,
        _ => QpType::Rc,
    };
    QpSpec {
        qp_type,
        ..spec(if qp == TARGET { DOMAIN } else { PD })
    }
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new();
        world.host.frame_limit = 1518;
        let (a, b) = world.pair_with(&spec(1));
        let memory = world.mr(2048);
        let hostile = world.context();
        let cq = world.cq(2 * DEPTH);
        let qps = (0..=TARGET)
            .map(|qp| world.qp_in(Some(&hostile), &spec_of(qp), &cq, &cq))
            .collect();
        let srq = world.xrc_srq(PD, DOMAIN, &cq);
        let [mr, paged] = [ALL, ALL.or(Access::ON_DEMAND)]
            .map(|access| world.mr_with(PD, access, memory::shared(4096), 0, 4096));
        let mut scene = Self {
            world,
            hostile,
            cq,
            qps,
            srq,
            mr,
            paged,
            a,
            b,
            memory,
            transfers: 0,
        };
        // Two are connected with each other, the third with itself, and that for frames with
        // nobody.
        for (qp, peer) in [
            (0, 1),
            (1, 0),
            (2, 2),
            (RAW, 0),
            (INITIATOR, TARGET),
            (TARGET, INITIATOR),
        ] {
            scene.connect(qp, peer);
        }
        scene
    }

    fn connect(&mut self, qp: usize, peer: usize) {
        let peer = self.qps[peer].id.number;
        let mut modifies = [init(), rtr(peer), rts()];
        if qp == RAW {
            for modify in &mut modifies {
                *modify = Modify {
                    state: modify.state,
                    port: modify.port,
                    ..Modify::default()
                };
            }
        }
        if matches!(qp, INITIATOR | TARGET) {
            for modify in &mut modifies {
                of_xrc_side(modify, qp == INITIATOR);
            }
        }
        let qp = self.qps[qp].clone();
        for modify in modifies {
            // Any of them may be refused by the state that the pair is in.
            let _ = self.world.modify(&qp, &modify);
        }
    }

    /// A frame comes for a queue pair, of any type.
    fn frame(&mut self, qp: usize, length: u16) {
        let packet = SentPacket::of_frame(&vec![7; usize::from(length % 2048)]);
        let number = self.qps[qp].id.number;
        let world = &mut self.world;
        let length = u32::from(length % 2048);
        (world.engine).receive_frame(&mut world.host, number, &packet, length);
    }

    fn run(&mut self, budget: Budget, first: bool) {
        let first = first.then_some(self.hostile.id);
        let outcome = self.world.engine.run(&mut self.world.host, budget, first);
        assert!(outcome.used.requests <= budget.requests.max(1));
        self.world.host.traces.clear();
        self.world.host.events.clear();
        self.world.host.frames.clear();
    }

    /// Runs until nothing is left to do, which has to come. Programs that had to kick have done so.
    fn run_all(&mut self) {
        for context in [self.hostile.id, self.world.context.id] {
            self.world.engine.kicked(context);
        }
        for _ in 0..RUNS {
            let world = &mut self.world;
            let more = world.engine.run(&mut world.host, PLENTY, None).more;
            self.world.host.traces.clear();
            self.world.host.events.clear();
            self.world.host.frames.clear();
            if !more {
                return;
            }
        }
        panic!("there is always more to do");
    }

    /// The neighbour moves bytes, whatever else is going on.
    fn transfer(&mut self, length: u32) {
        let id = self.transfers;
        let length = 1 + length % 1024;
        self.memory.fill(id as u8);
        let sent = self.memory.bytes(0, length as usize);
        self.b.qp.post_recv(id, &[self.memory.sge(1024, length)]);
        self.a
            .qp
            .post_send(&Wr::send(id, &[self.memory.sge(0, length)]));
        self.run_all();
        self.a.cq.expect(id, Status::Success);
        self.b.cq.expect(id, Status::Success);
        self.a.cq.expect_none();
        self.b.cq.expect_none();
        assert_eq!(self.memory.bytes(1024, length as usize), sent);
        self.transfers += 1;
    }

    /// Moves a queue pair of the hostile context to a state, or leaves it where it is.
    fn change_state(&mut self, qp: usize, how: u8) {
        let state = match how % 6 {
            0 => State::Reset,
            1 => State::Err,
            2 => State::Sqd,
            3 => State::Rts,
            _ => return self.connect(qp, usize::from(how >> 4) % self.qps.len()),
        };
        let modify = Modify {
            state: Some(state),
            ..Default::default()
        };
        let qp = self.qps[qp].clone();
        let _ = self.world.modify(&qp, &modify);
    }

    fn replace_qp(&mut self, qp: usize) {
        let old = self.qps[qp].id.number;
        assert!(self.world.engine.remove_qp(old).is_ok());
        self.qps[qp] = self
            .world
            .qp_in(Some(&self.hostile), &spec_of(qp), &self.cq, &self.cq);
        let peer = match qp {
            INITIATOR => TARGET,
            TARGET => INITIATOR,
            _ => (qp + 1) % RAW,
        };
        self.connect(qp, peer);
    }

    /// The shared receive queue goes while messages for it are under way, and another one comes; or
    /// it goes on with a ring of another depth, in which the driver has put what waits.
    fn replace_srq(&mut self, how: u8) {
        if how % 2 == 0 {
            assert!(self.world.engine.remove_srq(self.srq.number).is_ok());
            self.srq = self.world.xrc_srq(PD, DOMAIN, &self.cq);
            return;
        }
        let copy = self.srq.copy(1 << (how >> 1 & 7));
        let limit = (how & 0x80 != 0).then_some(2);
        if self.world.resize_srq(&copy, limit).is_ok() {
            self.srq = copy;
        }
    }

    /// Fills a slot with a request that is right but for a few bytes.
    fn request(&mut self, qp: usize, input: &mut Input<'_>) {
        let index = u32::from(input.byte());
        let opcode = input.byte() % 12;
        let length = u32::from(input.u16());
        let mr = if index & 0x80 == 0 {
            &self.mr
        } else {
            &self.paged
        };
        let mut wr = Wr::write(1, &[mr.sge(0, length)], mr.remote(0)).with_opcode(opcode);
        let mut bytes = [0; 64];
        bytes[8] = input.byte() & 1;
        bytes[16..24].copy_from_slice(&mr.iova.to_le_bytes());
        bytes[24..28].copy_from_slice(&length.to_le_bytes());
        bytes[28..32].copy_from_slice(&mr.key.to_le_bytes());
        let (queue, ring) = match qp {
            // It takes from the shared receive queue.
            TARGET => (&self.srq.queue, self.srq.ring),
            _ => (&self.qps[qp].queue, self.qps[qp].rq),
        };
        if ring.depth != 0 {
            queue.write(ring.slot(index) as usize, &bytes);
        }
        if qp == INITIATOR {
            // Mostly the queue that there is.
            let wrong = input.byte();
            wr = wr.to_srq(self.srq.number ^ if wrong < 0xf0 { 0 } else { wrong.into() });
        }
        if qp != TARGET {
            self.qps[qp].fill_send(index, &wr);
        }
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let qp = usize::from(what >> 4) % self.qps.len();
        let memory = self.hostile.doorbells.0.clone();
        match what & 15 {
            0 => {
                let offset = self.qps[qp].ctrl as usize;
                self.qps[qp].queue.set_word(offset, input.u32());
            }
            1 if qp == TARGET => self.srq.set_producer(input.u32()),
            1 => {
                let offset = self.qps[qp].ctrl as usize + 64;
                self.qps[qp].queue.set_word(offset, input.u32());
            }
            2 => self.request(qp, input),
            3 => drop(self.qps[qp].ring()),
            4 => {
                let word = usize::from(input.u16()) % abi::DB_LEAF_WORDS;
                memory.leaf.borrow_mut()[word] ^= input.u64();
            }
            5 => {
                let word = usize::from(input.byte()) % abi::DB_TOP_WORDS;
                memory.top.borrow_mut()[word] ^= input.u64();
            }
            6 if what & 0x80 != 0 => memory.backlog.set(!memory.backlog.get()),
            6 => memory.rung.set(abi::Rung::from_word(input.u64())),
            7 => self.cq.ring.0.consumer.set(input.u32()),
            8 => self.cq.ring.0.arm.set(input.u32()),
            9 => {
                let budget = Budget {
                    requests: u32::from(input.byte()),
                    bytes: u64::from(input.u16()) * 16,
                };
                self.run(budget, what & 0x80 != 0);
            }
            10 => {
                let time = input.u16();
                if what & 0x80 != 0 {
                    // It has been paged out, from some byte on.
                    let region = &self.paged.region;
                    region.absent.set(u32::from(time & 7));
                    region.absent_from.set(u64::from(time >> 3) & 0xfff);
                    region.broken.set(time & 0x8000 != 0);
                    region.askers.take();
                }
                self.world.host.now += u64::from(time) * US;
            }
            11 => {
                let how = input.byte();
                self.change_state(qp, how);
            }
            12 if qp == TARGET && what & 0x80 != 0 => {
                let how = input.byte();
                self.replace_srq(how);
            }
            12 => self.replace_qp(qp),
            13 => {
                let length = input.u16();
                if what & 0x80 != 0 {
                    self.frame(qp, length);
                } else {
                    self.transfer(length.into());
                }
            }
            14 => {
                if what & 0x80 != 0 {
                    self.world.engine.wake();
                } else {
                    self.world.engine.try_sleep(1);
                }
            }
            _ => {
                // Raw bytes anywhere in the buffer, the words beside the rings among them.
                let queue = match qp {
                    TARGET => self.srq.queue.clone(),
                    _ => self.qps[qp].queue.clone(),
                };
                let bytes = input.array::<16>();
                let size = queue.memory.borrow().len();
                let offset = usize::from(input.u16()) % (size - bytes.len());
                queue.write(offset, &bytes);
            }
        }
    }

    /// All goes, as when the program has been killed.
    fn end(mut self) {
        self.transfer(1000);
        let id = self.hostile.id;
        self.world.engine.fail_context(&mut self.world.host, id, 0);
        self.run_all();
        for qp in &self.qps {
            assert!(self.world.engine.remove_qp(qp.id.number).is_ok());
        }
        assert!(self.world.engine.remove_srq(self.srq.number).is_ok());
        for mr in [&self.mr, &self.paged] {
            assert!(self.world.engine.remove_mr(mr.key).is_ok());
        }
        assert!(self.world.engine.remove_cq(self.cq.cqn).is_ok());
        assert!(self.world.engine.remove_context(id).is_ok());
        self.transfer(1);
        self.world.state(&self.a.qp, State::Rts);
        self.world.state(&self.b.qp, State::Rts);
    }
}

/// Does what the bytes say.
pub fn run(data: &[u8]) {
    let mut scene = Scene::new();
    each(data, LIMIT, |what, input| scene.step(what, input));
    scene.end();
}

/// Inputs to begin with: a post of each opcode, and each thing to do by itself.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for opcode in 0..12 {
        // A slot for each side, both producers, the doorbell, a run.
        seeds.push(vec![
            2, 0, opcode, 0, 1, 1, 0x12, 0, opcode, 0, 4, 1, 0x11, 1, 0, 0, 0, 0, 1, 0, 0, 0, 3, 9,
            32, 255, 255, 13, 100, 0,
        ]);
    }
    for opcode in 0..12 {
        // Over XRC: a slot of either queue, both producers, the doorbell, a run; then the shared
        // queue goes, or gets another ring, and the next request finds it so.
        for change in [&[][..], &[0xbc, 0], &[0xbc, 9]] {
            let post = [
                0x52, 0, opcode, 0, 1, 1, 0x42, 0, opcode, 0, 4, 1, 0, 0x51, 2, 0, 0, 0, 0x40, 2,
                0, 0, 0, 0x43,
            ];
            seeds.push([&post[..], change, &[9, 32, 255, 255, 13, 100, 0]].concat());
        }
        // Of memory that is paged out.
        seeds.push(vec![
            0x8a, 3, 0, 2, 0x80, opcode, 0, 1, 1, 0x12, 0x80, opcode, 0, 4, 1, 0x11, 1, 0, 0, 0, 0,
            1, 0, 0, 0, 3, 9, 32, 255, 255, 10, 0, 32, 9, 32, 255, 255, 13, 100, 0,
        ]);
    }
    for what in 0..=255 {
        seeds.push(vec![
            what, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 9, 8, 0, 1,
        ]);
    }
    seeds
}
