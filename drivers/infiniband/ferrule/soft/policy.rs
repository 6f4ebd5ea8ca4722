// SPDX-License-Identifier: GPL-2.0

//! Who runs the engine, when, and for how long.
//!
//! Four kinds of callers move the engine, each within a [`Budget`]:
//!
//! | caller                    | context  | when                                              |
//! |---------------------------|----------|---------------------------------------------------|
//! | a program that rings      | process  | [`kick`]: no worker is awake; its own queues first |
//! | a command (create, modify)| process  | [`command`]: its answer comes first, work after it |
//! | the timer                 | softirq  | a deadline of the engine has come                 |
//! | the worker                | thread   | somebody's budget was spent with work left        |
//!
//! Work is done where it arises, by the caller who asked for it: on a machine whose processors are
//! all polling, a thread that has to be scheduled first costs milliseconds, while a system call
//! costs less than a microsecond. The worker takes what exceeds a budget. While it finds work and
//! its processor has nothing else to run, it stays awake: programs see that in their status area
//! and need no system call to post.

use ferrule_engine::{
    Budget,
    Config,
    ContextId,
    Engine,
    Outcome, //
};
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};
use kernel_ext::{
    new_waitqueue,
    random::random_u32,
    sync::WaitQueue,
    task::{
        single_task_running,
        Current,
        Kthread, //
    },
    time::{
        monotonic_ns,
        monotonic_raw_ns,
        TimerCallback,
        WithTimer, //
    },
};

use super::{
    host::Kernel,
    shard::{
        Owner,
        Shard, //
    },
};

/// What a program may do at once with a kick: some hundred microseconds of copying. A program that
/// posts more than that finds the rest done by the worker, or does it with its next kick.
const KICK: Budget = Budget {
    requests: 1024,
    bytes: 4 << 20,
};

/// What a command may do for others after its own work.
const COMMAND: Budget = KICK;

/// What a timer may do in softirq context, where nothing else runs on the processor.
const TIMER: Budget = Budget {
    requests: 64,
    bytes: 256 << 10,
};

/// What the worker does before it looks whether it should stop.
const WORKER: Budget = Budget {
    requests: 4096,
    bytes: 16 << 20,
};

/// How many times the worker's budget the end of a context may take: a million flushes, about a
/// second, and more than honest programs have outstanding.
const FINISH_ROUNDS: u32 = 256;

/// How long the worker stays awake without finding work.
const SPIN_NS: u64 = 50_000;

/// The engine, its shard, and what wakes whom.
#[pin_data]
pub(crate) struct Core {
    #[pin]
    shard: Shard<State>,
    /// Where the worker sleeps.
    #[pin]
    worker: WaitQueue,
    /// Not 0: the worker has something to do.
    wanted: Atomic<u32>,
    /// What the counters of the report tell.
    pub(super) kicks: Atomic<u64>,
    pub(super) worker_wakes: Atomic<u64>,
}

/// What the owner of the shard owns.
pub(super) struct State {
    engine: Engine<Kernel>,
}

impl Core {
    /// An engine without anything, asleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            shard <- Shard::new(State {
                engine: Engine::new(Config { random: random_u32() }),
            }),
            worker <- new_waitqueue!("Core::worker"),
            wanted: Atomic::new(0),
            kicks: Atomic::new(0),
            worker_wakes: Atomic::new(0),
        })
    }

    fn wake_worker(&self) {
        if self.wanted.xchg(1, Full) == 0 {
            self.worker_wakes.fetch_add(1, Relaxed);
            self.worker.wake_up();
        }
    }
}

/// Runs the engine as the shard's owner, sees to the timer, and leaves.
///
/// Answers what the engine did, and whether a message was left meanwhile.
fn turn(
    core: &WithTimer<Core>,
    mut owner: Owner<'_, State>,
    budget: Budget,
    first: Option<ContextId>,
) -> (Outcome, bool) {
    owner.take_messages();
    let outcome = owner.engine.run(&mut Kernel, budget, first);
    if let Some(deadline) = outcome.deadline {
        // The engine counts time by another clock than the timer. They part by some microseconds a
        // second; if the timer is early, the engine asks for the rest of the time again.
        let wait = deadline.saturating_sub(monotonic_raw_ns());
        core.arm_at(monotonic_ns().saturating_add(wait));
    }
    (outcome, owner.leave())
}

/// Runs the engine until nothing is left to do or `budget` is spent, and says whether work is left.
///
/// If another caller owns the shard, that one does the work. Any context.
fn serve(core: &WithTimer<Core>, budget: Budget, first: Option<ContextId>) -> bool {
    let mut left = budget;
    loop {
        let Some(owner) = core.shard.try_enter() else {
            return false;
        };
        let (outcome, message) = turn(core, owner, left, first);
        if outcome.more {
            return true;
        }
        if !message {
            return false;
        }
        // Somebody met us here, and what it came for is ours to do. A look counts as a request, so
        // that programs which kick without end cannot keep us for ever.
        left.requests = left.requests.saturating_sub(outcome.used.requests + 1);
        left.bytes = left.bytes.saturating_sub(outcome.used.bytes);
        if left.requests == 0 || left.bytes == 0 {
            return true;
        }
    }
}

/// Serves a context that has rung while no worker was awake. Process context.
pub(super) fn kick(core: &WithTimer<Core>, first: ContextId) {
    core.kicks.fetch_add(1, Relaxed);
    if serve(core, KICK, Some(first)) {
        core.wake_worker();
    }
}

/// Does `f` as the owner of the shard, then what it left to do. Process context.
pub(super) fn command<R>(
    core: &WithTimer<Core>,
    f: impl FnOnce(&mut Engine<Kernel>, &mut Kernel) -> R,
) -> R {
    let mut owner = core.shard.enter();
    let result = f(&mut owner.engine, &mut Kernel);
    let work = owner.engine.has_work();
    if (owner.leave() || work) && serve(core, COMMAND, None) {
        core.wake_worker();
    }
    result
}

/// Does all queued work, with a pause for others after each budget. Process context.
///
/// A program that posts faster than its work is flushed is not waited for: the worker does the rest.
pub(super) fn finish(core: &WithTimer<Core>) {
    for _ in 0..FINISH_ROUNDS {
        let (outcome, message) = turn(core, core.shard.enter(), WORKER, None);
        if !outcome.more && !message {
            return;
        }
        kernel_ext::task::cond_resched();
    }
    core.wake_worker();
}

impl TimerCallback for Core {
    fn expired(core: &WithTimer<Self>) {
        if serve(core, TIMER, None) {
            core.wake_worker();
        }
    }
}

/// Starts the worker of the device `name`.
pub(super) fn spawn_worker(name: &CStr, core: Arc<WithTimer<Core>>) -> Result<Kthread> {
    Kthread::spawn(name, move |thread: &Current| work(thread, &core))
}

/// What the worker does.
fn work(thread: &Current, core: &WithTimer<Core>) {
    while !thread.should_stop() {
        core.worker
            .wait_idle(|| thread.should_stop() || core.wanted.load(Relaxed) != 0);
        core.wanted.xchg(0, Full);
        while serve(core, WORKER, None) && !thread.should_stop() {
            kernel_ext::task::cond_resched();
        }
        if single_task_running() {
            stay_awake(thread, core);
        }
    }
}

/// Looks for work as long as there is some every now and then and nobody else needs the processor.
fn stay_awake(thread: &Current, core: &WithTimer<Core>) {
    loop {
        core.shard.enter().engine.wake();
        let mut idle_since = monotonic_ns();
        loop {
            // Where another caller is the owner, that one does the work.
            let found = core.shard.try_enter().is_some_and(|mut owner| {
                owner.take_messages();
                owner.engine.run(&mut Kernel, WORKER, None).used.requests != 0
            });
            let now = monotonic_ns();
            if found {
                idle_since = now;
            }
            if now.wrapping_sub(idle_since) > SPIN_NS
                || !single_task_running()
                || thread.should_stop()
            {
                break;
            }
            cpu_relax();
        }
        // From here on programs kick. What was rung before they could see that, the engine finds
        // when it looks once more; then it stays awake, and so does the worker.
        if core.shard.enter().engine.try_sleep() {
            break;
        }
    }
    // Messages were left unread above, and the timer unarmed.
    if serve(core, WORKER, None) {
        core.wake_worker();
    }
}

/// Looks at the engine from outside, for reports. Process context.
pub(super) fn inspect<R>(core: &WithTimer<Core>, f: impl FnOnce(&Engine<Kernel>) -> R) -> R {
    command(core, |engine, _| f(engine))
}
