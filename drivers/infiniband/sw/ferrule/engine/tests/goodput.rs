// SPDX-License-Identifier: GPL-2.0

//! How much of what a wire can carry arrives to some purpose, where packets are lost.
//!
//! A lost packet costs one more, and a wait where nobody notices. The rest has to be of use. Where
//! the peer keeps nothing that comes early, it costs those that are behind it on their way, too.

use ferrule_engine::{Mtu, Status};

use crate::sim::network::{Faults, Link, DELAY};
use crate::sim::*;

const SIZE: u32 = 64 * 1024;
const PACKETS: u64 = SIZE as u64 / 4096;
const MESSAGES: u64 = 2000;
/// Requests under way.
const DEPTH: u64 = 32;
/// About what two virtual machines do, of which each waits for the other at times.
const PACKET_TIME: u64 = 50 * US;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Write,
    Send,
    Read,
}

/// The result of a transfer.
struct Outcome {
    /// The share of the wire's time that it takes to carry the data once.
    share: f64,
    /// Packets that the requester sent, of a read its requests.
    packets: u64,
}

/// Transfers all, where this is lost of 1000 packets and a packet is so long on its way.
fn goodput(verb: Verb, lost: u64, distance: u64) -> Outcome {
    let faults = Faults {
        lost,
        packet_time: PACKET_TIME,
        distance,
        ..Faults::default()
    };
    let mut link = Link::new(1, faults, false);
    let ends = [0, 1].map(|i| {
        let world = &mut link.worlds[i];
        let cq = world.cq(256);
        let qp = world.qp_with(
            &QpSpec {
                depth: 64,
                ..QpSpec::default()
            },
            &cq,
            &cq,
        );
        End { qp, cq }
    });
    // 67 ms, and 16 reads at a time, as perftest has it.
    link.connect([&ends[0].qp, &ends[1].qp], Mtu::Mtu4096, |modify| {
        modify.timeout = modify.timeout.map(|_| 14);
        modify.max_rd_atomic = modify.max_rd_atomic.map(|_| 16);
        modify.max_dest_rd_atomic = modify.max_dest_rd_atomic.map(|_| 16);
    });
    let memory = [0, 1].map(|i| link.worlds[i].mr(SIZE as usize));
    let (mut posted, mut received, mut ended) = (0, 0, 0);
    while ended < MESSAGES {
        while verb == Verb::Send && received < ended + 2 * DEPTH {
            ends[1].qp.post_recv(received, &[memory[1].sge(0, SIZE)]);
            received += 1;
        }
        while posted < (ended + DEPTH).min(MESSAGES) {
            let sge = [memory[0].sge(0, SIZE)];
            ends[0].qp.post_send(&match verb {
                Verb::Write => Wr::write(posted, &sge, memory[1].remote(0)),
                Verb::Send => Wr::send(posted, &sge),
                Verb::Read => Wr::read(posted, &sge, memory[1].remote(0)),
            });
            posted += 1;
        }
        assert!(link.step(), "nothing more happens");
        while let Some(wc) = ends[0].cq.poll() {
            assert_eq!((wc.status, wc.wr_id), (Status::Success as u8, ended));
            ended += 1;
        }
        ends[1].cq.drain();
    }
    let counters = link.worlds[0].engine.counters();
    let share =
        (MESSAGES * PACKETS * PACKET_TIME) as f64 / (link.now - 2 * (DELAY + distance)) as f64;
    println!(
        "{verb:?}, {lost} of 1000 lost: {share:.2} of the wire, {} retries, {} unanswered, {} probes, {} packets",
        counters.retries, counters.unanswered, counters.probes, counters.packets_sent
    );
    Outcome {
        share,
        packets: counters.packets_sent,
    }
}

#[test]
fn a_sound_wire_is_full() {
    for verb in [Verb::Write, Verb::Send, Verb::Read] {
        assert!(goodput(verb, 0, 0).share > 0.95);
    }
}

#[test]
fn most_of_a_lossy_wire_is_of_use() {
    for (lost, least) in [(1, 0.98), (10, 0.95), (30, 0.9)] {
        for verb in [Verb::Write, Verb::Send, Verb::Read] {
            let outcome = goodput(verb, lost, 0);
            assert!(outcome.share > least);
            // Of what has arrived, only packets that are sent to ask are sent again.
            if verb != Verb::Read {
                let again = outcome.packets - MESSAGES * PACKETS;
                assert!(again * 1000 < outcome.packets * lost * 2);
            }
        }
    }
}

#[test]
fn a_wire_is_in_use_while_a_loss_is_mended() {
    // A packet and its answer take as long as half a window takes to leave.
    let distance = 32 * PACKET_TIME;
    for (lost, least) in [(0, 0.95), (1, 0.95), (10, 0.7)] {
        for verb in [Verb::Write, Verb::Send, Verb::Read] {
            assert!(goodput(verb, lost, distance).share > least);
        }
    }
}

#[test]
fn much_of_a_lossy_wire_is_of_use_where_the_peer_keeps_nothing() {
    // Of a read, it is the requester that keeps.
    REORDERS.set(false);
    for (lost, least) in [(1, 0.9), (10, 0.75), (30, 0.5)] {
        for verb in [Verb::Write, Verb::Send] {
            assert!(goodput(verb, lost, 0).share > least);
        }
    }
}
