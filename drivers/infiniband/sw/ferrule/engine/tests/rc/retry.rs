// SPDX-License-Identifier: GPL-2.0

//! Peers that do not answer, are not there, or become ready late.

use ferrule_engine::{Modify, QpEvent, State, Status};

use crate::sim::*;

#[test]
fn first_message_in_rtr_establishes_communication() {
    let mut w = World::new();
    let (ca, cb) = (w.cq(16), w.cq(16));
    let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
    w.connect(&a, &b);
    w.connect_rtr(&b, &a);
    let mr = w.mr(64);
    b.post_recv(1, &[mr.sge(0, 8)]);
    a.post_send(&Wr::send(2, &[mr.sge(8, 8)]));
    w.run();
    cb.expect(1, Status::Success);
    let established = Event::Qp(b.name, QpEvent::CommunicationEstablished);
    assert_eq!(w.events(), [established]);
    a.post_send(&Wr::write(3, &[mr.sge(8, 8)], mr.remote(0)));
    w.run();
    assert_eq!(w.events(), [], "once");
}

#[test]
fn silence_is_met_with_retries_of_the_timer() {
    let timeouts = [1u8, 14, 8, 10, 1, 12, 9, 8];
    for (retries, timeout) in (0u8..).zip(timeouts) {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect_rtr(&a, &b);
        let rts = Modify {
            retry_cnt: Some(retries),
            timeout: Some(timeout),
            ..rts()
        };
        w.modify(&a, &rts).unwrap();
        let mr = w.mr(64);
        a.post_send(&Wr::send(1, &[mr.sge(8, 8)]).with_flags(0));
        a.post_send(&Wr::send(2, &[mr.sge(8, 8)]).with_flags(0));
        w.settle(1_000_000 * MS);
        assert_eq!(w.host.now, silence(retries, timeout));
        ca.expect(1, Status::RetryExceeded);
        ca.expect(2, Status::Flushed);
        w.state(&a, State::Err);
    }
}

#[test]
fn timeout_zero_waits_for_ever() {
    let mut w = World::new();
    let (ca, cb) = (w.cq(16), w.cq(16));
    let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
    w.connect_rtr(&a, &b);
    let rts = Modify {
        timeout: Some(0),
        ..rts()
    };
    w.modify(&a, &rts).unwrap();
    let mr = w.mr(64);
    a.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
    assert_eq!(w.run().deadline, None);
    w.host.now = 1_000_000 * MS;
    w.run();
    ca.expect_none();
    w.to(&a, State::Err);
    w.run();
    ca.expect(1, Status::Flushed);
}

#[test]
fn nobody_answers_for_a_stranger() {
    // A number that does not exist, a queue pair connected to somebody else, one in INIT, and a
    // peer that is elsewhere: none answers.
    let mut w = World::new();
    let (b, _c) = w.pair();
    let cq = w.cq(16);
    let mr = w.mr(64);
    let early = w.qp(&cq, &cq);
    w.modify(&early, &init()).unwrap();
    for peer in [0x12_3456, b.qp.id.number, early.id.number] {
        let a = w.qp(&cq, &cq);
        w.modify(&a, &init()).unwrap();
        w.modify(&a, &rtr(peer)).unwrap();
        w.modify(&a, &rts()).unwrap();
        a.post_send(&Wr::write(1, &[mr.sge(8, 8)], mr.remote(0)));
        w.settle(10_000 * MS);
        cq.expect(1, Status::RetryExceeded);
        cq.expect_none();
    }
    let a = w.qp(&cq, &cq);
    w.modify(&a, &init()).unwrap();
    let far = Modify {
        path: Some(path(ferrule_engine::PathKind::Remote)),
        ..rtr(a.id.number)
    };
    w.modify(&a, &far).unwrap();
    w.modify(&a, &rts()).unwrap();
    a.post_send(&Wr::write(1, &[mr.sge(8, 8)], mr.remote(0)));
    w.settle(10_000 * MS);
    cq.expect(1, Status::RetryExceeded);
    b.cq.expect_none();
    w.state(&b.qp, State::Rts);
}

#[test]
fn peer_that_becomes_ready_is_reached_by_a_retry() {
    let mut w = World::new();
    let (ca, cb) = (w.cq(16), w.cq(16));
    let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
    w.connect(&a, &b);
    let mr = w.mr(64);
    a.post_send(&Wr::write(1, &[mr.sge(8, 8)], mr.remote(0)));
    w.run();
    w.connect_rtr(&b, &a);
    w.settle(1000 * MS);
    ca.expect(1, Status::Success);
    assert_eq!(w.host.now, 4096 << 14);
    assert_eq!(w.engine.counters().retries, 1);
}

#[test]
fn sequence_numbers_have_to_fit() {
    for (offset, at_once) in [(1u32, true), (0xff_ffff, false)] {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect(&b, &a);
        w.connect_rtr(&a, &b);
        let rts = Modify {
            sq_psn: Some((SQ_PSN + offset) & 0xff_ffff),
            ..rts()
        };
        w.modify(&a, &rts).unwrap();
        let mr = w.mr(64);
        mr.fill(1);
        let before = mr.bytes(0, 8);
        a.post_send(&Wr::write(1, &[mr.sge(8, 8)], mr.remote(0)));
        w.settle(10_000 * MS);
        ca.expect(1, Status::RetryExceeded);
        // A number ahead is answered at once, and each retry again; one behind is not answered.
        assert_eq!(w.host.now == 0, at_once);
        assert_eq!(mr.bytes(0, 8), before);
        assert_eq!(w.engine.counters().sequence_errors, 8);
        w.state(&b, State::Rts);
    }
}
