// SPDX-License-Identifier: GPL-2.0

//! Answers and packets that do not fit.

use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::{Bth, Packet};
use ferrule_engine::{State, Status};

use super::pair;
use crate::sim::network::{deliver, Faults, Link};
use crate::sim::{World, Wr, PLENTY};

/// An answer with other data than were asked for is none (IBA volume 1, 9.7.5.2.8).
#[test]
fn answers_that_do_not_fit_end_the_request() {
    let changes: [fn(&mut Vec<u8>); 3] = [
        |transport| transport.truncate(transport.len() - 4),
        |transport| transport.extend_from_slice(&[7; 4]),
        |transport| {
            transport[0] = rc::READ_RESPONSE_MIDDLE;
            transport.resize(size_of::<Bth>() + 1024, 7);
        },
    ];
    for change in changes {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |_| ());
        theirs.fill(7);
        qp.post_send(&Wr::read(1, &[mr.sge(0, 1124)], theirs.remote(0)));
        qp.post_send(&Wr::send(2, &[]));
        let [world, peer] = &mut link.worlds;
        world.engine.run(&mut world.host, PLENTY, None);
        deliver(peer, &world.host.sent.remove(0));
        peer.engine.run(&mut peer.host, PLENTY, None);
        let mut answers = std::mem::take(&mut peer.host.sent);
        assert_eq!(answers[1].transport[0], rc::READ_RESPONSE_LAST);
        change(&mut answers[1].transport);
        answers[1].seal();
        for answer in &answers {
            deliver(world, answer);
        }
        world.engine.run(&mut world.host, PLENTY, None);
        cq.expect(1, Status::BadResponse);
        cq.expect(2, Status::Flushed);
        world.state(&qp, State::Err);
        assert_eq!(mr.bytes(1024, 100), vec![0; 100]);
    }
}

/// Where there are no bytes the responder looks at no key (C9-88), and not every one knows such a
/// read again by one.
#[test]
fn a_read_of_nothing_names_no_key() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |_| ());
    for (id, length) in [(1, 0), (2, 8)] {
        qp.post_send(&Wr::read(id, &[mr.sge(0, length)], theirs.remote(0)));
        let World { engine, host, .. } = &mut link.worlds[0];
        while engine.run(host, PLENTY, None).more {}
        let [sent] = &host.sent[..] else {
            panic!("{} packets", host.sent.len());
        };
        let bytes = &sent.transport;
        let packet = Packet::parse(bytes, bytes.len()).unwrap();
        let reth = packet.reth().unwrap();
        assert_eq!(reth.length.get(), length);
        assert_eq!(reth.rkey.get(), if length == 0 { 0 } else { theirs.key });
        link.settle();
        cq.expect(id, Status::Success);
    }
}

/// A packet that does not come from the peer, or is not whole, is counted and changes nothing.
#[test]
fn strange_packets_are_counted_and_dropped() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, _, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    qp.post_send(&Wr::write(1, &[mr.sge(0, 100)], peer_mr.remote(0)));
    let world = &mut link.worlds[0];
    world.engine.run(&mut world.host, PLENTY, None);
    let good = world.host.sent.pop().unwrap();
    assert_eq!(good.transport[0], rc::WRITE_ONLY);
    let peer = &mut link.worlds[1];
    let before = peer.engine.counters();
    let mut bad = good.clone();
    bad.icrc[0] ^= 1;
    deliver(peer, &bad);
    assert_eq!(peer.engine.counters().icrc_errors, before.icrc_errors + 1);
    let mut elsewhere = good.clone();
    elsewhere.ip[23] ^= 1;
    elsewhere.seal();
    deliver(peer, &elsewhere);
    assert_eq!(peer.engine.counters().misdirected, 1);
    let mut short = good.clone();
    short.transport.truncate(20);
    deliver(peer, &short);
    assert_eq!(peer.engine.counters().malformed_short, 1);
    peer.engine.run(&mut peer.host, PLENTY, None);
    assert_eq!(peer.host.sent, []);
    assert_eq!(peer_mr.bytes(0, 100), vec![0; 100]);
    deliver(peer, &good);
    peer.engine.run(&mut peer.host, PLENTY, None);
    assert_eq!(peer.host.sent.len(), 1);
}
