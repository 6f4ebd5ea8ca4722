// SPDX-License-Identifier: GPL-2.0

//! The reorder buffer: how long packets stay there, and when the responder carries them out.

use ferrule_engine::{State, Status};

use super::{Scene, PACKET, SIZE};
use crate::sim::*;

/// A selective retransmit asks for an acknowledgement. A READ answers it with data, and the
/// acknowledgement of the requests buffered behind it follows.
#[test]
fn packets_buffered_behind_a_read_are_acknowledged() {
    let mut s = Scene::new(&[(1, 0)]);
    let read = Wr::read(1, &[s.memory[0].sge(0, 8)], s.memory[1].remote(0));
    s.ends[0].qp.put_send(&read);
    s.ends[0].qp.put_send(&s.write(2, 8, 8));
    s.ends[0].qp.put_send(&s.write(3, 16, 8));
    s.ends[0].qp.ring();
    s.settle();
    for wr_id in 1..4 {
        s.ends[0].cq.expect(wr_id, Status::Success);
    }
    assert_eq!(s.link.worlds[0].engine.counters().probes, 0);
}

/// A buffered packet is judged when those before it have been carried out, and not before.
#[test]
fn a_buffered_packet_is_refused_in_order() {
    let mut s = Scene::new(&[(1, 1)]);
    s.ends[0].qp.post_send(&s.write(1, 0, 3 * PACKET));
    let [mine, theirs] = &s.memory;
    let bad = Wr::write(2, &[mine.sge(0, 8)], (theirs.iova, theirs.key ^ 1));
    s.ends[0].qp.post_send(&bad);
    s.ends[0].qp.post_send(&s.write(3, 0, 8));
    s.settle();
    let cq = &s.ends[0].cq;
    cq.expect(1, Status::Success);
    cq.expect(2, Status::RemoteAccess);
    cq.expect(3, Status::Flushed);
    s.link.worlds[1].state(&s.ends[1].qp, State::Err);
}

/// A receive request that is missing has the rest wait, and lose nothing.
#[test]
fn buffered_packets_wait_for_receive_requests() {
    let mut s = Scene::new(&[(1, 1)]);
    for i in 0..4 {
        let sge = s.memory[0].sge(0, 2 * PACKET);
        s.ends[0].qp.post_send(&Wr::send(i, &[sge]));
    }
    let buffer = s.memory[1].sge(0, 2 * PACKET);
    s.ends[1].qp.post_recv(10, &[buffer]);
    while s.link.now < 50 * MS {
        assert!(s.link.step());
    }
    for i in 11..14 {
        s.ends[1].qp.post_recv(i, &[buffer]);
    }
    s.settle();
    for i in 0..4 {
        s.ends[0].cq.expect(i, Status::Success);
        s.ends[1].cq.expect(10 + i, Status::Success);
    }
}

/// No packet is buffered that is further ahead than two windows, nor for a queue pair that has no
/// more use for it.
#[test]
fn the_reorder_buffer_is_bounded_and_goes_with_its_queue_pair() {
    let mut s = Scene::new(&[(1, 0)]);
    s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
    let world = &mut s.link.worlds[0];
    while world.engine.run(&mut world.host, PLENTY, None).more {}
    let packets = std::mem::take(&mut world.host.sent);
    let peer = &mut s.link.worlds[1];
    let first = u32::from_be_bytes(packets[0].transport[8..12].try_into().unwrap()) & 0xff_ffff;
    for ahead in 1..1000u32 {
        let mut packet = packets[1].clone();
        packet.transport[9..12].copy_from_slice(&(first + ahead).to_be_bytes()[1..]);
        packet.seal();
        for _ in 0..2 {
            network::deliver(peer, &packet);
        }
    }
    assert_eq!(BUFFERED.get(), 255);
    // Nor does it stay for ever.
    peer.host.now = peer.engine.deadline().unwrap();
    assert_eq!(peer.host.now, 1000 * MS);
    peer.run();
    assert_eq!(BUFFERED.get(), 0);
    network::deliver(peer, &packets[1]);
    assert_eq!(BUFFERED.get(), 1);
    peer.to(&s.ends[1].qp, State::Err);
    peer.run();
    assert_eq!(BUFFERED.get(), 0);
}

/// Buffered packets go a second after the last progress: a peer that lives on a bad network loses
/// nothing.
#[test]
fn buffered_packets_stay_as_long_as_there_is_progress() {
    let mut s = Scene::new(&[]);
    s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
    let packets = s.link.sent(0);
    // Each second packet comes now, and the others late, one by one.
    let kept: Vec<_> = packets.iter().skip(1).step_by(2).cloned().collect();
    s.link.give(1, &kept);
    assert_eq!(BUFFERED.get(), kept.len());
    for (i, packet) in packets.iter().step_by(2).take(8).enumerate() {
        s.link.wait(400 * MS);
        s.link.give(1, std::slice::from_ref(packet));
        s.link.sent(1);
        assert_eq!(BUFFERED.get(), kept.len() - 1 - i);
    }
    s.link.wait(1000 * MS - 1);
    s.link.sent(1);
    assert_ne!(BUFFERED.get(), 0);
    s.link.wait(1);
    s.link.sent(1);
    assert_eq!(BUFFERED.get(), 0);
}

/// The work for a packet does not grow with how far ahead another one is buffered.
#[test]
fn a_packet_far_ahead_is_not_searched_for() {
    let mut s = Scene::new(&[]);
    for i in 0..16 {
        s.ends[0].qp.put_send(&s.write(i, 0, 8));
    }
    s.ends[0].qp.ring();
    let packets = s.link.sent(0);
    let mut ahead = packets[1].clone();
    let number = u32::from_be_bytes(packets[0].transport[8..12].try_into().unwrap()) + 250;
    ahead.transport[9..12].copy_from_slice(&number.to_be_bytes()[1..]);
    ahead.seal();
    s.link.give(1, &[ahead]);
    assert_eq!(BUFFERED.get(), 1);
    LOOKS.set(0);
    s.link.give(1, &packets);
    assert!(LOOKS.get() <= packets.len(), "{} looks", LOOKS.get());
    assert_eq!(BUFFERED.get(), 1);
}
