// SPDX-License-Identifier: GPL-2.0

//! A context that ends, and objects that are in use.

use ferrule_engine::{Error, Mw, MwType, State, Status};

use crate::sim::*;

#[test]
fn context_ends_with_its_work() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let cq = w.cq(16);
    let fresh = w.qp(&cq, &cq);
    let mr = w.mr(64);
    let other = w.context();
    let c = w.qp_in(Some(&other), &QpSpec::default(), &cq, &cq);
    w.connect(&c, &c);
    c.post_recv(3, &[]);
    a.qp.post_send(&Wr::send(1, &[mr.sge(0, 8)]));
    w.run();
    b.qp.post_recv(2, &[]);
    assert_eq!(w.engine.fail_context(&mut w.host, w.context.id, 0), None);
    w.run();
    w.engine.set_context_dead(w.context.id);
    a.cq.expect(1, Status::Flushed);
    b.cq.expect(2, Status::Flushed);
    w.state(&a.qp, State::Err);
    w.state(&fresh, State::Reset);
    assert!(w.context.doorbells.0.dead.get());
    assert!(!other.doorbells.0.dead.get());
    cq.expect_none();
    w.state(&c, State::Rts);
}

#[test]
fn objects_in_use_are_kept() {
    let mut w = World::new();
    let (send, recv) = (w.cq(16), w.cq(16));
    let qp = w.qp(&send, &recv);
    assert_eq!(w.engine.remove_cq(send.cqn).err(), Some(Error::Busy));
    assert_eq!(w.engine.remove_cq(recv.cqn).err(), Some(Error::Busy));
    assert_eq!(
        w.engine.remove_context(w.context.id).err(),
        Some(Error::Busy)
    );
    drop(w.engine.remove_qp(qp.id.number).unwrap());
    assert_eq!(
        w.engine.remove_qp(qp.id.number).err(),
        Some(Error::NotFound)
    );
    drop(w.engine.remove_cq(send.cqn).unwrap());
    drop(w.engine.remove_cq(recv.cqn).unwrap());
    drop(w.engine.remove_context(w.context.id).unwrap());
    assert_eq!(w.engine.remove_cq(send.cqn).err(), Some(Error::NotFound));
    let mr = w.mr(64);
    drop(w.engine.remove_mr(mr.key).unwrap());
    assert_eq!(w.engine.remove_mr(mr.key).err(), Some(Error::NotFound));
}

/// A table takes a chunk only when it is full, and hands a further one back.
#[test]
fn a_chunk_too_many_comes_back() {
    let mut w = World::new();
    let Err(refused) = w.engine.add_mw(Box::new(Mw::new(1, MwType::Type1))) else {
        panic!("an empty table has no space");
    };
    let Error::NeedChunk(need) = refused.error else {
        panic!("{:?}", refused.error);
    };
    assert!(w.engine.add_chunk(need.allocate().unwrap()).is_none());
    assert!(w.engine.add_chunk(need.allocate().unwrap()).is_some());
    for _ in 0..64 {
        assert!(w.engine.add_mw(Box::new(Mw::new(1, MwType::Type1))).is_ok());
    }
    assert!(w
        .engine
        .add_mw(Box::new(Mw::new(1, MwType::Type1)))
        .is_err());
}
