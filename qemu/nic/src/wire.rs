// SPDX-License-Identifier: GPL-2.0

//! The state that the engine and the thread of the switch share: the switch, and the packets that
//! wait for the engine.

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
pub const WAITING: usize = 2048;

/// Frames that are taken before the switch is left to another thread that waits for it.
const AT_ONCE: usize = 16;

/// Packets that wait for the engine, first in, first out.
#[derive(Debug, Default)]
struct Inbox {
    /// Each with the port by which it has come.
    packets: VecDeque<(usize, Received)>,
    /// How many have come by each port.
    waiting: Vec<usize>,
    dropped: u64,
}

impl Inbox {
    /// Whether one more packet that has come by this port may wait. Those of a port are no more
    /// than there is space left (a dynamic threshold): one port alone has half of the inbox, and
    /// ports that send all they can leave some to the others.
    fn takes(&self, from: usize) -> bool {
        let left = WAITING.saturating_sub(self.packets.len());
        self.waiting.get(from).is_some_and(|&own| own < left)
    }

    fn push(&mut self, from: usize, packet: Received) {
        if !self.takes(from) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if let Some(own) = self.waiting.get_mut(from) {
            *own = own.saturating_add(1);
        }
        self.packets.push_back((from, packet));
    }

    fn pop(&mut self) -> Option<Received> {
        let (from, packet) = self.packets.pop_front()?;
        if let Some(own) = self.waiting.get_mut(from) {
            *own = own.saturating_sub(1);
        }
        Some(packet)
    }
}

/// The wire, as seen from both sides.
#[derive(Debug)]
pub struct Wire {
    switch: Mutex<Switch>,
    inbox: Mutex<Inbox>,
    /// Wakes the thread of the switch.
    pub(crate) signal: Signal,
    /// Queue pairs reach those of the same process by packets, too, even without a capture that
    /// wants it.
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
        let inbox = Inbox {
            waiting: vec![0; switch.ports()],
            ..Inbox::default()
        };
        Ok(Self {
            switch: Mutex::new(switch),
            inbox: Mutex::new(inbox),
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
        self.wire_only.load(Ordering::Relaxed) || self.switch().captures_all()
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
        let inbox = || self.inbox.lock().takes(from);
        self.switch().accepts(from, to, inbox)
    }

    /// Sends a frame of the engine's.
    pub fn send(&self, from: usize, frame: &Frame) {
        let packet = self.switch().send(from, frame);
        if packet.is_none() {
            self.signal.raise(1);
        }
        self.deliver(from, packet);
    }

    /// Takes frames that have come by a port's stream. Returns whether the engine is to look for
    /// packets, of which there were none before.
    pub(crate) fn input(&self, from: usize, frames: impl Iterator<Item = Vec<u8>>) -> bool {
        let now = Instant::now();
        let mut switch = self.switch();
        let mut packets = Vec::new();
        for (number, frame) in (0usize..).zip(frames) {
            // The owner of the engine may wait, and there may be thousands.
            if number % AT_ONCE == 0 {
                MutexGuard::bump(&mut switch);
            }
            packets.extend(switch.input(from, frame, now));
        }
        drop(switch);
        self.deliver(from, packets)
    }

    fn deliver(&self, from: usize, packets: impl IntoIterator<Item = Received>) -> bool {
        let mut packets = packets.into_iter().peekable();
        if packets.peek().is_none() {
            return false;
        }
        let mut inbox = self.inbox.lock();
        let was_empty = inbox.packets.is_empty();
        packets.for_each(|packet| inbox.push(from, packet));
        was_empty
    }

    /// The next packets for the engine, at most so many.
    pub fn packets(&self, most: usize) -> Vec<Received> {
        let mut inbox = self.inbox.lock();
        let count = most.min(inbox.packets.len());
        (0..count).map_while(|_| inbox.pop()).collect()
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
    use std::time::Duration;

    use ferrule_engine::packet::ip::mapped;

    use super::*;
    use crate::roce::headers::{Headers, Way};

    const NEAR: Mac = [2, 0, 0, 0, 0, 1];
    const FAR: Mac = [2, 0, 0, 0, 0, 2];

    /// The address of the guest at [`NEAR`].
    fn own() -> Gid {
        mapped([192, 0, 2, 1])
    }

    /// A packet from [`FAR`].
    fn packet(destination: Mac, dgid: Gid) -> Vec<u8> {
        let way = Way {
            source: FAR,
            destination,
            sgid: mapped([192, 0, 2, 2]),
            dgid,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        let mut bytes = Vec::new();
        let headers = Headers::new(&way, 1, 2).unwrap();
        headers.write(16, &mut bytes).unwrap();
        bytes.extend([0; 16]);
        bytes
    }

    /// A guest at [`NEAR`], one at [`FAR`], and a link.
    fn wire() -> Wire {
        let mut switch = Switch::default();
        switch.add(Some(NEAR), false);
        switch.add(Some(FAR), true);
        switch.add(None, true);
        switch.set_up(1, true);
        switch.set_up(2, true);
        let wire = Wire::new(switch).unwrap();
        wire.set_gids(0, HashSet::from([own()]));
        wire
    }

    #[test]
    fn the_inbox_is_bounded() {
        const MOST: usize = WAITING / 2;
        let wire = wire();
        let good = packet(NEAR, own());
        let mut bad = good.clone();
        bad[24] ^= 1;
        assert!(!wire.input(1, std::iter::once(bad)));
        assert!(wire.input(1, std::iter::once(good.clone())));
        // The engine is told once, until it has taken all.
        assert!(!wire.input(1, std::iter::repeat_n(good.clone(), MOST)));
        let losses = "1 with a wrong header checksum, 1 with too many before it";
        assert_eq!(wire.losses().as_deref(), Some(losses));
        let taken = [MOST - 1, MOST].map(|most| wire.packets(most).len());
        assert_eq!(taken, [MOST - 1, 1]);
        assert!(!wire.has_packets());
        assert!(wire.input(1, std::iter::once(good)));
    }

    #[test]
    fn many_frames_leave_the_switch_to_others() {
        let wire = wire();
        let has_come = AtomicBool::new(false);
        let frame = packet(FAR, mapped([192, 0, 2, 9]));
        std::thread::scope(|scope| {
            let end = Instant::now() + Duration::from_secs(10);
            let frames = (0..).map_while(|number| {
                if number == 1 {
                    scope.spawn(|| {
                        let _switch = wire.switch();
                        has_come.store(true, Ordering::Relaxed);
                    });
                }
                // Frames come until it waits, and then for one turn at most.
                let has_come = has_come.load(Ordering::Relaxed);
                assert!(has_come || Instant::now() < end);
                (!has_come).then(|| frame.clone())
            });
            wire.input(2, frames);
        });
    }

    #[test]
    fn a_port_that_fills_the_inbox_leaves_space_to_the_others() {
        let wire = wire();
        // Any guest can send these: the group needs no member.
        let to_all = packet([1, 0, 0x5e, 0, 0, 1], mapped([239, 0, 0, 1]));
        wire.input(1, std::iter::repeat_n(to_all, 2 * WAITING));
        assert!(!wire.accepts(1, &NEAR));
        assert!(wire.accepts(0, &NEAR));
        let mut other = packet(NEAR, own());
        other[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
        wire.input(2, std::iter::once(other));
        assert_eq!(wire.packets(2 * WAITING).len(), WAITING / 2 + 1);
        assert!(wire.accepts(1, &NEAR));
    }
}
