// SPDX-License-Identifier: GPL-2.0

//! The order of events: refusals, and the end of a drain.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::{Modify, State, Status};

use super::pair;
use crate::sim::network::{Faults, Link};
use crate::sim::{Event, Wr};

#[test]
fn refusals_are_told_after_all_before_has_ended() {
    let cases = [
        (wr_opcode::RDMA_WRITE, Status::RemoteAccess),
        (wr_opcode::RDMA_READ, Status::RemoteAccess),
        (wr_opcode::ATOMIC_FETCH_AND_ADD, Status::RemoteAccess),
    ];
    for (opcode, status) in cases {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
        peer.post_recv(9, &[]);
        qp.post_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
        qp.post_send(
            &Wr::write(2, &[mr.sge(0, 4000)], peer_mr.remote(0)).with_opcode(wr_opcode::RDMA_READ),
        );
        let mut bad =
            Wr::write(3, &[mr.sge(0, 8)], (peer_mr.iova, peer_mr.key ^ 1)).with_opcode(opcode);
        if opcode != wr_opcode::ATOMIC_FETCH_AND_ADD {
            bad.extra = [0; 16];
        }
        qp.post_send(&bad);
        qp.post_send(&Wr::send(4, &[mr.sge(0, 8)]));
        link.settle();
        cq.expect(1, Status::Success);
        cq.expect(2, Status::Success);
        cq.expect(3, status);
        cq.expect(4, Status::Flushed);
        peer_cq.expect(9, Status::Flushed);
        link.worlds[0].state(&qp, State::Err);
        link.worlds[1].state(&peer, State::Err);
    }
}

#[test]
fn the_send_queue_drains() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    for i in 0..4 {
        qp.post_send(&Wr::write(i, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    }
    link.run();
    let drain = Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Modify::default()
    };
    link.worlds[0].modify(&qp, &drain).unwrap();
    assert!(link.worlds[0].query(&qp).sq_draining);
    qp.post_send(&Wr::write(9, &[mr.sge(0, 8)], peer_mr.remote(0)));
    link.settle();
    assert!(!link.worlds[0].query(&qp).sq_draining);
    for i in 0..4 {
        cq.expect(i, Status::Success);
    }
    cq.expect_none();
    let drained = link.worlds[0].events();
    assert_eq!(
        drained,
        [Event::Qp(
            qp.name,
            ferrule_engine::QpEvent::SendQueueDrained
        )]
    );
    link.worlds[0].to(&qp, State::Rts);
    link.settle();
    cq.expect(9, Status::Success);
}
