// SPDX-License-Identifier: GPL-2.0

//! The queue pairs that wait for a turn, and those that wait for the clock.

use core::num::NonZero;

use crate::{
    base::{
        abi,
        attr::{
            QpType,
            State, //
        },
        error::{
            Error,
            Refused,
            TableKind, //
        },
        host::Host,
        id::{
            ContextId,
            QpId,
            Vport,
            GSI, //
        },
        list::{
            Link,
            Links,
            List,
            NONE, //
        },
        table::{
            tops,
            Table,
            TableChunk,
            BLOCK, //
        },
        timer::{
            TimerSlot,
            TimerSlots,
            Timers, //
        },
    },
    queue_pair::{
        qp::{
            Qp,
            QpLink, //
        },
        qp_core::QpCore,
    },
};

impl<H: Host> Links for Table<H, Qp<H>, QpLink, { tops(abi::MAX_QP) }> {
    #[inline]
    fn link(&mut self, index: u32) -> Option<&mut Link> {
        Some(&mut self.link_mut(index)?.active)
    }
}

impl<H: Host> TimerSlots for Table<H, Qp<H>, QpLink, { tops(abi::MAX_QP) }> {
    #[inline]
    fn slot(&mut self, index: u32) -> Option<&mut TimerSlot> {
        Some(&mut self.link_mut(index)?.timer)
    }
}

/// Run queues of contexts.
const CONTEXT_RUN_QUEUES: u32 = 32;

/// Run queues that have turns one after the other: those of contexts, and one more.
const RUN_QUEUES: usize = CONTEXT_RUN_QUEUES as usize + 1;

impl Links for [Link; RUN_QUEUES] {
    #[inline]
    fn link(&mut self, index: u32) -> Option<&mut Link> {
        self.get_mut(index as usize)
    }
}

/// The virtual port that has a run queue of contexts, where each has so many: the first one, where
/// two share it.
fn vport_of(run_queue: u32, share: NonZero<u32>) -> u32 {
    run_queue.saturating_sub(1) / share
}

/// All queue pairs, the order of their turns, and their timers.
///
/// A queue pair is taken out of the table for its turn; its links and its timer stay in reach, and
/// so do all others, its peer among them.
pub(crate) struct Qps<H: Host> {
    table: Table<H, Qp<H>, QpLink, { tops(abi::MAX_QP) }>,
    /// Of each run queue, the queue pairs that want a turn.
    active: [List; RUN_QUEUES],
    /// The run queues that have one.
    run_queues: List,
    run_queue_links: [Link; RUN_QUEUES],
    timers: Timers,
    /// How many of them are for datagrams.
    pub(crate) datagrams: u32,
    /// How many virtual ports there are.
    vports: u8,
    /// How many run queues of contexts each of them has, one at least.
    share: NonZero<u32>,
    /// The virtual port whose turn is next, if it wants one.
    next_vport: u32,
    /// The run queue that has the next turn before that, where there are several virtual ports; or
    /// [`NONE`].
    preferred: u32,
}

impl<H: Host> Qps<H> {
    /// Space for queue pairs of so many virtual ports. The index 0 is reserved for SMI, which
    /// nobody has, and the next ones for the queue pairs of each port for general services.
    pub(crate) fn new(vports: u8) -> Self {
        let vports = vports.clamp(1, Vport::LIMIT);
        let reserved = GSI.wrapping_add(u32::from(vports));
        let share = CONTEXT_RUN_QUEUES.checked_div(vports.into()).unwrap_or(0);
        Self {
            table: Table::new(TableKind::Qps, reserved, abi::MAX_QP, 0),
            active: [List::EMPTY; RUN_QUEUES],
            run_queues: List::EMPTY,
            run_queue_links: [Link::default(); RUN_QUEUES],
            timers: Timers::new(),
            datagrams: 0,
            vports,
            share: NonZero::new(share).unwrap_or(NonZero::<u32>::MIN),
            next_vport: 0,
            preferred: NONE,
        }
    }

    pub(crate) fn add(&mut self, qp: H::Box<Qp<H>>) -> Result<QpId, Refused<H::Box<Qp<H>>>> {
        let context = qp.core.init.user.context();
        let vport = qp.core.init.vport;
        let is_ud = qp.core.init.qp_type == QpType::Ud;
        if vport.0 >= self.vports {
            return Err(Refused {
                error: Error::Invalid,
                object: qp,
            });
        }
        let gsi = qp.core.init.gsi.then(|| vport.number(GSI));
        let mut id = QpId::default();
        let name = |qp: &mut Qp<H>, index, generation: u64| {
            let number = index | u32::from(generation as u8).wrapping_shl(16);
            id = QpId {
                number: gsi.unwrap_or(number),
                generation: generation as u32,
            };
            qp.core.id = id;
        };
        if let Some(number) = gsi {
            self.table
                .insert_reserved(number & abi::DB_INDEX_MASK, qp, name)?;
        } else {
            self.table.insert(qp, name)?;
        }
        self.datagrams = self.datagrams.wrapping_add(is_ud.into());
        let run_queue = context.map_or(0, |context| self.run_queue_of(context, || vport));
        if let Some(link) = self.table.link_mut(id.number & abi::DB_INDEX_MASK) {
            link.run_queue = run_queue;
        }
        Ok(id)
    }

    pub(crate) fn remove(&mut self, qpn: u32) -> Result<H::Box<Qp<H>>, Error> {
        let index = self.get(qpn).ok_or(Error::NotFound)?.core.index();
        self.timers.clear(&mut self.table, index);
        let qp = self.table.remove(index).ok_or(Error::NotFound)?;
        let is_ud = qp.core.init.qp_type == QpType::Ud;
        self.datagrams = self.datagrams.wrapping_sub(is_ud.into());
        Ok(qp)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Qp<H>, QpLink>,
    ) -> Option<TableChunk<H, Qp<H>, QpLink>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]). The number
    /// of a queue pair that was destroyed while it waited for a turn stays, with its block, until
    /// that turn comes.
    pub(crate) fn give(
        &mut self,
        all: bool,
        chunk: &mut TableChunk<H, Qp<H>, QpLink>,
    ) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all queue pairs of `other`, and tells of each block. Those that want turns have
    /// them behind its own.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
        let lists = self.active.iter_mut().zip(&mut other.active);
        for (run_queue, (own, others)) in (0..=CONTEXT_RUN_QUEUES).zip(lists) {
            own.append(&mut self.table, core::mem::replace(others, List::EMPTY));
            if !own.is_empty() {
                self.run_queues
                    .push_back(&mut self.run_queue_links, run_queue);
            }
        }
        other.run_queues = List::EMPTY;
        other.run_queue_links = [Link::default(); RUN_QUEUES];
        self.timers.take_over(&mut self.table, &mut other.timers);
        let datagrams = core::mem::take(&mut other.datagrams);
        self.datagrams = self.datagrams.wrapping_add(datagrams);
    }

    /// The queue pair of a number, which has 24 bits.
    #[inline]
    pub(crate) fn get(&self, qpn: u32) -> Option<&Qp<H>> {
        let qp = self.table.get(qpn & abi::DB_INDEX_MASK);
        qp.filter(|qp| qp.core.id.number == qpn)
    }

    /// The queue pair of a number, which has 24 bits.
    #[inline]
    pub(crate) fn get_mut(&mut self, qpn: u32) -> Option<&mut Qp<H>> {
        let qp = self.table.get_mut(qpn & abi::DB_INDEX_MASK);
        qp.filter(|qp| qp.core.id.number == qpn)
    }

    /// The number of the queue pair at an index, if there is one.
    pub(crate) fn number_at(&self, index: u32) -> Option<u32> {
        Some(self.table.get(index)?.core.id.number)
    }

    /// A queue pair wants a turn, after the others of its run queue.
    #[inline]
    pub(crate) fn activate(&mut self, index: u32) {
        let Some(run_queue) = self.table.link_mut(index).map(|link| link.run_queue) else {
            return;
        };
        if let Some(active) = self.active.get_mut(run_queue as usize) {
            active.push_back(&mut self.table, index);
            self.run_queues
                .push_back(&mut self.run_queue_links, run_queue);
        }
    }

    /// There may be space for the packets of a queue pair again.
    pub(crate) fn unblock_tx(&mut self, index: u32) {
        if let Some(qp) = self.table.get_mut(index) {
            qp.wire.unblock_tx();
            qp.sq.unblock_tx();
        }
    }

    /// The part of the queue pair at an index that requester and responder share.
    pub(crate) fn core_mut(&mut self, index: u32) -> Option<&mut QpCore<H>> {
        Some(&mut self.table.get_mut(index)?.core)
    }

    /// Whether the queue pair at an index is of the context.
    pub(crate) fn is_of(&self, index: u32, context: ContextId) -> bool {
        let qp = self.table.get(index);
        qp.is_some_and(|qp| qp.core.init.user.context() == Some(context))
    }

    /// A copy job of a queue pair and its peer has been carried out. One in error may have waited
    /// for that with its flush.
    pub(crate) fn end_copy(&mut self, requester: u32, peer: u32) {
        self.activate(requester);
        if self
            .core_mut(peer)
            .is_some_and(|core| core.state == State::Err)
        {
            self.activate(peer);
        }
    }

    /// Whether a queue pair waits for a turn.
    pub(crate) fn has_active(&self) -> bool {
        !self.run_queues.is_empty()
    }

    /// The run queue of the queue pairs of a context of this virtual port; those of the host's own
    /// have one for themselves.
    ///
    /// Run queues have turns by turns, and so have the queue pairs of a run queue: a program with a
    /// thousand queue pairs gets as much as one with a single one. More contexts than run queues
    /// share some of them.
    ///
    /// Of several virtual ports, each has its part of the run queues, and the ports have turns by
    /// turns: their programs may be those of machines that know nothing of each other. Of more
    /// ports than run queues, two share one.
    ///
    /// Each engine of a device begins with the first number of a block. So the number of the block
    /// counts, too, or all programs would share a run queue where their engines have become one.
    #[inline]
    pub(crate) fn run_queue_of(&self, context: ContextId, vport: impl FnOnce() -> Vport) -> u32 {
        let mixed = context.0 ^ context.0 / BLOCK;
        let place = if self.vports == 1 {
            mixed
        } else {
            let first = u32::from(vport().0).wrapping_mul(self.share.get());
            first.wrapping_add(mixed % self.share)
        };
        place.wrapping_rem(CONTEXT_RUN_QUEUES).wrapping_add(1)
    }

    /// Whether a queue pair of the run queue waits for a turn.
    #[inline]
    pub(crate) fn has_active_in(&self, run_queue: u32) -> bool {
        self.active
            .get(run_queue as usize)
            .is_some_and(|active| !active.is_empty())
    }

    /// Takes the doorbell of a queue pair that has to belong to `context`, and returns whether it
    /// does.
    #[inline]
    pub(crate) fn ring(&mut self, context: ContextId, doorbell: u32) -> bool {
        match self.table.get(doorbell) {
            Some(qp) if qp.core.init.user.context() == Some(context) => {
                self.activate(doorbell);
                true
            }
            _ => false,
        }
    }

    /// Prefetches the next request of the queue pair with this doorbell.
    #[inline]
    pub(crate) fn prefetch(&self, doorbell: u32) {
        if let Some(qp) = self.table.get(doorbell) {
            qp.sq.prefetch(&qp.core);
        }
    }

    /// The next turn is the run queue's, if one of its queue pairs wants it.
    pub(crate) fn prefer(&mut self, run_queue: u32) {
        if self.vports == 1 {
            self.run_queues
                .move_to_front(&mut self.run_queue_links, run_queue);
        } else {
            self.preferred = run_queue;
        }
    }

    /// Brings the run queue to the front whose turn it is, where there are several virtual ports:
    /// the preferred one, or the first one of the port that is next. A preferred one leaves the
    /// order of the ports as it is: a port may ask for that without end.
    fn find_next(&mut self) {
        let preferred = core::mem::replace(&mut self.preferred, NONE);
        let link = self.run_queue_links.link(preferred);
        if link.is_some_and(|link| link.is_listed()) {
            self.run_queues
                .move_to_front(&mut self.run_queue_links, preferred);
            return;
        }
        let (share, next_vport) = (self.share, self.next_vport);
        let mut next = None;
        self.run_queues
            .visit(&mut self.run_queue_links, |run_queue| {
                let vport = vport_of(run_queue, share);
                let turn = (vport < next_vport, vport);
                if next.is_none_or(|(first, _)| turn < first) {
                    next = Some((turn, run_queue));
                }
            });
        if let Some(((_, vport), run_queue)) = next {
            self.run_queues
                .move_to_front(&mut self.run_queue_links, run_queue);
            self.next_vport = vport.wrapping_add(1);
        }
    }

    /// Takes the queue pair whose turn it is out of the table. A queue pair that is destroyed while
    /// it waits keeps its place in the list; then this returns `None`.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<H::Box<Qp<H>>> {
        if self.vports != 1 {
            self.find_next();
        }
        let run_queue = self.run_queues.pop_front(&mut self.run_queue_links)?;
        let active = self.active.get_mut(run_queue as usize)?;
        let index = active.pop_front(&mut self.table);
        if !active.is_empty() {
            self.run_queues
                .push_back(&mut self.run_queue_links, run_queue);
        }
        self.table.take(index?)
    }

    /// All indices are below this.
    pub(crate) fn end(&self) -> u32 {
        self.table.end()
    }

    /// Takes the queue pair of an index out of the table.
    pub(crate) fn take_index(&mut self, index: u32) -> Option<H::Box<Qp<H>>> {
        self.table.take(index)
    }

    /// Takes the queue pair of a number out of the table.
    pub(crate) fn take(&mut self, qpn: u32) -> Option<H::Box<Qp<H>>> {
        let index = self.get(qpn)?.core.index();
        self.table.take(index)
    }

    /// Puts a queue pair back after its turn.
    #[inline]
    pub(crate) fn put_back(&mut self, qp: H::Box<Qp<H>>) {
        self.table.put_back(qp.core.index(), qp);
    }

    /// Sets the timer of a queue pair, in nanoseconds of [`Host::now`].
    pub(crate) fn set_timer(&mut self, index: u32, deadline: u64) {
        self.timers.set(&mut self.table, index, deadline);
    }

    /// Sets the timer of a queue pair, unless it fires before `deadline` anyway.
    pub(crate) fn set_timer_before(&mut self, index: u32, deadline: u64) {
        if self
            .timers
            .deadline(&mut self.table, index)
            .is_none_or(|running| deadline < running)
        {
            self.set_timer(index, deadline);
        }
    }

    /// Stops the timer of a queue pair, if it runs.
    pub(crate) fn clear_timer(&mut self, index: u32) {
        self.timers.clear(&mut self.table, index);
    }

    /// A queue pair has entered ERR: it waits for nothing any more, and wants turns to flush.
    pub(crate) fn stop(&mut self, index: u32) {
        self.clear_timer(index);
        self.activate(index);
    }

    /// When the next timer fires.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.timers.next(&mut self.table)
    }

    /// Takes the queue pair whose timer is due out of the table.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<H::Box<Qp<H>>> {
        loop {
            let index = self.timers.pop_due(&mut self.table, now)?;
            if let Some(qp) = self.table.take(index) {
                break Some(qp);
            }
        }
    }
}
