// SPDX-License-Identifier: GPL-2.0

//! Copy jobs: what others see of a message while its bytes are copied outside of the engine, and
//! what may not change meanwhile.

mod any_order;
mod several;
mod unreliable;

use std::rc::Rc;

use ferrule_engine::{abi, Access, Error, MrChange, MwType, QpType, State, Status};

use crate::sim::*;

/// The length of most messages here.
const LONG: u32 = 64 << 10;

/// The least that has a job.
const LEAST: u32 = 8 << 10;

/// A world that takes jobs along.
fn world() -> World {
    let mut w = World::new();
    w.host.has_job_place = true;
    w
}

/// A pair of queue pairs with memory at each end.
struct Pair {
    a: End,
    b: End,
    mine: TestMr,
    theirs: TestMr,
}

fn pair(w: &mut World) -> Pair {
    let ends = w.pair();
    Pair::new(w, ends, 2 * LONG)
}

impl Pair {
    /// Each end has memory of that length.
    fn new(w: &mut World, (a, b): (End, End), length: u32) -> Self {
        let [mine, theirs] = [3, 5].map(|seed| {
            let mr = w.mr(length as usize);
            mr.fill(seed);
            mr
        });
        Pair { a, b, mine, theirs }
    }

    /// Posts a WRITE.
    fn write(&self, wr_id: u64, length: u32) {
        let sge = self.mine.sge(0, length);
        let wr = Wr::write(wr_id, &[sge], self.theirs.remote(0));
        self.a.qp.post_send(&wr);
    }
}

/// Runs to the end of a job, and answers it.
#[track_caller]
fn only_job(w: &mut World) -> SimJob {
    let mut jobs = Vec::new();
    w.run_to_jobs(&mut jobs);
    assert_eq!(jobs.len(), 1);
    jobs.pop().unwrap()
}

#[track_caller]
fn expect_jobs(w: &World, jobs: u64) {
    assert_eq!(w.engine.counters().copy_jobs, jobs);
}

#[test]
fn each_operation_ends_with_its_job() {
    for number in 0..4 {
        let mut w = world();
        let p = pair(&mut w);
        let (from, to) = if number == 3 {
            (&p.theirs, &p.mine)
        } else {
            (&p.mine, &p.theirs)
        };
        let sges = [p.mine.sge(0, 100), p.mine.sge(100, LONG - 100)];
        let wr = match number {
            0 => Wr::send(1, &sges),
            1 => Wr::write(1, &sges, p.theirs.remote(0)),
            2 => Wr::write(1, &sges, p.theirs.remote(0))
                .with_opcode(abi::wr_opcode::RDMA_WRITE_WITH_IMM),
            _ => Wr::read(1, &sges, p.theirs.remote(0)),
        };
        p.b.qp.post_recv(2, &[p.theirs.sge(0, LONG)]);
        let before = to.bytes(0, LONG as usize);
        p.a.qp.post_send(&wr);
        let job = only_job(&mut w);
        assert_eq!(job.bytes(), u64::from(LONG));
        p.a.cq.expect_none();
        p.b.cq.expect_none();
        assert_eq!(to.bytes(0, LONG as usize), before);
        assert!(!w.carry(job));
        // One that takes a receive request is judged again.
        if matches!(number, 0 | 2) {
            p.a.cq.expect_none();
            w.run();
        }
        p.a.cq.expect(1, Status::Success);
        assert_eq!(from.bytes(0, LONG as usize), to.bytes(0, LONG as usize));
        match number {
            0 | 2 => assert_eq!(p.b.cq.expect(2, Status::Success).byte_len, LONG),
            _ => p.b.cq.expect_none(),
        }
        expect_jobs(&w, 1);
    }
}

#[test]
fn a_queue_pair_waits_for_its_job_and_others_do_not() {
    let mut w = world();
    let (first, second) = (pair(&mut w), pair(&mut w));
    first.write(1, LONG);
    first.write(2, 8);
    let job = only_job(&mut w);
    second.write(3, 8);
    second.write(4, LEAST);
    let other = only_job(&mut w);
    first.a.cq.expect_none();
    second.a.cq.expect(3, Status::Success);
    w.carry(other);
    w.run();
    second.a.cq.expect(4, Status::Success);
    first.a.cq.expect_none();
    w.carry(job);
    w.run();
    first.a.cq.expect(1, Status::Success);
    first.a.cq.expect(2, Status::Success);
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let mut w = world();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    w.connect(&qp, &qp);
    let mr = w.mr(2 * LONG as usize);
    mr.fill(1);
    let far = mr.remote(LONG.into());
    qp.post_send(&Wr::write(1, &[mr.sge(0, LONG)], far));
    let job = only_job(&mut w);
    assert_eq!(w.engine.remove_qp(qp.id.number).err(), Some(Error::InUse));
    assert_eq!(w.engine.remove_mr(mr.key).err(), Some(Error::InUse));
    assert!(w.carry(job));
    w.run();
    cq.expect(1, Status::Success);
    let half = LONG as usize;
    assert_eq!(mr.bytes(0, half), mr.bytes(half, half));
    w.engine.remove_qp(qp.id.number).unwrap();
    w.engine.remove_mr(mr.key).unwrap();
}

#[test]
fn objects_of_a_copy_job_cannot_be_removed() {
    let mut w = world();
    let p = pair(&mut w);
    p.write(1, LONG);
    let job = only_job(&mut w);
    let numbers = [p.a.qp.id.number, p.b.qp.id.number];
    for qpn in numbers {
        assert_eq!(w.engine.remove_qp(qpn).err(), Some(Error::InUse));
    }
    for qp in [&p.a.qp, &p.b.qp] {
        assert_eq!(w.modify(qp, &rts()), Err(Error::InUse));
        let reset = ferrule_engine::Modify {
            state: Some(State::Reset),
            ..Default::default()
        };
        assert_eq!(w.modify(qp, &reset), Err(Error::InUse));
    }
    for mr in [&p.mine, &p.theirs] {
        assert_eq!(w.engine.remove_mr(mr.key).err(), Some(Error::InUse));
        let mut change = MrChange {
            pd: None,
            access: Some(Access::NONE),
            memory: None,
        };
        let changed = w.engine.rereg_mr(mr.key, &mut change);
        assert_eq!(changed, Err(Error::InUse));
    }
    assert_eq!(w.engine.claim_context(w.context.id), Err(Error::InUse));
    // The region, the program and the job.
    assert_eq!(Rc::strong_count(&p.theirs.region.memory), 3);
    assert!(w.carry(job));
    assert_eq!(Rc::strong_count(&p.theirs.region.memory), 2);
    assert_eq!(w.engine.claim_context(w.context.id), Ok(()));
    w.run();
    p.a.cq.expect(1, Status::Success);
    for mr in [&p.mine, &p.theirs] {
        w.engine.remove_mr(mr.key).unwrap();
        assert_eq!(Rc::strong_count(&mr.region.memory), 1);
    }
    for qpn in numbers {
        w.engine.remove_qp(qpn).unwrap();
    }
}

#[test]
fn nobody_is_awaited_who_was_not_refused() {
    let mut w = world();
    let p = pair(&mut w);
    for qp in [None, Some(&p.a.qp), Some(&p.b.qp)] {
        p.write(1, LONG);
        let job = only_job(&mut w);
        if let Some(qp) = qp {
            assert_eq!(w.modify(qp, &rts()), Err(Error::InUse));
        }
        assert_eq!(w.carry(job), qp.is_some());
        if let Some(qp) = qp {
            w.modify(qp, &ferrule_engine::Modify::default()).unwrap();
        }
        w.run();
        p.a.cq.expect(1, Status::Success);
    }
}

#[test]
fn no_job_begins_with_what_a_command_waits_for() {
    let mut w = world();
    let (first, second) = (pair(&mut w), pair(&mut w));
    first.write(1, LONG);
    let job = only_job(&mut w);
    assert_eq!(w.engine.remove_mr(first.mine.key).err(), Some(Error::InUse));
    // Another queue pair uses the same region, and would do so without end.
    let wr = Wr::write(2, &[first.mine.sge(0, LONG)], second.theirs.remote(0));
    second.a.qp.post_send(&wr);
    let mut jobs = Vec::new();
    w.run_to_jobs(&mut jobs);
    assert!(jobs.is_empty());
    second.a.cq.expect(2, Status::Success);
    assert!(w.carry(job));
    w.engine.remove_mr(first.mine.key).unwrap();
}

#[test]
fn in_error_flushes_wait_for_the_job() {
    // The requester fails, or its peer.
    for fails in 0..2 {
        let mut w = world();
        let p = pair(&mut w);
        for wr_id in [1, 2] {
            p.b.qp.post_recv(wr_id, &[p.theirs.sge(0, LONG)]);
            p.a.qp.post_send(&Wr::send(wr_id, &[p.mine.sge(0, LONG)]));
        }
        let job = only_job(&mut w);
        let (failed, other) = if fails == 0 {
            (&p.a, &p.b)
        } else {
            (&p.b, &p.a)
        };
        w.to(&failed.qp, State::Err);
        w.run();
        failed.cq.expect_none();
        other.cq.expect_none();
        w.carry(job);
        w.run();
        for wr_id in [1, 2] {
            failed.cq.expect(wr_id, Status::Flushed);
        }
        other.cq.expect_none();
        if fails == 1 {
            // Nobody answers any more.
            w.settle(60_000 * MS);
            p.a.cq.expect(1, Status::RetryExceeded);
            p.a.cq.expect(2, Status::Flushed);
        }
        expect_jobs(&w, 1);
    }
}

#[test]
fn a_write_is_judged_before_its_job() {
    let mut w = world();
    let p = pair(&mut w);
    p.write(1, LONG);
    let job = only_job(&mut w);
    assert_eq!(w.engine.remove_mr(p.theirs.key).err(), Some(Error::InUse));
    assert!(w.carry(job));
    w.engine.remove_mr(p.theirs.key).unwrap();
    p.a.cq.expect(1, Status::Success);
    w.run();
    w.state(&p.a.qp, State::Rts);
}

#[test]
fn a_message_that_takes_a_receive_is_judged_after_its_job() {
    let mut w = world();
    let p = pair(&mut w);
    p.b.qp.post_recv(2, &[]);
    let wr = Wr::write(1, &[p.mine.sge(0, LONG)], p.theirs.remote(0));
    p.a.qp
        .post_send(&wr.with_opcode(abi::wr_opcode::RDMA_WRITE_WITH_IMM));
    let job = only_job(&mut w);
    // Before its queue pair has its turn, the region goes.
    assert_eq!(w.engine.remove_mr(p.theirs.key).err(), Some(Error::InUse));
    assert!(w.carry(job));
    w.engine.remove_mr(p.theirs.key).unwrap();
    w.run();
    p.a.cq.expect(1, Status::RemoteAccess);
    p.b.cq.expect(2, Status::Flushed);
    w.state(&p.a.qp, State::Err);
    w.state(&p.b.qp, State::Err);
}

/// Between the end of its job and its second judgement, a message may lose its receive request. It
/// takes the next one with its bytes.
#[test]
fn a_message_whose_receiver_was_reset_is_copied_again() {
    let mut w = world();
    let p = pair(&mut w);
    let job_to = p.theirs.sge(0, LONG);
    p.b.qp.post_recv(1, &[job_to]);
    p.a.qp.post_send(&Wr::send(2, &[p.mine.sge(0, LONG)]));
    let job = only_job(&mut w);
    w.carry(job);
    w.to(&p.b.qp, State::Reset);
    p.b.qp.rewind();
    w.connect(&p.b.qp, &p.a.qp);
    p.b.qp.post_recv(3, &[p.theirs.sge(LONG.into(), LONG)]);
    w.run();
    p.b.cq.expect(3, Status::Success);
    p.a.cq.expect(2, Status::Success);
    let length = LONG as usize;
    assert!(p.theirs.bytes(length, length) == p.mine.bytes(0, length));
}

#[test]
fn a_change_that_is_refused_bars_no_jobs() {
    let mut w = world();
    let p = pair(&mut w);
    let mr = w.mr_with(
        1,
        ALL.or(Access::MW_BIND),
        memory::shared(LONG as usize),
        0,
        LONG as usize,
    );
    let write = |wr_id| Wr::write(wr_id, &[mr.sge(0, LONG)], p.theirs.remote(0));
    p.a.qp.post_send(&write(1));
    let job = only_job(&mut w);
    let change = || MrChange {
        pd: None,
        access: Some(ALL),
        memory: None,
    };
    assert_eq!(w.engine.rereg_mr(mr.key, &mut change()), Err(Error::InUse));
    // A window is bound before the command comes again.
    let mw = w.mw(1, MwType::Type1);
    p.b.qp.post_send(&Wr::bind(2, mw, mw + 1, mr.remote(0), 8));
    w.run();
    p.b.cq.expect(2, Status::Success);
    assert!(w.carry(job));
    assert_eq!(w.engine.rereg_mr(mr.key, &mut change()), Err(Error::Busy));
    p.a.cq.expect(1, Status::Success);
    p.a.qp.post_send(&write(3));
    w.run();
    p.a.cq.expect(3, Status::Success);
    expect_jobs(&w, 2);
}

#[test]
fn revocable_memory_is_copied_at_once() {
    let mut w = world();
    let p = pair(&mut w);
    // Too few bytes.
    p.write(1, LEAST - 1);
    w.run();
    p.a.cq.expect(1, Status::Success);
    // A window.
    let rights = ALL.or(Access::MW_BIND);
    let memory = memory::shared(LONG as usize);
    let bound = w.mr_with(1, rights, memory, 0, LONG as usize);
    let mw = w.mw(1, MwType::Type2);
    let key = mw + 1;
    let bind = Wr::bind(2, mw, key, bound.remote(0), LONG.into());
    p.b.qp.post_send(&bind);
    w.run();
    p.b.cq.expect(2, Status::Success);
    let window = (bound.iova, key);
    p.a.qp
        .post_send(&Wr::write(3, &[p.mine.sge(0, LONG)], window));
    w.run();
    p.a.cq.expect(3, Status::Success);
    // A region for fast registration, of which the host's own queue pairs have a key.
    let ends = [(); 2].map(|()| {
        let cq = w.cq(64);
        let qp = w.qp_in(None, &QpSpec::default(), &cq, &cq);
        End { qp, cq }
    });
    w.connect(&ends[0].qp, &ends[1].qp);
    w.connect(&ends[1].qp, &ends[0].qp);
    let fast = w.fast_mr(1, memory::shared(LONG as usize));
    fast.region.next.set(Some((0, LONG as usize)));
    let register = Wr::register(4, fast.key, 0, LONG.into());
    let write = Wr::write(5, &[p.mine.sge(0, LONG)], (0, fast.key));
    for (end, wr) in [(&ends[1], register), (&ends[0], write)] {
        end.qp.put_send(&wr);
        w.engine.ring_qp(end.qp.id.number);
        w.run();
        end.cq.expect(wr.wr_id, Status::Success);
    }
    expect_jobs(&w, 0);
    // Memory that is absent has a job when it has come.
    p.theirs.region.absent.set(1);
    p.write(6, LONG);
    w.settle(MS);
    p.a.cq.expect(6, Status::Success);
    expect_jobs(&w, 1);
}

#[test]
fn more_pieces_than_a_job_has_are_copied_at_once() {
    /// As many as a job has.
    const PIECES: u32 = 16;

    let mut w = world();
    let spec = QpSpec {
        max_sge: PIECES + 1,
        ..QpSpec::default()
    };
    let (a, b) = w.pair_with(&spec);
    let [mine, theirs] = [(); 2].map(|()| w.mr(LONG as usize));
    let all = LONG as usize;
    let sges = |mr: &TestMr, count: u32| -> Vec<_> {
        let part = LONG / count;
        let length = |i| part + u32::from(i == count - 1) * (LONG % count);
        (0..count)
            .map(|i| mr.sge((i * part).into(), length(i)))
            .collect()
    };
    let cases = [(PIECES, 1, 1), (PIECES + 1, 1, 1), (8, 9, 2), (9, 10, 2)];
    for (wr_id, (sends, receives, jobs)) in (1..).zip(cases) {
        b.qp.post_recv(wr_id, &sges(&theirs, receives));
        mine.fill(wr_id as u8);
        a.qp.post_send(&Wr::send(wr_id, &sges(&mine, sends)));
        w.run();
        a.cq.expect(wr_id, Status::Success);
        b.cq.expect(wr_id, Status::Success);
        assert_eq!(mine.bytes(0, all), theirs.bytes(0, all));
        expect_jobs(&w, jobs);
        // The region and the program: a plan that came to nothing leaves no reference.
        for mr in [&mine, &theirs] {
            assert_eq!(Rc::strong_count(&mr.region.memory), 2);
        }
    }
    // One that has no place beside another in its job has the next job.
    for wr_id in [5, 6] {
        a.qp.post_send(&Wr::write(
            wr_id,
            &sges(&mine, PIECES - 1),
            theirs.remote(0),
        ));
    }
    w.run();
    for wr_id in [5, 6] {
        a.cq.expect(wr_id, Status::Success);
    }
    expect_jobs(&w, 4);
    // Each region is free, and so it is after a plan that came to nothing.
    w.engine.remove_mr(mine.key).unwrap();
    w.engine.remove_mr(theirs.key).unwrap();
}
