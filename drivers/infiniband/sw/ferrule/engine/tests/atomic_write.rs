// SPDX-License-Identifier: GPL-2.0

//! ATOMIC WRITE (IBA volume 1, annex A19.4.2), on one engine and by packets.

use ferrule_engine::abi::wc_opcode;
use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::Packet;
use ferrule_engine::{Access, Engine, Memory, Mr, MrInit, QpEvent, State, Status};

use crate::sim::refused::*;
use crate::sim::*;

const VALUE: u64 = 0x0102_0304_0506_0708;

/// The bytes lie in memory as the program gave them, and those beside them stay.
#[test]
fn eight_bytes_are_written() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let theirs = w.mr(64);
    theirs.fill(1);
    let before = theirs.bytes(0, 64);
    a.qp.post_send(&Wr::atomic_write(1, theirs.remote(16), VALUE));
    w.run();
    let wc = a.cq.expect(1, Status::Success);
    assert_eq!((wc.opcode, wc.byte_len), (wc_opcode::ATOMIC_WRITE, 8));
    b.cq.expect_none();
    assert_eq!(theirs.bytes(16, 8), VALUE.to_ne_bytes());
    assert_eq!(theirs.bytes(0, 16), before[..16]);
    assert_eq!(theirs.bytes(24, 40), before[24..]);
    assert_eq!(w.query(&a.qp).attr.sq_psn, (SQ_PSN + 1) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 1) & 0xff_ffff);
}

#[test]
fn address_that_is_not_aligned_is_an_invalid_request() {
    for offset in 1..8 {
        refused(
            |w, _, _| Wr::atomic_write(1, w.mr(64).remote(offset), VALUE),
            Status::RemoteInvalidRequest,
            Some(QpEvent::RequestError),
        );
    }
    // Aligned by the address that requests use, but not in memory.
    refused(
        |w, _, _| {
            let mut region = w.mr(64).region.clone();
            (region.start, region.length) = (1, 40);
            let odd = Mr::new(MrInit {
                pd: 1,
                access: ALL,
                memory: Memory {
                    iova: 0,
                    length: 40,
                    region,
                },
            });
            let key = add(&mut w.engine, odd, Engine::add_mr).unwrap();
            Wr::atomic_write(1, (8, key), VALUE)
        },
        Status::RemoteInvalidRequest,
        Some(QpEvent::RequestError),
    );
}

#[test]
fn refused_without_key_right_or_resource_to_write() {
    let request: Request = |_, remote| Wr::atomic_write(1, remote, VALUE);
    refused_without_access(request, Access::REMOTE_WRITE);
    refused_without_right(request, Access::REMOTE_WRITE);
    refused_without_resource(request);
}

/// The request has its bytes in the head: a list, inline data and other words are malformed.
#[test]
fn malformed_requests_fail_at_the_requester() {
    let mut w = World::new();
    let mr = w.mr(64);
    let good = Wr::atomic_write(1, mr.remote(8), VALUE);
    let mut words = good.clone();
    words.extra[8] = 1;
    let listed = Wr {
        sges: vec![mr.sge(0, 8)],
        ..good.clone()
    };
    for wr in [words, listed, good.inline(&[0; 8])] {
        let (a, b) = w.pair();
        a.qp.post_send(&wr);
        w.run();
        a.cq.expect(1, Status::LocalOperation);
        w.state(&b.qp, State::Rts);
        assert_eq!(mr.bytes(0, 64), [0; 64]);
    }
}

/// A connection by packets.
type Scene = scene::Scene<()>;

/// The packet has the bytes, and its response is that of a READ of none. A duplicate is answered
/// once more, and writes nothing.
#[test]
fn by_packets_it_is_answered_like_a_read() {
    let mut s = Scene::with(64, |_| ());
    s.ends[0]
        .qp
        .post_send(&Wr::atomic_write(1, s.memory[1].remote(8), VALUE));
    let requests = s.link.sent(0);
    let packet = Packet::parse(&requests[0].transport, requests[0].transport.len()).unwrap();
    assert_eq!(packet.bth().opcode, rc::ATOMIC_WRITE);
    assert_eq!(packet.reth().unwrap().length.get(), 8);
    assert_eq!(requests[0].transport[28..36], VALUE.to_ne_bytes());
    s.link.give(1, &requests);
    assert_eq!(s.memory[1].bytes(8, 8), VALUE.to_ne_bytes());
    s.memory[1].fill(9);
    let changed = s.memory[1].bytes(0, 64);
    for _ in 0..3 {
        let responses = s.link.sent(1);
        assert_eq!(responses.len(), 1);
        let response =
            Packet::parse(&responses[0].transport, responses[0].transport.len()).unwrap();
        assert_eq!(response.bth().opcode, rc::READ_RESPONSE_ONLY);
        assert_eq!(response.bth().psn, packet.bth().psn);
        assert_eq!(
            (response.payload(), response.aeth().unwrap().msn.get()),
            (0, 1)
        );
        s.link.give(0, &responses);
        s.link.give(1, &requests);
    }
    assert_eq!(s.memory[1].bytes(0, 64), changed);
    s.ends[0].cq.expect(1, Status::Success);
    s.ends[0].cq.expect_none();
}

/// A packet that names more or fewer bytes than it has is an invalid request (oA19-28).
#[test]
fn by_packets_the_length_is_eight() {
    for length in [0u8, 7, 9, 16] {
        let mut s = Scene::with(64, |_| ());
        s.ends[0]
            .qp
            .post_send(&Wr::atomic_write(1, s.memory[1].remote(8), VALUE));
        let mut requests = s.link.sent(0);
        requests[0].transport[27] = length;
        requests[0].seal();
        s.link.give(1, &requests);
        let refusals = s.link.sent(1);
        s.link.give(0, &refusals);
        s.ends[0].cq.expect(1, Status::RemoteInvalidRequest);
        assert_eq!(s.memory[1].bytes(0, 64), [0; 64]);
    }
}
