// SPDX-License-Identifier: GPL-2.0

//! FLUSH (IBA volume 1, annex A19.4.1), on one engine and by packets.

use ferrule_engine::abi::flush_level::{RANGE, REGION};
use ferrule_engine::abi::flush_placement::{GLOBAL, PERSISTENT};
use ferrule_engine::abi::wc_opcode;
use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::Packet;
use ferrule_engine::{
    Access, Engine, Error, Modify, Mr, MrChange, MrInit, MwType, QpEvent, State, Status,
};

use crate::sim::refused::*;
use crate::sim::*;

#[test]
fn ranges_and_regions_are_flushed() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let theirs = w.mr(64);
    // Whichever bytes of a region are named, all are flushed; and a range of no bytes may begin
    // behind the last one.
    for (wr_id, remote, length, level) in [
        (1, theirs.remote(0), 64, RANGE),
        (2, theirs.remote(60), 4, RANGE),
        (3, theirs.remote(64), 0, RANGE),
        (4, (0, theirs.key), 0, REGION),
        (5, (7, theirs.key), u32::MAX, REGION),
    ] {
        let wr = Wr::flush(wr_id, remote, length).with_placement(GLOBAL, level);
        a.qp.post_send(&wr);
        w.run();
        let wc = a.cq.expect(wr_id, Status::Success);
        assert_eq!((wc.opcode, wc.byte_len), (wc_opcode::FLUSH, 0));
    }
    b.cq.expect_none();
    assert_eq!(w.query(&a.qp).attr.sq_psn, (SQ_PSN + 5) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 5) & 0xff_ffff);
}

#[test]
fn refused_without_key_right_or_resource() {
    let range: Request = |_, remote| Wr::flush(1, remote, 8);
    refused_without_access(range, Access::FLUSH_GLOBAL);
    refused_without_right(range, Access::FLUSH_GLOBAL);
    refused_without_resource(range);
    let region: Request = |_, remote| Wr::flush(1, remote, 8).with_placement(GLOBAL, REGION);
    refused_without_right(region, Access::FLUSH_GLOBAL);
    refused_without_resource(region);
    // A key that is none, one of another protection domain, and one without the right.
    for (pd, access, key) in [
        (1, ALL, 1),
        (2, ALL, 0),
        (1, Access(ALL.0 & !Access::FLUSH_GLOBAL.0), 0),
    ] {
        refused(
            |w, _, _| {
                let mr = w.mr_with(pd, access, memory::shared(64), 0, 64);
                region((0, 0, 0), (0, mr.key ^ key))
            },
            Status::RemoteAccess,
            Some(QpEvent::AccessError),
        );
    }
}

/// A queue pair may give its peer the right to flush until memory persists, but no memory does.
#[test]
fn no_memory_persists() {
    for placement in [PERSISTENT, GLOBAL | PERSISTENT] {
        for level in [RANGE, REGION] {
            let flush = |w: &mut World| {
                Wr::flush(1, w.mr(64).remote(0), 8).with_placement(placement, level)
            };
            refused(
                |w, _, _| flush(w),
                Status::RemoteInvalidRequest,
                Some(QpEvent::RequestError),
            );
            refused(
                |w, _, b| {
                    let rights = Modify {
                        access: Some(ALL.or(Access::FLUSH_PERSISTENT)),
                        ..Modify::default()
                    };
                    w.modify(&b.qp, &rights).unwrap();
                    flush(w)
                },
                Status::RemoteAccess,
                Some(QpEvent::AccessError),
            );
        }
    }
    let mut w = World::new();
    let mr = w.mr(64);
    let access = ALL.or(Access::FLUSH_PERSISTENT);
    let memory = ferrule_engine::Memory {
        iova: 0,
        length: 64,
        region: mr.region.clone(),
    };
    let init = MrInit {
        pd: 1,
        access,
        memory,
    };
    assert_eq!(
        add(&mut w.engine, Mr::new(init), Engine::add_mr).err(),
        Some(Error::Invalid)
    );
    let mut change = MrChange {
        pd: None,
        access: Some(access),
        memory: None,
    };
    assert_eq!(w.engine.rereg_mr(mr.key, &mut change), Err(Error::Invalid));
}

/// A request with a list, or with placement types and levels that do not exist, is malformed.
#[test]
fn malformed_requests_fail_at_the_requester() {
    let mut w = World::new();
    let mr = w.mr(64);
    let good = Wr::flush(1, mr.remote(8), 8);
    let mut words = good.clone();
    words.extra[6] = 1;
    let listed = Wr {
        sges: vec![mr.sge(0, 8)],
        ..good.clone()
    };
    for wr in [
        words,
        listed,
        good.clone().inline(&[0; 8]),
        good.clone().with_placement(0, RANGE),
        good.clone().with_placement(4, RANGE),
        good.clone().with_placement(GLOBAL | 0x80, RANGE),
        good.with_placement(GLOBAL, 2),
    ] {
        let (a, b) = w.pair();
        a.qp.post_send(&wr);
        w.run();
        a.cq.expect(1, Status::LocalOperation);
        w.state(&b.qp, State::Rts);
    }
}

/// A window gives the right where it was bound with it, and to no more than it is bound to; the
/// region has to give it, too.
#[test]
fn windows_are_flushed() {
    for (region, window, length, status) in [
        (true, true, 16, Status::Success),
        (true, true, 17, Status::RemoteAccess),
        (true, false, 16, Status::RemoteAccess),
        (false, true, 16, Status::WindowBind),
    ] {
        for level in [RANGE, REGION] {
            let mut w = World::new();
            let (a, b) = w.pair();
            let given = |is_given| match is_given {
                true => Access::NONE,
                false => Access::FLUSH_GLOBAL,
            };
            let rights = Access(BINDABLE.0 & !given(region).0);
            let mr = w.mr_with(1, rights, memory::shared(64), 0, 64);
            let key = w.mw(1, MwType::Type2);
            let new = key & !0xff | (key + 1) & 0xff;
            let bound = Access((Access::REMOTE_READ.0 | Access::FLUSH_GLOBAL.0) & !given(window).0);
            b.qp.post_send(&Wr::bind(1, key, new, mr.remote(8), 16).with_access(bound));
            w.run();
            if status == Status::WindowBind {
                b.cq.expect(1, status);
                continue;
            }
            b.cq.expect(1, Status::Success);
            let (addr, _) = mr.remote(8);
            a.qp.post_send(&Wr::flush(2, (addr, new), length).with_placement(GLOBAL, level));
            w.run();
            let is_good = status == Status::Success || level == REGION && window;
            a.cq.expect(2, if is_good { Status::Success } else { status });
        }
    }
}

/// A connection by packets.
type Scene = scene::Scene<()>;

/// The packet has no bytes, and its response is that of a READ of none. It acknowledges what was
/// before it, and is not acknowledged by what is behind it.
#[test]
fn by_packets_it_is_answered_like_a_read() {
    let mut s = Scene::with(64, |_| ());
    let (mine, theirs) = (s.memory[0].sge(0, 8), s.memory[1].remote(8));
    s.ends[0].qp.put_send(&Wr::write(1, &[mine], theirs));
    s.ends[0].qp.put_send(&Wr::flush(2, theirs, 8));
    s.ends[0].qp.put_send(&Wr::write(3, &[mine], theirs));
    s.ends[0].qp.ring();
    let requests = s.link.sent(0);
    let packet = Packet::parse(&requests[1].transport, requests[1].transport.len()).unwrap();
    assert_eq!((packet.bth().opcode, packet.payload()), (rc::FLUSH, 0));
    let (feth, reth) = (packet.feth().unwrap(), packet.reth().unwrap());
    assert_eq!((feth.placement(), feth.level()), (GLOBAL, RANGE));
    assert_eq!((reth.addr.get(), reth.rkey.get()), theirs);
    assert_eq!(reth.length.get(), 8);
    s.link.give(1, &requests);
    let mut responses = s.link.sent(1);
    let opcode = |packet: &SentPacket| packet.transport[0];
    assert_eq!(
        responses.iter().map(opcode).collect::<Vec<_>>(),
        [rc::READ_RESPONSE_ONLY, rc::ACKNOWLEDGE]
    );
    // Without the first of them, the second does not end the flush: that is asked for again, and
    // answered again.
    let lost = responses.remove(0);
    s.link.give(0, &responses);
    let ended = s.ends[0].cq.drain();
    assert_eq!(ended.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1]);
    let again = s.link.sent(0);
    assert_eq!(opcode(&again[0]), rc::FLUSH);
    s.link.give(1, &again);
    assert_eq!(s.link.sent(1)[0].transport, lost.transport);
    s.link.give(0, &[lost]);
    s.link.settle();
    s.ends[0].cq.expect(2, Status::Success);
    s.ends[0].cq.expect(3, Status::Success);
    s.link.worlds[1].state(&s.ends[1].qp, State::Rts);
}

/// The peer was promised one resource, and uses more.
fn one(modify: &mut Modify) {
    modify.max_dest_rd_atomic = modify.max_dest_rd_atomic.map(|_| 1);
    modify.max_rd_atomic = modify.max_rd_atomic.map(|_| 16);
}

/// A peer that counts no flush has more under way than it was promised resources, and the READ
/// between them is answered in its turn. Two READs at a time are refused as ever (9.4.4).
#[test]
fn by_packets_flushes_need_not_be_counted() {
    let mut s = Scene::with(64, one);
    s.memory[1].fill(3);
    let (mine, theirs) = (s.memory[0].sge(0, 8), s.memory[1].remote(8));
    for wr_id in 0..10 {
        s.ends[0].qp.put_send(&match wr_id {
            4 => Wr::read(wr_id, &[mine], theirs),
            _ => Wr::flush(wr_id, theirs, 8),
        });
    }
    s.ends[0].qp.ring();
    let requests = s.link.sent(0);
    assert_eq!(requests.len(), 10);
    // The READ comes when the only resource that was promised is free again.
    s.link.give(1, &requests[..4]);
    let mut responses = s.link.sent(1);
    s.link.give(1, &requests[4..]);
    responses.extend(s.link.sent(1));
    let psn = |packet: &SentPacket| packet.transport[9..12].to_vec();
    assert_eq!(
        responses.iter().map(psn).collect::<Vec<_>>(),
        requests.iter().map(psn).collect::<Vec<_>>()
    );
    // Each of them can be asked for again.
    s.link.give(1, &requests[5..]);
    let again = s.link.sent(1);
    assert_eq!(
        again.iter().map(psn).collect::<Vec<_>>()[0],
        psn(&requests[5])
    );
    assert_eq!(again.len(), 5);
    s.link.give(0, &responses);
    for wr_id in 0..10 {
        s.ends[0].cq.expect(wr_id, Status::Success);
    }
    assert_eq!(s.memory[0].bytes(0, 8), s.memory[1].bytes(8, 8));

    let mut s = Scene::with(64, one);
    let (mine, theirs) = (s.memory[0].sge(0, 8), s.memory[1].remote(8));
    for wr_id in 0..2 {
        s.ends[0].qp.put_send(&Wr::read(wr_id, &[mine], theirs));
    }
    s.ends[0].qp.ring();
    let requests = s.link.sent(0);
    s.link.give(1, &requests);
    let responses = s.link.sent(1);
    s.link.give(0, &responses);
    s.ends[0].cq.expect(0, Status::Success);
    s.ends[0].cq.expect(1, Status::RemoteInvalidRequest);
}

/// A flush takes nothing from a request that the peer does count: neither the response that it may
/// ask for again, nor the resource of one that comes with the flush.
#[test]
fn by_packets_flushes_take_no_promised_resource() {
    let mut s = Scene::with(64, one);
    let (mine, theirs) = (s.memory[0].sge(0, 8), s.memory[1].remote(8));
    let add = Wr::fetch_add(0, mine, theirs, 1);
    for wr in [
        add.clone(),
        Wr::flush(1, theirs, 8),
        Wr::flush(2, theirs, 8),
        Wr { wr_id: 3, ..add },
    ] {
        s.ends[0].qp.put_send(&wr);
    }
    s.ends[0].qp.ring();
    let requests = s.link.sent(0);
    let lost = s.link.answers(1, &requests[..2]);
    s.link.give(1, &requests[..2]);
    let again = s.link.sent(1);
    let bytes = |packet: &SentPacket| packet.transport.clone();
    assert_eq!(
        again.iter().map(bytes).collect::<Vec<_>>(),
        lost.iter().map(bytes).collect::<Vec<_>>()
    );
    s.link.give(1, &requests[2..]);
    let rest = s.link.sent(1);
    s.link.give(0, &again);
    s.link.give(0, &rest);
    for wr_id in 0..4 {
        s.ends[0].cq.expect(wr_id, Status::Success);
    }
    assert_eq!(s.memory[1].bytes(8, 8), 2u64.to_ne_bytes());
}

/// A packet with placement types and levels that do not exist is an invalid request; reserved bits
/// say nothing.
#[test]
fn by_packets_what_is_unknown_is_refused() {
    for (bits, status) in [
        (0x01, Status::Success),
        (0x11, Status::Success),
        (0xc1, Status::Success),
        (0x00, Status::RemoteInvalidRequest),
        (0x05, Status::RemoteInvalidRequest),
        (0x08, Status::RemoteInvalidRequest),
        (0x21, Status::RemoteInvalidRequest),
        (0x31, Status::RemoteInvalidRequest),
    ] {
        let mut s = Scene::with(64, |_| ());
        s.ends[0]
            .qp
            .post_send(&Wr::flush(1, s.memory[1].remote(0), 8));
        let mut requests = s.link.sent(0);
        requests[0].transport[15] = bits;
        requests[0].seal();
        s.link.give(1, &requests);
        let responses = s.link.sent(1);
        s.link.give(0, &responses);
        s.ends[0].cq.expect(1, status);
    }
}
