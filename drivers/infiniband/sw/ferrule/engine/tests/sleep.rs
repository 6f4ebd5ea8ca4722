// SPDX-License-Identifier: GPL-2.0

//! Sleep and wake-up, as one thread sees them. `tests/loom` has the races.

use ferrule_engine::{Sleep, Status};

use crate::sim::*;

#[test]
fn sleep_is_told_and_refused_where_something_was_rung() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    w.run();
    let sleeping = w.context.doorbells.clone();
    assert!(!qp.ring(), "awake: no kick");
    assert!(!w.try_sleep(), "rung meanwhile");
    assert!(!sleeping.0.sleeping.get());
    w.run();
    assert!(w.try_sleep());
    assert!(sleeping.0.sleeping.get());
    // A context that comes while the engine sleeps knows.
    assert!(w.context().doorbells.0.sleeping.get());
    qp.put_send(&Wr::write(1, &[], (0, 0)));
    assert!(qp.ring(), "asleep: kick");
    // The kick's run leaves it asleep, and the next program that rings kicks, too.
    w.engine.run(&mut w.host, PLENTY, Some(w.context.id));
    cq.expect(1, Status::Success);
    assert!(qp.ring());
    // Work that waits for a turn keeps it awake; a program then need not kick.
    w.engine.kicked(w.context.id);
    assert!(!w.try_sleep());
    assert!(sleeping.0.sleeping.get());
    w.engine.kicked(w.context.id);
    assert!(!sleeping.0.sleeping.get());
}

/// A worker that has to share its processor sleeps though programs ring, and the next run takes
/// what was rung.
#[test]
fn an_engine_sleeps_though_something_is_rung() {
    let mut w = World::new();
    let cq = w.cq(16);
    let contexts = [(); 3].map(|()| w.context());
    let qps = [0, 1, 2].map(|i| w.qp_in(Some(&contexts[i]), &QpSpec::default(), &cq, &cq));
    for qp in &qps {
        w.connect(qp, qp);
    }
    w.run();
    for qp in &qps[..2] {
        qp.put_send(&Wr::write(1, &[], (0, 0)));
        assert!(!qp.ring(), "awake: no kick");
    }
    assert!(!w.try_sleep());
    // Each step tells one, and there is a fourth context, of the world.
    let steps = (0..9)
        .map(|_| w.engine.sleep(1))
        .take_while(|step| *step == Sleep::Step);
    assert_eq!(steps.count(), 3);
    for (context, qp) in contexts.iter().zip(&qps) {
        assert!(context.doorbells.0.sleeping.get());
        assert!(qp.ring(), "asleep: kick");
    }
    assert!(w.engine.has_work());
    w.run();
    assert_eq!(cq.drain().len(), 2);
}

/// Between two steps towards sleep, a context that has not been told yet may have its kicks
/// deferred.
#[test]
fn an_engine_sleeps_beside_deferred_kicks() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    let other = w.context();
    w.run();
    assert_eq!(w.engine.sleep(1), Sleep::Step);
    let told = [&w.context, &other].map(|context| context.doorbells.0.sleeping.get());
    let (context, qp) = if told[0] {
        let qp = w.qp_in(Some(&other), &QpSpec::default(), &cq, &cq);
        w.connect(&qp, &qp);
        (&other, qp)
    } else {
        (&w.context, qp)
    };
    let doorbells = context.doorbells.clone();
    doorbells.0.backlog.set(true);
    qp.put_send(&Wr::write(1, &[], (0, 0)));
    assert!(!qp.ring(), "not told yet");
    w.engine.run(&mut w.host, PLENTY, None);
    cq.expect(1, Status::Success);
    assert!(doorbells.0.deferred.get());
    assert_eq!(w.engine.sleep(1), Sleep::Asleep);
    assert!(!doorbells.0.sleeping.get(), "until its timer fires");
}

/// The sender of a kick may have told other threads that they need not. A kick tells them anew
/// before the engine looks at the doorbells.
#[test]
fn a_kick_that_leaves_the_engine_asleep_asks_for_the_next() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    w.run();
    assert!(w.try_sleep());
    let sleeping = w.context.doorbells.clone();
    for i in 0..3 {
        qp.put_send(&Wr::write(i, &[], (0, 0)));
        assert!(qp.ring());
        sleeping.0.sleeping.set(false);
        assert!(!qp.ring(), "the kick is on its way");
        w.engine.kicked_by_message(w.context.id);
        assert!(sleeping.0.sleeping.get());
        w.engine.run(&mut w.host, PLENTY, Some(w.context.id));
        cq.expect(i, Status::Success);
        assert!(w.try_sleep());
    }
    // An engine that is awake does not ask.
    sleeping.0.sleeping.set(false);
    w.engine.wake();
    w.engine.kicked_by_message(w.context.id);
    assert!(!sleeping.0.sleeping.get());
}
