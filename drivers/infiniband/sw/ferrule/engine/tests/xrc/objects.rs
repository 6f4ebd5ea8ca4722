// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of XRC and their queues as objects: attributes, operations, counts.

use super::*;

#[test]
fn a_side_has_its_own_attributes_and_operations_alone() {
    let mut w = World::new();
    let cq = w.cq(16);
    for (spec, sends) in [(initiator(), true), (target(), false)] {
        let qp = w.qp_with(&spec, &cq, &cq);
        for modify in [init(), rtr(9), rts()] {
            let mut own = modify;
            of_xrc_side(&mut own, sends);
            // Those of the other side are refused, and none of its own may be missing.
            if own != modify {
                assert_eq!(w.modify(&qp, &modify), Err(Error::Invalid));
            }
            w.modify(&qp, &own).unwrap();
        }
    }
    // Annex A19 knows RC alone.
    let mut s = Scene::local();
    let (srq, _, mr) = s.receiver(PD, DOMAIN);
    s.a.qp.post_send(&Wr::flush(1, mr.remote(0), 8));
    s.post(Wr::send(2, &[]), &srq);
    s.run();
    s.a.cq.expect(1, Status::LocalOperation);
    s.a.cq.expect(2, Status::Flushed);
    // A number has 24 bits, and what is reserved is 0.
    let mut reserved = Wr::send(1, &[]).to_srq(0);
    reserved.extra[15] = 1;
    let large = Wr::send(1, &[]).to_srq(1 << 24);
    for wr in [reserved, large] {
        let mut s = Scene::local();
        s.a.qp.post_send(&wr);
        s.run();
        s.a.cq.expect(1, Status::LocalOperation);
    }
    let mut s = Scene::local();
    let add = Wr::fetch_add(1, s.from.sge(0, 8), (0, 0), 1);
    s.a.qp.post_send(&add.to_srq(1 << 24));
    s.run();
    s.a.cq.expect(1, Status::LocalOperation);
}

#[test]
fn objects_are_counted_and_checked() {
    let mut w = World::new();
    let cq = w.cq(16);
    let srq = w.xrc_srq(PD, DOMAIN, &cq);
    assert_eq!(w.engine.remove_cq(cq.cqn).err(), Some(Error::Busy));
    let spec = QpSpec {
        srq: Some(srq.number),
        ..QpSpec::default()
    };
    let context = w.context.clone();
    // Queue pairs are made with basic queues alone.
    let made = w.try_qp_in(Some(&context), &spec, &cq, &cq);
    assert_eq!(made.err(), Some(Error::NotFound));
    w.engine.remove_srq(srq.number).unwrap();
    assert_eq!(w.engine.remove_srq(srq.number).err(), Some(Error::NotFound));
    w.engine.remove_cq(cq.cqn).unwrap();
    let xrc = XrcSrq {
        domain: DOMAIN,
        cq: cq.cqn,
    };
    assert_eq!(w.try_srq(PD, 16, 1, Some(xrc)).err(), Some(Error::NotFound));
}
