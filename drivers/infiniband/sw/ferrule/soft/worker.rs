// SPDX-License-Identifier: GPL-2.0

//! The worker: a thread that does the work which exceeds the budgets of others.
//!
//! It also serves programs that post without a pause. When a stream of kicks is offered to it
//! ([`Offers`](super::offers::Offers)) and it gets a processor to itself, it stays awake; programs
//! see that in their status area, and post without a system call. If it finds itself on a processor
//! that has others to run, or finds no work, it sleeps again, and the next offer comes later. After
//! each small budget the awake worker checks whether it is still alone ([`spin`]), and once it is
//! not, it sleeps as soon as no doorbell is rung, or after a while in any case ([`stay_awake`]).

use ferrule_engine::{
    Budget,
    Job,
    Sleep, //
};
use kernel::{
    new_mutex,
    prelude::*,
    processor::cpu_relax,
    str::CString,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    task::{
        need_resched,
        single_task_running,
        Current,
        Kthread,
        QuiescentStates, //
    },
    time::{
        monotonic_ns,
        WithTimer, //
    },
};

use super::{
    core::Core,
    host::{
        Caller,
        Kernel, //
    },
    policy::{
        carry_out,
        fire_in,
        sent,
        serve,
        take_in,
        HELD_UP_NS,
        LEFT_DELAY,
        SLICE, //
    },
};

/// The budget of the worker, after which it checks whether it should stop.
const WORKER: Budget = Budget {
    requests: 4096,
    bytes: 16 << 20,
};

/// How long the worker stays awake without finding work.
const SPIN_NS: u64 = 200_000;

/// How long the worker stays awake beside other threads of its processor, if programs ring without
/// a pause. Most threads sleep sooner. Programs that poll do not, and the worker would serve all of
/// them with its part of one processor.
const CROWDED_NS: u64 = 20_000_000;

/// The turns without work after which the worker reads the clock.
const SPIN_TURNS: u32 = 32;

/// The workers of a device: one for each shard, from its first user on.
#[pin_data]
pub(crate) struct Workers {
    name: CString,
    #[pin]
    threads: Mutex<KVec<Option<Kthread>>>,
}

impl Workers {
    /// No worker yet of the device `name`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(name: &CStr) -> Result<Arc<Self>> {
        let name = CString::try_from(name)?;
        Arc::pin_init(
            pin_init!(Workers {
                name,
                threads <- new_mutex!(KVec::new(), "Workers::threads"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts the worker of a shard, unless it runs. It has the name of the device, and, but for
    /// that of the shard 0, the number of the shard behind it. Process context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn start(&self, core: &Arc<WithTimer<Core>>) -> Result {
        let mut threads = self.threads.lock();
        while threads.len() <= core.index {
            threads.push(None, GFP_KERNEL)?;
        }
        let Some(place @ None) = threads.get_mut(core.index) else {
            return Ok(());
        };
        let core = core.clone();
        let name = match core.index {
            0 => CString::try_from_fmt(fmt!("{}", &*self.name))?,
            index => CString::try_from_fmt(fmt!("{}/{}", &*self.name, index))?,
        };
        let body = move |thread: &Current| work(thread, &core);
        *place = Some(Kthread::spawn(&name, body)?);
        Ok(())
    }

    /// Stops all of them, when nothing is left for them to do.
    pub(super) fn stop(&self) {
        let threads = core::mem::replace(&mut *self.threads.lock(), KVec::new());
        drop(threads);
    }
}

/// The worker's thread.
fn work(thread: &Current, core: &WithTimer<Core>) {
    let mut quiescent = QuiescentStates::begin();
    while !thread.should_stop() {
        core.worker
            .wait_idle(|| thread.should_stop() || core.wanted.load(Relaxed) != 0);
        core.wanted.xchg(0, Full);
        while serve(core, WORKER, None, Caller::Thread, None).more && !thread.should_stop() {
            quiescent.pass();
        }
        if !core.offers.are_welcome() {
            continue;
        }
        // The scheduler wakes a thread near to its waker, and that is a program.
        let alone = single_task_running() || (thread.move_away().is_ok() && single_task_running());
        let found = if alone {
            stay_awake(thread, core, &mut quiescent)
        } else {
            0
        };
        core.worker_requests.fetch_add(found, Relaxed);
        core.offers.ended(found);
    }
}

/// Counts a look of the awake worker at the doorbells. If the count stands still, the timer looks
/// at them, and lets programs kick again.
fn count_look(core: &WithTimer<Core>) {
    let looks = core.worker_looks.load(Relaxed).wrapping_add(1);
    core.worker_looks.store(looks.max(1), Relaxed);
}

/// Serves programs that need not kick, until they pause or somebody else needs the processor.
///
/// Returns how many requests it found.
fn stay_awake(thread: &Current, core: &WithTimer<Core>, quiescent: &mut QuiescentStates) -> u64 {
    let mut found = 0;
    let mut alone_at = monotonic_ns();
    let mut owner = core.shard.enter();
    owner.engine.wake();
    count_look(core);
    fire_in(core, HELD_UP_NS);
    drop(owner);
    loop {
        let spun = spin(thread, core, quiescent);
        found += spun.found;
        // When the thread is told to stop, all contexts have been closed.
        if thread.should_stop() || fall_asleep(core, quiescent) {
            break;
        }
        let now = monotonic_ns();
        if spun.was_alone {
            alone_at = now;
        } else if now.wrapping_sub(alone_at) > CROWDED_NS {
            give_way(core, quiescent);
            break;
        }
    }
    core.worker_looks.store(0, Relaxed);
    // The engine runs once more: there may be missed calls, work for which no timer is set, and
    // rung doorbells.
    if serve(core, WORKER, None, Caller::Thread, None).more {
        core.wake_worker();
    }
    found
}

/// Lets the engine sleep, if there is nothing to do, and returns whether it does.
///
/// From here on programs kick. Doorbells that they rang before they could see that, the engine
/// finds by one more scan; then it stays awake, and so does the worker.
fn fall_asleep(core: &WithTimer<Core>, quiescent: &mut QuiescentStates) -> bool {
    loop {
        let step = core.shard.enter().engine.try_sleep(SLICE.looks());
        match step {
            Sleep::Asleep => return true,
            Sleep::Awake => return false,
            Sleep::Step => quiescent.pass(),
        }
    }
}

/// Lets the engine sleep, though doorbells may be rung. The caller serves these next, and programs
/// kick from here on.
#[inline(never)]
fn give_way(core: &WithTimer<Core>, quiescent: &mut QuiescentStates) {
    while core.shard.enter().engine.sleep(SLICE.looks()) != Sleep::Asleep {
        quiescent.pass();
    }
}

/// Carries out a job when nothing else is to be done.
#[inline(never)]
fn end_with(core: &WithTimer<Core>, job: Job<Kernel>) {
    let mut host = core.host(Caller::Thread);
    let _owner = carry_out(core, &mut host, job);
    sent(core, host);
}

/// The result of [`spin`].
struct Spun {
    /// So many requests were found.
    found: u64,
    /// The worker was alone on its processor after one of the runs.
    was_alone: bool,
}

/// Runs the engine again and again, until it finds nothing for a while or somebody else needs the
/// processor.
#[inline(never)]
fn spin(thread: &Current, core: &WithTimer<Core>, quiescent: &mut QuiescentStates) -> Spun {
    let mut spun = Spun {
        found: 0,
        was_alone: false,
    };
    let mut idle = 0u32;
    let mut idle_since = 0;
    let mut job = None;
    loop {
        count_look(core);
        let mut host = core.host(Caller::Thread);
        // If another caller is the owner, that one does the work.
        let entered = match job.take() {
            Some(job) => Some(carry_out(core, &mut host, job)),
            None => core.shard.try_enter(true, || ()),
        };
        let done = entered.map_or(0, |mut owner| {
            let taken = take_in(core, &mut owner, &mut host, SLICE);
            let left = SLICE.less(taken);
            let done = owner.engine.run(&mut host, left, None).done;
            job = host.take_job();
            sent(core, host);
            if need_resched() {
                fire_in(core, LEFT_DELAY);
            }
            drop(owner);
            taken.requests + done
        });
        spun.found += u64::from(done);
        // The thread sleeps only when there is nothing to do, and programs decide when that is.
        quiescent.pass();
        if !single_task_running() || thread.should_stop() {
            break;
        }
        spun.was_alone = true;
        if done != 0 {
            idle = 0;
            continue;
        }
        if idle == 0 {
            idle_since = monotonic_ns();
        }
        idle += 1;
        if idle % SPIN_TURNS == 0 && monotonic_ns().wrapping_sub(idle_since) > SPIN_NS {
            break;
        }
        cpu_relax();
    }
    if let Some(job) = job {
        end_with(core, job);
    }
    spun
}
