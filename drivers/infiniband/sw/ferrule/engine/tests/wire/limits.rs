// SPDX-License-Identifier: GPL-2.0

//! The limits of packets and requests under way at a time.

use ferrule_engine::{Budget, Status};

use super::pair;
use crate::sim::network::{Faults, Link};
use crate::sim::Wr;

/// A responder knows no window, so the requester asks for no more than there may be space for.
#[test]
fn a_long_read_floods_nobody() {
    const LENGTH: u32 = (5 << 20) + 3;

    for (capacity, is_lossless) in [(160, true), (50, false)] {
        let little = Faults {
            capacity,
            ..Faults::default()
        };
        let mut link = Link::new(1, little, false);
        let [(qp, cq, _), (peer, peer_cq, _)] = pair(&mut link, |_| ());
        let [mine, theirs] = [0, 1].map(|i| link.worlds[i].mr(LENGTH as usize));
        theirs.fill(7);
        qp.post_send(&Wr::read(1, &[mine.sge(0, LENGTH)], theirs.remote(0)));
        // The request behind it does not overtake it, and needs a receive request.
        peer.post_recv(9, &[theirs.sge(0, 8)]);
        qp.post_send(&Wr::send(2, &[mine.sge(0, 8)]));
        link.settle();
        cq.expect(1, Status::Success);
        cq.expect(2, Status::Success);
        peer_cq.expect(9, Status::Success);
        assert!(
            mine.bytes(0, LENGTH as usize) == {
                let mut bytes = theirs.bytes(0, LENGTH as usize);
                bytes[..8].copy_from_slice(&mine.bytes(0, 8));
                bytes
            }
        );
        let counters = link.worlds[0].engine.counters();
        let again = counters.retries + counters.probes;
        assert_eq!(again == 0, is_lossless, "{again}");
    }
}

/// A responder keeps resources for so many reads, atomic operations, flushes and atomic writes, and
/// no more are on their way (IBA volume 1, 9.4.4; annex A19.4.3).
#[test]
fn reads_under_way_are_as_many_as_agreed() {
    for agreed in 1..5u8 {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |modify| {
            if modify.max_rd_atomic.is_some() {
                modify.max_rd_atomic = Some(agreed);
            }
        });
        for i in 0..6 {
            qp.post_send(&match i % 4 {
                0 => Wr::read(i, &[mr.sge(0, 100)], theirs.remote(0)),
                1 => Wr::fetch_add(i, mr.sge(0, 8), theirs.remote(0), 1),
                2 => Wr::flush(i, theirs.remote(0), 100),
                _ => Wr::atomic_write(i, theirs.remote(0), 1),
            });
        }
        link.run();
        assert_eq!(link.network.sent[1], agreed.into());
        link.settle();
        for i in 0..6 {
            cq.expect(i, Status::Success);
        }
        assert_eq!(link.network.sent[1], 6);
    }
}

/// Behind the receive requests that the responder has told of, one message goes by itself, to learn
/// of more (IBA volume 1, 9.7.7.2).
#[test]
fn messages_under_way_are_as_many_as_there_are_credits() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
    for i in 0..3 {
        peer.post_recv(i, &[peer_mr.sge(0, 100)]);
    }
    qp.post_send(&Wr::send(0, &[mr.sge(0, 100)]));
    link.settle();
    let before = link.network.sent[1];
    for i in 1..7 {
        qp.post_send(&Wr::send(i, &[mr.sge(0, 100)]));
    }
    link.run();
    assert_eq!(link.network.sent[1], before + 2);
    // A write takes no receive request, but comes after the sends.
    qp.post_send(&Wr::write(7, &[mr.sge(0, 100)], peer_mr.remote(0)));
    link.run();
    assert_eq!(link.network.sent[1], before + 2);
    let not_ready = |link: &Link| link.worlds[0].engine.counters().receiver_not_ready;
    while not_ready(&link) == 0 {
        assert!(link.step());
    }
    for i in 3..7 {
        peer.post_recv(i, &[peer_mr.sge(0, 100)]);
    }
    link.settle();
    assert_eq!(not_ready(&link), 1);
    for i in 0..7 {
        cq.expect(i, Status::Success);
        peer_cq.expect(i, Status::Success);
    }
    cq.expect(7, Status::Success);
}

/// A READ that is lost and asked for again in parts is one message to the requester, and several to
/// the responder. The requester then goes on from the responder's count, or it would see receive
/// requests that are not there.
#[test]
fn parts_of_a_read_are_no_credits() {
    const LENGTH: u32 = 8192;

    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
    // Of the whole READ, the request and the probe are lost. After the timeout the window is one
    // packet.
    link.network.doomed = [(1, 0), (1, 1)].into();
    qp.post_send(&Wr::read(0, &[mr.sge(0, LENGTH)], peer_mr.remote(0)));
    link.settle();
    cq.expect(0, Status::Success);
    let before = link.network.sent[1];
    assert!(before > 3);
    for i in 1..4 {
        qp.post_send(&Wr::send(i, &[mr.sge(0, 100)]));
    }
    link.run();
    assert_eq!(link.network.sent[1], before + 1);
    for i in 1..4 {
        peer.post_recv(i, &[peer_mr.sge(0, 100)]);
    }
    link.settle();
    for i in 1..4 {
        cq.expect(i, Status::Success);
        peer_cq.expect(i, Status::Success);
    }
}

/// A turn ends with the packet at hand if another thread waits for the processor. Nothing is lost
/// by that.
#[test]
fn a_packet_at_a_time_goes_where_a_thread_waits() {
    const SLICE: Budget = Budget {
        requests: 32,
        bytes: 64 << 10,
    };

    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |_| ());
    for world in &mut link.worlds {
        world.host.needs_resched = true;
    }
    for i in 0..3 {
        qp.post_send(&Wr::write(i, &[mr.sge(0, 100)], theirs.remote(0)));
    }
    qp.post_send(&Wr::read(3, &[mr.sge(0, 100)], theirs.remote(0)));
    let world = &mut link.worlds[0];
    for sent in 1..4 {
        let outcome = world.engine.run(&mut world.host, SLICE, None);
        assert!(outcome.more);
        assert_eq!(world.host.sent.len(), sent);
    }
    link.settle();
    for i in 0..4 {
        cq.expect(i, Status::Success);
    }
}
