// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: one ring of receive requests from which many queue pairs take.
//!
//! A request is copied out of the ring when a message takes it, in the order in which it was
//! posted, and its slot is free from then on. Queue pairs complete in any order, so that the free
//! slots cannot be told by completions; the word [`abi::SrqCtrl::consumer`] tells them.

use core::{
    cell::Cell,
    mem::offset_of, //
};

use crate::{
    base::{
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
        event::SrqEvent,
        host::{
            Host,
            Queue, //
        },
        ring::{
            Consumer,
            Jump,
            RingLayout, //
        },
        table::{
            tops,
            Table,
            TableChunk, //
        },
    },
    object::request::{
        NoReceive,
        ReceiveRequest, //
    },
};

/// The most shared receive queues of an engine.
pub const MAX_SRQ: u32 = 1 << 16;

/// The part of a shared receive queue's number that is its index. Above it stands how often the
/// index was used.
pub(crate) const INDEX_MASK: u32 = MAX_SRQ - 1;

/// The parts that an XRC shared receive queue has beside those of a basic one (annex A14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// The XRC domain, whose targets take from the queue.
    pub domain: u32,
    /// The completion queue of its requests.
    pub cq: u32,
}

/// The parameters of a new shared receive queue.
pub struct SrqInit<H: Host> {
    /// The protection domain, by which the memory of its requests is checked, whichever queue pair
    /// takes them.
    pub pd: u32,
    /// Of an XRC queue: its domain and completion queue.
    pub xrc: Option<XrcSrq>,
    /// The most scatter/gather entries of a request.
    pub max_sge: u32,
    /// The slots.
    pub ring: RingLayout,
    /// Where [`abi::SrqCtrl`] stands, in bytes from the start of the buffer.
    pub ctrl: u32,
    /// The buffer, zeroed.
    pub queue: H::Queue,
    /// The host's handle, by which it tells of events.
    pub handle: H::SrqHandle,
}

impl<H: Host> SrqInit<H> {
    /// The producer index, which the program stores.
    fn load_producer(&self) -> u32 {
        load_producer::<H>(&self.queue, self.ctrl)
    }
}

/// The producer index in a buffer whose control words stand at `ctrl`.
fn load_producer<H: Host>(queue: &H::Queue, ctrl: u32) -> u32 {
    const OFFSET: u32 = offset_of!(abi::SrqCtrl, producer) as u32;
    queue.load(ctrl.wrapping_add(OFFSET))
}

/// Checks that a ring of requests of up to `max_sge` entries is well formed, and lies in the buffer
/// with the control words.
fn check<Q: Queue>(queue: &Q, ring: &RingLayout, ctrl: u32, max_sge: u32) -> Result<(), Error> {
    let size = queue.size();
    if ring.depth == 0 || max_sge as usize > abi::MAX_SGE {
        return Err(Error::Invalid);
    }
    let entries = (max_sge as usize).wrapping_mul(size_of::<abi::Sge>());
    let entry = size_of::<abi::RecvWqe>().wrapping_add(entries);
    ring.check(size, entry)?;
    let end = (ctrl as usize).checked_add(size_of::<abi::SrqCtrl>());
    if ctrl % 64 != 0 || end.is_none_or(|end| end > size) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// The ring that a shared receive queue is to go on with.
pub struct SrqResize<H: Host> {
    /// The slots, with the stride that the queue has.
    pub ring: RingLayout,
    /// Where [`abi::SrqCtrl`] stands, in bytes from the start of the buffer.
    pub ctrl: u32,
    /// The buffer, with the producer index and the requests that wait at their places. When the
    /// queue has been resized, this is the old buffer.
    pub queue: H::Queue,
    /// The limit that it is to have; none: the one that it has.
    pub limit: Option<u32>,
}

/// The answer of [`Engine::query_srq`](crate::Engine::query_srq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// Requests that the queue can hold.
    pub max_wr: u32,
    /// The most scatter/gather entries of a request.
    pub max_sge: u32,
    /// With fewer requests than this, the next event is raised; 0: none will be.
    pub limit: u32,
}

/// A shared receive queue.
pub struct Srq<H: Host> {
    /// 24 bits.
    number: u32,
    init: SrqInit<H>,
    ring: Consumer,
    /// The producer index made no sense, and the host has been told.
    jump_reported: bool,
    /// With fewer requests than this, the event is raised, once.
    limit: u32,
    /// Queue pairs that take from here.
    users: u32,
}

impl<H: Host> Srq<H> {
    /// Makes a shared receive queue, to be handed to [`Engine::add_srq`](crate::Engine::add_srq).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the ring is not well formed, does not lie in the buffer, or cannot
    /// hold what is promised.
    pub fn new(init: SrqInit<H>) -> Result<Self, Error> {
        check(&init.queue, &init.ring, init.ctrl, init.max_sge)?;
        Ok(Self {
            number: 0,
            init,
            ring: Consumer::NEW,
            jump_reported: false,
            limit: 0,
            users: 0,
        })
    }

    /// Goes on with another ring, if it has a place for each request that waits, and for as many
    /// as the limit says.
    fn resize(&mut self, resize: &mut SrqResize<H>) -> Result<(), Error> {
        let init = &mut self.init;
        check(&resize.queue, &resize.ring, resize.ctrl, init.max_sge)?;
        let limit = resize.limit.unwrap_or(self.limit);
        let producer = load_producer::<H>(&resize.queue, resize.ctrl);
        let waiting = resize.ring.waiting(self.ring.index, producer);
        if waiting.is_none() || limit > resize.ring.depth || self.ring.is_broken() {
            return Err(Error::Invalid);
        }
        core::mem::swap(&mut init.queue, &mut resize.queue);
        init.ring = resize.ring;
        init.ctrl = resize.ctrl;
        self.ring.producer = producer;
        self.limit = limit;
        self.store_consumer();
        Ok(())
    }

    /// The domain and the completion queue of an XRC queue.
    pub(crate) fn xrc(&self) -> Option<XrcSrq> {
        self.init.xrc
    }

    /// The host's handle, by which it tells of events.
    pub fn handle(&self) -> &H::SrqHandle {
        &self.init.handle
    }

    /// Tells the program which slots are free.
    fn store_consumer(&self) {
        const OFFSET: u32 = offset_of!(abi::SrqCtrl, consumer) as u32;
        let offset = self.init.ctrl.wrapping_add(OFFSET);
        self.init.queue.store(offset, self.ring.index);
    }

    /// The producer index made no sense. Told once; queue pairs that want a request are refused
    /// from then on.
    #[cold]
    fn report_jump(&mut self, host: &mut H, counters: &Cells) {
        if !self.jump_reported {
            self.jump_reported = true;
            counters.producer_jumps.count(1);
            host.srq_event(&self.init.handle, SrqEvent::Error);
        }
    }

    /// Takes the next request; returns the protection domain of its memory.
    fn take(
        &mut self,
        host: &mut H,
        counters: &Cells,
        time: &Cell<Option<u64>>,
        request: &mut ReceiveRequest,
    ) -> Result<u32, NoReceive> {
        let init = &self.init;
        // The producer index is loaded here, or by the check of the limit.
        if self.ring.has_taken_all() || self.limit != 0 {
            time.set(None);
        }
        let index = match self.ring.take(&init.ring, || init.load_producer()) {
            Ok(index) => index.ok_or(NoReceive::Empty)?,
            Err(Jump) => {
                self.report_jump(host, counters);
                return Err(NoReceive::Jump);
            }
        };
        let judged = request.read(&init.queue, &init.ring, index, init.max_sge);
        self.store_consumer();
        self.check_limit(host, counters);
        judged.map(|()| self.init.pd).map_err(NoReceive::Malformed)
    }

    /// Raises the event if there are fewer requests than the limit, which ends with that.
    fn check_limit(&mut self, host: &mut H, counters: &Cells) {
        let (init, limit) = (&self.init, self.limit);
        if limit == 0 {
            return;
        }
        let load = || init.load_producer();
        // Fewer than the limit may be known to wait, and more may have been posted since.
        let waiting = match self.ring.waiting(&init.ring, load) {
            Ok(waiting) if waiting < limit => self.ring.available(&init.ring, load),
            known => known,
        };
        match waiting {
            Err(Jump) => self.report_jump(host, counters),
            Ok(waiting) if waiting < limit => {
                self.limit = 0;
                host.srq_event(&self.init.handle, SrqEvent::LimitReached);
            }
            Ok(_) => (),
        }
    }
}

/// All shared receive queues.
pub(crate) struct Srqs<H: Host> {
    table: Table<H, Srq<H>, (), { tops(MAX_SRQ) }>,
}

impl<H: Host> Srqs<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Srqs, 0, MAX_SRQ, 0),
        }
    }

    pub(crate) fn add(&mut self, srq: H::Box<Srq<H>>) -> Result<u32, Refused<H::Box<Srq<H>>>> {
        let mut number = 0;
        self.table.insert(srq, |srq, index, generation| {
            number = index | u32::from(generation as u8).wrapping_shl(16);
            srq.number = number;
        })?;
        Ok(number)
    }

    /// The queue of a number, which has 24 bits.
    fn get(&self, number: u32) -> Option<&Srq<H>> {
        let srq = self.table.get(number & INDEX_MASK);
        srq.filter(|srq| srq.number == number)
    }

    /// The queue of a number, which has 24 bits.
    fn get_mut(&mut self, number: u32) -> Option<&mut Srq<H>> {
        let srq = self.table.get_mut(number & INDEX_MASK);
        srq.filter(|srq| srq.number == number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Result<H::Box<Srq<H>>, Error> {
        let srq = self.get(number).ok_or(Error::NotFound)?;
        if srq.users != 0 {
            return Err(Error::Busy);
        }
        self.table
            .remove(number & INDEX_MASK)
            .ok_or(Error::NotFound)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Srq<H>, ()>,
    ) -> Option<TableChunk<H, Srq<H>, ()>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, Srq<H>, ()>) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all queues of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
    }

    /// Whether there is a basic queue of this number, which queue pairs may be made to take from.
    pub(crate) fn is_basic(&self, number: u32) -> bool {
        self.get(number).is_some_and(|srq| srq.init.xrc.is_none())
    }

    /// The parameters of the XRC queue of a number, if it is one of this XRC domain.
    #[inline]
    fn of_domain(&self, number: u32, domain: u32) -> Option<(&SrqInit<H>, XrcSrq)> {
        let init = &self.get(number)?.init;
        let xrc = init.xrc.filter(|xrc| xrc.domain == domain)?;
        Some((init, xrc))
    }

    /// The protection domain of the XRC queue of a number, if it is one of this XRC domain.
    #[cold]
    pub(crate) fn pd_of_xrc(&self, number: u32, domain: u32) -> Option<u32> {
        Some(self.of_domain(number, domain)?.0.pd)
    }

    /// The completion queue of the XRC queue of a number, if it is one of this XRC domain.
    #[cold]
    pub(crate) fn cq_of_xrc(&self, number: u32, domain: u32) -> Option<u32> {
        Some(self.of_domain(number, domain)?.1.cq)
    }

    /// Counts a queue pair that takes from here.
    pub(crate) fn add_user(&mut self, number: u32) {
        if let Some(srq) = self.get_mut(number) {
            srq.users = srq.users.wrapping_add(1);
        }
    }

    /// A queue pair that took from here is gone.
    pub(crate) fn remove_user(&mut self, number: u32) {
        if let Some(srq) = self.get_mut(number) {
            srq.users = srq.users.wrapping_sub(1);
        }
    }

    /// Sets the limit, and raises the event at once if there are fewer requests already: a program
    /// that sets it after they were taken would wait for ever otherwise.
    pub(crate) fn set_limit(
        &mut self,
        host: &mut H,
        counters: &Cells,
        number: u32,
        limit: u32,
    ) -> Result<(), Error> {
        let srq = self.get_mut(number).ok_or(Error::NotFound)?;
        if limit > srq.init.ring.depth {
            return Err(Error::Invalid);
        }
        srq.limit = limit;
        srq.check_limit(host, counters);
        Ok(())
    }

    /// Lets a queue go on with another ring, and raises the event as [`Srqs::set_limit`] does if it
    /// has another limit now.
    pub(crate) fn resize(
        &mut self,
        host: &mut H,
        counters: &Cells,
        number: u32,
        resize: &mut SrqResize<H>,
    ) -> Result<(), Error> {
        let srq = self.get_mut(number).ok_or(Error::NotFound)?;
        srq.resize(resize)?;
        srq.check_limit(host, counters);
        Ok(())
    }

    pub(crate) fn query(&self, number: u32) -> Result<SrqInfo, Error> {
        let srq = self.get(number).ok_or(Error::NotFound)?;
        Ok(SrqInfo {
            max_wr: srq.init.ring.depth,
            max_sge: srq.init.max_sge,
            limit: srq.limit,
        })
    }

    /// Takes the next request of a queue; returns the protection domain of its memory. Clears the
    /// turn's `time` if it loads the producer index.
    #[inline]
    pub(crate) fn take(
        &mut self,
        host: &mut H,
        counters: &Cells,
        number: u32,
        time: &Cell<Option<u64>>,
        request: &mut ReceiveRequest,
    ) -> Result<u32, NoReceive> {
        match self.table.get_mut(number & INDEX_MASK) {
            Some(srq) => srq.take(host, counters, time, request),
            None => Err(NoReceive::Empty),
        }
    }

    /// Lets a queue go on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, number: u32, index: u32) {
        let srq = self.get_mut(number).unwrap();
        srq.ring.set_indices(index);
        srq.store_consumer();
    }
}
