// SPDX-License-Identifier: GPL-2.0

//! This process as the engine's host: the services that a call into the engine needs.

use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;

use ferrule_engine::packet::ip::is_multicast;
use ferrule_engine::{
    abi::wc_opcode, CqEvent, Gid, Host, Outgoing, Path, PathKind, QpEvent, SrqEvent, Trace, Unsent,
};
use rustix::io::Errno;
use rustix::time::{clock_gettime, ClockId};

use crate::addresses::Addresses;
use crate::area::{Doorbells, Queue, Ring};
use crate::events::{EventQueue, Source, COMPLETION};
use crate::interface::{event, AddressVector, NONE};
use crate::packet::{crc32, ReorderBuffer};
use crate::region::Region;
use crate::roce::received::Received;
use crate::route::Route;
use crate::signal::Signal;
use crate::statistics::{Statistics, Stopwatch};
use crate::wire::Wire;

/// The queue that takes all events but completions.
const ASYNCHRONOUS: usize = 0;

/// A port as the host knows it: the ways to tell its guest.
#[derive(Debug)]
struct Port {
    /// By vectors.
    queues: Vec<Option<EventQueue>>,
    /// Vectors that are to be raised, as bits.
    raised: u32,
    signal: Arc<Signal>,
    statistics: Arc<Statistics>,
    stopwatch: Stopwatch,
}

/// The services of the calls into the engine.
#[derive(Debug)]
pub(crate) struct Nic {
    addresses: Addresses,
    /// None if the guests have nobody but each other.
    pub(crate) wire: Option<Arc<Wire>>,
    ports: Vec<Port>,
    /// Events may wait for space: the queues are many, and looked at only then.
    waiting: bool,
}

/// The object whose events the host tells a port's guest.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    port: usize,
    /// The event queue that completions go to.
    eq: u32,
    /// As the guest knows it: told once the engine has answered it.
    number: Arc<AtomicU32>,
}

impl Handle {
    pub(crate) fn new(port: usize, eq: u32) -> Self {
        Self {
            port,
            eq,
            number: Arc::new(AtomicU32::new(NONE)),
        }
    }

    /// Tells the object's number, before the engine's lock is left.
    pub(crate) fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Nic {
    /// The host of an engine with a port for each of these.
    pub(crate) fn new(
        signals: &[Arc<Signal>],
        statistics: &[Arc<Statistics>],
        vectors: u16,
        wire: Option<Arc<Wire>>,
    ) -> Self {
        let ports = signals.iter().zip(statistics);
        let ports = ports.map(|(signal, statistics)| Port {
            queues: (0..vectors).map(|_| None).collect(),
            raised: 0,
            signal: Arc::clone(signal),
            statistics: Arc::clone(statistics),
            stopwatch: Stopwatch::default(),
        });
        Self {
            addresses: Addresses::new(signals.len()),
            ports: ports.collect(),
            waiting: false,
            wire,
        }
    }

    /// Sets or removes an address of a port.
    ///
    /// # Errors
    ///
    /// Those of [`Addresses::set`].
    pub(crate) fn set_address(
        &mut self,
        port: usize,
        index: usize,
        gid: Option<Gid>,
    ) -> Result<(), Errno> {
        self.addresses.set(port, index, gid)?;
        self.tell_addresses(port);
        Ok(())
    }

    /// Tells the switch which packets are for the engine.
    fn tell_addresses(&self, port: usize) {
        if let Some(wire) = &self.wire {
            wire.set_gids(port, self.addresses.of(port));
        }
    }

    /// Where an address vector of a port leads, and the route if that is elsewhere. `ends`: as for
    /// [`Route::new`].
    ///
    /// # Errors
    ///
    /// Those of [`Addresses::resolve`] and of [`Route::new`].
    pub(crate) fn resolve(
        &self,
        port: usize,
        to: &AddressVector,
        ends: (u32, u32),
    ) -> Result<(Path, Option<Route>), Errno> {
        let Some(wire) = &self.wire else {
            return Ok((self.addresses.resolve(port, to, false)?, None));
        };
        let mut source = wire.source(port);
        let wire_only = wire.is_wire_only();
        if wire_only && is_multicast(&to.dgid) {
            source = wire.mac(port);
        }
        let mut path = self.addresses.resolve(port, to, source.is_some())?;
        let mut next_hop = path.dmac;
        let peer = || self.addresses.owner(&to.dgid);
        if let Some(peer) = wire_only.then(peer).flatten() {
            // A guest without a network device has no Ethernet address, and keeps to copies.
            if let (Some(near), Some(far)) = (wire.mac(port), wire.mac(peer)) {
                (path.kind, source, next_hop) = (PathKind::Remote, Some(near), far);
            }
        }
        let route = match (path.kind, source) {
            (PathKind::Remote, Some(source)) => {
                let path = Path {
                    dmac: next_hop,
                    ..path
                };
                Some(Route::new(port, source, &path, ends)?)
            }
            _ => None,
        };
        Ok((path, route))
    }

    /// Whether packets wait for the engine.
    pub(crate) fn has_packets(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.has_packets())
    }

    /// The place of the event queue of a port's vector, if there is such a vector.
    pub(crate) fn queue(&mut self, port: usize, vector: usize) -> Option<&mut Option<EventQueue>> {
        self.ports.get_mut(port)?.queues.get_mut(vector)
    }

    /// Whether a port has the event queue.
    pub(crate) fn has_queue(&mut self, port: usize, eq: u32) -> bool {
        let place = usize::try_from(eq).ok().and_then(|eq| self.queue(port, eq));
        place.is_some_and(|queue| queue.is_some())
    }

    /// Removes what a port has: event queues and addresses.
    pub(crate) fn reset(&mut self, port: usize) {
        self.addresses.clear(port);
        self.tell_addresses(port);
        if let Some(port) = self.ports.get_mut(port) {
            port.queues.fill_with(|| None);
            port.raised = 0;
        }
    }

    fn event(&mut self, handle: &Handle, kind: u32, code: u32) {
        let number = handle.number.load(Ordering::Relaxed);
        let vector = match kind {
            event::COMPLETION => usize::try_from(handle.eq).unwrap_or(usize::MAX),
            _ => ASYNCHRONOUS,
        };
        let Some(port) = self.ports.get_mut(handle.port) else {
            return;
        };
        if let Some(Some(queue)) = port.queues.get_mut(vector) {
            if queue.add(Source { kind, number }, code) {
                port.raised |= bit(vector);
            }
            self.waiting |= queue.is_waiting();
        }
    }

    /// Forgets the events of an object that is gone.
    pub(crate) fn forget(&mut self, port: usize, source: Source) {
        if let Some(port) = self.ports.get_mut(port) {
            let queues = port.queues.iter_mut().flatten();
            queues.for_each(|queue| queue.forget(source));
        }
    }

    /// Writes events that have waited for space, and returns whether some still do.
    pub(crate) fn flush(&mut self) -> bool {
        if !std::mem::take(&mut self.waiting) {
            return false;
        }
        for port in &mut self.ports {
            for (vector, queue) in port.queues.iter_mut().enumerate() {
                let Some(queue) = queue.as_mut().filter(|queue| queue.is_waiting()) else {
                    continue;
                };
                if queue.flush() {
                    port.raised |= bit(vector);
                }
                self.waiting |= queue.is_waiting();
            }
        }
        self.waiting
    }

    /// Wakes the threads of guests whose vectors are to be raised.
    pub(crate) fn signal(&mut self) {
        for port in &mut self.ports {
            let raised = std::mem::take(&mut port.raised);
            if raised != 0 {
                port.signal.raise(raised);
            }
        }
    }
}

fn bit(vector: usize) -> u32 {
    u32::try_from(vector).map_or(0, |vector| 1u32.wrapping_shl(vector))
}

/// The time of completions, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

impl Host for Nic {
    type Box<T> = Box<T>;
    type Region = Region;
    type Queue = Queue;
    type CompletionRing = Ring;
    type Doorbells = Doorbells;
    type Packet = Received;
    type Reorder = ReorderBuffer;
    type Route = Route;
    type CqHandle = Handle;
    type QpHandle = Handle;
    type SrqHandle = Handle;

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<Box<T>> {
        Some(Box::new(make()))
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<Box<[T; N]>> {
        Some(Box::new(std::array::from_fn(make)))
    }

    /// A mask is no branch, so no guess goes past it.
    #[inline(always)]
    fn index_nospec(index: usize, size: usize) -> usize {
        index & size.wrapping_sub(1)
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn crc32(crc: u32, bytes: &[u8]) -> u32 {
        crc32(crc, bytes)
    }

    #[inline]
    fn now(&self) -> u64 {
        now()
    }

    fn transmit<'a>(
        &mut self,
        route: &mut Route,
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent> {
        match &self.wire {
            Some(wire) => route.send(wire, packet),
            None => Ok(()),
        }
    }

    fn destination(&mut self, queue: &Queue, index: u32) -> Option<(Path, Option<Route>)> {
        let vector = queue.destination(index)?;
        self.resolve(queue.port(), &vector, (0, 0)).ok()
    }

    #[inline]
    fn trace(&mut self, step: &Trace) {
        match *step {
            Trace::Request {
                vport, qpn, wr_id, ..
            } => {
                if let Some(port) = self.ports.get_mut(usize::from(vport)) {
                    port.stopwatch.begin(qpn, wr_id, now);
                }
            }
            Trace::Completion {
                vport,
                qpn,
                wr_id,
                opcode,
                ..
            } if opcode != wc_opcode::RECV && opcode != wc_opcode::RECV_RDMA_WITH_IMM => {
                if let Some(port) = self.ports.get_mut(usize::from(vport)) {
                    if let Some(latency) = port.stopwatch.end(qpn, wr_id, now) {
                        port.statistics.latency.add(latency);
                    }
                }
            }
            _ => (),
        }
    }

    fn completion_event(&mut self, cq: &Handle) {
        self.event(cq, event::COMPLETION, COMPLETION);
    }

    fn cq_event(&mut self, cq: &Handle, event: CqEvent) {
        let code = match event {
            CqEvent::Error => 0,
        };
        self.event(cq, event::CQ, code);
    }

    fn qp_event(&mut self, qp: &Handle, event: QpEvent) {
        let code = match event {
            QpEvent::Fatal => 1,
            QpEvent::RequestError => 2,
            QpEvent::AccessError => 3,
            QpEvent::CommunicationEstablished => 4,
            QpEvent::SendQueueDrained => 5,
            QpEvent::LastRequestReached => 16,
        };
        self.event(qp, event::QP, code);
    }

    fn srq_event(&mut self, srq: &Handle, event: SrqEvent) {
        let code = match event {
            SrqEvent::Error => 14,
            SrqEvent::LimitReached => 15,
        };
        self.event(srq, event::SRQ, code);
    }
}
