// SPDX-License-Identifier: GPL-2.0

//! Reliable connections between queue pairs of one engine: what arrives, and how it is told.

use ferrule_engine::{abi, Access, Budget, Modify, Mtu, QpEvent, State, Status};

use crate::sim::refused::*;
use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_flags, wr_opcode};

const SIGNALED: u8 = wr_flags::SIGNALED;

#[test]
fn send_moves_bytes_and_completes_both_sides() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(4096), w.mr(4096));
    from.fill(1);
    b.qp.post_recv(70, &[to.sge(8, 1000)]);
    a.qp.post_send(&Wr::send(7, &[from.sge(100, 300)]));
    w.host.now = 12345;
    w.run();
    let recv = b.cq.expect(70, Status::Success);
    assert_eq!(recv.opcode, wc_opcode::RECV);
    assert_eq!(recv.byte_len, 300);
    assert_eq!(recv.qp_num, b.qp.id.number);
    assert_eq!(recv.qp_gen, b.qp.id.generation);
    assert_eq!(recv.src_qp, a.qp.id.number);
    assert_eq!(
        (recv.flags, recv.queue_index, recv.timestamp),
        (0, 1, 12345)
    );
    let send = a.cq.expect(7, Status::Success);
    assert_eq!(send.opcode, wc_opcode::SEND);
    assert_eq!((send.byte_len, send.queue_index), (300, 1));
    assert_eq!(to.bytes(8, 300), from.bytes(100, 300));
    assert_eq!(to.bytes(308, 16), [0; 16]);
    assert_eq!(to.bytes(0, 8), [0; 8]);
    a.cq.expect_none();
    b.cq.expect_none();
}

#[test]
fn immediate_data_arrive_as_given() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(4096);
    b.qp.post_recv(1, &[mr.sge(0, 64)]);
    b.qp.post_recv(2, &[]);
    let send = Wr::send(3, &[mr.sge(64, 8)]).with_opcode(wr_opcode::SEND_WITH_IMM);
    a.qp.post_send(&send.with_imm([1, 2, 3, 4]));
    let write = Wr::write(4, &[mr.sge(64, 32)], mr.remote(1024));
    let write = write.with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM);
    a.qp.post_send(&write.with_imm([5, 6, 7, 8]));
    w.run();
    let first = b.cq.expect(1, Status::Success);
    assert_eq!((first.imm, first.flags), ([1, 2, 3, 4], wc_flags::WITH_IMM));
    assert_eq!((first.opcode, first.byte_len), (wc_opcode::RECV, 8));
    let second = b.cq.expect(2, Status::Success);
    assert_eq!(
        (second.imm, second.flags),
        ([5, 6, 7, 8], wc_flags::WITH_IMM)
    );
    assert_eq!(second.opcode, wc_opcode::RECV_RDMA_WITH_IMM);
    assert_eq!((second.byte_len, second.queue_index), (32, 2));
    assert_eq!(a.cq.expect(3, Status::Success).opcode, wc_opcode::SEND);
    assert_eq!(
        a.cq.expect(4, Status::Success).opcode,
        wc_opcode::RDMA_WRITE
    );
}

#[test]
fn write_takes_no_receive_request() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(8192), w.mr(8192));
    from.fill(9);
    a.qp.post_send(&Wr::write(1, &[from.sge(0, 5000)], to.remote(3000)));
    w.run();
    a.cq.expect(1, Status::Success);
    b.cq.expect_none();
    assert_eq!(to.bytes(3000, 5000), from.bytes(0, 5000));
    assert_eq!(to.bytes(2999, 1), [0]);
    assert_eq!(to.bytes(8000, 192), [0; 192]);
}

#[test]
fn gather_and_scatter_cut_anywhere() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(4096), w.mr(4096));
    from.fill(3);
    b.qp.post_recv(
        1,
        &[
            to.sge(0, 10),
            to.sge(100, 0),
            to.sge(200, 25),
            to.sge(300, 100),
        ],
    );
    a.qp.post_send(&Wr::send(
        2,
        &[
            from.sge(0, 7),
            from.sge(50, 20),
            (0, 0, 0),
            from.sge(90, 31),
        ],
    ));
    w.run();
    assert_eq!(b.cq.expect(1, Status::Success).byte_len, 58);
    a.cq.expect(2, Status::Success);
    let mut sent = from.bytes(0, 7);
    sent.extend(from.bytes(50, 20));
    sent.extend(from.bytes(90, 31));
    let mut got = to.bytes(0, 10);
    got.extend(to.bytes(200, 25));
    got.extend(to.bytes(300, 23));
    assert_eq!(got, sent);
    assert_eq!(to.bytes(323, 8), [0; 8]);
}

#[test]
fn inline_data_are_taken_from_the_slot() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let to = w.mr(1024);
    let data: Vec<u8> = (0..=255).collect();
    b.qp.post_recv(1, &[to.sge(0, 100), to.sge(500, 200)]);
    a.qp.post_send(&Wr::send(2, &[]).inline(&data));
    a.qp.post_send(&Wr::write(3, &[], to.remote(800)).inline(&data[..16]));
    w.run();
    assert_eq!(b.cq.expect(1, Status::Success).byte_len, 256);
    a.cq.expect(2, Status::Success);
    a.cq.expect(3, Status::Success);
    assert_eq!(to.bytes(0, 100), data[..100]);
    assert_eq!(to.bytes(500, 156), data[100..]);
    assert_eq!(to.bytes(800, 16), data[..16]);
    // More than the queue pair promised does not pass.
    let (c, d) = w.pair_with(&QpSpec {
        max_inline: 16,
        ..QpSpec::default()
    });
    d.qp.post_recv(1, &[to.sge(0, 100)]);
    c.qp.post_send(&Wr::send(4, &[]).inline(&data[..17]));
    w.run();
    c.cq.expect(4, Status::LocalLength);
    w.state(&c.qp, State::Err);
}

#[test]
fn messages_without_data_check_no_key() {
    let mut w = World::new();
    let (a, b) = w.pair();
    b.qp.post_recv(1, &[(1, 0, 0xdead_beef)]);
    a.qp.post_send(&Wr::send(2, &[(5, 0, 0xdead_beef)]));
    a.qp.post_send(&Wr::write(3, &[], (0x1234, 0xdead_beef)));
    a.qp.post_send(&Wr::send(4, &[]).inline(&[]));
    b.qp.post_recv(5, &[]);
    w.run();
    assert_eq!(b.cq.expect(1, Status::Success).byte_len, 0);
    assert_eq!(b.cq.expect(5, Status::Success).byte_len, 0);
    for wr_id in 2..=4 {
        a.cq.expect(wr_id, Status::Success);
    }
    // Each took a sequence number all the same.
    assert_eq!(w.query(&a.qp).attr.sq_psn, (SQ_PSN + 3) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 3) & 0xff_ffff);
}

#[test]
fn unsignaled_requests_are_retired_by_the_next_completion() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    for i in 0..5 {
        b.qp.post_recv(10 + i, &[mr.sge(0, 8)]);
        let flags = if i == 3 { SIGNALED } else { 0 };
        a.qp.post_send(&Wr::send(i, &[mr.sge(8, 8)]).with_flags(flags));
    }
    w.run();
    assert_eq!(a.cq.expect(3, Status::Success).queue_index, 4);
    a.cq.expect_none();
    assert_eq!(b.cq.drain().len(), 5);
    // With sq_sig_all every request completes.
    let (c, d) = w.pair_with(&QpSpec {
        sq_sig_all: true,
        ..QpSpec::default()
    });
    d.qp.post_recv(1, &[mr.sge(0, 8)]);
    c.qp.post_send(&Wr::send(2, &[mr.sge(8, 8)]).with_flags(0));
    w.run();
    c.cq.expect(2, Status::Success);
}

#[test]
fn sequence_numbers_wrap_and_count_packets() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(1 << 16), w.mr(1 << 16));
    for (length, packets) in [(1, 1), (1024, 1), (1025, 2), (20_000, 20)] {
        let before = w.query(&a.qp).attr.sq_psn;
        a.qp.post_send(&Wr::write(1, &[from.sge(0, length)], to.remote(0)));
        w.run();
        a.cq.expect(1, Status::Success);
        let after = (before + packets) & 0xff_ffff;
        assert_eq!(w.query(&a.qp).attr.sq_psn, after);
        assert_eq!(w.query(&b.qp).attr.rq_psn, after);
    }
    assert!(w.query(&a.qp).attr.sq_psn < SQ_PSN, "has wrapped");
    assert_eq!(w.query(&b.qp).attr.sq_psn, SQ_PSN);
}

#[test]
fn one_queue_pair_may_be_its_own_peer() {
    let mut w = World::new();
    let cq = w.cq(64);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    let mr = w.mr(4096);
    mr.fill(4);
    qp.post_recv(1, &[mr.sge(1000, 100)]);
    qp.post_send(&Wr::send(2, &[mr.sge(0, 100)]));
    // Source and target overlap: the bytes are as of a move.
    let moved = mr.bytes(0, 500);
    qp.post_send(&Wr::write(3, &[mr.sge(0, 500)], mr.remote(10)));
    w.run();
    cq.expect(1, Status::Success);
    cq.expect(2, Status::Success);
    cq.expect(3, Status::Success);
    assert_eq!(mr.bytes(10, 500), moved);
    // A refusal puts it in error once, and both sides are told.
    qp.post_recv(4, &[mr.sge(0, 8)]);
    qp.post_send(&Wr::send(5, &[mr.sge(0, 100)]));
    w.run();
    cq.expect(4, Status::LocalLength);
    cq.expect(5, Status::RemoteInvalidRequest);
    w.state(&qp, State::Err);
}

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

// Errors

#[test]
fn receiver_not_ready_waits_and_tries_again() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    a.qp.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
    let outcome = w.run();
    // Code 12 is 0.64 ms.
    assert_eq!(outcome.deadline, Some(640 * US));
    a.cq.expect_none();
    b.qp.post_recv(2, &[mr.sge(0, 8)]);
    w.host.now = 639 * US;
    w.run();
    a.cq.expect_none();
    w.host.now = 640 * US;
    assert_eq!(w.run().deadline, None);
    a.cq.expect(1, Status::Success);
    b.cq.expect(2, Status::Success);
}

/// IBA volume 1, table 45.
#[test]
fn receiver_not_ready_says_for_how_long() {
    let tens_of_us = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    for (code, wait) in (0u8..).zip(tens_of_us) {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect(&a, &b);
        w.connect(&b, &a);
        let timer = Modify {
            min_rnr_timer: Some(code),
            ..Modify::default()
        };
        w.modify(&b, &timer).unwrap();
        a.post_send(&Wr::send(1, &[]));
        assert_eq!(w.run().deadline, Some(wait * 10 * US), "code {code}");
    }
}

#[test]
fn receiver_not_ready_has_so_many_retries() {
    for retries in 0..7u8 {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect(&b, &a);
        w.connect_rtr(&a, &b);
        let rts = Modify {
            rnr_retry: Some(retries),
            ..rts()
        };
        w.modify(&a, &rts).unwrap();
        let mr = w.mr(64);
        a.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
        a.post_send(&Wr::send(2, &[mr.sge(8, 8)]));
        w.settle(1000 * MS);
        assert_eq!(w.host.now, u64::from(retries) * 640 * US);
        ca.expect(1, Status::RnrRetryExceeded);
        ca.expect(2, Status::Flushed);
        w.state(&a, State::Err);
        w.state(&b, State::Rts);
    }
    // 7 is for ever.
    let mut w = World::new();
    let (a, _b) = w.pair();
    let mr = w.mr(64);
    a.qp.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
    w.settle(60_000 * MS);
    a.cq.expect_none();
    w.state(&a.qp, State::Rts);
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
        assert_eq!(w.host.now, (u64::from(retries) + 1) * (4096 << timeout));
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

#[test]
fn remote_access_is_refused() {
    let write: Request = |sge, remote| Wr::write(1, &[sge], remote);
    refused_without_access(write, Access::REMOTE_WRITE);
    refused_without_right(write, Access::REMOTE_WRITE);
    // And where the memory cannot be reached.
    refused(
        |w, _, _| {
            let mr = w.mr(64);
            mr.region.broken.set(true);
            let source = w.mr(64);
            Wr::write(1, &[source.sge(0, 8)], mr.remote(0))
        },
        Status::RemoteAccess,
        Some(QpEvent::AccessError),
    );
}

#[test]
fn message_longer_than_its_buffer_is_refused() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(64), w.mr(64));
    from.fill(1);
    b.qp.post_recv(1, &[to.sge(0, 4), to.sge(8, 3)]);
    b.qp.post_recv(2, &[to.sge(0, 64)]);
    a.qp.post_send(&Wr::send(3, &[from.sge(0, 8)]));
    w.run();
    b.cq.expect(1, Status::LocalLength);
    b.cq.expect(2, Status::Flushed);
    a.cq.expect(3, Status::RemoteInvalidRequest);
    assert_eq!(to.bytes(0, 64), [0; 64]);
    w.state(&a.qp, State::Err);
    w.state(&b.qp, State::Err);
    assert_eq!(w.events(), []);
}

#[test]
fn receive_buffer_that_is_none_ends_both_sides() {
    let access = Access::REMOTE_WRITE;
    for case in 0..4 {
        let mut w = World::new();
        let (a, b) = w.pair();
        let mr = w.mr(64);
        let read_only = w.mr_with(1, access, mr.region.memory.clone(), 0, 64);
        match case {
            0 => b.qp.post_recv(1, &[(mr.iova, 8, mr.key ^ 1)]),
            1 => b.qp.post_recv(1, &[mr.sge(60, 8)]),
            2 => b.qp.post_recv(1, &[read_only.sge(0, 8)]),
            _ => {
                let broken = w.mr(64);
                broken.region.broken.set(true);
                b.qp.post_recv(1, &[broken.sge(0, 8)]);
            }
        }
        a.qp.post_send(&Wr::send(3, &[mr.sge(0, 8)]));
        w.run();
        b.cq.expect(1, Status::LocalProtection);
        a.cq.expect(3, Status::RemoteOperation);
        w.state(&a.qp, State::Err);
        w.state(&b.qp, State::Err);
        assert_eq!(w.events(), []);
    }
}

#[test]
fn local_errors_reach_no_peer() {
    type Case = (fn(&TestMr) -> Wr, Status);
    let cases: [Case; 10] = [
        (
            |mr| Wr::send(1, &[(mr.iova, 8, mr.key ^ 1)]),
            Status::LocalProtection,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8), mr.sge(60, 8)]),
            Status::LocalProtection,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 1 << 31), mr.sge(0, 1)]),
            Status::LocalLength,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, u32::MAX), mr.sge(0, u32::MAX)]),
            Status::LocalLength,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_opcode(99),
            Status::LocalOperation,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_opcode(9),
            Status::LocalOperation,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_flags(1 << 6),
            Status::LocalOperation,
        ),
        (
            |mr| Wr {
                extra: [1; 16],
                ..Wr::send(1, &[mr.sge(0, 8)])
            },
            Status::LocalOperation,
        ),
        (
            // Says inline, but has a list.
            |mr| Wr {
                flags: wr_flags::INLINE,
                ..Wr::send(1, &[mr.sge(0, 8)])
            },
            Status::LocalOperation,
        ),
        (
            // Has inline data, but does not say so.
            |_| Wr {
                flags: 0,
                ..Wr::send(1, &[]).inline(&[1; 8])
            },
            Status::LocalOperation,
        ),
    ];
    for (i, (wr, status)) in cases.into_iter().enumerate() {
        let mut w = World::new();
        let (a, b) = w.pair();
        let mr = w.mr(64);
        b.qp.post_recv(5, &[mr.sge(0, 64)]);
        a.qp.post_send(&wr(&mr));
        a.qp.post_send(&Wr::send(2, &[]).with_flags(0));
        w.settle(1000 * MS);
        let wc = a.cq.expect(1, status);
        assert!(wc.opcode & 128 == 0, "case {i}");
        a.cq.expect(2, Status::Flushed);
        w.state(&a.qp, State::Err);
        w.state(&b.qp, State::Rts);
        b.cq.expect_none();
        assert_eq!(w.events(), []);
    }
}

#[test]
fn more_entries_than_promised_are_malformed() {
    let mut w = World::new();
    let (a, b) = w.pair_with(&QpSpec {
        max_sge: 2,
        max_inline: 256,
        ..QpSpec::default()
    });
    let mr = w.mr(64);
    let three = [mr.sge(0, 8), mr.sge(8, 8), mr.sge(16, 8)];
    a.qp.post_send(&Wr::send(1, &three));
    b.qp.post_recv(2, &three);
    w.run();
    a.cq.expect(1, Status::LocalOperation);
    w.state(&b.qp, State::Rts);
    // In the receive queue it is found when a message comes.
    let (c, d) = w.pair_with(&QpSpec {
        max_sge: 2,
        ..QpSpec::default()
    });
    d.qp.post_recv(2, &three);
    c.qp.post_send(&Wr::send(1, &three[..2]));
    w.run();
    d.cq.expect(2, Status::LocalOperation);
    c.cq.expect(1, Status::RemoteOperation);
}

#[test]
fn region_that_goes_during_a_long_message_ends_it() {
    const LENGTH: u32 = 1 << 20;
    for remote in [false, true] {
        let mut w = World::new();
        let (a, b) = w.pair();
        let (from, to) = (w.mr(LENGTH as usize), w.mr(LENGTH as usize));
        a.qp.post_send(&Wr::write(1, &[from.sge(0, LENGTH)], to.remote(0)));
        let budget = Budget {
            requests: 8,
            bytes: 1 << 18,
        };
        assert!(w.engine.run(&mut w.host, budget, None).more);
        let gone = if remote { to.key } else { from.key };
        w.engine.remove_mr(gone).unwrap();
        w.run();
        if remote {
            a.cq.expect(1, Status::RemoteAccess);
            w.state(&b.qp, State::Err);
        } else {
            a.cq.expect(1, Status::LocalProtection);
            w.state(&b.qp, State::Rts);
        }
        assert_eq!(w.engine.counters().bytes, 1 << 18);
    }
}

#[test]
fn peer_that_goes_during_a_long_message_is_missed() {
    const LENGTH: u32 = 1 << 20;
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(LENGTH as usize);
    b.qp.post_recv(9, &[mr.sge(0, LENGTH)]);
    a.qp.post_send(&Wr::send(1, &[mr.sge(0, LENGTH)]));
    let budget = Budget {
        requests: 8,
        bytes: 1 << 18,
    };
    assert!(w.engine.run(&mut w.host, budget, None).more);
    drop(w.engine.remove_qp(b.qp.id.number).unwrap());
    w.settle(10_000 * MS);
    a.cq.expect(1, Status::RetryExceeded);
    b.cq.expect_none();
}

#[test]
fn message_that_begins_within_another_is_refused() {
    const LENGTH: u32 = 1 << 20;
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(LENGTH as usize);
    b.qp.post_recv(9, &[mr.sge(0, LENGTH)]);
    a.qp.post_send(&Wr::send(1, &[mr.sge(0, LENGTH)]));
    let budget = Budget {
        requests: 8,
        bytes: 1 << 18,
    };
    assert!(w.engine.run(&mut w.host, budget, None).more);
    // The requester starts over, and its peer does not know.
    let psn = w.query(&b.qp).attr.rq_psn;
    w.to(&a.qp, State::Reset);
    a.qp.rewind();
    w.connect_rtr(&a.qp, &b.qp);
    let rts = Modify {
        sq_psn: Some(psn),
        path_mtu: None,
        ..rts()
    };
    w.modify(&a.qp, &rts).unwrap();
    assert_eq!(w.query(&a.qp).attr.path_mtu, Mtu::Mtu1024);
    a.qp.post_send(&Wr::send(2, &[mr.sge(0, 8)]));
    w.run();
    a.cq.expect(2, Status::RemoteInvalidRequest);
    b.cq.expect(9, Status::Flushed);
    assert_eq!(w.events(), [Event::Qp(b.qp.name, QpEvent::RequestError)]);
}

/// A message that its sender cannot read any more, when the receiver is ready at last, leaves the
/// receive request to the next.
#[test]
fn receive_request_is_not_lost_with_its_message() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, gone, to) = (w.mr(64), w.mr(64), w.mr(64));
    a.qp.post_send(&Wr::send(1, &[gone.sge(0, 64)]));
    w.run();
    assert!(w.engine.remove_mr(gone.key).is_ok());
    b.qp.post_recv(1, &[to.sge(0, 64)]);
    b.qp.post_recv(2, &[to.sge(0, 64)]);
    w.settle(10 * MS);
    a.cq.expect(1, Status::LocalProtection);
    b.cq.expect_none();

    w.to(&a.qp, State::Reset);
    a.qp.rewind();
    w.connect(&a.qp, &b.qp);
    for id in [1, 2] {
        from.fill(id);
        a.qp.post_send(&Wr::send(id.into(), &[from.sge(0, 64)]));
        w.run();
        a.cq.expect(id.into(), Status::Success);
        b.cq.expect(id.into(), Status::Success);
        assert_eq!(to.bytes(0, 64), from.bytes(0, 64));
    }
}
