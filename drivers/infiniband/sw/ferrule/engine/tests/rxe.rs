// SPDX-License-Identifier: GPL-2.0

//! The responder, and a peer that sends again and takes answers as Linux's rdma_rxe does.
//!
//! That peer is a model of the rules by which it goes on: which packets it sends, how it takes an
//! acknowledgement, and when its timer runs. It counts what has been acknowledged apart from what
//! it has sent, and where the first reaches the second it sends nothing again, whether or not all
//! messages have been completed. No loss may lead it there: then it waits for ever.

use std::collections::VecDeque;

use ferrule_engine::packet::Bth;
use proptest::prelude::*;

use crate::sim::network::{deliver, Faults, Link, Random};
use crate::sim::*;

const PACKET: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    Posted,
    Processing,
    Pending,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Acknowledge,
    Missing,
}

/// A message: its first and its last packet, counted from 0.
#[derive(Clone, Copy, Debug)]
struct Message {
    first: u32,
    last: u32,
    progress: Progress,
}

/// The requester and the completer of the peer.
struct Peer {
    messages: Vec<Message>,
    /// The oldest message that has not been completed, and the one that is sent.
    head: usize,
    sending: usize,
    /// The next packet to be sent, and the next to be acknowledged.
    next: u32,
    expected: u32,
    has_to_retry: bool,
    retries: bool,
    timer: bool,
    answers: VecDeque<(u32, Answer)>,
}

impl Peer {
    fn new(lengths: &[u32]) -> Self {
        let mut first = 0;
        let messages = lengths.iter().map(|length| {
            let last = first + length - 1;
            let message = Message {
                first,
                last,
                progress: Progress::Posted,
            };
            first = last + 1;
            message
        });
        Self {
            messages: messages.collect(),
            head: 0,
            sending: 0,
            next: 0,
            expected: 0,
            has_to_retry: false,
            retries: false,
            timer: false,
            answers: VecDeque::new(),
        }
    }

    /// Sends the next packet, if there is one to be sent.
    fn send(&mut self) -> Option<u32> {
        if self.has_to_retry {
            self.has_to_retry = false;
            self.next = self.expected;
            self.sending = self.head;
            let begun = self.messages[self.head..].iter_mut();
            for message in begun.take_while(|message| message.progress != Progress::Posted) {
                message.progress = Progress::Posted;
            }
        }
        let message = self.messages.get_mut(self.sending)?;
        let packet = self.next;
        assert!(message.first <= packet && packet <= message.last);
        self.next += 1;
        if packet == message.last {
            message.progress = Progress::Pending;
            self.sending += 1;
        } else {
            message.progress = Progress::Processing;
        }
        self.timer = true;
        Some(packet)
    }

    /// Takes the next answer, if there is one; `true`: the timer has fired.
    fn complete(&mut self, timeout: bool) {
        if self.has_to_retry {
            return;
        }
        let Some((packet, answer)) = self.answers.pop_front() else {
            let is_begun = self
                .messages
                .get(self.head)
                .is_some_and(|message| message.progress != Progress::Posted);
            if timeout && is_begun {
                self.retry(true);
            }
            self.timer |= self.next > self.expected;
            return;
        };
        while let Some(&message) = self.messages.get(self.head) {
            let is_pending = message.progress == Progress::Pending;
            if message.progress == Progress::Posted || packet > message.last && !is_pending {
                return;
            }
            if packet > message.last {
                self.retries = false;
                self.expected = self.expected.max(message.last + 1);
                self.head += 1;
                continue;
            }
            if packet < self.expected {
                self.head += usize::from(packet == message.last);
                return;
            }
            match answer {
                Answer::Acknowledge => {
                    self.retries = false;
                    self.head += usize::from(is_pending && packet == message.last);
                    self.expected = packet + 1;
                }
                Answer::Missing => {
                    self.expected = packet;
                    self.retry(false);
                }
            }
            return;
        }
    }

    fn retry(&mut self, timeout: bool) {
        if (timeout || !self.retries) && self.next > self.expected {
            self.has_to_retry = true;
            self.retries = true;
        }
    }

    fn is_done(&self) -> bool {
        self.head == self.messages.len()
    }
}

/// Sends messages of so many packets each, of which some, and of the answers, are lost.
fn exchange(lengths: &[u32], lost: [&[u64]; 2], seed: u64) {
    let begin = || {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
        let memory = [0, 1].map(|i| link.worlds[i].mr(128 * PACKET as usize));
        for (wr_id, length) in (0..).zip(lengths) {
            let sge = memory[0].sge(0, length * PACKET);
            let write = Wr::write(wr_id, &[sge], memory[1].remote(0));
            ends[0].qp.post_send(&write);
        }
        link
    };
    // The peer sends the packets that our requester makes of the messages where nothing is lost,
    // but each last packet of a message asks for an acknowledgement.
    let mut packets = Vec::new();
    let mut sound = begin();
    loop {
        let sent = sound.sent(0);
        if sent.is_empty() {
            break;
        }
        let answers = sound.answers(1, &sent);
        sound.give(0, &answers);
        packets.extend(sent);
    }
    let mut link = begin();
    let to = &mut link.worlds[1];
    let mut peer = Peer::new(lengths);
    assert_eq!(packets.len() as u32, peer.messages.last().unwrap().last + 1);
    for (number, packet) in (0..).zip(&mut packets) {
        packet.transport[8] &= !Bth::ACK_REQ;
        if peer.messages.iter().any(|message| message.last == number) {
            packet.transport[8] |= Bth::ACK_REQ;
        }
        packet.seal();
    }
    let first = sequence_number(&packets[0]);

    let mut random = Random::new(seed);
    let mut sent = [0; 2];
    let mut is_lost = |way: usize| {
        sent[way] += 1;
        lost[way].contains(&(sent[way] - 1))
    };
    let mut requests: VecDeque<&SentPacket> = VecDeque::new();
    let mut answers: VecDeque<SentPacket> = VecDeque::new();
    for _ in 0..100_000 {
        if peer.is_done() {
            return;
        }
        // Everything takes its time, which nobody knows.
        match random.below(3) {
            0 => {
                if let Some(number) = peer.send() {
                    if !is_lost(1) {
                        requests.push_back(&packets[number as usize]);
                    }
                }
            }
            1 => {
                for _ in 0..=random.below(3) {
                    if let Some(packet) = requests.pop_front() {
                        deliver(to, packet);
                    }
                }
                to.run();
                for packet in to.host.sent.drain(..) {
                    if !is_lost(0) {
                        answers.push_back(packet);
                    }
                }
            }
            _ => {
                if let Some(packet) = answers.pop_front() {
                    let answer = match packet.transport[12] & 0x60 {
                        0 => Answer::Acknowledge,
                        _ => Answer::Missing,
                    };
                    let number = sequence_number(&packet).wrapping_sub(first) & 0xff_ffff;
                    peer.answers.push_back((number, answer));
                }
                peer.complete(false);
            }
        }
        // Its timer is so long that all else has happened before.
        let is_quiet = requests.is_empty() && answers.is_empty() && peer.answers.is_empty();
        if is_quiet && !peer.has_to_retry && peer.sending == peer.messages.len() {
            assert!(peer.timer || peer.is_done(), "it waits for ever");
            peer.timer = false;
            peer.complete(true);
        }
    }
    panic!("it does not end");
}

fn sequence_number(packet: &SentPacket) -> u32 {
    u32::from_be_bytes(packet.transport[8..12].try_into().unwrap()) & 0xff_ffff
}

/// The end of a message is lost, and the next one is not; or all arrives, and no answer does.
/// Either way the peer sends all again, and must not get answers meanwhile that it does not bear.
#[test]
fn messages_sent_again_are_completed() {
    for seed in 0..3000 {
        let last = seed % 9;
        exchange(&[2, 1, 4], [&[1, last], &[1]], seed);
        exchange(&[1, 4], [&[1, last], &[0]], seed);
        exchange(&[1, 1, 4], [&[0, 1, 2, 3 + last], &[]], seed);
        exchange(&[6], [&[1, last], &[2]], seed);
    }
}

proptest! {
    #![proptest_config(cases(5000))]

    #[test]
    fn whatever_is_lost(
        lengths in prop::collection::vec(1..8u32, 1..8),
        requests in prop::collection::vec(0..60u64, 0..10),
        answers in prop::collection::vec(0..30u64, 0..10),
        seed: u64,
    ) {
        exchange(&lengths, [&answers, &requests], seed);
    }
}
