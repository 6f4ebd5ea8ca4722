// SPDX-License-Identifier: GPL-2.0

//! Every message arrives once, in order, byte for byte, and every request ends, in order.

use std::collections::VecDeque;

use ferrule_engine::abi::{wc_opcode, wr_flags, wr_opcode};
use ferrule_engine::{Mtu, State, Status};

use super::variable;
use crate::sim::network::{Faults, Link, Random, BAD};
use crate::sim::{QpSpec, TestCq, TestMr, TestQp, World, Wr};

const DEPTH: u32 = 16;
const LARGEST: u64 = 64 * 1024;

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    opcode: u8,
    length: u32,
    /// Where in the pattern its bytes begin.
    from: u64,
    imm: [u8; 4],
    /// The value that an atomic operation has to find.
    found: u64,
}

/// One end of a connection: the messages that it sends, and those that it receives.
struct End {
    qp: TestQp,
    cq: TestCq,
    /// Bytes to be sent or read, never written.
    pattern: TestMr,
    /// A slot for each request: receives, then answers, then writes of the peer; then a counter.
    buffer: TestMr,
    outstanding: VecDeque<Sent>,
    /// Messages of this side that take a receive request of the peer, in order.
    announced: VecDeque<Sent>,
    posted: u64,
    ended: u64,
    received: u64,
    receives: u64,
    counter: u64,
}

const ANSWERS: u64 = DEPTH as u64 * LARGEST;
const WRITES: u64 = 2 * ANSWERS;
const COUNTER: u64 = 3 * ANSWERS;

impl End {
    fn new(world: &mut World, pattern: &TestMr) -> Self {
        let cq = world.cq(64);
        let spec = QpSpec {
            depth: DEPTH,
            max_inline: 256,
            ..QpSpec::default()
        };
        let qp = world.qp_with(&spec, &cq, &cq);
        Self {
            qp,
            cq,
            pattern: pattern.clone(),
            buffer: world.mr(COUNTER as usize + 64),
            outstanding: VecDeque::new(),
            announced: VecDeque::new(),
            posted: 0,
            ended: 0,
            received: 0,
            receives: 0,
            counter: 0,
        }
    }

    fn post_receive(&mut self) {
        let slot = self.receives % u64::from(DEPTH) * LARGEST;
        let half = LARGEST as u32 / 2;
        self.qp.post_recv(
            self.receives,
            &[
                self.buffer.sge(slot, half),
                self.buffer.sge(slot + u64::from(half), half),
            ],
        );
        self.receives += 1;
    }

    /// Posts one more request of a random kind and size.
    fn post(&mut self, random: &mut Random, peer: &TestMr, peer_pattern: &TestMr) {
        let number = self.posted;
        self.posted += 1;
        let opcode = [
            wr_opcode::SEND,
            wr_opcode::SEND_WITH_IMM,
            wr_opcode::RDMA_WRITE,
            wr_opcode::RDMA_WRITE_WITH_IMM,
            wr_opcode::RDMA_READ,
            wr_opcode::ATOMIC_FETCH_AND_ADD,
            wr_opcode::ATOMIC_CMP_AND_SWP,
            wr_opcode::ATOMIC_WRITE,
            wr_opcode::FLUSH,
        ][random.below(9) as usize];
        // Logarithmically uniform, and nothing now and then.
        let magnitude = random.below(17);
        let mut length = (random.below(1 << magnitude) as u32) & 0xffff;
        let from = random.below(LARGEST);
        let slot = number % u64::from(DEPTH) * LARGEST;
        let imm = (number as u32).to_be_bytes();
        let mut wr = Wr {
            wr_id: number,
            opcode,
            flags: wr_flags::SIGNALED,
            imm,
            ..Wr::default()
        };
        let mut found = 0;
        match opcode {
            wr_opcode::RDMA_READ => {
                let half = length / 2;
                wr.sges = vec![
                    self.buffer.sge(ANSWERS + slot, half),
                    self.buffer
                        .sge(ANSWERS + slot + u64::from(half), length - half),
                ];
                wr.remote = peer_pattern.remote(from);
            }
            wr_opcode::ATOMIC_FETCH_AND_ADD | wr_opcode::ATOMIC_CMP_AND_SWP => {
                length = 8;
                found = self.counter;
                wr.sges = vec![self.buffer.sge(ANSWERS + slot, 8)];
                wr.remote = peer.remote(COUNTER);
                let (first, second) = if opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
                    self.counter += 3;
                    (3, 0)
                } else {
                    self.counter += 5;
                    (found, found + 5)
                };
                wr.extra[..8].copy_from_slice(&u64::to_le_bytes(first));
                wr.extra[8..].copy_from_slice(&u64::to_le_bytes(second));
            }
            wr_opcode::ATOMIC_WRITE => {
                self.counter += 7;
                length = 8;
                wr = Wr::atomic_write(number, peer.remote(COUNTER), self.counter);
            }
            wr_opcode::FLUSH => wr = Wr::flush(number, peer.remote(WRITES), length),
            _ if length <= 200 && random.happens(300) => {
                wr = wr.inline(&self.pattern.bytes(from as usize, length as usize));
            }
            _ => {
                let third = length / 3;
                wr.sges = vec![
                    self.pattern.sge(from, third),
                    self.pattern.sge(0, 0),
                    self.pattern.sge(from + u64::from(third), length - third),
                ];
            }
        }
        let sent = Sent {
            number,
            opcode,
            length,
            from,
            imm,
            found,
        };
        match opcode {
            wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => {
                wr.remote = peer.remote(WRITES + slot);
            }
            _ => (),
        }
        if matches!(
            opcode,
            wr_opcode::SEND | wr_opcode::SEND_WITH_IMM | wr_opcode::RDMA_WRITE_WITH_IMM
        ) {
            self.announced.push_back(sent);
        }
        self.outstanding.push_back(sent);
        self.qp.post_send(&wr);
    }
}

fn same(mr: &TestMr, offset: u64, pattern: &TestMr, from: u64, length: u32) -> bool {
    let (a, b) = (mr.region.memory.borrow(), pattern.region.memory.borrow());
    let length = length as usize;
    let (a0, b0) = (
        mr.region.start + offset as usize,
        pattern.region.start + from as usize,
    );
    a[a0..a0 + length] == b[b0..b0 + length]
}

/// Looks at what has completed on one side.
fn collect(me: &mut End, peer: &mut End, peer_pattern: &TestMr) {
    while let Some(wc) = me.cq.poll() {
        assert_eq!(wc.status, Status::Success as u8, "{wc:?}");
        if wc.opcode & wc_opcode::RECV != 0 {
            let sent = peer.announced.pop_front().expect("nothing was announced");
            assert_eq!(wc.wr_id, me.received, "{sent:?}");
            let slot = me.received % u64::from(DEPTH) * LARGEST;
            me.received += 1;
            assert_eq!(wc.byte_len, sent.length, "{sent:?}");
            if sent.opcode != wr_opcode::SEND {
                assert_eq!(wc.imm, sent.imm);
            }
            let place = if sent.opcode == wr_opcode::RDMA_WRITE_WITH_IMM {
                WRITES + sent.number % u64::from(DEPTH) * LARGEST
            } else {
                slot
            };
            assert!(
                same(&me.buffer, place, &peer.pattern, sent.from, sent.length),
                "{sent:?}"
            );
            me.post_receive();
            continue;
        }
        let sent = me.outstanding.pop_front().expect("nothing was posted");
        assert_eq!((wc.wr_id, me.ended), (sent.number, sent.number));
        me.ended += 1;
        let slot = sent.number % u64::from(DEPTH) * LARGEST;
        match sent.opcode {
            wr_opcode::RDMA_WRITE => assert!(
                same(
                    &peer.buffer,
                    WRITES + slot,
                    &me.pattern,
                    sent.from,
                    sent.length
                ),
                "{sent:?}"
            ),
            wr_opcode::RDMA_READ => assert!(
                same(
                    &me.buffer,
                    ANSWERS + slot,
                    peer_pattern,
                    sent.from,
                    sent.length
                ),
                "{sent:?}"
            ),
            wr_opcode::ATOMIC_FETCH_AND_ADD | wr_opcode::ATOMIC_CMP_AND_SWP => {
                let bytes = me.buffer.bytes((ANSWERS + slot) as usize, 8);
                let found = u64::from_ne_bytes(bytes.try_into().unwrap());
                assert_eq!(found, sent.found, "{sent:?}");
            }
            _ => (),
        }
    }
}

/// Sends so many messages over 4 connections, both ways; answers the trace.
fn messages(seed: u64, count: u64, faults: Faults) -> u64 {
    let mut link = Link::new(seed, faults, true);
    let mut random = Random::new(seed ^ 0xabcd);
    let patterns: Vec<TestMr> = link
        .worlds
        .iter_mut()
        .map(|world| {
            let mr = world.mr(2 * LARGEST as usize);
            let mut bytes = Random::new(7);
            mr.region
                .memory
                .borrow_mut()
                .iter_mut()
                .for_each(|byte| *byte = bytes.next() as u8);
            mr
        })
        .collect();
    let mtus = [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096, Mtu::Mtu2048];
    let mut pairs: Vec<[End; 2]> = Vec::new();
    for mtu in mtus {
        let a = End::new(&mut link.worlds[0], &patterns[0]);
        let b = End::new(&mut link.worlds[1], &patterns[1]);
        link.connect([&a.qp, &b.qp], mtu, |modify| {
            if modify.timeout.is_some() {
                modify.timeout = Some(8);
            }
        });
        pairs.push([a, b]);
    }
    for pair in &mut pairs {
        for end in pair {
            for _ in 0..DEPTH {
                end.post_receive();
            }
        }
    }
    let each = count / 8;
    loop {
        let mut left = false;
        for pair in &mut pairs {
            let [a, b] = pair;
            collect(a, b, &patterns[1]);
            collect(b, a, &patterns[0]);
            for (me, peer, pattern) in [(0, 1, &patterns[1]), (1, 0, &patterns[0])] {
                let peer_buffer = pair[peer].buffer.clone();
                let me = &mut pair[me];
                while me.posted < each && me.posted - me.ended < u64::from(DEPTH) {
                    me.post(&mut random, &peer_buffer, pattern);
                }
                left |= me.ended < each;
            }
        }
        if !link.step() {
            assert!(!left, "nothing happens any more, and there is work left");
            break;
        }
    }
    // Of what is left nothing completes any more, nobody is in error, and no timer runs.
    for pair in &mut pairs {
        for (i, end) in pair.iter_mut().enumerate() {
            assert_eq!(
                (end.ended, end.outstanding.len(), end.announced.len()),
                (each, 0, 0)
            );
            assert_eq!(end.cq.poll(), None);
            assert_eq!(link.worlds[i].query(&end.qp).state, State::Rts);
        }
    }
    for world in &mut link.worlds {
        assert_eq!(world.engine.deadline(), None);
        if faults.lost != 0 {
            assert!(world.engine.counters().duplicates > 0);
            assert!(world.engine.counters().icrc_errors > 0 || faults.corrupted == 0);
        }
    }
    link.network.trace
}

#[test]
fn each_message_arrives_once_and_in_order() {
    let count = if cfg!(debug_assertions) {
        50_000
    } else {
        1_000_000
    };
    let seed = variable("FERRULE_SEED", 1);
    println!("FERRULE_SEED={seed}");
    messages(seed, variable("FERRULE_MESSAGES", count), BAD);
}

#[test]
fn a_sound_network_needs_no_retries() {
    messages(3, 20_000, Faults::default());
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let trace = |seed| messages(seed, 4_000, BAD);
    let (first, again, other) = (trace(5), trace(5), trace(6));
    assert_eq!(first, again);
    assert_ne!(first, other);
}
