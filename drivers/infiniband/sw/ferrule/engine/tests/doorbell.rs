// SPDX-License-Identifier: GPL-2.0

//! Doorbells, as one thread sees them. `tests/loom` has the races.

use ferrule_engine::{abi, Budget, Status};

use crate::sim::*;
#[test]
fn scan_costs_what_was_rung_not_what_exists() {
    let mut w = World::new();
    let cq = w.cq(1024);
    let spec = QpSpec {
        depth: 2,
        ..QpSpec::default()
    };
    let qps: Vec<_> = (0..3000).map(|_| w.qp_with(&spec, &cq, &cq)).collect();
    for qp in &qps {
        w.connect(qp, qp);
    }
    w.run();
    let before = w.engine.counters();
    let leaf_reads = || w.context.doorbells.0.leaf_reads.get();
    let reads = leaf_reads();
    // Nothing rung: nothing looked at but whether something was.
    w.engine.run(&mut w.host, PLENTY, None);
    let mut asked = before;
    asked.contexts += 1;
    assert_eq!(leaf_reads(), reads);
    assert_eq!(w.engine.counters(), asked);
    for (i, n) in [5, 6, 2000].into_iter().enumerate() {
        qps[n].post_send(&Wr::write(i as u64, &[], (0, 0)));
    }
    w.engine.run(&mut w.host, PLENTY, None);
    let after = w.engine.counters();
    assert_eq!(after.doorbells - before.doorbells, 3);
    assert_eq!(after.turns - before.turns, 3);
    assert_eq!(after.context_scans - before.context_scans, 1);
    assert_eq!(leaf_reads() - reads, 2, "two words of 64 doorbells");
    assert_eq!(cq.drain().len(), 3);
}

#[test]
fn doorbell_rung_again_before_it_is_taken_is_one_doorbell() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    w.run();
    for i in 0..5 {
        qp.post_send(&Wr::write(i, &[], (0, 0)));
    }
    w.run();
    assert_eq!(w.engine.counters().doorbells, 1);
    assert_eq!(cq.drain().len(), 5);
}

/// Queue pairs that are made forget nothing that another one has rung, in their own word of
/// doorbells or in others.
#[test]
fn new_queue_pairs_forget_no_doorbell_of_another() {
    let mut w = World::new();
    let cq = w.cq(16);
    let spec = QpSpec {
        depth: 2,
        ..QpSpec::default()
    };
    let qp = w.qp_with(&spec, &cq, &cq);
    w.connect(&qp, &qp);
    w.run();
    for wr_id in 0..3 {
        qp.post_send(&Wr::write(wr_id, &[], (0, 0)));
        let _more: Vec<_> = (0..64).map(|_| w.qp_with(&spec, &cq, &cq)).collect();
        w.run();
        cq.expect(wr_id, Status::Success);
    }
}

#[test]
fn nobody_rings_for_another() {
    let mut w = World::new();
    let cq = w.cq(16);
    let other = w.context();
    let mine = w.qp(&cq, &cq);
    let _others = w.qp_in(Some(&other), &QpSpec::default(), &cq, &cq);
    let kernels = w.qp_in(None, &QpSpec::default(), &cq, &cq);
    for qp in [&mine, &kernels] {
        w.connect(qp, qp);
        w.run();
        qp.put_send(&Wr::write(1, &[], (0, 0)));
        other.doorbells.ring(qp.id.number & 0xffff);
    }
    other.doorbells.ring(0);
    other.doorbells.ring(4095);
    // Where no queue pair ever was, nobody looks.
    other.doorbells.ring(65535);
    w.run();
    cq.expect_none();
    // The first counts twice, since its bit is still rung when the others are looked for. The last
    // was in a word of which the other context has nothing.
    assert_eq!(w.engine.counters().stray_doorbells, 4);
    // Those whose they are do.
    mine.ring();
    w.engine.ring_qp(kernels.id.number);
    w.run();
    assert_eq!(cq.drain().len(), 2);
}

#[test]
fn own_context_is_served_first() {
    let mut w = World::new();
    let cq = w.cq(256);
    let caller = w.context();
    let spec = QpSpec::default();
    let theirs: Vec<_> = (0..10).map(|_| w.qp(&cq, &cq)).collect();
    let own = w.qp_in(Some(&caller), &spec, &cq, &cq);
    for qp in theirs.iter().chain([&own]) {
        w.connect(qp, qp);
    }
    w.run();
    for (i, qp) in theirs.iter().enumerate() {
        qp.post_send(&Wr::write(i as u64, &[], (0, 0)));
    }
    // Theirs are known and wait already when the caller comes.
    assert!(w.engine.run(&mut w.host, LOOKS_ALONE, None).more);
    own.post_send(&Wr::write(100, &[], (0, 0)));
    assert!(
        w.engine
            .run(&mut w.host, LOOKS_ALONE, Some(caller.id))
            .first
    );
    let one = Budget {
        requests: 1,
        bytes: 1 << 20,
    };
    w.engine.run(&mut w.host, one, Some(caller.id));
    cq.expect(100, Status::Success);
    cq.expect_none();
    w.run();
    for i in 0..10 {
        cq.expect(i, Status::Success);
    }
}

/// The outcome tells of the caller's own doorbells that are left, though no queue pair waits for a
/// turn yet.
#[test]
fn doorbells_of_the_caller_that_are_left_are_told() {
    let mut w = World::new();
    let cq = w.cq(16);
    let caller = w.context();
    let spec = QpSpec {
        depth: 2,
        ..QpSpec::default()
    };
    let qps: Vec<_> = (0..200)
        .map(|_| w.qp_in(Some(&caller), &spec, &cq, &cq))
        .collect();
    for qp in &qps {
        w.connect(qp, qp);
    }
    w.run();
    for qp in &qps {
        qp.ring();
    }
    let few = Budget {
        requests: 8,
        ..PLENTY
    };
    let outcome = w.engine.run(&mut w.host, few, Some(caller.id));
    assert!(outcome.first && outcome.more);
    while w.engine.run(&mut w.host, few, Some(caller.id)).first {}
    assert!(!w.engine.has_work());
}

/// A run for one context alone does nothing for others, not even for doorbells that wait already.
#[test]
fn one_context_is_served_alone() {
    let mut w = World::new();
    let cq = w.cq(256);
    let caller = w.context();
    let theirs = w.qp(&cq, &cq);
    let unknown = w.qp(&cq, &cq);
    let own = w.qp_in(Some(&caller), &QpSpec::default(), &cq, &cq);
    for qp in [&theirs, &unknown, &own] {
        w.connect(qp, qp);
    }
    w.run();
    theirs.post_send(&Wr::write(1, &[], (0, 0)));
    assert!(w.engine.run(&mut w.host, LOOKS_ALONE, None).more);
    unknown.post_send(&Wr::write(2, &[], (0, 0)));
    own.post_send(&Wr::write(100, &[], (0, 0)));
    own.post_send(&Wr::write(101, &[], (0, 0)));

    let one = Budget {
        requests: 1,
        bytes: 1 << 20,
    };
    assert!(w.engine.run_for(&mut w.host, LOOKS_ALONE, caller.id).first);
    cq.expect_none();
    let outcome = w.engine.run_for(&mut w.host, one, caller.id);
    assert!(outcome.more && outcome.first);
    cq.expect(100, Status::Success);
    let outcome = w.engine.run_for(&mut w.host, PLENTY, caller.id);
    assert!(outcome.more && !outcome.first);
    cq.expect(101, Status::Success);
    cq.expect_none();

    let outcome = w.engine.run(&mut w.host, PLENTY, Some(caller.id));
    assert!(!outcome.more && !outcome.first);
    cq.expect(1, Status::Success);
    cq.expect(2, Status::Success);
}

#[test]
fn turns_are_taken_in_order() {
    let mut w = World::new();
    let cq = w.cq(1024);
    let spec = QpSpec {
        depth: 128,
        ..QpSpec::default()
    };
    let (a, b) = (w.qp_with(&spec, &cq, &cq), w.qp_with(&spec, &cq, &cq));
    for qp in [&a, &b] {
        w.connect(qp, qp);
        for i in 0..100 {
            qp.post_send(&Wr::write(i, &[], (0, 0)));
        }
    }
    w.run();
    let order: Vec<_> = cq
        .drain()
        .iter()
        .map(|wc| wc.qp_num == a.id.number)
        .collect();
    let longest = order.chunk_by(|x, y| x == y).map(<[bool]>::len).max();
    assert_eq!(order.len(), 200);
    assert_eq!(longest, Some(32), "a turn has so many requests");
}

/// While the engine is awake it looks at contexts that have rung of late, not at all that are open.
#[test]
fn a_look_costs_what_rings_not_what_is_open() {
    let mut w = World::new();
    let cq = w.cq(64);
    assert!(w.try_sleep());
    let contexts: Vec<_> = (0..100).map(|_| w.context()).collect();
    let qps: Vec<_> = contexts
        .iter()
        .map(|context| w.qp_in(Some(context), &QpSpec::default(), &cq, &cq))
        .collect();
    for qp in &qps {
        w.connect(qp, qp);
    }
    w.engine.wake();
    let looks = |w: &mut World| {
        let before = w.engine.counters().contexts;
        w.engine.run(&mut w.host, PLENTY, None);
        w.engine.counters().contexts - before
    };
    assert_eq!(looks(&mut w), 0);
    for i in [5, 50, 7] {
        assert!(qps[i].ring(), "asleep: kick");
        w.engine.kicked(contexts[i].id);
        assert!(!qps[i].ring(), "awake: no kick");
    }
    assert_eq!(looks(&mut w), 3);
    // One of them goes on, and the others are forgotten, but for one that rings before the last
    // look.
    for i in 0.. {
        qps[7].post_send(&Wr::write(i, &[], (0, 0)));
        if i == 1000 {
            qps[50].ring();
        }
        let found = looks(&mut w);
        cq.expect(i, Status::Success);
        if found != 3 {
            assert_eq!((i, found), (1024, 2));
            break;
        }
    }
    assert!(qps[5].ring());
    assert!(!qps[50].ring() && !qps[7].ring());
    // A context that is closed is not looked at either.
    w.engine.remove_qp(qps[50].id.number).unwrap();
    drop(w.engine.remove_context(contexts[50].id).unwrap());
    assert_eq!(looks(&mut w), 1);
    w.engine.kicked(contexts[50].id);
    assert!(w.try_sleep());
    assert_eq!(looks(&mut w), 0);
    assert!(qps[7].ring());
}

#[test]
fn contexts_come_and_go() {
    let mut w = World::new();
    let cq = w.cq(64);
    let mut contexts: Vec<_> = (0..5).map(|_| w.context()).collect();
    for gone in [0, 3, 1] {
        let context = contexts.remove(gone);
        drop(w.engine.remove_context(context.id).unwrap());
        assert!(w.engine.remove_context(context.id).is_err());
    }
    contexts.push(w.context());
    for (i, context) in contexts.iter().enumerate() {
        let qp = w.qp_in(Some(context), &QpSpec::default(), &cq, &cq);
        w.connect(&qp, &qp);
        w.run();
        qp.post_send(&Wr::write(i as u64, &[], (0, 0)));
    }
    w.run();
    assert_eq!(cq.drain().len(), 3);
}

/// Doorbells of queue pairs that the context does not have cost nothing, not even a look.
#[test]
fn doorbells_of_others_cost_nothing() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let memory = w.context.doorbells.0.clone();
    for word in memory
        .leaf
        .borrow_mut()
        .iter_mut()
        .chain(memory.top.borrow_mut().iter_mut())
    {
        *word = !0;
    }
    w.context.doorbells.ring_bits();
    let reads = memory.leaf_reads.get();
    w.run();
    assert_eq!(
        memory.leaf_reads.get() - reads,
        1,
        "the one word with the context's own"
    );
    let counters = w.engine.counters();
    assert_eq!((counters.doorbells, counters.stray_doorbells), (64, 62));

    // A queue pair of another word begins with its doorbell at rest, and can ring it.
    let cq = w.cq(64);
    let spec = QpSpec {
        depth: 2,
        ..QpSpec::default()
    };
    let more: Vec<_> = (0..4200).map(|_| w.qp_with(&spec, &cq, &cq)).collect();
    let last = more.last().unwrap();
    assert!(last.id.number & abi::DB_INDEX_MASK > 4096);
    w.connect(last, last);
    let mr = w.mr(64);
    last.post_recv(1, &[mr.sge(0, 8)]);
    last.post_send(&Wr::send(2, &[mr.sge(32, 8)]));
    w.run();
    assert_eq!(cq.drain().len(), 2);
    drop((a, b));
}

/// Turns and timers that find nothing to do are counted, so that no number of them exceeds a
/// budget.
#[test]
fn idle_turns_are_counted() {
    let mut w = World::new();
    let cq = w.cq(1024);
    let mr = w.mr(64);
    let qps: Vec<_> = (0..100).map(|_| w.qp(&cq, &cq)).collect();
    for qp in &qps {
        w.connect(qp, qp);
        qp.ring();
    }
    let budget = Budget {
        requests: 10,
        ..PLENTY
    };
    let turns = |w: &World| w.engine.counters().turns;
    let before = turns(&w);
    assert!(w.engine.run(&mut w.host, LOOKS_ALONE, None).more);
    let outcome = w.engine.run(&mut w.host, budget, None);
    assert_eq!((turns(&w) - before, outcome.more), (5, true));
    w.run();

    // All receivers are not ready, and all timers are due at once.
    for qp in &qps {
        qp.post_send(&Wr::send(1, &[mr.sge(0, 8)]));
    }
    w.run();
    w.host.now += 1000 * MS;
    let (before, retries) = (turns(&w), w.engine.counters().receiver_not_ready);
    let outcome = w.engine.run(&mut w.host, budget, None);
    assert_eq!(outcome.used.requests, 10);
    assert!(outcome.more, "timers are left");
    assert_eq!(turns(&w), before);
    w.run();
    assert_eq!(w.engine.counters().receiver_not_ready - retries, 100);
}

/// Contexts have turns one after the other: how many queue pairs one rings is nothing to another.
#[test]
fn a_context_is_not_delayed_by_the_queue_pairs_of_another() {
    let mut w = World::new();
    let cq = w.cq(1024);
    let mr = w.mr(1 << 20);
    let other = w.context();
    let many: Vec<_> = (0..100).map(|_| w.qp(&cq, &cq)).collect();
    let mine = w.cq(16);
    let qp = w.qp_in(Some(&other), &QpSpec::default(), &mine, &mine);
    for qp in many.iter().chain([&qp]) {
        w.connect(qp, qp);
    }
    for qp in &many {
        for _ in 0..8 {
            qp.post_send(&Wr::write(1, &[mr.sge(0, 1 << 19)], mr.remote(1 << 19)));
        }
    }
    // All of them wait for their turns when the other context rings.
    let budget = Budget {
        bytes: 1 << 18,
        ..PLENTY
    };
    assert!(w.engine.run(&mut w.host, budget, None).more);
    qp.post_send(&Wr::write(7, &[mr.sge(0, 64)], mr.remote(64)));
    let bytes = w.engine.counters().bytes;
    while mine.peek().is_none() {
        assert!(w.engine.run(&mut w.host, budget, None).more);
    }
    assert!(w.engine.counters().bytes - bytes <= 2 << 18);
    // And before all others if it asks by itself.
    qp.post_send(&Wr::write(8, &[mr.sge(0, 64)], mr.remote(64)));
    w.engine.run(&mut w.host, LOOKS_ALONE, Some(other.id));
    w.engine.run(
        &mut w.host,
        Budget {
            requests: 1,
            ..PLENTY
        },
        Some(other.id),
    );
    assert_eq!(mine.drain().len(), 2);
}
