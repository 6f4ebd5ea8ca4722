// SPDX-License-Identifier: GPL-2.0

//! How many packets the connections of a path may have in its queue together: as many as make the
//! path faster.
//!
//! A link needs no long queue: it is as fast with one packet in it as with many. Two guests that
//! share processors are not. An acknowledgement or a burst of packets costs them much, whatever its
//! length, and the longer the queue, the fewer there are of both.
//!
//! So the limit is doubled for some rounds. If packets then take a sixteenth less time each, the
//! limit remains, and is doubled again. BBR finds by such a step whether a pipe is full (Cardwell
//! and others, Communications of the ACM, February 2017). If not, the limit is what it was. After a
//! pause it is halved for some rounds: if that costs next to nothing, the queue was longer than it
//! had to be. A trial that changes nothing makes the next pause longer.
//!
//! Where a packet is lost, the queue may be full. The limit is the least one then, for the longest
//! pause.

/// The least and the largest limit, in packets. TCP Vegas has a few packets of each connection in
/// the queue (Brakmo and Peterson, 1995). The least one here is what keeps two guests at work that
/// wait for each other at times.
const MIN: u32 = 30;
const MAX: u32 = 16 * MIN;

/// The limit of a new path: a shorter queue is found sooner than a longer one, into which windows
/// have to grow.
const INITIAL: u32 = 4 * MIN;

/// Rounds that it takes until windows have followed the limit, and rounds that are measured then.
const SETTLE: u16 = 16;
const MEASURED: u16 = 16;

/// Rounds between a trial that changed nothing and the next one. Each further one doubles them.
const MIN_PAUSE: u16 = 64;
const MAX_PAUSE: u16 = 2048;

/// The question of a trial.
#[derive(Clone, Copy)]
enum Trial {
    /// Whether the path is faster with a longer queue.
    Longer,
    /// Whether it is as fast with a shorter one.
    Shorter,
}

impl Trial {
    fn opposite(self) -> Self {
        match self {
            Self::Longer => Self::Shorter,
            Self::Shorter => Self::Longer,
        }
    }

    /// The limit that is tried.
    fn limit(self, packets: u32) -> u32 {
        match self {
            Self::Longer => packets.saturating_mul(2).min(MAX),
            Self::Shorter => (packets / 2).max(MIN),
        }
    }

    /// Whether that limit remains, by the time that a packet takes with and without it.
    fn succeeds(self, with: u64, without: u64) -> bool {
        match self {
            Self::Longer => with < without.saturating_sub(without / 16),
            Self::Shorter => with < without.saturating_add(without / 32),
        }
    }
}

/// The limit of one path.
#[derive(Clone, Copy)]
pub(super) struct QueueLimit {
    /// [`MIN`] times a power of two: what one trial does to it, the opposite one takes back.
    packets: u32,
    /// The trial that is under way, or the next one.
    trial: Trial,
    /// The time that a packet took before the trial that is under way, in nanoseconds.
    without: Option<u64>,
    /// Rounds until the next measurement begins, and rounds since the present one began.
    pause: u16,
    rounds: u16,
    /// The pause after the next trial, if that changes nothing.
    next_pause: u16,
    /// The time that was measured, in nanoseconds, and the packets that were acknowledged in it.
    elapsed: u64,
    acked: u64,
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self {
            packets: INITIAL,
            trial: Trial::Shorter,
            without: None,
            pause: 0,
            rounds: 0,
            next_pause: MIN_PAUSE,
            elapsed: 0,
            acked: 0,
        }
    }
}

impl QueueLimit {
    /// Packets that may be in the queue.
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// A round has ended, which took so many nanoseconds, and so many packets were acknowledged in
    /// it.
    pub(super) fn end_round(&mut self, elapsed: u64, acked: u32) {
        if self.pause != 0 {
            self.pause = self.pause.saturating_sub(1);
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds > SETTLE {
            self.elapsed = self.elapsed.saturating_add(elapsed);
            self.acked = self.acked.saturating_add(acked.into());
        }
        if self.rounds >= SETTLE + MEASURED {
            let time = self.elapsed.checked_div(self.acked).unwrap_or(u64::MAX);
            self.restart();
            self.measured(time);
        }
    }

    /// With the present limit a packet takes so long.
    fn measured(&mut self, time: u64) {
        match self.without {
            Some(without) if self.trial.succeeds(time, without) => {
                self.next_pause = MIN_PAUSE;
                self.begin(time);
            }
            Some(_) => {
                self.packets = self.trial.opposite().limit(self.packets);
                self.end();
            }
            None => self.begin(time),
        }
    }

    /// Tries another limit; with the present one a packet takes so long.
    fn begin(&mut self, time: u64) {
        let packets = self.trial.limit(self.packets);
        if packets == self.packets {
            self.end();
        } else {
            self.without = Some(time);
            self.packets = packets;
        }
    }

    /// The limit stays what it is until the pause ends.
    fn end(&mut self) {
        self.without = None;
        let opposite = self.trial.opposite();
        if opposite.limit(self.packets) != self.packets {
            self.trial = opposite;
        }
        self.pause = self.next_pause;
        self.next_pause = self.next_pause.saturating_mul(2).min(MAX_PAUSE);
    }

    /// Measures anew: the last rounds tell nothing.
    pub(super) fn restart(&mut self) {
        self.rounds = 0;
        self.elapsed = 0;
        self.acked = 0;
    }

    /// A packet was lost, perhaps because the queue was full.
    pub(super) fn on_loss(&mut self) {
        self.packets = MIN;
        self.without = None;
        self.trial = Trial::Longer;
        self.pause = MAX_PAUSE;
        self.restart();
    }
}

#[cfg(test)]
mod tests;
