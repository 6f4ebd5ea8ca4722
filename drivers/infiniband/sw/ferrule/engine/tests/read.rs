// SPDX-License-Identifier: GPL-2.0

//! RDMA READ between queue pairs of one engine.

use ferrule_engine::{abi, Access, Budget, Modify, State, Status};

use crate::sim::refused::*;
use crate::sim::*;
use abi::{wc_opcode, wr_flags, wr_opcode};

#[test]
fn read_brings_bytes_and_takes_no_receive_request() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(8192), w.mr(8192));
    theirs.fill(7);
    let sges = [mine.sge(10, 1000), mine.sge(2000, 0), mine.sge(3000, 4001)];
    a.qp.post_send(&Wr::read(1, &sges, theirs.remote(123)));
    w.run();
    let wc = a.cq.expect(1, Status::Success);
    assert_eq!(
        (wc.opcode, wc.byte_len, wc.queue_index),
        (wc_opcode::RDMA_READ, 5001, 1)
    );
    b.cq.expect_none();
    let mut got = mine.bytes(10, 1000);
    got.extend(mine.bytes(3000, 4001));
    assert_eq!(got, theirs.bytes(123, 5001));
    assert_eq!(mine.bytes(0, 10), [0; 10]);
    assert_eq!(mine.bytes(1010, 1990), [0; 1990]);
    assert_eq!(mine.bytes(7001, 1191), [0; 1191]);
    // The answer has 5 packets, and each takes a sequence number of the requester.
    assert_eq!(w.query(&a.qp).attr.sq_psn, (SQ_PSN + 5) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 5) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.sq_psn, SQ_PSN);
}

#[test]
fn read_of_nothing_checks_no_key() {
    let mut w = World::new();
    let (a, b) = w.pair();
    a.qp.post_send(&Wr::read(1, &[(5, 0, 0xdead)], (6, 0xbeef)));
    w.run();
    assert_eq!(a.cq.expect(1, Status::Success).byte_len, 0);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 1) & 0xff_ffff);
}

#[test]
fn long_read_keeps_to_the_budget() {
    const LENGTH: u32 = 3 << 20;
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(LENGTH as usize), w.mr(LENGTH as usize));
    theirs.fill(3);
    a.qp.post_send(&Wr::read(1, &[mine.sge(0, LENGTH)], theirs.remote(0)));
    let budget = Budget {
        requests: 8,
        bytes: 100_000,
    };
    let mut runs = 0;
    while w.engine.run(&mut w.host, budget, None).more {
        runs += 1;
    }
    assert!(runs >= 30);
    a.cq.expect(1, Status::Success);
    assert!(mine.bytes(0, LENGTH as usize) == theirs.bytes(0, LENGTH as usize));
    // A read leaves the responder in the middle of nothing: the requester may start over.
    a.qp.post_send(&Wr::read(2, &[mine.sge(0, LENGTH)], theirs.remote(0)));
    assert!(w.engine.run(&mut w.host, budget, None).more);
    let psn = w.query(&b.qp).attr.rq_psn;
    w.to(&a.qp, State::Reset);
    a.qp.rewind();
    w.connect_rtr(&a.qp, &b.qp);
    let rts = Modify {
        sq_psn: Some(psn),
        ..rts()
    };
    w.modify(&a.qp, &rts).unwrap();
    a.qp.post_send(&Wr::write(3, &[mine.sge(0, 8)], theirs.remote(0)));
    w.run();
    a.cq.expect(3, Status::Success);
}

#[test]
fn read_is_refused_without_key_right_or_resource() {
    let read: Request = |sge, remote| Wr::read(1, &[sge], remote);
    refused_without_access(read, Access::REMOTE_READ);
    refused_without_right(read, Access::REMOTE_READ);
    refused_without_resource(read);
}

/// Posts a request that fails before it reaches the peer.
#[track_caller]
fn failed(prepare: impl Fn(&mut World, &End, &TestMr) -> Wr, status: Status) {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    mr.fill(1);
    let before = mr.bytes(0, 64);
    let wr = prepare(&mut w, &a, &mr);
    a.qp.post_send(&Wr { wr_id: 1, ..wr });
    w.run();
    assert_eq!(a.cq.expect(1, status).opcode, wc_opcode::RDMA_READ);
    w.state(&a.qp, State::Err);
    w.state(&b.qp, State::Rts);
    assert_eq!(w.query(&b.qp).attr.rq_psn, SQ_PSN);
    assert_eq!(w.events(), []);
    assert_eq!(mr.bytes(0, 64), before);
}

#[test]
fn read_fails_at_the_requester() {
    // Into memory that only peers may write, that is gone, or not one's own.
    failed(
        |w, _, mr| {
            let memory = mr.region.memory.clone();
            let target = w.mr_with(1, Access::NONE, memory, 0, 64);
            Wr::read(1, &[target.sge(0, 8)], mr.remote(8))
        },
        Status::LocalProtection,
    );
    failed(
        |_, _, mr| Wr::read(1, &[mr.sge(0, 8), mr.sge(60, 5)], mr.remote(8)),
        Status::LocalProtection,
    );
    failed(
        |w, _, mr| {
            let memory = mr.region.memory.clone();
            let target = w.mr_with(2, ALL, memory, 0, 64);
            Wr::read(1, &[target.sge(0, 8)], mr.remote(8))
        },
        Status::LocalProtection,
    );
    // Into the slot, and without a resource to wait for the answer.
    failed(
        |_, _, mr| {
            Wr::write(1, &[], mr.remote(8))
                .inline(&[1; 8])
                .with_opcode(wr_opcode::RDMA_READ)
        },
        Status::LocalOperation,
    );
    failed(
        |w, a, mr| {
            w.to(&a.qp, State::Sqd);
            let none = Modify {
                max_rd_atomic: Some(0),
                ..Modify::default()
            };
            w.modify(&a.qp, &none).unwrap();
            w.to(&a.qp, State::Rts);
            Wr::read(1, &[mr.sge(0, 8)], mr.remote(8))
        },
        Status::LocalOperation,
    );
}

#[test]
fn region_that_goes_during_a_long_read_ends_it() {
    ended_by_a_region_that_goes(|sge, remote| Wr::read(1, &[sge], remote));
}

/// A request behind a read, fenced or not, sees what the read brought, and completes after it.
#[test]
fn fenced_request_sends_what_a_read_brought() {
    for flags in [wr_flags::SIGNALED, wr_flags::SIGNALED | wr_flags::FENCE] {
        let mut w = World::new();
        let (a, _b) = w.pair();
        let (mine, theirs) = (w.mr(64), w.mr(128));
        theirs.fill(9);
        a.qp.post_send(&Wr::read(1, &[mine.sge(0, 64)], theirs.remote(0)));
        a.qp.post_send(&Wr::write(2, &[mine.sge(0, 64)], theirs.remote(64)).with_flags(flags));
        w.run();
        a.cq.expect(1, Status::Success);
        a.cq.expect(2, Status::Success);
        assert_eq!(theirs.bytes(64, 64), theirs.bytes(0, 64));
    }
}
