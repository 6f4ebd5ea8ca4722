// SPDX-License-Identifier: GPL-2.0

//! The engine of all guests, and its lock.
//!
//! The holder of the lock owns the engine, for a bounded time: a command's step, a slice of work.
//! Nobody waits for a client meanwhile. The lock is handed on in turns (`bump`), so no guest keeps
//! the others from it.

use std::io;
use std::sync::Arc;

use ferrule_engine::{
    Budget, Config, ContextId, Counters, Engine, Error as Refusal, Objects, Refused, Vport, MAX_AH,
    MAX_CQ, MAX_MCAST_GRP, MAX_MCAST_QP_ATTACH, MAX_MR, MAX_MW, MAX_SRQ,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::rand::{getrandom, GetRandomFlags};

use crate::config::VECTORS;
use crate::host::{now, Nic};
use crate::patience::Patience;
use crate::signal::Signal;
use crate::statistics::Statistics;
use crate::wire::Wire;

/// The work that is done in one go while others wait.
pub(crate) const SLICE: Budget = Budget {
    requests: 256,
    bytes: 1 << 20,
};

/// The work that a guest's thread does for a context that has kicked, before it leaves the rest to
/// the engine's thread.
const KICK: Budget = Budget {
    requests: 32,
    bytes: 64 << 10,
};

/// So many slices flush the work of a context that ends. A program that posts faster is not waited
/// for.
const FINISH_ROUNDS: u32 = 4096;

/// The engine, and all that its owner needs.
pub(crate) struct State {
    pub(crate) engine: Box<Engine<Nic>>,
    pub(crate) host: Nic,
    /// The engine's thread sleeps, until this time at most if there is one.
    pub(crate) parked: Option<Option<u64>>,
    /// Whether kicks wake it.
    pub(crate) patience: Patience,
    /// The engine's thread is to look for work.
    pub(crate) wanted: bool,
    /// The engine's thread will look again at events that wait for space.
    pub(crate) retries: bool,
    /// The process ends.
    pub(crate) ends: bool,
}

/// How many objects of each kind a guest may have.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The kinds' names are those of the verbs.
pub struct Quota {
    pub qps: u32,
    pub cqs: u32,
    pub srqs: u32,
    pub pds: u32,
    pub mrs: u32,
    pub mws: u32,
    pub ahs: u32,
    pub contexts: u32,
    pub groups: u32,
    /// Of one group, which may have members of all guests.
    pub members: u32,
}

/// The device that all guests share.
pub struct Device {
    state: Mutex<State>,
    pub(crate) wake: Condvar,
    signals: Vec<Arc<Signal>>,
    statistics: Vec<Arc<Statistics>>,
    quota: Quota,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Device")
    }
}

/// The most guests of a process: each has a virtual port.
pub const MAX_GUESTS: u8 = Vport::LIMIT;

/// Queue pairs without those of the ports.
const MAX_QP: u32 = ferrule_engine::abi::MAX_QP.saturating_sub(1 + MAX_GUESTS as u32);

/// Queue pairs of a group.
const MAX_MEMBERS: u32 = MAX_MCAST_QP_ATTACH as u32;

/// Contexts of a guest: each has doorbells in this process's memory.
const MAX_CONTEXTS: u32 = 1024;

impl Device {
    /// A device with a port for each of so many guests.
    ///
    /// # Errors
    ///
    /// There are too many guests, or no memory or file descriptors.
    pub fn new(guests: usize) -> io::Result<Arc<Self>> {
        Self::with_wire(guests, None)
    }

    /// As [`Device::new`], with a way to others.
    ///
    /// # Errors
    ///
    /// Those of [`Device::new`].
    pub fn with_wire(guests: usize, wire: Option<Arc<Wire>>) -> io::Result<Arc<Self>> {
        let vports = u8::try_from(guests).unwrap_or(u8::MAX);
        if vports == 0 || vports > MAX_GUESTS {
            let told = format!("one to {MAX_GUESTS} guests are served");
            return Err(io::Error::other(told));
        }
        let quota = |limit: u32| limit.checked_div(vports.into()).unwrap_or(limit);
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let config = Config {
            random: u32::from_ne_bytes(random),
            retries_for_ever: false,
            vports,
        };
        let signals = (0..guests).map(|_| Signal::new().map(Arc::new));
        let signals = signals.collect::<io::Result<Vec<_>>>()?;
        let statistics: Vec<_> = (0..guests).map(|_| Arc::default()).collect();
        let engine = Engine::<Nic>::new(config).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Self {
            quota: Quota {
                qps: quota(MAX_QP),
                cqs: quota(MAX_CQ),
                srqs: quota(MAX_SRQ),
                pds: 1 << 16,
                // No key and no handle has the index 0.
                mrs: quota(MAX_MR.saturating_sub(1)),
                mws: quota(MAX_MW),
                ahs: quota(MAX_AH.saturating_sub(1)),
                contexts: quota(ContextId::LIMIT).min(MAX_CONTEXTS),
                groups: quota(MAX_MCAST_GRP),
                members: quota(MAX_MEMBERS).max(1),
            },
            state: Mutex::new(State {
                engine,
                host: Nic::new(&signals, &statistics, VECTORS, wire),
                parked: None,
                patience: Patience::default(),
                wanted: false,
                retries: false,
                ends: false,
            }),
            wake: Condvar::new(),
            signals,
            statistics,
        }))
    }

    /// How many guests there are.
    pub fn guests(&self) -> usize {
        self.signals.len()
    }

    /// How many objects there are of all guests.
    pub fn objects(&self) -> Objects {
        self.lock().engine.objects()
    }

    /// The engine's counters of a guest's port.
    pub(crate) fn counters(&self, port: usize) -> Option<Counters> {
        let vport = Vport::from_number(u8::try_from(port).ok()?)?;
        Some(self.lock().engine.counters_of(vport))
    }

    /// Other counters of a guest.
    pub(crate) fn statistics(&self, port: usize) -> Option<&Arc<Statistics>> {
        self.statistics.get(port)
    }

    /// The limits of a guest.
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// How the thread of a guest is told of vectors.
    pub(crate) fn signal(&self, port: usize) -> Option<&Arc<Signal>> {
        self.signals.get(port)
    }

    /// Becomes the owner of the engine.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Calls `f` as the owner of the engine; its thread does the work that is left.
    pub(crate) fn command<R>(&self, f: impl FnOnce(&mut Engine<Nic>, &mut Nic) -> R) -> R {
        let mut state = self.lock();
        let State { engine, host, .. } = &mut *state;
        let result = f(engine, host);
        self.leave(state, false);
        result
    }

    /// Hands an object to the engine with `add`, and the engine's table the space that it asks for.
    /// `added` is called with what names it, before anybody else owns the engine.
    pub(crate) fn add<T, I>(
        &self,
        mut object: Box<T>,
        add: impl Fn(&mut Engine<Nic>, Box<T>) -> Result<I, Refused<Box<T>>>,
        added: impl Fn(&I),
    ) -> Result<I, Errno> {
        loop {
            let done = self.command(|engine, _| add(engine, object).inspect(&added));
            let refused = match done {
                Ok(id) => return Ok(id),
                Err(refused) => refused,
            };
            let Refusal::NeedChunk(need) = refused.error else {
                return Err(errno(refused.error));
            };
            object = refused.object;
            let chunk = need.allocate::<Nic>().ok_or(Errno::NOMEM)?;
            // Another guest may have been quicker; then the chunk comes back and is dropped here.
            let _unused = self.command(|engine, _| engine.add_chunk(chunk));
        }
    }

    /// Serves a context that has kicked.
    pub(crate) fn kick(&self, context: ContextId) {
        let mut state = self.lock();
        let wakes = state.patience.allows(now());
        let State { engine, host, .. } = &mut *state;
        if wakes {
            // The engine's thread is awake from now on, so the context is told that it need not
            // kick again.
            engine.wake();
        }
        engine.kicked_by_message(context);
        engine.run_for(host, KICK, context);
        self.leave(state, wakes);
    }

    /// Does all work that there is, that of a context without its kick.
    pub(crate) fn finish(&self, context: ContextId) {
        let mut state = self.lock();
        for _ in 0..FINISH_ROUNDS {
            let State { engine, host, .. } = &mut *state;
            engine.kicked(context);
            if !engine.run(host, SLICE, Some(context)).first {
                break;
            }
            MutexGuard::bump(&mut state);
        }
        self.leave(state, false);
    }

    /// Leaves the engine: tells the guests what has happened, and wakes the engine's thread if it
    /// has work.
    fn leave(&self, mut state: MutexGuard<'_, State>, kicked: bool) {
        let waiting = state.host.flush();
        state.host.signal();
        let Some(until) = state.parked else {
            // It looks for work before it sleeps; but not for a program that has just been told
            // that it is awake.
            state.wanted |= kicked;
            return;
        };
        let deadline = state.engine.deadline();
        let sooner = deadline.is_some_and(|deadline| until.is_none_or(|until| deadline < until));
        let work = state.engine.has_work() || state.host.has_packets();
        if kicked || sooner || waiting && !state.retries || work {
            state.wanted |= kicked || state.engine.has_work();
            state.parked = None;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Packets have come for the engine: its thread is to take them.
    pub fn packets_have_come(&self) {
        let mut state = self.lock();
        if state.parked.take().is_some() {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Ends the engine's thread.
    pub(crate) fn end(&self) {
        self.lock().ends = true;
        self.wake.notify_one();
    }
}

/// The error number of a refusal.
pub(crate) fn errno(refusal: Refusal) -> Errno {
    Errno::from_raw_os_error(refusal.errno())
}

/// The device's clock.
pub(crate) fn clock() -> u64 {
    now()
}
