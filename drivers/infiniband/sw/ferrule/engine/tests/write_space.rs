// SPDX-License-Identifier: GPL-2.0

//! Queue pairs wait while as many of their packets as may be are on their way to the network.

use ferrule_engine::packet::opcode::rc;
use ferrule_engine::{Sends, State, Status};

use crate::sim::*;

/// After this the engine tries again, though nobody has rung.
const LAST_RESORT: u64 = 100 * MS;

/// A connection, whose packets a test hands on one by one. The host of the first side is full of
/// packets of one kind, so that it can send none.
type Scene = scene::Scene<WriteSpace>;

enum WriteSpace {}

impl Scene {
    fn new(kind: Sends) -> Self {
        let mut scene = Self::with(1 << 16, |_| ());
        scene.memory[0].fill(3);
        scene.link.worlds[0].host.full = Some(kind);
        scene
    }

    /// A write of so many bytes by the first side.
    fn write(&self, length: u32) {
        let wr = Wr::write(
            1,
            &[self.memory[0].sge(0, length)],
            self.memory[1].remote(0),
        );
        self.ends[0].qp.post_send(&wr);
    }

    /// A read by the second side; answers what the first side sends for it.
    fn read(&mut self) -> Vec<SentPacket> {
        let wr = Wr::read(2, &[self.memory[1].sge(0, 8)], self.memory[0].remote(0));
        self.ends[1].qp.post_send(&wr);
        let request = self.link.sent(1);
        self.link.give(0, &request);
        self.link.sent(0)
    }

    fn waits(&self) -> u64 {
        self.link.worlds[0].engine.counters().send_waits
    }

    /// There is space, and the host says so.
    fn free_write_space(&mut self) {
        let number = self.ends[0].qp.id.number;
        let world = &mut self.link.worlds[0];
        world.host.full = None;
        world.engine.ring_qp(number);
    }
}

#[test]
fn requests_wait_until_they_are_rung() {
    let mut s = Scene::new(Sends::Requests);
    s.write(5000);
    assert_eq!(s.link.sent(0), []);
    assert_eq!(s.waits(), 1);
    // Another reason for a turn does not make the queue pair ask again.
    s.link.wait(MS);
    s.write(5000);
    assert_eq!((s.link.sent(0), s.waits()), (vec![], 1));
    s.free_write_space();
    let sent = s.link.sent(0);
    assert!(!sent.is_empty());
    s.link.give(1, &sent);
    s.link.settle();
    for _ in 0..2 {
        s.ends[0].cq.expect(1, Status::Success);
    }
    assert_eq!(s.memory[1].bytes(0, 5000), s.memory[0].bytes(0, 5000));
    assert_eq!(s.link.worlds[0].engine.counters().retries, 0);
}

/// The peer's requests are answered meanwhile: it may have filled up by what it waits for an answer
/// to.
#[test]
fn answers_do_not_wait_for_write_space_for_requests() {
    let mut s = Scene::new(Sends::Requests);
    s.write(100);
    assert_eq!(s.link.sent(0), []);
    let answers = s.read();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].transport[0], rc::READ_RESPONSE_ONLY);
    let wr = Wr::write(3, &[s.memory[1].sge(0, 8)], s.memory[0].remote(1000));
    s.ends[1].qp.post_send(&wr);
    s.link.give(1, &answers);
    let request = s.link.sent(1);
    s.link.give(0, &request);
    let answers = s.link.sent(0);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].transport[0], rc::ACKNOWLEDGE);
}

#[test]
fn answers_wait_until_they_are_rung() {
    let mut s = Scene::new(Sends::Responses);
    assert_eq!(s.read(), []);
    assert_eq!(s.waits(), 1);
    s.link.wait(MS);
    assert_eq!(s.link.sent(0), []);
    s.free_write_space();
    let sent = s.link.sent(0);
    assert_eq!(sent.len(), 1);
    s.link.give(1, &sent);
    s.ends[1].cq.expect(2, Status::Success);
    assert_eq!(s.memory[1].bytes(0, 8), s.memory[0].bytes(0, 8));
}

/// A host that never rings is asked again.
#[test]
fn nobody_waits_for_ever() {
    for kind in [Sends::Requests, Sends::Responses] {
        let mut s = Scene::new(kind);
        match kind {
            Sends::Requests => s.write(100),
            Sends::Responses => assert_eq!(s.read(), []),
        }
        assert_eq!(s.link.sent(0), []);
        s.link.worlds[0].host.full = None;
        s.link.wait(LAST_RESORT - 1);
        assert_eq!(s.link.sent(0), []);
        s.link.wait(1);
        assert_eq!(s.link.sent(0).len(), 1);
    }
}

/// Requests that wait for space are flushed like all others, and a queue pair that begins anew does
/// not wait.
#[test]
fn the_wait_for_write_space_ends_with_the_work() {
    let mut s = Scene::new(Sends::Requests);
    s.write(100);
    assert_eq!(s.link.sent(0), []);
    s.link.worlds[0].to(&s.ends[0].qp, State::Err);
    s.link.run();
    s.ends[0].cq.expect(1, Status::Flushed);
}
