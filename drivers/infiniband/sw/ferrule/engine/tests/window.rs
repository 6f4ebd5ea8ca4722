// SPDX-License-Identifier: GPL-2.0

//! Memory windows: bound, used, invalidated; and faults.

mod keys;
mod rereg;

use ferrule_engine::{abi, Access, MwType, QpEvent, QpType, State, Status};

use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_opcode};

/// A region that windows can be bound to.
fn bindable(w: &mut World, length: usize) -> TestMr {
    w.mr_with(1, BINDABLE, memory::shared(length), 0, length)
}

/// The key behind this one.
fn next(key: u32) -> u32 {
    key & !0xff | (key + 1) & 0xff
}

/// Posts a request that has to succeed.
#[track_caller]
fn good(w: &mut World, end: &End, wr: Wr) -> Wc {
    let wr_id = wr.wr_id;
    end.qp.post_send(&wr);
    w.run();
    end.cq.expect(wr_id, Status::Success)
}

/// A bind that has to fail, and fails the queue pair alone that asked for it.
#[track_caller]
fn bad(w: &mut World, wr: &Wr) {
    let (a, b) = w.pair();
    a.qp.post_send(wr);
    w.run();
    a.cq.expect(wr.wr_id, Status::WindowBind);
    w.state(&a.qp, State::Err);
    w.state(&b.qp, State::Rts);
    assert_eq!(w.events(), []);
}

/// Whether the peer of `by` can write there.
fn opens(w: &mut World, by: &End, remote: (u64, u32)) -> bool {
    // A connection of its own for each try would not be the one that a window opens to; so the
    // answer is asked of the same queue pair, which is connected anew.
    let source = w.mr(64);
    source.fill(1);
    let cq = w.cq(16);
    let peer = w.qp(&cq, &cq);
    for qp in [&by.qp, &peer] {
        w.to(qp, State::Reset);
        qp.rewind();
    }
    w.connect(&by.qp, &peer);
    w.connect(&peer, &by.qp);
    peer.post_send(&Wr::write(1, &[source.sge(0, 8)], remote));
    w.run();
    w.events();
    let wc = cq.poll().expect("no completion");
    let opens = wc.status == Status::Success as u8;
    if !opens {
        assert_eq!(wc.status, Status::RemoteAccess as u8);
        // The refusal was the end of the queue pair: it is made ready for the next request.
        w.to(&by.qp, State::Reset);
        by.qp.rewind();
        w.connect(&by.qp, &peer);
    }
    opens
}

/// A window of type 1 that is bound to 64 bytes: the key that it was made with, and the one that
/// opens it.
fn bound(w: &mut World, end: &End, mr: &TestMr) -> (u32, u32) {
    let mw = w.mw(1, MwType::Type1);
    let key = next(mw);
    good(w, end, Wr::bind(1, mw, key, mr.remote(0), 64));
    (mw, key)
}

#[test]
fn window_of_type_1_is_bound_moved_and_unbound() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(64), bindable(&mut w, 256));
    mine.fill(1);
    let first = w.mw(1, MwType::Type1);
    let key = next(first);
    let wc = good(&mut w, &b, Wr::bind(1, first, key, theirs.remote(100), 50));
    assert_eq!(wc.opcode, wc_opcode::BIND_MW);
    // Nothing was sent for it.
    assert_eq!(w.query(&b.qp).attr.sq_psn, SQ_PSN);
    let write = Wr::write(2, &[mine.sge(0, 50)], (theirs.iova + 100, key));
    good(&mut w, &a, write);
    assert_eq!(theirs.bytes(100, 50), mine.bytes(0, 50));
    // Bound elsewhere: under the new key alone, and there alone.
    let moved = next(key);
    good(&mut w, &b, Wr::bind(3, key, moved, theirs.remote(10), 8));
    assert!(w.engine.query_mr(theirs.key).unwrap().has_windows());
    assert!(!opens(&mut w, &b, (theirs.iova + 10, key)));
    assert!(!opens(&mut w, &b, (theirs.iova + 100, moved)));
    assert!(!opens(&mut w, &b, (theirs.iova + 11, moved)));
    assert!(!opens(&mut w, &b, (theirs.iova + 9, moved)));
    assert!(opens(&mut w, &b, (theirs.iova + 10, moved)));
    // Bound to nothing: no region is looked at.
    let none = next(moved);
    good(&mut w, &b, Wr::bind(4, moved, none, (0, 0), 0));
    assert!(!w.engine.query_mr(theirs.key).unwrap().has_windows());
    assert!(!opens(&mut w, &b, (theirs.iova + 10, none)));
    assert!(!opens(&mut w, &b, (0, none)));
}

#[test]
fn window_of_type_1_opens_to_its_domain() {
    let mut w = World::new();
    let (_a, b) = w.pair();
    let (_c, d) = w.pair();
    let (_e, f) = w.pair_with(&QpSpec {
        pd: 2,
        ..QpSpec::default()
    });
    let theirs = bindable(&mut w, 64);
    let first = w.mw(1, MwType::Type1);
    let key = next(first);
    good(&mut w, &b, Wr::bind(1, first, key, theirs.remote(0), 64));
    assert!(opens(&mut w, &b, (theirs.iova, key)));
    assert!(opens(&mut w, &d, (theirs.iova, key)));
    assert!(!opens(&mut w, &f, (theirs.iova, key)));
    // It is no local key.
    let (g, h) = w.pair();
    g.qp.post_send(&Wr::send(1, &[(theirs.iova, 8, key)]));
    w.run();
    g.cq.expect(1, Status::LocalProtection);
    w.state(&h.qp, State::Rts);
}

#[test]
fn window_of_type_2_opens_to_its_queue_pair() {
    let mut w = World::new();
    let (_a, b) = w.pair();
    let (_c, d) = w.pair();
    let theirs = bindable(&mut w, 64);
    let first = w.mw(1, MwType::Type2);
    let key = first ^ 0x55;
    good(&mut w, &b, Wr::bind(1, first, key, theirs.remote(8), 16));
    assert!(opens(&mut w, &b, (theirs.iova + 8, key)));
    assert!(!opens(&mut w, &d, (theirs.iova + 8, key)));
    assert!(!opens(&mut w, &b, (theirs.iova, key)));
    assert!(!opens(&mut w, &b, (theirs.iova + 8, first)));
    // Bound once more it can be when it was invalidated, and that by its queue pair alone.
    let (e, _f) = w.pair();
    e.qp.post_send(&Wr::local_inv(5, key));
    w.run();
    e.cq.expect(5, Status::WindowBind);
    let mut again = Wr::bind(2, key, key ^ 1, theirs.remote(8), 16);
    bad(&mut w, &again);
    assert!(opens(&mut w, &b, (theirs.iova + 8, key)));
    let wc = good(&mut w, &b, Wr::local_inv(3, key));
    assert_eq!(wc.opcode, wc_opcode::LOCAL_INV);
    assert!(!opens(&mut w, &b, (theirs.iova + 8, key)));
    assert!(!w.engine.query_mr(theirs.key).unwrap().has_windows());
    // An address within the window, if it is asked for.
    again = again.with_access(Access::REMOTE_WRITE.or(Access::ZERO_BASED));
    good(&mut w, &b, again);
    assert!(opens(&mut w, &b, (8, key ^ 1)));
    assert!(!opens(&mut w, &b, (9, key ^ 1)));
    assert!(!opens(&mut w, &b, (theirs.iova + 8, key ^ 1)));
    let at_eight = theirs.bytes(8, 16);
    assert_ne!(at_eight[8..], [0; 8]);
    // The queue pair is gone, and nobody gets in any more.
    let id = b.qp.id;
    drop(w.engine.remove_qp(id.number).unwrap());
    let (_g, h) = w.pair();
    assert_ne!(h.qp.id, id);
    assert!(!opens(&mut w, &h, (8, key ^ 1)));
}

#[test]
fn window_gives_no_more_than_it_was_bound_with() {
    let mut w = World::new();
    let (a, b) = w.pair();
    // To peers the region itself gives nothing.
    let access = Access::LOCAL_WRITE.or(Access::MW_BIND);
    let theirs = w.mr_with(1, access, memory::shared(64), 0, 64);
    let mine = w.mr(64);
    let first = w.mw(1, MwType::Type1);
    let key = next(first);
    let bind = Wr::bind(1, first, key, theirs.remote(0), 64);
    good(
        &mut w,
        &b,
        bind.with_access(Access::REMOTE_READ.or(Access::REMOTE_ATOMIC)),
    );
    let remote = (theirs.iova, key);
    good(&mut w, &a, Wr::read(2, &[mine.sge(0, 8)], remote));
    good(&mut w, &a, Wr::fetch_add(3, mine.sge(0, 8), remote, 1));
    assert!(!opens(&mut w, &b, remote));
    assert_eq!(theirs.bytes(0, 1), [1]);
}

#[test]
fn send_with_invalidate_invalidates_at_the_receiver() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(64), bindable(&mut w, 64));
    let first = w.mw(1, MwType::Type2);
    let key = next(first);
    good(&mut w, &b, Wr::bind(1, first, key, theirs.remote(0), 64));
    b.qp.post_recv(7, &[theirs.sge(0, 64)]);
    let send = Wr::send(2, &[mine.sge(0, 16)]).with_opcode(wr_opcode::SEND_WITH_INV);
    let send = send.with_imm(key.to_le_bytes());
    assert_eq!(good(&mut w, &a, send.clone()).opcode, wc_opcode::SEND);
    let wc = b.cq.expect(7, Status::Success);
    assert_eq!((wc.opcode, wc.flags), (wc_opcode::RECV, wc_flags::WITH_INV));
    assert_eq!((wc.byte_len, wc.imm), (16, key.to_le_bytes()));
    assert!(!opens(&mut w, &b, (theirs.iova, key)));
    // A key that cannot be invalidated ends the receive request and both queue pairs: a region, a
    // window of type 1, one of another queue pair, a stale key.
    let (_c, d) = w.pair();
    let bound_1 = w.mw(1, MwType::Type1);
    good(
        &mut w,
        &d,
        Wr::bind(1, bound_1, next(bound_1), theirs.remote(0), 64),
    );
    let bound_2 = w.mw(1, MwType::Type2);
    good(
        &mut w,
        &d,
        Wr::bind(1, bound_2, next(bound_2), theirs.remote(0), 64),
    );
    for key in [
        theirs.key,
        next(bound_1),
        next(bound_2),
        bound_2,
        0,
        u32::MAX,
    ] {
        let (a, b) = w.pair();
        b.qp.post_recv(8, &[theirs.sge(0, 64)]);
        b.qp.post_recv(9, &[theirs.sge(0, 64)]);
        a.qp.post_send(&send.clone().with_imm(key.to_le_bytes()));
        w.run();
        a.cq.expect(2, Status::RemoteAccess);
        b.cq.expect(8, Status::RemoteInvalidRequest);
        b.cq.expect(9, Status::Flushed);
        w.state(&b.qp, State::Err);
        assert_eq!(w.events(), []);
    }
    assert!(opens(&mut w, &d, (theirs.iova, next(bound_1))));
    assert!(opens(&mut w, &d, (theirs.iova, next(bound_2))));
}

#[test]
fn keys_that_cannot_be_invalidated_locally() {
    let mut w = World::new();
    let mr = bindable(&mut w, 64);
    let type_1 = w.mw(1, MwType::Type1);
    let foreign = w.mw(2, MwType::Type2);
    for key in [mr.key, type_1, foreign, 0, u32::MAX] {
        bad(&mut w, &Wr::local_inv(1, key));
    }
    // A window that is bound to nothing is as if it had been invalidated.
    let (a, _b) = w.pair();
    let free = w.mw(1, MwType::Type2);
    good(&mut w, &a, Wr::local_inv(1, free));
}

/// A window's queue pair invalidates it by the key that it has, and by none that it had.
#[test]
fn a_stale_key_invalidates_nothing() {
    let mut w = World::new();
    let mr = bindable(&mut w, 64);
    for by_peer in [false, true] {
        let (a, b) = w.pair();
        let first = w.mw(1, MwType::Type2);
        good(
            &mut w,
            &b,
            Wr::bind(1, first, next(first), mr.remote(0), 64),
        );
        if by_peer {
            b.qp.post_recv(2, &[mr.sge(0, 64)]);
            let send = Wr::send(2, &[]).with_opcode(wr_opcode::SEND_WITH_INV);
            a.qp.post_send(&send.with_imm(first.to_le_bytes()));
            w.run();
            b.cq.expect(2, Status::RemoteInvalidRequest);
        } else {
            b.qp.post_send(&Wr::local_inv(2, first));
            w.run();
            b.cq.expect(2, Status::WindowBind);
        }
        assert!(w.engine.query_mr(mr.key).unwrap().has_windows());
        w.engine.remove_mw(first).unwrap();
    }
}

/// Of the key that the program names, the lower 8 bits count: the others are the window's.
#[test]
fn a_bind_takes_the_lower_bits_of_the_key() {
    for mw_type in [MwType::Type1, MwType::Type2] {
        let mut w = World::new();
        let (_a, b) = w.pair();
        let theirs = bindable(&mut w, 64);
        let (first, other) = (w.mw(1, mw_type), w.mw(1, mw_type));
        let key = first ^ 0x55;
        for named in [key & 0xff, other & !0xff | key & 0xff, !0xff | key & 0xff] {
            good(&mut w, &b, Wr::bind(1, first, named, theirs.remote(8), 16));
            assert!(opens(&mut w, &b, (theirs.iova + 8, key)));
            assert!(named == key || !opens(&mut w, &b, (theirs.iova + 8, named)));
            // Back to the old key.
            match mw_type {
                MwType::Type1 => good(&mut w, &b, Wr::bind(2, key, first, (0, 0), 0)),
                MwType::Type2 => {
                    good(&mut w, &b, Wr::local_inv(2, key));
                    good(&mut w, &b, Wr::bind(3, key, first, theirs.remote(0), 8));
                    good(&mut w, &b, Wr::local_inv(4, first))
                }
            };
        }
    }
}

#[test]
fn binds_that_must_not_be() {
    let mut w = World::new();
    let mr = bindable(&mut w, 64);
    let closed = w.mr(64);
    let read_only = w.mr_with(1, Access::MW_BIND, memory::shared(64), 0, 64);
    let elsewhere = w.mr_with(2, BINDABLE, memory::shared(64), 0, 64);
    for mw_type in [MwType::Type1, MwType::Type2] {
        let mw = w.mw(1, mw_type);
        let foreign = w.mw(2, mw_type);
        let key = next(mw);
        for wr in [
            // No window; a window of another domain; the same key, and one with the same lower
            // bits.
            Wr::bind(1, mr.key, next(mr.key), mr.remote(0), 8),
            Wr::bind(1, foreign, next(foreign), mr.remote(0), 8),
            Wr::bind(1, mw, mw, mr.remote(0), 8),
            Wr::bind(1, mw, mw & 0xff, mr.remote(0), 8),
            // No region; one that windows may not be bound to; of another domain; a window.
            Wr::bind(1, mw, key, (mr.iova, mr.key ^ 1), 8),
            Wr::bind(1, mw, key, closed.remote(0), 8),
            Wr::bind(1, mw, key, elsewhere.remote(0), 8),
            Wr::bind(1, mw, key, (mr.iova, mw), 8),
            // Outside of the region.
            Wr::bind(1, mw, key, mr.remote(57), 8),
            Wr::bind(1, mw, key, (mr.iova - 1, mr.key), 8),
            Wr::bind(1, mw, key, mr.remote(0), u64::MAX),
            Wr::bind(1, mw, key, mr.remote(0), 65),
            // Rights that are none, and to write to what is not written to.
            Wr::bind(1, mw, key, mr.remote(0), 8).with_access(Access(0x40)),
            Wr::bind(1, mw, key, mr.remote(0), 8).with_access(Access::MW_BIND),
            Wr::bind(1, mw, key, read_only.remote(0), 8).with_access(Access::REMOTE_WRITE),
            Wr::bind(1, mw, key, read_only.remote(0), 8).with_access(Access::REMOTE_ATOMIC),
        ] {
            bad(&mut w, &wr);
        }
        let zero_based = Access::REMOTE_READ.or(Access::ZERO_BASED);
        let zero_based = Wr::bind(1, mw, key, mr.remote(0), 8).with_access(zero_based);
        match mw_type {
            MwType::Type1 => bad(&mut w, &zero_based),
            MwType::Type2 => bad(&mut w, &Wr::bind(1, mw, key, mr.remote(0), 0)),
        }
        // All that was in vain.
        assert!(!w.engine.query_mr(mr.key).unwrap().has_windows());
        let (_a, b) = w.pair();
        let readable = Wr::bind(1, mw, key, read_only.remote(0), 8);
        good(&mut w, &b, readable.with_access(Access::REMOTE_READ));
    }
    // Neither goes with data.
    let mw = w.mw(1, MwType::Type1);
    for wr in [
        Wr::bind(1, mw, next(mw), mr.remote(0), 8),
        Wr::local_inv(1, mw),
    ] {
        let with_list = Wr {
            sges: vec![mr.sge(0, 8)],
            ..wr.clone()
        };
        for wr in [with_list, wr.inline(&[1; 8])] {
            let (a, b) = w.pair();
            a.qp.post_send(&wr);
            w.run();
            a.cq.expect(1, Status::LocalOperation);
            w.state(&b.qp, State::Rts);
        }
    }
}

#[test]
fn windows_and_regions_go_in_any_order() {
    let mut w = World::new();
    let (_a, b) = w.pair();
    let mr = bindable(&mut w, 64);
    let (mw, key) = bound(&mut w, &b, &mr);
    // The window goes by any key that it had.
    assert!(w.engine.query_mr(mr.key).unwrap().has_windows());
    w.engine.remove_mw(mw).unwrap();
    assert!(!w.engine.query_mr(mr.key).unwrap().has_windows());
    assert!(w.engine.remove_mw(mw).is_err());
    assert!(w.engine.remove_mw(mr.key).is_err());
    assert!(!opens(&mut w, &b, (mr.iova, key)));
    // The region goes first: the window does not open the region that is there next.
    let (_, key) = bound(&mut w, &b, &mr);
    w.engine.remove_mr(mr.key).unwrap();
    let others: Vec<_> = (0..200).map(|_| bindable(&mut w, 64).key).collect();
    assert!(!opens(&mut w, &b, (mr.iova, key)));
    w.engine.remove_mw(key).unwrap();
    // It was counted at the region that is gone, and at none of those.
    assert!(others.iter().any(|other| other >> 8 == mr.key >> 8));
    for other in others {
        assert!(!w.engine.query_mr(other).unwrap().has_windows());
    }
    assert_eq!(w.engine.objects().windows, 0);
    let _kept = [(); 3].map(|()| w.mw(1, MwType::Type1));
    assert_eq!(w.engine.objects().windows, 3);
    // Unknown keys never were any.
    assert!(w.engine.remove_mw(u32::MAX).is_err());
    assert!(w.engine.query_mr(u32::MAX).is_err());
}

#[test]
fn binds_and_traffic_keep_their_order() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(64), bindable(&mut w, 64));
    let first = w.mw(1, MwType::Type2);
    // Bound, used by a request that the peer posted before, invalidated: each is carried out when
    // its turn in its queue comes.
    let mut key = first;
    for round in 0..10u64 {
        let new = next(key);
        b.qp.post_send(&Wr::bind(round, key, new, theirs.remote(0), 64).with_flags(0));
        b.qp.post_send(&Wr::local_inv(round, new).with_flags(0));
        b.qp.post_send(&Wr::bind(round, new, next(new), theirs.remote(0), 64));
        w.run();
        b.cq.expect(round, Status::Success);
        key = next(new);
        let write = Wr::write(round, &[mine.sge(0, 8)], (theirs.iova, key));
        good(&mut w, &a, write);
        good(&mut w, &b, Wr::local_inv(round, key));
    }
    let read = Wr::read(90, &[mine.sge(0, 8)], (theirs.iova, key));
    a.qp.post_send(&read);
    w.run();
    a.cq.expect(90, Status::RemoteAccess);
    assert_eq!(w.events(), [Event::Qp(b.qp.name, QpEvent::AccessError)]);
    assert_eq!(w.query(&a.qp).qp_type, QpType::Rc);
}
