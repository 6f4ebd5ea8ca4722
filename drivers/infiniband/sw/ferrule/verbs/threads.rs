// SPDX-License-Identifier: GPL-2.0

//! Threads of a program whose queues have engines of their own.
//!
//! The objects of a program are in one engine, but for completion queues, queue pairs and shared
//! receive queues that were made with the doorbells of a thread. Requests find memory regions in
//! the engine of their queue, so there are replicas of those of its protection domain. All else
//! brings the threads together: one engine has everything then, for as long as the context is
//! there.

use ferrule_engine::ContextId;
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    },
};

use crate::{
    backend::{
        replication::Replication,
        Backend,
        Commands, //
    },
    verbs::doorbells::Doorbells, //
};

/// The most threads of a context that have doorbells of their own.
pub(super) const MAX_THREADS: usize = 63;

const _: () = assert!(MAX_THREADS <= u64::BITS as usize);

/// The threads of a context that have doorbells of their own.
pub(crate) struct Threads<B: Backend> {
    commands: B::Commands,
    /// The context of the engine that the program began with.
    first: ContextId,
    /// Those of each thread, for kicks, which do not wait for a command.
    doorbells: KVec<SetOnce<Arc<Doorbells<B>>>>,
    state: Pin<KBox<Mutex<State<B>>>>,
}

struct State<B: Backend> {
    /// One engine has all objects, and threads that come later are beside the others.
    is_together: bool,
    threads: KVec<Thread<B>>,
}

struct Thread<B: Backend> {
    doorbells: Arc<Doorbells<B>>,
    /// The protection domains of whose regions there are replicas, where they are needed.
    domains: KVec<u32>,
}

impl<B: Backend> State<B> {
    /// One engine has everything from here on.
    fn gather(&mut self, commands: &B::Commands, first: ContextId) {
        if self.is_together {
            return;
        }
        self.is_together = true;
        for thread in &self.threads {
            commands.join_contexts(first, thread.doorbells.id());
        }
    }

    /// The threads that have replicas of regions of a protection domain, a bit for each. Threads
    /// that are together have one engine, so the lowest bit alone is set.
    fn users(&self, pd: u32) -> u64 {
        let threads = self.threads.iter().map(|t| t.domains.contains(&pd));
        let users = threads
            .rev()
            .fold(0, |users, uses| users << 1 | u64::from(uses));
        match self.is_together {
            true => users & users.wrapping_neg(),
            false => users,
        }
    }
}

impl<B: Backend> Threads<B> {
    /// None yet, of a program that has this context of the engine's.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(commands: B::Commands, first: ContextId) -> Result<Arc<Self>> {
        let most = MAX_THREADS.min((nr_cpu_ids() as usize).saturating_sub(1));
        let mut doorbells = KVec::with_capacity(most, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..most {
            doorbells.push(SetOnce::new(), GFP_KERNEL_ACCOUNT)?;
        }
        let state = State {
            is_together: false,
            threads: KVec::new(),
        };
        let threads = Threads {
            commands,
            first,
            doorbells,
            state: KBox::pin_init(new_mutex!(state, "Threads::state"), GFP_KERNEL_ACCOUNT)?,
        };
        Ok(Arc::new(threads, GFP_KERNEL_ACCOUNT)?)
    }

    /// The context of the engine that the program began with.
    pub(super) fn first(&self) -> ContextId {
        self.first
    }

    /// Adds doorbells that are made `beside` a context, or with none apart from all; returns their
    /// index.
    ///
    /// # Errors
    ///
    /// `ENOMEM` without memory, or if each processor may have a thread; those of `make`.
    pub(super) fn add(
        &self,
        make: impl FnOnce(Option<ContextId>) -> Result<Arc<Doorbells<B>>>,
    ) -> Result<(usize, Arc<Doorbells<B>>)> {
        let mut state = self.state.lock();
        let index = state.threads.len();
        let place = self.doorbells.get(index).ok_or(ENOMEM)?;
        state.threads.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let doorbells = make(state.is_together.then_some(self.first))?;
        let thread = Thread {
            doorbells: doorbells.clone(),
            domains: KVec::new(),
        };
        state.threads.push(thread, GFP_KERNEL_ACCOUNT)?;
        place.populate(doorbells.clone());
        Ok((index, doorbells))
    }

    /// The doorbells of an index.
    pub(super) fn doorbells(&self, index: usize) -> Option<&Arc<Doorbells<B>>> {
        self.doorbells.get(index)?.as_ref()
    }

    /// A queue pair or a shared receive queue of this context of the engine's is about to come,
    /// which uses the regions of a protection domain, or without one also other objects of the
    /// program.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add_queue(&self, context: ContextId, pd: Option<u32>) -> Result {
        let mut state = self.state.lock();
        if state.is_together {
            return Ok(());
        }
        let mut threads = state.threads.iter_mut();
        let Some(thread) = threads.find(|thread| thread.doorbells.id() == context) else {
            return Ok(());
        };
        let Some(pd) = pd else {
            state.gather(&self.commands, self.first);
            return Ok(());
        };
        if thread.domains.contains(&pd) {
            return Ok(());
        }
        thread.domains.push(pd, GFP_KERNEL_ACCOUNT)?;
        if self.commands.replicate_domain(pd, context).is_err() {
            state.gather(&self.commands, self.first);
        }
        Ok(())
    }

    /// A protection domain has gone, and its regions before it.
    pub(super) fn forget_domain(&self, pd: u32) {
        let mut state = self.state.lock();
        for thread in &mut state.threads {
            thread.domains.retain(|domain| *domain != pd);
        }
    }

    /// A region of a protection domain has been registered: it is replicated for threads that use
    /// the domain.
    pub(super) fn registered(&self, key: u32, pd: u32) {
        let mut state = self.state.lock();
        if state.is_together {
            return;
        }
        let mut users = state.threads.iter().filter(|t| t.domains.contains(&pd));
        if users.any(|thread| self.commands.replicate(key, thread.doorbells.id()).is_err()) {
            state.gather(&self.commands, self.first);
        }
    }

    /// Removes a region of a protection domain, and its replicas before it: so its number is not
    /// free while there are some.
    ///
    /// Both wait for copy jobs, without the lock.
    pub(super) fn deregister(&self, key: u32, pd: u32) {
        let state = self.state.lock();
        if !state.is_together {
            // From here on no replica of the region is made.
            self.commands.begin_removal(key);
        }
        let users = state.users(pd);
        drop(state);
        self.remove_replicas(users, key);
        self.commands.remove_mr(key);
    }

    /// A region of a protection domain is about to become another one, and has no replicas from
    /// here on.
    pub(super) fn gather_region(&self, key: u32, pd: u32) {
        let mut state = self.state.lock();
        state.gather(&self.commands, self.first);
        let users = state.users(pd);
        drop(state);
        self.remove_replicas(users, key);
    }

    /// Removes the replicas of a region that [these](State::users) threads have.
    fn remove_replicas(&self, users: u64, key: u32) {
        let all = self.doorbells.iter().enumerate();
        let theirs = all.filter(|(index, _)| users >> index & 1 != 0);
        for doorbells in theirs.filter_map(|(_, place)| place.as_ref()) {
            self.commands.remove_replicas(key, doorbells.id());
        }
    }

    /// One engine has all objects of the program from here on.
    pub(super) fn gather(&self) {
        self.state.lock().gather(&self.commands, self.first);
    }
}
