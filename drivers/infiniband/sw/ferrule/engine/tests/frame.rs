// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames of raw packet queue pairs.

use ferrule_engine::{abi, QpEvent, QpType, Sends, State, Status};

use crate::sim::*;

/// The bytes of a frame at most: 1500, the Ethernet header, and a VLAN tag.
const LIMIT: u32 = 1518;

struct Scene {
    w: World,
    a: End,
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut w = World::new();
        w.host.frame_limit = LIMIT;
        let a = w.raw(&QpSpec::default());
        let (from, to) = (w.mr(8192), w.mr(8192));
        from.fill(9);
        Self { w, a, from, to }
    }

    fn post(&mut self, wr: &Wr) {
        self.a.qp.post_send(wr);
        self.w.run();
    }

    /// A frame of so many bytes comes to `a`.
    fn come(&mut self, length: usize) {
        let packet = SentPacket::of_frame(&self.from.bytes(0, length));
        let number = self.a.qp.id.number;
        let world = &mut self.w;
        let host = &mut world.host;
        (world.engine).receive_frame(host, number, &packet, length as u32);
        self.w.run();
    }

    fn dropped(&self) -> u64 {
        self.w.engine.counters().dropped
    }
}

#[test]
fn the_bytes_of_a_request_are_the_frame() {
    let mut s = Scene::new();
    let sges = [s.from.sge(0, 14), s.from.sge(100, 50)];
    s.post(&Wr::send(1, &sges));
    let wc = s.a.cq.expect(1, Status::Success);
    assert_eq!(wc.opcode, abi::wc_opcode::SEND);
    let mut frame = s.from.bytes(0, 14);
    frame.extend(s.from.bytes(100, 50));
    assert_eq!(s.w.host.frames, [frame]);
    let inline = Wr {
        inline: Some(vec![7; 60]),
        flags: abi::wr_flags::SIGNALED | abi::wr_flags::INLINE,
        ..Wr::send(2, &[])
    };
    s.post(&inline);
    s.a.cq.expect(2, Status::Success);
    assert_eq!(s.w.host.frames[1], [7; 60]);
    let counters = s.w.engine.counters();
    assert_eq!((counters.packets_sent, counters.bytes_sent), (2, 124));
}

#[test]
fn a_frame_has_a_header_and_is_not_too_long() {
    for (length, status) in [
        (0, Status::LocalLength),
        (13, Status::LocalLength),
        (14, Status::Success),
        (LIMIT, Status::Success),
        (LIMIT + 1, Status::LocalLength),
    ] {
        let mut s = Scene::new();
        s.post(&Wr::send(1, &[s.from.sge(0, length)]));
        s.a.cq.expect(1, status);
        let is_sent = status == Status::Success;
        assert_eq!(s.w.host.frames.len(), usize::from(is_sent), "{length}");
        let state = if is_sent { State::Rts } else { State::Sqe };
        s.w.state(&s.a.qp, state);
    }
}

#[test]
fn sending_is_the_only_operation() {
    for opcode in 0..=u8::MAX {
        let mut s = Scene::new();
        let wr = Wr::send(1, &[s.from.sge(0, 60)]).with_opcode(opcode);
        s.post(&wr);
        let status = match opcode {
            abi::wr_opcode::SEND => Status::Success,
            _ => Status::LocalOperation,
        };
        s.a.cq.expect(1, status);
    }
    // Words that other operations have mean nothing to this one.
    let mut s = Scene::new();
    let extra = Wr {
        extra: [1; 16],
        ..Wr::send(1, &[s.from.sge(0, 60)])
    };
    s.post(&extra);
    s.a.cq.expect(1, Status::LocalOperation);
}

#[test]
fn a_frame_waits_for_space() {
    let mut s = Scene::new();
    s.w.host.busy = 1;
    s.post(&Wr::send(1, &[s.from.sge(0, 60)]));
    s.a.cq.expect_none();
    s.w.host.now += 50_000;
    s.w.run();
    s.a.cq.expect(1, Status::Success);
    s.w.host.full = Some(Sends::Requests);
    s.post(&Wr::send(2, &[s.from.sge(0, 60)]));
    s.a.cq.expect_none();
    s.w.host.full = None;
    s.w.engine.ring_qp(s.a.qp.id.number);
    s.w.run();
    s.a.cq.expect(2, Status::Success);
    assert_eq!(s.w.host.frames.len(), 2);
}

#[test]
fn memory_that_cannot_be_read_sends_nothing() {
    let mut s = Scene::new();
    let (address, _, _) = s.from.sge(0, 60);
    s.post(&Wr::send(1, &[(address, 60, s.from.key ^ 1)]));
    s.a.cq.expect(1, Status::LocalProtection);
    assert!(s.w.host.frames.is_empty());
}

#[test]
fn a_frame_takes_a_receive_request() {
    let mut s = Scene::new();
    s.to.fill(0);
    s.a.qp.post_recv(1, &[s.to.sge(0, 20), s.to.sge(1000, 100)]);
    s.come(60);
    let wc = s.a.cq.expect(1, Status::Success);
    assert_eq!((wc.byte_len, wc.flags, wc.src_qp), (60, 0, 0));
    assert_eq!(wc.opcode, abi::wc_opcode::RECV);
    assert_eq!(s.to.bytes(0, 20), s.from.bytes(0, 20));
    assert_eq!(s.to.bytes(1000, 40), s.from.bytes(20, 40));
    let counters = s.w.engine.counters();
    assert_eq!(counters.packets_received, 1);
    assert_eq!(counters.bytes_received, 60);
}

#[test]
fn a_frame_that_cannot_be_taken_is_dropped() {
    let mut s = Scene::new();
    s.come(60);
    assert_eq!(s.dropped(), 1);
    // Too long: the request stays for the next one.
    s.a.qp.post_recv(1, &[s.to.sge(0, 59)]);
    s.come(60);
    assert_eq!(s.dropped(), 2);
    s.a.cq.expect_none();
    s.come(59);
    s.a.cq.expect(1, Status::Success);
    // A queue pair of another type, one that is not ready, and none.
    let cq = s.w.cq(8);
    let rc = s.w.qp(&cq, &cq);
    let spec = QpSpec {
        qp_type: QpType::RawPacket,
        ..QpSpec::default()
    };
    let unready = s.w.qp_with(&spec, &cq, &cq);
    let packet = SentPacket::of_frame(&[0; 60]);
    for number in [rc.id.number, unready.id.number, 0x1234] {
        let world = &mut s.w;
        (world.engine).receive_frame(&mut world.host, number, &packet, 60);
    }
    assert_eq!(s.dropped(), 4);
    assert_eq!(s.w.engine.counters().unknown_queue_pairs, 1);
}

#[test]
fn memory_that_cannot_be_written_ends_in_error() {
    let mut s = Scene::new();
    let (address, _, _) = s.to.sge(0, 60);
    s.a.qp.post_recv(1, &[(address, 60, s.to.key ^ 1)]);
    s.come(60);
    s.a.cq.expect(1, Status::LocalProtection);
    s.w.state(&s.a.qp, State::Err);
    // One that is shorter than the host says is not read beyond its end.
    let mut s = Scene::new();
    s.a.qp.post_recv(1, &[s.to.sge(0, 200)]);
    let packet = SentPacket::of_frame(&[0; 60]);
    let number = s.a.qp.id.number;
    let world = &mut s.w;
    (world.engine).receive_frame(&mut world.host, number, &packet, 100);
    s.w.run();
    assert!(s
        .a
        .cq
        .poll()
        .is_none_or(|wc| wc.status != Status::Success as u8));
}

#[test]
fn frames_take_requests_of_a_shared_queue() {
    let mut s = Scene::new();
    let srq = s.w.srq(1, 16, 4);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    s.a = s.w.raw(&spec);
    assert!(srq.post(5, &[s.to.sge(0, 100)]));
    s.come(60);
    s.a.cq.expect(5, Status::Success);
}

#[test]
fn in_error_the_queues_are_flushed() {
    let mut s = Scene::new();
    s.a.qp.post_recv(1, &[s.to.sge(0, 100)]);
    s.w.to(&s.a.qp, State::Err);
    s.w.run();
    s.a.cq.expect(1, Status::Flushed);
    s.come(60);
    assert_eq!(s.dropped(), 1);
}

#[test]
fn the_completion_queue_may_overrun() {
    let mut s = Scene::new();
    let cq = s.w.cq(1);
    let spec = QpSpec {
        qp_type: QpType::RawPacket,
        ..QpSpec::default()
    };
    let qp = s.w.qp_with(&spec, &cq, &cq);
    s.w.ready_raw(&qp);
    let name = qp.name;
    s.a = End { qp, cq };
    for id in 0..3 {
        s.a.qp.post_recv(id, &[s.to.sge(0, 100)]);
        s.come(60);
    }
    s.w.state(&s.a.qp, State::Err);
    assert!(s.w.host.events.contains(&Event::Qp(name, QpEvent::Fatal)));
}
