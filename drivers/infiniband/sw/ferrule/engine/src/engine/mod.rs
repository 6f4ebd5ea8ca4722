// SPDX-License-Identifier: GPL-2.0

//! The engine: its objects, the control path, and the run.

pub(crate) mod chunk;

use crate::{
    base::{
        abi,
        attr::{
            Gid,
            Modify,
            Mtu,
            QpInfo,
            QpType,
            State, //
        },
        budget::Budget,
        counters::{
            Count,
            Counters,
            Objects, //
        },
        error::{
            Error,
            Refused, //
        },
        host::Host,
        id::{
            ContextId,
            QpId, //
        },
    },
    congestion,
    engine::chunk::{
        Chunk,
        Kind, //
    },
    memory::{
        key::{
            Keys,
            Mr,
            MrChange, //
        },
        window::Mw, //
    },
    object::{
        address::Ah,
        context::{
            Context,
            Contexts,
            Look,
            Sleep, //
        },
        cq::{
            Cq,
            CqInfo,
            CqResize,
            Cqs, //
        },
        multicast::{
            Attached,
            Group, //
        },
        port::Port,
        srq::{
            Srq,
            SrqInfo,
            Srqs, //
        },
    },
    operation::{
        completion::{
            flush_receive_queue,
            flush_send_queue, //
        },
        ending::enter_error, //
    },
    queue_pair::{
        bus::{
            Bus,
            Next, //
        },
        qp::Qp,
        schedule::Qps, //
    },
    turn::{
        modify,
        send, //
    },
    wire::{
        self,
        received::Datagram, //
    },
};

/// What an engine is told at its birth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// A random number: memory keys begin with generations that depend on it, and so do the lists by which
    /// multicast groups are found.
    pub random: u32,
    /// A retry count of 7 stands for no limit, as `rdma_rxe` has it. Else it is seven retries, as the
    /// specification has it.
    pub retries_for_ever: bool,
}

/// How many numbers of queue pairs a step of [`Engine::fail_context`] or [`Engine::find_qp`] looks at.
const STEP: u32 = 64;

/// How many looks a context gets, before those after it have their turns.
const CONTEXT_LOOKS: u32 = 64;

/// What a run did and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A queue pair still waits for a turn, a context has doorbells left, or a timer is due.
    pub more: bool,
    /// The queue pair, or the doorbells, are of the context that was to be first.
    pub first: bool,
    /// When the next timer fires, in nanoseconds of [`Host::now`].
    pub deadline: Option<u64>,
    /// What was used of the budget, looks included.
    pub used: Budget,
    /// The requests among that, and the turns and timers that count as such.
    pub done: u32,
}

/// One shard of an RDMA device: all that does the work, and all that it works on.
///
/// Whoever calls a method owns the engine for the time of the call; how callers take turns is the
/// host's affair. No method allocates, sleeps, or calls anything but the [`Host`].
pub struct Engine<H: Host> {
    contexts: Contexts<H>,
    // In memory of their own: an engine is on the stack while it is made.
    keys: H::Box<Keys<H>>,
    cqs: Cqs<H>,
    srqs: Srqs<H>,
    port: H::Box<Port<H>>,
    /// What connections know of the ways to their peers.
    paths: H::Box<[congestion::Path; congestion::PATHS]>,
    qps: Qps<H>,
    counters: Counters,
    retries_for_ever: bool,
}

impl<H: Host> Engine<H> {
    /// Makes an engine without objects, which sleeps. Calls [`Host::boxed`]; `None` if there is no memory.
    pub fn new(config: Config) -> Option<H::Box<Self>> {
        let keys = H::boxed(|| Keys::new(config.random))?;
        let port = H::boxed(|| Port::new(config.random))?;
        let paths = H::boxed_array(|_| congestion::Path::default())?;
        H::boxed(|| Self {
            contexts: Contexts::new(),
            keys,
            cqs: Cqs::new(),
            srqs: Srqs::new(),
            port,
            paths,
            qps: Qps::new(),
            counters: Counters::default(),
            retries_for_ever: config.retries_for_ever,
        })
    }

    /// Hands the engine memory that it asked for with [`Error::NeedChunk`].
    ///
    /// Answers what it did not need after all, for the host to drop without the shard.
    pub fn add_chunk(&mut self, chunk: Chunk<H>) -> Option<Chunk<H>> {
        let left = match chunk.0 {
            Kind::Contexts(chunk) => Kind::Contexts(self.contexts.grow(chunk)?),
            Kind::Keys(chunk) => Kind::Keys(self.keys.grow(chunk)?),
            Kind::Windows(chunk) => Kind::Windows(self.keys.windows.grow(chunk)?),
            Kind::Cqs(chunk) => Kind::Cqs(self.cqs.grow(chunk)?),
            Kind::Qps(chunk) => Kind::Qps(self.qps.grow(chunk)?),
            Kind::Srqs(chunk) => Kind::Srqs(self.srqs.grow(chunk)?),
            Kind::Ahs(chunk) => Kind::Ahs(self.port.ahs.grow(chunk)?),
            Kind::Groups(chunk) => Kind::Groups(self.port.groups.grow(chunk)?),
        };
        Some(Chunk(left))
    }

    /// Adds a user context. Its status area says at once whether the engine sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_context(
        &mut self,
        context: H::Box<Context<H>>,
    ) -> Result<ContextId, Refused<H::Box<Context<H>>>> {
        self.contexts.add(context)
    }

    /// Removes a user context. Its doorbell and status areas are not touched any more.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while queues belong to it, [`Error::NotFound`].
    pub fn remove_context(&mut self, id: ContextId) -> Result<H::Box<Context<H>>, Error> {
        self.contexts.remove(id)
    }

    /// Adds a memory region and answers its key, both local and remote.
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
    /// [`Error::NotFound`].
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
    /// exceed the address space, [`Error::NotFound`]. Nothing has changed then.
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

    /// Adds a memory window and answers its first key, which opens nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_mw(&mut self, mw: H::Box<Mw>) -> Result<u32, Refused<H::Box<Mw>>> {
        self.keys.windows.add(mw)
    }

    /// Removes a memory window, bound or not, by any key that it has had.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_mw(&mut self, key: u32) -> Result<H::Box<Mw>, Error> {
        self.keys.remove_mw(key)
    }

    /// Adds a completion queue and answers its number.
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

    /// Lets a completion queue go on with another ring, and answers the index of the first
    /// completion there. Those before it stand where they stood.
    ///
    /// When this returns, the engine has done with the ring of before; it is left in `resize`, for
    /// the host to drop without the shard.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a depth that is not a power of two, too large, or less than what is
    /// not consumed; [`Error::NotFound`]. Nothing has changed then.
    pub fn resize_cq(&mut self, cqn: u32, resize: &mut CqResize<H>) -> Result<u32, Error> {
        self.cqs.resize(cqn, resize)
    }

    /// Tells how a completion queue stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_cq(&self, cqn: u32) -> Result<CqInfo, Error> {
        self.cqs.query(cqn)
    }

    /// Adds a shared receive queue and answers its number.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_srq(&mut self, srq: H::Box<Srq<H>>) -> Result<u32, Refused<H::Box<Srq<H>>>> {
        self.srqs.add(srq)
    }

    /// Removes a shared receive queue. The requests in it are gone, without completions.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while a queue pair takes from it, [`Error::NotFound`].
    pub fn remove_srq(&mut self, number: u32) -> Result<H::Box<Srq<H>>, Error> {
        self.srqs.remove(number)
    }

    /// Sets the limit of a shared receive queue: as soon as it holds fewer requests, be that now,
    /// an event is raised, once, and the limit is 0 again. 0 raises none.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a limit above what the queue can hold, [`Error::NotFound`].
    pub fn set_srq_limit(&mut self, host: &mut H, number: u32, limit: u32) -> Result<(), Error> {
        self.srqs.set_limit(host, &mut self.counters, number, limit)
    }

    /// Tells how a shared receive queue stands.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn query_srq(&self, number: u32) -> Result<SrqInfo, Error> {
        self.srqs.query(number)
    }

    /// Adds a queue pair, in state RESET, and answers its number and generation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if its context, one of its completion queues or its shared receive queue
    /// does not exist, [`Error::Busy`] if it is to be the port's for general services and there is
    /// one, [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_qp(&mut self, qp: H::Box<Qp<H>>) -> Result<QpId, Refused<H::Box<Qp<H>>>> {
        let init = &qp.core.init;
        let (context, send_cq, recv_cq) = (init.context, init.send_cq, init.recv_cq);
        let srq = init.srq;
        let known = context.is_none_or(|context| self.contexts.exists(context))
            && self.cqs.exists(send_cq)
            && self.cqs.exists(recv_cq)
            && srq.is_none_or(|srq| self.srqs.exists(srq));
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
    /// [`Error::NotFound`]; [`Error::Busy`] while it is attached to a multicast group.
    pub fn remove_qp(&mut self, qpn: u32) -> Result<H::Box<Qp<H>>, Error> {
        if self.qps.get(qpn).is_some_and(|qp| qp.core.groups != 0) {
            return Err(Error::Busy);
        }
        let qp = self.qps.remove(qpn)?;
        let init = &qp.core.init;
        self.cqs.remove_user(init.send_cq);
        self.cqs.remove_user(init.recv_cq);
        if let Some(srq) = init.srq {
            self.srqs.remove_user(srq);
        }
        if let Some(context) = init.context {
            self.contexts.remove_user(context, qp.core.index());
        }
        Ok(qp)
    }

    /// Changes attributes and state of a queue pair.
    ///
    /// The flush of a queue pair that enters ERR, and what it can send when it enters RTS, is left
    /// to the next [`Engine::run`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Invalid`] if there is no such transition, an attribute is
    /// missing, not allowed, or out of range; [`Error::NotSupported`] if the change asks for path
    /// migration, another size or a rate. Nothing has changed then.
    ///
    /// With a path to a peer elsewhere comes the route to it. What is left in `route` is for the host
    /// to drop without the shard.
    pub fn modify_qp(
        &mut self,
        host: &mut H,
        qpn: u32,
        modify: &Modify,
        route: &mut Option<H::Route>,
    ) -> Result<(), Error> {
        let mut qp = self.qps.take(qpn).ok_or(Error::NotFound)?;
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

    /// Tells how many bytes a datagram may have: the path MTU of the port. 256 until it is told.
    pub fn set_port_mtu(&mut self, mtu: Mtu) {
        self.port.mtu = mtu;
    }

    /// Adds an address handle and answers its number, which is never 0.
    ///
    /// # Errors
    ///
    /// [`Error::NeedChunk`], [`Error::Full`].
    pub fn add_ah(&mut self, ah: H::Box<Ah<H>>) -> Result<u32, Refused<H::Box<Ah<H>>>> {
        self.port.ahs.add(ah)
    }

    /// Removes an address handle. What names it from now on ends with an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_ah(&mut self, number: u32) -> Result<H::Box<Ah<H>>, Error> {
        self.port.ahs.remove(number)
    }

    /// Attaches a datagram queue pair to a multicast group: it gets what is sent there, also what
    /// it sends itself. `memory` is for a group that has no members yet; it comes back otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the address is not a group's, the queue pair has another transport
    /// service, or is attached already; [`Error::NotFound`] if there is none;
    /// [`Error::NeedChunk`]; [`Error::Full`] with as many groups, or queue pairs of this one, as
    /// there can be.
    pub fn attach_mcast(
        &mut self,
        qpn: u32,
        gid: &Gid,
        memory: H::Box<Group>,
    ) -> Attached<H::Box<Group>> {
        let error = match self.qps.get(qpn) {
            Some(qp) if qp.core.init.qp_type == QpType::Ud => None,
            Some(_) => Some(Error::Invalid),
            None => Some(Error::NotFound),
        };
        if let Some(error) = error {
            return Err(Refused {
                error,
                object: memory,
            });
        }
        let left = self.port.groups.attach(gid, qpn, memory)?;
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.core.groups = qp.core.groups.wrapping_add(1);
        }
        Ok(left)
    }

    /// Detaches a queue pair from a multicast group, and answers the group's memory if it was the
    /// last.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if it is not attached.
    pub fn detach_mcast(&mut self, qpn: u32, gid: &Gid) -> Result<Option<H::Box<Group>>, Error> {
        let left = self.port.groups.detach(gid, qpn)?;
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.core.groups = qp.core.groups.wrapping_sub(1);
        }
        Ok(left)
    }

    /// Visits queue pairs of the device in steps, beginning with the index `from`: answers the number of the first
    /// that is there, and the index to go on with, or none if all have been seen.
    pub fn find_qp(&self, from: u32) -> (Option<u32>, Option<u32>) {
        let end = from.saturating_add(STEP).min(self.qps.capacity());
        let found = (from..end).find_map(|index| self.qps.number_at(index));
        let next = found.map_or(end, |qpn| (qpn & abi::DB_INDEX_MASK).wrapping_add(1));
        (found, (next < self.qps.capacity()).then_some(next))
    }

    /// Moves every queue pair of a context to error, but those in RESET, which have no work.
    ///
    /// Looks at some queue pairs of the device, beginning with the index `from`, and answers the index to go on with,
    /// or none if all have been seen. [`Engine::run`], until nothing is left, ends their work with flush errors.
    pub fn fail_context(&mut self, host: &mut H, id: ContextId, from: u32) -> Option<u32> {
        let end = from.saturating_add(STEP);
        for index in from..end {
            if let Some(mut qp) = self.qps.take_index(index) {
                if qp.core.init.context == Some(id) && qp.core.state != State::Reset {
                    enter_error(&mut self.qps, host, &mut qp.core);
                }
                self.qps.put_back(qp);
            }
        }
        (end < self.qps.capacity()).then_some(end)
    }

    /// Tells a context that its device is gone.
    pub fn set_context_dead(&mut self, id: ContextId) {
        self.contexts.set_dead(id);
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many objects there are.
    pub fn objects(&self) -> Objects {
        Objects {
            user_contexts: self.contexts.len(),
            regions: self.keys.len(),
            windows: self.keys.windows.len(),
            completion_queues: self.cqs.len(),
            shared_receive_queues: self.srqs.len(),
            queue_pairs: self.qps.len(),
            address_handles: self.port.ahs.len(),
            groups: self.port.groups.len(),
        }
    }

    /// A queue pair of the host's own has new send requests, or receive requests while in error; or there is
    /// room again for packets of a queue pair that was [`Unsent::Full`](crate::Unsent::Full).
    ///
    /// Of its number the index alone counts: a turn too many does no harm, nor does one for nobody.
    pub fn ring_qp(&mut self, qpn: u32) {
        let index = qpn & abi::DB_INDEX_MASK;
        self.qps.unblock_tx(index);
        self.qps.activate(index);
    }

    /// The buffer of a queue pair, for what the host keeps there. Its size stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn queue_mut(&mut self, qpn: u32) -> Result<&mut H::Queue, Error> {
        let qp = self.qps.get_mut(qpn).ok_or(Error::NotFound)?;
        Ok(&mut qp.core.init.queue)
    }

    /// Whether a queue pair waits for a turn, or a context that has doorbells left. Looks at no doorbell and no
    /// clock.
    pub fn has_work(&self) -> bool {
        self.qps.has_active() || self.contexts.has_due()
    }

    /// When the next timer fires, in nanoseconds of [`Host::now`].
    pub fn deadline(&mut self) -> Option<u64> {
        self.qps.deadline()
    }

    /// The engine is awake: a context that kicks is told that it need not, until it rings no more or
    /// the engine sleeps again.
    pub fn wake(&mut self) {
        self.contexts.wake();
    }

    /// Tells some of the contexts that the engine sleeps, as many as `looks` allow, unless there is something to do.
    ///
    /// Asked again and again, it sleeps at last, or is awake, and [`Engine::run`] finds the work. Until then no
    /// context is told any more that it need not kick. A timer may be due meanwhile: see [`Engine::deadline`].
    pub fn try_sleep(&mut self, looks: u32) -> Sleep {
        if self.has_work() {
            self.wake();
            return Sleep::Awake;
        }
        self.contexts.try_sleep(looks)
    }

    /// All queue pairs.
    #[cfg(test)]
    pub(crate) fn qps_mut(&mut self) -> &mut Qps<H> {
        &mut self.qps
    }

    /// All multicast groups.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> &crate::object::multicast::Groups<H> {
        &self.port.groups
    }

    /// All shared receive queues.
    #[cfg(test)]
    pub(crate) fn srqs_mut(&mut self) -> &mut Srqs<H> {
        &mut self.srqs
    }

    /// All completion queues.
    #[cfg(test)]
    pub(crate) fn cqs_mut(&mut self) -> &mut Cqs<H> {
        &mut self.cqs
    }

    /// A context has kicked: the next run looks at it, and it is told if it need not kick again.
    ///
    /// One that is not open does no harm.
    pub fn kicked(&mut self, context: ContextId) {
        self.contexts.kicked(context);
    }

    /// Looks at the contexts that need not kick, and at those that have kicked, one after the other. Answers how many of
    /// the looks are left.
    #[inline]
    fn look_around(&mut self, mut looks: u32) -> u32 {
        // Each once; and as long as one has doorbells left, all of them again.
        let mut left = self.contexts.watched();
        let usual = looks.min(CONTEXT_LOOKS);
        while looks != 0 && left != 0 {
            let Some(context) = self.contexts.take_turn() else {
                break;
            };
            let most = looks.min(CONTEXT_LOOKS);
            let look = self.look_at(context, most);
            looks = looks.wrapping_sub(most.wrapping_sub(look.left));
            left = if look.more {
                // The end of the looks came too soon for this one: the next run goes on with it.
                if most < usual {
                    self.contexts.set_turn(context);
                }
                self.contexts.watched()
            } else {
                left.wrapping_sub(1)
            };
        }
        looks
    }

    /// Takes the doorbells of one context, as far as `looks` go.
    #[inline]
    fn look_at(&mut self, context: ContextId, looks: u32) -> Look {
        let Self {
            contexts,
            qps,
            counters,
            ..
        } = self;
        counters.contexts.count(1);
        let look = contexts.look(context, looks, |doorbell| {
            qps.ring(counters, context, doorbell);
        });
        if look.found {
            counters.context_scans.count(1);
        }
        look
    }

    /// As [`Engine::look_at`], for a context that has kicked and is to be first. Answers how many of the looks are left.
    #[inline]
    fn look_first(&mut self, context: ContextId, looks: u32) -> u32 {
        self.contexts.wake_one(context);
        let look = self.look_at(context, looks);
        self.qps.prefer(context);
        look.left
    }

    /// The queue pairs, and what one of them works with at its turn.
    #[inline]
    fn bus<'a>(
        &'a mut self,
        host: &'a mut H,
        now: u64,
        allowance: Budget,
    ) -> (&'a mut Qps<H>, Bus<'a, H>) {
        let bus = Bus {
            host,
            keys: &mut self.keys,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            port: &mut self.port,
            paths: &mut *self.paths,
            counters: &mut self.counters,
            retries_for_ever: self.retries_for_ever,
            now,
            allowance,
        };
        (&mut self.qps, bus)
    }

    /// Takes a queue pair's turn, and puts it back.
    fn turn(&mut self, host: &mut H, mut qp: H::Box<Qp<H>>, now: u64, allowance: Budget) -> Budget {
        self.counters.turns.count(1);
        let (qps, mut bus) = self.bus(host, now, allowance);
        let next = match qp.core.state {
            State::Rtr | State::Rts | State::Sqd if qp.core.is_acknowledged() => {
                wire::run(qps, &mut bus, &mut qp)
            }
            State::Rts | State::Sqd => send::run(qps, &mut bus, &mut qp),
            State::Err => match flush_send_queue(&mut bus, &mut qp) {
                Next::Again => Next::Again,
                Next::Idle => flush_receive_queue(&mut bus, &mut qp),
            },
            State::Sqe => flush_send_queue(&mut bus, &mut qp),
            State::Reset | State::Init | State::Rtr => Next::Idle,
        };
        let left = bus.allowance;
        if next == Next::Again {
            self.qps.activate(qp.core.index());
        }
        self.qps.put_back(qp);
        self.cqs.raise_events(host, &mut self.counters);
        allowance.less(left)
    }

    /// Lets timers fire that are due, each for a request of the budget.
    fn fire_timers(&mut self, host: &mut H, now: u64, left: &mut Budget) {
        while !left.is_spent() {
            let Some(mut qp) = self.qps.take_due(now) else {
                break;
            };
            left.take_request();
            self.counters.timers.count(1);
            let (qps, mut bus) = self.bus(host, now, Budget::TURN);
            send::timer_fired(qps, &mut bus, &mut qp);
            self.qps.put_back(qp);
        }
        self.cqs.raise_events(host, &mut self.counters);
    }

    /// Takes a packet that has come to port 4791. What it asks for in return is left to the next
    /// [`Engine::run`].
    ///
    /// Whatever is wrong with it, it is dropped and counted.
    pub fn receive(&mut self, host: &mut H, datagram: &Datagram<'_, H>) {
        let now = host.now();
        let (qps, mut bus) = self.bus(host, now, Budget::TURN);
        wire::receive(qps, &mut bus, datagram);
        self.cqs.raise_events(host, &mut self.counters);
    }

    /// Does what there is to do, within a budget.
    ///
    /// Takes the doorbells of `first`, which has kicked, of others that have, and of the contexts that need not; lets
    /// timers fire; then gives queue pairs their turns, by turns of their contexts beginning with
    /// `first`, each for a bounded part of the budget, until none wants one or the budget is spent. A
    /// turn, and a timer, count as a request even if they find nothing to do, since a program can have
    /// as many of them as it likes; and so do some looks for doorbells. Half of the budget may go for these: the rest
    /// of them stay rung, so that who rings without end does not keep others from their turns.
    #[inline]
    pub fn run(&mut self, host: &mut H, budget: Budget, first: Option<ContextId>) -> Outcome {
        self.work(host, budget, first, false)
    }

    /// As [`Engine::run`], but takes the doorbells of one context alone, which has kicked, and ends
    /// when none of its queue pairs wants a turn.
    #[inline]
    pub fn run_for(&mut self, host: &mut H, budget: Budget, context: ContextId) -> Outcome {
        self.work(host, budget, Some(context), true)
    }

    /// Does what there is to do: `only` for `first`, or for all.
    fn work(
        &mut self,
        host: &mut H,
        budget: Budget,
        first: Option<ContextId>,
        only: bool,
    ) -> Outcome {
        let most = budget.looks() / 2;
        let mut looks = most;
        if let Some(context) = first {
            let some = if only { most } else { most.div_ceil(2) };
            looks = looks.wrapping_sub(some.wrapping_sub(self.look_first(context, some)));
        }
        if !only {
            looks = self.look_around(looks);
        }
        let mut left = budget.less_looks(most.wrapping_sub(looks));
        let most = left.requests;
        let mut due = false;
        if self.qps.deadline().is_some() {
            let now = host.now();
            self.fire_timers(host, now, &mut left);
            due = self.qps.deadline().is_some_and(|deadline| deadline <= now);
        }
        let waits = |qps: &Qps<H>| first.is_some_and(|first| qps.has_active_of(first));
        while !left.is_spent() && (!only || waits(&self.qps)) {
            let Some(qp) = self.qps.take_next() else {
                if !self.qps.has_active() {
                    break;
                }
                left.take_request();
                continue;
            };
            let now = host.now();
            let used = self.turn(host, qp, now, left.min(Budget::TURN));
            left = left.less(Budget {
                requests: used.requests.max(1),
                ..used
            });
        }
        Outcome {
            more: due || self.has_work(),
            first: first
                .is_some_and(|first| self.qps.has_active_of(first) || self.contexts.is_due(first)),
            deadline: self.qps.deadline(),
            used: budget.less(left),
            done: most.saturating_sub(left.requests),
        }
    }
}
