// SPDX-License-Identifier: GPL-2.0

//! A host that has no space for a packet, and packets that cannot be made.

use ferrule_engine::packet::opcode::CONGESTION;
use ferrule_engine::{Sends, State, Status};

use super::{Datagrams, Scene, QKEY};
use crate::sim::network::{Link, GIDS};
use crate::sim::*;

#[test]
fn a_busy_host_is_asked_again() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let ah = s.link.worlds[0].ah(1, s.way);
    let wr = Wr::datagram(1, &[s.from.sge(0, 99)], (ah, s.target()), QKEY);
    s.ends[0].qp.post_send(&wr);
    s.link.worlds[0].host.busy = 3;
    s.link.settle();
    s.ends[0].cq.expect(1, Status::Success);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.link.now, 3 * 50 * US + 5 * US);

    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    s.ends[0].qp.post_send(&Wr::send(1, &[s.from.sge(0, 3000)]));
    s.link.worlds[0].host.busy = 3;
    s.link.settle();
    s.ends[0].cq.expect(1, Status::Success);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.to.bytes(0, 3000), s.from.bytes(0, 3000));
    assert_eq!(s.dropped(), 0);
}

/// A queue pair that has as much on its way as it may have is not asked for more before it is rung.
#[test]
fn whoever_has_too_much_on_its_way_waits_to_be_rung() {
    let mut s = Datagrams::new(GIDS[0], GIDS[1]);
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 1000)]);
    let ah = s.link.worlds[0].ah(1, s.way);
    let wr = Wr::datagram(1, &[s.from.sge(0, 99)], (ah, s.target()), QKEY);
    let rung = |link: &mut Link, ends: &[End; 2], wr: &Wr| {
        link.worlds[0].host.full = Some(Sends::Requests);
        ends[0].qp.post_send(wr);
        assert_eq!(link.sent(0), []);
        link.wait(MS);
        assert_eq!(link.sent(0), []);
        let world = &mut link.worlds[0];
        assert_eq!(world.engine.counters().send_waits, 1);
        world.host.full = None;
        world.engine.ring_qp(ends[0].qp.id.number);
        let sent = link.sent(0);
        assert!(!sent.is_empty());
        link.give(1, &sent);
        ends[0].cq.expect(1, Status::Success);
        ends[1].cq.expect(2, Status::Success);
    };
    rung(&mut s.link, &s.ends, &wr);

    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    let wr = Wr::send(1, &[s.from.sge(0, 3000)]);
    rung(&mut s.link, &s.ends, &wr);
    assert_eq!(s.to.bytes(0, 3000), s.from.bytes(0, 3000));
}

/// Memory that has gone since the request was taken ends the sender's work, and no packet is sent.
#[test]
fn a_payload_that_cannot_be_read_is_not_sent() {
    let mut s = Scene::new();
    s.ends[0].qp.post_send(&Wr::send(1, &[s.from.sge(0, 3000)]));
    let world = &mut s.link.worlds[0];
    world.host.busy = 1;
    world.run();
    world.engine.remove_mr(s.from.key).map(|_| ()).unwrap();
    s.link.settle();
    s.ends[0].cq.expect(1, Status::LocalProtection);
    s.link.worlds[0].state(&s.ends[0].qp, State::Sqe);
    assert_eq!(s.link.worlds[0].engine.counters().packets_sent, 0);
}

#[test]
fn congestion_is_counted() {
    let mut s = Scene::new();
    s.ends[1].qp.post_recv(2, &[s.to.sge(0, 4096)]);
    let mut packets = s.packets(&Wr::send(1, &[s.from.sge(0, 100)]));
    // Both bits of explicit congestion notification, in the traffic class of IPv6.
    packets[0].ip[1] |= 0x30;
    s.deliver(&packets);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.link.worlds[1].engine.counters().congestion_marks, 1);
    let mut notification = packets[0].clone();
    notification.transport.truncate(12);
    notification.transport[0] = CONGESTION;
    notification.transport[1] = 0x40;
    notification.transport.extend([0; 16]);
    notification.seal();
    s.deliver([&notification]);
    assert_eq!(
        s.link.worlds[1].engine.counters().congestion_notifications,
        1
    );
}
