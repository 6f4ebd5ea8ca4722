// SPDX-License-Identifier: GPL-2.0

//! Random traffic over several connections: every byte arrives where it belongs, and completions
//! come in order.

use std::collections::VecDeque;

use ferrule_engine::{abi, Budget, Status};
use proptest::prelude::*;

use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_flags, wr_opcode};

/// Bytes of each side's memory.
const MEMORY: usize = 4 << 20;

#[derive(Clone, Debug)]
struct Send {
    opcode: u8,
    /// Lengths of the entries of the scatter/gather list.
    pieces: Vec<u32>,
    /// Where the first entry begins; the others follow with a gap.
    start: u32,
    inline: bool,
    signaled: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize, Send),
    /// How the buffer is cut, in parts of 256.
    Recv(usize, Vec<u8>),
    Run(Budget),
    Time(u64),
}

const OPCODES: [u8; 9] = [
    wr_opcode::SEND,
    wr_opcode::SEND_WITH_IMM,
    wr_opcode::RDMA_WRITE,
    wr_opcode::RDMA_WRITE_WITH_IMM,
    wr_opcode::RDMA_READ,
    wr_opcode::ATOMIC_CMP_AND_SWP,
    wr_opcode::ATOMIC_FETCH_AND_ADD,
    wr_opcode::FLUSH,
    wr_opcode::ATOMIC_WRITE,
];

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => Just(0u32),
        6 => 1..200u32,
        4 => 1..9000u32,
        1 => 1..700_000u32,
    ]
}

fn step(ends: usize) -> impl Strategy<Value = Step> {
    let send = (
        prop::sample::select(OPCODES.to_vec()),
        prop::collection::vec(length(), 0..=4),
        0..50_000u32,
        any::<bool>(),
        any::<bool>(),
    );
    let send = send.prop_map(|(opcode, pieces, start, inline, signaled)| Send {
        opcode,
        pieces,
        start,
        inline,
        signaled,
    });
    let budget = (1..40u32, 1..600_000u64);
    prop_oneof![
        6 => (0..ends, send).prop_map(|(end, send)| Step::Send(end, send)),
        5 => (0..ends, prop::collection::vec(any::<u8>(), 1..=4))
            .prop_map(|(end, cuts)| Step::Recv(end, cuts)),
        3 => budget.prop_map(|(requests, bytes)| Step::Run(Budget { requests, bytes })),
        1 => (0..2_000_000u64).prop_map(Step::Time),
    ]
}

/// A buffer of a receive request, cut in pieces.
struct Buffer {
    wr_id: u64,
    pieces: Vec<(u64, u32)>,
    /// How many memories were used up before the one that it is in.
    memory: usize,
}

/// A message that takes a receive request, as the model has it.
struct Arrival {
    bytes: Option<Vec<u8>>,
    length: u32,
    imm: Option<[u8; 4]>,
}

/// One side of a connection: the program and the model.
struct Side {
    qp: TestQp,
    cq: TestCq,
    source: TestMr,
    target: TestMr,
    /// The words that the peer's atomic operations change, and the values that they should have.
    words: TestMr,
    counts: [u64; 4],
    /// The bytes that `target` should hold in the end.
    model: Vec<u8>,
    /// The part of `target` that is given away.
    used: u64,
    /// Memories that were used up, which may still be written to, and the bytes that they should
    /// hold.
    full: Vec<(TestMr, Vec<u8>)>,
    peer: usize,
    sent: u64,
    /// The names of signalled requests, whose completions are due.
    due: VecDeque<(u64, u8, u32)>,
    outstanding: VecDeque<u64>,
    buffers: VecDeque<Buffer>,
    arrivals: VecDeque<Arrival>,
    received: u64,
    posted: u64,
}

const DEPTH: u64 = 16;
/// Bytes of a receive buffer: enough for every message.
const BUFFER: u32 = 4 * 700_000;

fn post_send(sides: &mut [Side], index: usize, send: &Send) {
    let max_inline = 256;
    let peer = sides[index].peer;
    let side = &sides[index];
    // Requests that were taken are free when a completion says so; the model is content with less.
    if side.outstanding.len() as u64 >= DEPTH - 1 {
        return;
    }
    let total: u32 = send.pieces.iter().sum();
    let mut bytes = Vec::new();
    let mut sges = Vec::new();
    let mut at = u64::from(send.start);
    for &piece in &send.pieces {
        bytes.extend(side.source.bytes(at as usize, piece as usize));
        sges.push(side.source.sge(at, piece));
        at += u64::from(piece) + 3;
    }
    match send.opcode {
        wr_opcode::RDMA_READ => return post_read(sides, index, send),
        wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => {
            return post_atomic(sides, index, send);
        }
        wr_opcode::FLUSH | wr_opcode::ATOMIC_WRITE => return post_bare(sides, index, send),
        _ => (),
    }
    let write = matches!(
        send.opcode,
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM
    );
    let with_imm = matches!(
        send.opcode,
        wr_opcode::SEND_WITH_IMM | wr_opcode::RDMA_WRITE_WITH_IMM
    );
    // Before a request that would find the ring full of unsignalled ones, one is signalled.
    let signaled = send.signaled || side.outstanding.len() as u64 == DEPTH - 2;
    let wr_id = side.sent << 8 | index as u64;
    let imm = (side.sent as u32).to_be_bytes();
    let mut wr = Wr {
        wr_id,
        opcode: send.opcode,
        flags: if signaled { wr_flags::SIGNALED } else { 0 },
        sges,
        imm,
        ..Wr::default()
    };
    if send.inline && total <= max_inline {
        wr = wr.inline(&bytes);
    }
    if write {
        let target = &mut sides[peer];
        if target.used + u64::from(total) > MEMORY as u64 {
            return;
        }
        wr.remote = target.target.remote(target.used);
        let start = target.used as usize;
        target.model[start..start + bytes.len()].copy_from_slice(&bytes);
        target.used += u64::from(total);
    }
    if !write || with_imm {
        sides[peer].arrivals.push_back(Arrival {
            bytes: (!write).then_some(bytes),
            length: total,
            imm: with_imm.then_some(imm),
        });
    }
    let side = &mut sides[index];
    side.qp.post_send(&wr);
    side.sent += 1;
    side.outstanding.push_back(wr_id);
    if signaled {
        let opcode = if write {
            wc_opcode::RDMA_WRITE
        } else {
            wc_opcode::SEND
        };
        side.due.push_back((wr_id, opcode, total));
    }
}

/// Reads the peer's source memory, which does not change, into the memory for messages.
fn post_read(sides: &mut [Side], index: usize, send: &Send) {
    let total: u32 = send.pieces.iter().sum();
    let source = sides[sides[index].peer].source.clone();
    let side = &mut sides[index];
    if side.used + u64::from(total) > MEMORY as u64 {
        return;
    }
    let signaled = send.signaled || side.outstanding.len() as u64 == DEPTH - 2;
    let mut sges = Vec::new();
    let mut at = side.used;
    for &piece in &send.pieces {
        sges.push(side.target.sge(at, piece));
        at += u64::from(piece);
    }
    let wr_id = side.sent << 8 | index as u64;
    let flags = if signaled { wr_flags::SIGNALED } else { 0 };
    let wr = Wr::read(wr_id, &sges, source.remote(send.start.into())).with_flags(flags);
    let start = side.used as usize;
    let bytes = source.bytes(send.start as usize, total as usize);
    side.model[start..start + bytes.len()].copy_from_slice(&bytes);
    side.used = at;
    side.qp.post_send(&wr);
    side.sent += 1;
    side.outstanding.push_back(wr_id);
    if signaled {
        side.due.push_back((wr_id, wc_opcode::RDMA_READ, total));
    }
}

/// Changes one of the peer's words, which nobody else does; the old value comes back.
fn post_atomic(sides: &mut [Side], index: usize, send: &Send) {
    let peer = sides[index].peer;
    if sides[index].used + 8 > MEMORY as u64 {
        return;
    }
    let word = send.start as usize % 4;
    let remote = sides[peer].words.remote(word as u64 * 8);
    let (before, x) = (sides[peer].counts[word], u64::from(send.start % 3));
    let side = &mut sides[index];
    let signaled = send.signaled || side.outstanding.len() as u64 == DEPTH - 2;
    let flags = if signaled { wr_flags::SIGNALED } else { 0 };
    let (wr_id, to) = (side.sent << 8 | index as u64, side.target.sge(side.used, 8));
    let start = side.used as usize;
    side.model[start..start + 8].copy_from_slice(&before.to_ne_bytes());
    side.used += 8;
    let (wr, opcode, after) = if send.opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
        let wr = Wr::fetch_add(wr_id, to, remote, x);
        (wr, wc_opcode::FETCH_ADD, before.wrapping_add(x))
    } else {
        let wr = Wr::compare_swap(wr_id, to, remote, x, 1);
        let after = if before == x { 1 } else { before };
        (wr, wc_opcode::COMP_SWAP, after)
    };
    side.qp.post_send(&wr.with_flags(flags));
    side.sent += 1;
    side.outstanding.push_back(wr_id);
    if signaled {
        side.due.push_back((wr_id, opcode, 8));
    }
    sides[peer].counts[word] = after;
}

/// Flushes the peer's words, or writes one of them.
fn post_bare(sides: &mut [Side], index: usize, send: &Send) {
    let peer = sides[index].peer;
    let (word, value) = (send.start as usize % 4, u64::from(send.start));
    let words = &sides[peer].words;
    let side = &sides[index];
    let wr_id = side.sent << 8 | index as u64;
    let (wr, opcode, length) = if send.opcode == wr_opcode::FLUSH {
        let wr = Wr::flush(wr_id, words.remote(0), 32);
        (wr, wc_opcode::FLUSH, 0)
    } else {
        let wr = Wr::atomic_write(wr_id, words.remote(word as u64 * 8), value);
        sides[peer].counts[word] = value;
        (wr, wc_opcode::ATOMIC_WRITE, 8)
    };
    let side = &mut sides[index];
    let signaled = send.signaled || side.outstanding.len() as u64 == DEPTH - 2;
    let flags = if signaled { wr_flags::SIGNALED } else { 0 };
    side.qp.post_send(&wr.with_flags(flags));
    side.sent += 1;
    side.outstanding.push_back(wr_id);
    if signaled {
        side.due.push_back((wr_id, opcode, length));
    }
}

fn post_recv(side: &mut Side, cuts: &[u8]) -> bool {
    if side.posted - side.received >= DEPTH || side.used + u64::from(BUFFER) > MEMORY as u64 {
        return false;
    }
    // Only what arrives is taken off the memory: see `arrive`. The buffer is all that is left.
    let mut pieces = Vec::new();
    let mut at = side.used;
    let mut left = BUFFER;
    for (i, &cut) in cuts.iter().enumerate() {
        let last = i == cuts.len() - 1;
        let length = if last {
            left
        } else {
            (u32::from(cut) * 37).min(left)
        };
        pieces.push((at, length));
        at += u64::from(length);
        left -= length;
    }
    side.used = at;
    let wr_id = side.posted + 1000;
    let sges: Vec<_> = pieces
        .iter()
        .map(|&(at, length)| side.target.sge(at, length))
        .collect();
    side.qp.post_recv(wr_id, &sges);
    side.posted += 1;
    side.buffers.push_back(Buffer {
        wr_id,
        pieces,
        memory: side.full.len(),
    });
    true
}

/// Polls a side and compares what it gets with what is due.
fn poll(side: &mut Side) -> Result<(), TestCaseError> {
    while let Some(wc) = side.cq.poll() {
        prop_assert_eq!(wc.status, Status::Success as u8);
        prop_assert_eq!(
            (wc.qp_num, wc.qp_gen),
            (side.qp.id.number, side.qp.id.generation)
        );
        if wc.opcode & wc_opcode::RECV == 0 {
            let (wr_id, opcode, length) = side.due.pop_front().unwrap();
            prop_assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (wr_id, opcode, length));
            while side.outstanding.pop_front() != Some(wr_id) {}
            let free = side.sent - side.outstanding.len() as u64;
            prop_assert_eq!(u64::from(wc.queue_index), free);
            continue;
        }
        let buffer = side.buffers.pop_front().unwrap();
        let arrival = side.arrivals.pop_front().unwrap();
        side.received += 1;
        prop_assert_eq!(wc.wr_id, buffer.wr_id);
        prop_assert_eq!(u64::from(wc.queue_index), side.received);
        prop_assert_eq!(wc.byte_len, arrival.length);
        prop_assert_eq!(wc.opcode == wc_opcode::RECV, arrival.bytes.is_some());
        prop_assert_eq!(wc.flags & wc_flags::WITH_IMM != 0, arrival.imm.is_some());
        prop_assert_eq!(wc.imm, arrival.imm.unwrap_or_default());
        let mut rest = arrival.bytes.unwrap_or_default();
        let model = match side.full.get_mut(buffer.memory) {
            Some((_, model)) => model,
            None => &mut side.model,
        };
        for (at, length) in buffer.pieces {
            let part: Vec<_> = rest.drain(..rest.len().min(length as usize)).collect();
            model[at as usize..at as usize + part.len()].copy_from_slice(&part);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn bytes_and_completions_arrive_in_order(
        steps in prop::collection::vec(step(5), 1..120),
        shared_cq in any::<bool>(),
    ) {
        let mut w = World::new();
        // Two connections, and a queue pair that is its own peer.
        let peers = [1, 0, 3, 2, 4];
        let common = w.cq(512);
        let mut sides: Vec<Side> = Vec::new();
        for (index, &peer) in peers.iter().enumerate() {
            // Sides of one connection may share a queue for both; here each has its own unless
            // the queue is common to the requesters' other half.
            let cq = if shared_cq && index == 4 { common.clone() } else { w.cq(64) };
            let (source, target) = (w.mr(MEMORY), w.mr(MEMORY));
            source.fill(index as u8);
            sides.push(Side {
                qp: w.qp(&cq, &cq),
                cq,
                source,
                target,
                words: w.mr(32),
                counts: [0; 4],
                model: vec![0; MEMORY],
                used: 0,
                full: Vec::new(),
                peer,
                sent: 0,
                due: VecDeque::new(),
                outstanding: VecDeque::new(),
                buffers: VecDeque::new(),
                arrivals: VecDeque::new(),
                received: 0,
                posted: 0,
            });
        }
        for index in 0..sides.len() {
            let (qp, peer) = (sides[index].qp.clone(), sides[sides[index].peer].qp.clone());
            w.connect(&qp, &peer);
        }
        for step in &steps {
            match step {
                Step::Send(index, send) => post_send(&mut sides, *index, send),
                Step::Recv(index, cuts) => {
                    post_recv(&mut sides[*index], cuts);
                }
                Step::Run(budget) => {
                    let outcome = w.engine.run(&mut w.host, *budget, None);
                    prop_assert!(outcome.used.requests <= budget.requests);
                    prop_assert!(outcome.used.bytes <= budget.bytes + 4096);
                }
                Step::Time(time) => w.host.now += time,
            }
            for side in &mut sides {
                poll(side)?;
            }
        }
        // A message that still waits for a receive request gets one: in memory of its own, for the
        // other may be used up.
        loop {
            w.settle(100 * MS);
            for side in &mut sides {
                poll(side)?;
            }
            let mut waiting = false;
            for side in &mut sides {
                if side.arrivals.len() > side.buffers.len() {
                    waiting = true;
                    if !post_recv(side, &[0]) {
                        let target = std::mem::replace(&mut side.target, w.mr(MEMORY));
                        let model = std::mem::replace(&mut side.model, vec![0; MEMORY]);
                        side.full.push((target, model));
                        side.used = 0;
                        prop_assert!(post_recv(side, &[0]));
                    }
                }
            }
            if !waiting {
                break;
            }
        }
        for side in &sides {
            prop_assert!(side.due.is_empty());
            prop_assert!(side.arrivals.is_empty());
            // Compared as a whole, since a difference of so many bytes cannot be read anyway.
            prop_assert!(side.target.bytes(0, MEMORY) == side.model);
            for (target, model) in &side.full {
                prop_assert!(target.bytes(0, MEMORY) == *model);
            }
            let counts: Vec<u8> = side.counts.iter().flat_map(|n| n.to_ne_bytes()).collect();
            prop_assert_eq!(side.words.bytes(0, 32), counts);
            let (mine, theirs) = (w.query(&side.qp).attr, w.query(&sides[side.peer].qp).attr);
            prop_assert_eq!(mine.sq_psn, theirs.rq_psn);
        }
        prop_assert_eq!(w.events(), []);
    }
}
