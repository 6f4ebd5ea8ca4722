// SPDX-License-Identifier: GPL-2.0

//! Fast registration by queue pairs of the host's own: the bytes that a region opens, when, and
//! faults.

use ferrule_engine::{
    abi, fast, packet::opcode::rc, Access, Budget, Error, MrChange, State, Status,
};

use crate::sim::network::{Faults, Link, BAD};
use crate::sim::*;
use abi::{wc_flags, wc_opcode, wr_flags, wr_opcode};

const IOVA: u64 = 0x1234_5000;

/// Two connected queue pairs of the host's own.
fn pair(w: &mut World) -> (End, End) {
    let mut end = || {
        let cq = w.cq(64);
        let qp = w.qp_in(None, &QpSpec::default(), &cq, &cq);
        End { qp, cq }
    };
    let (a, b) = (end(), end());
    w.connect(&a.qp, &b.qp);
    w.connect(&b.qp, &a.qp);
    (a, b)
}

/// The key behind this one.
fn next(key: u32) -> u32 {
    key & !0xff | (key + 1) & 0xff
}

/// Posts a request and tells how it ended.
fn ends(w: &mut World, end: &End, wr: &Wr) -> Wc {
    end.qp.put_send(wr);
    w.engine.ring_qp(end.qp.id.number);
    w.run();
    end.cq.poll().expect("no completion")
}

/// Posts a request that has to succeed.
#[track_caller]
fn good(w: &mut World, end: &End, wr: &Wr) -> Wc {
    let wc = ends(w, end, wr);
    assert_eq!((wc.wr_id, wc.status), (wr.wr_id, Status::Success as u8));
    wc
}

/// Posts a request to a pair of its own, that has to end with this status.
#[track_caller]
fn bad(w: &mut World, wr: &Wr, status: Status) {
    let (a, b) = pair(w);
    assert_eq!(ends(w, &a, wr).status, status as u8);
    w.state(&a.qp, State::Err);
    // Of what the peer refuses, its owner hears as well.
    w.events();
    w.engine.remove_qp(a.qp.id.number).unwrap();
    w.engine.remove_qp(b.qp.id.number).unwrap();
}

#[test]
fn region_opens_between_registration_and_invalidation() {
    let mut w = World::new();
    let (a, b) = pair(&mut w);
    let mine = w.mr(64);
    mine.fill(1);
    let memory = memory::shared(256);
    let mr = w.fast_mr(1, memory.clone());
    let sges = [mine.sge(0, 16)];
    let write = |key| Wr::write(9, &sges, (IOVA, key));

    // As it is made, it opens nothing: not to peers, and not as a local key.
    bad(&mut w, &write(mr.key), Status::RemoteAccess);
    let read = Wr::read(8, &[(IOVA, 16, mr.key)], mine.remote(0));
    bad(&mut w, &read, Status::LocalProtection);

    for (start, key) in [(0, mr.key), (128, next(mr.key)), (64, mr.key)] {
        mr.region.next.set(Some((start, 64)));
        let wc = good(&mut w, &b, &Wr::register(1, key, IOVA, 64));
        assert_eq!(wc.opcode, fast::WC_REGISTER);
        good(&mut w, &a, &write(key));
        assert_eq!(memory.borrow()[start..start + 16], mine.bytes(0, 16));
        good(
            &mut w,
            &b,
            &Wr::read(2, &[(IOVA + 16, 16, key)], mine.remote(0)),
        );
        assert_eq!(memory.borrow()[start + 16..start + 32], mine.bytes(0, 16));
        bad(
            &mut w,
            &Wr::write(9, &sges, (IOVA + 49, key)),
            Status::RemoteAccess,
        );
        bad(&mut w, &write(next(key)), Status::RemoteAccess);
        let wc = good(&mut w, &b, &Wr::local_inv(3, key));
        assert_eq!(wc.opcode, wc_opcode::LOCAL_INV);
        bad(&mut w, &write(key), Status::RemoteAccess);
        // As with windows, an invalid key may be invalidated.
        good(&mut w, &b, &Wr::local_inv(4, key));
    }
    // It goes by its first key, whatever it has now.
    mr.region.next.set(Some((0, 64)));
    good(&mut w, &b, &Wr::register(1, next(mr.key), IOVA, 64));
    w.engine.remove_mr(mr.key).unwrap();
    bad(&mut w, &write(next(mr.key)), Status::RemoteAccess);
}

#[test]
fn peer_invalidates() {
    let mut w = World::new();
    let (a, b) = pair(&mut w);
    let mine = w.mr(64);
    let mr = w.fast_mr(1, memory::shared(64));
    let key = next(mr.key);
    mr.region.next.set(Some((0, 64)));
    good(&mut w, &b, &Wr::register(1, key, IOVA, 64));
    b.qp.post_recv(7, &[mine.sge(0, 64)]);
    let send = Wr::send(2, &[mine.sge(0, 16)]).with_opcode(wr_opcode::SEND_WITH_INV);
    let send = send.with_imm(key.to_le_bytes());
    good(&mut w, &a, &send);
    let wc = b.cq.expect(7, Status::Success);
    assert_eq!((wc.flags, wc.imm), (wc_flags::WITH_INV, key.to_le_bytes()));
    let write = Wr::write(9, &[mine.sge(0, 16)], (IOVA, key));
    bad(&mut w, &write, Status::RemoteAccess);

    // A region without rights for peers has no key that they could name.
    let register = Wr::register(3, key, IOVA, 64).with_access(Access::LOCAL_WRITE);
    good(&mut w, &b, &register);
    b.qp.post_recv(8, &[mine.sge(0, 64)]);
    assert_eq!(ends(&mut w, &a, &send).status, Status::RemoteAccess as u8);
    b.cq.expect(8, Status::RemoteInvalidRequest);
}

#[test]
fn forbidden_registrations_fail() {
    let mut w = World::new();
    let mr = w.fast_mr(1, memory::shared(64));
    let elsewhere = w.fast_mr(2, memory::shared(64));
    let plain = w.mr(64);
    let window = w.mw(1, ferrule_engine::MwType::Type2);
    let next_bytes = || mr.region.next.set(Some((0, 64)));
    elsewhere.region.next.set(Some((0, 64)));

    // A program cannot ask for it.
    next_bytes();
    let (a, _b) = w.pair();
    a.qp.post_send(&Wr::register(1, mr.key, IOVA, 64));
    w.run();
    a.cq.expect(1, Status::LocalOperation);

    for wr in [
        // Another domain's; a region of another kind; a key of none; another length; rights that
        // are none, or that nobody can have by this.
        Wr::register(1, elsewhere.key, IOVA, 64),
        Wr::register(1, plain.key, IOVA, 64),
        Wr::register(1, window, IOVA, 64),
        Wr::register(1, 0, IOVA, 64),
        Wr::register(1, u32::MAX, IOVA, 64),
        Wr::register(1, mr.key, IOVA, 63),
        Wr::register(1, mr.key, IOVA, 65),
        Wr::register(1, mr.key, u64::MAX - 62, 64),
        Wr::register(1, mr.key, IOVA, 64).with_access(Access::MW_BIND),
        Wr::register(1, mr.key, IOVA, 64).with_access(Access(1 << 30)),
    ] {
        next_bytes();
        bad(&mut w, &wr, Status::WindowBind);
    }
    // No memory was named.
    mr.region.next.set(None);
    bad(
        &mut w,
        &Wr::register(1, mr.key, IOVA, 64),
        Status::WindowBind,
    );

    // The region has gone since.
    let gone = w.fast_mr(1, memory::shared(64));
    gone.region.next.set(Some((0, 64)));
    w.engine.remove_mr(gone.key).unwrap();
    bad(
        &mut w,
        &Wr::register(1, gone.key, IOVA, 64),
        Status::WindowBind,
    );

    // A region that is open cannot be registered, and another domain does not invalidate it.
    let (a, _b) = pair(&mut w);
    next_bytes();
    good(&mut w, &a, &Wr::register(1, mr.key, IOVA, 64));
    next_bytes();
    bad(
        &mut w,
        &Wr::register(1, next(mr.key), IOVA, 64),
        Status::WindowBind,
    );
    bad(&mut w, &Wr::local_inv(1, next(mr.key)), Status::WindowBind);
    bad(&mut w, &Wr::local_inv(1, elsewhere.key), Status::WindowBind);
    bad(&mut w, &Wr::local_inv(1, plain.key), Status::WindowBind);
    // Its memory is a request's to change, and nobody else's.
    let mut change = MrChange {
        pd: Some(2),
        access: None,
        memory: None,
    };
    let changed = w.engine.rereg_mr(mr.key, &mut change);
    assert_eq!(changed, Err(Error::NotFound));
    good(&mut w, &a, &Wr::local_inv(1, mr.key));
}

/// The region that comes next where one was is opened by none of the keys that this one had.
#[test]
fn keys_of_before_open_nothing() {
    let mut w = World::new();
    let (a, b) = pair(&mut w);
    let mr = w.fast_mr(1, memory::shared(64));
    let mut key = mr.key;
    for _ in 0..3 {
        mr.region.next.set(Some((0, 64)));
        good(&mut w, &b, &Wr::register(1, key, IOVA, 64));
        good(&mut w, &b, &Wr::local_inv(2, key));
        key = next(key);
    }
    w.engine.remove_mr(mr.key).unwrap();
    let after = loop {
        let after = w.mr(64);
        if after.key >> 8 == mr.key >> 8 {
            break after;
        }
    };
    assert_eq!(after.key, key);
    let mine = w.mr(64);
    good(
        &mut w,
        &a,
        &Wr::write(3, &[mine.sge(0, 16)], after.remote(0)),
    );
    let stale = (after.iova, mr.key);
    bad(
        &mut w,
        &Wr::write(3, &[mine.sge(0, 16)], stale),
        Status::RemoteAccess,
    );
}

/// A queue pair of the host's own, and a region of its peer, on another machine.
fn apart(link: &mut Link) -> (End, TestMr) {
    let [a, _] = link.pair(
        |world, cq| world.qp_in(None, &QpSpec::default(), cq, cq),
        |_| (),
    );
    (a, link.worlds[1].mr(8192))
}

/// On the wire a registration waits for nothing that is on its way, unless it has a fence; it ends
/// in its turn all the same.
#[test]
fn registration_waits_for_no_answer() {
    for (flags, waits) in [(0, false), (wr_flags::FENCE, true)] {
        let mut link = Link::new(1, Faults::default(), false);
        let (a, theirs) = apart(&mut link);
        let world = &mut link.worlds[0];
        let mine = world.mr(64);
        let mr = world.fast_mr(1, memory::shared(64));
        mr.region.next.set(Some((0, 64)));
        a.qp.put_send(&Wr::read(1, &[mine.sge(0, 64)], theirs.remote(0)));
        let register = Wr::register(2, mr.key, IOVA, 64);
        a.qp.put_send(&register.with_flags(wr_flags::SIGNALED | flags));
        a.qp.put_send(&Wr::write(3, &[(IOVA, 64, mr.key)], theirs.remote(64)));
        a.qp.put_send(&Wr::local_inv(4, mr.key));
        world.engine.ring_qp(a.qp.id.number);
        world.run();
        let sent: Vec<_> = world
            .host
            .sent
            .iter()
            .map(|sent| sent.transport[0])
            .collect();
        if waits {
            assert_eq!(sent, [rc::READ_REQUEST]);
        } else {
            assert_eq!(sent, [rc::READ_REQUEST, rc::WRITE_ONLY]);
        }
        a.cq.expect_none();
        link.settle();
        for wr_id in 1..=4 {
            a.cq.expect(wr_id, Status::Success);
        }
    }
}

/// A registration sends nothing, so the request before it asks for an acknowledgement, if nothing
/// else follows.
#[test]
fn a_request_before_a_registration_is_acknowledged_at_once() {
    for more in [false, true] {
        let mut link = Link::new(1, Faults::default(), false);
        let (a, theirs) = apart(&mut link);
        let world = &mut link.worlds[0];
        let mine = world.mr(64);
        let mrs = [(); 2].map(|()| world.fast_mr(1, memory::shared(64)));
        a.qp.put_send(&Wr::write(0, &[mine.sge(0, 64)], theirs.remote(0)));
        for (wr_id, mr) in (1..).zip(&mrs) {
            mr.region.next.set(Some((0, 64)));
            a.qp.put_send(&Wr::register(wr_id, mr.key, IOVA, 64));
        }
        if more {
            a.qp.put_send(&Wr::local_inv(3, mrs[0].key));
        }
        world.engine.ring_qp(a.qp.id.number);
        link.settle();
        for wr_id in 0..if more { 4 } else { 3 } {
            a.cq.expect(wr_id, Status::Success);
        }
        let counters = link.worlds[0].engine.counters();
        assert_eq!((counters.unanswered, counters.probes), (0, 0));
    }
}

/// A READ that invalidates a key of its own side.
fn read_with_inv(wr_id: u64, sge: (u64, u32, u32), remote: (u64, u32), key: u32) -> Wr {
    Wr::read(wr_id, &[sge], remote)
        .with_opcode(fast::WR_READ_WITH_INV)
        .with_imm(key.to_le_bytes())
}

/// When its data have come, a READ with invalidate takes the key back, and completes like a READ.
#[test]
fn a_read_invalidates_a_key_of_its_own_side() {
    let mut w = World::new();
    let (a, _b) = pair(&mut w);
    let theirs = w.mr(64);
    theirs.fill(3);
    let memory = memory::shared(64);
    let mr = w.fast_mr(1, memory.clone());
    mr.region.next.set(Some((0, 64)));
    good(&mut w, &a, &Wr::register(1, mr.key, IOVA, 64));
    let sge = (IOVA, 16, mr.key);
    let wc = good(&mut w, &a, &read_with_inv(2, sge, theirs.remote(0), mr.key));
    assert_eq!((wc.opcode, wc.flags), (wc_opcode::RDMA_READ, 0));
    assert_eq!(memory.borrow()[..16], theirs.bytes(0, 16));
    let again = Wr::write(9, &[sge], theirs.remote(0));
    bad(&mut w, &again, Status::LocalProtection);
    // Other regions are not invalidated, and programs have no such request.
    let plain = read_with_inv(2, theirs.sge(16, 16), theirs.remote(0), theirs.key);
    bad(&mut w, &plain, Status::WindowBind);
    let (program, _peer) = w.pair();
    program.qp.post_send(&plain);
    w.run();
    program.cq.expect(2, Status::LocalOperation);
}

/// The same by packets, some of which are lost, come twice or late.
#[test]
fn a_read_by_packets_invalidates_once() {
    let mut link = Link::new(1, BAD, true);
    let (a, theirs) = apart(&mut link);
    theirs.fill(5);
    let memory = memory::shared(8192);
    let mr = link.worlds[0].fast_mr(1, memory.clone());
    let mut key = mr.key;
    for length in [1, 0, 8192, 100, 5000, 8191].repeat(10) {
        mr.region.next.set(Some((0, 8192)));
        memory.borrow_mut().fill(0);
        let sge = (IOVA, length, key);
        a.qp.put_send(&Wr::register(1, key, IOVA, 8192));
        a.qp.put_send(&read_with_inv(2, sge, theirs.remote(0), key));
        // A region that was not closed could not be registered in the next round.
        key = next(key);
        link.worlds[0].engine.ring_qp(a.qp.id.number);
        link.settle();
        a.cq.expect(1, Status::Success);
        a.cq.expect(2, Status::Success);
        let length = length as usize;
        assert_eq!(memory.borrow()[..length], theirs.bytes(0, length));
    }
}

/// Mapped memory stays mapped, and may be registered again.
#[test]
fn registered_again_without_being_mapped() {
    let mut w = World::new();
    let (a, _b) = pair(&mut w);
    let mr = w.fast_mr(1, memory::shared(64));
    mr.region.next.set(Some((0, 64)));
    for key in [mr.key, next(mr.key)] {
        good(&mut w, &a, &Wr::register(1, key, IOVA, 64));
        good(&mut w, &a, &Wr::local_inv(2, key));
    }
}

/// A registration that fails ends in its turn as well, and requests behind it are flushed.
#[test]
fn early_registration_that_fails_ends_in_its_turn() {
    let mut link = Link::new(1, Faults::default(), false);
    let (a, theirs) = apart(&mut link);
    let world = &mut link.worlds[0];
    let mine = world.mr(64);
    let mr = world.fast_mr(1, memory::shared(64));
    a.qp.put_send(&Wr::write(1, &[mine.sge(0, 64)], theirs.remote(0)));
    a.qp.put_send(&Wr::register(2, mr.key, IOVA, 64));
    a.qp.put_send(&Wr::write(3, &[mine.sge(0, 64)], theirs.remote(0)));
    world.engine.ring_qp(a.qp.id.number);
    world.run();
    a.cq.expect_none();
    link.settle();
    a.cq.expect(1, Status::Success);
    a.cq.expect(2, Status::WindowBind);
    a.cq.expect(3, Status::Flushed);
}

/// Each region is registered once and invalidated once, in spite of losses and retransmissions.
#[test]
fn registrations_over_a_bad_network() {
    const REGIONS: u64 = 4;

    for seed in 0..20 {
        let mut link = Link::new(seed, BAD, true);
        let (a, theirs) = apart(&mut link);
        let world = &mut link.worlds[0];
        let mine = world.mr(4096);
        let mut regions = [(); REGIONS as usize].map(|()| {
            let mr = world.fast_mr(1, memory::shared(3000));
            (mr.key, mr)
        });
        for _ in 0..10 {
            for ((key, mr), number) in regions.iter().zip(0..) {
                mr.region.next.set(Some((0, 3000)));
                let register = Wr::register(3 * number, *key, IOVA, 3000);
                a.qp.put_send(&register.with_flags(0));
                let write = Wr::write(3 * number + 1, &[(IOVA, 3000, *key)], theirs.remote(0));
                a.qp.put_send(&write);
                let read = Wr::read(3 * number + 2, &[mine.sge(0, 2000)], theirs.remote(4096));
                a.qp.put_send(&read);
            }
            for ((key, _), number) in regions.iter_mut().zip(3 * REGIONS..) {
                a.qp.put_send(&Wr::local_inv(number, *key));
                *key = next(*key);
            }
            link.worlds[0].engine.ring_qp(a.qp.id.number);
            link.settle();
            let ended: Vec<_> =
                a.cq.drain()
                    .iter()
                    .map(|wc| (wc.wr_id, wc.status))
                    .collect();
            // Registrations tell nothing of their success.
            let expected =
                (0..4 * REGIONS).filter(|number| *number >= 3 * REGIONS || number % 3 != 0);
            let expected: Vec<_> = expected
                .map(|wr_id| (wr_id, Status::Success as u8))
                .collect();
            assert_eq!(ended, expected, "seed {seed}");
        }
    }
}

/// A registration of much memory counts for more than a request: others wait for the turn's end.
#[test]
fn pieces_of_memory_are_counted() {
    const SLICE: Budget = Budget {
        requests: 32,
        bytes: 64 << 10,
    };
    // Two of so many pieces are a slice.
    for (pieces, done) in [(1, 16), (512, 3)] {
        let mut w = World::new();
        let (a, _b) = pair(&mut w);
        let mr = w.fast_mr(1, memory::shared(64));
        mr.region.next.set(Some((0, 64)));
        mr.region.pieces.set(pieces);
        for _ in 0..8 {
            a.qp.put_send(&Wr::register(1, mr.key, IOVA, 64));
            a.qp.put_send(&Wr::local_inv(2, mr.key));
        }
        w.engine.ring_qp(a.qp.id.number);
        w.engine.run(&mut w.host, SLICE, None);
        let completions = std::iter::from_fn(|| a.cq.poll());
        assert_eq!(completions.count(), done, "{pieces} pieces");
        w.run();
        let completions = std::iter::from_fn(|| a.cq.poll());
        assert_eq!(completions.count(), 16 - done, "{pieces} pieces");
    }
}
