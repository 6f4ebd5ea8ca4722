// SPDX-License-Identifier: GPL-2.0

//! The steps that tracepoints show of packets: sent, received, dropped and why, sent again and why.

use ferrule_engine::packet::opcode::rc;
use ferrule_engine::packet::Bth;
use ferrule_engine::{DropReason, RetryReason, Status, Trace};

use crate::sim::*;

/// A connection whose packets are handed on one by one.
type Scene = scene::Scene<Traces>;

enum Traces {}

impl Scene {
    fn new() -> Self {
        Self::with(1 << 16, |_| ())
    }

    /// Posts a SEND of so many bytes; answers its packets.
    fn send(&mut self, length: u32) -> Vec<SentPacket> {
        let sge = self.memory[0].sge(0, length);
        self.ends[0].qp.post_send(&Wr::send(1, &[sge]));
        self.link.sent(0)
    }

    fn post_recv(&self) {
        let sge = self.memory[1].sge(0, 1 << 16);
        self.ends[1].qp.post_recv(2, &[sge]);
    }

    /// The steps of one side since the last call.
    fn steps(&mut self, side: usize) -> Vec<Trace> {
        std::mem::take(&mut self.link.worlds[side].host.traces)
    }

    /// Why one side has sent packets again, and from where, since the last call.
    fn retries(&mut self, side: usize) -> Vec<(u32, RetryReason)> {
        let steps = self.steps(side).into_iter();
        steps
            .filter_map(|step| match step {
                Trace::Retry { psn, reason, .. } => Some((psn, reason)),
                _ => None,
            })
            .collect()
    }
}

fn bth(packet: &SentPacket) -> Bth {
    ferrule_engine::packet::bth(&packet.transport).unwrap()
}

#[test]
fn packets_are_shown_as_they_are_on_the_wire() {
    let mut s = Scene::new();
    s.post_recv();
    s.steps(0);
    let packets = s.send(2500);
    assert_eq!(packets.len(), 3);
    let qpn = s.ends[0].qp.id.qpn();
    let sent: Vec<Trace> = s.steps(0);
    let sent = sent
        .iter()
        .filter(|step| matches!(step, Trace::PacketSent { .. }));
    let wanted = packets.iter().zip([1024, 1024, 452]);
    let wanted: Vec<Trace> = wanted
        .map(|(packet, length)| Trace::PacketSent {
            qpn,
            bth: bth(packet),
            length,
        })
        .collect();
    assert_eq!(sent.copied().collect::<Vec<_>>(), wanted);
    assert_eq!(bth(&packets[0]).opcode, rc::SEND_FIRST);

    s.steps(1);
    s.link.give(1, &packets);
    let wanted: Vec<Trace> = packets
        .iter()
        .map(|packet| Trace::PacketReceived {
            bth: bth(packet),
            length: (packet.ip.len() + 8 + packet.transport.len() + 4) as u32,
        })
        .collect();
    let received = s.steps(1);
    let received = received
        .iter()
        .filter(|step| matches!(step, Trace::PacketReceived { .. }));
    assert_eq!(received.copied().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_packet_that_is_dropped_tells_why() {
    let mut s = Scene::new();
    let packet = s.send(8).remove(0);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = packet.clone();
        change(&mut packet.transport);
        packet.seal();
        packet
    };
    let mut broken = packet.clone();
    broken.icrc[0] ^= 1;
    let cases = [
        (changed(&|bytes| bytes.truncate(8)), DropReason::Short),
        (changed(&|bytes| bytes[1] |= 1), DropReason::Version),
        (changed(&|bytes| bytes[0] = 0x1f), DropReason::Opcode),
        (changed(&|bytes| bytes.extend([0; 2])), DropReason::Length),
        (broken, DropReason::Icrc),
        (changed(&|bytes| bytes[2..4].fill(1)), DropReason::Pkey),
        (
            changed(&|bytes| bytes[5..8].fill(9)),
            DropReason::UnknownQueuePair,
        ),
        (changed(&|bytes| bytes[0] |= 0x20), DropReason::Misdirected),
    ];
    s.steps(1);
    for (packet, reason) in cases {
        s.link.give(1, &[packet]);
        assert_eq!(s.link.worlds[1].host.drops(), [reason]);
    }
    s.post_recv();
    let answers = s.link.answers(1, &[packet]);
    s.link.give(0, &answers);
    s.ends[0].cq.expect(1, Status::Success);
    s.steps(0);
    // It acknowledges again, and tells nothing new.
    let mut old = answers[0].clone();
    let psn = bth(&old).psn.get().wrapping_sub(7).to_be_bytes();
    old.transport[9..12].copy_from_slice(&psn[1..]);
    old.seal();
    s.link.give(0, &[old]);
    assert_eq!(s.link.worlds[0].host.drops(), [DropReason::Duplicate]);
}

#[test]
fn packets_that_are_sent_again_tell_why() {
    // Nobody has a receive request.
    let mut s = Scene::new();
    let packets = s.send(8);
    let first = bth(&packets[0]).psn.get();
    let refusal = s.link.answers(1, &packets);
    s.link.give(0, &refusal);
    assert_eq!(s.retries(0), [(first, RetryReason::RnrNak)]);

    // The second packet is lost.
    let mut s = Scene::new();
    s.post_recv();
    let packets = s.send(4000);
    let answers = s.link.answers(1, &[packets[0].clone(), packets[2].clone()]);
    s.retries(0);
    s.link.give(0, &answers);
    let second = bth(&packets[1]).psn.get();
    assert_eq!(s.retries(0), [(second, RetryReason::SequenceNak)]);

    // The second response is lost.
    let mut s = Scene::new();
    let read = Wr::read(1, &[s.memory[0].sge(0, 4000)], s.memory[1].remote(0));
    s.ends[0].qp.post_send(&read);
    let request = s.link.sent(0);
    s.link.give(1, &request);
    let responses = s.link.sent(1);
    s.retries(0);
    s.link
        .give(0, &[responses[0].clone(), responses[2].clone()]);
    let second = bth(&responses[1]).psn.get();
    assert_eq!(s.retries(0), [(second, RetryReason::ImpliedNak)]);

    // All is lost, once the time of a round trip is known.
    let mut s = Scene::new();
    s.post_recv();
    let packets = s.send(8);
    s.link.wait(10 * US);
    let answers = s.link.answers(1, &packets);
    s.link.give(0, &answers);
    s.ends[0].cq.expect(1, Status::Success);
    s.retries(0);
    let packets = s.send(8);
    let first = bth(&packets[0]).psn.get();
    let mut reasons = Vec::new();
    while s.ends[0].cq.drain().is_empty() {
        let deadline = s.link.worlds[0].engine.deadline().unwrap();
        s.link.wait(deadline - s.link.now);
        s.link.sent(0);
        reasons.extend(s.retries(0));
    }
    assert!(reasons.iter().all(|(psn, _)| *psn == first));
    let timeouts = reasons
        .iter()
        .filter(|(_, reason)| *reason == RetryReason::Timeout);
    assert_eq!(
        timeouts.count() as u64,
        s.link.worlds[0].engine.counters().retries
    );
    assert_eq!(reasons[0].1, RetryReason::Probe);
}

/// The reasons of an enum in the engine, as tracefs is to show them: number and name.
fn reasons_of(name: &str) -> Vec<(u8, String)> {
    let text = include_str!("../src/base/event.rs");
    let begin = text.find(&format!("pub enum {name} {{")).unwrap();
    let body = &text[begin..];
    let lines = body[..body.find("\n}").unwrap()].lines();
    let reason = |line: &str| {
        let (name, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        let mut words = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push('_');
            }
            words.extend(letter.to_lowercase());
        }
        Some((number.parse().unwrap(), words))
    };
    lines.filter_map(reason).collect()
}

/// The reasons that a tracepoint has names for.
fn reasons_shown(tracepoint: &str) -> Vec<(u8, String)> {
    let text = include_str!("../../trace/ferrule_trace.h");
    let begin = text.find(&format!("TRACE_EVENT({tracepoint},")).unwrap();
    let body = &text[begin..];
    let lines = body[..body.find("\n);").unwrap()].lines();
    let reason = |line: &str| {
        let (number, name) = line.trim().strip_prefix("{ ")?.split_once(", \"")?;
        Some((number.parse().unwrap(), name[..name.find('"')?].to_owned()))
    };
    lines.filter_map(reason).collect()
}

#[test]
fn tracepoints_have_a_name_for_each_reason() {
    for (name, tracepoint) in [
        ("DropReason", "ferrule_packet_dropped"),
        ("RetryReason", "ferrule_retry"),
    ] {
        let reasons = reasons_of(name);
        assert!(reasons.len() > 4, "{name}: {reasons:?}");
        assert_eq!(reasons, reasons_shown(tracepoint), "{name}");
    }
}
