// SPDX-License-Identifier: GPL-2.0

//! Events: of completions and of objects, by vectors, and with full queues.

use std::time::{Duration, Instant};

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use crate::data::{pair, pair_between, program, Program};
use crate::driver::queues::*;
use crate::driver::*;

/// Sends a message of a byte to the other queue pair.
fn message(guest: &mut Guest, p: &Program, a: &mut Qp, b: &mut Qp) {
    b.receive(1, 0, 1, p.key);
    guest.send(a, &Wqe::new(2, wr_opcode::SEND).local(1, 1, p.key));
}

#[test]
fn completions_raise_their_vector() {
    let (_worker, [mut guest]) = guests();
    let mut events = guest.event_queue(3, 4).unwrap();
    let mut p = program(&mut guest);
    p.cq = guest.cq(512, 3);
    let (mut a, mut b) = pair(&mut guest, &p);
    message(&mut guest, &p, &mut a, &mut b);
    p.cq.all(2);
    assert!(!guest.raised(3) && events.next().is_none(), "not armed");
    // More laps than the queue has entries.
    for round in 1..20 {
        p.cq.arm(round);
        message(&mut guest, &p, &mut a, &mut b);
        let event = eventually("an event", || events.next());
        assert_eq!(event, (event::COMPLETION, p.cq.number, 0));
        events.consumed();
        eventually("a vector", || guest.raised(3).then_some(()));
        p.cq.all(2);
    }
    assert!(events.next().is_none());
    assert!((0..3).all(|vector| !guest.raised(vector)));
}

#[test]
fn a_moderated_event_comes_by_itself() {
    let (_worker, [mut guest]) = guests();
    let mut events = guest.event_queue(3, 4).unwrap();
    let mut p = program(&mut guest);
    p.cq = guest.cq(512, 3);
    let (mut a, mut b) = pair(&mut guest, &p);
    let moderate = |cqn: u32, count: u16, period: u16| ModerateCq {
        cqn: cqn.into(),
        count: count.into(),
        period: period.into(),
    };
    let number = p.cq.number;
    let unknown = guest.command(opcode::MODERATE_CQ, &moderate(number + 1, 0, 0));
    assert_eq!(unknown, Err(22), "EINVAL");
    guest
        .command(opcode::MODERATE_CQ, &moderate(number, 1000, 5000))
        .unwrap();
    p.cq.arm(1);
    let begin = Instant::now();
    message(&mut guest, &p, &mut a, &mut b);
    p.cq.all(2);
    let event = eventually("an event", || events.next());
    assert_eq!(event, (event::COMPLETION, number, 0));
    assert!(begin.elapsed() >= Duration::from_millis(5));
}

#[test]
fn a_vector_is_raised_while_its_guest_does_nothing() {
    let (_worker, [mut one, mut two]) = guests();
    let mut events = two.event_queue(2, 64).unwrap();
    let (p, mut q) = (program(&mut one), program(&mut two));
    q.cq = two.cq(512, 2);
    let (mut a, mut b) = pair_between((&mut one, &p), (&mut two, &q));
    b.receive(1, 0, 8, q.key);
    q.cq.arm(1);
    one.send(&mut a, &Wqe::new(2, wr_opcode::SEND).local(1, 8, p.key));
    eventually("a vector", || two.raised(2).then_some(()));
    assert_eq!(events.next(), Some((event::COMPLETION, q.cq.number, 0)));
}

#[test]
fn events_that_find_the_queue_full_come_later() {
    let (_worker, [mut guest]) = guests();
    let mut events = guest.event_queue(1, 1).unwrap();
    let p = program(&mut guest);
    let mut pairs: Vec<_> = (0..3)
        .map(|_| {
            let mut p = Program {
                cq: guest.cq(512, 1),
                area: p.area.clone(),
                context: p.context.clone(),
                ..p
            };
            let (mut a, mut b) = pair(&mut guest, &p);
            p.cq.arm(1);
            message(&mut guest, &p, &mut a, &mut b);
            p.cq.all(2);
            (p, a, b)
        })
        .collect();
    // One has the only entry; the others wait, each for its turn. The driver tells only by its
    // memory what it has read.
    let mut found = Vec::new();
    for _ in 0..3 {
        let event = eventually("an event", || events.next());
        found.push(event.1);
        std::thread::sleep(Duration::from_millis(5));
        assert!(events.next().is_none(), "it was not consumed");
        events.consumed();
    }
    found.sort_unstable();
    let mut expected: Vec<_> = pairs.iter().map(|(p, ..)| p.cq.number).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    // Events that wait are forgotten with their object.
    for (p, a, b) in &mut pairs {
        p.cq.arm(2);
        message(&mut guest, p, a, b);
        p.cq.all(2);
    }
    for (p, a, b) in &pairs {
        for qp in [a, b] {
            guest.named(opcode::DESTROY_QP, qp.number).unwrap();
        }
        guest.named(opcode::DESTROY_CQ, p.cq.number).unwrap();
    }
    events.next().unwrap();
    events.consumed();
    std::thread::sleep(Duration::from_millis(20));
    guest.info();
    assert!(events.next().is_none());
}

#[test]
fn a_consumer_that_lies_gets_nothing() {
    let (_worker, [mut guest]) = guests();
    let events = guest.event_queue(1, 2).unwrap();
    let mut p = program(&mut guest);
    p.cq = guest.cq(512, 1);
    let (mut a, mut b) = pair(&mut guest, &p);
    for (round, lie) in [u32::MAX - 5, 77, 1 << 31].into_iter().enumerate() {
        events.area.store(64, lie);
        p.cq.arm(round as u32 + 1);
        message(&mut guest, &p, &mut a, &mut b);
        p.cq.all(2);
    }
    assert_eq!(guest.memory.damage(), 0);
    assert!(!guest.raised(1));
}

#[test]
fn events_of_objects_go_to_vector_0() {
    let (_worker, [mut guest]) = guests();
    let mut events = guest.event_queue(0, 16).unwrap();
    let p = program(&mut guest);
    let (mut a, mut b) = pair(&mut guest, &p);
    // SQD with a notification.
    guest
        .modify(a.number, mask(&[0, 2]), |m| {
            m.attributes.state = 4.into();
            m.attributes.en_sqd_async_notify = 1.into();
        })
        .unwrap();
    let drained = (event::QP, a.number, 5);
    assert_eq!(eventually("SQ_DRAINED", || events.next()), drained);
    eventually("vector 0", || guest.raised(0).then_some(()));
    guest
        .modify(a.number, 1, |m| m.attributes.state = 3.into())
        .unwrap();
    // A completion queue that overruns.
    let mut small = Program {
        cq: guest.cq(1, NONE),
        area: p.area.clone(),
        context: p.context.clone(),
        ..p
    };
    let (mut c, mut d) = pair(&mut guest, &small);
    message(&mut guest, &small, &mut c, &mut d);
    let mut kinds = Vec::new();
    eventually("CQ_ERR", || {
        kinds.extend(events.next());
        kinds
            .contains(&(event::CQ, small.cq.number, 0))
            .then_some(())
    });
    events.consumed();
    // The pair that is well goes on.
    let mut p = p;
    message(&mut guest, &p, &mut a, &mut b);
    p.cq.all(2);
    small.cq.poll();
}

#[test]
fn event_queues_come_and_go() {
    let (_worker, [mut guest]) = guests();
    guest.event_queue(0, 65536).unwrap();
    assert_eq!(guest.event_queue(0, 16).err(), Some(16), "EBUSY");
    for (vector, depth) in [(32, 16), (NONE, 16), (1, 0), (1, 3), (1, 131072)] {
        assert_eq!(guest.event_queue(vector, depth).err(), Some(22));
    }
    assert_eq!(guest.named(opcode::DESTROY_EQ, 1), Err(22));
    assert_eq!(guest.named(opcode::DESTROY_EQ, 32), Err(22));
    guest.named(opcode::DESTROY_EQ, 0).unwrap();
    guest.event_queue(0, 16).unwrap();
}
