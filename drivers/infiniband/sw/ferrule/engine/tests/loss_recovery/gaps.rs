// SPDX-License-Identifier: GPL-2.0

//! Only what was lost is sent again, or asked for again.

use ferrule_engine::abi::{wr_flags, wr_opcode};
use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::Bth;
use ferrule_engine::{State, Status};

use super::{Scene, PACKET, PACKETS, SIZE};
use crate::sim::network::deliver;
use crate::sim::*;

#[test]
fn of_a_write_only_the_lost_packets_are_sent_again() {
    // Of two in a row, the second one is taken for a sign that nothing is kept, but where it is
    // known better.
    for doomed in [
        &[(1, 5)][..],
        &[(1, 0)],
        &[(1, 5), (1, 17)],
        &[(1, 1), (1, 15), (1, 16)],
    ] {
        let mut s = Scene::new(doomed);
        s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
        let [_, sent] = s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        // With each, the last one is sent again to ask, since nothing else is left that could.
        let again = 2 * doomed.len() as u64;
        assert_eq!(sent, u64::from(PACKETS) + again, "{doomed:?}");
    }
}

#[test]
fn of_a_read_only_the_lost_packets_are_asked_for_again() {
    for doomed in [&[(0, 5)][..], &[(0, 0)], &[(0, 5), (0, 6), (0, 17)]] {
        let mut s = Scene::new(doomed);
        let sge = s.memory[0].sge(0, SIZE);
        s.ends[0]
            .qp
            .post_send(&Wr::read(1, &[sge], s.memory[1].remote(0)));
        let [sent, asked] = s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        assert_eq!(sent, u64::from(PACKETS) + doomed.len() as u64, "{doomed:?}");
        let gaps = if doomed.len() == 1 { 1 } else { 2 };
        assert_eq!(asked, 1 + gaps, "{doomed:?}");
    }
}

/// The gap may begin in one read and end in another, and other requests may be between.
#[test]
fn gaps_of_several_reads_are_filled() {
    let mut s = Scene::new(&[(0, 3), (0, 4), (0, 5), (0, 6), (0, 9)]);
    for i in 0..4 {
        let at = i * 5 * PACKET;
        let sge = s.memory[0].sge(at.into(), 5 * PACKET);
        let read = Wr::read(i.into(), &[sge], s.memory[1].remote(at.into()));
        s.ends[0].qp.post_send(&read);
    }
    let rest = 20 * PACKET;
    s.ends[0].qp.post_send(&s.write(4, rest, SIZE - rest));
    s.settle();
    for i in 0..5 {
        s.ends[0].cq.expect(i, Status::Success);
    }
    assert!(s.is_copied());
}

/// A peer that goes by the letter, and keeps nothing, gets all from there on.
#[test]
fn a_peer_that_keeps_nothing_gets_all_again() {
    REORDERS.set(false);
    for doomed in [&[(1, 5)][..], &[(1, 5), (1, 45)]] {
        let mut s = Scene::new(doomed);
        s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
        s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        let sge = s.memory[0].sge(0, SIZE);
        s.memory[1].fill(9);
        let read = Wr::read(2, &[sge], s.memory[1].remote(0));
        s.ends[0].qp.post_send(&read);
        s.settle();
        s.ends[0].cq.expect(2, Status::Success);
        assert!(s.is_copied());
    }
    REORDERS.set(true);
}

/// The responder tells that yet another packet is missing when one behind it comes: a peer that
/// goes back sends it next.
#[test]
fn the_next_gap_is_told_by_what_comes_behind_it() {
    for goes_back in [true, false] {
        let mut s = Scene::new(&[]);
        s.ends[0].qp.post_send(&s.write(1, 0, 6 * PACKET));
        let [from, to] = &mut s.link.worlds;
        from.engine.run(&mut from.host, PLENTY, None);
        let packets = std::mem::take(&mut from.host.sent);
        for number in [0, 2, 4] {
            deliver(to, &packets[number]);
        }
        to.engine.run(&mut to.host, PLENTY, None);
        assert_eq!(to.host.sent.len(), 1);
        to.host.sent.clear();
        deliver(to, &packets[1]);
        to.engine.run(&mut to.host, PLENTY, None);
        assert_eq!(to.host.sent, []);
        deliver(to, &packets[if goes_back { 3 } else { 5 }]);
        to.engine.run(&mut to.host, PLENTY, None);
        if goes_back {
            assert_eq!(to.host.sent, []);
        } else {
            assert_eq!(to.host.sent[0].transport[11], packets[3].transport[11]);
            assert_eq!(to.host.sent[0].transport[12], 0x60);
        }
    }
}

/// An answer with data acknowledges what it answers, and nothing else does.
#[test]
fn a_duplicate_is_not_answered_for_a_read() {
    let mut s = Scene::new(&[]);
    s.ends[0].qp.post_send(&s.write(1, 0, 8));
    let read = Wr::read(2, &[s.memory[0].sge(0, 8)], s.memory[1].remote(0));
    s.ends[0].qp.post_send(&read);
    let [from, to] = &mut s.link.worlds;
    from.engine.run(&mut from.host, PLENTY, None);
    let packets = std::mem::take(&mut from.host.sent);
    assert_eq!(packets.len(), 2);
    for packet in &packets {
        deliver(to, packet);
    }
    to.engine.run(&mut to.host, PLENTY, None);
    to.host.sent.clear();
    let mut again = packets[0].clone();
    again.transport[8] |= Bth::ACK_REQ;
    again.seal();
    deliver(to, &again);
    to.engine.run(&mut to.host, PLENTY, None);
    let answer = &to.host.sent[0].transport;
    assert_eq!(answer[0], rc::ACKNOWLEDGE);
    assert_eq!(answer[9..12], packets[0].transport[9..12]);
}

/// The number of a packet, and whether it refuses.
fn told(packet: &SentPacket) -> (u32, bool) {
    let bytes = &packet.transport;
    let number = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) & 0xff_ffff;
    (number, bytes[12] & 0x60 != 0)
}

/// Two packets have changed places, and both have come before the answer leaves: nothing is missing
/// then, and a peer without retries is not told that something is. Nobody sends the last packet
/// again, so it is acknowledged like any other.
#[test]
fn a_gap_that_has_closed_is_not_told() {
    let mut s = Scene::new(&[]);
    // The last packet asks for the acknowledgement.
    for (first, count, newest) in [(0, 2, 1), (0, 3, 1), (0, 4, 3), (2, 4, 3)] {
        s.ends[0].qp.post_send(&s.write(1, 0, 4 * PACKET));
        let mut packets = s.link.sent(0);
        let newest = told(&packets[newest]).0;
        packets.swap(first, first + 1);
        s.link.give(1, &packets[..count]);
        let answers = s.link.sent(1);
        assert_eq!(
            answers.iter().map(told).collect::<Vec<_>>(),
            [(newest, false)]
        );
        s.link.give(0, &answers);
        s.link.give(1, &packets[count..]);
        s.settle();
        s.ends[0].cq.expect(1, Status::Success);
    }
    assert_eq!(s.link.worlds[0].engine.counters().retries, 0);
    // Nor that there is no receive request, when one has come for the packet.
    s.ends[0]
        .qp
        .post_send(&Wr::send(2, &[s.memory[0].sge(0, 8)]));
    let packets = s.link.sent(0);
    s.link.give(1, &packets);
    s.ends[1].qp.post_recv(3, &[s.memory[1].sge(0, 8)]);
    s.link.give(1, &packets);
    let answers: Vec<_> = s.link.sent(1).iter().map(told).collect();
    assert_eq!(answers, [(told(&packets[0]).0, false)]);
}

/// A NAK that the peer has obeyed long ago says nothing of the packets that come now.
#[test]
fn an_old_nak_delays_no_acknowledgement() {
    let mut s = Scene::new(&[]);
    // Refused, with none behind it.
    let (mine, theirs) = (s.memory[0].sge(0, 8), s.memory[1].sge(0, 8));
    s.ends[0].qp.post_send(&Wr::send(1, &[mine]));
    let refused = s.link.sent(0);
    let answers = s.link.answers(1, &refused);
    assert_eq!(
        answers.iter().map(told).collect::<Vec<_>>(),
        [(told(&refused[0]).0, true)]
    );
    s.link.give(0, &answers);
    s.ends[1].qp.post_recv(2, &[theirs]);
    s.settle();
    s.ends[0].cq.expect(1, Status::Success);

    s.ends[0].qp.post_send(&s.write(3, 0, 4 * PACKET));
    let mut packets = s.link.sent(0);
    let newest = told(&packets[3]).0;
    packets.swap(2, 3);
    s.link.give(1, &packets);
    let answers: Vec<_> = s.link.sent(1).iter().map(told).collect();
    assert_eq!(answers, [(newest, false)]);
}

/// A request for a read may come once more when the peer has long had the answer, and the memory
/// has been deregistered: then it is dropped, and nobody fails.
#[test]
fn a_read_asked_for_again_may_find_its_memory_gone() {
    let mut s = Scene::new(&[]);
    let length = 3 * PACKET;
    let gone = s.link.worlds[1].mr(length as usize);
    let sge = s.memory[0].sge(0, length);
    s.ends[0].qp.post_send(&Wr::read(1, &[sge], gone.remote(0)));
    let [from, _] = &mut s.link.worlds;
    from.engine.run(&mut from.host, PLENTY, None);
    let request = std::mem::take(&mut from.host.sent).remove(0);
    deliver(&mut s.link.worlds[1], &request);
    s.settle();
    s.ends[0].cq.expect(1, Status::Success);
    let to = &mut s.link.worlds[1];
    to.engine.remove_mr(gone.key).map(|_| ()).unwrap();
    deliver(to, &request);
    to.engine.run(&mut to.host, PLENTY, None);
    assert_eq!(to.host.sent, []);
    assert_eq!(to.host.events, []);
    assert_eq!(to.engine.counters().dropped, 1);
    // The connection goes on.
    let read = Wr::read(2, &[sge], s.memory[1].remote(0));
    s.ends[0].qp.post_send(&read);
    s.settle();
    s.ends[0].cq.expect(2, Status::Success);
    for (world, end) in s.link.worlds.iter_mut().zip(&s.ends) {
        world.state(&end.qp, State::Rts);
    }
}

/// A request that is sent again is copied out of its slot again. If the program has changed it
/// meanwhile, so that its packets would be others, it ends with an error. Where its bytes lie may
/// change, as the bytes may.
#[test]
fn a_slot_that_changes_is_not_sent_again() {
    const BAD: [Status; 2] = [Status::LocalOperation, Status::Flushed];
    const GOOD: [Status; 2] = [Status::Success; 2];

    let changes: [(fn(&mut Wr), _); 4] = [
        (|wr| wr.opcode = wr_opcode::SEND, BAD),
        (|wr| wr.flags ^= wr_flags::SOLICITED, BAD),
        (|wr| wr.sges[0].1 += 1, BAD),
        (|wr| wr.sges[0].0 += 8, GOOD),
    ];
    for (change, expected) in changes {
        let mut s = Scene::new(&[]);
        let mut wr = s.write(1, 0, 8);
        s.ends[0].qp.post_send(&wr);
        // The engine has another request at hand then, and copies the first one again.
        s.ends[0].qp.post_send(&s.write(2, 0, 8));
        assert_eq!(s.link.sent(0).len(), 2);
        change(&mut wr);
        s.ends[0].qp.fill_send(0, &wr);
        s.link.settle();
        let ended: Vec<_> = s.ends[0].cq.drain().iter().map(|wc| wc.status).collect();
        assert_eq!(ended, expected.map(|status| status as u8));
    }
}
