// SPDX-License-Identifier: GPL-2.0

//! Connections that share a bottleneck: goodput, fairness, and drops.
//!
//! `CONGESTION_SECONDS=60` measures for so many simulated seconds instead of a fraction of one.

use ferrule_engine::packet::opcode::CONGESTION;
use ferrule_engine::{Modify, PathKind, State, Trace};

use crate::sim::bottleneck::{share, Outcome, Shared, Verb};
use crate::sim::network::{Faults, Link, GIDS};
use crate::sim::{path, End, SentPacket, Wr, MS, US};

/// How long is measured, if not for `time`.
fn time(time: u64) -> u64 {
    std::env::var("CONGESTION_SECONDS")
        .map_or(time, |seconds| seconds.parse::<u64>().unwrap() * 1000 * MS)
}

fn alone(verb: Verb, connections: usize) -> Outcome {
    share(Shared {
        verb,
        connections,
        time: time(400 * MS),
        ..Shared::default()
    })
}

#[test]
fn a_narrow_place_is_full_and_little_is_dropped() {
    let mut good = true;
    for verb in [Verb::Write, Verb::Read] {
        for (connections, most) in [(1, 0.02), (8, 0.03), (32, 0.05)] {
            let outcome = alone(verb, connections);
            good &= !outcome.is_broken && outcome.goodput >= 0.9 && outcome.dropped <= most;
        }
    }
    assert!(good);
}

/// Neither has less than a third of what would be fair.
fn beside_reno(connections: usize, buffer: u64) {
    let outcome = share(Shared {
        connections,
        buffer,
        with_reno: true,
        time: time(3000 * MS),
        ..Shared::default()
    });
    let fair = 1.0 / (connections + 1) as f64;
    assert!(!outcome.is_broken);
    assert!(outcome.goodput >= fair * connections as f64 / 3.0);
    assert!(outcome.reno >= fair / 3.0);
}

#[test]
fn one_beside_reno_has_its_share() {
    beside_reno(1, 64);
}

#[test]
fn many_beside_reno_have_their_share() {
    beside_reno(16, 64);
}

/// Where the queue is so long that a flow that goes by delay would starve.
#[test]
fn one_beside_reno_has_its_share_of_a_long_queue() {
    beside_reno(1, 256);
}

#[test]
fn marks_keep_the_queue_short() {
    for verb in [Verb::Write, Verb::Read] {
        let outcome = share(Shared {
            verb,
            connections: 8,
            mark: Some(20),
            time: time(400 * MS),
            ..Shared::default()
        });
        assert!(outcome.marked > 0, "nothing was marked");
        assert!(outcome.goodput >= 0.9 && outcome.dropped == 0.0 && outcome.longest < 40);
    }
}

/// Two ends of a world each, and packets of a message of so many that one end has sent.
fn marked(packets: u32) -> (Link, [End; 2], Vec<SentPacket>) {
    let mut link = Link::new(1, Faults::default(), false);
    let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let memory = [0, 1].map(|i| link.worlds[i].mr(1 << 20));
    let sge = [memory[0].sge(0, packets * 1024)];
    ends[0]
        .qp
        .post_send(&Wr::write(1, &sge, memory[1].remote(0)));
    let mut sent = link.sent(0);
    for packet in &mut sent {
        packet.ip[1] |= 0x30;
    }
    (link, ends, sent)
}

fn is_notification(packet: &SentPacket) -> bool {
    packet.transport[0] == CONGESTION
}

/// Annex A17.9.3: the opcode, the backward mark, the queue pair that sends, sequence number 0, and
/// 16 bytes of zeroes.
#[test]
fn marks_are_answered_with_notifications() {
    let (mut link, ends, packets) = marked(8);
    let sent = link.answers(1, &packets[..4]);
    let notifications: Vec<_> = sent
        .iter()
        .filter(|packet| is_notification(packet))
        .collect();
    let [notification] = notifications[..] else {
        panic!("{notifications:?}");
    };
    let number = ends[0].qp.id.number.to_be_bytes();
    let mut expected = vec![CONGESTION, 0x40, 0xff, 0xff, 0x40];
    expected.extend_from_slice(&number[1..]);
    expected.extend_from_slice(&[0; 4 + 16]);
    assert_eq!(notification.transport, expected);
    // One in 50 us.
    link.wait(49 * US);
    assert!(!link.answers(1, &packets[4..5]).iter().any(is_notification));
    link.wait(US);
    let again = link.answers(1, &packets[5..7]);
    assert_eq!(
        again
            .iter()
            .filter(|packet| is_notification(packet))
            .count(),
        1
    );
    let counters = link.worlds[1].engine.counters();
    assert_eq!(counters.congestion_notifications_sent, 2);
    assert_eq!(counters.congestion_marks, 7);
    // It goes to the queue pair that it names, and no other, and from nobody but the peer.
    link.give(0, &[notification.clone()]);
    let mut stray = notification.clone();
    stray.transport[7] ^= 1;
    stray.seal();
    let mut strange = notification.clone();
    strange.ip[23] ^= 1;
    strange.seal();
    link.give(0, &[stray, strange]);
    let counters = link.worlds[0].engine.counters();
    assert_eq!(counters.congestion_notifications, 3);
    assert_eq!(counters.congestion_notifications_handled, 1);
    assert_eq!(counters.unknown_queue_pairs, 1);
    assert_eq!(counters.misdirected, 1);
}

/// Marks on acknowledgements say nothing of requests.
#[test]
fn marks_on_acknowledgements_are_not_answered() {
    let (mut link, _, packets) = marked(8);
    let mut answers = link.answers(1, &packets);
    answers.retain(|packet| !is_notification(packet));
    assert!(!answers.is_empty());
    for answer in &mut answers {
        answer.ip[1] |= 0x30;
    }
    assert!(!link.answers(0, &answers).iter().any(is_notification));
    assert_eq!(
        link.worlds[0]
            .engine
            .counters()
            .congestion_notifications_sent,
        0
    );
}

/// Round trips to one address tell nothing of those to another, which the peer has got since.
#[test]
fn a_peer_with_another_address_is_another_path() {
    let mut link = Link::new(1, Faults::default(), false);
    let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    let memory = [0, 1].map(|i| link.worlds[i].mr(64));
    let least = |link: &mut Link, rtt| {
        let write = Wr::write(1, &[memory[0].sge(0, 8)], memory[1].remote(0));
        ends[0].qp.post_send(&write);
        let sent = link.sent(0);
        let answers = link.answers(1, &sent);
        link.wait(rtt);
        link.give(0, &answers);
        let traces = std::mem::take(&mut link.worlds[0].host.traces);
        traces.iter().find_map(|trace| match trace {
            Trace::RoundTrip { min_rtt, .. } => Some(*min_rtt),
            _ => None,
        })
    };
    assert_eq!(least(&mut link, 50 * US), Some(50 * US));
    assert_eq!(least(&mut link, 450 * US), Some(50 * US));
    let mut moved = GIDS[1];
    moved[15] += 1;
    for (i, (sgid, dgid)) in [(GIDS[0], moved), (moved, GIDS[0])].into_iter().enumerate() {
        let mut path = path(PathKind::Remote);
        (path.sgid, path.dgid) = (sgid, dgid);
        let modify = Modify {
            path: Some(path),
            ..Modify::default()
        };
        let world = &mut link.worlds[i];
        world.to(&ends[i].qp, State::Sqd);
        world.modify(&ends[i].qp, &modify).unwrap();
        world.to(&ends[i].qp, State::Rts);
    }
    assert_eq!(least(&mut link, 450 * US), Some(450 * US));
}
