// SPDX-License-Identifier: GPL-2.0

//! Users that may meet come together in one shard, and stay there.

use core::cmp::Ordering;

use ferrule_engine::{
    Block,
    ContextId,
    Engine,
    Error as Refusal, //
};
use kernel::sync::atomic::Relaxed;
use kernel_ext::{
    sync::smp_mb,
    time::WithTimer, //
};

use super::{
    core::{
        Core,
        State, //
    },
    policy,
    shard::Shard,
    shards::Shards, //
};

impl Shards {
    /// Sees to it that the objects of two blocks are in one shard. Process context.
    pub(super) fn join(&self, one: Block, other: Block) {
        loop {
            let cores = [self.of(one), self.of(other)];
            if cores[0].index == cores[1].index {
                break;
            }
            self.merge(cores[0], cores[1]);
            if policy::inspect(self.of(one), Engine::has_datagrams) {
                self.place_datagrams(one);
            }
        }
    }

    /// Sees to it that the objects of a block are in the shard 0. Process context.
    pub(super) fn join_main(&self, block: Block) {
        while self.of(block).index != 0 {
            self.merge(&self.main, self.of(block));
        }
    }

    /// Sees to it that a queue pair for datagrams of a block is found by those of the device that
    /// send to it, now or [later](Shards::let_datagrams_meet). Process context.
    pub(super) fn place_datagrams(&self, block: Block) {
        let meet = *self.datagrams_meet.lock();
        if meet {
            self.join_main(block);
        }
    }

    /// Sees to it that all queue pairs for datagrams are in one shard, as long as the device is
    /// there. Process context.
    ///
    /// Whoever makes a queue pair adds it first, and then reads `datagrams_meet`. So either the
    /// queue pair is seen here, or the flag there. The same holds where it comes to another shard
    /// meanwhile.
    pub(super) fn let_datagrams_meet(&self) {
        let mut meet = self.datagrams_meet.lock();
        if *meet {
            return;
        }
        for other in self.others() {
            if policy::inspect(other, Engine::has_datagrams) {
                self.merge(&self.main, other);
            }
        }
        *meet = true;
    }

    /// Lets the engine of a shard take over the objects of another one: that with the smaller
    /// number. Does nothing if both are the same. Process context.
    ///
    /// A caller owns both for that, and has to wait for each. The smaller number comes first, so no
    /// two wait for each other.
    #[inline(never)]
    pub(super) fn merge(&self, one: &WithTimer<Core>, other: &WithTimer<Core>) {
        let (into, from) = match one.index.cmp(&other.index) {
            Ordering::Less => (one, other),
            Ordering::Equal => return,
            Ordering::Greater => (other, one),
        };
        loop {
            let (mut owner, mut other) = Shard::enter_both(&into.shard, &from.shard);
            let result = self.take_over(into, &mut owner, from, &mut other);
            let busy = if other.engine.is_copying() {
                from
            } else {
                into
            };
            let seen = busy.awaited_ends.load(Relaxed);
            // In case that threads of real-time priority keep the workers from every processor:
            // deadlines have moved, or a timer has fired in vain meanwhile.
            policy::fire_in(into, policy::LEFT_DELAY);
            policy::fire_in(from, policy::LEFT_DELAY);
            drop((owner, other));
            // Each sees to calls that were missed. That of `into` goes on with the work, and sets
            // the timer.
            into.wake_worker();
            from.wake_worker();
            match result {
                Err(Refusal::InUse) => busy.wait_for_end(seen),
                _ => break,
            }
        }
        self.unite_replicas(into);
    }

    /// Moves all objects, and the notes about them. The caller owns both shards.
    fn take_over(
        &self,
        into: &Core,
        state: &mut State,
        from: &Core,
        other: &mut State,
    ) -> Result<(), Refusal> {
        let engine = &mut state.engine;
        engine.merge(&mut other.engine, |block| {
            self.owners.set(block, into.index)
        })?;
        // Whoever adds a note looks afterwards whether the block has moved. So either the note is
        // seen here, or the move there.
        smp_mb();
        let mut looks = u32::MAX;
        while !(from.kicked.is_empty() && other.kicked.is_done()) {
            from.kicked.take(&mut other.kicked, &mut looks, |number| {
                engine.kicked(ContextId::from_number(number))
            });
        }
        while !(from.doorbells.is_empty() && other.doorbells.is_done()) {
            from.doorbells
                .take(&mut other.doorbells, &mut looks, |qpn| engine.ring_qp(qpn));
        }
        while let Some(packet) = from.inbox.pop() {
            if !into.inbox.push(packet) {
                into.inbox_full.fetch_add(1, Relaxed);
            }
        }
        into.set_all_spare();
        into.count_parents(engine);
        from.count_parents(&other.engine);
        Ok(())
    }
}
