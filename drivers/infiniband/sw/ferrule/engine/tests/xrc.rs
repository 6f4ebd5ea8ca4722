// SPDX-License-Identifier: GPL-2.0

//! Extended reliable connections (IBA volume 1, annex A14), in memory and by packets: a target
//! takes for any shared receive queue of its XRC domain, by whose protection domain keys are
//! judged.

mod bad_network;
mod objects;

use ferrule_engine::packet::opcode::{rc, Service};
use ferrule_engine::packet::Packet;
use ferrule_engine::{
    abi, Access, Error, Modify, PathKind, QpEvent, QpType, State, Status, XrcSrq,
};

use crate::sim::network::{deliver, Faults, Link, GIDS};
use crate::sim::*;
use abi::{wc_opcode, wr_opcode};

const DOMAIN: u32 = 7;
/// Of the programs that own the queues.
const PD: u32 = 5;

fn initiator() -> QpSpec {
    QpSpec {
        qp_type: QpType::XrcIni,
        ..QpSpec::default()
    }
}

fn target() -> QpSpec {
    QpSpec {
        qp_type: QpType::XrcTgt,
        pd: DOMAIN,
        ..QpSpec::default()
    }
}

/// Two worlds, or twice the same one, with an initiator in the first and a target in the second.
struct Scene {
    link: Link,
    to: usize,
    a: End,
    b: TestQp,
    from: TestMr,
}

impl Scene {
    fn remote(faults: Faults) -> Self {
        Self::new(faults, 1)
    }

    fn local() -> Self {
        Self::new(Faults::default(), 0)
    }

    fn new(faults: Faults, to: usize) -> Self {
        let mut link = Link::new(3, faults, false);
        let cq = link.worlds[0].cq(64);
        let a = link.worlds[0].qp_with(&initiator(), &cq, &cq);
        let unused = link.worlds[to].cq(1);
        let b = link.worlds[to].qp_with(&target(), &unused, &unused);
        let from = link.worlds[0].mr(1 << 17);
        from.fill(7);
        let mut scene = Self {
            link,
            to,
            a: End { qp: a, cq },
            b,
            from,
        };
        scene.connect();
        scene
    }

    fn connect(&mut self) {
        let (a, b) = (self.a.qp.clone(), self.b.clone());
        for (world, qp, peer, sends) in [(0, &a, &b, true), (self.to, &b, &a, false)] {
            let mut modifies = [init(), rtr(peer.id.number), rts()];
            if self.to != 0 {
                let mut way = path(PathKind::Remote);
                (way.sgid, way.dgid) = (GIDS[world], GIDS[1 - world]);
                modifies[1].path = Some(way);
            }
            for modify in &mut modifies {
                of_xrc_side(modify, sends);
                self.link.worlds[world].modify(qp, modify).unwrap();
            }
        }
    }

    fn target(&mut self) -> &mut World {
        &mut self.link.worlds[self.to]
    }

    /// A shared receive queue, its completion queue, and memory of its protection domain.
    fn receiver(&mut self, pd: u32, domain: u32) -> (TestSrq, TestCq, TestMr) {
        let world = self.target();
        let cq = world.cq(64);
        let srq = world.xrc_srq(pd, domain, &cq);
        let mr = world.mr_with(pd, ALL, memory::shared(1 << 17), 0, 1 << 17);
        (srq, cq, mr)
    }

    fn post(&self, wr: Wr, srq: &TestSrq) {
        self.a.qp.post_send(&wr.to_srq(srq.number));
    }

    fn run(&mut self) {
        if self.to == 0 {
            self.link.worlds[0].settle(200 * MS);
        } else {
            self.link.settle();
        }
    }

    fn ends(&self) -> [&TestQp; 2] {
        [&self.a.qp, &self.b]
    }

    /// The target refuses the request of this name, and both sides are in error.
    #[track_caller]
    fn refused(&mut self, wr_id: u64, status: Status, event: Option<QpEvent>) {
        self.run();
        self.a.cq.expect(wr_id, status);
        let (a, b) = (self.a.qp.clone(), self.b.clone());
        self.link.worlds[0].state(&a, State::Err);
        let world = self.target();
        world.state(&b, State::Err);
        let events: Vec<_> = event
            .map(|event| Event::Qp(b.name, event))
            .into_iter()
            .collect();
        assert_eq!(world.events(), events);
    }
}

fn parse(packet: &SentPacket) -> Packet<'_> {
    Packet::parse(&packet.transport, packet.transport.len()).unwrap()
}

/// The same packet with other bytes in its base transport header, from `at` on.
fn with(packet: &SentPacket, at: usize, number: u32) -> SentPacket {
    let mut packet = packet.clone();
    packet.transport[at..at + 3].copy_from_slice(&number.to_be_bytes()[1..]);
    packet.seal();
    packet
}

/// It comes back to where it came from, for the queue pair of this number.
fn returned(packet: &SentPacket, qpn: u32) -> SentPacket {
    let mut packet = packet.clone();
    let (from, to) = packet.ip[8..40].split_at_mut(16);
    from.swap_with_slice(to);
    with(&packet, 5, qpn)
}

/// In memory, and by packets.
fn both() -> [Scene; 2] {
    [Scene::local(), Scene::remote(Faults::default())]
}

#[test]
fn each_operation_goes_to_the_queue_that_it_names() {
    for mut s in both() {
        let (one, one_cq, one_mr) = s.receiver(PD, DOMAIN);
        let (two, two_cq, two_mr) = s.receiver(PD + 1, DOMAIN);
        assert!(one.post(10, &[one_mr.sge(0, 8192)]));
        assert!(two.post(20, &[two_mr.sge(0, 64)]));
        assert!(two.post(21, &[]));
        s.post(Wr::send(1, &[s.from.sge(0, 5000)]), &one);
        let send = Wr::send(2, &[s.from.sge(5000, 10)]);
        s.post(
            send.with_opcode(wr_opcode::SEND_WITH_IMM)
                .with_imm([1, 2, 3, 4]),
            &two,
        );
        s.post(
            Wr::write(3, &[s.from.sge(0, 3000)], two_mr.remote(100)),
            &two,
        );
        let write = Wr::write(4, &[s.from.sge(0, 8)], two_mr.remote(4000));
        s.post(
            write
                .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM)
                .with_imm([9; 4]),
            &two,
        );
        s.run();
        for wr_id in 1..=4 {
            s.a.cq.expect(wr_id, Status::Success);
        }
        let wc = one_cq.expect(10, Status::Success);
        assert_eq!((wc.byte_len, wc.srq), (5000, Some(one.number)));
        assert_eq!((wc.qp_num, wc.src_qp), (s.b.id.number, s.a.qp.id.number));
        one_cq.expect_none();
        let wc = two_cq.expect(20, Status::Success);
        assert_eq!((wc.imm, wc.srq), ([1, 2, 3, 4], Some(two.number)));
        let wc = two_cq.expect(21, Status::Success);
        assert_eq!((wc.opcode, wc.imm), (wc_opcode::RECV_RDMA_WITH_IMM, [9; 4]));
        assert_eq!(one_mr.bytes(0, 5000), s.from.bytes(0, 5000));
        assert_eq!(two_mr.bytes(0, 10), s.from.bytes(5000, 10));
        assert_eq!(two_mr.bytes(100, 3000), s.from.bytes(0, 3000));

        s.post(
            Wr::read(5, &[s.from.sge(65536, 3000)], one_mr.remote(0)),
            &one,
        );
        s.post(
            Wr::fetch_add(6, s.from.sge(80000, 8), two_mr.remote(8192), 5),
            &two,
        );
        let swap = Wr::compare_swap(7, s.from.sge(80008, 8), two_mr.remote(8192), 5, 6);
        s.post(swap, &two);
        s.run();
        for wr_id in 5..=7 {
            s.a.cq.expect(wr_id, Status::Success);
        }
        assert_eq!(s.from.bytes(65536, 3000), one_mr.bytes(0, 3000));
        assert_eq!(s.from.bytes(80000, 8), [0; 8]);
        assert_eq!(s.from.bytes(80008, 8), 5u64.to_ne_bytes());
        assert_eq!(two_mr.bytes(8192, 8), 6u64.to_ne_bytes());
    }
}

#[test]
fn each_request_packet_has_the_header_and_responses_have_none() {
    let mut s = Scene::remote(Faults::default());
    let (srq, _, mr) = s.receiver(PD, DOMAIN);
    assert!(srq.post(1, &[mr.sge(0, 4096)]));
    s.post(Wr::send(1, &[s.from.sge(0, 3000)]), &srq);
    s.post(Wr::fetch_add(2, s.from.sge(0, 8), mr.remote(0), 1), &srq);
    s.post(Wr::read(3, &[s.from.sge(0, 8)], mr.remote(0)), &srq);
    s.link.worlds[0].run();
    let sent = std::mem::take(&mut s.link.worlds[0].host.sent);
    let opcodes = [
        rc::SEND_FIRST,
        rc::SEND_MIDDLE,
        rc::SEND_LAST,
        rc::FETCH_ADD,
        rc::READ_REQUEST,
    ];
    assert_eq!(sent.len(), opcodes.len());
    for (packet, opcode) in sent.iter().zip(opcodes) {
        let parsed = parse(packet);
        assert_eq!(parsed.bth().opcode, opcode | Service::Xrc as u8);
        assert_eq!(parsed.xrceth().unwrap().srq.get(), srq.number);
        deliver(&mut s.link.worlds[1], packet);
    }
    s.link.worlds[1].run();
    let answers = std::mem::take(&mut s.link.worlds[1].host.sent);
    assert!(answers.len() >= 2);
    for packet in &answers {
        assert_eq!(parse(packet).info().service, Service::Xrc);
        assert!(parse(packet).xrceth().is_none());
    }
}

#[test]
fn a_queue_of_another_domain_is_refused() {
    for mut s in both() {
        let (srq, cq, mr) = s.receiver(PD, DOMAIN + 1);
        assert!(srq.post(1, &[mr.sge(0, 64)]));
        s.post(Wr::send(2, &[s.from.sge(0, 8)]), &srq);
        s.refused(2, Status::RemoteInvalidRequest, Some(QpEvent::RequestError));
        cq.expect_none();
        assert_eq!(srq.consumer(), 0);
    }
}

#[test]
fn so_is_one_that_there_is_not_and_a_basic_one() {
    for which in 0..2 {
        for mut s in both() {
            let basic = s.target().srq(PD, 16, 2);
            let number = if which == 0 { 0xff_fff0 } else { basic.number };
            let wr = Wr::write(1, &[], (0, 0)).to_srq(number);
            s.a.qp.post_send(&wr);
            s.refused(1, Status::RemoteInvalidRequest, Some(QpEvent::RequestError));
        }
    }
}

#[test]
fn a_number_that_is_used_again_is_another_one() {
    for mut s in both() {
        let (gone, _, _) = s.receiver(PD, DOMAIN);
        let world = s.target();
        world.engine.remove_srq(gone.number).unwrap();
        let chunk = 64;
        let numbers: Vec<u32> = (0..chunk)
            .map(|_| s.receiver(PD, DOMAIN).0.number)
            .collect();
        let index = gone.number & 0xffff;
        assert!(numbers.iter().any(|&number| number & 0xffff == index));
        assert!(!numbers.contains(&gone.number));
        s.post(Wr::send(2, &[s.from.sge(0, 8)]), &gone);
        s.refused(2, Status::RemoteInvalidRequest, Some(QpEvent::RequestError));
    }
}

/// A target has no protection domain of its own.
#[test]
fn keys_are_those_of_the_queues_domain() {
    for mut s in both() {
        let (one, _, _) = s.receiver(PD, DOMAIN);
        let (_, _, foreign) = s.receiver(PD + 1, DOMAIN);
        s.post(Wr::write(1, &[s.from.sge(0, 8)], foreign.remote(0)), &one);
        s.refused(1, Status::RemoteAccess, Some(QpEvent::AccessError));
        assert_eq!(foreign.bytes(0, 8), [0; 8]);
    }
    for mut s in both() {
        let (one, one_cq, _) = s.receiver(PD, DOMAIN);
        let (_, _, foreign) = s.receiver(PD + 1, DOMAIN);
        assert!(one.post(5, &[foreign.sge(0, 8)]));
        s.post(Wr::send(1, &[s.from.sge(0, 8)]), &one);
        s.refused(1, Status::RemoteOperation, None);
        one_cq.expect(5, Status::LocalProtection);
    }
}

#[test]
fn an_empty_queue_is_receiver_not_ready() {
    for mut s in both() {
        let (srq, cq, mr) = s.receiver(PD, DOMAIN);
        s.post(Wr::send(1, &[s.from.sge(0, 8)]), &srq);
        s.link.worlds[0].run();
        s.a.cq.expect_none();
        assert!(srq.post(2, &[mr.sge(0, 8)]));
        s.run();
        cq.expect(2, Status::Success);
        s.a.cq.expect(1, Status::Success);
    }
}

#[test]
fn a_queue_that_goes_in_the_middle_of_a_message_takes_its_request_along() {
    let mut s = Scene::remote(Faults::default());
    let (srq, cq, mr) = s.receiver(PD, DOMAIN);
    assert!(srq.post(2, &[mr.sge(0, 8192)]));
    s.post(Wr::send(1, &[s.from.sge(0, 3000)]), &srq);
    s.link.worlds[0].run();
    let sent = std::mem::take(&mut s.link.worlds[0].host.sent);
    deliver(&mut s.link.worlds[1], &sent[0]);
    s.link.worlds[1].run();
    assert_eq!(srq.consumer(), 1);
    s.link.worlds[1].engine.remove_srq(srq.number).unwrap();
    // Nothing completes there any more, so that may go, too.
    s.link.worlds[1].engine.remove_cq(cq.cqn).unwrap();
    deliver(&mut s.link.worlds[1], &sent[1]);
    s.refused(1, Status::RemoteInvalidRequest, Some(QpEvent::RequestError));
    cq.expect_none();
    assert_eq!(mr.bytes(1024, 1024), [0; 1024]);
}

#[test]
fn a_target_in_error_flushes_the_request_at_hand() {
    let mut s = Scene::remote(Faults::default());
    let (srq, cq, mr) = s.receiver(PD, DOMAIN);
    assert!(srq.post(2, &[mr.sge(0, 8192)]));
    assert!(srq.post(3, &[mr.sge(0, 8192)]));
    s.post(Wr::send(1, &[s.from.sge(0, 3000)]), &srq);
    s.link.worlds[0].run();
    let sent = std::mem::take(&mut s.link.worlds[0].host.sent);
    deliver(&mut s.link.worlds[1], &sent[0]);
    let b = s.b.clone();
    s.link.worlds[1].to(&b, State::Err);
    s.link.worlds[1].run();
    cq.expect(2, Status::Flushed);
    // The other one is for other targets.
    cq.expect_none();
    assert_eq!(srq.consumer(), 1);
}

/// The requests of two queues must not be mixed in a message.
#[test]
fn a_message_that_changes_its_queue_is_refused() {
    let mut s = Scene::remote(Faults::default());
    let (one, one_cq, one_mr) = s.receiver(PD, DOMAIN);
    let (two, two_cq, two_mr) = s.receiver(PD, DOMAIN);
    assert!(one.post(10, &[one_mr.sge(0, 8192)]));
    assert!(two.post(20, &[two_mr.sge(0, 8192)]));
    let mut packets = Vec::new();
    for srq in [&one, &two] {
        s.post(Wr::send(1, &[s.from.sge(0, 3000)]), srq);
        s.link.worlds[0].run();
        packets.push(std::mem::take(&mut s.link.worlds[0].host.sent));
    }
    // The second message's middle in the place of the first one's.
    let middle = with(&packets[1][1], 9, parse(&packets[0][1]).bth().psn.get());
    deliver(&mut s.link.worlds[1], &packets[0][0]);
    deliver(&mut s.link.worlds[1], &middle);
    s.link.worlds[1].run();
    let b = s.b.clone();
    s.link.worlds[1].state(&b, State::Err);
    one_cq.expect(10, Status::Flushed);
    two_cq.expect_none();
}

/// Packets of the wrong side, and of RC, change nothing.
#[test]
fn packets_of_another_service_or_side_are_misdirected() {
    let mut s = Scene::remote(Faults::default());
    let (srq, cq, mr) = s.receiver(PD, DOMAIN);
    assert!(srq.post(2, &[mr.sge(0, 64)]));
    s.post(Wr::send(1, &[s.from.sge(0, 8)]), &srq);
    s.link.worlds[0].run();
    let sent = std::mem::take(&mut s.link.worlds[0].host.sent);
    let ini = s.a.qp.id.number;
    // The request comes back to its sender.
    let back = returned(&sent[0], ini);
    deliver(&mut s.link.worlds[0], &back);
    assert_eq!(s.link.worlds[0].engine.counters().misdirected, 1);
    deliver(&mut s.link.worlds[1], &sent[0]);
    s.link.worlds[1].run();
    cq.expect(2, Status::Success);
    let ack = std::mem::take(&mut s.link.worlds[1].host.sent);
    let echoed = returned(&ack[0], s.b.id.number);
    deliver(&mut s.link.worlds[1], &echoed);
    assert_eq!(s.link.worlds[1].engine.counters().misdirected, 1);
}

/// The rights are those of the target.
#[test]
fn a_target_that_gives_no_right_refuses() {
    for mut s in both() {
        let (srq, _, mr) = s.receiver(PD, DOMAIN);
        let b = s.b.clone();
        let none = Modify {
            access: Some(Access::NONE),
            ..Modify::default()
        };
        s.target()
            .modify(
                &b,
                &Modify {
                    state: Some(State::Rts),
                    ..none
                },
            )
            .unwrap();
        s.post(Wr::read(1, &[s.from.sge(0, 8)], mr.remote(0)), &srq);
        s.refused(1, Status::RemoteInvalidRequest, Some(QpEvent::RequestError));
    }
}
