// SPDX-License-Identifier: GPL-2.0

//! Jobs of several requests, and requests of several jobs.

use std::rc::Rc;

use ferrule_engine::{QpEvent, State, Status};

use super::{expect_jobs, only_job, pair, world, LEAST, LONG};
use crate::sim::*;

/// As much as a job has at most.
const MOST: u32 = 256 << 10;

#[test]
fn a_job_has_several_requests() {
    let mut w = world();
    let p = pair(&mut w);
    let write = |wr_id, at: u32, length| {
        let remote = p.theirs.remote(at.into());
        Wr::write(wr_id, &[p.mine.sge(at.into(), length)], remote)
    };
    p.b.qp.post_recv(9, &[p.theirs.sge(0, LONG)]);
    // Each kind that may follow, in order. The SEND has a job of its own, and what is behind it
    // waits.
    p.a.qp.post_send(&write(1, 0, LEAST));
    p.a.qp.post_send(&write(2, LEAST, 1));
    p.a.qp.post_send(&write(3, 0, 0));
    p.a.qp.post_send(&write(4, LONG, LONG).with_flags(0));
    let read = p.mine.sge(LEAST.into(), LEAST);
    p.a.qp
        .post_send(&Wr::read(5, &[read], p.theirs.remote(LEAST.into())));
    p.a.qp.post_send(&Wr::send(6, &[p.mine.sge(0, LONG)]));
    p.a.qp.post_send(&write(7, 0, 1));
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(2 * LEAST + 1 + LONG));
    p.a.cq.expect_none();
    w.carry(job);
    for wr_id in [1, 2, 3, 5] {
        p.a.cq.expect(wr_id, Status::Success);
    }
    p.a.cq.expect_none();
    // The READ has brought what the first WRITE had placed.
    let least = LEAST as usize;
    assert_eq!(p.mine.bytes(0, 2 * least), p.theirs.bytes(0, 2 * least));
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(LONG));
    w.carry(job);
    w.run();
    p.a.cq.expect(6, Status::Success);
    p.a.cq.expect(7, Status::Success);
    p.b.cq.expect(9, Status::Success);
    expect_jobs(&w, 2);
}

#[test]
fn pieces_in_one_region_share_a_reference() {
    let mut w = world();
    let p = pair(&mut w);
    let other = w.mr(LONG as usize);
    let targets = [&p.theirs, &other, &p.theirs, &other];
    for (wr_id, target) in (1..).zip(targets) {
        let at = wr_id * u64::from(LEAST);
        let wr = Wr::write(wr_id, &[p.mine.sge(at, LEAST)], target.remote(at));
        p.a.qp.post_send(&wr);
    }
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(4 * LEAST));
    for mr in [&p.mine, &p.theirs, &other] {
        // The region, the program and the job.
        assert_eq!(Rc::strong_count(&mr.region.memory), 3);
    }
    w.carry(job);
    let least = LEAST as usize;
    for (at, target) in (1..).zip(targets) {
        let at = at * u64::from(LEAST);
        assert_eq!(
            p.mine.bytes(at as usize, least),
            target.bytes(at as usize, least)
        );
    }
    for mr in [&p.mine, &p.theirs, &other] {
        w.engine.remove_mr(mr.key).unwrap();
        assert_eq!(Rc::strong_count(&mr.region.memory), 1);
    }
}

#[test]
fn an_inline_request_waits_for_the_job_before_it() {
    let mut w = world();
    let p = pair(&mut w);
    p.write(1, LONG);
    let inline = Wr::write(2, &[], p.theirs.remote(0)).inline(&[7; 16]);
    p.a.qp.post_send(&inline);
    let job = only_job(&mut w);
    assert_ne!(p.theirs.bytes(0, 16), [7; 16]);
    w.carry(job);
    p.a.cq.expect(1, Status::Success);
    p.a.cq.expect_none();
    w.run();
    p.a.cq.expect(2, Status::Success);
    assert_eq!(p.theirs.bytes(0, 16), [7; 16]);
}

#[test]
fn a_long_message_has_several_jobs() {
    let mut w = world();
    let (a, b) = w.pair();
    let [mine, theirs] = [3, 5].map(|seed| {
        let mr = w.mr(3 * MOST as usize);
        mr.fill(seed);
        mr
    });
    let length = 2 * MOST + 1;
    let drain = ferrule_engine::Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Default::default()
    };
    a.qp.post_send(&Wr::write(1, &[mine.sge(0, length)], theirs.remote(0)));
    a.qp.post_send(&Wr::write(2, &[mine.sge(0, 1)], theirs.remote(0)));
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(MOST));
    w.carry(job);
    // A request that has begun ends though the queue drains; the next one does not begin.
    w.modify(&a.qp, &drain).unwrap();
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(MOST));
    w.carry(job);
    a.cq.expect_none();
    // The rest is short.
    w.run();
    a.cq.expect(1, Status::Success);
    a.cq.expect_none();
    let drained = Event::Qp(a.qp.name, QpEvent::SendQueueDrained);
    assert_eq!(w.events(), [drained]);
    assert_eq!(
        mine.bytes(0, length as usize),
        theirs.bytes(0, length as usize)
    );
    w.to(&a.qp, State::Rts);
    w.run();
    a.cq.expect(2, Status::Success);
    drop(b);
}

#[test]
fn a_queue_that_drains_waits_for_its_job() {
    let mut w = world();
    let (a, _b) = w.pair();
    let [mine, theirs] = [(); 2].map(|()| w.mr(2 * MOST as usize));
    let drain = ferrule_engine::Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Default::default()
    };
    a.qp.post_send(&Wr::write(1, &[mine.sge(0, 2 * MOST)], theirs.remote(0)));
    let job = only_job(&mut w);
    w.carry(job);
    w.modify(&a.qp, &drain).unwrap();
    let job = only_job(&mut w);
    assert!(w.engine.query_qp(a.qp.id.number).unwrap().sq_draining);
    assert!(w.events().is_empty());
    w.carry(job);
    assert!(!w.engine.query_qp(a.qp.id.number).unwrap().sq_draining);
    a.cq.expect(1, Status::Success);
    assert_eq!(
        w.events(),
        [Event::Qp(a.qp.name, QpEvent::SendQueueDrained)]
    );
}

#[test]
fn a_request_that_fails_behind_others_fails_after_their_job() {
    // The peer refuses it, it is malformed, or its own memory is not what it should be.
    for number in 0..3 {
        for own_peer in [false, true] {
            let mut w = world();
            let mut p = pair(&mut w);
            if own_peer {
                p.b.cq = w.cq(16);
                p.b.qp = w.qp(&p.b.cq, &p.b.cq);
                p.a.cq = w.cq(16);
                p.a.qp = w.qp(&p.a.cq, &p.a.cq);
                w.connect(&p.a.qp, &p.a.qp);
            }
            p.write(1, LONG);
            p.write(2, LONG);
            let sge = p.mine.sge(0, LONG);
            let (wr, status) = match number {
                0 => (
                    Wr::write(3, &[sge], (p.theirs.iova, p.theirs.key ^ 1)),
                    Status::RemoteAccess,
                ),
                1 => (
                    Wr::write(3, &[sge], p.theirs.remote(0)).with_opcode(99),
                    Status::LocalOperation,
                ),
                _ => (
                    Wr::write(3, &[(sge.0, sge.1, sge.2 ^ 1)], p.theirs.remote(0)),
                    Status::LocalProtection,
                ),
            };
            p.a.qp.post_send(&wr);
            p.write(4, LONG);
            let job = only_job(&mut w);
            assert_eq!(job.bytes(), u64::from(2 * LONG));
            p.a.cq.expect_none();
            w.carry(job);
            w.run();
            for wr_id in [1, 2] {
                p.a.cq.expect(wr_id, Status::Success);
            }
            p.a.cq.expect(3, status);
            p.a.cq.expect(4, Status::Flushed);
            p.a.cq.expect_none();
            w.state(&p.a.qp, State::Err);
            if !own_peer {
                let peer = [State::Rts, State::Err][usize::from(number == 0)];
                w.state(&p.b.qp, peer);
            }
        }
    }
}

#[test]
fn completions_that_have_no_space_break_the_queue_pair() {
    let mut w = world();
    let (a, b) = (w.cq(4), w.cq(16));
    let (qp, peer) = (w.qp(&a, &a), w.qp(&b, &b));
    w.connect(&qp, &peer);
    w.connect(&peer, &qp);
    let mr = w.mr(LONG as usize);
    for wr_id in 0..5 {
        qp.post_send(&Wr::write(wr_id, &[mr.sge(0, LEAST)], mr.remote(0)));
    }
    let job = only_job(&mut w);
    w.carry(job);
    w.state(&qp, State::Err);
    w.run();
    for wr_id in 0..4 {
        a.expect(wr_id, Status::Success);
    }
    assert!(w.events().contains(&Event::Qp(qp.name, QpEvent::Fatal)));
    w.engine.remove_qp(qp.id.number).unwrap();
}

/// Beside others who wait for the shard, jobs that may have several requests copy shorter segments,
/// too.
#[test]
fn a_job_has_shorter_segments_beside_others() {
    const SHORT: u32 = LEAST / 2;
    for (is_contended, length, jobs) in [(false, SHORT, 0), (true, SHORT - 1, 0), (true, SHORT, 1)]
    {
        let mut w = world();
        w.host.is_contended = is_contended;
        let p = pair(&mut w);
        for wr_id in 0..9 {
            p.write(wr_id, length);
        }
        if jobs != 0 {
            let job = only_job(&mut w);
            assert_eq!(job.bytes(), 9 * u64::from(length));
            w.carry(job);
        }
        w.run();
        for wr_id in 0..9 {
            p.a.cq.expect(wr_id, Status::Success);
        }
        expect_jobs(&w, jobs);
        // A SEND would have a job of its own.
        p.b.qp.post_recv(1, &[p.theirs.sge(0, length)]);
        p.a.qp.post_send(&Wr::send(9, &[p.mine.sge(0, length)]));
        w.run();
        p.a.cq.expect(9, Status::Success);
        expect_jobs(&w, jobs);
    }
}
