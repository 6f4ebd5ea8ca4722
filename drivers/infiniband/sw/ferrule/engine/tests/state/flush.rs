// SPDX-License-Identifier: GPL-2.0

//! Flush, drain, reset: the end of a queue pair's work.

use ferrule_engine::{abi, Budget, Modify, PathKind, QpEvent, State, Status, Vport};

use crate::sim::*;

#[test]
fn error_flushes_send_then_receive_queue_in_order() {
    let mut w = World::new();
    let cq = w.cq(64);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    let mr = w.mr(64);
    // Nothing is received, so that the first send stays at hand.
    for i in 0..4 {
        qp.post_send(&Wr::send(i, &[mr.sge(0, 8)]).with_flags(0));
    }
    w.run();
    for i in 10..13 {
        qp.post_recv(i, &[mr.sge(0, 8)]);
    }
    w.to(&qp, State::Err);
    assert!(w.engine.has_work());
    w.run();
    for i in 0..4 {
        let wc = cq.expect(i, Status::Flushed);
        assert_eq!(
            (wc.opcode, wc.queue_index),
            (abi::wc_opcode::SEND, i as u32 + 1)
        );
    }
    for i in 10..13 {
        let wc = cq.expect(i, Status::Flushed);
        assert_eq!(
            (wc.opcode, wc.queue_index),
            (abi::wc_opcode::RECV, i as u32 - 9)
        );
    }
    // Requests that are posted later are flushed as well.
    qp.post_recv(20, &[]);
    qp.post_send(&Wr::write(21, &[], (0, 0)));
    w.run();
    assert_eq!(
        cq.expect(21, Status::Flushed).opcode,
        abi::wc_opcode::RDMA_WRITE
    );
    cq.expect(20, Status::Flushed);
    qp.post_recv(22, &[]);
    w.run();
    cq.expect(22, Status::Flushed);
    cq.expect_none();
    assert_eq!(w.engine.deadline(), None, "the timer has been stopped");
    assert_eq!(w.engine.counters().flushed, 10);
}

#[test]
fn flush_keeps_to_the_budget() {
    let mut w = World::new();
    let (a, b) = w.pair();
    w.run();
    for i in 0..16 {
        b.qp.post_recv(i, &[]);
    }
    drop(a);
    w.to(&b.qp, State::Err);
    let budget = Budget {
        requests: 5,
        bytes: 1,
    };
    for left in [11, 6, 1, 0] {
        let outcome = w.engine.run(&mut w.host, budget, None);
        assert_eq!(outcome.more, left != 0);
        assert_eq!(b.cq.drain().len(), if left == 0 { 1 } else { 5 });
    }
}

#[test]
fn reset_forgets_everything() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    for i in 0..3 {
        a.qp.post_send(&Wr::send(i, &[mr.sge(0, 8)]));
        b.qp.post_recv(i, &[mr.sge(0, 8)]);
        b.qp.post_recv(i, &[mr.sge(0, 8)]);
    }
    w.run();
    a.qp.post_send(&Wr::send(7, &[(0, 8, 0)]));
    w.run();
    w.state(&a.qp, State::Err);
    assert_eq!((a.cq.drain().len(), b.cq.drain().len()), (4, 3));
    for end in [&a, &b] {
        w.to(&end.qp, State::Reset);
        end.qp.rewind();
        assert_eq!(end.qp.queue.word(end.qp.ctrl as usize + 68), 0);
    }
    w.connect(&a.qp, &b.qp);
    w.connect(&b.qp, &a.qp);
    w.run();
    a.cq.expect_none();
    b.cq.expect_none();
    b.qp.post_recv(5, &[mr.sge(0, 8)]);
    a.qp.post_send(&Wr::send(6, &[mr.sge(8, 8)]));
    w.run();
    assert_eq!(a.cq.expect(6, Status::Success).queue_index, 1);
    assert_eq!(b.cq.expect(5, Status::Success).queue_index, 1);
}

#[test]
fn drain_ends_what_was_begun_and_holds_the_rest() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    let drained = Event::Qp(a.qp.name, QpEvent::SendQueueDrained);
    let sqd = Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Modify::default()
    };
    // Nothing at hand: it has drained at once.
    w.modify(&a.qp, &sqd).unwrap();
    assert_eq!(w.events(), [drained]);
    assert!(!w.query(&a.qp).sq_draining);
    assert!(w.query(&a.qp).attr.en_sqd_async_notify);
    a.qp.post_send(&Wr::write(1, &[mr.sge(0, 8)], mr.remote(8)));
    w.run();
    a.cq.expect_none();
    w.to(&a.qp, State::Rts);
    w.run();
    a.cq.expect(1, Status::Success);
    // A request at hand, which waits for its receiver: it drains when that is done.
    a.qp.post_send(&Wr::send(2, &[mr.sge(0, 8)]));
    a.qp.post_send(&Wr::send(3, &[mr.sge(0, 8)]));
    w.run();
    w.modify(&a.qp, &sqd).unwrap();
    assert!(w.query(&a.qp).sq_draining);
    assert_eq!(w.events(), []);
    // A change there does not take back that the event was asked for.
    let change = Modify {
        state: Some(State::Sqd),
        min_rnr_timer: rtr(0).min_rnr_timer,
        ..Modify::default()
    };
    w.modify(&a.qp, &change).unwrap();
    b.qp.post_recv(4, &[mr.sge(0, 8)]);
    b.qp.post_recv(5, &[mr.sge(0, 8)]);
    w.settle(100 * MS);
    a.cq.expect(2, Status::Success);
    a.cq.expect_none();
    assert_eq!(w.events(), [drained]);
    assert!(!w.query(&a.qp).sq_draining);
    // The receive queue works on meanwhile.
    a.qp.post_recv(6, &[mr.sge(0, 8)]);
    b.qp.post_send(&Wr::send(7, &[mr.sge(0, 8)]));
    w.run();
    a.cq.expect(6, Status::Success);
    // Attributes of the path may change now, and then it goes on.
    let modify = Modify {
        timeout: Some(3),
        retry_cnt: Some(1),
        ..Modify::default()
    };
    w.modify(&a.qp, &modify).unwrap();
    w.to(&a.qp, State::Rts);
    w.run();
    a.cq.expect(3, Status::Success);
    assert_eq!(w.query(&a.qp).attr.timeout, 3);
    assert_eq!(w.events(), []);
}

#[test]
fn requests_posted_too_early_wait() {
    let mut w = World::new();
    let (ca, cb) = (w.cq(16), w.cq(16));
    let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
    w.connect(&b, &a);
    let mr = w.mr(64);
    w.connect_rtr(&a, &b);
    a.post_send(&Wr::write(1, &[mr.sge(0, 8)], mr.remote(8)));
    w.run();
    ca.expect_none();
    w.modify(&a, &rts()).unwrap();
    w.run();
    ca.expect(1, Status::Success);
}

/// A send queue in error that is told to go on sends nothing that was posted before (IBA volume 1,
/// 10.3.1).
#[test]
fn what_was_posted_before_the_return_from_sqe_is_flushed() {
    let mut w = World::new();
    let end = w.ud(&QpSpec::default(), 1);
    let ah = w.ah(1, path(PathKind::Local(Vport::default())));
    let datagram = |wr_id| Wr::datagram(wr_id, &[], (ah, end.qp.id.number), 1);
    end.qp.post_send(&Wr::send(0, &[(0, 8, 77)]));
    for i in 1..8 {
        end.qp.post_send(&datagram(i));
    }
    let budget = Budget {
        requests: 3,
        bytes: 1,
    };
    w.engine.run(&mut w.host, budget, None);
    w.state(&end.qp, State::Sqe);
    end.qp.post_send(&datagram(8));
    w.to(&end.qp, State::Rts);
    end.qp.post_send(&datagram(9));
    // It goes on in SQD, where nothing is sent, and tells of its end.
    w.engine.run(&mut w.host, budget, None);
    let sqd = Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Modify::default()
    };
    w.modify(&end.qp, &sqd).unwrap();
    assert_eq!(w.events(), []);
    w.run();
    let drained = Event::Qp(end.qp.name, QpEvent::SendQueueDrained);
    assert_eq!(w.events(), [drained]);
    end.cq.expect(0, Status::LocalProtection);
    for i in 1..9 {
        end.cq.expect(i, Status::Flushed);
    }
    end.cq.expect_none();
    w.to(&end.qp, State::Rts);
    w.run();
    end.cq.expect(9, Status::Success);
    end.cq.expect_none();
}
