// SPDX-License-Identifier: GPL-2.0

//! The data that arrive, byte for byte, and their completions.

use ferrule_engine::{abi, State, Status};

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
