// SPDX-License-Identifier: GPL-2.0

//! The simulated host, whose time passes when the test says so.

use std::cell::Cell;
use std::collections::BTreeMap;

use ferrule_engine::{
    CqEvent, DropReason, Fault, Host, JobPlace, Outgoing, Path, QpEvent, Reorder, Sends, SrqEvent,
    Trace, Unsent,
};

use super::memory::{SimDoorbells, SimQueue, SimRegion, SimRing};
use super::packet::{written_frame, SentPacket};

/// The engine's events, by the names that the test gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Completion(u32),
    Cq(u32, CqEvent),
    Qp(u32, QpEvent),
    Srq(u32, SrqEvent),
}

/// The simulated host.
#[derive(Default)]
pub struct Sim {
    pub now: u64,
    pub events: Vec<Event>,
    pub traces: Vec<Trace>,
    /// Packets that were sent: IP and UDP header, transport headers with payload, and the invariant
    /// CRC.
    pub sent: Vec<SentPacket>,
    /// Ethernet frames that were sent, and how long one may be.
    pub frames: Vec<Vec<u8>>,
    pub frame_limit: u32,
    /// So many packets more are found no space for.
    pub busy: u32,
    /// Each queue pair has as much of this on its way as it may have.
    pub full: Option<Sends>,
    /// Where datagrams of queue pairs without a context go, whatever they say.
    pub destination: Option<Path>,
    /// Where copy jobs are taken along.
    pub has_job_place: bool,
    pub job: JobPlace<Sim>,
    /// Others wait for the shard.
    pub is_contended: bool,
    /// Another thread waits for the processor.
    pub needs_resched: bool,
    /// A program on another processor acts so right after the engine has read the clock, and tells
    /// the time that passes then.
    pub after_reading: Cell<Option<Box<dyn FnOnce() -> u64>>>,
    /// The time that has passed so.
    pub passed: Cell<u64>,
    /// It notes no steps of the data path: they are measured.
    pub is_quiet: bool,
}

thread_local! {
    /// Whether the reorder buffers of hosts take packets.
    pub static REORDERS: Cell<bool> = const { Cell::new(true) };
    /// How many packets they have.
    pub static BUFFERED: Cell<usize> = const { Cell::new(0) };
    /// How often they were asked which they have.
    pub static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// A reorder buffer.
#[derive(Default)]
pub struct SimReorder(BTreeMap<u32, SentPacket>);

impl Drop for SimReorder {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Reorder<SentPacket> for SimReorder {
    fn insert(&mut self, number: u32, packet: &SentPacket) {
        if REORDERS.get() && !self.0.contains_key(&number) {
            self.0.insert(number, packet.clone());
            BUFFERED.set(BUFFERED.get() + 1);
            assert!(self.0.len() <= 256, "more than two windows");
        }
    }

    fn remove(&mut self, number: u32) -> Option<SentPacket> {
        let packet = self.0.remove(&number)?;
        BUFFERED.set(BUFFERED.get() - 1);
        Some(packet)
    }

    fn first_from(&self, number: u32) -> Option<u32> {
        LOOKS.set(LOOKS.get() + 1);
        let first = self.0.range(number..).next().or(self.0.iter().next());
        first.map(|(&number, _)| number)
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn clear(&mut self) {
        BUFFERED.set(BUFFERED.get() - self.0.len());
        self.0.clear();
    }
}

impl Sim {
    /// Why packets were dropped since traces were taken the last time.
    pub fn drops(&mut self) -> Vec<DropReason> {
        let steps = std::mem::take(&mut self.traces).into_iter();
        steps
            .filter_map(|step| match step {
                Trace::PacketDropped { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }

    /// Space for one packet more, if there is any.
    fn take_space(&mut self, kind: Sends) -> Result<(), Unsent> {
        if self.full == Some(kind) {
            return Err(Unsent::Full);
        }
        if self.busy != 0 {
            self.busy -= 1;
            return Err(Unsent::Busy);
        }
        Ok(())
    }
}

impl Host for Sim {
    type Box<T> = Box<T>;
    type Region = SimRegion;
    type Queue = SimQueue;
    type CompletionRing = SimRing;
    type Doorbells = SimDoorbells;
    type Packet = SentPacket;
    type Reorder = SimReorder;
    type Route = Path;
    type CqHandle = u32;
    type QpHandle = u32;
    type SrqHandle = u32;

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<Box<T>> {
        assert!(size_of::<T>() <= 2048);
        Some(Box::new(make()))
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<Box<[T; N]>> {
        assert!(size_of::<[T; N]>() <= 4096);
        Some(Box::new(std::array::from_fn(make)))
    }

    fn index_nospec(index: usize, size: usize) -> usize {
        assert!(index < size && size.is_power_of_two());
        index
    }

    fn fence() {}

    fn now(&self) -> u64 {
        if self.is_quiet {
            return self.now;
        }
        let now = self.now + self.passed.get();
        if let Some(act) = self.after_reading.take() {
            self.passed.set(self.passed.get() + act());
        }
        now
    }

    fn need_resched(&mut self) -> bool {
        self.needs_resched
    }

    fn transmit<'a>(
        &mut self,
        route: &mut Path,
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent> {
        // A host may find that it has no space when the packet has been written.
        let kind = packet.kind();
        let packet = SentPacket::new(route, packet).map_err(|Fault| Unsent::Fault)?;
        self.take_space(kind)?;
        self.sent.push(packet);
        Ok(())
    }

    fn frame_limit(&mut self, _: &SimQueue) -> u32 {
        self.frame_limit
    }

    fn transmit_frame<'a>(&mut self, frame: &mut impl Outgoing<'a, Self>) -> Result<(), Unsent> {
        let bytes = written_frame(frame).map_err(|Fault| Unsent::Fault)?;
        self.take_space(frame.kind())?;
        self.frames.push(bytes);
        Ok(())
    }

    fn destination(&mut self, queue: &SimQueue, _: u32) -> Option<(Path, Option<Path>)> {
        let told = self.destination.filter(|_| queue.is_hosts);
        told.map(|path| (path, Some(path)))
    }

    fn completion_event(&mut self, cq: &u32) {
        self.events.push(Event::Completion(*cq));
    }

    fn cq_event(&mut self, cq: &u32, event: CqEvent) {
        self.events.push(Event::Cq(*cq, event));
    }

    fn qp_event(&mut self, qp: &u32, event: QpEvent) {
        self.events.push(Event::Qp(*qp, event));
    }

    fn srq_event(&mut self, srq: &u32, event: SrqEvent) {
        self.events.push(Event::Srq(*srq, event));
    }

    fn is_contended(&self) -> bool {
        self.is_contended
    }

    fn job_place(&mut self) -> Option<&mut JobPlace<Sim>> {
        self.has_job_place.then_some(&mut self.job)
    }

    fn trace(&mut self, step: &Trace) {
        if !self.is_quiet {
            self.traces.push(*step);
        }
    }
}
