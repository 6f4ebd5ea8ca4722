// SPDX-License-Identifier: GPL-2.0

//! How often, and for how long, a request is tried again.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::{State, Status};

use super::pair;
use crate::sim::network::{Faults, Link};
use crate::sim::{silence, Wr, MS};

/// A network that loses each packet.
fn all_lost() -> Faults {
    Faults {
        lost: 1000,
        ..Faults::default()
    }
}

/// A connection over which nothing arrives fails after as many retries as the count says, each
/// after the timeout (C9-139, C9-140), which the first two double. So does 7, but where the engine
/// was told that it stands for no limit.
#[test]
fn retries_are_as_many_as_the_count_says() {
    for (count, for_ever) in (0..8).map(|n| (n, false)).chain((0..7).map(|n| (n, true))) {
        for kind in [
            wr_opcode::SEND,
            wr_opcode::RDMA_READ,
            wr_opcode::ATOMIC_FETCH_AND_ADD,
            wr_opcode::ATOMIC_WRITE,
            wr_opcode::FLUSH,
        ] {
            retries_of(kind, count, for_ever);
        }
    }
}

fn retries_of(kind: u8, count: u8, for_ever: bool) {
    let mut link = Link::new(1, all_lost(), for_ever);
    let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |modify| {
        if modify.retry_cnt.is_some() {
            modify.retry_cnt = Some(count);
            modify.timeout = Some(10);
        }
    });
    qp.post_send(&match kind {
        wr_opcode::RDMA_READ => Wr::read(1, &[mr.sge(0, 3000)], theirs.remote(0)),
        wr_opcode::ATOMIC_FETCH_AND_ADD => Wr::fetch_add(1, mr.sge(0, 8), theirs.remote(0), 1),
        wr_opcode::ATOMIC_WRITE => Wr::atomic_write(1, theirs.remote(0), 1),
        wr_opcode::FLUSH => Wr::flush(1, theirs.remote(0), 3000),
        _ => Wr::send(1, &[mr.sge(0, 3000)]),
    });
    qp.post_send(&Wr::send(2, &[mr.sge(0, 10)]));
    link.settle();
    cq.expect(1, Status::RetryExceeded);
    cq.expect(2, Status::Flushed);
    cq.expect_none();
    assert_eq!(link.now, silence(count, 10));
    assert_eq!(link.worlds[0].engine.counters().retries, count.into());
    link.worlds[0].state(&qp, State::Err);
}

/// Nothing arrives for so long, and then everything does: the request ends well. `timeout` is that
/// of the retries, of which there are 7. Returns how many were taken.
fn retries_of_a_silence(ms: u64, timeout: u8, for_ever: bool) -> u64 {
    let mut link = Link::new(1, all_lost(), for_ever);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |modify| {
        if modify.retry_cnt.is_some() {
            modify.retry_cnt = Some(7);
            modify.timeout = Some(timeout);
        }
    });
    peer.post_recv(9, &[peer_mr.sge(0, 4096)]);
    qp.post_send(&Wr::send(1, &[mr.sge(0, 3000)]));
    while link.now < ms * MS {
        assert!(link.step());
    }
    cq.expect_none();
    link.network.faults.lost = 0;
    link.settle();
    cq.expect(1, Status::Success);
    peer_cq.expect(9, Status::Success);
    link.worlds[0].engine.counters().retries
}

/// A peer that stands still for a second and a half, as guests do whose host is busy, is reached
/// again.
#[test]
fn a_peer_that_stands_still_is_not_lost() {
    assert_eq!(retries_of_a_silence(1500, 14, false), 7);
}

/// 7 is seven retries, and without limit where the engine was told so.
#[test]
fn seven_retries_may_stand_for_no_limit() {
    assert!(retries_of_a_silence(1000, 10, true) > 7);
}

#[test]
fn receiver_not_ready_is_waited_for() {
    for retries in 0..7u8 {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), _] = pair(&mut link, |modify| {
            if modify.rnr_retry.is_some() {
                modify.rnr_retry = Some(retries);
            }
        });
        qp.post_send(&Wr::send(1, &[mr.sge(0, 100)]));
        link.settle();
        cq.expect(1, Status::RnrRetryExceeded);
        assert_eq!(
            link.worlds[0].engine.counters().receiver_not_ready,
            u64::from(retries) + 1
        );
    }
    // 7 is for ever (9.7.5.2.8).
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
    qp.post_send(&Wr::send(1, &[mr.sge(0, 100)]));
    while link.now < 10_000 * MS {
        assert!(link.step());
    }
    cq.expect_none();
    peer.post_recv(9, &[peer_mr.sge(0, 100)]);
    link.settle();
    cq.expect(1, Status::Success);
    peer_cq.expect(9, Status::Success);
}

#[test]
fn a_busy_host_is_asked_again() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    mr.fill(3);
    link.worlds[0].host.busy = 5;
    link.worlds[1].host.busy = 3;
    qp.post_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    link.settle();
    cq.expect(1, Status::Success);
    assert_eq!(peer_mr.bytes(0, 5000), mr.bytes(0, 5000));
    assert_eq!(link.worlds[0].engine.counters().retries, 0);
}

/// A request that changes a key waits for the end of those before it, and so an answer is asked
/// for.
#[test]
fn a_request_that_waits_for_a_response_asks_for_one() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    qp.put_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    // It is no key that can be invalidated, of which one hears when it is tried.
    qp.put_send(&Wr::local_inv(2, mr.key));
    qp.ring();
    link.settle();
    cq.expect(1, Status::Success);
    cq.expect(2, Status::WindowBind);
    assert_eq!(link.worlds[0].engine.counters().unanswered, 0);
}
