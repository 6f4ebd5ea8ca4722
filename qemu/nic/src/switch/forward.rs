// SPDX-License-Identifier: GPL-2.0

//! The switch: which frame goes to which port. Nothing here does I/O.
//!
//! Each guest has a port, of the guest's own number, and the links have those behind. A frame to a
//! guest is for the engine, if it is a packet of RoCEv2 to an address of the guest's function, and
//! for its network device if not. A packet to a group is for the engine and for all network
//! devices.

use std::collections::HashSet;
use std::time::Instant;

use ferrule_engine::packet::ip::is_multicast;
use ferrule_engine::Gid;

use super::counters::Counters;
use super::queue::Queue;
use super::stream::Output;
use super::table::Table;
use crate::capture::recorder::Recorder;
use crate::frame::{is_group, Frame, Mac};
use crate::roce::received::{parse, Bad, Received};

/// Where a frame comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The peer at the port's stream.
    Stream,
    /// The engine.
    Engine,
}

#[derive(Debug, Default)]
struct Port {
    /// The address of the guest's network device and function.
    mac: Option<Mac>,
    /// A peer can be there: another guest's device, or another process.
    has_stream: bool,
    /// A peer is there.
    up: bool,
    /// The peer takes nothing.
    stalled: bool,
    /// The addresses of the guest's function.
    gids: HashSet<Gid>,
    queue: Queue,
    counters: Counters,
}

impl Port {
    fn push(&mut self, frame: &Frame) {
        match self.up {
            true if self.stalled => self.queue.drop_one(),
            true => self.queue.push(frame.clone()),
            false => (),
        }
    }
}

/// The switch.
#[derive(Debug, Default)]
pub struct Switch {
    ports: Vec<Port>,
    table: Table,
    /// Packets for the engine that were dropped, by [`Bad::ALL`].
    bad: [u64; Bad::ALL.len()],
    /// Where each frame is recorded that comes, while a capture runs.
    recorder: Option<Recorder>,
}

impl Switch {
    /// Adds a port, and answers its number. `mac` is the address of a guest's network device and
    /// function; `has_stream`: others can be reached by this port.
    pub fn add(&mut self, mac: Option<Mac>, has_stream: bool) -> usize {
        let number = self.ports.len();
        if let Some(mac) = mac {
            self.table.fix(mac, number);
        }
        self.ports.push(Port {
            mac,
            has_stream,
            ..Port::default()
        });
        number
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// The address of a guest's function, if there is another port than its own, which can lead to
    /// a peer.
    pub fn source(&self, from: usize) -> Option<Mac> {
        let mut others = self.ports.iter().enumerate();
        let leads_out = others.any(|(number, port)| number != from && port.has_stream);
        self.ports.get(from)?.mac.filter(|_| leads_out)
    }

    /// Sets the addresses of a guest's function.
    pub fn set_gids(&mut self, port: usize, gids: HashSet<Gid>) {
        if let Some(port) = self.ports.get_mut(port) {
            port.gids = gids;
        }
    }

    /// The peer at a port's stream has come or gone.
    pub fn set_up(&mut self, number: usize, up: bool) {
        if let Some(port) = self.ports.get_mut(number) {
            port.up = up;
            port.stalled = false;
            port.queue.clear();
            self.table.forget(number);
        }
    }

    /// The peer at a port's stream has stopped reading, or reads again. Frames that wait for a peer
    /// that has stopped are dropped, so that nobody waits for it.
    pub fn set_stalled(&mut self, port: usize, stalled: bool) {
        if let Some(port) = self.ports.get_mut(port) {
            port.stalled = stalled;
            if stalled {
                port.queue.clear();
            }
        }
    }

    /// The address of a guest's network device and function, if it has been told.
    pub fn mac(&self, port: usize) -> Option<Mac> {
        self.ports.get(port)?.mac
    }

    /// Records each frame that comes from now on, or no more.
    pub fn set_recorder(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// Whether a capture runs that is to have the packets between queue pairs of this process.
    pub fn captures_all(&self) -> bool {
        self.recorder.as_ref().is_some_and(Recorder::is_wire_only)
    }

    /// Frames that have come by a port since a capture runs, and of these those that it has lost.
    pub fn recorded(&self, port: usize) -> (u64, u64) {
        let recorder = self.recorder.as_ref();
        recorder.map_or((0, 0), |recorder| recorder.counts(port))
    }

    /// Counters of frames: those from a port's peer, and the number that was dropped on the way
    /// there.
    pub fn counters(&self, port: usize) -> (Counters, u64) {
        let port = self.ports.get(port);
        port.map_or_else(Default::default, |port| {
            (port.counters, port.queue.dropped())
        })
    }

    /// How many packets for the engine were dropped, by [`Bad::ALL`].
    pub fn bad(&self) -> &[u64; Bad::ALL.len()] {
        &self.bad
    }

    /// Takes a frame that has come by a port's stream. Returns the packet, if it is one for the
    /// engine.
    pub fn input(&mut self, from: usize, bytes: Vec<u8>, now: Instant) -> Option<Received> {
        let port = self.ports.get_mut(from)?;
        let counters = &mut port.counters;
        counters.received = counters.received.saturating_add(1);
        let Some(frame) = Frame::new(bytes) else {
            counters.short = counters.short.saturating_add(1);
            return None;
        };
        if let Some(recorder) = &self.recorder {
            recorder.record(from, &frame);
        }
        if self.table.learn(frame.source(), from, now).is_err() {
            counters.spoofed = counters.spoofed.saturating_add(1);
            return None;
        }
        self.forward(from, &frame, Origin::Stream)
    }

    /// Whether the queue of the port for this address takes a frame of the engine's. A frame for
    /// several ports is always accepted, and may get lost at some. `inbox`: whether the engine's
    /// inbox takes a packet.
    pub fn accepts(&self, from: usize, to: &Mac, inbox: impl FnOnce() -> bool) -> bool {
        let Some(target) = self.table.port(to) else {
            return true;
        };
        self.ports.get(target).is_none_or(|port| {
            let stream = target == from || !port.up || port.stalled || !port.queue.is_full();
            stream && (port.gids.is_empty() || inbox())
        })
    }

    /// Takes a frame of the engine's, for the guest of this port. Returns the packet, if it is one
    /// for a guest of this process.
    pub fn send(&mut self, from: usize, frame: &Frame) -> Option<Received> {
        if let Some(recorder) = &self.recorder {
            recorder.record(from, frame);
        }
        self.forward(from, frame, Origin::Engine)
    }

    fn forward(&mut self, from: usize, frame: &Frame, origin: Origin) -> Option<Received> {
        let to = frame.destination();
        if is_group(&to) {
            self.flood(from, frame);
            // The members that the sender has in this process had it without a packet.
            return match origin {
                Origin::Stream => self.packet(frame, 0, |_, gid| is_multicast(gid)),
                Origin::Engine => None,
            };
        }
        let Some(target) = self.table.port(&to) else {
            self.flood(from, frame);
            return None;
        };
        if target == from {
            // The guest's network device has it already; its function may have a packet for itself.
            return match origin {
                Origin::Stream => None,
                Origin::Engine => self.packet(frame, from, |port, gid| port.gids.contains(gid)),
            };
        }
        if self.ports.get(target)?.gids.is_empty() {
            self.ports.get_mut(target)?.push(frame);
            return None;
        }
        let bad = self.bad;
        let packet = self.packet(frame, target, |port, gid| port.gids.contains(gid));
        if packet.is_none() && self.bad == bad {
            self.ports.get_mut(target)?.push(frame);
        }
        packet
    }

    /// To all ports but one.
    fn flood(&mut self, from: usize, frame: &Frame) {
        for (number, port) in self.ports.iter_mut().enumerate() {
            if number != from {
                port.push(frame);
            }
        }
    }

    /// The packet for the engine in a frame, if there is one to an address that `is_own` and it is
    /// good. One that is not is counted.
    fn packet(
        &mut self,
        frame: &Frame,
        number: usize,
        is_own: impl Fn(&Port, &Gid) -> bool,
    ) -> Option<Received> {
        let (to, judged) = parse(frame.bytes())?;
        if !is_own(self.ports.get(number)?, &to) {
            return None;
        }
        match judged {
            Ok(layout) => Some(Received::new(frame.clone(), layout, number)),
            Err(bad) => {
                let place = Bad::ALL.iter().position(|&other| other == bad);
                if let Some(count) = place.and_then(|place| self.bad.get_mut(place)) {
                    *count = count.saturating_add(1);
                }
                None
            }
        }
    }

    /// Moves frames from a port's queue to what is being written, as many as are wanted there.
    pub fn take(&mut self, port: usize, output: &mut Output) {
        let Some(port) = self.ports.get_mut(port) else {
            return;
        };
        for _ in 0..output.wanted() {
            let Some(frame) = port.queue.pop() else {
                return;
            };
            output.push(frame);
        }
    }

    /// Whether frames wait at a port.
    pub fn waits(&self, port: usize) -> bool {
        let port = self.ports.get(port);
        port.is_some_and(|port| !port.queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use ferrule_engine::packet::ip::mapped;
    use proptest::prelude::*;

    use super::super::queue::FRAMES;
    use super::*;
    use crate::roce::headers::{Headers, Way};

    const BROADCAST: Mac = [0xff; 6];

    fn mac(number: u8) -> Mac {
        [2, 0, 0, 0, 0, number]
    }

    /// Bytes of a frame.
    fn bytes(to: Mac, from: Mac, rest: &[u8]) -> Vec<u8> {
        [&to[..], &from, &[0x88, 0xb5], rest].concat()
    }

    /// A packet of RoCEv2.
    fn packet(to: Mac, from: Mac, dgid: Gid) -> Vec<u8> {
        let way = Way {
            source: from,
            destination: to,
            sgid: mapped([192, 0, 2, 99]),
            dgid,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        let mut bytes = Vec::new();
        let headers = Headers::new(&way, 1, 2).unwrap();
        headers.write(16, &mut bytes).unwrap();
        bytes.extend([7; 16]);
        bytes
    }

    /// Two guests with fixed addresses, and two links; peers are at all four.
    fn switch() -> Switch {
        let mut switch = Switch::default();
        for port in 0..4 {
            let fixed = (port < 2).then(|| mac(port));
            assert_eq!(switch.add(fixed, true), usize::from(port));
            switch.set_up(port.into(), true);
        }
        switch
    }

    /// The frames that have come out of each port.
    fn out(switch: &mut Switch) -> Vec<Vec<Vec<u8>>> {
        let port = |port: usize| {
            let mut frames = Vec::new();
            while let Some(frame) = switch.ports.get_mut(port)?.queue.pop() {
                frames.push(frame.bytes().to_vec());
            }
            Some(frames)
        };
        (0..).map_while(port).collect()
    }

    fn counts(switch: &mut Switch) -> Vec<usize> {
        out(switch).iter().map(Vec::len).collect()
    }

    #[test]
    fn frames_go_where_their_address_is() {
        let now = Instant::now();
        let mut switch = switch();
        // Guests are known from the start; others are when they have sent.
        let frame = bytes(mac(1), mac(0), &[1, 2, 3]);
        assert!(switch.input(0, frame.clone(), now).is_none());
        let none = Vec::<Vec<u8>>::new;
        assert_eq!(out(&mut switch), [none(), vec![frame], none(), none()]);
        switch.input(0, bytes(mac(9), mac(0), &[]), now);
        assert_eq!(counts(&mut switch), [0, 1, 1, 1]);
        switch.input(3, bytes(mac(0), mac(9), &[]), now);
        assert_eq!(counts(&mut switch), [1, 0, 0, 0]);
        switch.input(0, bytes(mac(9), mac(0), &[]), now);
        assert_eq!(counts(&mut switch), [0, 0, 0, 1]);
        // Not back to where it comes from.
        switch.input(3, bytes(mac(9), mac(8), &[]), now);
        assert_eq!(counts(&mut switch), [0, 0, 0, 0]);
        switch.input(2, bytes(BROADCAST, mac(7), &[]), now);
        assert_eq!(counts(&mut switch), [1, 1, 0, 1]);
        // A peer that goes is not known any more, and gets nothing.
        switch.set_up(3, false);
        switch.input(0, bytes(mac(9), mac(0), &[]), now);
        assert_eq!(counts(&mut switch), [0, 1, 1, 0]);
    }

    #[test]
    fn bad_frames_are_counted() {
        let now = Instant::now();
        let mut switch = switch();
        switch.input(1, vec![0; 13], now);
        switch.input(1, bytes(mac(0), mac(0), &[]), now);
        switch.input(1, bytes(mac(0), BROADCAST, &[]), now);
        assert_eq!(counts(&mut switch), [0, 0, 0, 0]);
        let expected = Counters {
            received: 3,
            short: 1,
            spoofed: 2,
        };
        assert_eq!(switch.counters(1), (expected, 0));
    }

    #[test]
    fn packets_are_for_the_engine() {
        let now = Instant::now();
        let mut switch = switch();
        let (own, group) = (mapped([192, 0, 2, 1]), mapped([239, 0, 0, 1]));
        let to = |dgid| packet(mac(1), mac(9), dgid);
        // The function has no address yet.
        assert!(switch.input(2, to(own), now).is_none());
        assert_eq!(counts(&mut switch), [0, 1, 0, 0]);
        switch.set_gids(1, HashSet::from([own]));
        assert_eq!(switch.input(2, to(own), now).unwrap().port(), 1);
        assert_eq!(counts(&mut switch), [0, 0, 0, 0]);
        assert!(switch.input(2, to(mapped([192, 0, 2, 2])), now).is_none());
        assert_eq!(counts(&mut switch), [0, 1, 0, 0]);
        // By another guest's Ethernet address it is for nobody's engine.
        let strange = packet(mac(0), mac(9), own);
        assert!(switch.input(2, strange, now).is_none());
        assert_eq!(counts(&mut switch), [1, 0, 0, 0]);
        let mut bad = to(own);
        bad[25] ^= 1;
        assert!(switch.input(2, bad, now).is_none());
        assert_eq!(counts(&mut switch), [0, 0, 0, 0]);
        assert_eq!(switch.bad(), &[0, 0, 1, 0, 0, 0]);
        // To a group: everybody's, but not once more its sender's.
        let all = packet([1, 0, 0x5e, 0, 0, 1], mac(9), group);
        assert!(switch.input(2, all.clone(), now).is_some());
        assert_eq!(counts(&mut switch), [1, 1, 0, 1]);
        let all = Frame::new(all).unwrap();
        assert!(switch.send(0, &all).is_none());
        assert_eq!(counts(&mut switch), [0, 1, 1, 1]);
        // From one guest's engine to another guest's.
        let frame = Frame::new(to(own)).unwrap();
        assert_eq!(switch.send(0, &frame).unwrap().port(), 1);
    }

    #[test]
    fn a_frame_is_accepted_by_the_port_that_it_leaves_by() {
        let now = Instant::now();
        let mut switch = switch();
        switch.input(3, bytes(mac(0), mac(9), &[]), now);
        let frame = Frame::new(bytes(mac(9), mac(0), &[])).unwrap();
        for _ in 0..FRAMES {
            assert!(switch.accepts(0, &mac(9), || false));
            switch.send(0, &frame);
        }
        assert!(!switch.accepts(0, &mac(9), || true));
        assert!(switch.accepts(0, &mac(8), || false));
        switch.send(0, &frame);
        assert_eq!(switch.counters(3).1, 1);
        // Nobody waits for a peer that has stopped reading, or for none.
        switch.set_stalled(3, true);
        assert!(switch.accepts(0, &mac(9), || false));
        assert_eq!(switch.counters(3).1, 1 + FRAMES as u64);
        switch.send(0, &frame);
        assert!(!switch.waits(3));
        switch.set_stalled(3, false);
        switch.send(0, &frame);
        assert!(switch.waits(3));
        switch.set_up(3, false);
        assert!(switch.accepts(0, &mac(9), || false) && !switch.waits(3));
    }

    #[test]
    fn guests_without_others() {
        let mut switch = Switch::default();
        assert_eq!(
            [None, Some(mac(1))].map(|mac| switch.add(mac, false)),
            [0, 1]
        );
        assert_eq!(switch.source(1), None);
        switch.add(None, true);
        assert_eq!(
            [0, 1, 2].map(|port| switch.source(port)),
            [None, Some(mac(1)), None]
        );
    }

    proptest! {
        /// For any frames: one that goes out of a port has come in by another, unchanged, and once.
        #[test]
        fn frames_are_those_that_came(
            frames in prop::collection::vec((0usize..4, prop::collection::vec(0u8..4, 12..20)), 1..100),
        ) {
            let now = Instant::now();
            let mut switch = switch();
            switch.set_gids(0, HashSet::from([mapped([192, 0, 2, 1])]));
            for (from, frame) in frames {
                switch.input(from, frame.clone(), now);
                let out = out(&mut switch);
                prop_assert!(out[from].is_empty());
                for frames in out {
                    prop_assert!(frames.is_empty() || frames == [frame.clone()]);
                }
            }
        }
    }
}
