// SPDX-License-Identifier: GPL-2.0

//! A request that waits for an acknowledgement asks for it.
//!
//! Nothing is lost here, and the timeout is 0: a requester that waits for an answer that nobody
//! owes it waits for ever.

use ferrule_engine::abi::wr_flags::{FENCE, SIGNALED};
use ferrule_engine::{Budget, Modify, QpEvent, State, Status};

use crate::sim::*;

const SIZE: u32 = 3 << 20;
const IOVA: u64 = 0x1234_5000;

/// A connection of queue pairs of the host's own, which may register regions, too.
type Scene = scene::Scene<Asks>;

enum Asks {}

impl Scene {
    fn new() -> Self {
        Self::of(
            SIZE as usize,
            |world, cq| world.qp_in(None, &QpSpec::default(), cq, cq),
            |modify| modify.timeout = modify.timeout.map(|_| 0),
        )
    }

    fn write(&self, wr_id: u64, length: u32) -> Wr {
        let sge = self.memory[0].sge(0, length);
        Wr::write(wr_id, &[sge], self.memory[1].remote(0))
    }

    fn read(&self, wr_id: u64, length: u32) -> Wr {
        let sge = self.memory[0].sge(0, length);
        Wr::read(wr_id, &[sge], self.memory[1].remote(0))
    }

    fn send(&self, wr_id: u64) -> Wr {
        Wr::send(wr_id, &[self.memory[0].sge(0, 8)])
    }

    /// A request with a local key that is none.
    fn bad(&self, wr_id: u64) -> Wr {
        let (addr, length, key) = self.memory[0].sge(0, 8);
        Wr::send(wr_id, &[(addr, length, key ^ 1)])
    }

    /// Registers a region of `length` bytes, which has 64.
    fn register(&mut self, wr_id: u64, length: u64) -> Wr {
        let mr = self.link.worlds[0].fast_mr(1, memory::shared(64));
        mr.region.next.set(Some((0, 64)));
        Wr::register(wr_id, mr.key, IOVA, length)
    }

    /// Posts all at once.
    fn post(&mut self, wrs: &[Wr]) {
        for wr in wrs {
            self.ends[0].qp.put_send(wr);
        }
        let number = self.ends[0].qp.id.number;
        self.link.worlds[0].engine.ring_qp(number);
    }

    /// Lets all happen that is to happen, and tells how requests have ended.
    fn ended(&mut self) -> Vec<(u64, u8)> {
        self.link.settle();
        let ended = self.ends[0].cq.drain();
        ended.iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

const GOOD: u8 = Status::Success as u8;
const FLUSHED: u8 = Status::Flushed as u8;

/// A request that must not be sent ends when all before it have ended, although their last packet
/// asked for no acknowledgement: more was to follow.
#[test]
fn a_request_that_must_not_be_sent() {
    type Bad = fn(&mut Scene) -> (Wr, Status);
    let cases: [Bad; 5] = [
        |s| (s.bad(5), Status::LocalProtection),
        |s| (s.send(5).with_opcode(77), Status::LocalOperation),
        |s| (s.read(5, 8).with_flags(0xff), Status::LocalOperation),
        |s| (s.register(5, 65), Status::WindowBind),
        |s| (Wr::local_inv(5, s.memory[0].key), Status::WindowBind),
    ];
    for bad in cases {
        for length in [8, 5000, 200_000] {
            for reads in [false, true] {
                for follows in [false, true] {
                    let mut s = Scene::new();
                    let mut wrs = vec![s.write(1, length)];
                    if reads {
                        wrs.push(s.read(2, 3000));
                        wrs.push(s.write(3, length));
                    }
                    wrs.iter_mut().for_each(|wr| wr.flags = 0);
                    let (bad, status) = bad(&mut s);
                    wrs.push(bad);
                    let mut ends = vec![(5, status as u8)];
                    if follows {
                        wrs.push(s.write(6, 8));
                        ends.push((6, FLUSHED));
                    }
                    s.post(&wrs);
                    assert_eq!(s.ended(), ends, "{length} {reads} {follows} {status:?}");
                    s.link.worlds[0].state(&s.ends[0].qp, State::Err);
                }
            }
        }
    }
}

/// A request that waits for those before it, though it is a good one.
#[test]
fn a_request_that_waits() {
    type Waits = fn(&mut Scene) -> Wr;
    let cases: [Waits; 7] = [
        |s| s.register(5, 64).with_flags(SIGNALED | FENCE),
        |s| s.read(5, SIZE),
        |s| s.read(5, 8).with_flags(SIGNALED | FENCE),
        |s| s.write(5, 8).with_flags(SIGNALED | FENCE),
        |s| Wr::fetch_add(5, s.memory[0].sge(0, 8), s.memory[1].remote(0), 1),
        |s| Wr::atomic_write(5, s.memory[1].remote(0), 1),
        |s| Wr::flush(5, s.memory[1].remote(0), 8),
    ];
    for waits in cases {
        for length in [8, 5000, 200_000] {
            for reads in [0, 1, 5] {
                let mut s = Scene::new();
                let mut wrs = vec![s.write(1, length).with_flags(0)];
                for _ in 0..reads {
                    wrs.push(s.read(2, 3000).with_flags(0));
                    wrs.push(s.write(3, length).with_flags(0));
                }
                wrs.push(waits(&mut s));
                wrs.push(s.write(6, 8));
                s.post(&wrs);
                assert_eq!(s.ended(), [(5, GOOD), (6, GOOD)], "{length} {reads}");
            }
        }
    }
}

/// A request that waits behind a packet that is sent again: the first copy of that asked, and was
/// refused.
#[test]
fn a_request_that_waits_behind_one_that_was_refused() {
    let mut s = Scene::new();
    let first = s.send(1);
    s.post(&[first]);
    let waits = s.register(2, 64).with_flags(SIGNALED | FENCE);
    s.post(&[waits]);
    while s.link.worlds[0].engine.counters().receiver_not_ready == 0 {
        assert!(s.link.step());
    }
    let last = s.write(3, 8);
    s.post(&[last]);
    s.ends[1].qp.post_recv(4, &[s.memory[1].sge(0, 64)]);
    assert_eq!(s.ended(), [(1, GOOD), (2, GOOD), (3, GOOD)]);
}

/// A requester that has no more receive requests of the peer waits for word of others.
#[test]
fn a_message_without_credit() {
    let mut s = Scene::new();
    let buffer = s.memory[1].sge(0, 64);
    for wr_id in 0..4 {
        s.ends[1].qp.post_recv(wr_id, &[buffer]);
    }
    // With its acknowledgement, the first one learns of the others.
    let first = s.send(0);
    s.post(&[first]);
    assert_eq!(s.ended(), [(0, GOOD)]);
    let wrs: Vec<_> = (1..8).map(|wr_id| s.send(wr_id).with_flags(0)).collect();
    s.post(&wrs);
    s.link.run();
    // The third one was sent and asks, and the next one is not sent without an answer.
    assert_eq!(s.link.network.sent[1], 4);
    for wr_id in 4..8 {
        s.ends[1].qp.post_recv(wr_id, &[buffer]);
    }
    assert_eq!(s.ended(), []);
    for wr_id in 0..8 {
        s.ends[1].cq.expect(wr_id, Status::Success);
    }
    assert_eq!(s.link.worlds[0].engine.counters().receiver_not_ready, 0);
}

/// In SQD nothing more is begun, and requests that were begun end.
#[test]
fn the_last_request_that_was_begun() {
    for begun in 1..6 {
        let mut s = Scene::new();
        let wrs: Vec<_> = (0..6).map(|wr_id| s.write(wr_id, 3000)).collect();
        s.post(&wrs);
        let world = &mut s.link.worlds[0];
        let some = Budget {
            requests: begun,
            ..PLENTY
        };
        world.engine.run(&mut world.host, some, None);
        let drain = Modify {
            state: Some(State::Sqd),
            en_sqd_async_notify: Some(true),
            ..Modify::default()
        };
        world.modify(&s.ends[0].qp, &drain).unwrap();
        let ends: Vec<_> = (0..u64::from(begun)).map(|wr_id| (wr_id, GOOD)).collect();
        assert_eq!(s.ended(), ends);
        let drained = Event::Qp(s.ends[0].qp.name, QpEvent::SendQueueDrained);
        assert!(s.link.worlds[0].events().contains(&drained));
        s.link.worlds[0].to(&s.ends[0].qp, State::Rts);
        assert_eq!(s.ended().len(), 6 - begun as usize);
    }
}
