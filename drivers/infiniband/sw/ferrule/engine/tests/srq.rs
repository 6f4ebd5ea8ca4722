// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: the queue pair that takes a request, the limit event, and requests that
//! stay for others.

use std::collections::VecDeque;

use ferrule_engine::host::Queue;
use ferrule_engine::{abi, Access, Error, QpEvent, SrqEvent, State, Status};
use proptest::prelude::*;

use crate::sim::*;
use abi::{wr_flags, wr_opcode};

const DEPTH: u32 = 16;

/// Connected pairs, whose second halves take from one shared receive queue.
fn pairs(w: &mut World, srq: &TestSrq, count: usize) -> Vec<(End, End)> {
    (0..count)
        .map(|_| {
            let (ca, cb) = (w.cq(64), w.cq(64));
            let a = w.qp(&ca, &ca);
            let spec = QpSpec {
                srq: Some(srq.number),
                ..QpSpec::default()
            };
            let b = w.qp_with(&spec, &cb, &cb);
            w.connect(&a, &b);
            w.connect(&b, &a);
            (End { qp: a, cq: ca }, End { qp: b, cq: cb })
        })
        .collect()
}

fn send(end: &End, wr_id: u64, sge: (u64, u32, u32)) {
    end.qp.post_send(&Wr::send(wr_id, &[sge]));
}

#[test]
fn requests_are_taken_in_order_by_whoever_needs_one() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 2);
    let pairs = pairs(&mut w, &srq, 3);
    let (from, to) = (w.mr(4096), w.mr(4096));
    from.fill(7);
    for i in 0..6 {
        assert!(srq.post(100 + i, &[to.sge(i * 100, 100)]));
    }
    for (round, &which) in [2usize, 0, 1, 1, 0, 2].iter().enumerate() {
        send(
            &pairs[which].0,
            round as u64,
            from.sge(round as u64 * 64, 64),
        );
        w.run();
        let wc = pairs[which]
            .1
            .cq
            .expect(100 + round as u64, Status::Success);
        assert_eq!(wc.qp_num, pairs[which].1.qp.id.number);
        assert_eq!(wc.byte_len, 64);
        assert_eq!(to.bytes(round * 100, 64), from.bytes(round * 64, 64));
        pairs[which].0.cq.expect(round as u64, Status::Success);
        // A slot is free as soon as its request was taken.
        assert_eq!(srq.consumer(), round as u32 + 1);
    }
    // Each request was read once.
    assert!(srq.queue.reads.borrow()[..6 * srq.ring.stride as usize]
        .iter()
        .all(|&reads| reads <= 1));
}

#[test]
fn an_empty_queue_is_receiver_not_ready() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 1);
    let (a, b) = &pairs[0];
    let mr = w.mr(64);
    send(a, 1, mr.sge(0, 8));
    let outcome = w.run();
    assert!(outcome.deadline.is_some());
    a.cq.expect_none();
    assert!(srq.post(2, &[mr.sge(8, 8)]));
    w.settle(10 * MS);
    b.cq.expect(2, Status::Success);
    a.cq.expect(1, Status::Success);
    assert!(w.engine.counters().receiver_not_ready >= 1);
}

#[test]
fn write_with_immediate_takes_one_and_plain_write_none() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 1);
    let (a, b) = &pairs[0];
    let mr = w.mr(64);
    assert!(srq.post(9, &[]));
    a.qp.post_send(&Wr::write(1, &[mr.sge(0, 8)], mr.remote(32)));
    w.run();
    assert_eq!(srq.consumer(), 0);
    let write = Wr::write(2, &[mr.sge(0, 8)], mr.remote(32));
    a.qp.post_send(
        &write
            .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM)
            .with_imm([1, 2, 3, 4]),
    );
    w.run();
    assert_eq!(b.cq.expect(9, Status::Success).imm, [1, 2, 3, 4]);
    assert_eq!(srq.consumer(), 1);
}

#[test]
fn the_limit_is_told_once_below_it() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 1);
    let (a, _) = &pairs[0];
    let mr = w.mr(64);
    let limit = Event::Srq(srq.name, SrqEvent::LimitReached);
    for i in 0..10 {
        assert!(srq.post(i, &[mr.sge(0, 8)]));
    }
    assert_eq!(w.set_srq_limit(&srq, DEPTH + 1), Err(Error::Invalid));
    w.set_srq_limit(&srq, 7).unwrap();
    assert_eq!(w.query_srq(&srq).limit, 7);
    // Seven are not fewer than seven.
    for i in 0..3 {
        send(a, i, mr.sge(0, 8));
    }
    w.run();
    assert_eq!(w.events(), []);
    send(a, 3, mr.sge(0, 8));
    w.run();
    assert_eq!(w.events(), [limit]);
    assert_eq!(w.query_srq(&srq).limit, 0);
    send(a, 4, mr.sge(0, 8));
    w.run();
    assert_eq!(w.events(), []);
    // There are five: a limit of five is not undercut, one of six is at once.
    w.set_srq_limit(&srq, 5).unwrap();
    assert_eq!(w.events(), []);
    w.set_srq_limit(&srq, 6).unwrap();
    assert_eq!(w.events(), [limit]);
    // Requests that were posted since the index was last read count.
    w.set_srq_limit(&srq, 5).unwrap();
    assert!(srq.post(20, &[mr.sge(0, 8)]));
    send(a, 5, mr.sge(0, 8));
    w.run();
    assert_eq!(w.events(), []);
    w.set_srq_limit(&srq, 0).unwrap();
    for i in 6..11 {
        send(a, i, mr.sge(0, 8));
    }
    w.run();
    assert_eq!(w.events(), []);
}

#[test]
fn the_memory_is_that_of_the_queues_own_domain() {
    let mut w = World::new();
    let srq = w.srq(2, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 2);
    let (from, mine) = (w.mr(64), w.mr(64));
    let theirs = w.mr_with(2, Access(1), memory::shared(64), 0, 64);
    from.fill(3);
    assert!(srq.post(1, &[theirs.sge(0, 64)]));
    assert!(srq.post(2, &[mine.sge(0, 64)]));
    send(&pairs[0].0, 3, from.sge(0, 64));
    w.run();
    pairs[0].1.cq.expect(1, Status::Success);
    assert_eq!(theirs.bytes(0, 64), from.bytes(0, 64));
    // A key of the queue pair's domain, which is another one, opens nothing here.
    send(&pairs[1].0, 4, from.sge(0, 64));
    w.run();
    pairs[1].1.cq.expect(2, Status::LocalProtection);
    pairs[1].0.cq.expect(4, Status::RemoteOperation);
    w.state(&pairs[1].1.qp, State::Err);
    assert_eq!(mine.bytes(0, 64), [0; 64]);
    // The other one goes on.
    assert!(srq.post(5, &[theirs.sge(0, 64)]));
    send(&pairs[0].0, 6, from.sge(0, 64));
    w.run();
    pairs[0].1.cq.expect(5, Status::Success);
}

#[test]
fn in_error_the_rest_stays_for_others_and_the_last_is_told() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 2);
    let mr = w.mr(1 << 20);
    for i in 0..4 {
        assert!(srq.post(10 + i, &[mr.sge(0, 1 << 20)]));
    }
    // One request is at hand when the queue pair is moved to error: a part of a long message.
    send(&pairs[0].0, 1, mr.sge(0, 1 << 20));
    let budget = ferrule_engine::Budget {
        requests: 1,
        bytes: 1000,
    };
    w.engine.run(&mut w.host, budget, None);
    assert_eq!(srq.consumer(), 1);
    let b = &pairs[0].1;
    b.qp.post_send(&Wr::send(2, &[mr.sge(0, 8)]));
    w.to(&b.qp, State::Err);
    w.run();
    let done = b.cq.drain();
    let ids: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(ids, [(2, 5), (10, 5)]);
    let told = Event::Qp(b.qp.name, QpEvent::LastRequestReached);
    assert_eq!(w.events(), [told]);
    assert_eq!(srq.consumer(), 1);
    // It is told once, however many messages come; and again in the next life.
    b.qp.post_send(&Wr::send(3, &[mr.sge(0, 8)]));
    w.run();
    b.cq.expect(3, Status::Flushed);
    assert_eq!(w.events(), []);
    w.to(&b.qp, State::Reset);
    b.qp.rewind();
    w.connect(&b.qp, &pairs[0].0.qp);
    w.to(&b.qp, State::Err);
    w.run();
    assert_eq!(w.events(), [told]);
    // The others are there for the other one.
    send(&pairs[1].0, 4, mr.sge(0, 8));
    w.run();
    pairs[1].1.cq.expect(11, Status::Success);
}

#[test]
fn a_message_too_long_ends_its_request() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 1);
    let (a, b) = &pairs[0];
    let mr = w.mr(64);
    assert!(srq.post(1, &[mr.sge(0, 8)]));
    assert!(srq.post(2, &[mr.sge(0, 8)]));
    send(a, 3, mr.sge(0, 9));
    w.run();
    b.cq.expect(1, Status::LocalLength);
    a.cq.expect(3, Status::RemoteInvalidRequest);
    b.cq.expect_none();
    assert_eq!(srq.consumer(), 1);
    let told = Event::Qp(b.qp.name, QpEvent::LastRequestReached);
    assert_eq!(w.events(), [told]);
}

#[test]
fn malformed_requests_end_at_the_queue_pair_that_took_them() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 2);
    let mr = w.mr(64);
    // Two entries where one may be.
    assert!(srq.post(1, &[mr.sge(0, 8), mr.sge(8, 8)]));
    assert!(srq.post(2, &[mr.sge(0, 8)]));
    send(&pairs[0].0, 3, mr.sge(0, 8));
    w.run();
    pairs[0].1.cq.expect(1, Status::LocalOperation);
    pairs[0].0.cq.expect(3, Status::RemoteOperation);
    send(&pairs[1].0, 4, mr.sge(0, 8));
    w.run();
    pairs[1].1.cq.expect(2, Status::Success);
}

#[test]
fn a_jump_breaks_the_queue_and_who_takes_from_it() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 2);
    let mr = w.mr(64);
    assert!(srq.post(1, &[mr.sge(0, 8)]));
    srq.set_producer(DEPTH + 1);
    for (end, peer) in &pairs {
        send(end, 3, mr.sge(0, 8));
        w.run();
        end.cq.expect(3, Status::RemoteOperation);
        peer.cq.expect_none();
        w.state(&peer.qp, State::Err);
    }
    let events = w.events();
    let broken = Event::Srq(srq.name, SrqEvent::Error);
    assert_eq!(events.iter().filter(|&&event| event == broken).count(), 1);
    for (_, peer) in &pairs {
        assert!(events.contains(&Event::Qp(peer.qp.name, QpEvent::Fatal)));
    }
    assert_eq!(w.engine.counters().producer_jumps, 1);
}

#[test]
fn a_queue_in_use_is_not_removed() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pairs = pairs(&mut w, &srq, 2);
    for (_, end) in &pairs {
        assert_eq!(w.engine.remove_srq(srq.number).err(), Some(Error::Busy));
        w.engine.remove_qp(end.qp.id.number).unwrap();
    }
    assert!(w.engine.remove_srq(srq.number).is_ok());
    assert_eq!(w.engine.remove_srq(srq.number).err(), Some(Error::NotFound));
    assert_eq!(w.engine.query_srq(srq.number), Err(Error::NotFound));
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever is posted and sent in which order: each request is completed once, in the order of
    /// each sender, holding what was sent; and the limit is told when there are fewer, and once.
    #[test]
    fn any_order_of_posts_and_messages(
        steps in prop::collection::vec((0..3u8, 0..4usize, 1..300u32, 1..6u32), 1..300),
    ) {
        let mut w = World::new();
        let srq = w.srq(1, DEPTH, 2);
        let pairs = pairs(&mut w, &srq, 4);
        let (from, to) = (w.mr(1 << 16), w.mr(1 << 20));
        from.fill(1);
        let mut posted = 0u64;
        let mut taken = 0u64;
        let mut waiting: Vec<VecDeque<u32>> = vec![VecDeque::new(); 4];
        let mut limit = 0;
        for (kind, which, length, new_limit) in steps {
            match kind {
                0 => {
                    let start = posted % 1024 * 1000;
                    if srq.post(posted, &[to.sge(start, 7), to.sge(start + 7, 500)]) {
                        posted += 1;
                    } else {
                        prop_assert_eq!(posted - taken, u64::from(DEPTH));
                    }
                }
                1 if waiting[which].len() < 8 => {
                    waiting[which].push_back(length);
                    let wr = Wr::send(0, &[from.sge(u64::from(length), length)]);
                    pairs[which].0.qp.post_send(&wr.with_flags(wr_flags::SIGNALED));
                }
                2 => {
                    w.set_srq_limit(&srq, new_limit).unwrap();
                    limit = new_limit;
                }
                _ => (),
            }
            // Senders that were told to wait try again.
            w.host.now += 20 * MS;
            w.run();
            for (which, (sender, receiver)) in pairs.iter().enumerate() {
                for wc in receiver.cq.drain() {
                    let length = waiting[which].pop_front().unwrap();
                    prop_assert_eq!(wc.status, Status::Success as u8);
                    prop_assert_eq!(wc.byte_len, length);
                    let start = (wc.wr_id % 1024 * 1000) as usize;
                    let sent = from.bytes(length as usize, length as usize);
                    prop_assert_eq!(to.bytes(start, length as usize), sent);
                    taken += 1;
                }
                sender.cq.drain();
            }
            prop_assert_eq!(u64::from(srq.consumer()), taken);
            let events = w.events();
            let left = (posted - taken) as u32;
            if limit != 0 && left < limit {
                prop_assert_eq!(events, [Event::Srq(srq.name, SrqEvent::LimitReached)]);
                limit = 0;
            } else {
                prop_assert_eq!(events, []);
            }
            prop_assert_eq!(w.query_srq(&srq).limit, limit);
        }
    }
}

/// Sends so many messages, which take the requests from `first` on.
fn take(w: &mut World, pair: &(End, End), mr: &TestMr, first: u64, end: u64) {
    for i in first..end {
        send(&pair.0, i, mr.sge(0, 8));
        w.run();
        pair.0.cq.expect(i, Status::Success);
        pair.1.cq.expect(i, Status::Success);
    }
}

#[test]
fn another_ring_goes_on_with_what_waits() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let pair = pairs(&mut w, &srq, 1).remove(0);
    let mr = w.mr(64);
    for i in 0..12 {
        assert!(srq.post(i, &[mr.sge(0, 8)]));
    }
    take(&mut w, &pair, &mr, 0, 10);
    for i in 12..26 {
        assert!(srq.post(i, &[mr.sge(0, 8)]));
    }
    assert!(!srq.post(26, &[]));

    let larger = srq.copy(4 * DEPTH);
    assert_eq!(w.resize_srq(&larger, None), Ok(srq.queue.size()));
    assert_eq!(w.query_srq(&srq).max_wr, 4 * DEPTH);
    assert_eq!(larger.consumer(), 10);
    for i in 26..10 + 4 * u64::from(DEPTH) {
        assert!(larger.post(i, &[mr.sge(0, 8)]));
    }
    take(&mut w, &pair, &mr, 10, 66);
    // The old ring is not looked at any more.
    assert_eq!(srq.consumer(), 10);

    // Eight wait.
    let small = larger.copy(4);
    assert_eq!(w.resize_srq(&small, None), Err(Error::Invalid));
    let fitting = larger.copy(8);
    assert_eq!(w.resize_srq(&fitting, None), Ok(larger.queue.size()));
    take(&mut w, &pair, &mr, 66, 74);
    assert_eq!(fitting.consumer(), 74);
}

#[test]
fn another_ring_and_the_limit() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 1);
    let limit = Event::Srq(srq.name, SrqEvent::LimitReached);
    for i in 0..4 {
        assert!(srq.post(i, &[]));
    }
    w.set_srq_limit(&srq, 4).unwrap();
    // A limit above the size is refused, the one that it has and a new one.
    assert_eq!(w.resize_srq(&srq.copy(2), None), Err(Error::Invalid));
    let copy = srq.copy(8);
    assert_eq!(w.resize_srq(&copy, Some(9)), Err(Error::Invalid));
    assert_eq!(w.query_srq(&srq).max_wr, DEPTH);
    assert_eq!(w.query_srq(&srq).limit, 4);
    // One that is undercut is told at once.
    assert!(w.resize_srq(&copy, Some(4)).is_ok());
    assert_eq!(w.events(), []);
    assert!(w.resize_srq(&copy.copy(16), Some(5)).is_ok());
    assert_eq!(w.events(), [limit]);
    assert_eq!(w.query_srq(&srq).limit, 0);
}

#[test]
fn another_ring_that_makes_no_sense_is_refused() {
    let mut w = World::new();
    let srq = w.srq(1, DEPTH, 2);
    let good = srq.copy(2 * DEPTH);
    let bad = |change: &dyn Fn(&mut TestSrq)| {
        let mut copy = srq.copy(2 * DEPTH);
        change(&mut copy);
        copy
    };
    for copy in [
        bad(&|copy| copy.ring.depth = 0),
        bad(&|copy| copy.ring.depth = 3),
        bad(&|copy| copy.ring.depth = 4 * DEPTH),
        bad(&|copy| copy.ring.stride = 32),
        bad(&|copy| copy.ring.offset = 8),
        bad(&|copy| copy.ctrl += 8),
        bad(&|copy| copy.ctrl += 128),
        // More than its slots are said to wait.
        bad(&|copy| copy.set_producer(2 * DEPTH + 1)),
    ] {
        assert_eq!(w.resize_srq(&copy, None), Err(Error::Invalid));
    }
    let mut unknown = good.clone();
    unknown.number += 1;
    assert_eq!(w.resize_srq(&unknown, None), Err(Error::NotFound));
    assert!(w.resize_srq(&good, None).is_ok());
}
