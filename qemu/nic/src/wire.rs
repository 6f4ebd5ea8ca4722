// SPDX-License-Identifier: GPL-2.0

//! The state that the engine and the thread of the switch share: the switch, and the packets that wait for the engine.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferrule_engine::Gid;
use parking_lot::{Mutex, MutexGuard};

use crate::capture::recorder::Recorder;
use crate::frame::{Frame, Mac};
use crate::roce::received::{Bad, Received};
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
    /// Queue pairs reach those of the same process by packets, too.
    wire_only: AtomicBool,
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
            wire_only: AtomicBool::new(false),
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

    /// The address of a guest's network device and function, if it has been told.
    pub fn mac(&self, port: usize) -> Option<Mac> {
        self.switch().mac(port)
    }

    /// From now on queue pairs are connected by packets even within this process, or not.
    pub fn set_wire_only(&self, wire_only: bool) {
        self.wire_only.store(wire_only, Ordering::Relaxed);
    }

    /// Whether queue pairs are connected by packets even within this process.
    pub fn is_wire_only(&self) -> bool {
        self.wire_only.load(Ordering::Relaxed)
    }

    /// Records each frame that the switch gets from now on, or no more.
    pub fn set_recorder(&self, recorder: Option<Recorder>) {
        self.switch().set_recorder(recorder);
    }

    /// Sets the addresses of a guest's function.
    pub fn set_gids(&self, port: usize, gids: HashSet<Gid>) {
        self.switch().set_gids(port, gids);
    }

    /// Whether a frame to this address would be queued, and not lost.
    pub fn accepts(&self, from: usize, to: &Mac) -> bool {
        let inbox = || self.inbox.lock().packets.len() < WAITING;
        self.switch().accepts(from, to, inbox)
    }

    /// Sends a frame of the engine's.
    pub fn send(&self, from: usize, frame: &Frame) {
        let packet = self.switch().send(from, frame);
        if packet.is_none() {
            self.signal.raise(1);
        }
        self.deliver(packet);
    }

    /// Takes frames that have come by a port's stream. Returns whether the engine is to look for packets, of which there
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

    /// Frames that have come by a port, and that were dropped on their way to it.
    pub(crate) fn frames(&self, port: usize) -> (u64, u64) {
        let (counters, dropped) = self.switch().counters(port);
        (counters.received, dropped)
    }

    /// Frames that have come by a port since a capture runs, and of these those that it has lost.
    pub(crate) fn recorded(&self, port: usize) -> (u64, u64) {
        self.switch().recorded(port)
    }

    /// How many frames were dropped that were to leave by a port.
    pub fn dropped_to(&self, port: usize) -> u64 {
        self.switch().counters(port).1
    }

    /// Whether packets wait for the engine.
    pub fn has_packets(&self) -> bool {
        !self.inbox.lock().packets.is_empty()
    }

    /// A line about packets for the engine that it has not got, if there were some.
    pub fn losses(&self) -> Option<String> {
        let late = self.inbox.lock().dropped;
        let bad = *self.switch().bad();
        let reasons = Bad::ALL.iter().map(|reason| reason.name()).zip(bad);
        let all = reasons.chain([("too many before it", late)]);
        let told: Vec<_> = all
            .filter(|(_, count)| *count != 0)
            .map(|(reason, count)| format!("{count} with {reason}"))
            .collect();
        (!told.is_empty()).then(|| told.join(", "))
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

#[cfg(test)]
mod tests {
    use ferrule_engine::packet::ip::mapped;

    use super::*;
    use crate::roce::headers::{Headers, Way};

    #[test]
    fn the_inbox_is_bounded() {
        let (near, far) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let gid = mapped([192, 0, 2, 1]);
        let way = Way {
            source: far,
            destination: near,
            sgid: mapped([192, 0, 2, 2]),
            dgid: gid,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        let mut good = Vec::new();
        let headers = Headers::new(&way, 1, 2).unwrap();
        headers.write(16, &mut good).unwrap();
        good.extend([0; 16]);
        let mut bad = good.clone();
        bad[24] ^= 1;

        let mut switch = Switch::default();
        switch.add(Some(near), false);
        switch.add(None, true);
        switch.set_up(1, true);
        let wire = Wire::new(switch).unwrap();
        wire.set_gids(0, HashSet::from([gid]));
        assert!(!wire.input(1, std::iter::once(bad)));
        assert!(wire.input(1, std::iter::once(good.clone())));
        // The engine is told once, until it has taken all.
        assert!(!wire.input(1, std::iter::repeat_n(good.clone(), WAITING)));
        let losses = "1 with a wrong header checksum, 1 with too many before it";
        assert_eq!(wire.losses().as_deref(), Some(losses));
        let taken = [WAITING - 1, WAITING].map(|most| wire.packets(most).len());
        assert_eq!(taken, [WAITING - 1, 1]);
        assert!(!wire.has_packets());
        assert!(wire.input(1, std::iter::once(good)));
    }
}
