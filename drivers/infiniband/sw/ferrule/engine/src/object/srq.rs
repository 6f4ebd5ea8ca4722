// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: one ring of receive requests from which many queue pairs take.
//!
//! A request is copied out of the ring when a message takes it, in the order in which it was
//! posted, and its slot is free from then on. Queue pairs complete in any order, so that the free
//! slots cannot be told by completions; the word [`abi::SrqCtrl::consumer`] tells them.

use core::mem::offset_of;

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

/// The parameters of a new shared receive queue.
pub struct SrqInit<H: Host> {
    /// The protection domain, by which the memory of its requests is checked, whichever queue pair
    /// takes them.
    pub pd: u32,
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
        const OFFSET: u32 = offset_of!(abi::SrqCtrl, producer) as u32;
        self.queue.load(self.ctrl.wrapping_add(OFFSET))
    }
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
        let size = init.queue.size();
        if init.ring.depth == 0 || init.max_sge as usize > abi::MAX_SGE {
            return Err(Error::Invalid);
        }
        let entries = (init.max_sge as usize).wrapping_mul(size_of::<abi::Sge>());
        let entry = size_of::<abi::RecvWqe>().wrapping_add(entries);
        init.ring.check(size, entry)?;
        let end = (init.ctrl as usize).checked_add(size_of::<abi::SrqCtrl>());
        if init.ctrl % 64 != 0 || end.is_none_or(|end| end > size) {
            return Err(Error::Invalid);
        }
        Ok(Self {
            init,
            ring: Consumer::NEW,
            jump_reported: false,
            limit: 0,
            users: 0,
        })
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

    /// The producer index made no sense. Told once; who wants a request is refused from then on.
    #[cold]
    fn report_jump(&mut self, host: &mut H, counters: &Cells) {
        if !self.jump_reported {
            self.jump_reported = true;
            counters.producer_jumps.count(1);
            host.srq_event(&self.init.handle, SrqEvent::Error);
        }
    }

    /// Takes the next request; answers the protection domain of its memory.
    fn take(
        &mut self,
        host: &mut H,
        counters: &Cells,
        request: &mut ReceiveRequest,
    ) -> Result<u32, NoReceive> {
        let init = &self.init;
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
        self.table.insert(srq, |_, _, _| ())
    }

    pub(crate) fn remove(&mut self, number: u32) -> Result<H::Box<Srq<H>>, Error> {
        match self.table.get(number) {
            Some(srq) if srq.users != 0 => Err(Error::Busy),
            _ => self.table.remove(number).ok_or(Error::NotFound),
        }
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

    pub(crate) fn exists(&self, number: u32) -> bool {
        self.table.get(number).is_some()
    }

    /// Counts a queue pair that takes from here.
    pub(crate) fn add_user(&mut self, number: u32) {
        if let Some(srq) = self.table.get_mut(number) {
            srq.users = srq.users.wrapping_add(1);
        }
    }

    /// A queue pair that took from here is gone.
    pub(crate) fn remove_user(&mut self, number: u32) {
        if let Some(srq) = self.table.get_mut(number) {
            srq.users = srq.users.wrapping_sub(1);
        }
    }

    /// Sets the limit, and raises the event at once if there are fewer requests already: else who
    /// sets it after they were taken would wait for ever.
    pub(crate) fn set_limit(
        &mut self,
        host: &mut H,
        counters: &Cells,
        number: u32,
        limit: u32,
    ) -> Result<(), Error> {
        let srq = self.table.get_mut(number).ok_or(Error::NotFound)?;
        if limit > srq.init.ring.depth {
            return Err(Error::Invalid);
        }
        srq.limit = limit;
        srq.check_limit(host, counters);
        Ok(())
    }

    pub(crate) fn query(&self, number: u32) -> Result<SrqInfo, Error> {
        let srq = self.table.get(number).ok_or(Error::NotFound)?;
        Ok(SrqInfo {
            max_wr: srq.init.ring.depth,
            max_sge: srq.init.max_sge,
            limit: srq.limit,
        })
    }

    /// Takes the next request of a queue; answers the protection domain of its memory.
    #[inline]
    pub(crate) fn take(
        &mut self,
        host: &mut H,
        counters: &Cells,
        number: u32,
        request: &mut ReceiveRequest,
    ) -> Result<u32, NoReceive> {
        match self.table.get_mut(number) {
            Some(srq) => srq.take(host, counters, request),
            None => Err(NoReceive::Empty),
        }
    }

    /// Lets a queue go on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, number: u32, index: u32) {
        let srq = self.table.get_mut(number).unwrap();
        srq.ring.set_indices(index);
        srq.store_consumer();
    }
}
