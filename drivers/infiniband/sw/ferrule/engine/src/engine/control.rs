// SPDX-License-Identifier: GPL-2.0

//! The control path: objects come, change and go.

use crate::{
    base::{
        abi,
        attr::{
            Modify,
            Mtu,
            QpInfo,
            State, //
        },
        error::{
            Error,
            Refused, //
        },
        host::Host,
        id::{
            ContextId,
            QpId,
            Vport, //
        },
    },
    engine::Engine,
    memory::{
        memory_region::{
            Mr,
            MrChange, //
        },
        memory_window::Mw, //
    },
    object::{
        address::Ah,
        cq::{
            Cq,
            CqInfo,
            CqResize,
            Moderation, //
        },
        protection_domain::Pd,
        qp_init::NO_CQ,
        srq::{
            Srq,
            SrqInfo,
            SrqResize, //
        },
        user_context::UserContext,
    },
    operation::ending::enter_error,
    queue_pair::qp::Qp,
    turn::modify, //
};

/// How many numbers of queue pairs a step of [`Engine::fail_context`] or [`Engine::find_qp`] looks
/// at.
const STEP: u32 = 64;

impl<H: Host> Engine<H> {
    /// Adds a user context. Its status area says at once whether the engine sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_context(
        &mut self,
        context: H::Box<UserContext<H>>,
    ) -> Result<ContextId, Refused<H::Box<UserContext<H>>>> {
        self.contexts.add(context)
    }

    /// Removes a user context. Its doorbell and status areas are not touched any more.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while queues belong to it, [`Error::NotFound`].
    pub fn remove_context(&mut self, id: ContextId) -> Result<H::Box<UserContext<H>>, Error> {
        self.contexts.remove(id)
    }

    /// Adds a protection domain and returns its number.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_pd(&mut self, pd: H::Box<Pd>) -> Result<u32, Refused<H::Box<Pd>>> {
        self.pds.insert(pd, |_, _, _| ())
    }

    /// Removes a protection domain. The host sees to it that nothing names it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_pd(&mut self, number: u32) -> Result<H::Box<Pd>, Error> {
        self.pds.remove(number).ok_or(Error::NotFound)
    }

    /// Adds a memory region and returns its key, both local and remote.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the region would exceed the address space, [`Error::NeedChunk`],
    /// [`Error::Full`].
    pub fn add_mr(&mut self, mr: H::Box<Mr<H>>) -> Result<u32, Refused<H::Box<Mr<H>>>> {
        self.keys.add(mr)
    }

    /// Removes a memory region: when this returns, the engine has done with its memory.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::InUse`] while a copy job uses it.
    pub fn remove_mr(&mut self, key: u32) -> Result<H::Box<Mr<H>>, Error> {
        self.keys.remove(key)
    }

    /// Changes the protection domain, the rights or the memory of a region, which keeps its key.
    ///
    /// When this returns, the engine has done with the memory that was there before; it is left in
    /// `change`, for the host to drop without the shard.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while memory windows are bound to it, [`Error::Invalid`] if the region would
    /// exceed the address space, [`Error::InUse`] while a copy job uses it, [`Error::NotFound`].
    /// Nothing has changed then.
    pub fn rereg_mr(&mut self, key: u32, change: &mut MrChange<H>) -> Result<(), Error> {
        self.keys.rereg(key, change)
    }

    /// Tells how a memory region stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_mr(&self, key: u32) -> Result<&Mr<H>, Error> {
        self.keys.mr(key)
    }

    /// Adds a memory window and returns its first key, which opens nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_mw(&mut self, mw: H::Box<Mw>) -> Result<u32, Refused<H::Box<Mw>>> {
        self.keys.mws.add(mw)
    }

    /// Removes a memory window, bound or not, by any key that it has had.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_mw(&mut self, key: u32) -> Result<H::Box<Mw>, Error> {
        self.keys.remove_mw(key)
    }

    /// Adds a completion queue and returns its number.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_cq(&mut self, cq: H::Box<Cq<H>>) -> Result<u32, Refused<H::Box<Cq<H>>>> {
        self.cqs.add(cq)
    }

    /// Removes a completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while a queue pair completes there, [`Error::NotFound`].
    pub fn remove_cq(&mut self, cqn: u32) -> Result<H::Box<Cq<H>>, Error> {
        self.cqs.remove(cqn)
    }

    /// Lets a completion queue go on with another ring, and returns the index of the first
    /// completion there. Those before it stand where they stood.
    ///
    /// When this returns, the engine is done with the old ring; it is left in `resize`, for
    /// the host to drop without the shard.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a depth that is not a power of two, too large, or less than what is
    /// not consumed; [`Error::NotFound`]. Nothing has changed then.
    pub fn resize_cq(&mut self, cqn: u32, resize: &mut CqResize<H>) -> Result<u32, Error> {
        self.cqs.resize(cqn, resize)
    }

    /// Sets how long the events of a completion queue wait for more completions.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn moderate_cq(
        &mut self,
        host: &mut H,
        cqn: u32,
        moderation: Moderation,
    ) -> Result<(), Error> {
        self.cqs
            .moderate(host, self.counters.common(), cqn, moderation)
    }

    /// Tells how a completion queue stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_cq(&self, cqn: u32) -> Result<CqInfo, Error> {
        self.cqs.query(cqn)
    }

    /// Adds a shared receive queue and returns its number, of 24 bits.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the completion queue of an XRC queue does not exist,
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_srq(&mut self, srq: H::Box<Srq<H>>) -> Result<u32, Refused<H::Box<Srq<H>>>> {
        let cq = srq.xrc().map(|xrc| xrc.cq);
        if !cq.is_none_or(|cq| self.cqs.exists(cq)) {
            return Err(Refused {
                error: Error::NotFound,
                object: srq,
            });
        }
        let number = self.srqs.add(srq)?;
        if let Some(cq) = cq {
            self.cqs.add_user(cq);
        }
        Ok(number)
    }

    /// Removes a shared receive queue. The requests in it are gone, without completions; and so is
    /// one of an XRC queue that a message has taken and not ended.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while a queue pair takes from it, [`Error::NotFound`].
    pub fn remove_srq(&mut self, number: u32) -> Result<H::Box<Srq<H>>, Error> {
        let srq = self.srqs.remove(number)?;
        if let Some(xrc) = srq.xrc() {
            self.cqs.remove_user(xrc.cq);
        }
        Ok(srq)
    }

    /// Sets the limit of a shared receive queue: as soon as it holds fewer requests, be that now,
    /// an event is raised, once, and the limit is 0 again. 0 raises none.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a limit above what the queue can hold, [`Error::NotFound`].
    pub fn set_srq_limit(&mut self, host: &mut H, number: u32, limit: u32) -> Result<(), Error> {
        self.srqs
            .set_limit(host, self.counters.common(), number, limit)
    }

    /// Lets a shared receive queue go on with another ring, where the requests that wait are at the
    /// places of their indices, and the producer index is what it was.
    ///
    /// When this returns, the engine is done with the old ring; it is left in `resize`, for
    /// the host to drop without the shard.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a ring that is not well formed or has fewer slots than requests wait
    /// or the limit says, or if the queue is broken; [`Error::NotFound`]. Nothing has changed then.
    pub fn resize_srq(
        &mut self,
        host: &mut H,
        number: u32,
        resize: &mut SrqResize<H>,
    ) -> Result<(), Error> {
        self.srqs
            .resize(host, self.counters.common(), number, resize)
    }

    /// Tells how a shared receive queue stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_srq(&self, number: u32) -> Result<SrqInfo, Error> {
        self.srqs.query(number)
    }

    /// Adds a queue pair, in state RESET, and returns its number and generation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if its context, one of its completion queues or its shared receive queue
    /// does not exist, [`Error::Invalid`] if there is no such virtual port, [`Error::Busy`] if it
    /// is to be the port's for general services and there is one, [`Error::NeedChunk`],
    /// [`Error::Full`].
    pub fn add_qp(&mut self, qp: H::Box<Qp<H>>) -> Result<QpId, Refused<H::Box<Qp<H>>>> {
        let init = &qp.core.init;
        let (context, send_cq, recv_cq) = (init.user.context(), init.send_cq, init.recv_cq);
        let srq = init.srq;
        let has_cq = |cq| cq == NO_CQ || self.cqs.exists(cq);
        let known = context.is_none_or(|context| self.contexts.exists(context))
            && has_cq(send_cq)
            && has_cq(recv_cq)
            && srq.is_none_or(|srq| self.srqs.is_basic(srq));
        if !known {
            return Err(Refused {
                error: Error::NotFound,
                object: qp,
            });
        }
        let id = self.qps.add(qp)?;
        self.cqs.add_user(send_cq);
        self.cqs.add_user(recv_cq);
        if let Some(srq) = srq {
            self.srqs.add_user(srq);
        }
        if let Some(context) = context {
            self.contexts
                .add_user(context, id.number & abi::DB_INDEX_MASK);
        }
        Ok(id)
    }

    /// Removes a queue pair in whatever state it is. Nothing is flushed and no completion of it
    /// will be written any more.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Busy`] while it is attached to a multicast group;
    /// [`Error::InUse`] while a copy job uses it.
    pub fn remove_qp(&mut self, qpn: u32) -> Result<H::Box<Qp<H>>, Error> {
        if self.qps.get(qpn).is_some_and(|qp| qp.core.groups != 0) {
            return Err(Error::Busy);
        }
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.core.uses.claim()?;
        }
        let qp = self.qps.remove(qpn)?;
        let init = &qp.core.init;
        self.counters.unbind(qp.core.counted_at);
        self.cqs.remove_user(init.send_cq);
        self.cqs.remove_user(init.recv_cq);
        if let Some(srq) = init.srq {
            self.srqs.remove_user(srq);
        }
        if let Some(context) = init.user.context() {
            self.contexts.remove_user(context, qp.core.index());
        }
        Ok(qp)
    }

    /// Changes attributes and state of a queue pair.
    ///
    /// The next [`Engine::run`] flushes a queue pair that has entered ERR, and sends for one that
    /// has entered RTS.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Invalid`] if there is no such transition, an attribute is
    /// missing, not allowed, or out of range; [`Error::NotSupported`] if the change asks for path
    /// migration; [`Error::InUse`] while a copy job uses it, unless it is to enter ERR. Nothing has
    /// changed then.
    ///
    /// With a path to a remote peer comes the route to it. The host drops the route that is left in
    /// `route`, after it has given up the shard.
    pub fn modify_qp(
        &mut self,
        host: &mut H,
        qpn: u32,
        modify: &Modify,
        route: &mut Option<H::Route>,
    ) -> Result<(), Error> {
        let mut qp = self.qps.take(qpn).ok_or(Error::NotFound)?;
        // In error it waits by itself, with its flush.
        if modify.state != Some(State::Err) {
            if let Err(error) = qp.core.uses.claim() {
                self.qps.put_back(qp);
                return Err(error);
            }
        }
        let result = modify::modify(&mut self.qps, host, &mut qp, modify);
        if result.is_ok() && modify.path.is_some() {
            core::mem::swap(&mut qp.wire.route, route);
        }
        self.qps.put_back(qp);
        result
    }

    /// Tells how a queue pair stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_qp(&self, qpn: u32) -> Result<QpInfo, Error> {
        Ok(self.qps.get(qpn).ok_or(Error::NotFound)?.query())
    }

    /// Tells how many bytes a datagram may have: the path MTU of a port. 256 until it is told.
    pub fn set_port_mtu(&mut self, vport: Vport, mtu: Mtu) {
        self.port.set_mtu(vport, mtu);
    }

    /// Adds an address handle and returns its number, which is never 0.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_ah(&mut self, ah: H::Box<Ah<H>>) -> Result<u32, Refused<H::Box<Ah<H>>>> {
        self.port.ahs.add(ah)
    }

    /// Removes an address handle. A request that names it from now on ends with an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_ah(&mut self, number: u32) -> Result<H::Box<Ah<H>>, Error> {
        self.port.ahs.remove(number)
    }

    /// Visits queue pairs of the device in steps, beginning with the index `from`: returns the
    /// number of the first that is there, and the index to go on with, or none if all have been
    /// seen.
    pub fn find_qp(&self, from: u32) -> (Option<u32>, Option<u32>) {
        let end = from.saturating_add(STEP).min(self.qps.end());
        let found = (from..end).find_map(|index| self.qps.number_at(index));
        let next = found.map_or(end, |qpn| (qpn & abi::DB_INDEX_MASK).wrapping_add(1));
        (found, (next < self.qps.end()).then_some(next))
    }

    /// Moves every queue pair of a context to error, but those in RESET, which have no work.
    ///
    /// Looks at some queue pairs of the device, beginning with the index `from`, and returns the
    /// index to go on with, or none if all have been seen. [`Engine::run`], until nothing is left,
    /// ends their work with flush errors.
    pub fn fail_context(&mut self, host: &mut H, id: ContextId, from: u32) -> Option<u32> {
        let end = from.saturating_add(STEP);
        for index in from..end {
            if let Some(mut qp) = self.qps.take_index(index) {
                if qp.core.init.user.context() == Some(id) && qp.core.state != State::Reset {
                    enter_error(&mut self.qps, host, &mut qp.core);
                }
                self.qps.put_back(qp);
            }
        }
        (end < self.qps.end()).then_some(end)
    }

    /// Tells a context that its device is gone.
    pub fn set_context_dead(&mut self, id: ContextId) {
        self.contexts.set_dead(id);
    }
}
