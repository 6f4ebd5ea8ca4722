// SPDX-License-Identifier: GPL-2.0

//! Datagrams between queue pairs of one engine: what arrives, what is dropped, and groups.

use ferrule_engine::{
    abi, Access, Error, Gid, Group, Modify, Path, PathKind, QpEvent, QpType, State, Status, GSI,
    MAX_MCAST_QP_ATTACH,
};
use proptest::prelude::*;

use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_opcode};

const QKEY: u32 = 0x1111_1111;
const GRH: u32 = 40;
const MULTICAST: u32 = 0xff_ffff;

fn mapped(a: u8, b: u8, c: u8, d: u8) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

fn local() -> Path {
    Path {
        sgid: mapped(10, 0, 0, 1),
        dgid: mapped(10, 0, 0, 2),
        traffic_class: 0x20,
        hop_limit: 64,
        sl: 3,
        ..path(PathKind::Local)
    }
}

fn group(number: u8) -> Path {
    Path {
        dgid: mapped(239, 1, 2, number),
        ..local()
    }
}

struct Scene {
    w: World,
    a: End,
    b: End,
    ah: u32,
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut w = World::new();
        let a = w.ud(&QpSpec::default(), QKEY);
        let b = w.ud(&QpSpec::default(), QKEY);
        let ah = w.ah(1, local());
        let (from, to) = (w.mr(8192), w.mr(8192));
        from.fill(9);
        Self {
            w,
            a,
            b,
            ah,
            from,
            to,
        }
    }

    fn to_b(&self) -> (u32, u32) {
        (self.ah, self.b.qp.id.number)
    }

    /// Sends so many bytes to `b` and checks that the sender is content.
    #[track_caller]
    fn send(&mut self, length: u32) {
        let wr = Wr::datagram(7, &[self.from.sge(0, length)], self.to_b(), QKEY);
        self.a.qp.post_send(&wr);
        self.w.run();
        self.a.cq.expect(7, Status::Success);
    }

    fn dropped(&self) -> u64 {
        self.w.engine.counters().dropped
    }

    fn attach(&mut self, qp: &TestQp, gid: Gid) -> Result<(), Error> {
        let number = qp.id.number;
        add(&mut self.w.engine, Group::new(), |engine, memory| {
            engine.attach_mcast(number, &gid, memory)
        })
        .map(|_| ())
    }
}

#[test]
fn datagrams_arrive_behind_their_header() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 30), s.to.sge(100, 500)]);
    let psn = s.w.query(&s.a.qp).attr.sq_psn;
    s.send(301);
    let wc = s.b.cq.expect(1, Status::Success);
    assert_eq!(wc.byte_len, 301 + GRH);
    assert_eq!((wc.opcode, wc.flags), (wc_opcode::RECV, wc_flags::GRH));
    assert_eq!(wc.src_qp, s.a.qp.id.number);
    assert_eq!(wc.queue_index, 1);
    let mut got = s.to.bytes(0, 30);
    got.extend(s.to.bytes(100, 311));
    assert_eq!(got[40..], s.from.bytes(0, 301));
    // 20 bytes that mean nothing, then the header of an IPv4 packet with 8 (UDP) + 12 (BTH) +
    // 8 (DETH) + 304 (data, padded) + 4 (checksum) bytes.
    let ip = &got[20..40];
    assert_eq!(ip[..2], [0x45, 0x20]);
    assert_eq!(
        u16::from_be_bytes([ip[2], ip[3]]),
        20 + 8 + 12 + 8 + 304 + 4
    );
    assert_eq!(ip[4..10], [0, 0, 0x40, 0, 64, 17]);
    assert_eq!(ip[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    // A datagram is one packet.
    assert_eq!(s.w.query(&s.a.qp).attr.sq_psn, (psn + 1) & 0xff_ffff);
}

#[test]
fn ipv6_leaves_its_whole_header() {
    let mut s = Scene::new();
    let mut sgid = [0; 16];
    sgid[..2].copy_from_slice(&[0xfe, 0x80]);
    let dgid: Gid = core::array::from_fn(|i| i as u8 + 0x20);
    s.ah = s.w.ah(
        1,
        Path {
            sgid,
            dgid,
            flow_label: 0x12345,
            traffic_class: 0xab,
            hop_limit: 9,
            ..local()
        },
    );
    s.b.qp.post_recv(1, &[s.to.sge(0, 100)]);
    let wr = Wr::datagram(2, &[s.from.sge(0, 4)], s.to_b(), QKEY);
    s.a.qp.post_send(
        &wr.with_opcode(wr_opcode::SEND_WITH_IMM)
            .with_imm([9, 8, 7, 6]),
    );
    s.w.run();
    let wc = s.b.cq.expect(1, Status::Success);
    assert_eq!(wc.flags, wc_flags::GRH | wc_flags::WITH_IMM);
    assert_eq!((wc.imm, wc.byte_len), ([9, 8, 7, 6], 44));
    let header = s.to.bytes(0, 40);
    assert_eq!(header[..4], [0x6a, 0xb1, 0x23, 0x45]);
    assert_eq!(header[4..8], [0, 8 + 12 + 8 + 4 + 4 + 4, 17, 9]);
    assert_eq!(header[8..24], sgid);
    assert_eq!(header[24..], dgid);
}

#[test]
fn inline_and_empty_datagrams() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 100)]);
    s.b.qp.post_recv(2, &[s.to.sge(100, 40)]);
    let wr = Wr::datagram(3, &[], s.to_b(), QKEY);
    s.a.qp.post_send(&wr.clone().inline(b"hello"));
    s.a.qp.post_send(&wr);
    s.w.run();
    assert_eq!(s.b.cq.expect(1, Status::Success).byte_len, 45);
    assert_eq!(s.to.bytes(40, 5), b"hello");
    assert_eq!(s.b.cq.expect(2, Status::Success).byte_len, 40);
}

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
    // A controlled Q_Key is reached by those only who have one.
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
fn what_nobody_can_take_is_dropped() {
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
        // An operation that there is not.
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
        // What is posted now is flushed, too.
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
fn address_handles_are_not_taken_for_each_other() {
    let mut s = Scene::new();
    assert_ne!(s.ah, 0);
    let other = s.w.ah(1, local());
    assert_ne!(s.ah, other);
    assert!(s.w.engine.remove_ah(other).is_ok());
    assert_eq!(s.w.engine.remove_ah(other).err(), Some(Error::NotFound));
    assert_eq!(s.w.engine.remove_ah(0).err(), Some(Error::NotFound));
    // The index is used again, the number is not.
    for _ in 0..300 {
        let ah = s.w.ah(1, local());
        assert_ne!(ah, other);
        s.w.engine.remove_ah(ah).unwrap();
    }
}

#[test]
fn a_queue_pair_may_send_to_itself() {
    let mut s = Scene::new();
    s.a.qp.post_recv(1, &[s.to.sge(0, 100)]);
    let to = (s.ah, s.a.qp.id.number);
    s.a.qp
        .post_send(&Wr::datagram(2, &[s.from.sge(0, 8)], to, QKEY));
    s.w.run();
    s.a.cq.expect(1, Status::Success);
    s.a.cq.expect(2, Status::Success);
    assert_eq!(s.to.bytes(40, 8), s.from.bytes(0, 8));
    // A receive request of its own that is in error breaks it, and the sending still succeeded.
    s.a.qp.post_recv(3, &[(0, 100, 77)]);
    s.a.qp
        .post_send(&Wr::datagram(4, &[s.from.sge(0, 8)], to, QKEY));
    s.w.run();
    s.a.cq.expect(3, Status::LocalProtection);
    s.a.cq.expect(4, Status::Success);
    s.w.state(&s.a.qp, State::Err);
}

#[test]
fn jumps_of_the_producer_break_the_receiver() {
    let mut s = Scene::new();
    s.b.qp.queue.set_word(s.b.qp.ctrl as usize + 64, 17);
    s.send(8);
    s.w.state(&s.b.qp, State::Err);
    assert_eq!(s.w.events(), [Event::Qp(s.b.qp.name, QpEvent::Fatal)]);
}

#[test]
fn groups_reach_all_who_are_attached() {
    let mut s = Scene::new();
    let (first, second) = (group(1), group(2));
    let ah = s.w.ah(1, first);
    let others: Vec<_> = (0..5).map(|_| s.w.ud(&QpSpec::default(), QKEY)).collect();
    for end in &others[..4] {
        s.attach(&end.qp, first.dgid).unwrap();
    }
    s.attach(&others[4].qp, second.dgid).unwrap();
    let sender = s.a.qp.clone();
    s.attach(&sender, first.dgid).unwrap();
    // One has no receive request, one another Q_Key.
    for (i, end) in others.iter().enumerate().skip(1) {
        end.qp.post_recv(1, &[s.to.sge(i as u64 * 200, 200)]);
    }
    s.a.qp.post_recv(1, &[s.to.sge(1000, 200)]);
    let modify = Modify {
        qkey: Some(5),
        ..Modify::default()
    };
    s.w.modify(&others[3].qp, &modify).unwrap();
    let wr = Wr::datagram(2, &[s.from.sge(0, 99)], (ah, MULTICAST), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    assert_eq!(s.a.cq.expect(1, Status::Success).byte_len, 139);
    s.a.cq.expect(2, Status::Success);
    for i in [1, 2] {
        others[i].cq.expect(1, Status::Success);
        assert_eq!(s.to.bytes(i * 200 + 40, 99), s.from.bytes(0, 99));
        assert_eq!(s.to.bytes(i * 200 + 36, 4), [239, 1, 2, 1]);
    }
    assert_eq!(s.to.bytes(1040, 99), s.from.bytes(0, 99));
    for i in [0, 3, 4] {
        others[i].cq.expect_none();
    }
    assert_eq!(s.dropped(), 2);
    // To a group by another number than that for groups: nobody.
    let wr = Wr::datagram(3, &[], (ah, others[1].qp.id.number), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(3, Status::Success);
    assert_eq!(s.dropped(), 3);
}

#[test]
fn who_is_attached_stays_until_detached() {
    let mut s = Scene::new();
    let gid = group(1).dgid;
    let (a, b) = (s.a.qp.clone(), s.b.qp.clone());
    let cq = s.w.cq(8);
    let rc = s.w.qp(&cq, &cq);
    assert_eq!(s.attach(&rc, gid), Err(Error::Invalid));
    assert_eq!(s.attach(&a, local().dgid), Err(Error::Invalid));
    for number in 0..200 {
        s.attach(&a, group(number).dgid).unwrap();
    }
    s.attach(&b, gid).unwrap();
    assert_eq!(s.w.engine.objects().groups, 200);
    assert_eq!(s.attach(&a, gid), Err(Error::Invalid));
    assert_eq!(s.w.engine.remove_qp(a.id.number).err(), Some(Error::Busy));
    for number in 0..200 {
        let gid = group(number).dgid;
        let left = s.w.engine.detach_mcast(a.id.number, &gid).unwrap();
        assert_eq!(left.is_some(), number != 1, "memory of the last comes back");
        let again = s.w.engine.detach_mcast(a.id.number, &gid);
        assert_eq!(again.err(), Some(Error::NotFound));
    }
    assert!(s.w.engine.remove_qp(a.id.number).is_ok());
    assert_eq!(s.w.engine.remove_qp(b.id.number).err(), Some(Error::Busy));
    assert!(s
        .w
        .engine
        .detach_mcast(b.id.number, &gid)
        .unwrap()
        .is_some());
    assert_eq!(s.w.engine.objects().queue_pairs, 2);
    assert!(s.w.engine.remove_qp(b.id.number).is_ok());
    let objects = s.w.engine.objects();
    assert_eq!((objects.groups, objects.queue_pairs), (0, 1));
    assert_eq!((objects.completion_queues, objects.regions), (3, 2));
    assert_eq!((objects.address_handles, objects.user_contexts), (1, 1));
}

#[test]
fn a_group_is_full_with_so_many() {
    let mut s = Scene::new();
    let gid: Gid = [0xff; 16];
    let ends: Vec<_> = (0..=MAX_MCAST_QP_ATTACH)
        .map(|_| s.w.ud(&QpSpec::default(), QKEY))
        .collect();
    for end in &ends[1..] {
        s.attach(&end.qp, gid).unwrap();
        end.qp.post_recv(1, &[s.to.sge(0, 2000)]);
    }
    assert_eq!(s.attach(&ends[0].qp, gid), Err(Error::Full));
    let ah = s.w.ah(
        1,
        Path {
            dgid: gid,
            ..local()
        },
    );
    let wr = Wr::datagram(2, &[s.from.sge(0, 1024)], (ah, MULTICAST), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(2, Status::Success);
    for end in &ends[1..] {
        end.cq.expect(1, Status::Success);
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Datagrams of any length, in any order with receive requests of any size: each is delivered
    /// whole to the oldest request with room for it, if that is the oldest, and else dropped.
    #[test]
    fn datagrams_arrive_whole_or_not_at_all(
        steps in prop::collection::vec(
            (any::<bool>(), 0..1100u32, any::<bool>(), any::<bool>()), 1..200,
        ),
    ) {
        let mut s = Scene::new();
        let mut buffers = std::collections::VecDeque::new();
        let mut dropped = 0;
        for (i, (send, length, inline, imm)) in steps.into_iter().enumerate() {
            let i = i as u64;
            if !send {
                if buffers.len() < 16 {
                    s.b.qp.post_recv(i, &[s.to.sge(0, length / 2), s.to.sge(3000, length)]);
                    buffers.push_back((i, length / 2, length / 2 + length));
                }
                continue;
            }
            let bytes = s.from.bytes(length as usize, length as usize);
            let mut wr = Wr::datagram(i, &[s.from.sge(length.into(), length)], s.to_b(), QKEY);
            if inline && length <= 256 {
                wr = wr.inline(&bytes);
            }
            if imm {
                wr = wr.with_opcode(wr_opcode::SEND_WITH_IMM).with_imm([1, 2, 3, 4]);
            }
            s.a.qp.post_send(&wr);
            s.w.run();
            if length > 1024 {
                s.a.cq.expect(i, Status::LocalLength);
                s.w.to(&s.a.qp, State::Rts);
                continue;
            }
            s.a.cq.expect(i, Status::Success);
            match buffers.front().copied() {
                Some((wr_id, first, room)) if room >= length + GRH => {
                    buffers.pop_front();
                    let wc = s.b.cq.expect(wr_id, Status::Success);
                    prop_assert_eq!(wc.byte_len, length + GRH);
                    let mut got = s.to.bytes(0, first as usize);
                    got.extend(s.to.bytes(3000, (room - first) as usize));
                    prop_assert_eq!(&got[40..40 + bytes.len()], bytes);
                    let flag = if imm { wc_flags::WITH_IMM } else { 0 };
                    prop_assert_eq!(wc.flags, wc_flags::GRH | flag);
                }
                _ => {
                    dropped += 1;
                    s.b.cq.expect_none();
                }
            }
            prop_assert_eq!(s.dropped(), dropped);
        }
    }
}

/// The Q_Key of general services (IBA volume 1, 10.2.5).
const GSI_QKEY: u32 = 0x8001_0000;

#[test]
fn general_services_have_a_number_of_their_own() {
    let mut s = Scene::new();
    let cq = s.w.cq(16);
    let spec = QpSpec {
        qp_type: QpType::Ud,
        gsi: true,
        ..QpSpec::default()
    };
    let gsi = s.w.qp_in(None, &spec, &cq, &cq);
    assert_eq!(gsi.id.number, GSI);
    let second = s.w.try_qp_in(None, &spec, &cq, &cq);
    assert_eq!(second.err(), Some(Error::Busy));
    s.w.ready_ud(&gsi, GSI_QKEY);

    // A program that names the controlled Q_Key sends its own, which does not fit.
    gsi.post_recv(1, &[s.to.sge(0, 500)]);
    let wr = Wr::datagram(7, &[s.from.sge(0, 100)], (s.ah, GSI), GSI_QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(7, Status::Success);
    assert_eq!(s.w.engine.counters().qkey_violations, 1);

    // To itself, as between two users on one machine, by a destination that is no handle's.
    s.w.host.destination = Some(local());
    gsi.put_send(&Wr::datagram(8, &[s.from.sge(0, 100)], (0, GSI), GSI_QKEY));
    s.w.engine.ring_qp(GSI);
    s.w.run();
    let wc = cq.expect(1, Status::Success);
    assert_eq!((wc.src_qp, wc.byte_len), (GSI, 100 + GRH));
    cq.expect(8, Status::Success);
    assert_eq!(s.to.bytes(40, 100), s.from.bytes(0, 100));

    // The route is the host's, too.
    let away = Path {
        kind: PathKind::Remote,
        ..local()
    };
    s.w.host.destination = Some(away);
    gsi.put_send(&Wr::datagram(9, &[s.from.sge(0, 100)], (0, GSI), GSI_QKEY));
    s.w.engine.ring_qp(GSI);
    s.w.run();
    cq.expect(9, Status::Success);
    assert_eq!(s.w.host.sent.len(), 1);
    assert_eq!(s.w.host.sent[0].ip[16..20], away.dgid[12..]);

    // A program's request goes by its handle, whatever the host would say.
    s.send(10);
    assert_eq!(s.w.host.sent.len(), 1);

    // The number is free again afterwards, and nobody else gets it.
    s.w.engine.remove_qp(GSI).unwrap();
    for _ in 0..200 {
        assert!(s.w.qp(&cq, &cq).id.number & 0xffff > GSI);
    }
    assert_eq!(s.w.qp_in(None, &spec, &cq, &cq).id.number, GSI);
}
