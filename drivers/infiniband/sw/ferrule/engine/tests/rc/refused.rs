// SPDX-License-Identifier: GPL-2.0

//! Requests that fail, at the responder or before it.

use ferrule_engine::{abi, Access, Modify, Mtu, QpEvent, State, Status};

use crate::sim::refused::*;
use crate::sim::*;
use abi::wr_flags;

#[test]
fn remote_access_is_refused() {
    let write: Request = |sge, remote| Wr::write(1, &[sge], remote);
    refused_without_access(write, Access::REMOTE_WRITE);
    refused_without_right(write, Access::REMOTE_WRITE);
    // And where the memory cannot be reached.
    refused(
        |w, _, _| {
            let mr = w.mr(64);
            mr.region.broken.set(true);
            let source = w.mr(64);
            Wr::write(1, &[source.sge(0, 8)], mr.remote(0))
        },
        Status::RemoteAccess,
        Some(QpEvent::AccessError),
    );
}

#[test]
fn message_longer_than_its_buffer_is_refused() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(64), w.mr(64));
    from.fill(1);
    b.qp.post_recv(1, &[to.sge(0, 4), to.sge(8, 3)]);
    b.qp.post_recv(2, &[to.sge(0, 64)]);
    a.qp.post_send(&Wr::send(3, &[from.sge(0, 8)]));
    w.run();
    b.cq.expect(1, Status::LocalLength);
    b.cq.expect(2, Status::Flushed);
    a.cq.expect(3, Status::RemoteInvalidRequest);
    assert_eq!(to.bytes(0, 64), [0; 64]);
    w.state(&a.qp, State::Err);
    w.state(&b.qp, State::Err);
    assert_eq!(w.events(), []);
}

#[test]
fn receive_buffer_that_is_none_ends_both_sides() {
    let access = Access::REMOTE_WRITE;
    for case in 0..4 {
        let mut w = World::new();
        let (a, b) = w.pair();
        let mr = w.mr(64);
        let read_only = w.mr_with(1, access, mr.region.memory.clone(), 0, 64);
        match case {
            0 => b.qp.post_recv(1, &[(mr.iova, 8, mr.key ^ 1)]),
            1 => b.qp.post_recv(1, &[mr.sge(60, 8)]),
            2 => b.qp.post_recv(1, &[read_only.sge(0, 8)]),
            _ => {
                let broken = w.mr(64);
                broken.region.broken.set(true);
                b.qp.post_recv(1, &[broken.sge(0, 8)]);
            }
        }
        a.qp.post_send(&Wr::send(3, &[mr.sge(0, 8)]));
        w.run();
        b.cq.expect(1, Status::LocalProtection);
        a.cq.expect(3, Status::RemoteOperation);
        w.state(&a.qp, State::Err);
        w.state(&b.qp, State::Err);
        assert_eq!(w.events(), []);
    }
}

#[test]
fn local_errors_reach_no_peer() {
    type Case = (fn(&TestMr) -> Wr, Status);
    let cases: [Case; 10] = [
        (
            |mr| Wr::send(1, &[(mr.iova, 8, mr.key ^ 1)]),
            Status::LocalProtection,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8), mr.sge(60, 8)]),
            Status::LocalProtection,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 1 << 31), mr.sge(0, 1)]),
            Status::LocalLength,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, u32::MAX), mr.sge(0, u32::MAX)]),
            Status::LocalLength,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_opcode(99),
            Status::LocalOperation,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_opcode(9),
            Status::LocalOperation,
        ),
        (
            |mr| Wr::send(1, &[mr.sge(0, 8)]).with_flags(1 << 6),
            Status::LocalOperation,
        ),
        (
            |mr| Wr {
                extra: [1; 16],
                ..Wr::send(1, &[mr.sge(0, 8)])
            },
            Status::LocalOperation,
        ),
        (
            // Says inline, but has a list.
            |mr| Wr {
                flags: wr_flags::INLINE,
                ..Wr::send(1, &[mr.sge(0, 8)])
            },
            Status::LocalOperation,
        ),
        (
            // Has inline data, but does not say so.
            |_| Wr {
                flags: 0,
                ..Wr::send(1, &[]).inline(&[1; 8])
            },
            Status::LocalOperation,
        ),
    ];
    for (i, (wr, status)) in cases.into_iter().enumerate() {
        let mut w = World::new();
        let (a, b) = w.pair();
        let mr = w.mr(64);
        b.qp.post_recv(5, &[mr.sge(0, 64)]);
        a.qp.post_send(&wr(&mr));
        a.qp.post_send(&Wr::send(2, &[]).with_flags(0));
        w.settle(1000 * MS);
        let wc = a.cq.expect(1, status);
        assert!(wc.opcode & 128 == 0, "case {i}");
        a.cq.expect(2, Status::Flushed);
        w.state(&a.qp, State::Err);
        w.state(&b.qp, State::Rts);
        b.cq.expect_none();
        assert_eq!(w.events(), []);
    }
}

#[test]
fn more_entries_than_promised_are_malformed() {
    let mut w = World::new();
    let (a, b) = w.pair_with(&QpSpec {
        max_sge: 2,
        max_inline: 256,
        ..QpSpec::default()
    });
    let mr = w.mr(64);
    let three = [mr.sge(0, 8), mr.sge(8, 8), mr.sge(16, 8)];
    a.qp.post_send(&Wr::send(1, &three));
    b.qp.post_recv(2, &three);
    w.run();
    a.cq.expect(1, Status::LocalOperation);
    w.state(&b.qp, State::Rts);
    // In the receive queue it is found when a message comes.
    let (c, d) = w.pair_with(&QpSpec {
        max_sge: 2,
        ..QpSpec::default()
    });
    d.qp.post_recv(2, &three);
    c.qp.post_send(&Wr::send(1, &three[..2]));
    w.run();
    d.cq.expect(2, Status::LocalOperation);
    c.cq.expect(1, Status::RemoteOperation);
}

#[test]
fn region_that_goes_during_a_long_message_ends_it() {
    ended_by_a_region_that_goes(|sge, remote| Wr::write(1, &[sge], remote));
}

/// A quarter of a SEND from the first end to the second has arrived.
fn long_message() -> (World, End, End, TestMr) {
    const LENGTH: u32 = 1 << 20;
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(LENGTH as usize);
    b.qp.post_recv(9, &[mr.sge(0, LENGTH)]);
    a.qp.post_send(&Wr::send(1, &[mr.sge(0, LENGTH)]));
    w.run_part(1 << 18);
    (w, a, b, mr)
}

#[test]
fn peer_that_goes_during_a_long_message_is_missed() {
    let (mut w, a, b, _) = long_message();
    drop(w.engine.remove_qp(b.qp.id.number).unwrap());
    w.settle(10_000 * MS);
    a.cq.expect(1, Status::RetryExceeded);
    b.cq.expect_none();
}

#[test]
fn message_that_begins_within_another_is_refused() {
    let (mut w, a, b, mr) = long_message();
    // The requester starts over, and its peer does not know.
    let psn = w.query(&b.qp).attr.rq_psn;
    w.to(&a.qp, State::Reset);
    a.qp.rewind();
    w.connect_rtr(&a.qp, &b.qp);
    let rts = Modify {
        sq_psn: Some(psn),
        path_mtu: None,
        ..rts()
    };
    w.modify(&a.qp, &rts).unwrap();
    assert_eq!(w.query(&a.qp).attr.path_mtu, Mtu::Mtu1024);
    a.qp.post_send(&Wr::send(2, &[mr.sge(0, 8)]));
    w.run();
    a.cq.expect(2, Status::RemoteInvalidRequest);
    b.cq.expect(9, Status::Flushed);
    assert_eq!(w.events(), [Event::Qp(b.qp.name, QpEvent::RequestError)]);
}

/// A message that its sender cannot read any more, when the receiver is ready at last, leaves the
/// receive request to the next.
#[test]
fn receive_request_is_not_lost_with_its_message() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, gone, to) = (w.mr(64), w.mr(64), w.mr(64));
    a.qp.post_send(&Wr::send(1, &[gone.sge(0, 64)]));
    w.run();
    assert!(w.engine.remove_mr(gone.key).is_ok());
    b.qp.post_recv(1, &[to.sge(0, 64)]);
    b.qp.post_recv(2, &[to.sge(0, 64)]);
    w.settle(10 * MS);
    a.cq.expect(1, Status::LocalProtection);
    b.cq.expect_none();

    w.to(&a.qp, State::Reset);
    a.qp.rewind();
    w.connect(&a.qp, &b.qp);
    for id in [1, 2] {
        from.fill(id);
        a.qp.post_send(&Wr::send(id.into(), &[from.sge(0, 64)]));
        w.run();
        a.cq.expect(id.into(), Status::Success);
        b.cq.expect(id.into(), Status::Success);
        assert_eq!(to.bytes(0, 64), from.bytes(0, 64));
    }
}
