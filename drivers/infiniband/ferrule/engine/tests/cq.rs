// SPDX-License-Identifier: GPL-2.0

//! Completion queues: laps and phases, room, overrun, and events.

mod sim;

use ferrule_engine::{abi, CqEvent, QpEvent, State, Status};

use abi::wr_flags::{SIGNALED, SOLICITED};
use sim::*;

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
    // Room does not help: the queue stays in error, and the next to complete there finds out.
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
fn consumer_that_lies_gains_no_room() {
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
