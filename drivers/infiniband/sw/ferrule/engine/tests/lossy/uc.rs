// SPDX-License-Identifier: GPL-2.0

//! Unreliable connections: messages of several packets, packet by packet.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::packet::opcode::rc;
use ferrule_engine::{DropReason, State, Status};

use super::{Scene, UC};
use crate::sim::*;

#[test]
fn a_message_is_cut_into_packets() {
    let mut s = Scene::new();
    let sent = Wr::send(1, &[s.from.sge(0, 2500)])
        .with_opcode(wr_opcode::SEND_WITH_IMM)
        .with_imm([1, 2, 3, 4]);
    let packets = s.packets(&sent);
    let opcodes: Vec<u8> = packets.iter().map(|packet| packet.transport[0]).collect();
    assert_eq!(
        opcodes,
        [rc::SEND_FIRST, rc::SEND_MIDDLE, rc::SEND_LAST_WITH_IMM].map(|opcode| opcode | UC)
    );
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    s.deliver(&packets);
    let wc = s.ends[1].cq.expect(2, Status::Success);
    assert_eq!((wc.byte_len, wc.imm), (2500, [1, 2, 3, 4]));
    assert_eq!(s.to.bytes(0, 2500), s.from.bytes(0, 2500));

    let write = Wr::write(1, &[s.from.sge(100, 1025)], s.to.remote(4096));
    let packets = s.packets(&write);
    let opcodes: Vec<u8> = packets.iter().map(|packet| packet.transport[0]).collect();
    assert_eq!(
        opcodes,
        [rc::WRITE_FIRST, rc::WRITE_LAST].map(|opcode| opcode | UC)
    );
    s.deliver(&packets);
    s.ends[1].cq.expect_none();
    assert_eq!(s.to.bytes(4096, 1025), s.from.bytes(100, 1025));
    assert_eq!(s.dropped(), 0);
}

/// If a packet of a message is lost, all of the message is dropped, and the next one arrives. A
/// receive request that had been taken for it is there for the next.
#[test]
fn a_message_arrives_whole_or_not_at_all() {
    let orders: [&[usize]; 8] = [
        &[1, 2],
        &[0, 2],
        &[0, 1],
        &[0, 2, 1],
        &[1, 0, 2],
        &[2],
        &[0, 0],
        &[0, 1, 1],
    ];
    for write in [false, true] {
        for order in orders {
            let mut s = Scene::new();
            let mut wr = Wr::send(1, &[s.from.sge(0, 3000)]);
            if write {
                wr = Wr::write(1, &[s.from.sge(0, 3000)], s.to.remote(4096))
                    .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM);
            }
            let packets = s.packets(&wr);
            assert_eq!(packets.len(), 3);
            let mut next = wr.clone();
            next.wr_id = 2;
            let whole = s.packets(&next);
            s.ends[1].qp.post_recv(7, &[s.to.sge(0, 4096)]);
            s.deliver(order.iter().map(|&i| &packets[i]));
            s.ends[1].cq.expect_none();
            s.deliver(&whole);
            let wc = s.ends[1].cq.expect(7, Status::Success);
            s.ends[1].cq.expect_none();
            assert_eq!(wc.byte_len, 3000);
            let place = if write { 4096 } else { 0 };
            assert_eq!(s.to.bytes(place, 3000), s.from.bytes(0, 3000));
            assert!(s.link.worlds[1].engine.counters().sequence_errors > 0);
        }
    }
}

/// A packet that does not fit the ones before it is dropped with its message.
#[test]
fn packets_of_two_messages_make_none() {
    let mut s = Scene::new();
    s.ends[1].qp.post_recv(7, &[s.to.sge(0, 4096)]);
    let sent = s.packets(&Wr::send(1, &[s.from.sge(0, 3000)]));
    let written = s.packets(&Wr::write(2, &[s.from.sge(0, 3000)], s.to.remote(4096)));
    // The number is the one that is expected, and the kind is not.
    let mut middle = written[1].clone();
    middle.transport[9..12].copy_from_slice(&sent[1].transport[9..12]);
    middle.seal();
    let before = s.dropped();
    s.deliver([&sent[0], &middle, &sent[2]]);
    s.ends[1].cq.expect_none();
    assert_eq!(s.dropped(), before + 2);
    let drops = s.link.worlds[1].host.drops();
    assert_eq!(drops, [DropReason::OutOfSequence; 2]);
    // A write that is longer or shorter than it said.
    for claim in [2022u32, 2024] {
        let mut packets = s.packets(&Wr::write(3, &[s.from.sge(0, 2023)], s.to.remote(4096)));
        packets[0].transport[24..28].copy_from_slice(&claim.to_be_bytes());
        packets[0].seal();
        let before = s.dropped();
        s.deliver(&packets);
        assert_eq!(s.dropped(), before + 1);
    }
    let last = s.packets(&Wr::send(4, &[s.from.sge(0, 3000)]));
    s.deliver(&last);
    s.ends[1].cq.expect(7, Status::Success);
    s.link.worlds[1].host.drops();
    s.deliver(&last);
    s.ends[1].qp.post_recv(8, &[s.to.sge(0, 2)]);
    s.deliver(&last);
    let drops = s.link.worlds[1].host.drops();
    let [first, second] = [DropReason::NoReceive, DropReason::TooLong];
    let behind = DropReason::OutOfSequence;
    assert_eq!(drops, [first, behind, behind, second, behind, behind]);
    s.link.worlds[1].state(&s.ends[1].qp, State::Rts);
}
