// SPDX-License-Identifier: GPL-2.0

//! The run: doorbells, timers, packets and turns, within a budget.

use core::cell::Cell;

use crate::{
    base::{
        abi,
        attr::State,
        budget::Budget,
        counters::Count,
        host::Host,
        id::{
            ContextId,
            CountedAt,
            Vport, //
        },
    },
    engine::Engine,
    object::{
        doorbell::Found,
        user_contexts::{
            Scanned,
            Sleep, //
        },
    },
    operation::completion::{
        flush_receive_queue,
        flush_send_queue, //
    },
    queue_pair::{
        cx::{
            Cx,
            Next, //
        },
        qp::Qp,
        schedule::Qps, //
    },
    turn::send,
    wire::{
        self,
        rx_packet::RxPacket, //
    },
};

/// How many looks a context gets, before those after it have their turns.
const CONTEXT_LOOKS: u32 = 64;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A queue pair still waits for a turn, a context has doorbells left, or a timer is due.
    pub more: bool,
    /// The queue pair, or the doorbells, or a copy job that the run has led to, are of the context
    /// that was to be first.
    pub first: bool,
    /// When the next timer fires, in nanoseconds of [`Host::now`].
    pub deadline: Option<u64>,
    /// The part of the budget that was used, looks included.
    pub used: Budget,
    /// The requests among that, and the turns and timers that count as such.
    pub done: u32,
}

impl<H: Host> Engine<H> {
    /// A queue pair of the host's own has new send requests, or receive requests while in error; or
    /// there is space again for packets of a queue pair that was
    /// [`Unsent::Full`](crate::Unsent::Full).
    ///
    /// Of its number the index alone counts: a turn too many does no harm, nor does one for nobody.
    pub fn ring_qp(&mut self, qpn: u32) {
        let index = qpn & abi::DB_INDEX_MASK;
        self.qps.unblock_tx(index);
        self.qps.activate(index);
    }

    /// Whether a queue pair waits for a turn, or a context that has doorbells left. Looks at no
    /// doorbell and no clock.
    pub fn has_work(&self) -> bool {
        self.qps.has_active() || self.contexts.has_due()
    }

    /// When the next timer fires, in nanoseconds of [`Host::now`].
    #[inline]
    pub fn deadline(&mut self) -> Option<u64> {
        let objects = match (self.qps.deadline(), self.cqs.deadline()) {
            (Some(qp), Some(cq)) => Some(qp.min(cq)),
            (qp, cq) => qp.or(cq),
        };
        match self.contexts.deadline() {
            None => objects,
            Some(context) => Some(objects.map_or(context, |objects| objects.min(context))),
        }
    }

    /// The engine is awake: a context that kicks is told that it need not, until it rings no more
    /// or the engine sleeps again.
    pub fn wake(&mut self) {
        self.contexts.wake();
    }

    /// Tells some of the contexts that the engine sleeps, as many as `looks` allow, unless there is
    /// something to do.
    ///
    /// The caller asks until the answer is that it sleeps, or that it is awake: then
    /// [`Engine::run`] finds the work. Until then no context is told any more that it need not
    /// kick. A timer may be due meanwhile: see [`Engine::deadline`].
    pub fn try_sleep(&mut self, looks: u32) -> Sleep {
        if self.has_work() {
            self.wake();
            return Sleep::Awake;
        }
        self.contexts.try_sleep(looks)
    }

    /// Tells some of the contexts that the engine sleeps, as many as `looks` allow, though there is
    /// something to do: the next runs do it. Asked again and again, it sleeps.
    pub fn sleep(&mut self, looks: u32) -> Sleep {
        self.contexts.sleep(looks)
    }

    /// A context has kicked: the next run looks at it, and it is told if it need not kick again.
    ///
    /// One that is not open does no harm.
    pub fn kicked(&mut self, context: ContextId) {
        self.contexts.kicked(context);
    }

    /// As [`Engine::kicked`], for a host whose kicks arrive some time after they were given. The
    /// sender of the kick has swapped `sleeping` with 0 first, so that no other kick is sent
    /// meanwhile. If the engine stays asleep, it sets `sleeping` again: the context has to kick
    /// from then on.
    pub fn kicked_by_message(&mut self, context: ContextId) {
        self.contexts.kicked_by_message(context);
    }

    /// Scans the contexts that need not kick, and those that have kicked, one after the other.
    /// Returns how many of the looks are left.
    #[inline]
    fn scan_contexts(&mut self, host: &mut H, mut looks: u32) -> u32 {
        // Each once; and as long as one has doorbells left, all of them again.
        let mut left = self.contexts.watched();
        let usual = looks.min(CONTEXT_LOOKS);
        while looks != 0 && left != 0 {
            let Some(context) = self.contexts.next_to_scan() else {
                break;
            };
            let most = looks.min(CONTEXT_LOOKS);
            let scanned = self.scan_context(host, context, most);
            let used = most.wrapping_sub(scanned.left);
            looks = looks.saturating_sub(used.wrapping_add(Budget::CONTEXT));
            left = if scanned.more {
                // The end of the looks came too soon for this one: the next run goes on with it.
                if most < usual {
                    self.contexts.scan_next(context);
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
    fn scan_context(&mut self, host: &mut H, context: ContextId, looks: u32) -> Scanned {
        let Self {
            contexts,
            qps,
            counters,
            ..
        } = self;
        let common = counters.common();
        common.contexts.count(1);
        let mut stray = 0;
        let scanned = contexts.scan(context, looks, |found| match found {
            Found::Probably(doorbell) => qps.prefetch(doorbell),
            Found::Rung(doorbell) => {
                common.doorbells.count(1);
                stray = u64::wrapping_add(stray, u64::from(!qps.ring(context, doorbell)));
            }
        });
        if scanned.found {
            common.context_scans.count(1);
        }
        if scanned.has_backlog {
            contexts.defer(context, host.now());
        }
        if stray != 0 {
            let counters = counters.of(contexts.vport(context));
            counters.stray_doorbells.count(stray);
        }
        scanned
    }

    /// As [`Engine::scan_context`], for a context that has kicked and is to be first. Returns how
    /// many looks are left.
    #[inline(always)]
    fn scan_first(&mut self, host: &mut H, context: ContextId, looks: u32) -> u32 {
        self.contexts.wake_one(context);
        self.scan_context(host, context, looks).left
    }

    /// The queue pairs, and the context that one of them works in at its turn.
    #[inline]
    pub(super) fn cx<'a>(
        &'a mut self,
        host: &'a mut H,
        counted_at: CountedAt,
        now: Option<u64>,
        allowance: Budget,
    ) -> (&'a mut Qps<H>, Cx<'a, H>) {
        let cx = Cx {
            host,
            keys: &mut self.keys,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            port: &mut self.port,
            paths: &mut *self.paths,
            counters: self.counters.of(counted_at),
            ports: &self.counters,
            retries_for_ever: self.retries_for_ever,
            time: Cell::new(now),
            allowance,
        };
        (&mut self.qps, cx)
    }

    /// Takes a queue pair's turn, and puts it back.
    fn turn(&mut self, host: &mut H, mut qp: H::Box<Qp<H>>, allowance: Budget) -> Budget {
        let (qps, mut cx) = self.cx(host, qp.core.counted_at, None, allowance);
        cx.counters.turns.count(1);
        cx.keys.asker = qp.core.asker();
        let next = match qp.core.state {
            State::Rtr | State::Rts | State::Sqd if qp.core.is_acknowledged() => {
                wire::run(qps, &mut cx, &mut qp)
            }
            State::Rts | State::Sqd => send::run(qps, &mut cx, &mut qp),
            // Memory that a flushed request names is the program's again.
            State::Err if qp.core.uses.is_used() => Next::Idle,
            State::Err => match flush_send_queue(&mut cx, &mut qp) {
                Next::Again => Next::Again,
                Next::Idle => flush_receive_queue(&mut cx, &mut qp),
            },
            State::Sqe => flush_send_queue(&mut cx, &mut qp),
            State::Reset | State::Init | State::Rtr => Next::Idle,
        };
        let left = cx.allowance;
        if next == Next::Again {
            self.qps.activate(qp.core.index());
        }
        self.qps.put_back(qp);
        self.cqs.raise_events(host, self.counters.common());
        allowance.less(left)
    }

    /// Lets timers fire that are due, each for a request of the budget.
    fn fire_timers(&mut self, host: &mut H, now: u64, left: &mut Budget) {
        while !left.is_spent() {
            let Some(mut qp) = self.qps.take_due(now) else {
                break;
            };
            left.take_request();
            let (qps, mut cx) = self.cx(host, qp.core.counted_at, Some(now), Budget::TURN);
            cx.counters.timers.count(1);
            cx.keys.asker = qp.core.asker();
            send::timer_fired(qps, &mut cx, &mut qp);
            self.qps.put_back(qp);
        }
        let counters = self.counters.common();
        while !left.is_spent() && self.cqs.fire_timer(host, counters, now) {
            left.take_request();
            counters.timers.count(1);
        }
        while !left.is_spent() && self.contexts.fire_timer(now) {
            left.take_request();
            counters.timers.count(1);
        }
        self.cqs.raise_events(host, counters);
    }

    /// Takes a packet that has come to port 4791. The next [`Engine::run`] sends the response.
    ///
    /// A packet that is wrong in any way is dropped and counted.
    pub fn receive(&mut self, host: &mut H, rx: &RxPacket<'_, H>) {
        let (qps, mut cx) = self.cx(host, rx.vport.into(), None, Budget::TURN);
        wire::receive(qps, &mut cx, rx);
        self.cqs.raise_events(host, self.counters.common());
    }

    /// Takes an Ethernet frame of `length` bytes that is steered to a queue pair. One that cannot
    /// take it drops it, and that is counted.
    pub fn receive_frame(&mut self, host: &mut H, qpn: u32, frame: &H::Packet, length: u32) {
        let (qps, mut cx) = self.cx(host, Vport::default().into(), None, Budget::TURN);
        wire::frame::receive(qps, &mut cx, qpn, frame, length);
        self.cqs.raise_events(host, self.counters.common());
    }

    /// Does the work that there is, within a budget.
    ///
    /// Takes the doorbells of `first`, which has kicked, of others that have, and of the contexts
    /// that need not; lets timers fire; then gives queue pairs their turns, by turns of their
    /// contexts beginning with `first`, each for a bounded part of the budget, until none wants one
    /// or the budget is spent. A turn counts as two requests, and a timer as one, even if they find
    /// nothing to do, since a program can have as many of them as it likes; and so do some looks
    /// for doorbells. Half of the budget may go for these: the rest of them stay rung, so that a
    /// program that rings without end does not keep others from their turns.
    ///
    /// Ends at once when a turn has left a copy job in the host's place ([`Host::job_place`]). The
    /// caller takes it along, carries it out after it has left the shard, and hands it back to
    /// [`Engine::carried`] as soon as it can.
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

    /// Does the work that there is: `only` for `first`, or for all.
    fn work(
        &mut self,
        host: &mut H,
        budget: Budget,
        first: Option<ContextId>,
        only: bool,
    ) -> Outcome {
        let most = budget.looks() / 2;
        let mut looks = most;
        let run_queue = first.map(|context| {
            self.qps
                .run_queue_of(context, || self.contexts.vport(context))
        });
        if let Some(context) = first {
            let some = if only { most } else { most.div_ceil(2) };
            looks = looks.wrapping_sub(some.wrapping_sub(self.scan_first(host, context, some)));
        }
        if let Some(run_queue) = run_queue {
            self.qps.prefer(run_queue);
        }
        if !only {
            looks = self.scan_contexts(host, looks);
        }
        let mut left = budget.less_looks(most.wrapping_sub(looks));
        let most = left.requests;
        let mut due = false;
        if self.deadline().is_some() {
            let now = host.now();
            self.fire_timers(host, now, &mut left);
            due = self.deadline().is_some_and(|deadline| deadline <= now);
        }
        let waits = |qps: &Qps<H>| run_queue.is_some_and(|first| qps.has_active_in(first));
        let mut begun = None;
        while !left.is_spent() && (!only || waits(&self.qps)) {
            let Some(qp) = self.qps.take_next() else {
                if !self.qps.has_active() {
                    break;
                }
                left.take_request();
                continue;
            };
            let used = self.turn(host, qp, left.min(Budget::TURN));
            left = left.less(Budget {
                requests: used.requests.max(Budget::LEAST),
                ..used
            });
            begun = self.begin_job(host);
            if begun.is_some() {
                break;
            }
        }
        Outcome {
            more: due || self.has_work(),
            first: first.is_some_and(|first| {
                waits(&self.qps)
                    || self.contexts.is_due(first)
                    || begun.is_some_and(|index| self.qps.is_of(index, first))
            }),
            deadline: self.deadline(),
            used: budget.less(left),
            done: most.saturating_sub(left.requests),
        }
    }
}
