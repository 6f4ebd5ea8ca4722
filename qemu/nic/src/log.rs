// SPDX-License-Identifier: GPL-2.0

//! How many lines of the log a guest may cause: a hostile one must not fill a disk.

use std::time::{Duration, Instant};

const LINES: u32 = 60;
const SPAN: Duration = Duration::from_secs(60);

/// The rest of a guest's lines for this minute.
#[derive(Debug)]
pub struct Lines {
    since: Instant,
    left: u32,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            left: LINES,
        }
    }
}

impl Lines {
    /// Whether one more line may be written.
    pub fn take(&mut self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= SPAN {
            *self = Self {
                since: now,
                left: LINES,
            };
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_minute() {
        let mut lines = Lines::default();
        let begin = lines.since;
        let written = (0..1000)
            .filter(|_| lines.take_at(begin + SPAN / 2))
            .count();
        assert_eq!(written, LINES as usize);
        assert!(lines.take_at(begin + SPAN));
    }
}
