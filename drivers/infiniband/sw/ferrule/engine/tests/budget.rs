// SPDX-License-Identifier: GPL-2.0

//! The most that an entry of the engine does, looks included: nobody else runs on its processor
//! meanwhile. And the share of others where a program rings without end.

use ferrule_engine::{abi, Budget, Counters, Outcome, Sleep, Status};

use crate::sim::*;

/// As the kernel's: the work between two moments at which others may run.
const SLICE: Budget = Budget {
    requests: 32,
    bytes: 64 << 10,
};

/// Half of a slice is for looks, and a context with nothing to do costs two.
const CONTEXTS_OF_A_RUN: u32 = 32 * Budget::LOOKS / 2 / 2;

/// All queue pairs of one context with nothing in their queues, and the looks so far.
struct Scene {
    w: World,
    cq: TestCq,
    qps: Vec<TestQp>,
}

impl Scene {
    fn new(count: usize) -> Self {
        let mut w = World::new();
        let cq = w.cq(64);
        let spec = QpSpec {
            depth: 2,
            ..QpSpec::default()
        };
        let qps = (0..count).map(|_| w.qp_with(&spec, &cq, &cq)).collect();
        Self { w, cq, qps }
    }

    /// The work done so far, in looks.
    fn work(&self) -> u32 {
        let Counters {
            doorbells,
            turns,
            timers,
            ..
        } = self.w.engine.counters();
        let slots = doorbells + (2 * turns + timers) * u64::from(Budget::LOOKS);
        self.w.context.doorbells.0.looks.get() + slots as u32
    }

    /// Does one entry, which may not do more than a slice.
    #[track_caller]
    fn enter(&mut self, entry: impl FnOnce(&mut World) -> Outcome) -> Outcome {
        let before = self.work();
        let outcome = entry(&mut self.w);
        let done = self.work() - before;
        // Less than a request does not count, and the last turn may take one more than is left.
        assert!(done < SLICE.looks() + 2 * Budget::LOOKS, "{done} looks");
        outcome
    }
}

#[test]
fn no_entry_does_more_than_its_slice() {
    let mut s = Scene::new(8000);
    let id = s.w.context.id;
    let entries: [fn(&mut World) -> Outcome; 3] = [
        |w| w.engine.run(&mut w.host, SLICE, None),
        |w| w.engine.run(&mut w.host, SLICE, Some(w.context.id)),
        |w| w.engine.run_for(&mut w.host, SLICE, w.context.id),
    ];
    for entry in entries {
        for count in [1, 64, 512, 8000] {
            for qp in &s.qps[..count] {
                qp.ring();
            }
            let doorbells = s.w.engine.counters().doorbells;
            let mut entries = 0;
            while s.enter(entry).more {
                entries += 1;
            }
            let found = s.w.engine.counters().doorbells - doorbells;
            assert_eq!(found, count as u64);
            // An eighth of what it could do at best: half of it is for looks, and a turn counts as
            // two requests.
            assert!(entries <= count / 8 + 1, "{entries} for {count}");
        }
    }
    // A context that has kicked costs no look before its turn comes.
    let before = s.work();
    s.w.engine.kicked(id);
    assert!(s.w.engine.has_work());
    assert_eq!(s.work(), before);
    assert!(!s.enter(entries[0]).more);
}

/// Words that are rung above, and not below, are looks, too; and so are those of which the context
/// has one doorbell.
#[test]
fn words_are_looks() {
    let mut s = Scene::new(8000);
    let memory = s.w.context.doorbells.0.clone();
    for ring_leaves in [false, true] {
        for word in memory.top.borrow_mut().iter_mut() {
            *word = !*word;
        }
        if ring_leaves {
            for word in memory.leaf.borrow_mut().iter_mut() {
                *word = !*word;
            }
        }
        s.w.context.doorbells.ring_bits();
        let reads = memory.leaf_reads.get();
        while s.enter(|w| w.engine.run(&mut w.host, SLICE, None)).more {}
        assert_eq!(memory.leaf_reads.get() - reads, 8002u32.div_ceil(64));
    }
    assert!(s.w.engine.counters().doorbells >= 8000);
}

/// Places of queue pairs that were removed while they waited for a turn.
#[test]
fn places_of_the_removed_are_counted() {
    let mut s = Scene::new(1000);
    s.qps.iter().for_each(|qp| {
        qp.ring();
    });
    assert!(s.w.engine.run(&mut s.w.host, LOOKS_ALONE, None).more);
    for qp in &s.qps {
        s.w.engine.remove_qp(qp.id.number).unwrap();
    }
    for _ in 0..1000 / SLICE.requests {
        assert!(s.enter(|w| w.engine.run(&mut w.host, SLICE, None)).more);
    }
    assert!(!s.enter(|w| w.engine.run(&mut w.host, SLICE, None)).more);
}

/// A thousand contexts that need not kick.
struct Many {
    w: World,
    cq: TestCq,
    contexts: Vec<(TestContext, TestQp)>,
}

impl Many {
    fn new() -> Self {
        let mut w = World::new();
        let cq = w.cq(2048);
        assert!(w.try_sleep());
        let contexts: Vec<_> = (0..1000)
            .map(|_| {
                let context = w.context();
                let qp = w.qp_in(Some(&context), &QpSpec::default(), &cq, &cq);
                w.connect(&qp, &qp);
                (context, qp)
            })
            .collect();
        w.engine.wake();
        for (context, _) in &contexts {
            w.engine.kicked(context.id);
        }
        w.run();
        Self { w, cq, contexts }
    }

    fn looks(&self) -> u32 {
        self.contexts
            .iter()
            .map(|(context, _)| context.doorbells.0.looks.get())
            .sum()
    }

    fn sleeping(&self) -> usize {
        self.contexts
            .iter()
            .filter(|(context, _)| context.doorbells.0.sleeping.get())
            .count()
    }

    /// Runs once, for no more than a slice.
    #[track_caller]
    fn run(&mut self) -> Outcome {
        let before = self.looks();
        let outcome = self.w.engine.run(&mut self.w.host, SLICE, None);
        let done = self.looks() - before;
        assert!(done <= SLICE.looks() / 2, "{done} looks");
        outcome
    }
}

#[test]
fn a_thousand_contexts_are_looked_at_in_slices() {
    let mut s = Many::new();
    assert_eq!(s.sleeping(), 0);
    let round = 1000u32.div_ceil(CONTEXTS_OF_A_RUN);
    // Each is looked at once before one is looked at twice.
    for _ in 0..3 {
        let before: Vec<_> = s
            .contexts
            .iter()
            .map(|(context, _)| context.doorbells.0.looks.get())
            .collect();
        for _ in 0..round {
            assert!(!s.run().more);
        }
        for ((context, _), before) in s.contexts.iter().zip(before) {
            let looks = context.doorbells.0.looks.get() - before;
            assert!((1..=2).contains(&looks), "{looks}");
        }
    }
    // A program that rings is served within a round, and some more looks.
    for n in [0, 127, 128, 500, 999] {
        let (_, qp) = &s.contexts[n];
        qp.post_send(&Wr::write(n as u64, &[], (0, 0)));
    }
    for _ in 0..round + 1 {
        s.run();
    }
    assert_eq!(s.cq.drain().len(), 5);
    // All are idle at the same time: they are told to kick in slices, too.
    for _ in 0..round * 1030 {
        s.run();
    }
    assert_eq!(s.sleeping(), 1000);
    let before = s.looks();
    s.run();
    assert_eq!(s.looks(), before);
}

#[test]
fn sleep_comes_in_steps() {
    let mut s = Many::new();
    let mut steps = 0;
    loop {
        let (looks, sleeping) = (s.looks(), s.sleeping());
        let step = s.w.engine.try_sleep(SLICE.looks());
        assert!(s.looks() - looks <= SLICE.looks());
        if step == Sleep::Asleep {
            break;
        }
        assert_eq!(step, Sleep::Step);
        assert_eq!(s.sleeping() - sleeping, SLICE.looks() as usize / 3);
        // A context that kicks meanwhile is served, and goes on kicking. Those that were not told
        // yet are looked at.
        let (told, awake): (Vec<_>, Vec<_>) = s
            .contexts
            .iter()
            .partition(|(context, _)| context.doorbells.0.sleeping.get());
        let (context, qp) = told[0];
        qp.post_send(&Wr::write(1, &[], (0, 0)));
        assert!(qp.ring());
        s.w.engine.kicked(context.id);
        awake[awake.len() - 1]
            .1
            .post_send(&Wr::write(2, &[], (0, 0)));
        // One that waits to be looked at keeps the engine awake.
        assert_eq!(s.w.engine.try_sleep(SLICE.looks()), Sleep::Awake);
        // The doorbells that are found cost looks, too.
        for _ in 0..1000 / CONTEXTS_OF_A_RUN + 2 {
            s.run();
        }
        assert_eq!(s.cq.drain().len(), 2);
        steps += 1;
    }
    assert_eq!(steps, 1000 / (SLICE.looks() / 3));
    assert_eq!(s.sleeping(), 1000);
    assert!(s.contexts.iter().all(|(_, qp)| qp.ring()));
}

/// Of those that are to be told, one rings: none of them has to kick.
#[test]
fn one_that_rings_keeps_those_beside_it_awake() {
    let mut s = Many::new();
    s.contexts[5].1.ring();
    let looks = s.looks();
    assert_eq!(s.w.engine.try_sleep(SLICE.looks()), Sleep::Awake);
    assert!(s.looks() - looks <= SLICE.looks());
    assert_eq!(s.sleeping(), 0);
}

/// A program that rings all its doorbells again after each entry takes no more than its part from
/// others: from those that need not kick, and from those that have kicked.
#[test]
fn a_context_that_rings_without_end_does_not_delay_others() {
    for kicks in [false, true] {
        let mut s = Scene::new(4000);
        if kicks {
            assert!(s.w.try_sleep());
        }
        let others: Vec<_> = (0..10)
            .map(|_| {
                let context = s.w.context();
                let qp = s.w.qp_in(Some(&context), &QpSpec::default(), &s.cq, &s.cq);
                s.w.connect(&qp, &qp);
                (context, qp)
            })
            .collect();
        s.w.run();
        let ring_all = |s: &Scene| {
            s.qps.iter().for_each(|qp| {
                qp.ring();
            })
        };
        for round in 0..50 {
            ring_all(&s);
            for (context, qp) in &others {
                if round % 10 == 0 {
                    qp.post_send(&Wr::write(round, &[], (0, 0)));
                    if kicks {
                        s.w.engine.kicked(context.id);
                    }
                }
            }
            // It kicks all the time, and is the one who is to be first.
            let first = Some(s.w.context.id);
            assert!(
                s.enter(|w| w.engine.run(&mut w.host, SLICE, first)).more,
                "there is always more"
            );
            if round % 10 == 2 {
                assert_eq!(s.cq.drain().len(), 10, "within three entries");
            }
        }
    }
}

/// Nor do some of its own doorbells delay the others of them.
#[test]
fn doorbells_that_are_rung_again_do_not_delay_those_behind() {
    let mut s = Scene::new(4000);
    let last = s.qps.pop().unwrap();
    assert!(last.id.number & abi::DB_INDEX_MASK >= 4000);
    s.w.connect(&last, &last);
    s.w.run();
    last.post_send(&Wr::write(1, &[], (0, 0)));
    // Each entry takes some of them, and all are rung again.
    for _ in 0..4000 / 32 {
        s.qps.iter().for_each(|qp| {
            qp.ring();
        });
        s.enter(|w| w.engine.run(&mut w.host, SLICE, None));
    }
    // Its turn comes behind all that were found before it.
    while s.enter(|w| w.engine.run(&mut w.host, SLICE, None)).more {}
    s.cq.expect(1, Status::Success);
}

/// A report visits each queue pair, in steps that pass 64 numbers at most.
#[test]
fn a_report_passes_gaps_in_steps() {
    let mut s = Scene::new(300);
    for qp in s.qps.drain(1..299) {
        s.w.engine.remove_qp(qp.id.number).unwrap();
    }
    let (mut found, mut from) = (vec![], Some(0));
    while let Some(index) = from {
        let (qpn, next) = s.w.engine.find_qp(index);
        assert!(next.is_none_or(|next| next > index && next <= index + 64));
        found.extend(qpn);
        from = next;
    }
    let numbers: Vec<u32> = s.qps.iter().map(|qp| qp.id.number).collect();
    assert_eq!(found, numbers);
}
