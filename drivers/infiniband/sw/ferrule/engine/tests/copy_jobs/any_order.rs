// SPDX-License-Identifier: GPL-2.0

//! Random messages, whose jobs end late and in any order.

use std::rc::Rc;

use ferrule_engine::abi;

use super::{pair, LONG};
use crate::sim::network::Random;
use crate::sim::*;

/// The ends of all messages at each end, and the bytes.
type Ends = (Vec<Vec<(u64, u8)>>, Vec<Vec<u8>>);

/// Random messages of several pairs, whose jobs, if they have any, end late and in any order.
fn random_messages(seed: u64, has_jobs: bool) -> Ends {
    const PAIRS: u64 = 4;
    const MESSAGES: u64 = 48;

    let mut random = Random::new(seed);
    // The ends of jobs are no matter of the messages, so they have numbers of their own.
    let mut late = Random::new(seed ^ 0x1234);
    let mut w = World::new();
    w.host.has_job_place = has_jobs;
    let pairs = [(); PAIRS as usize].map(|()| pair(&mut w));
    let mut jobs = Vec::new();
    for number in 0..MESSAGES {
        let p = &pairs[(number % PAIRS) as usize];
        let length = 1 + random.below(2 * u64::from(LONG)) as u32;
        let [from, to] = [0; 2].map(|_| random.below(u64::from(2 * LONG - length) + 1));
        let sge = p.mine.sge(from, length);
        let signals = [0, abi::wr_flags::SIGNALED][random.below(2) as usize];
        let wr = match random.below(3) {
            0 => {
                p.b.qp.post_recv(number, &[p.theirs.sge(to, length)]);
                Wr::send(number, &[sge])
            }
            1 => Wr::write(number, &[sge], p.theirs.remote(to)),
            _ => Wr::read(number, &[sge], p.theirs.remote(to)),
        };
        p.a.qp.post_send(&wr.with_flags(signals));
        // Requests come one by one, or a few at a time.
        if random.below(3) != 0 {
            continue;
        }
        w.host.is_contended = late.below(2) != 0;
        w.run_to_jobs(&mut jobs);
        for _ in 0..late.below(3) {
            if !jobs.is_empty() {
                let next = late.below(jobs.len() as u64) as usize;
                let job = jobs.swap_remove(next);
                w.carry(job);
                w.run_to_jobs(&mut jobs);
            }
        }
    }
    w.run_to_jobs(&mut jobs);
    while !jobs.is_empty() {
        let next = late.below(jobs.len() as u64) as usize;
        let job = jobs.swap_remove(next);
        w.carry(job);
        w.run_to_jobs(&mut jobs);
    }
    assert_eq!(w.engine.counters().copy_jobs != 0, has_jobs);
    let mut ends = Vec::new();
    let mut memory = Vec::new();
    for p in &pairs {
        for end in [&p.a, &p.b] {
            let wcs = end.cq.drain().into_iter();
            ends.push(wcs.map(|wc| (wc.wr_id, wc.status)).collect());
        }
        for mr in [&p.mine, &p.theirs] {
            memory.push(mr.bytes(0, mr.region.length));
            w.engine.remove_mr(mr.key).unwrap();
            assert_eq!(Rc::strong_count(&mr.region.memory), 1);
        }
        for end in [&p.a, &p.b] {
            w.engine.remove_qp(end.qp.id.number).unwrap();
        }
    }
    (ends, memory)
}

#[test]
fn jobs_may_end_late_and_in_any_order() {
    for seed in 1..100 {
        assert_eq!(random_messages(seed, true), random_messages(seed, false));
    }
}
