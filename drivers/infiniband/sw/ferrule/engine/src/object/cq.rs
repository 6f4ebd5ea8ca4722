// SPDX-License-Identifier: GPL-2.0

//! Completion queues: the ring, its consumer, and the event that an armed queue raises.

use zerocopy::byteorder::little_endian::U32;

use crate::base::{
    abi,
    counters::{
        Cells,
        Count, //
    },
    error::{
        Error,
        Refused,
        TableKind, //
    },
    event::CqEvent,
    host::{
        CompletionRing,
        Host, //
    },
    list::{
        Link,
        Links,
        List, //
    },
    table::{
        tops,
        SlotLink,
        Table,
        TableChunk, //
    },
    timer::{
        TimerSlot,
        TimerSlots,
        Timers, //
    },
};

/// The most completion queues of an engine.
pub const MAX_CQ: u32 = 1 << 16;

/// The parameters of a new completion queue.
pub struct CqInit<H: Host> {
    /// Slots: a power of two, at most [`abi::MAX_CQ_DEPTH`].
    pub depth: u32,
    /// The ring, zeroed, and its control words, zeroed.
    pub ring: H::CompletionRing,
    /// The host's handle, by which it tells of events.
    pub handle: H::CqHandle,
}

/// The ring that a completion queue is to go on with.
pub struct CqResize<H: Host> {
    /// Slots: a power of two, at most [`abi::MAX_CQ_DEPTH`].
    pub depth: u32,
    /// The ring, zeroed, with the control words that the queue has. When the queue has been
    /// resized, this is the old ring.
    pub ring: H::CompletionRing,
}

/// The answer of [`Engine::query_cq`](crate::Engine::query_cq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqInfo {
    /// Slots.
    pub depth: u32,
    /// Completions written so far.
    pub producer: u32,
    /// The consumer's index, as last read.
    pub consumer: u32,
    /// A completion was lost for want of space.
    pub overrun: bool,
}

/// How long events wait for more completions: until so many are there that were not consumed, or
/// until the oldest of them has waited for so long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions; 0 or 1: an event does not wait.
    pub count: u16,
    /// Microseconds; 0: an event does not wait.
    pub period: u16,
}

impl Moderation {
    /// Whether an event may have to wait.
    fn is_on(self) -> bool {
        self.count > 1 && self.period != 0
    }
}

/// A completion queue.
pub struct Cq<H: Host> {
    ring: H::CompletionRing,
    handle: H::CqHandle,
    depth: u32,
    /// The index of the first completion in this ring, whose slot is 0.
    base: u32,
    producer: u32,
    /// The consumer's index as last read; read again only when it says that the ring is full.
    consumer: u32,
    overrun: bool,
    /// Queues that complete here; a queue pair may count twice.
    users: u32,
    arming: Arming,
    moderation: Moderation,
}

/// The engine's side of arming: when to raise an event.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arming {
    /// The sequence number of the last event.
    last: u32,
    /// A solicited or failed completion was written since the arm word was last read.
    solicited: bool,
}

impl Arming {
    /// Notes that a completion was written.
    #[inline]
    pub(crate) fn note(&mut self, solicited: bool) {
        self.solicited |= solicited;
    }

    /// Whether [`Arming::decide`] would raise an event.
    fn is_due(self, arm: u32) -> bool {
        let mut copy = self;
        copy.decide(arm)
    }

    /// Decides, by the arm word as read after the completions and a full fence, whether to raise
    /// an event now.
    #[inline]
    pub(crate) fn decide(&mut self, arm: u32) -> bool {
        let solicited = core::mem::take(&mut self.solicited);
        let number = arm.wrapping_shr(abi::CQ_ARM_SN_SHIFT);
        if number == self.last || (arm & abi::CQ_ARM_SOLICITED != 0 && !solicited) {
            return false;
        }
        self.last = number;
        true
    }
}

/// The phase of the `nth` completion of a ring: 1 in the first lap, 0 in the second, and so on.
#[inline]
pub fn cqe_phase(nth: u32, depth: u32) -> u32 {
    if nth & depth == 0 {
        abi::CQE_PHASE
    } else {
        0
    }
}

fn is_depth(depth: u32) -> bool {
    depth.is_power_of_two() && depth <= abi::MAX_CQ_DEPTH
}

impl<H: Host> Cq<H> {
    /// Makes a completion queue, to be handed to [`Engine::add_cq`](crate::Engine::add_cq).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a depth that is not a power of two, or too large.
    pub fn new(init: CqInit<H>) -> Result<Self, Error> {
        if !is_depth(init.depth) {
            return Err(Error::Invalid);
        }
        Ok(Self {
            ring: init.ring,
            handle: init.handle,
            depth: init.depth,
            base: 0,
            producer: 0,
            consumer: 0,
            overrun: false,
            users: 0,
            arming: Arming::default(),
            moderation: Moderation::default(),
        })
    }

    /// The host's handle, by which it tells of events.
    pub fn handle(&self) -> &H::CqHandle {
        &self.handle
    }

    /// Whether there is no space for one more completion.
    fn is_full(&mut self) -> bool {
        self.unread() >= self.depth && {
            self.read_consumer();
            self.unread() >= self.depth
        }
    }

    /// Completions that were not consumed, as far as is known.
    #[inline]
    fn unread(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer)
    }

    /// Looks how far the consumer is.
    fn read_consumer(&mut self) {
        let consumer = self.ring.consumer();
        // The program writes this word. Where it claims to have consumed what was never produced,
        // or to have gone back, the last index that made sense stands.
        if self.producer.wrapping_sub(consumer) <= self.unread() {
            self.consumer = consumer;
        }
    }

    /// Whether the event that is due waits for more completions.
    fn holds_event(&mut self) -> bool {
        if !self.arming.is_due(self.ring.arm()) {
            return false;
        }
        self.read_consumer();
        self.unread() < self.moderation.count.into()
    }

    /// Goes on with another ring, and returns the index of the first completion there.
    fn resize(&mut self, resize: &mut CqResize<H>) -> Result<u32, Error> {
        if !is_depth(resize.depth) {
            return Err(Error::Invalid);
        }
        self.read_consumer();
        // Unconsumed completions stay in the old ring, and count here all the same.
        if self.unread() > resize.depth {
            return Err(Error::Invalid);
        }
        core::mem::swap(&mut self.ring, &mut resize.ring);
        self.depth = resize.depth;
        self.base = self.producer;
        Ok(self.base)
    }

    /// Raises the event if the queue is armed and has completions for which that was done.
    #[inline]
    fn raise_event(&mut self, host: &mut H, counters: &Cells) {
        if self.arming.decide(self.ring.arm()) {
            counters.completion_events.count(1);
            host.completion_event(&self.handle);
        }
    }

    /// Writes a completion to the next slot.
    #[inline]
    fn store(&mut self, cqe: &abi::Cqe, solicited: bool) -> Result<(), Overrun> {
        if self.overrun || self.is_full() {
            return Err(Overrun);
        }
        let nth = self.producer.wrapping_sub(self.base);
        let slot = nth & self.depth.wrapping_sub(1);
        self.ring.write(slot, cqe);
        self.ring.publish(slot, cqe_phase(nth, self.depth));
        self.producer = self.producer.wrapping_add(1);
        self.arming.note(solicited);
        Ok(())
    }
}

/// A completion could not be written: its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// The table's data for a completion queue's number.
#[derive(Clone, Copy, Default)]
pub(crate) struct CqLink {
    /// In the list of queues that got completions since events were last raised.
    touched: Link,
    /// When the event that waits for more completions is raised.
    timer: TimerSlot,
}

impl SlotLink for CqLink {
    fn is_listed(&self) -> bool {
        self.touched.is_listed()
    }
}

impl<H: Host> Links for Table<H, Cq<H>, CqLink, { tops(MAX_CQ) }> {
    #[inline]
    fn link(&mut self, index: u32) -> Option<&mut Link> {
        Some(&mut self.link_mut(index)?.touched)
    }
}

impl<H: Host> TimerSlots for Table<H, Cq<H>, CqLink, { tops(MAX_CQ) }> {
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot> {
        Some(&mut self.link_mut(index)?.timer)
    }
}

/// All completion queues.
pub(crate) struct Cqs<H: Host> {
    table: Table<H, Cq<H>, CqLink, { tops(MAX_CQ) }>,
    touched: List,
    /// Of queues whose event waits for more completions.
    timers: Timers,
}

impl<H: Host> Cqs<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Cqs, 0, MAX_CQ, 0),
            touched: List::EMPTY,
            timers: Timers::new(),
        }
    }

    pub(crate) fn add(&mut self, cq: H::Box<Cq<H>>) -> Result<u32, Refused<H::Box<Cq<H>>>> {
        self.table.insert(cq, |_, _, _| ())
    }

    pub(crate) fn remove(&mut self, cqn: u32) -> Result<H::Box<Cq<H>>, Error> {
        match self.table.get(cqn) {
            Some(cq) if cq.users != 0 => Err(Error::Busy),
            _ => {
                self.timers.clear(&mut self.table, cqn);
                self.table.remove(cqn).ok_or(Error::NotFound)
            }
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Cq<H>, CqLink>,
    ) -> Option<TableChunk<H, Cq<H>, CqLink>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(
        &mut self,
        all: bool,
        chunk: &mut TableChunk<H, Cq<H>, CqLink>,
    ) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all queues of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
        self.touched.append(
            &mut self.table,
            core::mem::replace(&mut other.touched, List::EMPTY),
        );
        self.timers.take_over(&mut self.table, &mut other.timers);
    }

    pub(crate) fn resize(&mut self, cqn: u32, resize: &mut CqResize<H>) -> Result<u32, Error> {
        let cq = self.table.get_mut(cqn).ok_or(Error::NotFound)?;
        cq.resize(resize)
    }

    /// Sets how long events wait. One that waits already is judged anew.
    pub(crate) fn moderate(
        &mut self,
        host: &mut H,
        counters: &Cells,
        cqn: u32,
        moderation: Moderation,
    ) -> Result<(), Error> {
        let cq = self.table.get_mut(cqn).ok_or(Error::NotFound)?;
        cq.moderation = moderation;
        if self.timers.deadline(&mut self.table, cqn).is_some() {
            self.timers.clear(&mut self.table, cqn);
            self.touched.push_back(&mut self.table, cqn);
            self.raise_events(host, counters);
        }
        Ok(())
    }

    /// When the next event is raised that waits for more completions.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.timers.next(&mut self.table)
    }

    /// Raises the next event that has waited until `now`; returns whether there was one.
    pub(crate) fn fire_timer(&mut self, host: &mut H, counters: &Cells, now: u64) -> bool {
        let Some(cqn) = self.timers.pop_due(&mut self.table, now) else {
            return false;
        };
        if let Some(cq) = self.table.get_mut(cqn) {
            cq.raise_event(host, counters);
        }
        true
    }

    pub(crate) fn query(&self, cqn: u32) -> Result<CqInfo, Error> {
        let cq = self.table.get(cqn).ok_or(Error::NotFound)?;
        Ok(CqInfo {
            depth: cq.depth,
            producer: cq.producer,
            consumer: cq.consumer,
            overrun: cq.overrun,
        })
    }

    /// Lets a queue go on as if so many completions had been written and consumed.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, cqn: u32, index: u32) {
        let cq = self.table.get_mut(cqn).unwrap();
        (cq.producer, cq.consumer) = (index, index);
    }

    pub(crate) fn exists(&self, cqn: u32) -> bool {
        self.table.get(cqn).is_some()
    }

    /// Counts a queue that completes here.
    pub(crate) fn add_user(&mut self, cqn: u32) {
        if let Some(cq) = self.table.get_mut(cqn) {
            cq.users = cq.users.wrapping_add(1);
        }
    }

    /// A queue that completed here is gone.
    pub(crate) fn remove_user(&mut self, cqn: u32) {
        if let Some(cq) = self.table.get_mut(cqn) {
            cq.users = cq.users.wrapping_sub(1);
        }
    }

    /// Writes a completion; its phase is set here.
    ///
    /// A queue that overruns is in error from then on: told once, and every queue pair that
    /// completes there finds out with its next completion (IBA volume 1, 11.6.3.1).
    #[inline]
    pub(crate) fn push(
        &mut self,
        host: &mut H,
        counters: &Cells,
        cqn: u32,
        cqe: &mut abi::Cqe,
        solicited: bool,
    ) -> Result<(), Overrun> {
        let cq = self.table.get_mut(cqn).ok_or(Overrun)?;
        cqe.phase = U32::ZERO;
        match cq.store(cqe, solicited) {
            Ok(()) => {
                counters.completions.count(1);
                self.touched.push_back(&mut self.table, cqn);
                Ok(())
            }
            Err(overrun) => {
                counters.completion_overruns.count(1);
                if !cq.overrun {
                    cq.overrun = true;
                    host.cq_event(&cq.handle, CqEvent::Error);
                }
                Err(overrun)
            }
        }
    }

    /// Raises the events of all queues that were armed and got completions.
    pub(crate) fn raise_events(&mut self, host: &mut H, counters: &Cells) {
        if self.touched.is_empty() {
            return;
        }
        // The program arms, fences, and polls once more; the engine completes, fences, and looks
        // at the arm word. So at least one of the two sees what the other did.
        H::fence();
        while let Some(cqn) = self.touched.pop_front(&mut self.table) {
            let Some(cq) = self.table.get_mut(cqn) else {
                continue;
            };
            if cq.moderation.is_on() {
                self.raise_moderated(host, counters, cqn);
            } else {
                cq.raise_event(host, counters);
            }
        }
    }

    /// Raises the event of a queue, unless it waits for more completions. The first of them starts
    /// the timer.
    #[cold]
    fn raise_moderated(&mut self, host: &mut H, counters: &Cells, cqn: u32) {
        let Some(cq) = self.table.get_mut(cqn) else {
            return;
        };
        let period = u64::from(cq.moderation.period).wrapping_mul(1000);
        if !cq.holds_event() {
            cq.raise_event(host, counters);
            self.timers.clear(&mut self.table, cqn);
        } else if self.timers.deadline(&mut self.table, cqn).is_none() {
            let deadline = host.now().saturating_add(period);
            self.timers.set(&mut self.table, cqn, deadline);
        }
    }
}
