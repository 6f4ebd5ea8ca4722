// SPDX-License-Identifier: GPL-2.0

//! Memory that is absent when it is used, and is brought in while the request waits.

use ferrule_engine::{Access, Group, PathKind, State, Status, Vport};

use crate::sim::network::{Faults, Link};
use crate::sim::*;

/// How often each memory is asked for.
const ASKS: u32 = 3;

const QKEY: u32 = 5;

/// More than a segment of a message between queue pairs of one engine.
const LONG: u32 = 300_000;

/// All rights, to memory that is paged on demand.
fn paged(w: &mut World, size: u32, seed: u8) -> TestMr {
    let size = size as usize;
    let mr = w.mr_with(1, ALL.or(Access::ON_DEMAND), memory::shared(size), 0, size);
    mr.fill(seed);
    mr
}

/// Lets all of it be absent from this byte on.
fn page_out_from(regions: &[&TestMr], first: u64) {
    for mr in regions {
        mr.region.absent_from.set(first);
        mr.region.absent.set(ASKS);
    }
}

/// Lets all of it be absent.
fn page_out(regions: &[&TestMr]) {
    page_out_from(regions, 0);
}

/// Asserts that the memory which a request names was asked for, until it was there.
fn asked_for(wr: &Wr, mine: &TestMr, theirs: &TestMr) {
    if !wr.sges.is_empty() {
        assert_eq!(mine.region.absent.get(), 0);
    }
    assert_eq!(theirs.region.absent.get(), 0);
    mine.region.absent.set(0);
}

/// How many requests there are.
const REQUESTS: usize = 6;

/// How many of them, the first ones, have many bytes.
const MESSAGES: usize = 3;

/// The requests of a connection.
fn requests(mine: &TestMr, theirs: &TestMr, length: u32) -> [Wr; REQUESTS] {
    [
        Wr::send(1, &[mine.sge(0, 10), mine.sge(10, length - 10)]),
        Wr::write(1, &[mine.sge(0, length)], theirs.remote(0)),
        Wr::read(1, &[mine.sge(0, length)], theirs.remote(0)),
        Wr::fetch_add(1, mine.sge(0, 8), theirs.remote(0), 5),
        Wr::compare_swap(1, mine.sge(0, 8), theirs.remote(0), 0, 9),
        Wr::atomic_write(1, theirs.remote(0), 77),
    ]
}

/// The bytes of both ends after a request.
type Left = (Vec<u8>, Vec<u8>);

fn left(mine: &TestMr, theirs: &TestMr) -> Left {
    let all = |mr: &TestMr| mr.bytes(0, mr.region.length);
    (all(mine), all(theirs))
}

/// Carries out a request of this number between queue pairs of one engine. The memory is absent
/// from a byte on, if so.
fn local(number: usize, absent: Option<u64>) -> Left {
    let mut w = World::new();
    let (a, b) = w.pair();
    let [mine, theirs] = [7, 11].map(|seed| paged(&mut w, LONG, seed));
    let wr = &requests(&mine, &theirs, LONG)[number];
    b.qp.post_recv(2, &[theirs.sge(0, 1000), theirs.sge(1000, LONG - 1000)]);
    if let Some(first) = absent {
        page_out_from(&[&mine, &theirs], first);
    }
    a.qp.post_send(wr);
    w.settle(1_000_000_000);
    a.cq.expect(1, Status::Success);
    asked_for(wr, &mine, &theirs);
    left(&mine, &theirs)
}

/// As [`local`], across a link.
fn remote(number: usize, length: u32, absent: Option<u64>) -> Left {
    let mut link = Link::new(1, Faults::default(), false);
    let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let [mine, theirs] =
        [(0, 7), (1, 11)].map(|(end, seed)| paged(&mut link.worlds[end], length, seed));
    let wr = &requests(&mine, &theirs, length)[number];
    ends[1]
        .qp
        .post_recv(2, &[theirs.sge(0, 1000), theirs.sge(1000, length - 1000)]);
    if let Some(first) = absent {
        page_out_from(&[&mine, &theirs], first);
    }
    ends[0].qp.post_send(wr);
    link.settle();
    ends[0].cq.expect(1, Status::Success);
    asked_for(wr, &mine, &theirs);
    // Nothing was lost: the peer heard of no gap, waited in vain for no answer, and had no need of
    // a probe.
    for world in &link.worlds {
        let counters = world.engine.counters();
        let signs = [counters.naks_sent, counters.unanswered, counters.probes];
        assert_eq!(signs, [0; 3]);
    }
    left(&mine, &theirs)
}

#[test]
fn a_local_request_waits_for_memory_of_both_ends() {
    for number in 0..REQUESTS {
        assert_eq!(
            local(number, Some(0)),
            local(number, None),
            "request {number}"
        );
    }
    // In the middle of a piece, and at the second piece.
    for (number, first) in (0..MESSAGES).flat_map(|number| [(number, 5000), (number, 280_000)]) {
        assert_eq!(
            local(number, Some(first)),
            local(number, None),
            "request {number} from {first} on"
        );
    }
}

#[test]
fn a_remote_request_waits_for_memory_of_both_ends() {
    // More packets than the first window has, and fewer.
    for length in [40_000, 25_000] {
        let expect = |number, first| {
            assert_eq!(
                remote(number, length, Some(first)),
                remote(number, length, None),
                "request {number} from {first} on"
            );
        };
        for number in 0..REQUESTS {
            expect(number, 0);
        }
        // In the middle of a packet, and at a later one.
        for number in 0..MESSAGES {
            expect(number, 500);
            expect(number, 20_480);
        }
    }
}

/// The response has come, and a probe would ask for the bytes before it, which are none.
#[test]
fn no_probe_while_a_response_waits_for_memory() {
    const SIZE: u32 = 4096;

    let mut link = Link::new(1, Faults::default(), false);
    let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let [mine, theirs] =
        [(0, 7), (1, 11)].map(|(end, seed)| paged(&mut link.worlds[end], SIZE, seed));
    let read = Wr::read(1, &[mine.sge(0, SIZE)], theirs.remote(0));
    // From the first one the requester knows how long a response takes.
    for asks in [0, 100, 0] {
        mine.region.absent_from.set(1024);
        mine.region.absent.set(asks);
        ends[0].qp.post_send(&read);
        link.settle();
        ends[0].cq.expect(1, Status::Success);
    }
    assert_eq!(link.worlds[0].engine.counters().probes, 0);
    assert_eq!(link.network.sent[1], 3);
}

/// A SEND lies behind one that waits for memory, and finds no receive request when the memory is
/// there. The peer hears of it, whether an RNR NAK of an earlier packet or of that one was sent
/// before: it has gone back long ago.
#[test]
fn a_send_behind_absent_memory_is_refused() {
    for is_earlier in [true, false] {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
        let [mine, theirs] =
            [(0, 7), (1, 11)].map(|(end, seed)| paged(&mut link.worlds[end], 64, seed));
        let refused = |link: &Link| link.worlds[0].engine.counters().receiver_not_ready;
        let buffer = theirs.sge(0, 64);
        let send = Wr::send(1, &[mine.sge(0, 64)]);
        ends[0].qp.post_send(&send);
        if is_earlier {
            while refused(&link) == 0 {
                assert!(link.step());
            }
            ends[1].qp.post_recv(2, &[buffer]);
            link.settle();
            ends[0].cq.expect(1, Status::Success);
            ends[0].qp.post_send(&send);
        }
        ends[0].qp.post_send(&send);
        while !is_earlier && refused(&link) == 0 {
            assert!(link.step());
        }
        page_out(&[&theirs]);
        ends[1].qp.post_recv(2, &[buffer]);
        while refused(&link) == 1 {
            assert!(link.step());
        }
        ends[1].qp.post_recv(2, &[buffer]);
        link.settle();
        ends[0].cq.expect(1, Status::Success);
        ends[0].cq.expect(1, Status::Success);
        let counters = link.worlds[0].engine.counters();
        assert_eq!((counters.probes, counters.unanswered), (0, 0));
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error_and_not_a_wait() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (paged(&mut w, 64, 7), paged(&mut w, 64, 11));
    page_out(&[&theirs]);
    theirs.region.broken.set(true);
    a.qp.post_send(&Wr::write(1, &[mine.sge(0, 64)], theirs.remote(0)));
    w.settle(1_000_000_000);
    a.cq.expect(1, Status::RemoteAccess);
    b.cq.expect_none();
}

/// A datagram queue pair, a second one and an address handle that reaches it.
fn datagrams(w: &mut World) -> (End, End, u32) {
    let spec = QpSpec::default();
    let (a, b) = (w.ud(&spec, QKEY), w.ud(&spec, QKEY));
    let ah = w.ah(1, path(PathKind::Local(Vport::default())));
    (a, b, ah)
}

#[test]
fn a_datagram_waits_for_memory_of_its_sender() {
    let mut w = World::new();
    let (a, b, ah) = datagrams(&mut w);
    let (mine, theirs) = (paged(&mut w, 256, 7), w.mr(512));
    page_out(&[&mine]);
    b.qp.post_recv(2, &[theirs.sge(0, 512)]);
    a.qp.post_send(&Wr::datagram(
        1,
        &[mine.sge(0, 256)],
        (ah, b.qp.id.number),
        QKEY,
    ));
    w.settle(1_000_000_000);
    a.cq.expect(1, Status::Success);
    b.cq.expect(2, Status::Success);
    assert_eq!(theirs.bytes(40, 256), mine.bytes(0, 256));
}

/// The memory of one receiver keeps no sender from its other receivers.
#[test]
fn a_datagram_is_dropped_where_the_memory_of_its_receiver_is_absent() {
    let mut w = World::new();
    let (a, b, ah) = datagrams(&mut w);
    let (mine, theirs) = (w.mr(64), paged(&mut w, 512, 11));
    mine.fill(7);
    // The first datagram asks for its header, and for all of it.
    theirs.region.absent.set(2);
    b.qp.post_recv(2, &[theirs.sge(0, 40), theirs.sge(40, 64)]);
    let wr = Wr::datagram(1, &[mine.sge(0, 64)], (ah, b.qp.id.number), QKEY);
    for dropped in [1, 1] {
        b.cq.expect_none();
        a.qp.post_send(&wr);
        w.run();
        a.cq.expect(1, Status::Success);
        assert_eq!(w.engine.counters().dropped, dropped);
    }
    b.cq.expect(2, Status::Success);
    assert_eq!(theirs.bytes(40, 64), mine.bytes(0, 64));
}

/// All of its members have a datagram that waited for memory of its sender, once; though one had to
/// drop it.
#[test]
fn a_datagram_to_a_group_waits_for_memory_of_its_sender() {
    const MULTICAST: u32 = 0xff_ffff;

    let mut w = World::new();
    let (a, b, _) = datagrams(&mut w);
    let mut group = path(PathKind::Local(Vport::default()));
    group.dgid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
    let ah = w.ah(1, group);
    let (mine, theirs) = (paged(&mut w, 64, 7), w.mr(512));
    let late = w.ud(&QpSpec::default(), QKEY);
    for end in [&late, &a, &b] {
        let number = end.qp.id.number;
        add(&mut w.engine, Group::new(), |engine, memory| {
            engine.attach_mcast(number, &group.dgid, memory)
        })
        .unwrap();
    }
    for (slot, end) in [(0, &a), (1, &b)] {
        end.qp.post_recv(2, &[theirs.sge(slot * 256, 256)]);
    }
    page_out(&[&mine]);
    a.qp.post_send(&Wr::datagram(1, &[mine.sge(0, 64)], (ah, MULTICAST), QKEY));
    w.settle(1_000_000_000);
    late.cq.expect_none();
    a.cq.expect(2, Status::Success);
    a.cq.expect(1, Status::Success);
    b.cq.expect(2, Status::Success);
    assert_eq!(theirs.bytes(40, 64), mine.bytes(0, 64));
    assert_eq!(theirs.bytes(296, 64), mine.bytes(0, 64));
}

/// A host tells what could not be had to those who have asked before. A queue pair that begins anew
/// has not.
#[test]
fn each_queue_pair_asks_by_its_name_until_it_is_reset() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (paged(&mut w, 64, 7), paged(&mut w, 64, 11));
    let mut askers = Vec::new();
    for [from, to] in [[&a, &b], [&b, &a], [&a, &b]] {
        page_out(&[&theirs]);
        from.qp
            .post_send(&Wr::write(1, &[mine.sge(0, 64)], theirs.remote(0)));
        w.settle(1_000_000_000);
        from.cq.expect(1, Status::Success);
        let asked = theirs.region.askers.take();
        assert_eq!(asked, [asked[0]; ASKS as usize]);
        assert!(!askers.contains(&asked[0]));
        askers.push(asked[0]);
        for end in [from, to] {
            w.to(&end.qp, State::Reset);
            end.qp.rewind();
        }
        w.connect(&a.qp, &b.qp);
        w.connect(&b.qp, &a.qp);
    }
}

/// No one sends a packet of an unreliable service again: the memory is there for the next message.
#[test]
fn a_packet_without_acknowledgement_is_dropped_and_has_its_memory_brought_in() {
    let mut link = Link::new(1, Faults::default(), false);
    let ends = link.pair_uc();
    let [mine, theirs] =
        [(0, 7), (1, 11)].map(|(end, seed)| paged(&mut link.worlds[end], 64, seed));
    ends[1].qp.post_recv(2, &[theirs.sge(0, 64)]);
    page_out(&[&theirs]);
    for message in 0..=ASKS {
        ends[1].cq.expect_none();
        ends[0].qp.post_send(&Wr::send(3, &[mine.sge(0, 64)]));
        link.settle();
        ends[0].cq.expect(3, Status::Success);
        let dropped = link.worlds[1].engine.counters().dropped;
        assert_eq!(dropped, u64::from((message + 1).min(ASKS)));
    }
    ends[1].cq.expect(2, Status::Success);
    assert_eq!(theirs.bytes(0, 64), mine.bytes(0, 64));
}
