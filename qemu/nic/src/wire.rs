// SPDX-License-Identifier: GPL-2.0

//! What the engine and the thread of the switch share: the switch, and the packets that wait for the engine.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::frame::{Frame, Mac};
use crate::roce::headers::Gid;
use crate::roce::received::Received;
use crate::signal::Signal;
use crate::switch::forward::Switch;

/// Packets that may wait for the engine: some batches of all ports.
pub const WAITING: usize = 1024;

/// Packets that wait for the engine, first in, first out.
#[derive(Debug, Default)]
struct Inbox {
    packets: VecDeque<Received>,
    dropped: u64,
}

/// The wire, as seen from both sides.
#[derive(Debug)]
pub struct Wire {
    switch: Mutex<Switch>,
    inbox: Mutex<Inbox>,
    /// Wakes the thread of the switch.
    pub(crate) signal: Signal,
    ends: AtomicBool,
}

impl Wire {
    /// The wire of a switch.
    ///
    /// # Errors
    ///
    /// There is no file descriptor.
    pub fn new(switch: Switch) -> io::Result<Self> {
        Ok(Self {
            switch: Mutex::new(switch),
            inbox: Mutex::default(),
            signal: Signal::new()?,
            ends: AtomicBool::new(false),
        })
    }

    /// The switch, for a short time.
    pub(crate) fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock()
    }

    /// The Ethernet address that a guest sends from, if it can have peers elsewhere.
    pub fn source(&self, port: usize) -> Option<Mac> {
        self.switch().source(port)
    }

    /// Sets the addresses of a guest's function.
    pub fn set_gids(&self, port: usize, gids: HashSet<Gid>) {
        self.switch().set_gids(port, gids);
    }

    /// Whether a frame to this address finds room.
    pub fn has_room(&self, from: usize, to: &Mac) -> bool {
        self.switch().has_room(from, to)
    }

    /// Sends a frame of the engine's.
    pub fn send(&self, from: usize, frame: &Frame) {
        let packet = self.switch().send(from, frame);
        self.deliver(packet);
        self.signal.raise(1);
    }

    /// Takes frames that have come by a port's stream. Answers whether the engine is to look for packets, of which there
    /// were none before.
    pub(crate) fn input(&self, from: usize, frames: impl Iterator<Item = Vec<u8>>) -> bool {
        let now = Instant::now();
        let mut switch = self.switch();
        let packets: Vec<_> = frames
            .filter_map(|frame| switch.input(from, frame, now))
            .collect();
        drop(switch);
        self.deliver(packets)
    }

    fn deliver(&self, packets: impl IntoIterator<Item = Received>) -> bool {
        let mut packets = packets.into_iter().peekable();
        if packets.peek().is_none() {
            return false;
        }
        let mut inbox = self.inbox.lock();
        let was_empty = inbox.packets.is_empty();
        for packet in packets {
            if inbox.packets.len() < WAITING {
                inbox.packets.push_back(packet);
            } else {
                inbox.dropped = inbox.dropped.saturating_add(1);
            }
        }
        was_empty
    }

    /// The next packets for the engine, at most so many.
    pub fn packets(&self, most: usize) -> VecDeque<Received> {
        let mut inbox = self.inbox.lock();
        let count = most.min(inbox.packets.len());
        let rest = inbox.packets.split_off(count);
        std::mem::replace(&mut inbox.packets, rest)
    }

    /// How many frames were dropped that were to leave by a port.
    pub fn dropped_to(&self, port: usize) -> u64 {
        self.switch().counters(port).1
    }

    /// Whether packets wait for the engine.
    pub fn has_packets(&self) -> bool {
        !self.inbox.lock().packets.is_empty()
    }

    /// How many packets were dropped since too many waited for the engine.
    pub fn dropped(&self) -> u64 {
        self.inbox.lock().dropped
    }

    /// The thread of the switch is to end.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.signal.raise(1);
    }

    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}
