// SPDX-License-Identifier: GPL-2.0

//! Tests of what cannot be seen from outside.

use std::collections::{
    BTreeMap,
    BTreeSet,
    VecDeque, //
};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use crate::{
    base::{
        list::{
            Link,
            Links,
            List, //
        },
        psn,
        table::{
            Leaf,
            Middle, //
        },
        timer::{
            TimerSlot,
            TimerSlots,
            Timers, //
        },
    },
    sim::{
        cases,
        network::{
            Faults,
            Link as Wire, //
        },
        End,
        QpSpec,
        SentPacket,
        Sim,
        World,
        Wr,
        SQ_PSN, //
    },
    *,
};

/// Objects are made on the stack of a kernel thread, which is small, and queue pairs are many.
#[test]
fn objects_are_small() {
    assert!(size_of::<Qp<Sim>>() <= 2048);
    assert!(size_of::<Engine<Sim>>() <= 4096);
    assert!(size_of::<Cq<Sim>>() <= 128);
    assert!(size_of::<Mr<Sim>>() <= 128);
    assert!(size_of::<Srq<Sim>>() <= 128);
    assert!(size_of::<Leaf<std::boxed::Box<Qp<Sim>>, queue_pair::qp::QpLink>>() <= 4096);
    assert!(size_of::<Middle<usize>>() <= 1024);
}

/// Moves all indices of a pair of queues as if it had worked for long.
fn age(w: &mut World, end: &End, index: u32) {
    let qp = w.engine.qps_mut().get_mut(end.qp.id.number).unwrap();
    qp.sq.set_indices(index);
    qp.rq.set_indices(index);
    end.qp.sq_producer.set(index);
    end.qp.rq_producer.set(index);
    end.qp.queue.set_word(end.qp.ctrl as usize, index);
    end.qp.queue.set_word(end.qp.ctrl as usize + 64, index);
    w.engine.cqs_mut().set_indices(end.cq.cqn, index);
    end.cq.set_next(index);
}

#[test]
fn indices_wrap() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    age(&mut w, &a, u32::MAX - 20);
    age(&mut w, &b, u32::MAX - 20);
    for i in 0..100u32 {
        b.qp.post_recv(i.into(), &[mr.sge(0, 8)]);
        b.qp.post_recv(i.into(), &[mr.sge(0, 8)]);
        for _ in 0..2 {
            a.qp.post_send(&Wr::send(i.into(), &[mr.sge(8, 8)]));
        }
        w.run();
        for end in [&a, &b] {
            for part in 1..=2 {
                let wc = end.cq.expect(i.into(), Status::Success);
                let done = (u32::MAX - 20).wrapping_add(2 * i + part);
                assert_eq!(wc.queue_index, done);
            }
            end.cq.expect_none();
        }
    }
    // So do those of a shared receive queue.
    let srq = w.srq(1, 4, 1);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    let (c, d) = w.pair_with(&spec);
    w.engine.srqs_mut().set_indices(srq.number, u32::MAX - 5);
    srq.set_producer(u32::MAX - 5);
    for i in 0..20 {
        while srq.post(i, &[mr.sge(0, 8)]) {}
        c.qp.post_send(&Wr::send(i, &[mr.sge(8, 8)]));
        w.run();
        c.cq.expect(i, Status::Success);
        assert_eq!(d.cq.drain().len(), 1);
        assert_eq!(srq.consumer(), (u32::MAX - 4).wrapping_add(i as u32));
    }
    // A jump is seen across the wrap, too.
    age(&mut w, &a, u32::MAX - 2);
    a.qp.queue.set_word(a.qp.ctrl as usize, 14);
    a.qp.ring();
    w.run();
    assert_eq!(w.query(&a.qp).state, State::Err);
    assert_eq!(w.engine.counters().producer_jumps, 1);
}

/// A datagram to a group walks a list of groups. However addresses are chosen, it is not long, and
/// in another engine those of one list stand in many.
#[test]
fn lists_of_groups_are_short() {
    let mut w = World::new();
    let end = w.ud(&QpSpec::default(), 7);
    let gid = |number: u32| {
        let mut gid = [0xff; 16];
        gid[12..].copy_from_slice(&number.to_be_bytes());
        gid
    };
    let attach = |w: &mut World, number| {
        sim::add(&mut w.engine, Group::new(), |engine, memory| {
            engine.attach_mcast(end.qp.id.number, &gid(number), memory)
        })
        .map(|_| ())
    };
    let list = |w: &World, number| w.engine.groups().list(&gid(number));
    let (in_one, others): (Vec<u32>, Vec<u32>) = (0..30_000).partition(|&n| list(&w, n) == 5);
    assert!(in_one.len() > 300);
    for (count, &number) in in_one.iter().enumerate() {
        let attached = attach(&mut w, number);
        assert_eq!(attached.is_ok(), count < 256, "{count}");
        if let Err(error) = attached {
            assert_eq!(error, Error::Full);
        }
    }
    for &number in others.iter().take(7000) {
        attach(&mut w, number).unwrap();
    }
    assert_eq!(w.engine.objects().groups, 7256);
    let other = World::with(Config {
        random: 77,
        ..Config::default()
    });
    let lists: BTreeSet<usize> = in_one.iter().map(|&n| list(&other, n)).collect();
    assert!(lists.len() > 50);
}

/// Half of the sequence numbers, and how far apart those of a test are.
const HALF: u32 = 1 << 23;
const STEP: u32 = 1 << 8;

/// The same packet, with the number that is so far behind the first one.
fn numbered(packet: &SentPacket, behind: u32) -> SentPacket {
    let mut packet = packet.clone();
    let number = psn::advance(SQ_PSN, behind).to_be_bytes();
    packet.transport[9..12].copy_from_slice(&number[1..]);
    packet.seal();
    packet
}

/// The responder expects that number next.
fn expect(link: &mut Wire, end: &End, behind: u32) {
    let engine = &mut link.worlds[1].engine;
    let qp = engine.qps_mut().get_mut(end.qp.id.number).unwrap();
    qp.rq.psn = psn::advance(SQ_PSN, behind);
}

/// When numbers come round, a resource that was kept to answer a read of long ago is not taken for
/// a new request's.
#[test]
fn old_answers_are_forgotten_before_numbers_come_round() {
    let mut link = Wire::new(1, Faults::default(), false);
    let [a, b] = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let [mine, theirs] = [0, 1].map(|i| link.worlds[i].mr(24 << 10));
    let whole = [mine.sge(0, 24 << 10)];
    a.qp.post_send(&Wr::read(1, &whole, theirs.remote(0)));
    let read = link.sent(0);
    link.give(1, &read);
    assert_eq!(link.sent(1).len(), 24);
    a.qp.post_send(&Wr::write(2, &[], theirs.remote(0)));
    let write = link.sent(0).remove(0);
    let fetch_add = Wr::fetch_add(3, mine.sge(0, 8), theirs.remote(0), 1);
    a.qp.post_send(&fetch_add);
    let fetch_add = link.sent(0).remove(0);

    // One of each 256 packets comes: that whose lower bits are all set. As long as the read's
    // numbers may be in use, it is answered again.
    let first = psn::distance(SQ_PSN, STEP - 1);
    for behind in (first..1 << 24).step_by(STEP as usize) {
        expect(&mut link, &b, behind);
        link.give(1, &[numbered(&write, behind)]);
        link.sent(1);
        if (HALF - 2 * STEP..HALF - STEP).contains(&behind) {
            link.give(1, &read);
            assert_eq!(link.sent(1).len(), 24);
        }
    }
    expect(&mut link, &b, 12);
    let packet = [numbered(&fetch_add, 12)];
    link.give(1, &packet);
    let lost = link.sent(1);
    assert_eq!(lost.len(), 1);
    link.give(1, &packet);
    assert_eq!(link.sent(1), lost);
}

/// When numbers come round, a write of long ago is not taken for one that is still to come: a peer
/// that sends reads alone gets no acknowledgement beside their responses.
#[test]
fn an_old_write_is_not_acknowledged_when_numbers_come_round() {
    let mut link = Wire::new(1, Faults::default(), false);
    let [a, b] = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let [mine, theirs] = [0, 1].map(|i| link.worlds[i].mr(64));
    a.qp.post_send(&Wr::write(1, &[], theirs.remote(0)));
    let write = link.sent(0);
    link.give(1, &write);
    assert_eq!(link.sent(1).len(), 1);
    a.qp.post_send(&Wr::read(2, &[mine.sge(0, 8)], theirs.remote(0)));
    let read = link.sent(0).remove(0);

    // As above, one of each 256 packets comes.
    let first = psn::distance(SQ_PSN, STEP - 1);
    for behind in (first..HALF + 2 * STEP).step_by(STEP as usize) {
        expect(&mut link, &b, behind);
        link.give(1, &[numbered(&read, behind)]);
        assert_eq!(link.sent(1).len(), 1);
    }
    // The first of two reads is lost, and comes again.
    let lost = HALF + 2 * STEP;
    expect(&mut link, &b, lost);
    link.give(1, &[numbered(&read, lost + 1)]);
    assert_eq!(link.sent(1).len(), 1);
    link.give(1, &[numbered(&read, lost)]);
    let responses = link.sent(1);
    let opcodes: Vec<u8> = responses.iter().map(|sent| sent.transport[0]).collect();
    assert_eq!(opcodes, [packet::opcode::rc::READ_RESPONSE_ONLY; 2]);
}

impl TimerSlots for Vec<TimerSlot> {
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot> {
        self.get_mut(index as usize)
    }
}

/// Slots that count how often they are looked at.
struct Counted(Vec<TimerSlot>, u32);

impl TimerSlots for Counted {
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot> {
        self.1 += 1;
        self.0.get_mut(index as usize)
    }
}

/// With 65536 timers, in whatever order they were set.
#[test]
fn steps_of_timers_are_few() {
    const TIMERS: u32 = 1 << 16;
    let orders: [fn(u32) -> u64; 3] = [
        |index| index.into(),
        |index| (TIMERS - index).into(),
        |index| index.wrapping_mul(0x9e37_79b1).wrapping_shr(8).into(),
    ];
    for order in orders {
        let mut slots = Counted(vec![TimerSlot::default(); TIMERS as usize], 0);
        let mut timers = [Timers::new(), Timers::new()];
        let mut most = 0;
        let mut step = |slots: &mut Counted| {
            most = most.max(slots.1);
            slots.1 = 0;
        };
        for index in 0..TIMERS {
            timers[index as usize % 2].set(&mut slots, index, order(index));
            step(&mut slots);
        }
        let [timers, other] = &mut timers;
        timers.take_over(&mut slots, other);
        step(&mut slots);
        for index in (0..TIMERS).step_by(3) {
            timers.clear(&mut slots, index);
            step(&mut slots);
        }
        let mut before = 0;
        while let Some(index) = timers.pop_due(&mut slots, u64::MAX) {
            assert!(order(index) >= before);
            before = order(index);
            step(&mut slots);
        }
        assert!(most <= 300, "{most}");
    }
}

impl Links for Vec<Link> {
    fn link(&mut self, index: u32) -> Option<&mut Link> {
        self.get_mut(index as usize)
    }
}

#[derive(Clone, Debug)]
enum TimerStep {
    Set(u32, u64),
    Clear(u32),
    Pass(u64),
    TakeOver(usize),
}

#[derive(Clone, Debug)]
enum ListStep {
    Push(u32),
    Pop,
    ToFront(u32),
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn timers_fire_in_order(
        steps in prop::collection::vec(
            prop_oneof![
                3 => (0..50u32, 0..100u64).prop_map(|(i, d)| TimerStep::Set(i, d)),
                1 => (0..50u32).prop_map(TimerStep::Clear),
                1 => (0..30u64).prop_map(TimerStep::Pass),
                1 => (0..2usize).prop_map(TimerStep::TakeOver),
            ],
            0..300,
        )
    ) {
        let mut slots = vec![TimerSlot::default(); 50];
        // Two heaps in the same slots: which one each timer is in, and its deadline.
        let mut heaps = [Timers::new(), Timers::new()];
        let mut model = BTreeMap::<u32, (usize, u64)>::new();
        let mut now = 0;
        for step in steps {
            match step {
                TimerStep::Set(index, wait) => {
                    let heap = model.get(&index).map_or(index as usize % 2, |timer| timer.0);
                    heaps[heap].set(&mut slots, index, now + wait);
                    model.insert(index, (heap, now + wait));
                }
                TimerStep::Clear(index) => {
                    if let Some((heap, deadline)) = model.remove(&index) {
                        prop_assert_eq!(heaps[heap].deadline(&mut slots, index), Some(deadline));
                        heaps[heap].clear(&mut slots, index);
                    }
                    prop_assert_eq!(heaps[0].deadline(&mut slots, index), None);
                    heaps[0].clear(&mut slots, index);
                }
                TimerStep::Pass(time) => {
                    now += time;
                    for (number, heap) in heaps.iter_mut().enumerate() {
                        while let Some(index) = heap.pop_due(&mut slots, now) {
                            let timer = model.remove(&index);
                            prop_assert!(timer.is_some_and(|timer| timer.0 == number && timer.1 <= now));
                        }
                    }
                    prop_assert!(model.values().all(|timer| timer.1 > now));
                }
                TimerStep::TakeOver(heap) => {
                    let [first, second] = &mut heaps;
                    let (heap_taken, other) = if heap == 0 { (first, second) } else { (second, first) };
                    heap_taken.take_over(&mut slots, other);
                    model.values_mut().for_each(|timer| timer.0 = heap);
                }
            }
            for (number, heap) in heaps.iter().enumerate() {
                let timers = model.values().filter(|timer| timer.0 == number);
                prop_assert_eq!(heap.next(&mut slots), timers.map(|timer| timer.1).min());
            }
        }
    }

    #[test]
    fn lists_are_first_in_first_out(
        steps in prop::collection::vec(
            prop_oneof![
                3 => (0..20u32).prop_map(ListStep::Push),
                2 => Just(ListStep::Pop),
                1 => (0..20u32).prop_map(ListStep::ToFront),
            ],
            0..300,
        )
    ) {
        let mut links = vec![Link::default(); 20];
        let mut list = List::EMPTY;
        let mut model = VecDeque::new();
        for step in steps {
            match step {
                ListStep::Push(index) => {
                    list.push_back(&mut links, index);
                    if !model.contains(&index) {
                        model.push_back(index);
                    }
                }
                ListStep::Pop => {
                    prop_assert_eq!(list.pop_front(&mut links), model.pop_front());
                }
                ListStep::ToFront(index) => {
                    list.move_to_front(&mut links, index);
                    if let Some(place) = model.iter().position(|&there| there == index) {
                        model.remove(place);
                        model.push_front(index);
                    }
                }
            }
            prop_assert_eq!(list.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn packets_and_sequence_numbers_are_as_counted(length in any::<u32>(), shift in 8u32..=12, psn in 0u32..1 << 24) {
        let mtu = Mtu::try_from(shift - 7).unwrap();
        let naive = u64::from(length).div_ceil(1 << shift).max(1);
        prop_assert_eq!(u64::from(psn::packets(length, mtu)), naive);
        let next = psn::advance(psn, psn::packets(length, mtu));
        prop_assert_eq!(u64::from(next), (u64::from(psn) + naive) % (1 << 24));
    }

    #[test]
    fn rings_lie_in_their_buffers(
        offset in (0..100u32).prop_map(|n| n * 32),
        depth in prop_oneof![Just(0u32), (0..18u32).prop_map(|n| 1 << n), any::<u32>()],
        stride in prop_oneof![(0..14u32).prop_map(|n| 1 << n), any::<u32>()],
        entry in 0..2000usize,
        size in prop_oneof![0..1usize << 16, 0..1usize << 30],
        index in any::<u32>(),
    ) {
        let ring = RingLayout { offset, depth, stride };
        if ring.check(size, entry).is_ok() && depth != 0 {
            let slot = ring.slot(index) as usize;
            prop_assert!(slot >= offset as usize && slot + stride as usize <= size);
            prop_assert!(entry <= stride as usize);
            prop_assert_eq!(ring.slot(index), ring.slot(index.wrapping_add(depth)));
            prop_assert_eq!(ring.waiting(index, index.wrapping_add(depth)), Some(depth));
            prop_assert_eq!(ring.waiting(index, index.wrapping_add(depth).wrapping_add(1)), None);
            prop_assert_eq!(ring.waiting(index, index.wrapping_sub(1)), None);
        }
    }
}
