// SPDX-License-Identifier: GPL-2.0

//! A run keeps to its budget, and reads each byte of a request once.

use ferrule_engine::{Budget, Status};

use crate::sim::*;

#[test]
fn long_messages_keep_to_the_budget_and_let_others_pass() {
    const LENGTH: usize = 3 << 20;
    let mut w = World::new();
    let (a, b) = w.pair();
    let (c, d) = w.pair();
    let (from, to) = (w.mr(LENGTH), w.mr(LENGTH));
    from.fill(5);
    b.qp.post_recv(1, &[to.sge(0, LENGTH as u32)]);
    a.qp.post_send(&Wr::send(2, &[from.sge(0, LENGTH as u32)]));
    d.qp.post_recv(3, &[to.sge(0, 8)]);
    c.qp.post_send(&Wr::send(4, &[from.sge(0, 8)]));
    let budget = Budget {
        requests: 64,
        bytes: 300_000,
    };
    let mut copied = 0;
    let mut runs = 0;
    loop {
        let outcome = w.engine.run(&mut w.host, budget, None);
        let total = w.engine.counters().bytes;
        assert!(total - copied <= budget.bytes + 4096);
        copied = total;
        runs += 1;
        if runs == 1 {
            c.cq.expect(4, Status::Success);
            assert!(outcome.more);
        }
        if !outcome.more {
            break;
        }
    }
    assert!((10..=14).contains(&runs), "{runs}");
    d.cq.expect(3, Status::Success);
    assert_eq!(b.cq.expect(1, Status::Success).byte_len, LENGTH as u32);
    a.cq.expect(2, Status::Success);
    // The other pair wrote to the first eight bytes.
    assert_eq!(to.bytes(8, LENGTH - 8), from.bytes(8, LENGTH - 8));
    let packets = LENGTH as u32 / 1024;
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + packets) & 0xff_ffff);
}

#[test]
fn request_budget_bounds_a_run() {
    let mut w = World::new();
    let (a, b) = w.pair();
    w.run();
    let mr = w.mr(64);
    for i in 0..10 {
        b.qp.post_recv(i, &[mr.sge(0, 8)]);
        a.qp.post_send(&Wr::send(i, &[mr.sge(8, 8)]));
    }
    assert!(w.engine.run(&mut w.host, LOOKS_ALONE, None).more);
    let budget = Budget {
        requests: 4,
        bytes: 1 << 20,
    };
    for (done, more) in [(4, true), (4, true), (2, false)] {
        let outcome = w.engine.run(&mut w.host, budget, None);
        assert_eq!((outcome.used.requests, outcome.more), (done, more));
        assert_eq!(a.cq.drain().len(), done as usize);
    }
}

#[test]
fn each_byte_of_a_request_is_read_once() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(4096);
    b.qp.post_recv(1, &[mr.sge(0, 64), mr.sge(64, 64)]);
    b.qp.post_recv(1, &[mr.sge(0, 64), mr.sge(64, 64)]);
    a.qp.post_send(&Wr::send(2, &[mr.sge(128, 10), mr.sge(256, 100)]));
    a.qp.post_send(&Wr::send(2, &[]).inline(&[7; 99]));
    w.run();
    assert_eq!(a.cq.drain().len(), 2);
    for queue in [&a.qp.queue, &b.qp.queue] {
        assert!(queue.reads.borrow().iter().all(|&count| count <= 1));
    }
}
