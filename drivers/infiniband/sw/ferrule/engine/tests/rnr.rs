// SPDX-License-Identifier: GPL-2.0

//! Receiver not ready: the cost, and other traffic meanwhile (IBA volume 1, 9.7.5.2.8).

use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::{Bth, Packet, Syndrome};
use ferrule_engine::{Modify, State, Status};

use crate::sim::*;

/// The waits that the timer's code 12 asks for, and its code 0.
const WAIT: u64 = 640 * US;
const LONGEST: u64 = 655_360 * US;

/// A connection whose packets are handed on one by one.
type Scene = scene::Scene<Rnr>;

enum Rnr {}

impl Scene {
    fn new(change: impl Fn(&mut Modify)) -> Self {
        Self::with(1 << 16, change)
    }

    /// So many RNR retries.
    fn with_retries(retries: u8) -> Self {
        Self::new(|modify| modify.rnr_retry = modify.rnr_retry.map(|_| retries))
    }

    /// Posts so many SENDs, from 0 on; answers their packets.
    fn sends(&mut self, count: u64) -> Vec<SentPacket> {
        for wr_id in 0..count {
            let sge = self.memory[0].sge(0, 100);
            self.ends[0].qp.put_send(&Wr::send(wr_id, &[sge]));
        }
        self.ends[0].qp.ring();
        self.link.sent(0)
    }

    fn post_recv(&self, wr_id: u64) {
        let sge = self.memory[1].sge(0, 100);
        self.ends[1].qp.post_recv(wr_id, &[sge]);
    }

    /// The peer reads, and the host has no space for the response.
    fn read_finds_the_host_busy(&mut self) {
        let read = Wr::read(7, &[self.memory[1].sge(0, 8)], self.memory[0].remote(0));
        self.ends[1].qp.post_send(&read);
        let request = self.link.sent(1);
        self.link.worlds[0].host.busy = 1;
        self.link.give(0, &request);
        assert_eq!(self.link.sent(0), []);
    }

    /// The response leaves when the wait for the host is over, and the request when that for a
    /// receiver is, which takes `wait`.
    fn expect_both_waits(&mut self, wait: u64) {
        self.link.wait(50 * US);
        let answers = self.link.sent(0);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].transport[0], rc::READ_RESPONSE_ONLY);
        self.link.wait(wait - 50 * US - 1);
        assert_eq!(self.link.sent(0), []);
        self.link.wait(1);
        assert_eq!(self.link.sent(0).len(), 1);
    }

    fn not_ready(&self) -> u64 {
        self.link.worlds[0].engine.counters().receiver_not_ready
    }

    /// How requests have ended.
    fn ended(&self) -> Vec<u8> {
        let ended = self.ends[0].cq.drain();
        ended.iter().map(|wc| wc.status).collect()
    }
}

/// Whether an answer says that there was no receive request.
fn is_not_ready(answer: &SentPacket) -> bool {
    let packet = Packet::parse(&answer.transport, answer.transport.len()).unwrap();
    let syndrome = packet
        .aeth()
        .and_then(|aeth| Syndrome::parse(aeth.syndrome));
    matches!(syndrome, Some(Syndrome::RnrNak(_)))
}

/// The network has the refusal twice: the second copy tells nothing new while the wait runs.
#[test]
fn a_refusal_that_comes_twice_costs_one_retry() {
    let mut s = Scene::with_retries(1);
    let sent = s.sends(1);
    let refusal = s.link.answers(1, &sent);
    assert!(is_not_ready(&refusal[0]));
    for _ in 0..3 {
        s.link.give(0, &refusal);
        assert_eq!(s.link.sent(0), []);
    }
    assert_eq!((s.ended(), s.not_ready()), (vec![], 1));
    // The wait is as long as the first copy said.
    s.link.wait(WAIT - 1);
    assert_eq!(s.link.sent(0), []);
    s.link.wait(1);
    s.post_recv(7);
    s.link.settle();
    assert_eq!(s.ended(), [Status::Success as u8]);
}

/// A number of retries that is set while the send queue is drained holds from the next request on.
#[test]
fn retries_may_be_set_while_the_queue_is_drained() {
    let mut s = Scene::with_retries(1);
    let world = &mut s.link.worlds[0];
    world.to(&s.ends[0].qp, State::Sqd);
    world.run();
    let more = Modify {
        rnr_retry: Some(3),
        ..Modify::default()
    };
    world.modify(&s.ends[0].qp, &more).unwrap();
    world.to(&s.ends[0].qp, State::Rts);
    let mut sent = s.sends(1);
    for _ in 0..4 {
        assert_eq!((s.ended(), sent.len()), (vec![], 1));
        let refusal = s.link.answers(1, &sent);
        s.link.give(0, &refusal);
        s.link.wait(WAIT);
        sent = s.link.sent(0);
    }
    assert_eq!(s.ended(), [Status::RnrRetryExceeded as u8]);
}

/// One receive request comes while three SENDs wait, and the second one is refused once: by a host
/// that keeps what is behind a refused packet, and by one that keeps nothing.
#[test]
fn one_lack_of_a_receive_request_costs_one_retry() {
    for keeps in [true, false] {
        REORDERS.set(keeps);
        let mut s = Scene::with_retries(1);
        let sent = s.sends(3);
        let refusal = s.link.answers(1, &sent);
        s.link.give(0, &refusal);
        assert_eq!(s.link.sent(0), []);
        s.post_recv(7);
        s.link.wait(WAIT);
        let again = s.link.sent(0);
        assert_eq!(again.len(), 3);
        let answers = s.link.answers(1, &again);
        let refusals = answers.iter().filter(|answer| is_not_ready(answer));
        assert_eq!(refusals.count(), 1, "keeps: {keeps}");
        s.link.give(0, &answers);
        assert_eq!(s.link.sent(0), []);
        assert_eq!((s.ended(), s.not_ready()), (vec![0], 2), "keeps: {keeps}");
        s.post_recv(8);
        s.post_recv(9);
        s.link.settle();
        assert_eq!(s.ended(), [0, 0]);
        assert_eq!(BUFFERED.get(), 0);
    }
    REORDERS.set(true);
}

/// The peer goes back when a receive request is missing, so it sends the kept packets again. The
/// responder refuses such a packet then, unless a receive request has come first.
#[test]
fn a_kept_packet_waits_until_it_comes_again() {
    let mut s = Scene::new(|_| ());
    let sent = s.sends(3);
    let refusal = s.link.answers(1, &sent);
    assert_eq!(refusal.len(), 1);
    s.link.wait(WAIT);
    s.post_recv(7);
    s.link.give(1, &sent[..1]);
    let answers = s.link.sent(1);
    assert!(!answers.iter().any(is_not_ready));
    s.post_recv(8);
    s.link.give(1, &sent[1..2]);
    let answers = s.link.sent(1);
    assert!(!answers.iter().any(is_not_ready));
    s.ends[1].cq.expect(7, Status::Success);
    s.ends[1].cq.expect(8, Status::Success);
    // The copy that was kept of the second goes with it.
    assert_eq!(BUFFERED.get(), 1);
    let answers = s.link.answers(1, &sent[2..]);
    assert_eq!((answers.len(), is_not_ready(&answers[0])), (1, true));
}

/// A packet was lost. A peer that sends that one alone again has to hear that a kept packet found
/// no receive request. A peer that sends all again has the kept packet on its way, and hears it
/// once.
#[test]
fn a_kept_packet_behind_a_loss_is_refused_once() {
    for goes_back in [false, true] {
        let mut s = Scene::new(|_| ());
        s.post_recv(7);
        let sent = s.sends(3);
        let missing = s.link.answers(1, &sent[1..]);
        assert_eq!(missing.len(), 1);
        assert!(!is_not_ready(&missing[0]));
        let answers = s.link.answers(1, &sent[..1]);
        assert_eq!((answers.len(), is_not_ready(&answers[0])), (1, true));
        if goes_back {
            assert_eq!(s.link.answers(1, &sent[1..]), []);
        }
        // A copy that comes when the wait is over was sent after it.
        s.link.wait(WAIT);
        let answers = s.link.answers(1, &sent[1..]);
        assert_eq!((answers.len(), is_not_ready(&answers[0])), (1, true));
        s.post_recv(8);
        s.post_recv(9);
        s.link.wait(WAIT);
        let answers = s.link.answers(1, &sent[1..]);
        assert!(!answers.iter().any(is_not_ready));
        for wr_id in 7..10 {
            s.ends[1].cq.expect(wr_id, Status::Success);
        }
        assert_eq!(BUFFERED.get(), 0);
    }
}

/// The peer's clock may be faster: a copy that comes a little before its wait is over was sent
/// after it.
#[test]
fn a_peer_may_have_waited_by_a_faster_clock() {
    let mut s = Scene::new(|_| ());
    let sent = s.sends(1);
    for _ in 0..3 {
        let refusal = s.link.answers(1, &sent);
        assert_eq!((refusal.len(), is_not_ready(&refusal[0])), (1, true));
        s.link.wait(WAIT - WAIT / 20);
    }
}

/// A copy that comes sooner than that was sent before the peer heard the refusal.
#[test]
fn a_copy_of_what_was_refused_is_not_refused() {
    let mut s = Scene::new(|_| ());
    let sent = s.sends(1);
    assert_eq!(s.link.answers(1, &sent).len(), 1);
    s.link.wait(WAIT - WAIT / 16 - 1);
    assert_eq!(s.link.answers(1, &sent), []);
    assert_eq!(s.link.answers(1, &sent).len(), 1);
    s.link.wait(WAIT - WAIT / 16);
    assert_eq!(s.link.answers(1, &sent).len(), 1);
}

/// A refusal that was lost is told again, long before the wait is over that nobody knows of.
#[test]
fn a_refusal_that_was_lost_is_told_again() {
    let mut s = Scene::new(|modify| modify.min_rnr_timer = modify.min_rnr_timer.map(|_| 0));
    let sent = s.sends(1);
    let refusal = s.link.answers(1, &sent);
    assert!(is_not_ready(&refusal[0]));
    while s.not_ready() == 0 {
        assert!(s.link.step());
    }
    assert!(s.link.now < LONGEST / 2);
}

/// While requests wait for a receiver, answers to the peer wait for the host alone.
#[test]
fn a_busy_host_delays_answers_by_its_own_wait() {
    let mut s = Scene::new(|modify| modify.min_rnr_timer = modify.min_rnr_timer.map(|_| 0));
    let sent = s.sends(1);
    let refusal = s.link.answers(1, &sent);
    s.link.give(0, &refusal);
    assert_eq!(s.link.sent(0), []);

    s.read_finds_the_host_busy();
    s.expect_both_waits(LONGEST);
}

/// An answer that finds the host busy, and the wait for a receiver that begins then: neither wait
/// ends with the other.
#[test]
fn the_wait_for_a_receiver_outlives_that_for_the_host() {
    let mut s = Scene::new(|_| ());
    let sent = s.sends(1);
    let refusal = s.link.answers(1, &sent);
    s.read_finds_the_host_busy();
    s.link.give(0, &refusal);
    s.expect_both_waits(WAIT);
}

/// The network has the refused packet twice, and the second copy finds a receive request. Its
/// acknowledgement ends the wait, which is longer than the local ACK timeout: nothing is waited for
/// that has not been sent.
#[test]
fn an_acknowledgement_ends_the_wait() {
    let mut s = Scene::new(|modify| modify.min_rnr_timer = modify.min_rnr_timer.map(|_| 0));
    let mut sent = s.sends(2);
    sent[0].transport[8] |= Bth::ACK_REQ;
    sent[0].seal();
    let refusal = s.link.answers(1, &sent[..1]);
    assert!(is_not_ready(&refusal[0]));
    s.link.give(0, &refusal);
    assert_eq!(s.link.sent(0), []);
    s.post_recv(7);
    s.post_recv(8);
    let answers = s.link.answers(1, &sent[..1]);
    s.link.give(0, &answers);
    let next = s.link.sent(0);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].transport[9..12], sent[1].transport[9..12]);
    s.link.give(1, &next);
    s.link.settle();
    assert_eq!(s.ended(), [0, 0]);
    assert_eq!(s.link.worlds[0].engine.counters().unanswered, 0);
}

#[test]
fn receiver_not_ready_waits_and_tries_again() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mr = w.mr(64);
    a.qp.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
    let outcome = w.run();
    // Code 12 is 0.64 ms.
    assert_eq!(outcome.deadline, Some(640 * US));
    a.cq.expect_none();
    b.qp.post_recv(2, &[mr.sge(0, 8)]);
    w.host.now = 639 * US;
    w.run();
    a.cq.expect_none();
    w.host.now = 640 * US;
    assert_eq!(w.run().deadline, None);
    a.cq.expect(1, Status::Success);
    b.cq.expect(2, Status::Success);
}

/// IBA volume 1, table 45.
#[test]
fn receiver_not_ready_says_for_how_long() {
    let tens_of_us = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    for (code, wait) in (0u8..).zip(tens_of_us) {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect(&a, &b);
        w.connect(&b, &a);
        let timer = Modify {
            min_rnr_timer: Some(code),
            ..Modify::default()
        };
        w.modify(&b, &timer).unwrap();
        a.post_send(&Wr::send(1, &[]));
        assert_eq!(w.run().deadline, Some(wait * 10 * US), "code {code}");
    }
}

#[test]
fn receiver_not_ready_has_so_many_retries() {
    for retries in 0..7u8 {
        let mut w = World::new();
        let (ca, cb) = (w.cq(16), w.cq(16));
        let (a, b) = (w.qp(&ca, &ca), w.qp(&cb, &cb));
        w.connect(&b, &a);
        w.connect_rtr(&a, &b);
        let rts = Modify {
            rnr_retry: Some(retries),
            ..rts()
        };
        w.modify(&a, &rts).unwrap();
        let mr = w.mr(64);
        a.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
        a.post_send(&Wr::send(2, &[mr.sge(8, 8)]));
        w.settle(1000 * MS);
        assert_eq!(w.host.now, u64::from(retries) * 640 * US);
        ca.expect(1, Status::RnrRetryExceeded);
        ca.expect(2, Status::Flushed);
        w.state(&a, State::Err);
        w.state(&b, State::Rts);
    }
    // 7 is for ever.
    let mut w = World::new();
    let (a, _b) = w.pair();
    let mr = w.mr(64);
    a.qp.post_send(&Wr::send(1, &[mr.sge(8, 8)]));
    w.settle(60_000 * MS);
    a.cq.expect_none();
    w.state(&a.qp, State::Rts);
}
