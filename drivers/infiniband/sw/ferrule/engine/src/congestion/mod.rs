// SPDX-License-Identifier: GPL-2.0

//! Congestion control: how many packets of a connection may be in flight, and how soon the next one
//! may be sent.
//!
//! The main signal is delay, as in TIMELY and Swift (SIGCOMM 2015 and 2020). The queuing delay of a
//! round trip is the time that it takes longer than the least one of its path (`min_rtt`). While
//! the delay is below a target, the congestion window (`cwnd`) grows: by half a packet each round
//! trip, or by a sixteenth of itself far below the target. If the delay has been above the target
//! for three round trips, the window shrinks by four fifths of the part by which the least of the
//! three is too long. One or two late round trips show no queue: a guest that was not scheduled for
//! a while makes them. The target is relative to what the path does by itself
//! ([`PathState::target`]): its least round trip, its jitter, and a queue of some packets
//! ([`queue_limit`]).
//!
//! The other signals:
//!
//! - Marks, by ECN. The peer answers them with congestion notification packets (CNP, annex
//!   A17.9.3), or they stand on the data of a read. `alpha` is the share of round trips with marks,
//!   smoothed, and a round trip with marks takes half of that off the window: the rule of DCTCP
//!   (RFC 8257) and DCQCN (SIGCOMM 2015).
//! - Losses. They halve the window if more than one packet and an eighth of a window are lost, if
//!   all behind a loss has to be sent again, and in slow start. Any other loss is no sign of
//!   congestion and changes nothing.
//!
//! A flow that goes by delay starves beside one that goes by loss, such as TCP's CUBIC or Reno,
//! which fill whatever queue there is. So if there was a queue for some round trips, the
//! connections of a path give way for three, and if most of the queue is still there, they compete:
//! for a while the window follows Reno's rules (RFC 5681), whatever the delay. Then they try again
//! whether the queue is theirs. This idea is Copa's (NSDI 2018), the test is another.
//!
//! A window below one packet means more than one round trip for each. That takes a timer; all else
//! is clocked by acknowledgements, which are asked for two to four times a window.
//!
//! The arithmetic saturates: with times and counts that no network has, the result is a limit.

mod path_state;
mod queue_limit;

use crate::base::{
    attr::Gid,
    event::Trace, //
};
use path_state::Mode;
pub(crate) use path_state::{
    PathState,
    PATHS, //
};

/// Packets that may be in flight: with the largest MTU half a megabyte.
pub(crate) const WINDOW: u32 = 128;

/// Windows are counted in parts of a packet, of which there are so many.
const PACKET: u32 = 256;

/// The largest, the smallest, and the first window.
const MAX_CWND: u32 = WINDOW * PACKET;
const MIN_CWND: u32 = PACKET / 64;
const INITIAL_CWND: u32 = 32 * PACKET;

/// A window below that is small: many connections share the path, or it is short.
const SMALL_CWND: u32 = 16 * PACKET;

/// The packets between two that ask for an acknowledgement, where the window allows. An
/// acknowledgement, and the burst that it lets go, cost both ends much, however short the burst is.
const ACK_INTERVAL: u32 = 16;

/// Shorter gaps between packets take no timer, and none is longer than the other, whatever a peer
/// makes of the round trip. In nanoseconds, as all times here.
const MIN_GAP: u64 = 50_000;
const MAX_GAP: u64 = 100_000_000;

/// Late round trips in a row that show a queue.
const LATE: u8 = 3;

/// `alpha` is counted in parts of so many.
const ALPHA_ONE: u16 = 1024;

/// The congestion control of one connection.
#[derive(Clone, Copy)]
pub(super) struct Congestion {
    /// The window, in parts of a packet; and up to where slow start goes.
    cwnd: u32,
    ssthresh: u32,
    /// The window before [`Mode::Drain`] began.
    prior_cwnd: u32,
    /// The share of round trips with marks, smoothed.
    alpha: u16,
    /// Losses, and packets acknowledged, since a window of packets was acknowledged last.
    lost: u8,
    acked: u8,
    /// A packet was lost since the last round trip ended.
    has_lost: bool,
    /// The mode of the path's connections, as it was told last.
    mode: Mode,
    /// Round trips in a row whose delay exceeded the target, and the least of these, in
    /// nanoseconds.
    late: u8,
    standing_rtt: u32,
    /// The delay of the last round trip was less than half the target.
    is_far: bool,
    /// Marks have come since the last round trip ended.
    is_marked: bool,
    /// Packets to be acknowledged before the next loss is another event: those that were in flight
    /// when the window was reduced.
    recovery: u32,
    /// The last round trip, and the path's least one then. 0 in the beginning.
    rtt: u64,
    min_rtt: u64,
    /// The queuing delay that was allowed for then.
    target: u64,
    /// No packet is sent before this time.
    paced_until: u64,
}

/// An acknowledgement: the packets that it covers, and the round trip that it ends.
pub(super) struct Ack {
    /// Packets that it acknowledges, and those that were in flight before.
    pub(super) packets: u32,
    pub(super) in_flight: u32,
    /// The round trip of a packet that was sent once, if the acknowledgement ends it.
    pub(super) rtt: Option<u64>,
    pub(super) now: u64,
}

impl Congestion {
    /// Of a connection that has sent nothing yet.
    pub(super) const NEW: Self = Self {
        cwnd: INITIAL_CWND,
        ssthresh: MAX_CWND,
        prior_cwnd: 0,
        alpha: ALPHA_ONE,
        lost: 0,
        acked: 0,
        has_lost: false,
        mode: Mode::Delay,
        late: 0,
        standing_rtt: u32::MAX,
        is_far: false,
        is_marked: false,
        recovery: 0,
        rtt: 0,
        min_rtt: 0,
        target: 0,
        paced_until: 0,
    };

    /// Packets that may be in flight: one at least, which may have to wait for its time.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        (self.cwnd / PACKET).max(1)
    }

    /// How many packets are sent until one asks for an acknowledgement: a quarter of the window. If
    /// a quarter is less than [`ACK_INTERVAL`], that many, up to half of the window. Where the
    /// window is small or another flow fills the queue, half would be a burst of which much is
    /// lost, so a quarter remains.
    #[inline]
    pub(super) fn ack_interval(&self) -> u32 {
        let window = self.window();
        let quarter = window / 4;
        if self.cwnd < SMALL_CWND || self.mode == Mode::Compete {
            return quarter;
        }
        quarter.max(ACK_INTERVAL.min(window / 2))
    }

    /// Whether the next packet may be sent now, or else at `paced_until`.
    #[inline]
    pub(super) fn may_send(&self, now: u64) -> bool {
        self.paced_until <= now
    }

    /// When that is, if a packet has to wait for its time. `timer_fired` forgets it.
    #[inline]
    pub(super) fn paced(&self) -> Option<u64> {
        (self.paced_until != 0).then_some(self.paced_until)
    }

    /// The time has come for which packets had to wait.
    pub(super) fn timer_fired(&mut self, now: u64) {
        if self.may_send(now) {
            self.paced_until = 0;
        }
    }

    /// A packet has been sent.
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        if self.cwnd < PACKET {
            self.pace(now);
        }
    }

    /// The window is less than a packet: the next one has to wait.
    #[cold]
    fn pace(&mut self, now: u64) {
        let gap = self.rtt.saturating_mul(PACKET.into());
        let gap = gap.checked_div(self.cwnd.into()).unwrap_or(u64::MAX);
        if gap >= MIN_GAP {
            self.paced_until = now.saturating_add(gap.min(MAX_GAP));
        }
    }

    /// The queuing delay that this connection allows for: from three quarters to five quarters of
    /// the path's. The smaller the window, the more, so that of several connections those with less
    /// come to have more (as Swift scales its target with flows).
    fn target_delay(&self, path: &PathState) -> u64 {
        const SMALL: u64 = SMALL_CWND as u64;

        let target = path.target();
        let part = SMALL.saturating_sub(self.cwnd.into());
        let more = (target / 2).saturating_mul(part) / SMALL;
        target.saturating_sub(target / 4).saturating_add(more)
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(MIN_CWND, MAX_CWND);
    }

    /// Whether so many packets use the window. One that is not used says nothing of the network
    /// (RFC 7661).
    fn is_used(&self, in_flight: u32) -> bool {
        in_flight.saturating_mul(2 * PACKET) >= self.cwnd
    }

    /// The peer has sent an acknowledgement. Its path is one of `paths`.
    #[inline]
    pub(super) fn on_ack(&mut self, paths: &mut [PathState], peer: &Gid, ack: &Ack) {
        let Some(path) = PathState::of(paths, peer, self.min_rtt, ack.now) else {
            return;
        };
        self.acked(path, ack.packets, ack.in_flight);
        if let Some(rtt) = ack.rtt {
            self.on_rtt(path, rtt, ack.in_flight, ack.now);
        }
    }

    /// So many packets have been acknowledged, of those `in_flight`.
    #[inline]
    fn acked(&mut self, path: &mut PathState, packets: u32, in_flight: u32) {
        path.acked(packets);
        let acked = u32::from(self.acked).saturating_add(packets);
        if acked >= self.window() {
            self.acked = 0;
            self.lost = 0;
        } else {
            self.acked = acked as u8;
        }
        self.recovery = self.recovery.saturating_sub(packets);
        let may_grow = match self.mode {
            Mode::Delay => self.late == 0,
            Mode::Compete => true,
            Mode::Drain => false,
        };
        if self.is_used(in_flight) && may_grow && self.recovery == 0 && self.cwnd < MAX_CWND {
            self.grow(packets);
        }
    }

    /// So many packets have been acknowledged, and the window may grow by that.
    fn grow(&mut self, packets: u32) {
        let grown = if self.cwnd < self.ssthresh {
            packets
                .saturating_mul(PACKET)
                .min(self.ssthresh.saturating_sub(self.cwnd))
        } else {
            // A packet each round trip.
            let whole = packets.saturating_mul(PACKET * PACKET);
            let whole = whole.checked_div(self.cwnd.max(PACKET)).unwrap_or(0);
            let part = packets.saturating_mul(PACKET / 16);
            match self.mode {
                Mode::Compete => whole,
                _ if self.is_far && self.cwnd > SMALL_CWND => part.max(whole / 2),
                // Many connections with small windows share a queue, and each adds to it.
                _ => whole / 2,
            }
        };
        self.set_cwnd(self.cwnd.saturating_add(grown));
    }

    /// A packet that was sent once, and its answer, took so long, with so many `in_flight`. This is
    /// a round trip of the window, too: the next packet to be timed is sent after it.
    #[inline]
    fn on_rtt(&mut self, path: &mut PathState, rtt: u64, in_flight: u32, now: u64) {
        // A window that is not used has nothing to learn but the least round trip.
        let is_quiet = self.late == 0 && !self.is_marked && !self.is_used(in_flight);
        path.update_min_rtt(rtt, now);
        if is_quiet && path.is_without_queue(rtt) {
            self.rtt = rtt;
            self.min_rtt = path.min_rtt();
        } else {
            self.end_round_trip(path, rtt, now);
        }
    }

    /// A window of packets has been acknowledged, and that took so long.
    fn end_round_trip(&mut self, path: &mut PathState, rtt: u64, now: u64) {
        path.sample(rtt, now);
        if path.mode() != self.mode {
            self.enter(path.mode());
        }
        self.rtt = rtt;
        self.min_rtt = path.min_rtt();
        let delay = rtt.saturating_sub(self.min_rtt);
        self.target = self.target_delay(path);
        self.is_far = delay < self.target / 2;
        if delay > self.target {
            self.late = self.late.saturating_add(1);
            let rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
            self.standing_rtt = self.standing_rtt.min(rtt);
        } else {
            self.late = 0;
            self.standing_rtt = u32::MAX;
        }
        // Slow start ends where a queue begins.
        if delay > path.noise() / 2 && self.mode == Mode::Delay {
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
        let marks = if self.is_marked { ALPHA_ONE } else { 0 };
        self.alpha = self
            .alpha
            .saturating_sub(self.alpha / 16)
            .saturating_add(marks / 16);
        let is_marked = core::mem::take(&mut self.is_marked);
        if core::mem::take(&mut self.has_lost) {
            path.on_loss();
        }
        if self.recovery != 0 {
            // The window has been reduced for the packets in flight.
        } else if is_marked {
            const TWICE: u32 = 2 * ALPHA_ONE as u32;

            let part = self.cwnd.saturating_mul(self.alpha.into()) / TWICE;
            self.set_cwnd(self.cwnd.saturating_sub(part));
        } else if self.late >= LATE && self.mode == Mode::Delay {
            self.give_way();
        }
    }

    /// The delay has stayed above the target.
    fn give_way(&mut self) {
        // By four fifths of the part of the round trip that exceeds the target, and by two fifths
        // at most.
        let rtt = u64::from(self.standing_rtt);
        let allowed = self.min_rtt.saturating_add(self.target);
        let excess = rtt.saturating_sub(allowed).min(rtt / 2);
        let share = excess.checked_div(rtt / 1024).unwrap_or(0);
        let part = u64::from(self.cwnd).saturating_mul(share) / 1024;
        let part = part.saturating_mul(4) / 5;
        self.set_cwnd(self.cwnd.saturating_sub(part as u32));
        // The next two round trips tell whether that was enough.
        self.late = 1;
        self.standing_rtt = u32::MAX;
    }

    /// The state after the last round trip, for the tracepoint.
    pub(super) fn trace(&self, qpn: u32, in_flight: u32) -> Trace {
        Trace::RoundTrip {
            qpn,
            rtt: self.rtt,
            min_rtt: self.min_rtt,
            target: self.target,
            cwnd: self.cwnd,
            in_flight,
            mode: self.mode as u8,
        }
    }

    /// The connections of the path go by something else from now on.
    #[cold]
    fn enter(&mut self, mode: Mode) {
        match (self.mode, mode) {
            (_, Mode::Drain) => {
                self.prior_cwnd = self.cwnd;
                self.set_cwnd(self.cwnd / 4);
            }
            // Slow start brings back what it had, with no burst.
            (Mode::Drain, _) => self.ssthresh = self.prior_cwnd.max(self.cwnd),
            _ => self.ssthresh = self.cwnd,
        }
        self.mode = mode;
    }

    /// A packet was lost of those that were `in_flight`. It `is_selective` if nothing behind it is
    /// sent again. Returns whether that shows congestion.
    pub(super) fn on_loss(&mut self, in_flight: u32, is_selective: bool) -> bool {
        self.lost = self.lost.saturating_add(1);
        self.has_lost = true;
        let is_much = u32::from(self.lost) > (self.window() / 8).saturating_add(1);
        let must_halve = is_much || !is_selective || self.cwnd < self.ssthresh;
        let is_congestion = must_halve || self.mode == Mode::Compete;
        if is_congestion && self.recovery == 0 {
            self.recovery = in_flight;
            let part = if must_halve {
                self.cwnd / 2
            } else {
                // As CUBIC does (RFC 9438, 4.6).
                self.cwnd.saturating_mul(3) / 10
            };
            self.set_cwnd(self.cwnd.saturating_sub(part));
            self.ssthresh = self.cwnd;
            self.prior_cwnd = self.prior_cwnd.min(self.cwnd);
        }
        is_congestion
    }

    /// No response came for so long that all is sent again (RFC 5681, 3.1). Slow start begins at
    /// once.
    pub(super) fn on_timeout(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(2 * PACKET);
        self.prior_cwnd = self.prior_cwnd.min(self.ssthresh);
        self.set_cwnd(self.cwnd.min(PACKET));
        self.recovery = 0;
        self.late = 0;
        self.standing_rtt = u32::MAX;
    }

    /// A packet met congestion on its way, by its mark or by the peer's notification.
    pub(super) fn on_mark(&mut self) {
        self.is_marked = true;
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }
}

#[cfg(test)]
mod tests;
