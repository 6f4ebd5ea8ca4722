// SPDX-License-Identifier: GPL-2.0

//! Sets of counters: what a queue pair that is bound to one does counts there, and nowhere else.

use ferrule_engine::{CountedAt, CounterSet, Counters, Error, Modify, State, Status, Vport};

use crate::sim::network::{Faults, Link};
use crate::sim::*;

/// A set for queue pairs of the first virtual port.
fn set(w: &mut World) -> CountedAt {
    let set = w
        .engine
        .add_counter_set(Box::new(CounterSet::new(Vport::default())));
    set.map_err(|refused| refused.error).unwrap()
}

fn counts(w: &World, set: CountedAt) -> Counters {
    let mut sum = Counters::default();
    w.engine.add_counters_of_set(set, &mut sum).unwrap();
    sum
}

fn unbound(w: &World) -> Counters {
    let mut sum = Counters::default();
    w.engine.add_unbound_counters(&mut sum);
    sum
}

fn bind(w: &mut World, qp: &TestQp, set: Option<CountedAt>) {
    w.engine.bind_counters(qp.id.number, set).unwrap();
}

#[test]
fn each_end_of_a_local_message_counts_in_its_own_set() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (c, d) = w.pair();
    let mr = w.mr(8192);
    let [one, two] = [set(&mut w), set(&mut w)];
    bind(&mut w, &a.qp, Some(one));
    bind(&mut w, &b.qp, Some(two));
    for (from, to) in [(&a, &b), (&c, &d)] {
        to.qp.post_recv(1, &[mr.sge(0, 4096)]);
        from.qp.post_send(&Wr::send(2, &[mr.sge(4096, 3000)]));
        w.run();
        from.cq.expect(2, Status::Success);
        to.cq.expect(1, Status::Success);
    }
    let (sent, taken, rest) = (counts(&w, one), counts(&w, two), unbound(&w));
    assert_eq!((sent.requests, sent.messages), (1, 0));
    assert_eq!((taken.requests, taken.messages), (0, 1));
    assert_eq!((taken.bytes, taken.local_packets), (3000, 3));
    assert_eq!((rest.requests, rest.messages, rest.bytes), (1, 1, 3000));
    // All together are what the port has seen.
    let all = w.engine.counters();
    assert_eq!((all.requests, all.messages, all.bytes), (2, 2, 6000));
    assert_eq!(all.completions, 4);
}

#[test]
fn packets_count_with_the_queue_pair_that_they_are_of() {
    let mut link = Link::new(1, Faults::default(), false);
    let [from, to] = link.worlds.each_mut().map(|world| world.mr(8192));
    let [a, b] = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let sets = [&a, &b].map(|end| end.qp.clone());
    let mut number = 0;
    let sets = sets.map(|qp| {
        let world = &mut link.worlds[number];
        number += 1;
        let set = set(world);
        bind(world, &qp, Some(set));
        set
    });
    b.qp.post_recv(9, &[to.sge(0, 8192)]);
    a.qp.post_send(&Wr::send(1, &[from.sge(0, 2049)]));
    link.settle();
    a.cq.expect(1, Status::Success);
    for (world, set) in link.worlds.iter().zip(sets) {
        let (own, all, rest) = (counts(world, set), world.engine.counters(), unbound(world));
        for (own, all, rest) in [
            (own.packets_sent, all.packets_sent, rest.packets_sent),
            (own.bytes_sent, all.bytes_sent, rest.bytes_sent),
            (
                own.packets_received,
                all.packets_received,
                rest.packets_received,
            ),
            (own.bytes_received, all.bytes_received, rest.bytes_received),
        ] {
            assert!(own > 0);
            assert_eq!((own, 0), (all, rest));
        }
    }
    // A packet for nobody counts at the port.
    let world = &mut link.worlds[0];
    let before = counts(world, sets[0]);
    a.qp.post_send(&Wr::send(2, &[from.sge(0, 10)]));
    world.run();
    let mut sent = world.host.sent.pop().unwrap();
    sent.transport[5..8].copy_from_slice(&[0, 0x77, 0x77]);
    sent.seal();
    world.engine.receive(&mut world.host, &sent.rx_packet());
    let rest = unbound(world);
    assert_eq!((rest.packets_received, rest.unknown_queue_pairs), (1, 1));
    assert_eq!(
        counts(world, sets[0]).packets_received,
        before.packets_received
    );
}

#[test]
fn a_datagram_counts_with_its_receiver() {
    let mut w = World::new();
    let [near, far] = [(); 2].map(|()| w.ud(&QpSpec::default(), 7));
    let mr = w.mr(4096);
    let one = set(&mut w);
    bind(&mut w, &far.qp, Some(one));
    let path = path(ferrule_engine::PathKind::Local(Vport::default()));
    let ah = w.ah(1, path);
    for (wr_id, qkey) in [(1, 7), (2, 8)] {
        far.qp.post_recv(wr_id, &[mr.sge(0, 200)]);
        let wr = Wr::datagram(wr_id, &[mr.sge(1000, 50)], (ah, far.qp.id.number), qkey);
        near.qp.post_send(&wr);
        w.run();
    }
    let own = counts(&w, one);
    assert_eq!((own.messages, own.dropped, own.qkey_violations), (1, 1, 1));
    assert_eq!(unbound(&w).dropped, 0);
}

#[test]
fn a_set_that_goes_leaves_its_counts_in_the_sum() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    let one = set(&mut w);
    bind(&mut w, &a.qp, Some(one));
    bind(&mut w, &b.qp, Some(one));
    a.qp.post_send(&Wr::write(1, &[mr.sge(0, 8)], mr.remote(8)));
    w.run();
    assert_eq!(w.engine.remove_counter_set(one).err(), Some(Error::Busy));
    bind(&mut w, &a.qp, None);
    assert_eq!(w.engine.remove_counter_set(one).err(), Some(Error::Busy));
    // A queue pair that goes is bound to nothing any more.
    w.engine.remove_qp(b.qp.id.number).unwrap();
    let before = w.engine.counters();
    w.engine.remove_counter_set(one).unwrap();
    assert_eq!(w.engine.counters(), before);
    assert_eq!(before.requests, 1);
    assert_eq!(unbound(&w).requests, 0);
    let gone = w.engine.remove_counter_set(one).err();
    assert_eq!(gone, Some(Error::NotFound));
    let mut sum = Counters::default();
    let told = w.engine.add_counters_of_set(one, &mut sum);
    assert_eq!(told, Err(Error::NotFound));
    // It counts at its port again.
    let modify = Modify {
        state: Some(State::Err),
        ..Modify::default()
    };
    w.modify(&a.qp, &modify).unwrap();
    a.qp.post_send(&Wr::send(2, &[]));
    w.run();
    assert_eq!(unbound(&w).flushed, 1);
}

#[test]
fn sets_have_numbers_and_an_end() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    let sets: Vec<_> = (0..CountedAt::SETS).map(|_| set(&mut w)).collect();
    for (set, number) in sets.iter().zip(1..) {
        assert_eq!(set.number(), number);
        assert_eq!(CountedAt::from_number(number), Some(*set));
    }
    let more = Box::new(CounterSet::new(Vport::default()));
    let refused = w.engine.add_counter_set(more);
    assert_eq!(
        refused.err().map(|refused| refused.error),
        Some(Error::Full)
    );
    for number in [0, u32::from(CountedAt::SETS) + 1, 0x1_0001, u32::MAX] {
        assert_eq!(CountedAt::from_number(number), None);
    }
    // One in the middle goes, and the next one has its number.
    w.engine.remove_counter_set(sets[77]).unwrap();
    let bound = w.engine.bind_counters(a.qp.id.number, Some(sets[77]));
    assert_eq!(bound, Err(Error::NotFound));
    assert_eq!(set(&mut w), sets[77]);
    let bound = w.engine.bind_counters(0x77_7777, Some(sets[0]));
    assert_eq!(bound, Err(Error::NotFound));
    // Those of another virtual port are not for it.
    w.engine.remove_counter_set(sets[5]).unwrap();
    let other = CounterSet::new(Vport::from_number(1).unwrap());
    let other = w.engine.add_counter_set(Box::new(other));
    let other = other.map_err(|refused| refused.error).unwrap();
    let bound = w.engine.bind_counters(a.qp.id.number, Some(other));
    assert_eq!(bound, Err(Error::NotFound));
}
