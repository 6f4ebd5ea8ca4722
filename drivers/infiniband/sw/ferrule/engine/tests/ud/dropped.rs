// SPDX-License-Identifier: GPL-2.0

//! Datagrams that do not fit, and errors of either side.

use ferrule_engine::{abi, Access, Modify, PathKind, QpEvent, QpType, State, Status};

use super::{local, Scene, MULTICAST, QKEY};
use crate::sim::*;
use abi::wr_opcode;

#[test]
fn a_datagram_is_no_longer_than_a_packet() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 4096)]);
    s.send(1024);
    s.b.cq.expect(1, Status::Success);
    let wr = Wr::datagram(2, &[s.from.sge(0, 1025)], s.to_b(), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(2, Status::LocalLength);
    s.w.state(&s.a.qp, State::Sqe);
}

#[test]
fn the_qkey_has_to_match() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 100)]);
    let wr = Wr::datagram(2, &[s.from.sge(0, 8)], s.to_b(), QKEY + 1);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(2, Status::Success);
    s.b.cq.expect_none();
    assert_eq!(s.w.engine.counters().qkey_violations, 1);
    assert_eq!(s.dropped(), 1);
    // With the highest bit, the sender's own is sent.
    let wr = Wr::datagram(3, &[s.from.sge(0, 8)], s.to_b(), 0x8000_0000);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.b.cq.expect(1, Status::Success);
    // Only a sender that has the controlled Q_Key reaches this queue pair.
    let modify = Modify {
        qkey: Some(0x8001_0000),
        ..Modify::default()
    };
    s.w.modify(&s.b.qp, &modify).unwrap();
    s.b.qp.post_recv(4, &[s.to.sge(0, 100)]);
    let wr = Wr::datagram(5, &[s.from.sge(0, 8)], s.to_b(), 0x8001_0000);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.b.cq.expect_none();
    s.w.modify(&s.a.qp, &modify).unwrap();
    s.a.qp.post_send(&wr);
    s.w.run();
    s.b.cq.expect(4, Status::Success);
}

#[test]
fn datagrams_without_a_receiver_are_dropped() {
    let mut s = Scene::new();
    // No receive request.
    s.send(8);
    assert_eq!(s.dropped(), 1);
    // Nobody of that number, one of another service, one that is not ready.
    let cq = s.w.cq(8);
    let rc = s.w.qp(&cq, &cq);
    let spec = QpSpec {
        qp_type: QpType::Ud,
        ..QpSpec::default()
    };
    let unready = s.w.qp_with(&spec, &cq, &cq);
    for qpn in [0x1234, rc.id.number, unready.id.number, 0, MULTICAST] {
        let wr = Wr::datagram(1, &[s.from.sge(0, 8)], (s.ah, qpn), QKEY);
        s.a.qp.post_send(&wr);
    }
    // Elsewhere.
    let remote = s.w.ah(1, path(PathKind::Remote));
    let to = (remote, s.b.qp.id.number);
    s.b.qp.post_recv(2, &[s.to.sge(0, 100)]);
    s.a.qp
        .post_send(&Wr::datagram(1, &[s.from.sge(0, 8)], to, QKEY));
    s.w.run();
    for _ in 0..6 {
        s.a.cq.expect(1, Status::Success);
    }
    s.b.cq.expect_none();
    assert_eq!((s.dropped(), s.w.host.sent.len()), (6, 1));
    s.send(8);
    s.b.cq.expect(2, Status::Success);
}

#[test]
fn a_buffer_too_small_waits_for_the_next_datagram() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 50)]);
    s.b.qp.post_recv(2, &[s.to.sge(100, 50)]);
    s.send(11);
    s.b.cq.expect_none();
    assert_eq!(s.dropped(), 1);
    assert_eq!(s.to.bytes(0, 50), [0; 50]);
    s.send(10);
    s.b.cq.expect(1, Status::Success);
    s.send(10);
    assert_eq!(s.b.cq.expect(2, Status::Success).queue_index, 2);
    s.w.state(&s.b.qp, State::Rts);
    // One that stayed at hand is flushed with the rest.
    s.b.qp.post_recv(3, &[s.to.sge(0, 50)]);
    s.b.qp.post_recv(4, &[s.to.sge(0, 50)]);
    s.send(11);
    s.w.to(&s.b.qp, State::Err);
    s.w.run();
    s.b.cq.expect(3, Status::Flushed);
    s.b.cq.expect(4, Status::Flushed);
}

#[test]
fn a_shared_queue_loses_the_request_of_a_datagram_too_long() {
    let mut s = Scene::new();
    let srq = s.w.srq(1, 8, 1);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    s.b = s.w.ud(&spec, QKEY);
    assert!(srq.post(1, &[s.to.sge(0, 50)]));
    assert!(srq.post(2, &[s.to.sge(0, 50)]));
    s.send(11);
    s.b.cq.expect(1, Status::LocalLength);
    s.w.state(&s.b.qp, State::Rts);
    s.send(10);
    s.b.cq.expect(2, Status::Success);
}

#[test]
fn a_bad_buffer_is_an_error_of_the_receiver_alone() {
    let mut s = Scene::new();
    let read_only = s.w.mr_with(1, Access::NONE, memory::shared(100), 0, 100);
    s.b.qp.post_recv(1, &[read_only.sge(0, 100)]);
    s.b.qp.post_recv(2, &[s.to.sge(0, 100)]);
    s.send(8);
    s.b.cq.expect(1, Status::LocalProtection);
    s.b.cq.expect(2, Status::Flushed);
    s.w.state(&s.b.qp, State::Err);
    s.w.state(&s.a.qp, State::Rts);
    assert_eq!(read_only.bytes(0, 100), [0; 100]);
}

#[test]
fn an_error_of_the_sender_stops_its_send_queue_only() {
    type Change = fn(&mut Scene) -> Wr;
    let changes: [(Change, Status); 6] = [
        // No such address handle.
        (
            |s| Wr::datagram(1, &[], (s.ah + 1, s.b.qp.id.number), QKEY),
            Status::LocalOperation,
        ),
        // One that is gone.
        (
            |s| {
                s.w.engine.remove_ah(s.ah).unwrap();
                Wr::datagram(1, &[], s.to_b(), QKEY)
            },
            Status::LocalOperation,
        ),
        // One of another protection domain.
        (
            |s| {
                let ah = s.w.ah(2, local());
                Wr::datagram(1, &[], (ah, s.b.qp.id.number), QKEY)
            },
            Status::LocalOperation,
        ),
        // A number of more than 24 bits.
        (
            |s| Wr::datagram(1, &[], (s.ah, 1 << 24), QKEY),
            Status::LocalOperation,
        ),
        // An unknown operation.
        (
            |s| Wr::datagram(1, &[], s.to_b(), QKEY).with_opcode(wr_opcode::RDMA_WRITE),
            Status::LocalOperation,
        ),
        // A key that opens nothing.
        (
            |s| Wr::datagram(1, &[(0, 8, 77)], s.to_b(), QKEY),
            Status::LocalProtection,
        ),
    ];
    for (change, status) in changes {
        let mut s = Scene::new();
        s.a.qp.post_recv(9, &[s.to.sge(0, 100)]);
        let wr = change(&mut s);
        s.a.qp.post_send(&wr);
        s.a.qp
            .post_send(&Wr::datagram(2, &[], s.to_b(), QKEY).with_flags(0));
        s.w.run();
        s.a.cq.expect(1, status);
        s.a.cq.expect(2, Status::Flushed);
        s.w.state(&s.a.qp, State::Sqe);
        // A request that is posted now is flushed, too.
        s.a.qp.post_send(&Wr::datagram(3, &[], s.to_b(), QKEY));
        s.w.run();
        s.a.cq.expect(3, Status::Flushed);
        // It receives all the time.
        let ah = s.w.ah(1, local());
        let to = (ah, s.a.qp.id.number);
        s.b.qp.post_send(&Wr::datagram(4, &[], to, QKEY));
        s.w.run();
        s.a.cq.expect(9, Status::Success);
        s.b.cq.expect(4, Status::Success);
        // And it sends again when it is told to.
        s.w.to(&s.a.qp, State::Rts);
        s.b.qp.post_recv(5, &[s.to.sge(0, 100)]);
        let to = (ah, s.b.qp.id.number);
        s.a.qp.post_send(&Wr::datagram(6, &[], to, QKEY));
        s.w.run();
        s.a.cq.expect(6, Status::Success);
        s.b.cq.expect(5, Status::Success);
        assert_eq!(s.w.events(), []);
    }
}

#[test]
fn jumps_of_the_producer_break_the_receiver() {
    let mut s = Scene::new();
    s.b.qp.queue.set_word(s.b.qp.ctrl as usize + 64, 17);
    s.send(8);
    s.w.state(&s.b.qp, State::Err);
    assert_eq!(s.w.events(), [Event::Qp(s.b.qp.name, QpEvent::Fatal)]);
}
