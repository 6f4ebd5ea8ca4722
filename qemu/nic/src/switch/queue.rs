// SPDX-License-Identifier: GPL-2.0

//! The frames that wait at a port until its peer takes them.

use std::collections::VecDeque;

use crate::frame::Frame;

/// Frames that may wait.
pub const FRAMES: usize = 4096;

/// Bytes that may wait: some windows of reliable connections.
pub const BYTES: usize = 4 << 20;

/// A bounded queue. A frame that does not fit is dropped and counted.
#[derive(Debug, Default)]
pub struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    dropped: u64,
}

impl Queue {
    /// Whether one more frame would be dropped.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= FRAMES || self.bytes >= BYTES
    }

    /// Adds a frame, or drops it.
    pub fn push(&mut self, frame: Frame) {
        if self.is_full() {
            return self.drop_one();
        }
        self.bytes = self.bytes.saturating_add(frame.bytes().len());
        self.frames.push_back(frame);
    }

    /// Takes the oldest frame.
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.bytes().len());
        Some(frame)
    }

    /// Counts a frame that is dropped for a reason of the port's.
    pub fn drop_one(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
    }

    /// Drops all.
    pub fn clear(&mut self) {
        while self.pop().is_some() {
            self.drop_one();
        }
    }

    /// How many frames were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stay() {
        let mut queue = Queue::default();
        let frame = |length: usize, mark: u8| Frame::new(vec![mark; length]).unwrap();
        for _ in 0..FRAMES {
            queue.push(frame(14, 1));
        }
        queue.push(frame(14, 2));
        assert!(queue.is_full());
        assert_eq!(queue.dropped(), 1);
        for _ in 0..FRAMES {
            assert_eq!(queue.pop(), Some(frame(14, 1)));
        }
        assert_eq!(queue.pop(), None);

        // By bytes: the last that begins within the limit still fits.
        while !queue.is_full() {
            queue.push(frame(60_000, 3));
        }
        assert_eq!(queue.bytes, BYTES.next_multiple_of(60_000));
        queue.clear();
        assert_eq!((queue.bytes, queue.is_empty()), (0, true));
    }
}
