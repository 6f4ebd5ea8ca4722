// SPDX-License-Identifier: GPL-2.0

//! Numbers of a guest beside the engine's counters. Counting and reading take no lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that all threads may change and read.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    /// Adds to it; it wraps.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Takes from it.
    pub(crate) fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// Sets it.
    pub(crate) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Reads it.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of latencies are 2^8 to 2^31 ns: a quarter of a microsecond to two seconds.
const FIRST: u32 = 8;
/// How many bounds there are.
pub(crate) const BOUNDS: usize = 24;

/// How many latencies were at most so long, and their sum.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One for each bound, and one for longer times than all bounds.
    counts: [Number; BOUNDS + 1],
    sum: Number,
}

impl Histogram {
    /// The bounds, in nanoseconds.
    pub(crate) fn bounds() -> impl Iterator<Item = u64> {
        (0..BOUNDS as u32).map(|place| 1u64.wrapping_shl(FIRST.saturating_add(place)))
    }

    /// Adds a latency, in nanoseconds.
    pub(crate) fn add(&self, latency: u64) {
        let bits = u64::BITS.saturating_sub(latency.saturating_sub(1).leading_zeros());
        let place = bits.saturating_sub(FIRST) as usize;
        if let Some(count) = self.counts.get(place.min(BOUNDS)) {
            count.add(1);
        }
        self.sum.add(latency);
    }

    /// The counts, one for each bound and one for longer times.
    pub(crate) fn counts(&self) -> [u64; BOUNDS + 1] {
        std::array::from_fn(|place| self.counts.get(place).map_or(0, Number::get))
    }

    /// All latencies together, in nanoseconds.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.get()
    }
}

/// The numbers of a guest.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// Whether a client is there.
    pub(crate) connected: Number,
    /// Accesses to BAR0.
    pub(crate) accesses: Number,
    /// Of these, those that served a context.
    pub(crate) kicks: Number,
    /// Commands that were executed.
    pub(crate) commands: Number,
    /// Of these, those that were refused.
    pub(crate) refused_commands: Number,
    /// Vectors that were raised.
    pub(crate) interrupts: Number,
    /// Bytes of memory that the client has mapped.
    pub(crate) memory: Number,
    /// Bytes of memory regions.
    pub(crate) registered: Number,
    /// Objects: contexts, protection domains, memory regions, windows, completion queues, shared
    /// receive queues, queue pairs, address handles.
    pub(crate) objects: [Number; 8],
    /// From the ring to the completion, of some send requests.
    pub(crate) latency: Histogram,
}

/// The names of [`Statistics::objects`].
pub(crate) const OBJECTS: [&str; 8] = ["context", "pd", "mr", "mw", "cq", "srq", "qp", "ah"];

/// One of so many requests is timed: a clock is read twice for it, which is about 50 ns.
const EVERY: u32 = 64;

/// A request that is being timed, and when the next one will be.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    passed: u32,
    running: Option<(u32, u64, u64)>,
}

impl Stopwatch {
    /// A queue pair has taken a request, of this name.
    #[inline]
    pub(crate) fn begin(&mut self, qpn: u32, name: u64, now: impl FnOnce() -> u64) {
        if self.passed == 0 {
            // One that completes without a completion is given up for the next.
            self.running = Some((qpn, name, now()));
        }
        self.passed = self.passed.wrapping_add(1) % EVERY;
    }

    /// A request has completed: how long it took, if it is the one that is being timed.
    #[inline]
    pub(crate) fn end(&mut self, qpn: u32, name: u64, now: impl FnOnce() -> u64) -> Option<u64> {
        match self.running {
            Some((other, named, since)) if (other, named) == (qpn, name) => {
                self.running = None;
                Some(now().saturating_sub(since))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_upper_ones() {
        let histogram = Histogram::default();
        for latency in [0, 256, 257, 512, 1 << 31, (1 << 31) + 1, u64::MAX >> 1] {
            histogram.add(latency);
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[BOUNDS - 1]), (2, 2, 1));
        assert_eq!(counts[BOUNDS], 2);
        assert_eq!(Histogram::bounds().last(), Some(1 << 31));
    }

    #[test]
    fn one_of_many_is_timed() {
        let mut watch = Stopwatch::default();
        watch.begin(3, 7, || 100);
        watch.begin(3, 8, || unreachable!("one at a time"));
        assert_eq!(watch.end(3, 8, || 101), None);
        assert_eq!(watch.end(4, 7, || 101), None);
        assert_eq!(watch.end(3, 7, || 130), Some(30));
        assert_eq!(watch.end(3, 7, || 131), None);
        (2..EVERY).for_each(|_| watch.begin(3, 9, || unreachable!("too early")));
        watch.begin(3, 10, || 200);
        assert_eq!(watch.end(3, 10, || 201), Some(1));
    }
}
