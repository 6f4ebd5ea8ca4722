// SPDX-License-Identifier: GPL-2.0

//! The shards of a device, and which objects are in which one.
//!
//! A device has several engines, so that users that have nothing to do with each other go on side
//! by side. Objects that use each other are in one shard: all of a program, but for queues of its
//! threads that need nothing but [replicas](super::replicas) of its regions; those of a kernel user
//! that a queue pair names; and users that talk to each other by connections on this device. A user
//! begins with a shard of its own, if there is one. When a queue pair names objects of two shards,
//! or two are connected, the shards become one ([`Shards::join`], in `join.rs`).
//!
//! The shard 0 is for all that may meet anybody: users with datagrams that stay on the device, XRC,
//! frames of the network device or sets of counters. It has the first block of each kind of
//! numbers.

use core::{
    iter,
    ops::Deref, //
};

use ferrule_engine::{
    Block,
    Chunk,
    ContextId,
    Engine,
    Error as Refusal,
    Mtu,
    NeedChunk,
    TableKind,
    Vport, //
};
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
};
use kernel_ext::{
    task::QuiescentStates,
    time::WithTimer, //
};

use super::{
    core::Core,
    host::Kernel,
    owners::{
        Owners,
        MOST, //
    },
    policy, //
};

/// How many slices the end of a context may take: a million flushes, about a second, and more than
/// honest programs have outstanding.
const FINISH_ROUNDS: u32 = 32768;

/// The shards of a device.
#[pin_data]
pub(crate) struct Shards {
    pub(super) owners: Owners,
    pub(super) main: Arc<WithTimer<Core>>,
    /// From 1 on. Each is made when a user begins and all that there are have users.
    others: KVec<SetOnce<Arc<WithTimer<Core>>>>,
    /// The path MTU of the port. A caller that changes it, chooses the shard of a user, or takes a
    /// block that nobody has, holds this.
    #[pin]
    claims: Mutex<Mtu>,
    /// Somebody may send datagrams to a queue pair of the device itself: all that are for datagrams
    /// are in the shard 0, or are about to go there. It stays so.
    #[pin]
    pub(super) datagrams_meet: Mutex<bool>,
}

/// A shard that is to have one more user: counted there as long as this lives.
pub(super) struct Place<'a>(&'a Arc<WithTimer<Core>>);

impl Deref for Place<'_> {
    type Target = Arc<WithTimer<Core>>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.expected.fetch_sub(1, Release);
    }
}

/// Tells the engine of a shard how many bytes a datagram may have. Process context.
fn set_mtu(core: &WithTimer<Core>, mtu: Mtu) {
    policy::command(core, |engine, _| engine.set_port_mtu(Vport::default(), mtu));
}

impl Shards {
    /// The shard 0, and space for others. On a machine with one processor nothing goes on side by
    /// side, so it has no other.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let most = if nr_cpu_ids() == 1 { 0 } else { MOST };
        let mut others = KVec::with_capacity(most, GFP_KERNEL)?;
        for _ in 0..most {
            others.push(SetOnce::new(), GFP_KERNEL)?;
        }
        let owners = Owners::new()?;
        // Its index is not known yet.
        let main = Core::in_arc(0, 0)?;
        Arc::pin_init(
            pin_init!(Shards {
                owners,
                main,
                others,
                claims <- new_mutex!(Mtu::Mtu256, "Shards::claims"),
                datagrams_meet <- new_mutex!(false, "Shards::datagrams_meet"),
            }),
            GFP_KERNEL,
        )
    }

    /// All shards that have been made, but for the shard 0.
    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<WithTimer<Core>>> {
        self.others.iter().filter_map(SetOnce::as_ref)
    }

    /// All that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<WithTimer<Core>>> {
        Iterator::chain(iter::once(&self.main), self.others())
    }

    /// The shard 0.
    pub(super) fn main(&self) -> &Arc<WithTimer<Core>> {
        &self.main
    }

    /// The shard of a block; of one that nobody has, the shard 0. The block may have moved by the
    /// time that the caller uses the answer, unless the caller owns that shard.
    #[inline]
    pub(super) fn of(&self, block: Block) -> &WithTimer<Core> {
        let index = self.owners.of(block).and_then(|index| index.checked_sub(1));
        let other = index.and_then(|index| self.others.get(index)?.as_ref());
        other.unwrap_or(&self.main)
    }

    /// The shard that has a block; with none the shard 0.
    pub(super) fn of_block(&self, block: Option<Block>) -> &WithTimer<Core> {
        block.map_or(&*self.main, |block| self.of(block))
    }

    /// The shard for a new user context: one without users, and if all have some, the one with the
    /// fewest objects that others need. Process context.
    ///
    /// Two contexts that are opened at the same time get different shards: users that have shared a
    /// shard once stay together, and so do those to whom they are connected.
    pub(super) fn for_context(&self) -> Place<'_> {
        self.place(|| self.others().min_by_key(|core| core.all_parents()))
    }

    /// The shard for a new protection domain or completion queue of a user in the kernel: one
    /// without users, and if all have some, one by the number of the calling thread. Process
    /// context.
    ///
    /// A queue pair brings several of these together. If they began in the shards of others by any
    /// other order, all would come together soon. A thread makes those of a queue pair one after
    /// the other.
    pub(super) fn for_kernel_user(&self) -> Place<'_> {
        self.place(|| {
            let thread = current!().pid().unsigned_abs() as usize;
            self.others()
                .nth(thread.checked_rem(self.others().count())?)
        })
    }

    /// Counts a user that is about to begin in a shard without users, which may be a new one; or
    /// else in this one, or with none in the shard 0.
    fn place<'a>(&'a self, shared: impl FnOnce() -> Option<&'a Arc<WithTimer<Core>>>) -> Place<'a> {
        let mut made = None;
        let mut has_memory = true;
        loop {
            let claims = self.claims.lock();
            if let Some(core) = made.take() {
                self.add(core, *claims);
            }
            let idle = self.others().find(|core| core.is_idle());
            let count = self.others().count();
            if idle.is_some() || count == self.others.len() || !has_memory {
                let core = idle.or_else(shared).unwrap_or(&self.main);
                core.expected.fetch_add(1, Relaxed);
                break Place(core);
            }
            // Memory may be long in coming, and `claims` is held under the RTNL, too.
            drop(claims);
            made = Core::in_arc(count + 1, self.main.dev_index()).ok();
            has_memory = made.is_some();
        }
    }

    /// Adds a shard for this path MTU, unless somebody else has added one of its number. The caller
    /// holds `claims`.
    fn add(&self, core: Arc<WithTimer<Core>>, mtu: Mtu) {
        let made = self.others().count();
        if let Some(place) = self.others.get(made).filter(|_| core.index == made + 1) {
            set_mtu(&core, mtu);
            place.populate(core);
        }
    }

    /// Sets the index of the device while it has one shard, since nobody uses it yet.
    pub(super) fn set_dev_index(&self, index: u32) {
        self.main.set_dev_index(index);
    }

    /// Tells how many bytes a datagram may have. Process context.
    pub(super) fn set_port_mtu(&self, mtu: Mtu) {
        let mut claims = self.claims.lock();
        *claims = mtu;
        for core in self.all() {
            set_mtu(core, mtu);
        }
    }

    /// Serves a context that has rung a doorbell while no worker was awake. Process context.
    pub(super) fn kick(&self, context: ContextId) {
        let block = Block::of_context(context);
        loop {
            let core = self.of(block);
            policy::kick(core, context);
            // The context may have gone to another shard before this one was entered, or before the
            // note was left.
            if self.of(block).index == core.index {
                break;
            }
        }
    }

    /// Does all queued work of a context that ends, with a pause for others after each slice.
    /// Process context.
    ///
    /// A program that posts faster than its work is flushed is not waited for: the worker does the
    /// rest.
    pub(super) fn finish(&self, context: ContextId) {
        let block = Block::of_context(context);
        let mut quiescent = QuiescentStates::begin();
        for _ in 0..FINISH_ROUNDS {
            let core = self.of(block);
            if policy::finish(core, context) && self.of(block).index == core.index {
                return;
            }
            quiescent.pass();
        }
        self.of(block).wake_worker();
    }

    /// Calls `f` as the owner of the shard that has a block, then does the work that is left.
    /// Process context.
    pub(super) fn command<R>(
        &self,
        block: Block,
        f: impl FnOnce(&mut Engine<Kernel>, &mut Kernel) -> R,
    ) -> R {
        self.command_for(Some(block), f)
    }

    /// As [`Shards::command`]; with no block in the shard 0.
    pub(super) fn command_for<R>(
        &self,
        block: Option<Block>,
        f: impl FnOnce(&mut Engine<Kernel>, &mut Kernel) -> R,
    ) -> R {
        let mut f = Some(f);
        loop {
            let core = self.of_block(block);
            let result = policy::command(core, |engine, host| {
                // It may have gone to another one before this was entered.
                if self.of_block(block).index != core.index {
                    return None;
                }
                f.take().map(|f| f(engine, host))
            });
            if let Some(result) = result {
                break result;
            }
        }
    }

    /// As [`Shards::command_for`], but if the engine refuses `f` because of copy jobs, waits until
    /// they have ended, and calls it again.
    ///
    /// A job ends once its thread has had a processor for a while: that thread waits for nothing
    /// but the shard, whatever locks it holds.
    #[inline(never)]
    pub(super) fn patient_command<R>(
        &self,
        block: Option<Block>,
        mut f: impl FnMut(&mut Engine<Kernel>, &mut Kernel) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        loop {
            let (result, core, seen) = self.command_for(block, |engine, host| {
                let core = self.of_block(block);
                let seen = core.awaited_ends.load(Relaxed);
                (f(engine, host), core, seen)
            });
            match result {
                // The end comes after the refusal, since both have owned the shard.
                Err(Refusal::InUse) => core.wait_for_end(seen),
                result => break result,
            }
        }
    }

    /// Gives a table of a shard the chunk that it needs. Its numbers are of a block that another
    /// shard has to spare; else of one that nobody has. Returns `false` if no number was left: then
    /// all objects, and all numbers that are free, are in the shard 0 from now on.
    ///
    /// A new block is memory that the device keeps. So a program that begins when another one has
    /// ended is to take over the blocks of that, wherever they are. A shard is not entered in vain
    /// as a rule, since that means to do its work.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn grow(&self, core: &WithTimer<Core>, need: NeedChunk) -> Result<bool> {
        let mut chunk = need.allocate::<Kernel>().ok_or(ENOMEM)?;
        let kind = need.kind();
        let is_found = self.spare(core, kind, &mut chunk, |other| other.may_spare(kind))
            || self.new_block(core, kind, &mut chunk)
            || self.spare(core, kind, &mut chunk, |_| true);
        if !is_found {
            for other in self.others() {
                self.merge(&self.main, other);
            }
            return Ok(false);
        }
        // Somebody else may have been quicker; then the shard has a block to spare.
        let _none = policy::command(core, |engine, _| engine.add_chunk(chunk));
        Ok(true)
    }

    /// Takes a block that nobody has, for a chunk of a shard. Returns whether there is one.
    fn new_block(&self, core: &Core, kind: TableKind, chunk: &mut Chunk<Kernel>) -> bool {
        let _claims = self.claims.lock();
        let block = self.owners.take(kind, core.index);
        if let Some(block) = block {
            chunk.set_block(block.number);
        }
        block.is_some()
    }

    /// Takes a block that one of the shards in question has to spare, for a chunk of another shard.
    /// Returns whether there is one.
    fn spare(
        &self,
        core: &Core,
        kind: TableKind,
        chunk: &mut Chunk<Kernel>,
        in_question: impl Fn(&Core) -> bool,
    ) -> bool {
        let others = self.all().filter(|other| other.index != core.index);
        others.filter(|other| in_question(other)).any(|other| {
            policy::command(other, |engine, _| {
                let block = engine.give_block(chunk);
                other.set_spare(kind, block.is_some());
                if let Some(block) = block {
                    self.owners.set(block, core.index);
                }
                block.is_some()
            })
        })
    }

    /// Counts the objects that others need, in the shard that has a block; without one, in the
    /// first shard. The caller owns it.
    pub(super) fn count_parents(&self, block: Option<Block>, engine: &Engine<Kernel>) {
        self.of_block(block).count_parents(engine);
    }

    /// An object of a block has gone. The caller owns the shard.
    pub(super) fn note_removal(&self, block: Block, engine: &Engine<Kernel>) {
        let core = self.of(block);
        core.set_spare(block.kind, true);
        core.count_parents(engine);
    }
}
