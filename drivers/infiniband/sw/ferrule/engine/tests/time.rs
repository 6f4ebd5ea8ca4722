// SPDX-License-Identifier: GPL-2.0

//! The time of completions: no request completes before it was posted, however long the turn that
//! takes it.

use ferrule_engine::{State, Status};

use crate::sim::*;

/// So much time passes before the program that acts beside the engine has posted.
const LATER: u64 = 1000;

/// Has a program post by `post` as soon as the engine has read the clock.
fn post_after_reading(w: &mut World, post: impl FnOnce() + 'static) {
    let act = move || {
        post();
        LATER
    };
    w.host.after_reading.set(Some(Box::new(act)));
}

/// Sends two messages. The receive request 11 is there, and `post` adds 12 during the turn.
fn expect_late(w: &mut World, a: &End, b: &End, post: impl FnOnce() + 'static) {
    a.qp.post_send(&Wr::send(1, &[]));
    a.qp.post_send(&Wr::send(2, &[]));
    post_after_reading(w, post);
    w.run();
    let times = [11, 12].map(|wr_id| b.cq.expect(wr_id, Status::Success).timestamp);
    assert_eq!(times, [0, LATER]);
}

#[test]
fn of_a_request_that_is_posted_during_the_turn() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    a.qp.post_send(&Wr::write(1, &[], (0, 0)));
    let late = a.qp.clone();
    post_after_reading(&mut w, move || late.put_send(&Wr::write(2, &[], (0, 0))));
    w.run();
    let times = [1, 2].map(|wr_id| a.cq.expect(wr_id, Status::Success).timestamp);
    assert_eq!(times, [0, LATER]);
}

#[test]
fn of_a_receive_request_that_is_posted_during_the_turn() {
    let mut w = World::new();
    let (a, b) = w.pair();
    b.qp.post_recv(11, &[]);
    let late = b.qp.clone();
    expect_late(&mut w, &a, &b, move || late.post_recv(12, &[]));
}

#[test]
fn of_a_shared_receive_request_that_is_posted_during_the_turn() {
    let mut w = World::new();
    let srq = w.srq(1, 16, 1);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    let (a, b) = w.pair_with(&spec);
    assert!(srq.post(11, &[]));
    let late = srq.clone();
    expect_late(&mut w, &a, &b, move || assert!(late.post(12, &[])));
}

#[test]
fn of_requests_that_are_posted_while_others_are_flushed() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    w.to(&a.qp, State::Err);
    a.qp.post_send(&Wr::send(1, &[]));
    let late = a.qp.clone();
    post_after_reading(&mut w, move || late.put_send(&Wr::send(2, &[])));
    w.run();
    a.qp.post_recv(11, &[]);
    let late = a.qp.clone();
    post_after_reading(&mut w, move || late.post_recv(12, &[]));
    w.run();
    let times = [1, 2, 11, 12].map(|wr_id| a.cq.expect(wr_id, Status::Flushed).timestamp);
    assert_eq!(times, [0, LATER, LATER, 2 * LATER]);
}
