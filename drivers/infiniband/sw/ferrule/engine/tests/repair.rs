// SPDX-License-Identifier: GPL-2.0

//! What was lost is sent again, and little else.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::packet::{opcode::rc, Bth};
use ferrule_engine::{Budget, State, Status};
use proptest::prelude::*;

use crate::sim::network::{deliver, Faults, Link};
use crate::sim::*;

const PACKET: u32 = 1024;
const PACKETS: u32 = 30;
const SIZE: u32 = PACKET * PACKETS;

/// A connection, and what is lost of it.
struct Scene {
    link: Link,
    ends: [End; 2],
    memory: [TestMr; 2],
}

impl Scene {
    fn new(doomed: &[(usize, u64)]) -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
        let memory = [0, 1].map(|i| link.worlds[i].mr(SIZE as usize));
        memory[0].fill(3);
        memory[1].fill(7);
        link.network.doomed = doomed.iter().copied().collect();
        Self { link, ends, memory }
    }

    fn write(&self, wr_id: u64, from: u32, length: u32) -> Wr {
        let sge = self.memory[0].sge(from.into(), length);
        Wr::write(wr_id, &[sge], self.memory[1].remote(from.into()))
    }

    /// Lets all happen; answers how many packets either side was sent.
    fn settle(&mut self) -> [u64; 2] {
        self.link.settle();
        assert_eq!(BUFFERED.get(), 0, "nothing is kept when all has come");
        for world in &self.link.worlds {
            assert_eq!(world.engine.counters().unanswered, 0);
        }
        self.link.network.sent
    }

    fn is_copied(&self) -> bool {
        let [mine, theirs] = &self.memory;
        mine.bytes(0, SIZE as usize) == theirs.bytes(0, SIZE as usize)
    }
}

#[test]
fn of_a_write_only_the_lost_packets_are_sent_again() {
    // Of two in a row, the second one is taken for a sign that nothing is kept, but where it is known
    // better.
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

/// Who asks learns of all that has come, but of the end of a message of several packets only by that packet:
/// a peer that sends all again may take it for more than it is (see `Wire::plain`).
#[test]
fn the_end_of_a_message_is_acknowledged_by_itself() {
    let mut s = Scene::new(&[]);
    s.ends[0].qp.put_send(&s.write(1, 0, PACKET));
    s.ends[0].qp.put_send(&s.write(2, PACKET, 2 * PACKET));
    s.ends[0].qp.put_send(&s.write(3, 3 * PACKET, 3 * PACKET));
    s.ends[0].qp.ring();
    let [from, to] = &mut s.link.worlds;
    from.engine.run(&mut from.host, PLENTY, None);
    let mut packets = std::mem::take(&mut from.host.sent);
    // As rdma_rxe does, the end of each message asks.
    for end in [0, 2, 5] {
        packets[end].transport[8] |= Bth::ACK_REQ;
        packets[end].seal();
    }
    let first = u32::from(packets[0].transport[11]);
    let (acknowledged, refused) = (0, 0x60);
    // Each packet, and what it is answered by: up to which one, and whether that is missing.
    let steps = [
        (0, Some((0, acknowledged))),
        (1, None),
        (3, Some((2, refused))),
        (4, None),
        (5, None),
        // What was missing asks, and all has come.
        (2, Some((4, acknowledged))),
        // Duplicates are answered, asked or not.
        (3, Some((3, acknowledged))),
        (4, Some((4, acknowledged))),
        (5, Some((5, acknowledged))),
        // A peer that has heard nothing.
        (0, Some((4, acknowledged))),
        (1, Some((1, acknowledged))),
        (2, Some((4, acknowledged))),
        (5, Some((5, acknowledged))),
    ];
    for (number, answer) in steps {
        deliver(to, &packets[number]);
        to.engine.run(&mut to.host, PLENTY, None);
        let sent = std::mem::take(&mut to.host.sent);
        assert!(sent.len() <= 1);
        let told = sent.first().map(|sent| {
            let number = u32::from(sent.transport[11]).wrapping_sub(first) & 0xff;
            (number, sent.transport[12] & 0x60)
        });
        assert_eq!(told, answer, "packet {number}");
    }
}

/// That yet another packet is missing is told when one behind it comes: who goes back sends it next.
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

/// The one packet of a repair asks, and if it is answered with data, those behind it are acknowledged
/// as well.
#[test]
fn what_was_kept_behind_a_read_is_acknowledged() {
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

/// A peer that is not ready may say of what follows that it misses the packet for which it was not:
/// whether that comes at once, or late, it is waited for as long as it takes.
#[test]
fn not_ready_is_no_loss() {
    let mut s = Scene::new(&[]);
    for wr_id in 1..3 {
        let sge = s.memory[0].sge(0, 100);
        s.ends[0].qp.post_send(&Wr::send(wr_id, &[sge]));
    }
    for round in 0..20 {
        let [from, to] = &mut s.link.worlds;
        from.engine.run(&mut from.host, PLENTY, None);
        // What was missed is sent alone; both are, otherwise.
        let packets = std::mem::take(&mut from.host.sent);
        deliver(to, &packets[0]);
        to.engine.run(&mut to.host, PLENTY, None);
        let answers = std::mem::take(&mut to.host.sent);
        assert_eq!(answers.len(), 1);
        let not_ready = &answers[0];
        assert_eq!(not_ready.transport[12] & 0x60, 0x20);
        let mut missed = not_ready.clone();
        missed.transport[12] = 0x60;
        missed.seal();

        deliver(from, not_ready);
        if round % 2 == 0 {
            deliver(from, &missed);
        }
        from.engine.run(&mut from.host, PLENTY, None);
        assert!(from.host.sent.is_empty(), "it waits");
        s.link.now = from.engine.deadline().unwrap();
        from.host.now = s.link.now;
        to.host.now = s.link.now;
        if round % 2 == 1 {
            from.engine.run(&mut from.host, PLENTY, None);
            assert!(!std::mem::take(&mut from.host.sent).is_empty());
            deliver(from, &missed);
        }
    }
    let counters = s.link.worlds[0].engine.counters();
    assert_eq!((counters.receiver_not_ready, counters.retries), (20, 10));
    for wr_id in 8..10 {
        s.ends[1].qp.post_recv(wr_id, &[s.memory[1].sge(0, 100)]);
    }
    s.settle();
    for wr_id in 1..3 {
        s.ends[0].cq.expect(wr_id, Status::Success);
        s.ends[1].cq.expect(wr_id + 7, Status::Success);
    }
}

/// While a receiver that was not ready is waited for, nothing is sent, and no probe either: its time comes
/// when the wait is over, and no timer fires again and again until then.
#[test]
fn no_probe_while_a_receiver_is_waited_for() {
    let mut s = Scene::new(&[]);
    let room = s.memory[1].sge(0, 100);
    let data = s.memory[0].sge(0, 100);
    let send = |wr_id| Wr::send(wr_id, &[data]);
    // From the first one it knows how long an answer takes.
    s.ends[1].qp.post_recv(10, &[room]);
    s.ends[0].qp.post_send(&send(1));
    s.link.settle();
    s.ends[0].qp.post_send(&send(2));
    let exchange = |s: &mut Scene| {
        let [from, to] = &mut s.link.worlds;
        from.run();
        for packet in std::mem::take(&mut from.host.sent) {
            deliver(to, &packet);
            to.run();
        }
        std::mem::take(&mut to.host.sent)
    };
    let not_ready = exchange(&mut s);
    assert_eq!(not_ready[0].transport[12] & 0x60, 0x20);
    deliver(&mut s.link.worlds[0], &not_ready[0]);
    s.ends[1].qp.post_recv(11, &[room]);
    s.ends[0].qp.post_send(&s.write(3, 0, 8));
    let [from, to] = &mut s.link.worlds;
    while from.host.sent.is_empty() {
        from.host.now = from.engine.deadline().unwrap();
        from.run();
    }
    let packets = std::mem::take(&mut from.host.sent);
    assert_eq!(packets.len(), 2);
    let again = from.host.now;
    let mut first = packets[0].clone();
    first.transport[8] |= Bth::ACK_REQ;
    first.seal();
    deliver(to, &first);
    to.run();
    let acknowledged = std::mem::take(&mut to.host.sent);
    // The network has the refusal of before twice, and the answer comes after it.
    for packet in [&not_ready[0], &acknowledged[0]] {
        deliver(from, packet);
    }
    let end = again + 640 * US;
    for now in (again..end).step_by(10_000) {
        from.host.now = now;
        let some = Budget {
            requests: 100,
            ..PLENTY
        };
        from.engine.run(&mut from.host, some, None);
        let outcome = from.engine.run(&mut from.host, some, None);
        assert!(!outcome.more, "after {} ns", now - again);
        assert_eq!(from.host.sent, []);
    }
    assert_eq!(from.engine.deadline(), Some(end));
}

/// Writes 8 bytes, whose acknowledgement takes so long, each time after the one before; answers how often the
/// requester probed meanwhile.
fn probes(s: &mut Scene, times: impl IntoIterator<Item = u64>) -> u64 {
    let before = s.link.worlds[0].engine.counters().probes;
    for took in times {
        s.ends[0].qp.post_send(&s.write(1, 0, 8));
        let packets = s.link.sent(0);
        let answers = s.link.answers(1, &packets);
        let end = s.link.now + took;
        while let Some(due) = s.link.worlds[0].engine.deadline().filter(|&due| due < end) {
            s.link.wait(due.saturating_sub(s.link.now));
            s.link.sent(0);
        }
        s.link.wait(end - s.link.now);
        s.link.give(0, &answers);
        s.ends[0].cq.expect(1, Status::Success);
    }
    s.link.worlds[0].engine.counters().probes - before
}

/// An answer may take as long as answers have been seen to vary, before all is sent again (RFC 6298).
#[test]
fn no_probe_where_answers_vary() {
    let mut s = Scene::new(&[]);
    let steady = [20 * US; 30];
    assert_eq!(probes(&mut s, steady.into_iter().chain([480 * US])), 0);
    // Their mean is below 80 us now, and no probe is sent before 500 us.
    assert_eq!(probes(&mut s, [520 * US]), 0);
    // What takes longer may be lost.
    assert_ne!(probes(&mut s, [3 * MS]), 0);
}

/// What is kept is judged when its turn comes, and not before.
#[test]
fn what_is_kept_is_refused_in_its_turn() {
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
fn what_is_kept_waits_for_receive_requests() {
    let mut s = Scene::new(&[(1, 1)]);
    for i in 0..4 {
        let sge = s.memory[0].sge(0, 2 * PACKET);
        s.ends[0].qp.post_send(&Wr::send(i, &[sge]));
    }
    let room = s.memory[1].sge(0, 2 * PACKET);
    s.ends[1].qp.post_recv(10, &[room]);
    while s.link.now < 50 * MS {
        assert!(s.link.step());
    }
    for i in 11..14 {
        s.ends[1].qp.post_recv(i, &[room]);
    }
    s.settle();
    for i in 0..4 {
        s.ends[0].cq.expect(i, Status::Success);
        s.ends[1].cq.expect(10 + i, Status::Success);
    }
}

/// Nothing is kept that is further ahead than two windows, nor for a queue pair that has no more use for it.
#[test]
fn what_is_kept_is_bounded_and_goes_with_its_queue_pair() {
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

/// The number of a packet, and whether it refuses.
fn told(packet: &SentPacket) -> (u32, bool) {
    let bytes = &packet.transport;
    let number = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) & 0xff_ffff;
    (number, bytes[12] & 0x60 != 0)
}

/// Two packets have changed places, and both have come before the answer leaves: nothing is missing then,
/// and a peer without retries is not told that something is.
#[test]
fn a_gap_that_has_closed_is_not_told() {
    let mut s = Scene::new(&[]);
    // What asks is the last packet.
    for (count, newest) in [(2, 1), (3, 1), (4, 3)] {
        s.ends[0].qp.post_send(&s.write(1, 0, 4 * PACKET));
        let mut packets = s.link.sent(0);
        let newest = told(&packets[newest]).0;
        packets.swap(0, 1);
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

/// What is kept goes a second after the last progress: a peer that lives on a bad network loses nothing.
#[test]
fn what_is_kept_stays_as_long_as_there_is_progress() {
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

/// What a packet costs does not grow with how far ahead something is kept.
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

/// What a program may post.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    from: u32,
    length: u32,
}

fn request() -> impl Strategy<Value = Request> {
    let opcodes = prop::sample::select(vec![
        wr_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ,
        wr_opcode::SEND,
        wr_opcode::ATOMIC_FETCH_AND_ADD,
    ]);
    (opcodes, 0..SIZE, 0..SIZE).prop_map(|(opcode, from, length)| Request {
        opcode,
        from,
        length: length.min(SIZE - from),
    })
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whichever packets are lost, whether the peer keeps those behind them or not: each request ends
    /// well, in order, and an atomic operation is carried out once.
    #[test]
    fn whatever_is_lost_arrives(
        requests in prop::collection::vec(request(), 1..12),
        doomed in prop::collection::btree_set((0..2usize, 0..200u64), 0..30),
        keeps: bool,
    ) {
        REORDERS.set(keeps);
        let mut s = Scene::new(&[]);
        s.link.network.doomed = doomed;
        let counter = s.link.worlds[1].mr(8);
        let answers = s.link.worlds[0].mr(8 * 12);
        for (i, request) in requests.iter().enumerate() {
            let i = i as u64;
            let sge = s.memory[0].sge(request.from.into(), request.length);
            let remote = s.memory[1].remote(request.from.into());
            s.ends[1].qp.post_recv(100 + i, &[s.memory[1].sge(0, SIZE)]);
            s.ends[0].qp.post_send(&match request.opcode {
                wr_opcode::RDMA_WRITE => Wr::write(i, &[sge], remote),
                wr_opcode::RDMA_READ => Wr::read(i, &[sge], remote),
                wr_opcode::SEND => Wr::send(i, &[sge]),
                _ => Wr::fetch_add(i, answers.sge(8 * i, 8), counter.remote(0), 1),
            });
        }
        let start = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        s.link.settle();
        prop_assert_eq!(BUFFERED.get(), 0);
        let mut added = 0;
        for (i, request) in requests.iter().enumerate() {
            s.ends[0].cq.expect(i as u64, Status::Success);
            if request.opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
                let found = answers.bytes(8 * i, 8).try_into().unwrap();
                prop_assert_eq!(u64::from_ne_bytes(found), start + added);
                added += 1;
            }
        }
        let end = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        prop_assert_eq!(end, start + added);
    }
}

/// A request for a read may come once more when the peer has long had the answer, and the memory has been deregistered:
/// then it is dropped, and nobody fails.
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
