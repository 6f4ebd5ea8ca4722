// SPDX-License-Identifier: GPL-2.0

//! Doorbells, sleep and wake-up, as one thread sees them. `tests/loom.rs` has the races.

mod sim;

use ferrule_engine::{Budget, Status};

use sim::*;

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
    let before = *w.engine.counters();
    let leaf_reads = || w.context.doorbells.0.leaf_reads.get();
    let reads = leaf_reads();
    // Nothing rung: nothing looked at but whether something was.
    w.engine.run(&mut w.host, PLENTY, None);
    let mut asked = before;
    asked.contexts += 1;
    assert_eq!(leaf_reads(), reads);
    assert_eq!(*w.engine.counters(), asked);
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

#[test]
fn nobody_rings_for_another() {
    let mut w = World::new();
    let cq = w.cq(16);
    let other = w.context();
    let mine = w.qp(&cq, &cq);
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
    let none = Budget {
        requests: 0,
        bytes: 0,
    };
    assert!(w.engine.run(&mut w.host, none, None).more);
    own.post_send(&Wr::write(100, &[], (0, 0)));
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

#[test]
fn sleep_is_told_and_refused_where_something_was_rung() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    w.run();
    let sleeping = w.context.doorbells.clone();
    assert!(!qp.ring(), "awake: no kick");
    assert!(!w.engine.try_sleep(), "rung meanwhile");
    assert!(!sleeping.0.sleeping.get());
    w.run();
    assert!(w.engine.try_sleep());
    assert!(sleeping.0.sleeping.get());
    // A context that comes while the engine sleeps knows.
    assert!(w.context().doorbells.0.sleeping.get());
    qp.put_send(&Wr::write(1, &[], (0, 0)));
    assert!(qp.ring(), "asleep: kick");
    // The kick's run leaves it asleep, and the next who rings kicks, too.
    w.engine.run(&mut w.host, PLENTY, Some(w.context.id));
    cq.expect(1, Status::Success);
    assert!(qp.ring());
    w.run();
    // Work that waits for a turn keeps it awake.
    w.engine.ring_qp(qp.id.number);
    assert!(!w.engine.try_sleep());
    assert!(!sleeping.0.sleeping.get());
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
