// SPDX-License-Identifier: GPL-2.0

//! Answers on the wire: their order, their headers, and the packets that the requester takes for
//! one (IBA volume 1, 9.7.5).

use ferrule_engine::packet::{opcode::rc, Aeth, Bth, Packet, Syndrome};
use ferrule_engine::{Budget, Sends, State, Status};

use crate::sim::*;

const PACKET: u32 = 1024;

/// A connection whose packets are handed on one by one.
type Scene = scene::Scene<Answers>;

enum Answers {}

impl Scene {
    fn new() -> Self {
        let scene = Self::with(1 << 17, |_| ());
        scene.memory[0].fill(3);
        scene.memory[1].fill(7);
        scene
    }

    fn send(&self, wr_id: u64) -> Wr {
        Wr::send(wr_id, &[self.memory[0].sge(0, 100)])
    }

    fn read(&self, wr_id: u64, length: u32) -> Wr {
        let sge = self.memory[0].sge(0, length);
        Wr::read(wr_id, &[sge], self.memory[1].remote(0))
    }

    fn fetch_add(&self, wr_id: u64) -> Wr {
        let sge = self.memory[0].sge(0, 8);
        Wr::fetch_add(wr_id, sge, self.memory[1].remote(0), 1)
    }

    /// Posts all at once; answers their packets, each of which asks to be acknowledged.
    fn post(&mut self, wrs: &[Wr]) -> Vec<SentPacket> {
        for wr in wrs {
            self.ends[0].qp.put_send(wr);
        }
        self.ends[0].qp.ring();
        let mut packets = self.link.sent(0);
        for packet in &mut packets {
            packet.transport[8] |= Bth::ACK_REQ;
            packet.seal();
        }
        packets
    }

    fn post_recvs(&self, count: u64) {
        for wr_id in 0..count {
            let sge = self.memory[1].sge(0, 100);
            self.ends[1].qp.post_recv(wr_id, &[sge]);
        }
    }

    /// How requests have ended.
    fn ended(&self) -> Vec<(u64, u8)> {
        let ended = self.ends[0].cq.drain();
        ended.iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

/// The opcode of a packet, its number counted from the first one, and the messages that it tells
/// of.
fn told(packet: &SentPacket) -> (u8, u32, Option<u32>) {
    let packet = Packet::parse(&packet.transport, packet.transport.len()).unwrap();
    let bth = packet.bth();
    let number = bth.psn.get().wrapping_sub(SQ_PSN) & 0xff_ffff;
    (bth.opcode, number, packet.aeth().map(|aeth| aeth.msn.get()))
}

/// The queue pair that takes a long message has turns for its answers only.
#[test]
fn a_packet_that_is_not_answered_takes_no_turn() {
    let mut scene = Scene::new();
    let sge = scene.memory[0].sge(0, 8 * PACKET);
    let write = Wr::write(1, &[sge], scene.memory[1].remote(0));
    scene.ends[0].qp.put_send(&write);
    scene.ends[0].qp.ring();
    let packets = scene.link.sent(0);
    assert_eq!(packets.len(), 8);
    let turns = |scene: &Scene| scene.link.worlds[1].engine.counters().turns;
    scene.link.sent(1);
    let before = turns(&scene);
    let answers = scene.link.answers(1, &packets[..7]);
    let asked = packets[..7]
        .iter()
        .filter(|packet| packet.transport[8] & Bth::ACK_REQ != 0)
        .count();
    assert_eq!(
        (answers.len(), turns(&scene) - before),
        (asked, asked as u64)
    );
    assert_eq!(scene.link.answers(1, &packets[7..]).len(), 1);
    assert_eq!(turns(&scene) - before, asked as u64 + 1);
}

/// Answers leave in the order of the requests, and each tells how many messages had been carried
/// out when its own was. An answer with data acknowledges the requests before it, which get no
/// acknowledgement of their own.
#[test]
fn answers_leave_in_order_with_numbers_of_their_own() {
    let mut s = Scene::new();
    s.post_recvs(3);
    let wrs = [
        s.send(0),
        s.read(1, 3 * PACKET),
        s.send(2),
        s.fetch_add(3),
        s.send(4),
    ];
    let requests = s.post(&wrs);
    s.link.give(1, &requests);
    let answers = s.link.sent(1);
    assert_eq!(
        answers.iter().map(told).collect::<Vec<_>>(),
        [
            (rc::READ_RESPONSE_FIRST, 1, Some(2)),
            (rc::READ_RESPONSE_MIDDLE, 2, None),
            (rc::READ_RESPONSE_LAST, 3, Some(2)),
            (rc::ATOMIC_ACKNOWLEDGE, 5, Some(4)),
            (rc::ACKNOWLEDGE, 6, Some(5)),
        ]
    );
    // Without path migration each packet is of a path that has migrated (IBA volume 1, 17.2.8).
    for packet in requests.iter().chain(&answers) {
        assert_ne!(packet.transport[1] & Bth::MIGRATED, 0);
    }
    s.link.give(0, &answers);
    s.link.settle();
    assert_eq!(s.ended(), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
    // Asked for again, an answer tells what it told.
    s.link.give(1, &requests[1..2]);
    let again = s.link.sent(1);
    assert_eq!(told(&again[0]), (rc::READ_RESPONSE_FIRST, 1, Some(2)));
    // An acknowledgement that is behind the data waits for them.
    s.link.give(1, &[requests[1].clone(), requests[4].clone()]);
    let again: Vec<_> = s.link.sent(1).iter().map(|packet| told(packet).0).collect();
    assert_eq!(again[2..], [rc::READ_RESPONSE_LAST, rc::ACKNOWLEDGE]);
}

/// The host has no space for an answer with data: nothing overtakes it.
#[test]
fn an_answer_that_waits_for_the_host_keeps_its_place() {
    let mut s = Scene::new();
    s.post_recvs(1);
    let wrs = [s.send(0), s.read(1, 8)];
    let requests = s.post(&wrs);
    s.link.give(1, &requests);
    s.link.worlds[1].host.busy = 1;
    assert_eq!(s.link.sent(1), []);
    s.link.wait(50 * US);
    let answers: Vec<_> = s.link.sent(1).iter().map(told).collect();
    assert_eq!(answers, [(rc::READ_RESPONSE_ONLY, 1, Some(2))]);
}

/// The syndrome of an answer with data.
fn aeth(packet: &mut SentPacket) -> &mut u8 {
    let at = size_of::<Bth>();
    assert!(packet.transport.len() >= at + size_of::<Aeth>());
    &mut packet.transport[at]
}

/// Data with a refusal in their header are no success.
#[test]
fn data_that_refuse_are_no_answer() {
    // RNR, remote access, remote operation.
    for syndrome in [0x20, 0x62, 0x63] {
        for is_atomic in [false, true] {
            let mut s = Scene::new();
            let before = s.memory[0].bytes(0, 8);
            let wr = match is_atomic {
                false => s.read(1, 8),
                true => s.fetch_add(1),
            };
            let next = s.read(2, 8);
            let requests = s.post(&[wr, next]);
            s.link.give(1, &requests);
            let mut answers = s.link.sent(1);
            *aeth(&mut answers[0]) = syndrome;
            answers[0].seal();
            s.link.give(0, &answers);
            s.link.sent(0);
            let (bad, flushed) = (Status::BadResponse as u8, Status::Flushed as u8);
            assert_eq!(s.ended(), [(1, bad), (2, flushed)]);
            assert_eq!(s.memory[0].bytes(0, 8), before);
            s.link.worlds[0].state(&s.ends[0].qp, State::Err);
        }
    }
}

/// An answer begins with its first packet, ends with its last one, and does neither between.
#[test]
fn answers_keep_their_order_of_opcodes() {
    const FIRST: u8 = rc::READ_RESPONSE_FIRST;
    const MIDDLE: u8 = rc::READ_RESPONSE_MIDDLE;
    const LAST: u8 = rc::READ_RESPONSE_LAST;
    const ONLY: u8 = rc::READ_RESPONSE_ONLY;

    let orders = [
        ([FIRST, MIDDLE, LAST], true),
        ([MIDDLE, MIDDLE, LAST], false),
        ([ONLY, MIDDLE, LAST], false),
        ([LAST, MIDDLE, LAST], false),
        ([FIRST, FIRST, LAST], false),
        ([FIRST, LAST, LAST], false),
        ([FIRST, ONLY, LAST], false),
        ([FIRST, MIDDLE, MIDDLE], false),
        ([FIRST, MIDDLE, FIRST], false),
        ([FIRST, MIDDLE, ONLY], false),
    ];
    for (order, is_good) in orders {
        let mut s = Scene::new();
        let read = s.read(1, 3 * PACKET);
        let requests = s.post(&[read]);
        s.link.give(1, &requests);
        let mut answers = s.link.sent(1);
        for (answer, opcode) in answers.iter_mut().zip(order) {
            set_opcode(answer, opcode);
        }
        s.link.give(0, &answers);
        s.link.sent(0);
        let status = match is_good {
            true => Status::Success,
            false => Status::BadResponse,
        };
        assert_eq!(s.ended(), [(1, status as u8)], "{order:x?}");
    }
}

/// Gives an answer another opcode, and the header that goes with it.
fn set_opcode(answer: &mut SentPacket, opcode: u8) {
    let at = size_of::<Bth>();
    let has = answer.transport[0] != rc::READ_RESPONSE_MIDDLE;
    let needs = opcode != rc::READ_RESPONSE_MIDDLE;
    answer.transport[0] = opcode;
    match (has, needs) {
        (false, true) => drop(answer.transport.splice(at..at, [0; size_of::<Aeth>()])),
        (true, false) => drop(answer.transport.drain(at..at + size_of::<Aeth>())),
        _ => (),
    }
    answer.seal();
}

/// Of what was asked for again, answers may begin and end anywhere: rdma_rxe goes on with the
/// middle of its answer, others begin anew.
#[test]
fn answers_to_what_was_asked_again_begin_anywhere() {
    for opcode in [rc::READ_RESPONSE_FIRST, rc::READ_RESPONSE_MIDDLE] {
        let mut s = Scene::new();
        let read = s.read(1, 5 * PACKET);
        let requests = s.post(&[read]);
        s.link.give(1, &requests);
        let mut answers = s.link.sent(1);
        // Two in the middle are lost.
        let lost: Vec<_> = answers.drain(1..3).collect();
        s.link.give(0, &answers);
        let again = s.link.sent(0);
        assert_eq!((again.len(), told(&again[0]).1), (1, 1));
        s.link.give(1, &again);
        let mut answers = s.link.sent(1);
        assert_eq!(answers.len(), lost.len());
        set_opcode(&mut answers[0], opcode);
        s.link.give(0, &answers);
        s.link.sent(0);
        assert_eq!(s.ended(), [(1, 0)]);
        let length = 5 * PACKET as usize;
        assert_eq!(s.memory[0].bytes(0, length), s.memory[1].bytes(0, length));
    }
}

/// The responder may tell of more receive requests at any time, by the number that it has
/// acknowledged last (IBA volume 1, 9.7.7.2).
#[test]
fn credits_come_by_themselves() {
    let mut s = Scene::new();
    s.post_recvs(1);
    let first = s.send(0);
    let requests = s.post(&[first]);
    s.link.give(1, &requests);
    let acknowledged = s.link.sent(1);
    s.link.give(0, &acknowledged);
    let wrs = [s.send(1), s.send(2), s.send(3), s.send(4)];
    // None is left, so one goes alone.
    assert_eq!(s.post(&wrs).len(), 1);
    let mut renewed = acknowledged[0].clone();
    let credits = |count: u8| Syndrome::Acknowledge(count).bits();
    *aeth(&mut renewed) = credits(2);
    renewed.seal();
    s.link.give(0, std::slice::from_ref(&renewed));
    // With two more, the third message is the last one that finds a receive request.
    assert_eq!(s.link.sent(0).len(), 1);
    // A copy of what was told before takes nothing away.
    let before = s.link.worlds[0].engine.counters().duplicates;
    s.link.give(0, &acknowledged);
    assert_eq!(s.link.sent(0), []);
    assert_eq!(s.link.worlds[0].engine.counters().duplicates, before + 1);
    *aeth(&mut renewed) = credits(3);
    renewed.seal();
    s.link.give(0, &[renewed]);
    assert_eq!(s.link.sent(0).len(), 1);
}

/// An atomic operation with the number of a read is no duplicate of it, whatever it looks like:
/// nothing is answered, of that read or behind it.
#[test]
fn an_atomic_is_no_duplicate_of_a_read() {
    let mut s = Scene::new();
    let wrs = [s.read(1, 8), s.fetch_add(2)];
    let requests = s.post(&wrs);
    s.link.give(1, &requests);
    assert_eq!(s.link.sent(1).len(), 2);
    let before = s.memory[1].bytes(0, 64);
    let mut atomic = requests[1].clone();
    let at = core::mem::offset_of!(Bth, psn);
    atomic.transport[at..at + 3].copy_from_slice(&requests[0].transport[at..at + 3]);
    atomic.seal();
    s.link.give(1, &[atomic]);
    assert_eq!(s.link.sent(1), []);
    let counters = s.link.worlds[1].engine.counters();
    assert_eq!((counters.duplicates, counters.dropped), (1, 0));
    assert_eq!(s.memory[1].bytes(0, 64), before);
    // The atomic operation itself is answered again, and not carried out again.
    s.link.give(1, &requests[1..]);
    assert_eq!(
        told(&s.link.sent(1)[0]),
        (rc::ATOMIC_ACKNOWLEDGE, 1, Some(2))
    );
    assert_eq!(s.memory[1].bytes(0, 64), before);
}

/// A pending answer stays until the host can send it, whatever duplicates come meanwhile: a
/// refusal, and an acknowledgement of more.
#[test]
fn duplicates_do_not_take_an_answer_back() {
    let mut s = Scene::new();
    s.post_recvs(4);
    let wrs = [s.send(0), s.send(1), s.send(2)];
    let requests = s.post(&wrs);
    s.link.give(1, &requests[..2]);
    assert_eq!(s.link.sent(1).len(), 1);

    // One is missing, which is told later.
    let mut ahead = requests[2].clone();
    let at = core::mem::offset_of!(Bth, psn) + 2;
    ahead.transport[at] = ahead.transport[at].wrapping_add(1);
    ahead.seal();
    s.link.worlds[1].host.busy = 1;
    s.link.give(1, &[ahead]);
    assert_eq!(s.link.sent(1), []);
    s.link.give(1, &requests[..1]);
    s.link.wait(50 * US);
    let answers = s.link.sent(1);
    let packet = Packet::parse(&answers[0].transport, answers[0].transport.len()).unwrap();
    assert_eq!(packet.aeth().map(|aeth| aeth.syndrome), Some(0x60));
    assert_eq!(told(&answers[0]).1, 2);

    // It comes, so both are acknowledged later, and the first one comes once more.
    s.link.worlds[1].host.busy = 1;
    s.link.give(1, &requests[2..]);
    assert_eq!(s.link.sent(1), []);
    let mut first = requests[0].clone();
    first.transport[8] &= !Bth::ACK_REQ;
    first.seal();
    s.link.give(1, &[first]);
    s.link.wait(50 * US);
    let answers: Vec<_> = s.link.sent(1).iter().map(told).collect();
    assert_eq!(answers, [(rc::ACKNOWLEDGE, 3, Some(4))]);
    assert_eq!(s.link.worlds[1].engine.counters().naks_sent, 1);
}

/// A read whose memory goes before its first answer is refused, and both queue pairs are in error.
#[test]
fn a_read_whose_memory_goes_is_refused() {
    let mut s = Scene::new();
    let read = s.read(1, 8);
    let requests = s.post(&[read]);
    s.link.worlds[1].host.busy = 1;
    s.link.give(1, &requests);
    assert_eq!(s.link.sent(1), []);
    let key = s.memory[1].key;
    s.link.worlds[1].engine.remove_mr(key).unwrap();
    s.link.wait(50 * US);
    let answers = s.link.sent(1);
    assert_eq!(answers.len(), 1);
    s.link.give(0, &answers);
    s.link.sent(0);
    assert_eq!(s.ended(), [(1, Status::RemoteAccess as u8)]);
    s.link.worlds[1].state(&s.ends[1].qp, State::Err);
}

/// Data with the number of a request that gets none, or gets other data, go nowhere.
#[test]
fn data_for_a_request_that_gets_none_are_dropped() {
    let s = Scene::new();
    let wrs = [s.read(9, 8), s.fetch_add(8)];
    let mut other = Scene::new();
    let requests = other.post(&wrs);
    other.link.give(1, &requests);
    let [read, atomic] = &other.link.sent(1)[..] else {
        panic!("two responses");
    };
    // A SEND, and then each of the two kinds of data with the number of the other.
    for (wr, response) in [
        (s.send(1), read),
        (s.send(1), atomic),
        (s.read(1, 8), atomic),
        (s.fetch_add(1), read),
    ] {
        let mut s = Scene::new();
        let request = s.post(&[wr]);
        let before = s.memory[0].bytes(0, 200);
        let mut strange = response.clone();
        let at = core::mem::offset_of!(Bth, psn);
        strange.transport[at..at + 3].copy_from_slice(&request[0].transport[at..at + 3]);
        strange.seal();
        s.link.give(0, &[strange]);
        assert_eq!(s.link.worlds[0].engine.counters().dropped, 1);
        assert_eq!(s.memory[0].bytes(0, 200), before);
        assert_eq!(s.ended(), []);
    }
}

/// A peer that reads without end leaves each second turn to the requests of the queue pair, and so
/// does one whose responses have filled the write space.
#[test]
fn reads_leave_turns_to_requests() {
    const SIZE: u32 = 1 << 20;
    const TURN: Budget = Budget {
        requests: 64,
        bytes: 1 << 16,
    };

    let mut s = Scene::with(SIZE as usize, |_| ());
    // More than a requester here asks for at a time.
    let mut request = s.post(&[s.read(1, 8)]).remove(0);
    request.transport[24..28].copy_from_slice(&SIZE.to_be_bytes());
    request.seal();
    s.link.give(1, &[request]);

    let sge = s.memory[1].sge(0, 8);
    let write = Wr::write(2, &[sge], s.memory[0].remote(0));
    let turn = |s: &mut Scene| {
        let world = &mut s.link.worlds[1];
        world.engine.run(&mut world.host, TURN, None);
        let sent = std::mem::take(&mut world.host.sent).into_iter();
        sent.map(|packet| packet.transport[0]).collect::<Vec<_>>()
    };
    s.ends[1].qp.post_send(&write);
    assert!(!turn(&mut s).contains(&rc::WRITE_ONLY));
    let sent = turn(&mut s);
    assert_eq!(sent[..2], [rc::WRITE_ONLY, rc::READ_RESPONSE_MIDDLE]);

    s.link.worlds[1].host.full = Some(Sends::Responses);
    s.ends[1].qp.post_send(&write);
    for _ in 0..3 {
        assert_eq!(turn(&mut s), []);
    }
    let world = &mut s.link.worlds[1];
    world.host.full = None;
    world.engine.ring_qp(s.ends[1].qp.id.number);
    let sent = turn(&mut s);
    assert_eq!(sent[..2], [rc::WRITE_ONLY, rc::READ_RESPONSE_MIDDLE]);
}
