// SPDX-License-Identifier: GPL-2.0

//! The callers in softirq context: packets that have come, kernel users that have posted, and the
//! timer.
//!
//! A softirq is not preempted, whatever thread waits for the processor. So these callers do little,
//! and leave the rest to the worker. While a thread is to have the processor they do nothing, and
//! leave it to the timer, whose softirq is another one. The same holds where a softirq has
//! interrupted a thread of real-time priority, for which no other thread is to have it.
//!
//! By the loopback device, answers to packets come back within the same softirq, again and again.
//! So a packet's caller does less there.
//!
//! Packets by other network devices are taken at once. The thread that is to have the processor is
//! mostly the program that receives them, and waiting packets cost a program that polls more than
//! they leave to it.

use ferrule_engine::{
    Block,
    Budget, //
};
use kernel::sync::atomic::Relaxed;
use kernel_ext::{
    task::{
        preemptible_is_interrupted,
        real_time_is_interrupted,
        NoPreempt, //
    },
    time::{
        monotonic_ns,
        TimerCallback,
        WithTimer, //
    }, //
};
use net_ext::skb::OwnedSkBuff;

use super::{
    core::Core,
    host::Caller,
    net::{
        device::Device,
        received::Received, //
    },
    policy::{
        fire_in,
        has_arrivals,
        serve,
        HELD_UP_NS,
        LEFT_DELAY,
        SLICE, //
    },
    shards::Shards,
    timer_share, //
};

/// The budget of the timer, and of a packet that has come: a few slices, since the rest waits for
/// the worker, and the worker for its turn. A network device may hand 300 packets to Linux in one
/// softirq.
const BUDGET: Budget = Budget {
    requests: 64,
    bytes: 256 << 10,
};

/// The budget of a packet by the loopback device: about as much as it leads to.
const LOOPBACK: Budget = Budget {
    requests: 8,
    bytes: 64 << 10,
};

/// How long work waits while a thread is to have the processor, in nanoseconds.
const DELAY: u64 = 20_000;

/// Whether a softirq leaves its work to the timer. If a thread of real-time priority has sent
/// packets itself, they may come back at once.
fn leaves_to_timer() -> bool {
    Caller::Softirq.gives_way() || preemptible_is_interrupted() && real_time_is_interrupted()
}

/// When the timer that fires now is to fire again instead of running the engine, since it has
/// interrupted a thread of real-time priority: [`LEFT_DELAY`] after it found one first. Most such
/// threads have ended by then.
///
/// It may be such a thread's own requests that kernel users have posted with interrupts off, so
/// those do not wait.
fn wait_for_real_time(core: &Core, now: u64) -> Option<u64> {
    let noted = core.timer_waits_until.load(Relaxed);
    // An older value is of an earlier wait, which an owner of the shard ended by setting the timer.
    let until = if now < noted.saturating_add(LEFT_DELAY) {
        noted
    } else {
        now.saturating_add(LEFT_DELAY)
    };
    let waits = real_time_is_interrupted() && core.doorbells.is_empty() && now < until;
    core.timer_waits_until
        .store(if waits { until } else { 0 }, Relaxed);
    waits.then_some(until)
}

/// Until when the timer that fires now rests instead of running the engine, if it does
/// ([`timer_share`]). The worker does its work. If the worker has not run by the time that the
/// timer was given first, the timer runs all the same: resting timers of other shards put the
/// common time off again and again, and threads of real-time priority may have every processor.
///
/// Requests of kernel users and packets do not wait: each of them is paid for by its sender.
fn rest(core: &Core, now: u64) -> Option<u64> {
    let worker_has_come = core.wanted.load(Relaxed) == 0;
    let told = if worker_has_come {
        u64::MAX
    } else {
        core.timer_rests_until.load(Relaxed)
    };
    let until = timer_share::rests_until().min(told);
    let rests = now < until && core.doorbells.is_empty() && !has_arrivals(core);
    core.timer_rests_until
        .store(if rests { until } else { u64::MAX }, Relaxed);
    rests.then_some(until)
}

/// Lets programs kick again, some of them each time, if the awake worker has not looked for
/// [`HELD_UP_NS`]. Returns whether it was the owner of the shard for that: then the caller runs the
/// engine, and so makes up for missed calls.
fn see_to_worker(core: &WithTimer<Core>, now: u64) -> bool {
    let looks = core.worker_looks.load(Relaxed);
    if looks == 0 || now < core.sees_looks_at.load(Relaxed) {
        return false;
    }
    core.sees_looks_at
        .store(now.saturating_add(HELD_UP_NS), Relaxed);
    if core.looks_seen.xchg(looks, Relaxed) != looks {
        return false;
    }
    let owner = core.shard.try_enter(false, || ());
    let is_owner = owner.is_some();
    if let Some(mut owner) = owner {
        let _step = owner.engine.sleep(SLICE.looks());
    }
    is_owner
}

/// Runs the engine, and sees to it that the timer is set for what is left. Returns whether anything
/// is.
fn serve_in_softirq(core: &WithTimer<Core>, budget: Budget, caller: Caller) -> bool {
    let served = serve(core, budget, None, caller, None);
    if served.more && !served.is_timed {
        core.arm_at(monotonic_ns().saturating_add(LEFT_DELAY));
    }
    served.more
}

/// A queue pair of a kernel user has new requests. Any context.
///
/// The engine runs in a softirq: before this returns where softirqs may run. The user disables them
/// before it takes a lock that its handlers of events take. If interrupts are off, or on
/// PREEMPT_RT, the timer runs the engine.
pub(super) fn ring(shards: &Shards, qpn: u32) {
    note(shards, qpn, |core| {
        if !core.call() {
            core.arm_at(monotonic_ns());
        }
    });
}

/// Notes that a queue pair has something to send. If nobody has noted that before, `see_to` sees to
/// it that the engine runs, and does not sleep.
fn note(shards: &Shards, qpn: u32, see_to: impl Fn(&WithTimer<Core>)) {
    let block = Block::of_qp(qpn);
    loop {
        let core = shards.of(block);
        {
            // Others that find the note rely on this caller, so no thread may come between.
            let _here = NoPreempt::new();
            if core.doorbells.add(qpn) {
                see_to(core);
            }
        }
        // The queue pair may have gone to another shard before the note was left.
        if shards.of(block).index == core.index {
            break;
        }
    }
}

impl Device for Shards {
    /// The packet waits in the inbox until the owner of the shard takes it, who is the caller as a
    /// rule.
    ///
    /// If the queue pair goes to another shard at this moment, the packet finds none, as if the
    /// network had lost it.
    fn receive(&self, packet: OwnedSkBuff, is_loopback: bool) {
        let Some(packet) = Received::new(packet) else {
            self.main().not_rocev2.fetch_add(1, Relaxed);
            return;
        };
        let core = self.of(packet.block());
        if !core.inbox.push(packet) {
            core.inbox_full.fetch_add(1, Relaxed);
        }
        // Entering comes after the packet was added, so an owner of the shard meanwhile finds it.
        if !is_loopback {
            if serve_in_softirq(core, BUDGET, Caller::PromptSoftirq) {
                core.wake_worker();
            }
        } else if leaves_to_timer() {
            core.arm_at(monotonic_ns().saturating_add(DELAY));
        } else {
            // The timer comes for the rest. To wake a thread takes longer than a packet.
            let _more = serve_in_softirq(core, LOOPBACK, Caller::Softirq);
        }
    }

    fn receive_frame(&self, frame: OwnedSkBuff, qpn: u32, later: bool) {
        let core = self.main();
        if !core.frames.push(Received::frame(frame, qpn)) {
            core.inbox_full.fetch_add(1, Relaxed);
        }
        if later {
            core.arm_at(monotonic_ns());
        } else if serve_in_softirq(core, BUDGET, Caller::PromptSoftirq) {
            core.wake_worker();
        }
    }

    /// The timer runs the engine: the network tells this in any context, and under locks that
    /// sending takes.
    fn write_space(&self, qpn: u32) {
        note(self, qpn, |core| core.arm_at(monotonic_ns()));
    }
}

impl TimerCallback for Core {
    fn called(core: &WithTimer<Self>) {
        if leaves_to_timer() {
            core.arm_at(monotonic_ns().saturating_add(DELAY));
        } else if serve_in_softirq(core, BUDGET, Caller::Softirq) {
            core.wake_worker();
        }
    }

    fn expired(core: &WithTimer<Self>) {
        core.timer_due.store(u64::MAX, Relaxed);
        if Caller::Softirq.gives_way() {
            return core.arm_at(monotonic_ns().saturating_add(DELAY));
        }
        let begin = monotonic_ns();
        if let Some(at) = wait_for_real_time(core, begin) {
            return core.arm_at(at);
        }
        let runs = see_to_worker(core, begin);
        if core.worker_looks.load(Relaxed) != 0 {
            // An owner of the shard that sets the timer at this moment has it fire later, by this
            // much at most.
            fire_in(core, HELD_UP_NS);
        }
        let more = match rest(core, begin) {
            Some(until) if !runs => {
                core.arm_at(until);
                true
            }
            _ => serve_in_softirq(core, BUDGET, Caller::Softirq),
        };
        if more {
            core.wake_worker();
        }
        timer_share::has_worked(begin, monotonic_ns());
    }
}
