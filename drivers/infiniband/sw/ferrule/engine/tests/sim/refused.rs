// SPDX-License-Identifier: GPL-2.0

//! Requests that the peer refuses.

use ferrule_engine::{Access, Modify, QpEvent, State, Status};

use super::{End, Event, TestMr, World, Wr, ALL};

/// Posts a request that the responder refuses, and checks how each side ends.
#[track_caller]
pub fn refused(
    prepare: impl Fn(&mut World, &End, &End) -> Wr,
    status: Status,
    event: Option<QpEvent>,
) {
    let mut w = World::new();
    let (a, b) = w.pair();
    let wr = prepare(&mut w, &a, &b);
    let posted = b.qp.rq_producer.get();
    a.qp.post_send(&Wr { wr_id: 1, ..wr }.with_flags(0));
    a.qp.post_send(&Wr::send(2, &[]).with_flags(0));
    w.run();
    a.cq.expect(1, status);
    a.cq.expect(2, Status::Flushed);
    a.cq.expect_none();
    w.state(&a.qp, State::Err);
    w.state(&b.qp, State::Err);
    for _ in 0..posted {
        b.cq.poll().expect("all receive requests end");
    }
    b.cq.expect_none();
    let events: Vec<_> = event
        .into_iter()
        .map(|event| Event::Qp(b.qp.name, event))
        .collect();
    assert_eq!(w.events(), events);
}

/// A request of the length of this entry, from or to it, at this place in the peer's memory.
pub type Request = fn(sge: (u64, u32, u32), remote: (u64, u32)) -> Wr;

/// The request is refused unless key, range, protection domain and rights of the region allow it.
pub fn refused_without_access(request: Request, right: Access) {
    let refused = |remote: &dyn Fn(&mut World, &TestMr) -> (u64, u32)| {
        refused(
            |w, _, b| {
                let mr = w.mr(64);
                b.qp.post_recv(5, &[mr.sge(0, 8)]);
                let remote = remote(w, &mr);
                request(mr.sge(0, 8), remote)
            },
            Status::RemoteAccess,
            Some(QpEvent::AccessError),
        );
    };
    // A wrong key, a wrong generation, before the start, beyond the end, around the end of the
    // address space, another protection domain, no right, and a region that is gone.
    refused(&|_, mr| (mr.iova, mr.key ^ 0x4000_0000));
    refused(&|_, mr| (mr.iova, mr.key ^ 1));
    refused(&|_, mr| (mr.iova - 1, mr.key));
    refused(&|_, mr| mr.remote(57));
    refused(&|_, mr| (u64::MAX - 3, mr.key));
    refused(&|w, mr| {
        let memory = mr.region.memory.clone();
        w.mr_with(2, ALL, memory, 0, 64).remote(0)
    });
    refused(&|w, mr| {
        let memory = mr.region.memory.clone();
        w.mr_with(1, Access(ALL.0 & !right.0), memory, 0, 64)
            .remote(0)
    });
    refused(&|w, _| {
        let gone = w.mr(64);
        w.engine.remove_mr(gone.key).unwrap();
        gone.remote(0)
    });
}

/// The request is refused unless the queue pair gives its peer the right.
pub fn refused_without_right(request: Request, right: Access) {
    refused_after(request, |w, b| {
        let rights = Modify {
            access: Some(Access(ALL.0 & !right.0)),
            ..Modify::default()
        };
        w.modify(&b.qp, &rights).unwrap();
    });
}

/// The request is refused if the queue pair has no resource for answers.
pub fn refused_without_resource(request: Request) {
    refused_after(request, |w, b| {
        w.to(&b.qp, State::Sqd);
        let none = Modify {
            max_dest_rd_atomic: Some(0),
            ..Modify::default()
        };
        w.modify(&b.qp, &none).unwrap();
    });
}

/// The request is refused as one that the queue pair does not take, after `change`.
fn refused_after(request: Request, change: impl Fn(&mut World, &End)) {
    refused(
        |w, _, b| {
            let mr = w.mr(64);
            b.qp.post_recv(5, &[mr.sge(0, 8)]);
            change(w, b);
            request(mr.sge(0, 8), mr.remote(8))
        },
        Status::RemoteInvalidRequest,
        Some(QpEvent::RequestError),
    );
}

/// A long request ends when a region of either side goes under way.
pub fn ended_by_a_region_that_goes(request: Request) {
    const LENGTH: u32 = 1 << 20;
    for remote in [false, true] {
        let mut w = World::new();
        let (a, b) = w.pair();
        let (mine, theirs) = (w.mr(LENGTH as usize), w.mr(LENGTH as usize));
        a.qp.post_send(&request(mine.sge(0, LENGTH), theirs.remote(0)));
        w.run_part(1 << 18);
        let gone = if remote { theirs.key } else { mine.key };
        w.engine.remove_mr(gone).unwrap();
        w.run();
        let (status, state) = if remote {
            (Status::RemoteAccess, State::Err)
        } else {
            (Status::LocalProtection, State::Rts)
        };
        a.cq.expect(1, status);
        w.state(&b.qp, state);
        assert_eq!(w.engine.counters().bytes, 1 << 18);
    }
}
