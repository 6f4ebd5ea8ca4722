// SPDX-License-Identifier: GPL-2.0

//! The datagrams that arrive, and how.

use ferrule_engine::{abi, Error, Gid, Path, PathKind, QpType, State, Status, GSI};
use proptest::prelude::*;

use super::{local, Scene, GRH, QKEY};
use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_opcode};

#[test]
fn datagrams_arrive_behind_their_header() {
    let mut s = Scene::new();
    s.b.qp.post_recv(1, &[s.to.sge(0, 30), s.to.sge(100, 500)]);
    let psn = s.w.query(&s.a.qp).attr.sq_psn;
    s.send(301);
    let wc = s.b.cq.expect(1, Status::Success);
    assert_eq!(wc.byte_len, 301 + GRH);
    assert_eq!((wc.opcode, wc.flags), (wc_opcode::RECV, wc_flags::GRH));
    assert_eq!((wc.sl, wc.ip_version), (3, 4));
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
    assert_eq!((wc.imm, wc.byte_len, wc.ip_version), ([9, 8, 7, 6], 44, 6));
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

proptest! {
    #![proptest_config(cases(200))]

    /// Datagrams of any length, in any order with receive requests of any size: each is delivered
    /// whole to the oldest request with space for it, if that is the oldest, and else dropped.
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
                Some((wr_id, first, capacity)) if capacity >= length + GRH => {
                    buffers.pop_front();
                    let wc = s.b.cq.expect(wr_id, Status::Success);
                    prop_assert_eq!(wc.byte_len, length + GRH);
                    let mut got = s.to.bytes(0, first as usize);
                    got.extend(s.to.bytes(3000, (capacity - first) as usize));
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
