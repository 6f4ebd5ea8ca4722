// SPDX-License-Identifier: GPL-2.0

//! When a requester asks, and when it waits.

use ferrule_engine::packet::Bth;
use ferrule_engine::{Budget, Status};

use super::{Scene, PACKET};
use crate::sim::network::deliver;
use crate::sim::*;

/// A packet that asks brings an acknowledgement of all that has come; but the end of a message of
/// several packets is acknowledged by its own packet only. A peer that sends all again may take it
/// for more than it is (see `ResponderState::last_coalescable`).
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
    // Each packet, and its answer: up to which one, and whether that is missing.
    let steps = [
        (0, Some((0, acknowledged))),
        (1, None),
        (3, Some((2, refused))),
        (4, None),
        (5, None),
        // The missing packet asks, and all has come.
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
        // The packet that the peer missed is sent alone; otherwise both are.
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

/// While a receiver that was not ready is waited for, nothing is sent, and no probe either, and no
/// timer fires again and again. When it has taken the packet after all, there is nothing to wait
/// for.
#[test]
fn no_probe_while_a_receiver_is_waited_for() {
    let mut s = Scene::new(&[]);
    let buffer = s.memory[1].sge(0, 100);
    let data = s.memory[0].sge(0, 100);
    let send = |wr_id| Wr::send(wr_id, &[data]);
    // From the first one it knows how long an answer takes.
    s.ends[1].qp.post_recv(10, &[buffer]);
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
    s.ends[1].qp.post_recv(11, &[buffer]);
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
    // The network has the old refusal twice, and the answer comes long after it.
    deliver(from, &not_ready[0]);
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
    deliver(from, &acknowledged[0]);
    from.run();
    assert_eq!(from.host.sent, packets[1..]);
}

/// Writes 8 bytes, whose acknowledgement takes so long, each time after the one before; returns how
/// often the requester probed meanwhile.
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

/// An answer may take as long as answers have been seen to vary, before all is sent again (RFC
/// 6298).
#[test]
fn no_probe_where_answers_vary() {
    let mut s = Scene::new(&[]);
    let steady = [20 * US; 30];
    assert_eq!(probes(&mut s, steady.into_iter().chain([480 * US])), 0);
    // Their mean is below 80 us now, and no probe is sent before 500 us.
    assert_eq!(probes(&mut s, [520 * US]), 0);
    // A packet whose answer takes longer may be lost.
    assert_ne!(probes(&mut s, [3 * MS]), 0);
}

/// Behind a part of a long read nothing is sent before its data are there, so nothing else would
/// show that it was lost: a probe asks for it again soon.
#[test]
fn a_part_of_a_read_is_probed_for() {
    let mut s = Scene::new(&[]);
    probes(&mut s, [MS; 20]);
    // Behind a short one more would be sent.
    let before = s.link.worlds[0].engine.counters().probes;
    let [mine, theirs] = &s.memory;
    s.ends[0]
        .qp
        .post_send(&Wr::read(1, &[mine.sge(0, 8)], theirs.remote(0)));
    assert_eq!(s.link.sent(0).len(), 1);
    s.link.wait(5 * MS / 2);
    s.link.sent(0);
    assert_eq!(s.link.worlds[0].engine.counters().probes, before);
    s.settle();
    s.ends[0].cq.expect(1, Status::Success);
    probes(&mut s, [MS; 20]);
    // More than one window.
    let length = 256 * PACKET;
    let [mine, theirs] = [0, 1].map(|i| s.link.worlds[i].mr(length as usize));
    let read = Wr::read(2, &[mine.sge(0, length)], theirs.remote(0));
    s.ends[0].qp.post_send(&read);
    let lost = s.link.sent(0);
    assert_eq!(lost.len(), 1);
    let before = s.link.worlds[0].engine.counters().probes;
    s.link.wait(5 * MS / 2);
    s.link.sent(0);
    assert_eq!(s.link.worlds[0].engine.counters().probes, before + 1);
    s.settle();
    s.ends[0].cq.expect(2, Status::Success);
}
