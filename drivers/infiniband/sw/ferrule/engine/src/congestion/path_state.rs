// SPDX-License-Identifier: GPL-2.0

//! The path to one address, as all connections of an engine along it know it: its least round trip,
//! the pace at which it delivers, how much round trips vary, and whether somebody else fills its
//! queue.
//!
//! A connection that begins while the queue is full would take the delay of that queue for the
//! least round trip. And only all connections together can tell whose queue it is. Connections of
//! another engine of the same device have a state of their own, and count as somebody else's.

use super::queue_limit::QueueLimit;
use crate::base::attr::Gid;

/// The least queuing delay that connections react to, in nanoseconds, as all times here.
const MIN_TARGET: u64 = 300_000;

/// After so many rounds in a row with a queue, connections find out whose it is,
const QUEUE_ROUNDS: u8 = 32;

/// unless they have done so less long ago.
const TEST_INTERVAL: u64 = 1_000_000_000;

/// To find out, they give way for so many rounds.
const DRAIN_ROUNDS: u8 = 3;

/// If the queue is not theirs, they compete for so many rounds.
const COMPETE_ROUNDS: u8 = 128;

/// The least round trip is measured anew after so long: routes change. One that is much longer now
/// cannot be told from a queue that others fill, so connections compete there.
pub(super) const MIN_RTT_AGE: u64 = 10_000_000_000;

/// The signal that the connections of a path go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Delay.
    #[default]
    Delay,
    /// Loss alone, as the flow does that fills the queue.
    Compete,
    /// Neither: they give way, to see what remains of the queue, and how long a round trip takes
    /// without it.
    Drain,
}

/// The path to an address.
#[derive(Clone, Copy, Default)]
pub(crate) struct PathState {
    gid: Gid,
    mode: Mode,
    /// Rounds in a row with a queue; in another mode than [`Mode::Delay`], since it began.
    rounds: u8,
    /// The least round trip, and when one as short was seen last. 0: none yet.
    min_rtt: u64,
    min_rtt_at: u64,
    /// The last round trip; and by how much one differs from the one before, smoothed (RFC 3550,
    /// 6.4.1).
    rtt: u64,
    jitter: u64,
    /// A round is as long as the round trip that ended the one before: when the present one began
    /// and ends,
    round_start: u64,
    round_end: u64,
    /// its least round trip, and the packets that were acknowledged in it.
    round_min: u64,
    acked: u32,
    /// The time between two packets that are delivered.
    packet_time: u64,
    /// The packets that the connections may have in the queue together.
    queue_limit: QueueLimit,
    /// The queuing delay before [`Mode::Drain`] began, the least round trip since, and the time
    /// from which it may begin again.
    drain_before: u64,
    drain_min: u64,
    drain_at: u64,
}

/// An engine knows so many paths.
pub(crate) const PATHS: usize = 16;

/// An address may have one of so many slots. If others have them all, it takes that of the path
/// which is quiet for longest; the connections of that one then remember the least round trip.
const WAYS: usize = 4;

impl PathState {
    /// The path to an address, of `paths`. If nothing is known of it, `min_rtt` is its least round
    /// trip so far, or 0.
    pub(super) fn of<'a>(
        paths: &'a mut [Self],
        gid: &Gid,
        min_rtt: u64,
        now: u64,
    ) -> Option<&'a mut Self> {
        // Neighbours differ at the end of their addresses.
        let home = usize::from(*gid.last()?) % PATHS;
        let slots = (0..WAYS).map(|way| home ^ way);
        let is_its = |&slot: &usize| paths.get(slot).is_some_and(|path| path.gid == *gid);
        let quiet_since = |&slot: &usize| paths.get(slot).map(|path| path.round_end);
        let slot = slots
            .clone()
            .find(is_its)
            .or_else(|| slots.min_by_key(quiet_since))?;
        let path = paths.get_mut(slot)?;
        if path.gid != *gid {
            *path = Self {
                gid: *gid,
                min_rtt,
                min_rtt_at: now,
                round_end: now,
                ..Self::default()
            };
        }
        Some(path)
    }

    /// The signal that its connections go by.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// The least round trip. 0: none yet.
    pub(super) fn min_rtt(&self) -> u64 {
        self.min_rtt
    }

    /// How much of a round trip's queuing delay may be something else: the network and both ends
    /// take their time as it comes. A guest whose processor does something else for a while adds
    /// milliseconds.
    pub(super) fn noise(&self) -> u64 {
        self.min_rtt
            .max(MIN_TARGET)
            .max(self.jitter.saturating_mul(4))
    }

    /// The queuing delay that connections allow for.
    pub(super) fn target(&self) -> u64 {
        self.noise().max(
            self.packet_time
                .saturating_mul(self.queue_limit.packets().into()),
        )
    }

    /// So many packets have been acknowledged.
    pub(super) fn acked(&mut self, packets: u32) {
        self.acked = self.acked.saturating_add(packets);
    }

    /// A packet and its response took so long: perhaps it is the least round trip.
    #[inline]
    pub(super) fn update_min_rtt(&mut self, rtt: u64, now: u64) {
        if self.min_rtt == 0 || rtt <= self.min_rtt {
            self.min_rtt = rtt;
            self.min_rtt_at = now;
        }
    }

    /// Whether a round trip shows no queue, where few packets were in flight.
    #[inline]
    pub(super) fn is_without_queue(&self, rtt: u64) -> bool {
        rtt.saturating_sub(self.min_rtt) <= MIN_TARGET.max(self.min_rtt)
    }

    /// A packet and its response took so long, and [`PathState::update_min_rtt`] knows. All else
    /// that round trips tell is updated.
    pub(super) fn sample(&mut self, rtt: u64, now: u64) {
        if self.rtt == 0 {
            // The first round begins with its packet.
            self.round_start = now.saturating_sub(rtt);
        } else {
            let difference = self.rtt.abs_diff(rtt);
            self.jitter = self
                .jitter
                .saturating_sub(self.jitter / 16)
                .saturating_add(difference / 16);
        }
        self.rtt = rtt;
        self.round_min = self.round_min.min(rtt);
        self.drain_min = self.drain_min.min(rtt);
        if now >= self.round_end {
            self.end_round(now);
            let elapsed = now.saturating_sub(self.round_start);
            // Nothing was sent for a while if the round is much longer than its round trip.
            let is_busy = elapsed / 2 <= self.round_end.saturating_sub(self.round_start);
            self.measure_pace(elapsed, is_busy);
            self.limit_queue(elapsed, is_busy);
            self.round_start = now;
            self.round_end = now.saturating_add(rtt);
            self.round_min = u64::MAX;
            self.acked = 0;
        }
    }

    /// A round of that length ends: takes the time between its packets into account, at once if
    /// that is less than before. A round that was not busy shows only that.
    fn measure_pace(&mut self, elapsed: u64, is_busy: bool) {
        let each = elapsed.checked_div(self.acked.into()).unwrap_or(0);
        let before = self.packet_time;
        self.packet_time = match (before, is_busy) {
            (_, false) => before.min(each),
            (0, true) => each,
            (_, true) => before
                .saturating_sub(before / 4)
                .saturating_add(each / 4)
                .min(each),
        };
    }

    /// A round of that length ends: tells the limit of the queue about it.
    fn limit_queue(&mut self, elapsed: u64, is_busy: bool) {
        if self.mode != Mode::Delay {
            self.queue_limit.restart();
        } else if is_busy {
            self.queue_limit.end_round(elapsed, self.acked);
        }
    }

    /// A packet of a connection was lost.
    pub(super) fn on_loss(&mut self) {
        self.queue_limit.on_loss();
    }

    /// A round ends: finds out what connections are to go by.
    fn end_round(&mut self, now: u64) {
        let delay = self.round_min.saturating_sub(self.min_rtt);
        self.rounds = self.rounds.saturating_add(1);
        match self.mode {
            Mode::Delay => {
                if delay <= self.noise() {
                    self.rounds = 0;
                }
                let is_old = now.saturating_sub(self.min_rtt_at) >= MIN_RTT_AGE;
                if is_old || (self.rounds >= QUEUE_ROUNDS && now >= self.drain_at) {
                    self.drain(delay);
                }
            }
            Mode::Compete if self.rounds >= COMPETE_ROUNDS => self.drain(delay),
            // A flow that fills the queue does not let it run dry.
            Mode::Compete if delay < self.noise() / 4 => self.enter(Mode::Delay),
            Mode::Compete => (),
            Mode::Drain if self.rounds >= DRAIN_ROUNDS => self.end_drain(now),
            Mode::Drain => (),
        }
    }

    /// Has connections give way, where round trips have this queuing delay.
    fn drain(&mut self, delay: u64) {
        self.drain_before = delay;
        self.drain_min = u64::MAX;
        self.enter(Mode::Drain);
    }

    /// Connections have given way for long enough.
    fn end_drain(&mut self, now: u64) {
        let delay = self.drain_min.saturating_sub(self.min_rtt);
        // Most of the queue has stayed: somebody else fills it.
        if delay > self.noise().max(self.drain_before / 2) {
            self.enter(Mode::Compete);
        } else {
            // A longer route adds little, as far as it can be told from others' queue.
            if delay <= self.noise() / 2 {
                self.min_rtt = self.drain_min;
            }
            self.enter(Mode::Delay);
        }
        self.min_rtt_at = now;
        self.drain_at = now.saturating_add(TEST_INTERVAL);
    }

    fn enter(&mut self, mode: Mode) {
        self.mode = mode;
        self.rounds = 0;
    }
}
