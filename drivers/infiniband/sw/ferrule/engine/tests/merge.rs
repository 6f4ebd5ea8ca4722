// SPDX-License-Identifier: GPL-2.0

//! Two engines of a device become one.

mod blocks;

use ferrule_engine::{
    Block, Budget, CounterSet, Error, Group, MwType, Objects, PathKind, State, Status, TableKind,
    Vport,
};
use proptest::prelude::*;

use crate::sim::*;

/// The worlds of two engines that share the numbers of a device.
fn worlds() -> [World; 2] {
    [World::new(), World::of_blocks(4)]
}

/// Posts an RDMA WRITE without bytes, and returns whether the program has to kick.
fn write(qp: &TestQp, wr_id: u64) -> bool {
    qp.put_send(&Wr::write(wr_id, &[], (0, 0)));
    qp.ring()
}

/// Each program has turns for itself, wherever it began.
#[test]
fn programs_of_engines_that_became_one_have_their_turns_by_turns() {
    let [mut w, mut other] = [4, 8].map(World::of_blocks);
    let busy: Vec<_> = (0..20).map(|_| w.pair().0.qp).collect();
    let one = other.pair().0;
    w.merge(&mut other).unwrap();
    for qp in busy.iter().chain([&one.qp]) {
        for _ in 0..16 {
            write(qp, 1);
        }
        w.engine.ring_qp(qp.id.number);
    }
    let some = Budget {
        requests: 64,
        bytes: 1 << 20,
    };
    let outcome = w.engine.run_for(&mut w.host, some, other.context.id);
    assert!(outcome.more && !outcome.first);
    for _ in 0..16 {
        one.cq.expect(1, Status::Success);
    }
}

#[test]
fn all_objects_go_over_with_their_numbers() {
    let [mut w, mut other] = worlds();
    let [ours, theirs] = [&mut w, &mut other].map(|w| {
        let (a, b) = w.pair();
        let mr = w.mr(64);
        w.pd();
        w.mw(1, MwType::Type1);
        w.srq(1, 4, 1);
        w.ah(1, path(PathKind::Remote));
        (a, b, mr)
    });
    let before = w.engine.objects();
    let moved = w.merge(&mut other).unwrap();
    assert_eq!(other.engine.objects(), Objects::default());
    let after = w.engine.objects();
    assert_eq!(after.user_contexts, 2 * before.user_contexts);
    assert_eq!(after.protection_domains, 2 * before.protection_domains);
    assert_eq!(after.regions, 2 * before.regions);
    assert_eq!(after.windows, 2 * before.windows);
    assert_eq!(after.completion_queues, 2 * before.completion_queues);
    assert_eq!(
        after.shared_receive_queues,
        2 * before.shared_receive_queues
    );
    assert_eq!(after.queue_pairs, 2 * before.queue_pairs);
    assert_eq!(after.address_handles, 2 * before.address_handles);
    let kinds = TableKind::ALL.into_iter();
    let kinds = kinds.filter(|kind| *kind != TableKind::Groups);
    let number = 4;
    let all: Vec<_> = kinds.map(|kind| Block { kind, number }).collect();
    assert_eq!(moved, all);
    // Numbers tell their blocks.
    assert_eq!(Block::of_qp(theirs.0.qp.id.number), all[5]);
    assert_eq!(Block::of_cq(theirs.0.cq.cqn), all[4]);
    assert_eq!(Block::of_key(theirs.2.key), all[2]);
    assert_eq!(Block::of_context(other.context.id), all[0]);
    assert_eq!(Block::of_qp(ours.0.qp.id.number).number, 0);

    // Objects of both work together from here on.
    for end in [&ours.0, &theirs.1] {
        w.to(&end.qp, State::Reset);
        w.modify(&end.qp, &init()).unwrap();
    }
    for (end, peer) in [(&ours.0, &theirs.1), (&theirs.1, &ours.0)] {
        w.modify(&end.qp, &rtr(peer.qp.id.number)).unwrap();
        w.modify(&end.qp, &rts()).unwrap();
    }
    theirs.1.qp.rewind();
    ours.0.qp.rewind();
    theirs.2.fill(3);
    theirs.1.qp.post_recv(1, &[theirs.2.sge(0, 8)]);
    ours.2.fill(9);
    ours.0.qp.post_send(&Wr::send(2, &[ours.2.sge(8, 8)]));
    w.run();
    theirs.1.cq.expect(1, Status::Success);
    ours.0.cq.expect(2, Status::Success);
    assert_eq!(theirs.2.bytes(0, 8), ours.2.bytes(8, 8));
    // And go away.
    for qp in [&ours.0.qp, &ours.1.qp, &theirs.0.qp, &theirs.1.qp] {
        drop(w.engine.remove_qp(qp.id.number).unwrap());
    }
    drop(w.engine.remove_mr(theirs.2.key).unwrap());
    drop(w.engine.remove_cq(theirs.1.cq.cqn).unwrap());
    assert!(w.engine.remove_context(other.context.id).is_ok());
    assert_eq!(
        w.engine.remove_context(other.context.id).err(),
        Some(Error::NotFound)
    );
}

/// Whatever waits in the other engine goes on: rung doorbells, queue pairs that want turns, timers
/// of each kind.
#[test]
fn work_goes_on() {
    let [mut w, mut other] = worlds();
    let (a, b) = w.pair();
    let (c, d) = other.pair();
    let memory = [w.mr(64), other.mr(64)];
    // Both wait for a receive request, and the other's completion queue with its event.
    for (w, sender, mr) in [(&mut w, &a, &memory[0]), (&mut other, &c, &memory[1])] {
        sender.qp.post_send(&Wr::send(1, &[mr.sge(0, 8)]));
        w.run();
        sender.cq.expect_none();
    }
    let (e, f) = other.pair();
    other.moderate_cq(&e.cq, 10, 100);
    e.cq.arm(0, false);
    assert!(!write(&e.qp, 2), "awake: no kick");
    other.run();
    e.cq.expect(2, Status::Success);
    assert!(other.events().is_empty());
    // More requests than a run takes, and a doorbell that nobody has seen.
    for wr_id in 0..12 {
        f.qp.put_send(&Wr::write(wr_id, &[], (0, 0)));
    }
    f.qp.ring();
    other.run_part(1 << 20);
    write(&d.qp, 3);

    w.merge(&mut other).unwrap();
    assert!(other.run().deadline.is_none());
    assert!(!other.engine.has_work());
    assert!(other.context.doorbells.0.sleeping.get());
    assert!(w.engine.has_work());
    let outcome = w.run();
    assert_eq!(f.cq.drain().len(), 12);
    d.cq.expect(3, Status::Success);
    assert!(outcome.deadline.is_some());
    for (receiver, mr) in [(&b, &memory[0]), (&d, &memory[1])] {
        receiver.qp.post_recv(4, &[mr.sge(8, 8)]);
    }
    w.settle(10 * MS);
    for (sender, receiver) in [(&a, &b), (&c, &d)] {
        sender.cq.expect(1, Status::Success);
        receiver.cq.expect(4, Status::Success);
    }
    assert_eq!(w.events().len(), 1, "the event of moderated completions");
}

/// A context of an engine that is awake kicks at first after that, and the engine that it is in now
/// is awake or not.
#[test]
fn contexts_kick_until_their_engine_says_otherwise() {
    for is_awake in [false, true] {
        let [mut w, mut other] = worlds();
        let ours = w.context.clone();
        let cq = other.cq(16);
        let contexts = [(); 3].map(|()| other.context());
        let qps = [0, 1, 2].map(|i| other.qp_in(Some(&contexts[i]), &QpSpec::default(), &cq, &cq));
        for qp in &qps {
            other.connect(qp, qp);
        }
        other.run();
        if !is_awake {
            assert!(w.try_sleep());
        }
        w.merge(&mut other).unwrap();
        assert_eq!(ours.doorbells.0.sleeping.get(), !is_awake);
        for (qp, context) in qps.iter().zip(&contexts) {
            assert!(write(qp, 1), "asleep: kick");
            w.engine.run(&mut w.host, PLENTY, Some(context.id));
            cq.expect(1, Status::Success);
            assert_eq!(write(qp, 2), !is_awake);
            w.engine.run(&mut w.host, PLENTY, Some(context.id));
            cq.expect(2, Status::Success);
        }
        // The ring of contexts is whole: all of them are found, and sleep.
        if is_awake {
            assert!(w.try_sleep());
        }
        for context in contexts.iter().chain([&ours, &other.context]) {
            assert!(context.doorbells.0.sleeping.get());
        }
    }
}

/// A deferral of kicks goes on in the engine that has the context then, and ends there.
#[test]
fn deferred_kicks_go_over() {
    let [mut w, mut other] = worlds();
    let cq = other.cq(16);
    let qp = other.qp(&cq, &cq);
    other.connect(&qp, &qp);
    other.run();
    assert!(other.try_sleep());
    assert!(w.try_sleep());
    let memory = other.context.doorbells.clone();
    memory.0.backlog.set(true);
    assert!(write(&qp, 1));
    let context = Some(other.context.id);
    other.engine.run(&mut other.host, PLENTY, context);
    cq.expect(1, Status::Success);
    assert!(memory.0.deferred.get());
    w.merge(&mut other).unwrap();
    assert!(memory.0.deferred.get());
    assert!(!write(&qp, 2), "deferred: no kick");
    memory.0.backlog.set(false);
    w.settle(10 * MS);
    cq.expect(2, Status::Success);
    assert!(!memory.0.deferred.get() && memory.0.sleeping.get());
}

/// A copy job ends in the engine that it has begun in. No other one begins while somebody waits for
/// that.
#[test]
fn engines_merge_after_copy_jobs() {
    let [mut w, mut other] = worlds();
    other.host.has_job_place = true;
    let (a, b) = other.pair();
    let memory = [(); 2].map(|()| other.mr(64 << 10));
    memory[0].fill(7);
    let sge = memory[0].sge(0, 64 << 10);
    let write = |wr_id| Wr::write(wr_id, &[sge], memory[1].remote(0));
    a.qp.post_send(&write(1));
    let mut jobs = Vec::new();
    other.run_to_jobs(&mut jobs);
    let before = other.engine.objects();
    assert_eq!(w.merge(&mut other), Err(Error::InUse));
    assert_eq!(other.engine.objects(), before);
    b.qp.post_send(&write(2));
    other.run_to_jobs(&mut jobs);
    assert_eq!(jobs.len(), 1);
    b.cq.expect(2, Status::Success);
    assert!(other.carry(jobs.pop().unwrap()), "somebody waits");
    w.merge(&mut other).unwrap();
    w.run();
    a.cq.expect(1, Status::Success);
    assert_eq!(memory[0].bytes(0, 64 << 10), memory[1].bytes(0, 64 << 10));
    // Jobs begin again, and end where they have begun when others come.
    w.host.has_job_place = true;
    a.qp.post_send(&write(3));
    w.engine.kicked(other.context.id);
    w.run_to_jobs(&mut jobs);
    let mut third = World::of_blocks(8);
    let moved = w.merge(&mut third);
    assert!(moved.is_ok());
    assert!(!w.carry(jobs.pop().unwrap()));
    w.run();
    a.cq.expect(3, Status::Success);
}

/// Datagrams to a group find all its queue pairs in one engine, and sets count for queue pairs of
/// one.
#[test]
fn groups_and_sets_of_counters_stay() {
    let [mut w, mut other] = worlds();
    let end = other.ud(&QpSpec::default(), 7);
    let gid = [0xff; 16];
    let number = end.qp.id.number;
    let attached = other
        .engine
        .attach_mcast(number, &gid, Box::new(Group::new()));
    assert!(attached.is_ok());
    assert_eq!(w.merge(&mut other), Err(Error::Busy));
    assert!(other.engine.detach_mcast(number, &gid).is_ok());
    let set = Box::new(CounterSet::new(Vport::default()));
    let set = other.engine.add_counter_set(set).ok().unwrap();
    let before = other.engine.objects();
    assert_eq!(w.merge(&mut other), Err(Error::Busy));
    assert_eq!(other.engine.objects(), before);
    assert!(other.engine.remove_counter_set(set).is_ok());
    assert!(w.merge(&mut other).is_ok());
    assert_eq!(w.engine.query_qp(number).unwrap().state, State::Rts);
}

#[derive(Clone, Debug)]
enum Step {
    /// A queue pair sends one more request, to itself.
    Post(usize),
    /// It posts a receive request.
    Receive(usize),
    /// An engine works, for so many requests.
    Run(usize, u32),
    /// Time passes.
    Wait(u64),
    /// One engine takes over the objects of another one.
    Merge(usize, usize),
    Sleep(usize),
}

const ENGINES: usize = 3;
const QPS: usize = 6;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..QPS).prop_map(Step::Post),
        4 => (0..QPS).prop_map(Step::Receive),
        3 => (0..ENGINES, 0..4u32).prop_map(|(engine, budget)| Step::Run(engine, budget)),
        1 => (0..2000u64).prop_map(|time| Step::Wait(time * US)),
        1 => (0..ENGINES, 0..ENGINES).prop_map(|(to, from)| Step::Merge(to, from)),
        1 => (0..ENGINES).prop_map(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    /// However engines merge meanwhile, each request completes, in its order.
    #[test]
    fn requests_outlive_merges(steps in prop::collection::vec(step(), 0..100)) {
        let mut worlds = [0, 4, 8].map(World::of_blocks);
        // In which world each queue pair is, and how many requests it has sent and received.
        let mut place: [usize; QPS] = std::array::from_fn(|i| i % ENGINES);
        let (mut sent, mut received) = ([0u64; QPS], [0u64; QPS]);
        let ends: Vec<_> = place
            .iter()
            .map(|&place| {
                let w = &mut worlds[place];
                let cq = w.cq(256);
                let context = w.context();
                let spec = QpSpec { depth: 128, ..QpSpec::default() };
                let qp = w.qp_in(Some(&context), &spec, &cq, &cq);
                w.connect(&qp, &qp);
                (End { qp, cq }, context)
            })
            .collect();
        for step in steps {
            match step {
                Step::Post(i) => {
                    let (End { qp, .. }, context) = &ends[i];
                    qp.put_send(&Wr::send(sent[i], &[]));
                    sent[i] += 1;
                    if qp.ring() {
                        worlds[place[i]].engine.kicked(context.id);
                    }
                }
                Step::Receive(i) => {
                    ends[i].0.qp.post_recv(1000 + received[i], &[]);
                    received[i] += 1;
                }
                Step::Run(i, requests) => {
                    let World { engine, host, .. } = &mut worlds[i];
                    let bytes = 1 << 20;
                    engine.run(host, Budget { requests, bytes }, None);
                }
                Step::Wait(time) => worlds.iter_mut().for_each(|w| w.host.now += time),
                Step::Merge(to, from) if to != from => {
                    let mut other = std::mem::replace(&mut worlds[from], World::new());
                    worlds[to].merge(&mut other).unwrap();
                    worlds[from] = other;
                    place.iter_mut().filter(|place| **place == from).for_each(|place| *place = to);
                }
                Step::Sleep(i) => {
                    worlds[i].try_sleep();
                }
                Step::Merge(..) => (),
            }
        }
        for (i, (End { qp, .. }, _)) in ends.iter().enumerate() {
            while received[i] < sent[i] {
                qp.post_recv(1000 + received[i], &[]);
                received[i] += 1;
            }
        }
        worlds.iter_mut().for_each(|w| w.settle(1000 * MS));
        for (i, (End { cq, .. }, _)) in ends.iter().enumerate() {
            let (sends, receives): (Vec<u64>, Vec<u64>) =
                cq.drain().iter().map(|wc| {
                    assert_eq!(wc.status, Status::Success as u8);
                    wc.wr_id
                }).partition(|&wr_id| wr_id < 1000);
            prop_assert_eq!(sends, (0..sent[i]).collect::<Vec<_>>());
            prop_assert_eq!(receives, (1000..1000 + sent[i]).collect::<Vec<_>>());
        }
    }
}
