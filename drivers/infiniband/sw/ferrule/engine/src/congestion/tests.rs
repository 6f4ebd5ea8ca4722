// SPDX-License-Identifier: GPL-2.0

//! Tests of the congestion control by itself: what each signal does to the window.

use super::*;

const US: u64 = 1000;
/// The least round trip, and one whose delay is above any target here.
const BASE: u64 = 1000 * US;
const LONG: u64 = 4 * BASE;
const PEER: Gid = [7; 16];

fn ack(packets: u32, in_flight: u32, rtt: Option<u64>, now: u64) -> Ack {
    Ack {
        packets,
        in_flight,
        rtt,
        now,
    }
}

/// A connection, what it shares with others, and the time.
struct Flow {
    paths: [PathState; PATHS],
    one: Congestion,
    now: u64,
}

impl Flow {
    /// With a window of so many packets, and a least round trip of [`BASE`].
    fn new(packets: u32) -> Self {
        let mut flow = Self {
            paths: [PathState::default(); PATHS],
            one: Congestion::NEW,
            now: 1,
        };
        flow.rtt(BASE);
        flow.one.cwnd = packets * PACKET;
        flow.one.ssthresh = flow.one.cwnd;
        flow
    }

    fn rtt(&mut self, rtt: u64) {
        self.now += rtt;
        let ack = ack(0, WINDOW, Some(rtt), self.now);
        self.one.on_ack(&mut self.paths, &PEER, &ack);
    }

    fn ack(&mut self, packets: u32, in_flight: u32) {
        let ack = ack(packets, in_flight, None, self.now);
        self.one.on_ack(&mut self.paths, &PEER, &ack);
    }

    fn path(&mut self) -> &mut PathState {
        PathState::of(&mut self.paths, &PEER, 0, 0).unwrap()
    }

    /// So many round trips that are late.
    fn late(&mut self, rounds: u8) {
        for _ in 0..rounds {
            self.rtt(LONG);
        }
    }

    /// A window of packets is acknowledged, one by one, and a round trip has taken so long.
    fn round(&mut self, rtt: u64) {
        let window = self.one.window();
        for _ in 0..window {
            self.ack(1, window);
        }
        self.rtt(rtt);
    }
}

/// Delay counts, too, where few packets are in flight; without any they tell of the least round
/// trip alone.
#[test]
fn a_quiet_connection_hears_of_delay() {
    for (rtt, late) in [(BASE, 0), (2 * BASE, 0), (LONG, 1)] {
        let mut flow = Flow::new(32);
        flow.now += rtt;
        let ack = ack(0, 1, Some(rtt), flow.now);
        flow.one.on_ack(&mut flow.paths, &PEER, &ack);
        assert_eq!(flow.one.late, late);
    }
}

#[test]
fn without_delay_the_window_grows() {
    // A small window by half a packet each round trip, a larger one by a sixteenth.
    for (packets, expected) in [(10, 15), (32, 57)] {
        let mut flow = Flow::new(packets);
        for _ in 0..10 {
            flow.round(BASE);
        }
        assert!((expected - 1..=expected + 1).contains(&flow.one.window()));
    }
    // In slow start, to twice as much.
    let mut flow = Flow::new(20);
    flow.one.ssthresh = MAX_CWND;
    flow.round(BASE);
    assert_eq!(flow.one.window(), 40);
}

#[test]
fn a_medium_window_has_fewer_acknowledgements_than_four() {
    for (packets, interval, beside_another) in [
        (128, 32, 32),
        (64, 16, 16),
        (63, 16, 15),
        (32, 16, 8),
        (16, 8, 4),
        (15, 3, 3),
        (1, 0, 0),
    ] {
        let mut flow = Flow::new(packets);
        assert_eq!(flow.one.ack_interval(), interval, "{packets}");
        flow.one.mode = Mode::Compete;
        assert_eq!(flow.one.ack_interval(), beside_another, "{packets}");
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut flow = Flow::new(20);
    for _ in 0..100 {
        flow.ack(1, 4);
    }
    assert_eq!(flow.one.window(), 20);
}

#[test]
fn delay_shrinks_the_window_if_it_stays() {
    let mut flow = Flow::new(20);
    for _ in 0..4 {
        flow.late(LATE - 1);
        flow.rtt(BASE);
        assert_eq!(flow.one.window(), 20, "a guest that was not scheduled");
    }
    let mut flow = Flow::new(20);
    flow.late(LATE);
    assert!((12..16).contains(&flow.one.window()));
    flow.late(20 * LATE);
    assert_eq!(flow.one.window(), 1);
}

/// Where round trips vary by as much, none of them shows a queue.
#[test]
fn jitter_is_no_queue() {
    let mut flow = Flow::new(20);
    for _ in 0..20 {
        flow.rtt(LONG);
        flow.rtt(BASE);
    }
    flow.late(2 * LATE);
    assert_eq!(flow.one.window(), 20);
}

#[test]
fn a_lost_packet_alone_changes_nothing() {
    let mut flow = Flow::new(20);
    flow.late(1);
    for _ in 0..3 {
        assert!(!flow.one.on_loss(20, true));
        flow.round(BASE);
    }
    assert!(flow.one.window() >= 20);
    // But if much of a window is lost, that is no accident.
    let mut flow = Flow::new(20);
    let lost = (0..20).filter(|_| flow.one.on_loss(20, true)).count();
    assert!(lost > 10 && flow.one.window() == 10);
}

#[test]
fn losses_of_one_window_halve_it_once() {
    let mut flow = Flow::new(20);
    assert!(flow.one.on_loss(20, false));
    assert!(flow.one.on_loss(19, false));
    assert_eq!(flow.one.window(), 10);
    // The packets in flight then have been acknowledged; this is another loss.
    flow.ack(20, 20);
    assert!(flow.one.on_loss(10, false));
    assert_eq!(flow.one.window(), 5);
}

#[test]
fn a_loss_ends_slow_start() {
    let mut one = Congestion::NEW;
    assert!(one.on_loss(32, true));
    assert_eq!(one.window(), 16);
    assert_eq!(one.ssthresh, one.cwnd);
}

#[test]
fn marks_shrink_the_window_by_their_share() {
    let mut flow = Flow::new(64);
    flow.one.on_mark();
    flow.one.on_mark();
    assert_eq!(flow.one.window(), 64, "once a round trip");
    flow.rtt(BASE);
    let first = flow.one.window();
    assert!((32..36).contains(&first));
    // Where marks are rare, each counts less.
    for _ in 0..64 {
        flow.rtt(BASE);
    }
    flow.one.cwnd = 64 * PACKET;
    flow.one.on_mark();
    flow.rtt(BASE);
    assert!(flow.one.window() > 58);
}

#[test]
fn a_timeout_leaves_one_packet() {
    let mut flow = Flow::new(64);
    flow.one.on_timeout();
    assert_eq!(flow.one.window(), 1);
    for _ in 0..6 {
        flow.round(BASE);
    }
    assert!(
        (32..=34).contains(&flow.one.window()),
        "slow start to a half"
    );
}

/// Slow start begins with the first acknowledgement, though the packets in flight were lost or late
/// before.
#[test]
fn a_timeout_ends_recovery() {
    for was_lost in [false, true] {
        let mut flow = Flow::new(64);
        if was_lost {
            flow.one.on_loss(64, false);
        } else {
            flow.late(LATE - 1);
        }
        flow.one.on_timeout();
        flow.ack(1, 64);
        flow.ack(2, 63);
        assert_eq!(flow.one.window(), 4);
    }
}

#[test]
fn less_than_a_packet_waits_for_its_time() {
    let mut flow = Flow::new(1);
    flow.one.sent(flow.now);
    assert!(flow.one.may_send(flow.now) && flow.one.paced().is_none());
    flow.one.cwnd = PACKET / 4;
    flow.one.sent(flow.now);
    assert!(!flow.one.may_send(flow.now + 3 * BASE));
    assert_eq!(flow.one.paced(), Some(flow.now + 4 * BASE));
    flow.one.timer_fired(flow.now + 3 * BASE);
    assert!(flow.one.paced().is_some());
    flow.one.timer_fired(flow.now + 4 * BASE);
    assert!(flow.one.paced().is_none() && flow.one.may_send(flow.now));
    // A short gap takes no timer.
    flow.one.rtt = 10 * US;
    flow.one.sent(flow.now);
    assert!(flow.one.may_send(flow.now));
}

#[test]
fn connections_of_a_path_share_its_least_round_trip() {
    let mut flow = Flow::new(20);
    let mut late = |peer: Gid| {
        let mut other = Congestion::NEW;
        for _ in 0..LATE {
            flow.now += LONG;
            let ack = ack(0, WINDOW, Some(LONG), flow.now);
            other.on_ack(&mut flow.paths, &peer, &ack);
        }
        other.cwnd
    };
    assert!(late(PEER) < INITIAL_CWND);
    assert_eq!(late([9; 16]), INITIAL_CWND, "another path");
}

#[test]
fn connections_remember_the_least_round_trip_of_a_path_that_lost_its_slot() {
    let mut flow = Flow::new(20);
    for peer in 8..=u8::MAX {
        let mut other = Congestion::NEW;
        let ack = ack(0, WINDOW, Some(BASE), flow.now);
        other.on_ack(&mut flow.paths, &[peer; 16], &ack);
    }
    flow.late(LATE);
    assert!(flow.one.window() < 20);
}

/// The pace of a path is that of the rounds in which something was sent all the time.
#[test]
fn idle_time_is_no_pace() {
    let mut flow = Flow::new(20);
    // Long after the start, and then in bursts.
    for _ in 0..10 {
        flow.now += 1000 * BASE;
        flow.round(BASE);
    }
    assert_eq!(flow.path().target(), BASE);
    // With packets in flight all the time, the time of a long queue counts.
    for _ in 0..10 {
        flow.round(BASE);
    }
    assert!(flow.path().target() > BASE);
}

/// The addresses of both end alike, and acknowledgements of both come in turn.
#[test]
fn busy_paths_do_not_take_each_others_slot() {
    let mut flow = Flow::new(20);
    let mut other = Congestion::NEW;
    let mut has_drained = false;
    for _ in 0..64 {
        flow.rtt(LONG);
        let ack = ack(1, WINDOW, Some(BASE), flow.now);
        other.on_ack(&mut flow.paths, &[PEER[0] + PATHS as u8; 16], &ack);
        has_drained |= flow.one.mode == Mode::Drain;
    }
    assert!(has_drained, "the queue was not seen");
}

#[test]
fn connections_compete_where_the_queue_stays_while_they_give_way() {
    let mut flow = Flow::new(20);
    let mut rounds = 0;
    while flow.one.mode != Mode::Compete {
        flow.rtt(LONG);
        rounds += 1;
    }
    assert!((32..40).contains(&rounds), "{rounds}");
    // They take back what they had, and add a packet in each round trip, whatever the delay.
    for _ in 0..40 {
        flow.round(LONG);
    }
    let window = flow.one.window();
    assert!(window > 30);
    flow.round(LONG);
    assert_eq!(flow.one.window(), window + 1);
    assert!(flow.one.on_loss(window, true));
    assert!(flow.one.window() < window * 3 / 4);
    // Until the queue runs dry.
    for _ in 0..8 {
        flow.rtt(BASE);
    }
    assert_eq!(flow.one.mode, Mode::Delay);
}

#[test]
fn connections_that_compete_try_again_whether_the_queue_is_theirs() {
    let mut flow = Flow::new(20);
    let mut changes = 0;
    let mut mode = flow.one.mode;
    for _ in 0..1000 {
        flow.round(LONG);
        if flow.one.mode != mode {
            mode = flow.one.mode;
            changes += 1;
        }
    }
    assert!((8..=16).contains(&changes), "{changes}");
}

/// The queue of another flow does not become part of the least round trip, however long it stands.
#[test]
fn the_least_round_trip_is_not_that_of_others_queues() {
    let mut flow = Flow::new(20);
    while flow.now < 3 * path_state::MIN_RTT_AGE {
        // The queue falls to a quarter for a while, again and again.
        for rtt in (0..40).map(|step| 1600 * US + step * 50 * US) {
            flow.round(rtt);
        }
    }
    assert_eq!(flow.path().min_rtt(), BASE);
}

#[test]
fn the_least_round_trip_is_measured_anew() {
    let mut flow = Flow::new(64);
    // The route is longer now, by less than shows as a queue.
    let longer = BASE + BASE * 2 / 5;
    let mut least = u32::MAX;
    while flow.now < path_state::MIN_RTT_AGE + 100 * longer {
        flow.round(longer);
        least = least.min(flow.one.window());
    }
    assert_eq!(flow.path().min_rtt(), longer);
    // They gave way for that, and took back what they had.
    assert_eq!((least, flow.one.window()), (WINDOW / 4, WINDOW));
}

#[test]
fn a_window_that_gave_way_is_back_after_two_round_trips() {
    let mut flow = Flow::new(64);
    while flow.one.mode != Mode::Drain {
        flow.rtt(BASE + BASE * 2 / 5);
    }
    while flow.one.mode == Mode::Drain {
        flow.rtt(BASE);
    }
    assert_eq!(flow.one.window(), 16);
    flow.round(BASE);
    flow.round(BASE);
    assert_eq!(flow.one.window(), 64);
}

#[test]
fn a_queue_that_goes_when_connections_give_way_is_theirs() {
    let mut flow = Flow::new(20);
    let mut was_drained = false;
    for _ in 0..1000 {
        let rtt = if flow.one.mode == Mode::Drain {
            BASE
        } else {
            LONG
        };
        was_drained |= flow.one.mode == Mode::Drain;
        flow.round(rtt);
        assert_ne!(flow.one.mode, Mode::Compete);
    }
    assert!(was_drained);
}
