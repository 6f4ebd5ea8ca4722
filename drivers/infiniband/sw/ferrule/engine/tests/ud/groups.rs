// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: their members, and the datagrams that reach them.

use ferrule_engine::{Error, Gid, Modify, Path, Status, MAX_MCAST_QP_ATTACH};

use super::{group, local, Scene, MULTICAST, QKEY};
use crate::sim::*;

#[test]
fn groups_reach_all_who_are_attached() {
    let mut s = Scene::new();
    let (first, second) = (group(1), group(2));
    let ah = s.w.ah(1, first);
    let others: Vec<_> = (0..5).map(|_| s.w.ud(&QpSpec::default(), QKEY)).collect();
    for end in &others[..4] {
        s.attach(&end.qp, first.dgid).unwrap();
    }
    s.attach(&others[4].qp, second.dgid).unwrap();
    let sender = s.a.qp.clone();
    s.attach(&sender, first.dgid).unwrap();
    // One has no receive request, one another Q_Key.
    for (i, end) in others.iter().enumerate().skip(1) {
        end.qp.post_recv(1, &[s.to.sge(i as u64 * 200, 200)]);
    }
    s.a.qp.post_recv(1, &[s.to.sge(1000, 200)]);
    let modify = Modify {
        qkey: Some(5),
        ..Modify::default()
    };
    s.w.modify(&others[3].qp, &modify).unwrap();
    let wr = Wr::datagram(2, &[s.from.sge(0, 99)], (ah, MULTICAST), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    assert_eq!(s.a.cq.expect(1, Status::Success).byte_len, 139);
    s.a.cq.expect(2, Status::Success);
    for i in [1, 2] {
        others[i].cq.expect(1, Status::Success);
        assert_eq!(s.to.bytes(i * 200 + 40, 99), s.from.bytes(0, 99));
        assert_eq!(s.to.bytes(i * 200 + 36, 4), [239, 1, 2, 1]);
    }
    assert_eq!(s.to.bytes(1040, 99), s.from.bytes(0, 99));
    for i in [0, 3, 4] {
        others[i].cq.expect_none();
    }
    assert_eq!(s.dropped(), 2);
    // To a group by another number than that for groups: nobody.
    let wr = Wr::datagram(3, &[], (ah, others[1].qp.id.number), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(3, Status::Success);
    assert_eq!(s.dropped(), 3);
}

#[test]
fn a_queue_pair_is_attached_until_detached() {
    let mut s = Scene::new();
    let gid = group(1).dgid;
    let (a, b) = (s.a.qp.clone(), s.b.qp.clone());
    let cq = s.w.cq(8);
    let rc = s.w.qp(&cq, &cq);
    assert_eq!(s.attach(&rc, gid), Err(Error::Invalid));
    assert_eq!(s.attach(&a, local().dgid), Err(Error::Invalid));
    for number in 0..200 {
        s.attach(&a, group(number).dgid).unwrap();
    }
    s.attach(&b, gid).unwrap();
    assert_eq!(s.w.engine.objects().groups, 200);
    assert_eq!(s.attach(&a, gid), Err(Error::Invalid));
    assert_eq!(s.w.engine.remove_qp(a.id.number).err(), Some(Error::Busy));
    for number in 0..200 {
        let gid = group(number).dgid;
        let left = s.w.engine.detach_mcast(a.id.number, &gid).unwrap();
        assert_eq!(left.is_some(), number != 1, "memory of the last comes back");
        let again = s.w.engine.detach_mcast(a.id.number, &gid);
        assert_eq!(again.err(), Some(Error::NotFound));
    }
    assert!(s.w.engine.remove_qp(a.id.number).is_ok());
    assert_eq!(s.w.engine.remove_qp(b.id.number).err(), Some(Error::Busy));
    assert!(s
        .w
        .engine
        .detach_mcast(b.id.number, &gid)
        .unwrap()
        .is_some());
    assert_eq!(s.w.engine.objects().queue_pairs, 2);
    assert!(s.w.engine.remove_qp(b.id.number).is_ok());
    let objects = s.w.engine.objects();
    assert_eq!((objects.groups, objects.queue_pairs), (0, 1));
    assert_eq!((objects.completion_queues, objects.regions), (3, 2));
    assert_eq!((objects.address_handles, objects.user_contexts), (1, 1));
}

#[test]
fn a_group_is_full_with_so_many() {
    let mut s = Scene::new();
    let gid: Gid = [0xff; 16];
    let ends: Vec<_> = (0..=MAX_MCAST_QP_ATTACH)
        .map(|_| s.w.ud(&QpSpec::default(), QKEY))
        .collect();
    for end in &ends[1..] {
        s.attach(&end.qp, gid).unwrap();
        end.qp.post_recv(1, &[s.to.sge(0, 2000)]);
    }
    assert_eq!(s.attach(&ends[0].qp, gid), Err(Error::Full));
    let ah = s.w.ah(
        1,
        Path {
            dgid: gid,
            ..local()
        },
    );
    let wr = Wr::datagram(2, &[s.from.sge(0, 1024)], (ah, MULTICAST), QKEY);
    s.a.qp.post_send(&wr);
    s.w.run();
    s.a.cq.expect(2, Status::Success);
    for end in &ends[1..] {
        end.cq.expect(1, Status::Success);
    }
}
