// SPDX-License-Identifier: GPL-2.0

//! Unreliable connections between queue pairs of one engine: messages that arrive and messages that
//! are dropped.

use ferrule_engine::{abi, Access, Budget, Modify, MwType, QpEvent, QpType, State, Status};

use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_opcode};

struct Scene {
    w: World,
    a: End,
    b: End,
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        Self::with(&QpSpec::default())
    }

    /// The receiver is made so.
    fn with(spec: &QpSpec) -> Self {
        let mut w = World::new();
        let (ca, cb) = (w.cq(64), w.cq(64));
        let uc = |spec: &QpSpec| QpSpec {
            qp_type: QpType::Uc,
            ..spec.clone()
        };
        let a = w.qp_with(&uc(&QpSpec::default()), &ca, &ca);
        let b = w.qp_with(&uc(spec), &cb, &cb);
        w.connect_uc(&a, &b);
        w.connect_uc(&b, &a);
        let (from, to) = (w.mr(1 << 20), w.mr(1 << 20));
        from.fill(6);
        Self {
            w,
            a: End { qp: a, cq: ca },
            b: End { qp: b, cq: cb },
            from,
            to,
        }
    }

    /// Sends, and checks that the sender is content.
    #[track_caller]
    fn send(&mut self, wr: Wr) {
        self.a.qp.post_send(&wr);
        self.w.run();
        self.a.cq.expect(wr.wr_id, Status::Success);
        self.a.cq.expect_none();
    }

    /// Sends the beginning of a message of so many bytes, and comes back to RESET.
    fn send_cut_short(&mut self, length: u32) {
        let sge = self.from.sge(0, length);
        self.a.qp.post_send(&Wr::send(2, &[sge]));
        let budget = Budget {
            requests: 1,
            bytes: 1000,
        };
        self.w.engine.run(&mut self.w.host, budget, None);
        self.w.to(&self.a.qp, State::Reset);
        self.a.qp.rewind();
    }

    fn dropped(&self) -> u64 {
        self.w.engine.counters().dropped
    }
}

#[test]
fn messages_arrive_as_over_reliable_connections() {
    let mut s = Scene::new();
    for length in [0u32, 1, 1024, 1025, 700_000] {
        s.b.qp.post_recv(1, &[s.to.sge(0, 1 << 20)]);
        s.send(Wr::send(2, &[s.from.sge(0, length)]));
        let wc = s.b.cq.expect(1, Status::Success);
        assert_eq!((wc.byte_len, wc.opcode), (length, wc_opcode::RECV));
        assert_eq!(
            s.to.bytes(0, length as usize),
            s.from.bytes(0, length as usize)
        );
    }
    s.send(Wr::write(3, &[s.from.sge(5, 300_000)], s.to.remote(77)));
    s.b.cq.expect_none();
    assert_eq!(s.to.bytes(77, 300_000), s.from.bytes(5, 300_000));
    s.b.qp.post_recv(4, &[]);
    let write = Wr::write(5, &[s.from.sge(0, 300_000)], s.to.remote(0));
    s.send(
        write
            .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM)
            .with_imm([1, 2, 3, 4]),
    );
    let wc = s.b.cq.expect(4, Status::Success);
    assert_eq!((wc.imm, wc.flags), ([1, 2, 3, 4], wc_flags::WITH_IMM));
    assert_eq!(
        (wc.opcode, wc.byte_len),
        (wc_opcode::RECV_RDMA_WITH_IMM, 300_000)
    );
    assert_eq!(s.dropped(), 0);
    assert_eq!(s.w.engine.counters().sequence_errors, 0);
}

#[test]
fn a_message_that_cannot_be_taken_is_dropped_whole() {
    let mut s = Scene::new();
    // No receive request, for messages of one and of several pieces.
    s.send(Wr::send(1, &[s.from.sge(0, 8)]));
    s.send(Wr::send(1, &[s.from.sge(0, 700_000)]));
    assert_eq!(s.dropped(), 2);
    let write = Wr::write(1, &[s.from.sge(0, 300_000)], s.to.remote(0));
    s.send(write.with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM));
    assert_eq!(s.dropped(), 3);
    // A key that opens nothing, or not so much.
    s.send(Wr::write(1, &[s.from.sge(0, 8)], (0, 77)));
    s.send(Wr::write(
        1,
        &[s.from.sge(0, 8)],
        s.to.remote((1 << 20) - 7),
    ));
    assert_eq!(s.dropped(), 5);
    // No right of the queue pair.
    let modify = Modify {
        access: Some(Access::NONE),
        ..Modify::default()
    };
    s.w.modify(&s.b.qp, &modify).unwrap();
    s.send(Wr::write(1, &[s.from.sge(0, 8)], s.to.remote(0)));
    assert_eq!(s.dropped(), 6);
    // Both are as they were, and the next message arrives.
    s.w.state(&s.a.qp, State::Rts);
    s.w.state(&s.b.qp, State::Rts);
    assert_eq!(s.w.events(), []);
    assert_eq!(s.w.engine.counters().sequence_errors, 0);
    s.b.qp.post_recv(2, &[s.to.sge(0, 8)]);
    s.send(Wr::send(3, &[s.from.sge(0, 8)]));
    s.b.cq.expect(2, Status::Success);
}

#[test]
fn a_request_too_small_waits_for_the_next_message() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 8)]);
    s.send(Wr::send(2, &[s.from.sge(0, 9)]));
    s.b.cq.expect_none();
    assert_eq!(s.to.bytes(0, 8), [0; 8]);
    s.send(Wr::send(3, &[s.from.sge(0, 8)]));
    s.b.cq.expect(1, Status::Success);
    assert_eq!(s.dropped(), 1);
}

#[test]
fn a_shared_queue_loses_the_request_of_a_message_too_long() {
    let mut s = Scene::new();
    let srq = s.w.srq(1, 8, 1);
    let cq = s.w.cq(8);
    let spec = QpSpec {
        qp_type: QpType::Uc,
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    let b = s.w.qp_with(&spec, &cq, &cq);
    s.w.connect_uc(&b, &s.a.qp);
    s.w.to(&s.a.qp, State::Reset);
    s.a.qp.rewind();
    s.w.connect_uc(&s.a.qp, &b);
    assert!(srq.post(1, &[s.to.sge(0, 8)]));
    assert!(srq.post(2, &[s.to.sge(0, 8)]));
    s.send(Wr::send(3, &[s.from.sge(0, 9)]));
    cq.expect(1, Status::LocalLength);
    s.send(Wr::send(4, &[s.from.sge(0, 8)]));
    cq.expect(2, Status::Success);
    s.w.state(&b, State::Rts);
}

#[test]
fn nobody_there_is_a_loss() {
    let mut s = Scene::new();
    s.w.to(&s.b.qp, State::Err);
    s.send(Wr::send(1, &[s.from.sge(0, 700_000)]));
    s.w.engine.remove_qp(s.b.qp.id.number).unwrap();
    s.send(Wr::send(2, &[s.from.sge(0, 8)]));
    s.w.state(&s.a.qp, State::Rts);
    assert!(s.w.run().deadline.is_none());
}

#[test]
fn numbers_that_do_not_follow_begin_with_the_next_message() {
    let mut s = Scene::new();
    let modify = Modify {
        state: Some(State::Rts),
        sq_psn: Some(5),
        ..Modify::default()
    };
    s.w.to(&s.a.qp, State::Reset);
    s.a.qp.rewind();
    s.w.modify(&s.a.qp, &init()).unwrap();
    let rtr = Modify {
        max_dest_rd_atomic: None,
        min_rnr_timer: None,
        ..rtr(s.b.qp.id.number)
    };
    s.w.modify(&s.a.qp, &rtr).unwrap();
    s.w.modify(&s.a.qp, &modify).unwrap();
    s.b.qp.post_recv(1, &[s.to.sge(0, 8)]);
    s.send(Wr::send(2, &[s.from.sge(0, 8)]));
    s.b.cq.expect(1, Status::Success);
    assert_eq!(s.w.engine.counters().sequence_errors, 1);
    assert_eq!(s.w.query(&s.b.qp).attr.rq_psn, 6);
}

#[test]
fn a_message_cut_short_leaves_its_request_for_the_next() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 1 << 20)]);
    s.send_cut_short(700_000);
    s.w.run();
    s.b.cq.expect_none();
    s.w.connect_uc(&s.a.qp, &s.b.qp);
    s.send(Wr::send(3, &[s.from.sge(100, 50)]));
    assert_eq!(s.b.cq.expect(1, Status::Success).byte_len, 50);
    assert_eq!(s.to.bytes(0, 50), s.from.bytes(100, 50));
}

/// A message that takes no receive request leaves the one at hand to the next that takes one.
#[test]
fn a_write_after_a_message_cut_short_completes_no_receive_request() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 1 << 19)]);
    s.send_cut_short(500_000);
    s.w.connect_uc(&s.a.qp, &s.b.qp);
    s.send(Wr::write(
        3,
        &[s.from.sge(0, 300_000)],
        s.to.remote(1 << 19),
    ));
    s.b.cq.expect_none();
    s.send(Wr::send(4, &[s.from.sge(100, 50)]));
    assert_eq!(s.b.cq.expect(1, Status::Success).byte_len, 50);
    assert_eq!(s.to.bytes(0, 50), s.from.bytes(100, 50));
}

#[test]
fn errors_of_their_own_end_at_each_side() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[(0, 8, 77)]);
    s.b.qp.post_recv(2, &[s.to.sge(0, 8)]);
    s.send(Wr::send(3, &[s.from.sge(0, 8)]));
    s.b.cq.expect(1, Status::LocalProtection);
    s.b.cq.expect(2, Status::Flushed);
    s.w.state(&s.b.qp, State::Err);
    s.w.state(&s.a.qp, State::Rts);

    s.a.qp.post_send(&Wr::send(4, &[(0, 8, 77)]));
    s.a.qp.post_send(&Wr::send(5, &[]));
    s.w.run();
    s.a.cq.expect(4, Status::LocalProtection);
    s.a.cq.expect(5, Status::Flushed);
    s.w.state(&s.a.qp, State::Sqe);
    s.w.to(&s.a.qp, State::Rts);
    s.send(Wr::send(6, &[]));
    // Reads and atomics are of reliable connections.
    s.a.qp
        .post_send(&Wr::read(7, &[s.from.sge(0, 8)], s.to.remote(0)));
    s.w.run();
    s.a.cq.expect(7, Status::LocalOperation);
}

/// A window that a UC queue pair binds opens to its peer until it is invalidated, and a window that
/// cannot be bound stops the send queue.
#[test]
fn windows_are_bound_and_invalidated() {
    let mut s = Scene::new();
    let theirs = s.w.mr_with(1, BINDABLE, memory::shared(4096), 0, 4096);
    for mw_type in [MwType::Type1, MwType::Type2] {
        let window = s.w.mw(1, mw_type);
        let key = window & !0xff | (window + 1) & 0xff;
        let bind = Wr::bind(1, window, key, theirs.remote(100), 50);
        s.b.qp.post_send(&bind);
        s.w.run();
        let wc = s.b.cq.expect(1, Status::Success);
        assert_eq!(wc.opcode, wc_opcode::BIND_MW);
        let dropped = s.dropped();
        let write =
            |wr_id, offset| Wr::write(wr_id, &[s.from.sge(0, 50)], (theirs.iova + offset, key));
        let (within, beyond) = (write(2, 100), write(3, 101));
        s.send(within.clone());
        assert_eq!(theirs.bytes(100, 50), s.from.bytes(0, 50));
        assert_eq!(s.dropped(), dropped);
        s.send(beyond);
        assert_eq!(s.dropped(), dropped + 1);

        // One of type 1 is not invalidated, but bound to nothing by another bind.
        s.b.qp.post_send(&Wr::local_inv(4, key));
        s.w.run();
        if mw_type == MwType::Type1 {
            s.b.cq.expect(4, Status::WindowBind);
            s.w.state(&s.b.qp, State::Sqe);
            s.w.to(&s.b.qp, State::Rts);
            continue;
        }
        let wc = s.b.cq.expect(4, Status::Success);
        assert_eq!(wc.opcode, wc_opcode::LOCAL_INV);
        s.send(within);
        assert_eq!(s.dropped(), dropped + 2);
    }
}

#[test]
fn jumps_and_overruns_break_the_receiver() {
    let mut s = Scene::new();
    s.b.qp.queue.set_word(s.b.qp.ctrl as usize + 64, 17);
    s.send(Wr::send(1, &[]));
    s.w.state(&s.b.qp, State::Err);
    assert_eq!(s.w.events(), [Event::Qp(s.b.qp.name, QpEvent::Fatal)]);
}

#[test]
fn the_first_message_before_ready_to_send_is_told() {
    let mut s = Scene::new();
    s.w.to(&s.b.qp, State::Reset);
    s.w.modify(&s.b.qp, &init()).unwrap();
    let rtr = Modify {
        max_dest_rd_atomic: None,
        min_rnr_timer: None,
        ..rtr(s.a.qp.id.number)
    };
    s.w.modify(&s.b.qp, &rtr).unwrap();
    s.send(Wr::send(1, &[]));
    s.send(Wr::send(2, &[]));
    let told = Event::Qp(s.b.qp.name, QpEvent::CommunicationEstablished);
    assert_eq!(s.w.events(), [told]);
}
