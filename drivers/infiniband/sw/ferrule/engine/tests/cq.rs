// SPDX-License-Identifier: GPL-2.0

//! Completion queues: laps and phases, space, overrun, and events.

use std::collections::VecDeque;

use ferrule_engine::{abi, CqEvent, Error, QpEvent, State, Status};
use proptest::prelude::*;

use crate::sim::*;
use abi::wr_flags::{SIGNALED, SOLICITED};

#[test]
fn ring_goes_round_and_the_consumer_is_read_only_when_full() {
    let mut w = World::new();
    let cq = w.cq(4);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    for i in 0..1000 {
        qp.post_send(&Wr::write(i, &[], (0, 0)));
        w.run();
        cq.expect(i, Status::Success);
        cq.expect_none();
    }
    // Once a lap, not once a completion.
    assert!(cq.ring.0.consumer_reads.get() <= 250);
    let info = w.engine.query_cq(cq.cqn).unwrap();
    assert_eq!((info.producer, info.depth, info.overrun), (1000, 4, false));
}

#[test]
fn overrun_is_told_once_and_fails_who_completes_there() {
    let mut w = World::new();
    let (shared, other) = (w.cq(4), w.cq(16));
    let a = w.qp(&shared, &other);
    let b = w.qp(&shared, &other);
    w.connect(&a, &a);
    w.connect(&b, &b);
    for i in 0..6 {
        a.post_send(&Wr::write(i, &[], (0, 0)));
    }
    w.run();
    let overrun = Event::Cq(shared.name, CqEvent::Error);
    assert_eq!(w.events(), [overrun, Event::Qp(a.name, QpEvent::Fatal)]);
    w.state(&a, State::Err);
    w.state(&b, State::Rts);
    for i in 0..4 {
        shared.expect(i, Status::Success);
    }
    shared.expect_none();
    // Space does not help: the queue stays in error, and the next to complete there finds out.
    b.post_recv(9, &[]);
    b.post_send(&Wr::write(7, &[], (0, 0)));
    w.run();
    assert_eq!(w.events(), [Event::Qp(b.name, QpEvent::Fatal)]);
    w.state(&b, State::Err);
    shared.expect_none();
    other.expect(9, Status::Flushed);
    assert!(w.engine.query_cq(shared.cqn).unwrap().overrun);
}

#[test]
fn receiver_whose_queue_overruns_refuses_the_message() {
    let mut w = World::new();
    let (ca, cb) = (w.cq(16), w.cq(1));
    let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
    w.connect(&a, &b);
    w.connect(&b, &a);
    for i in 0..2 {
        b.post_recv(i, &[]);
        a.post_send(&Wr::send(i, &[]));
    }
    w.run();
    ca.expect(0, Status::Success);
    ca.expect(1, Status::RemoteOperation);
    cb.expect(0, Status::Success);
    cb.expect_none();
    w.state(&b, State::Err);
    let overrun = Event::Cq(cb.name, CqEvent::Error);
    assert_eq!(w.events(), [overrun, Event::Qp(b.name, QpEvent::Fatal)]);
}

#[test]
fn consumer_that_lies_gains_no_space() {
    for lie in [1000, 5, u32::MAX, 1 << 31] {
        let mut w = World::new();
        let cq = w.cq(4);
        let qp = w.qp(&cq, &cq);
        w.connect(&qp, &qp);
        cq.ring.0.consumer.set(lie);
        for i in 0..5 {
            qp.post_send(&Wr::write(i, &[], (0, 0)));
        }
        w.run();
        assert_eq!(w.engine.query_cq(cq.cqn).unwrap().producer, 4);
        assert_eq!(w.events().len(), 2);
    }
}

#[test]
fn armed_queue_raises_one_event() {
    let mut w = World::new();
    let cq = w.cq(64);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    let post = |w: &mut World| {
        qp.post_send(&Wr::write(1, &[], (0, 0)));
        w.run();
        w.events().len()
    };
    assert_eq!(post(&mut w), 0, "not armed");
    cq.arm(0, false);
    assert_eq!(post(&mut w), 1);
    assert_eq!(post(&mut w), 0, "once");
    // Armed again before the event was taken: the same number, so nothing is raised.
    cq.arm(0, false);
    assert_eq!(post(&mut w), 0);
    cq.arm(1, false);
    cq.arm(1, false);
    assert_eq!(post(&mut w), 1);
    assert_eq!(post(&mut w), 0);
    assert_eq!(w.engine.counters().completion_events, 2);
    // Several completions of a run raise one event.
    cq.arm(2, false);
    for _ in 0..3 {
        qp.post_send(&Wr::write(1, &[], (0, 0)));
    }
    assert_eq!(post(&mut w), 1);
    // An arm without a completion after it raises nothing.
    cq.arm(3, false);
    w.run();
    assert_eq!(w.events(), []);
}

#[test]
fn solicited_arm_waits_for_solicited_or_failed() {
    let mut w = World::new();
    let (a, b) = w.pair();
    b.cq.arm(0, true);
    b.qp.post_recv(1, &[]);
    a.qp.post_send(&Wr::send(1, &[]));
    w.run();
    assert_eq!(w.events(), []);
    b.qp.post_recv(2, &[]);
    a.qp.post_send(&Wr::send(2, &[]).with_flags(SIGNALED | SOLICITED));
    w.run();
    assert_eq!(w.events(), [Event::Completion(b.cq.name)]);
    // The sender's own completion is no solicited one.
    a.cq.arm(0, true);
    b.qp.post_recv(3, &[]);
    a.qp.post_send(&Wr::send(3, &[]).with_flags(SIGNALED | SOLICITED));
    w.run();
    assert_eq!(w.events(), []);
    // A failed one counts as solicited.
    a.qp.post_send(&Wr::send(4, &[(0, 8, 0)]));
    w.run();
    assert_eq!(w.events(), [Event::Completion(a.cq.name)]);
}

#[test]
fn solicited_completion_before_the_arm_raises_nothing_after_it() {
    let mut w = World::new();
    let (a, b) = w.pair();
    b.qp.post_recv(1, &[]);
    a.qp.post_send(&Wr::send(1, &[]).with_flags(SIGNALED | SOLICITED));
    w.run();
    b.cq.arm(0, true);
    b.qp.post_recv(2, &[]);
    a.qp.post_send(&Wr::send(2, &[]));
    w.run();
    assert_eq!(w.events(), []);
}

#[test]
fn two_queue_pairs_share_a_completion_queue() {
    let mut w = World::new();
    let cq = w.cq(16);
    let (a, b) = (w.qp(&cq, &cq), w.qp(&cq, &cq));
    w.connect(&a, &b);
    w.connect(&b, &a);
    b.post_recv(1, &[]);
    a.post_send(&Wr::send(2, &[]));
    a.post_recv(3, &[]);
    b.post_send(&Wr::send(4, &[]));
    w.run();
    assert_eq!(cq.expect(1, Status::Success).qp_num, b.id.number);
    assert_eq!(cq.expect(2, Status::Success).qp_num, a.id.number);
    assert_eq!(cq.expect(3, Status::Success).qp_num, a.id.number);
    assert_eq!(cq.expect(4, Status::Success).qp_num, b.id.number);
}

#[test]
fn queues_share_depth_one() {
    let mut w = World::new();
    let cq = w.cq(1);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    for i in 0..10 {
        qp.post_send(&Wr::write(i, &[], (0, 0)));
        w.run();
        cq.expect(i, Status::Success);
        cq.expect_none();
    }
}

#[test]
fn resize_leaves_what_is_there_and_goes_on() {
    let mut w = World::new();
    let old = w.cq(8);
    let qp = w.qp(&old, &old);
    w.connect(&qp, &qp);
    let post = |w: &mut World, ids: std::ops::Range<u64>| {
        for i in ids {
            qp.post_send(&Wr::write(i, &[], (0, 0)));
        }
        w.run();
    };
    post(&mut w, 0..5);
    old.expect(0, Status::Success);
    old.expect(1, Status::Success);
    old.expect(2, Status::Success);
    post(&mut w, 5..8);
    // Five are not consumed: less space than that there cannot be, and other depths are none.
    for depth in [4, 0, 6, abi::MAX_CQ_DEPTH * 2] {
        assert_eq!(w.resize(&old, depth).err(), Some(Error::Invalid));
    }
    let new = w.resize(&old, 16).unwrap();
    post(&mut w, 8..16);
    for i in 3..8 {
        old.expect(i, Status::Success);
    }
    old.expect_none();
    for i in 8..16 {
        new.expect(i, Status::Success);
    }
    new.expect_none();
    // Smaller, and round several times.
    let small = w.resize(&new, 1).unwrap();
    for i in 16..30 {
        post(&mut w, i..i + 1);
        small.expect(i, Status::Success);
        small.expect_none();
    }
    assert_eq!(w.events(), []);
}

#[test]
fn resize_makes_space_and_takes_it() {
    let mut w = World::new();
    let old = w.cq(4);
    let qp = w.qp(&old, &old);
    w.connect(&qp, &qp);
    for i in 0..4 {
        qp.post_send(&Wr::write(i, &[], (0, 0)));
    }
    w.run();
    // All of the old depth is taken; completions that are there count in the new one.
    let new = w.resize(&old, 8).unwrap();
    for i in 4..9 {
        qp.post_send(&Wr::write(i, &[], (0, 0)));
    }
    w.run();
    let overrun = Event::Cq(old.name, CqEvent::Error);
    assert_eq!(w.events(), [overrun, Event::Qp(qp.name, QpEvent::Fatal)]);
    for i in 0..4 {
        old.expect(i, Status::Success);
    }
    for i in 4..8 {
        new.expect(i, Status::Success);
    }
    new.expect_none();
    // One that does not exist has no ring.
    let mut gone = new.clone();
    gone.cqn = 77;
    assert_eq!(w.resize(&gone, 8).err(), Some(Error::NotFound));
}

proptest! {
    #![proptest_config(cases(200))]

    /// Resized at any moment, from any index, no completion is lost or told twice.
    #[test]
    fn resize_under_traffic_loses_nothing(
        steps in prop::collection::vec((0..3u8, 0..8u32), 1..200),
    ) {
        let mut w = World::new();
        let mut rings = VecDeque::from([w.cq(16)]);
        let first = rings[0].clone();
        let qp = w.qp(&first, &first);
        w.connect(&qp, &qp);
        let (mut posted, mut polled) = (0u64, 0u64);
        let poll = |rings: &mut VecDeque<TestCq>| loop {
            if let Some(wc) = rings[0].poll() {
                break Some(wc);
            }
            if rings.len() == 1 {
                break None;
            }
            rings.pop_front();
        };
        for (kind, n) in steps {
            match kind {
                0 => for _ in 0..n {
                    if posted - polled < 8 {
                        qp.post_send(&Wr::write(posted, &[], (0, 0)));
                        posted += 1;
                    }
                },
                1 => for _ in 0..n {
                    if let Some(wc) = poll(&mut rings) {
                        prop_assert_eq!((wc.wr_id, wc.status), (polled, 0));
                        polled += 1;
                    }
                },
                _ => {
                    let last = rings.back().unwrap().clone();
                    rings.push_back(w.resize(&last, 8 << (n % 4)).unwrap());
                }
            }
            w.run();
        }
        while let Some(wc) = poll(&mut rings) {
            prop_assert_eq!(wc.wr_id, polled);
            polled += 1;
        }
        prop_assert_eq!(polled, posted);
        prop_assert_eq!(w.events(), []);
    }
}

/// A queue whose events wait for three completions or 50 microseconds, armed, and a queue pair that
/// completes there.
fn moderated(w: &mut World) -> (TestCq, TestQp) {
    let cq = w.cq(16);
    let other = w.cq(16);
    let a = w.qp(&cq, &cq);
    let b = w.qp(&other, &other);
    w.connect(&a, &b);
    w.connect(&b, &a);
    w.moderate_cq(&cq, 3, 50);
    (cq, a)
}

/// One completion, by a request that moves nothing.
fn complete(w: &mut World, qp: &TestQp, wr_id: u64) {
    qp.post_send(&Wr::write(wr_id, &[], (0, 0)));
    w.run();
}

#[test]
fn a_moderated_event_waits_for_so_many() {
    let mut w = World::new();
    let (cq, qp) = moderated(&mut w);
    let event = Event::Completion(cq.name);
    cq.arm(0, false);
    complete(&mut w, &qp, 0);
    complete(&mut w, &qp, 1);
    assert_eq!(w.events(), []);
    complete(&mut w, &qp, 2);
    assert_eq!(w.events(), [event]);
    // The timer of the first does not run any more.
    assert_eq!(w.run().deadline, None);
    for i in 0..3 {
        cq.expect(i, Status::Success);
    }
    // Those that were consumed do not count.
    cq.arm(1, false);
    complete(&mut w, &qp, 3);
    cq.expect(3, Status::Success);
    complete(&mut w, &qp, 4);
    complete(&mut w, &qp, 5);
    assert_eq!(w.events(), []);
    complete(&mut w, &qp, 6);
    assert_eq!(w.events(), [event]);
}

#[test]
fn a_moderated_event_waits_for_so_long() {
    let mut w = World::new();
    let (cq, qp) = moderated(&mut w);
    let event = Event::Completion(cq.name);
    complete(&mut w, &qp, 0);
    // Not armed: nothing waits.
    assert_eq!(w.run().deadline, None);
    cq.arm(0, false);
    complete(&mut w, &qp, 1);
    let first = w.run().deadline.unwrap();
    w.host.now += 20_000;
    // The oldest decides, though it was consumed.
    cq.expect(0, Status::Success);
    cq.expect(1, Status::Success);
    complete(&mut w, &qp, 2);
    assert_eq!(w.run().deadline, Some(first));
    assert_eq!(w.events(), []);
    w.host.now += 30_000;
    assert_eq!(w.run().deadline, None);
    assert_eq!(w.events(), [event]);
    w.host.now += 1_000_000;
    w.run();
    assert_eq!(w.events(), []);
}

#[test]
fn a_moderated_event_for_solicited_ones_waits_for_the_first() {
    let mut w = World::new();
    let (cq, qp) = moderated(&mut w);
    cq.arm(0, true);
    for i in 0..4 {
        complete(&mut w, &qp, i);
    }
    assert_eq!(w.run().deadline, None);
    assert_eq!(w.events(), []);
}

#[test]
fn moderation_that_ends_lets_the_event_go() {
    let mut w = World::new();
    let (cq, qp) = moderated(&mut w);
    let event = Event::Completion(cq.name);
    cq.arm(0, false);
    complete(&mut w, &qp, 0);
    // Still fewer than two.
    w.moderate_cq(&cq, 2, 50);
    assert_eq!(w.events(), []);
    assert!(w.run().deadline.is_some());
    w.moderate_cq(&cq, 0, 50);
    assert_eq!(w.events(), [event]);
    assert_eq!(w.run().deadline, None);
    // A count or a period of none moderates nothing.
    for (sn, (count, period)) in [(0, 0), (1, 50), (5, 0)].into_iter().enumerate() {
        w.moderate_cq(&cq, count, period);
        cq.arm(1 + sn as u32, false);
        complete(&mut w, &qp, 1);
        assert_eq!(w.events(), [event]);
    }
}

#[test]
fn a_moderated_queue_goes_with_its_timer() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    w.moderate_cq(&cq, 3, 50);
    cq.arm(0, false);
    complete(&mut w, &qp, 0);
    assert!(w.run().deadline.is_some());
    w.engine.remove_qp(qp.id.number).unwrap();
    w.engine.remove_cq(cq.cqn).unwrap();
    assert_eq!(w.run().deadline, None);
    w.host.now += 1_000_000;
    w.run();
    assert_eq!(w.events(), []);
}
