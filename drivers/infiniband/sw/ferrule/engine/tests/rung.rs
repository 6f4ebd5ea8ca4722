// SPDX-License-Identifier: GPL-2.0

//! The word that counts rings and names the last doorbell, as one thread sees it.

use ferrule_engine::abi;

use crate::sim::*;

/// As long as one queue pair alone is rung, the engine looks at no bits, however many rings it has
/// missed.
#[test]
fn rings_of_one_queue_pair_need_no_bits() {
    let mut w = World::new();
    let cq = w.cq(256);
    let (a, b) = (w.qp(&cq, &cq), w.qp(&cq, &cq));
    for qp in [&a, &b] {
        w.connect(qp, qp);
    }
    w.run();
    let memory = w.context.doorbells.0.clone();
    // All counts and runs wrap or end.
    memory.rung.set(abi::Rung {
        count: u32::MAX - 3,
        doorbell: (a.id.number & abi::DB_INDEX_MASK) as u16,
        run: u16::MAX - 4,
    });
    w.run();
    let (reads, doorbells) = (memory.leaf_reads.get(), w.engine.counters().doorbells);
    for rings in [1, 2, 5] {
        for wr_id in 0..rings {
            a.post_send(&Wr::write(wr_id, &[], (0, 0)));
        }
        w.run();
        assert_eq!(cq.drain().len() as u64, rings);
    }
    assert_eq!(w.engine.counters().doorbells - doorbells, 3);
    assert_eq!(memory.leaf_reads.get(), reads);
    assert_eq!(memory.rung.get().run, u16::MAX);
    // The other one's rings alone are seen at once, too. Those of both are looked for, and that is
    // all.
    for (posts, more) in [(vec![&b, &b], 0), (vec![&a, &b], 1), (vec![&a], 0)] {
        for qp in &posts {
            qp.post_send(&Wr::write(1, &[], (0, 0)));
        }
        let reads = memory.leaf_reads.get();
        w.run();
        assert_eq!(cq.drain().len(), posts.len());
        assert_eq!(memory.leaf_reads.get() - reads, more);
    }
    assert_eq!(w.engine.counters().stray_doorbells, 0);
}

/// A bit that was never looked at is not found when its queue pair is gone.
#[test]
fn a_queue_pair_takes_its_doorbell_along() {
    let mut w = World::new();
    let cq = w.cq(16);
    let (a, b, c) = (w.qp(&cq, &cq), w.qp(&cq, &cq), w.qp(&cq, &cq));
    for qp in [&a, &b, &c] {
        w.connect(qp, qp);
    }
    w.run();
    a.post_send(&Wr::write(1, &[], (0, 0)));
    w.run();
    w.engine.remove_qp(a.id.number).unwrap();
    for qp in [&b, &c] {
        qp.post_send(&Wr::write(1, &[], (0, 0)));
    }
    w.run();
    assert_eq!(cq.drain().len(), 3);
    assert_eq!(w.engine.counters().stray_doorbells, 0);
}
