// SPDX-License-Identifier: GPL-2.0

//! Datagrams, packet by packet.

use ferrule_engine::abi::{wc_flags, wc_opcode};
use ferrule_engine::packet::opcode::rc;
use ferrule_engine::{DropReason, Group, Status};

use super::{mapped, Datagrams, GRH, MULTICAST, QKEY};
use crate::sim::network::GIDS;
use crate::sim::*;

#[test]
fn a_datagram_arrives_behind_the_header_that_it_had() {
    let v4 = (mapped(10, 0, 0, 1), mapped(10, 0, 0, 2));
    for (sgid, dgid) in [v4, (GIDS[0], GIDS[1])] {
        let mut s = Datagrams::new(sgid, dgid);
        s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
        let mut packet = s.send(301, s.target(), QKEY);
        packet.vlan = 6;
        s.deliver(&packet);
        let wc = s.ends[1].cq.expect(2, Status::Success);
        assert_eq!((wc.byte_len, wc.vlan), (301 + GRH, 6));
        assert_eq!((wc.opcode, wc.flags), (wc_opcode::RECV, wc_flags::GRH));
        assert_eq!(wc.src_qp, s.ends[0].qp.id.number);
        let before = GRH as usize - packet.ip.len();
        assert_eq!(s.to.bytes(before, packet.ip.len()), packet.ip);
        assert_eq!(s.to.bytes(GRH as usize, 301), s.from.bytes(0, 301));
    }
}

#[test]
fn a_datagram_that_nobody_takes_is_counted() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    let target = s.target();
    let good = s.send(100, target, QKEY);
    let counters = |s: &Datagrams| s.link.worlds[1].engine.counters();
    s.deliver(&good);
    assert_eq!(counters(&s).dropped, 1, "no receive request");
    assert_eq!(s.link.worlds[1].host.drops(), [DropReason::NoReceive]);
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let nobody = s.send(100, 0x1234, QKEY);
    s.deliver(&nobody);
    assert_eq!(counters(&s).unknown_queue_pairs, 1);
    assert_eq!(
        s.link.worlds[1].host.drops(),
        [DropReason::UnknownQueuePair]
    );
    let other = s.send(100, target, 5);
    s.deliver(&other);
    assert_eq!((counters(&s).qkey_violations, counters(&s).dropped), (1, 2));
    assert_eq!(s.link.worlds[1].host.drops(), [DropReason::Qkey]);
    let mut partition = good.clone();
    partition.transport[2..4].copy_from_slice(&[0x80, 1]);
    partition.seal();
    s.deliver(&partition);
    assert_eq!(counters(&s).pkey_errors, 1);
    assert_eq!(s.link.worlds[1].host.drops(), [DropReason::Pkey]);
    // The service of a connection.
    let mut connected = good.clone();
    connected.transport[0] = rc::SEND_ONLY;
    connected.seal();
    s.deliver(&connected);
    assert_eq!(counters(&s).misdirected, 1);
    assert_eq!(s.link.worlds[1].host.drops(), [DropReason::Misdirected]);
    s.ends[1].cq.expect_none();
    s.deliver(&good);
    assert_eq!(s.ends[1].cq.expect(2, Status::Success).byte_len, 140);
}

/// A program cannot send with a controlled Q_Key: the queue pair's own takes its place.
#[test]
fn a_controlled_qkey_is_not_sent() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    let packet = s.send(8, s.target(), 0x8001_0000);
    assert_eq!(packet.transport[12..16], QKEY.to_be_bytes());
}

#[test]
fn a_datagram_to_a_group_goes_to_all_of_it() {
    let mut s = Datagrams::new(mapped(10, 0, 0, 1), mapped(239, 1, 2, 3));
    let gid = s.way.dgid;
    let mut more = Vec::new();
    for (i, world) in s.link.worlds.iter_mut().enumerate() {
        let buffer = world.mr(4096);
        for j in 0..3 {
            let end = world.ud(&QpSpec::default(), QKEY);
            let attached = add(&mut world.engine, Group::new(), |engine, memory| {
                engine.attach_mcast(end.qp.id.number, &gid, memory)
            });
            assert!(attached.is_ok());
            end.qp.post_recv(j, &[buffer.sge(j * 1000, 1000)]);
            more.push((i, j, end, buffer.clone()));
        }
    }
    let packet = s.send(200, MULTICAST, QKEY);
    s.deliver(&packet);
    for (i, j, end, buffer) in &more {
        let wc = end.cq.expect(*j, Status::Success);
        assert_eq!(wc.byte_len, 200 + GRH, "{i} {j}");
        let at = *j as usize * 1000;
        assert_eq!(buffer.bytes(at + 20, 20), packet.ip, "{i} {j}");
        assert_eq!(buffer.bytes(at + 40, 200), s.from.bytes(0, 200));
    }
    // By another number than that of groups, and to a group that nobody is attached to.
    let mut single = packet.clone();
    single.transport[5..8].copy_from_slice(&s.target().to_be_bytes()[1..]);
    single.seal();
    s.deliver(&single);
    let mut empty = packet.clone();
    empty.ip[19] = 4;
    empty.seal();
    s.deliver(&empty);
    assert_eq!(s.link.worlds[1].engine.counters().misdirected, 2);
}
