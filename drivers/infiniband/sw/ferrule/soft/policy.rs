// SPDX-License-Identifier: GPL-2.0

//! The callers that run the engine, when they run it, and for how long.
//!
//! Six kinds of callers move the engine, each within a [`Budget`]:
//!
//! | caller                     | context | when                                               |
//! |----------------------------|---------|----------------------------------------------------|
//! | a program that rings       | process | [`kick`]: no worker is awake; its own queues first |
//! | a command (create, modify) | process | [`command`]: its answer comes first, work after it |
//! | a kernel user that posts   | softirq | softirqs may run there ([`softirq`])               |
//! | the timer                  | softirq | a deadline of the engine has come, or a kernel     |
//! |                            |         | user has posted with interrupts off, or on         |
//! |                            |         | PREEMPT_RT                                         |
//! | a packet                   | softirq | the network has delivered it                       |
//! | the worker                 | thread  | work was left, or a stream of it comes             |
//!
//! Work is done where it arises, by the caller who asked for it: on a machine whose processors are
//! all polling, a thread that has to be scheduled first costs milliseconds, while a system call
//! costs less than a microsecond. The [`worker`](super::worker) takes what exceeds a budget.
//!
//! [`softirq`]: super::softirq

use ferrule_engine::{
    host::{
        Host,
        PacketBytes, //
    },
    Budget,
    ContextId,
    CopyJob,
    Engine,
    Job,
    JobPlace,
    Outcome, //
};
use kernel::sync::atomic::Relaxed;
use kernel_ext::{
    task::need_resched,
    time::{
        monotonic_ns,
        monotonic_raw_ns,
        WithTimer, //
    },
};

use super::{
    core::{
        Core,
        State, //
    },
    host::{
        Caller,
        Kernel, //
    },
    shard::Owner,
    timer_share, //
};

/// The budget of a kick: some hundred microseconds of copying. A program that posts more than that
/// finds the rest done by the worker, or does it with its next kick.
const KICK: Budget = Budget {
    requests: 1024,
    bytes: 4 << 20,
};

/// The part of it for other programs, whose calls were missed during this program's work.
const OTHERS: Budget = SLICE;

/// When the timer does what a kick leaves to others in progress, or while it carries out a copy
/// job, in nanoseconds: about the time slice of a thread. Mostly the others do it before, or the
/// kick itself with the job in its hands.
const OTHERS_DELAY: u64 = 4_000_000;

/// The budget of a command for the work of others, after its own.
const COMMAND: Budget = KICK;

/// When the timer does what a caller leaves, in nanoseconds, if nobody else has done it. Threads of
/// real-time priority may keep that caller and the worker from every processor for as long as they
/// like, and it may be this work that they poll for. Most threads that a caller gives way to have
/// ended by then.
pub(super) const LEFT_DELAY: u64 = 100_000;

/// How long the awake worker may be kept from looking at doorbells, in nanoseconds: about the time
/// slice of a thread. Then the timer does, and lets programs kick again: threads of real-time
/// priority may keep the worker from its processor, and a program polls for what it was told to
/// ring without a kick.
pub(super) const HELD_UP_NS: u64 = 4_000_000;

/// The most that an owner does before it leaves the shard, to enter it again if its budget allows.
/// An owner is not preempted, so this is how long others may have to wait, threads with real-time
/// priority among them: some 25 thousand instructions, or 8 thousand and the copying. A caller that
/// waits in [`Shard::enter`](super::shard::Shard::enter) keeps its processor for as many slices as
/// others wait before it. Scanning doorbells and notes counts, each of them as a part of a request,
/// since programs decide how many there are.
pub(super) const SLICE: Budget = Budget {
    requests: 32,
    bytes: 64 << 10,
};

/// Runs the engine as the shard's owner for a slice of a budget, ends the burst, sees to the timer,
/// and leaves.
///
/// Returns what the engine did, whether a call was missed meanwhile, and the copy job that it has
/// led to.
#[inline]
fn turn(
    core: &WithTimer<Core>,
    mut owner: Owner<'_, State>,
    mut host: Kernel,
    budget: Budget,
    first: Option<ContextId>,
) -> (Outcome, bool, JobPlace<Kernel>) {
    let may_wait = host.may_wait();
    host.contended = first.is_some() && core.kicks.has_others();
    let slice = budget.min(SLICE);
    let taken = take_in(core, &mut owner, &mut host, slice);
    let left = slice.less(taken);
    let mut outcome = match first {
        // Missed calls are served, too.
        Some(context) if !owner.has_missed() => owner.engine.run_for(&mut host, left, context),
        _ => owner.engine.run(&mut host, left, first),
    };
    let job = host.take_job();
    sent(core, host);
    // Each turn counts as a request, so that programs which kick without end cannot keep a caller
    // for ever.
    outcome.used = Budget {
        requests: outcome.used.requests + taken.requests + 1,
        bytes: outcome.used.bytes + taken.bytes,
    };
    outcome.more |= has_arrivals(core) || has_notes(&owner);
    let mut wait = None;
    let mut wait_at_most =
        |at_most: u64| wait = Some(wait.map_or(at_most, |wait: u64| wait.min(at_most)));
    // A caller that is told of more work sees to it, and to the timer then: a deadline that is due
    // already would only fire in the middle. One with a copy job in its hands does so later.
    if let (true, Some(deadline)) = (!outcome.more || job.is_some(), outcome.deadline) {
        // The engine counts time by another clock than the timer. They part by some microseconds a
        // second; if the timer fires too soon, the engine asks for the rest of the time again.
        wait_at_most(deadline.saturating_sub(monotonic_raw_ns()));
    }
    // A softirq does not come back for what it leaves at the end of its budget, and another caller
    // may lose the processor before it does.
    let stays_away = !may_wait && budget.less(outcome.used).is_spent();
    if need_resched() || outcome.more && stays_away {
        wait_at_most(LEFT_DELAY);
    }
    // Those to whom a kick leaves work may lose the processor as well; and so may a caller that
    // carries out a job, for which work and calls wait that it does not know of yet.
    if first.is_some() && outcome.more && !outcome.first && core.kicks.has_others() || job.is_some()
    {
        wait_at_most(OTHERS_DELAY);
    }
    if let Some(wait) = wait {
        fire_in(core, wait);
        // `ring` may set the timer to now, and this call may have set it back to later. The timer's
        // own lock orders the two: a queue pair that was added before the timer was last set is
        // seen here. The same holds for packets and frames that are to be taken later.
        if !core.doorbells.is_empty() || has_arrivals(core) {
            outcome.more = true;
            let wait = if stays_away { LEFT_DELAY } else { OTHERS_DELAY };
            fire_in(core, wait);
        }
    }
    core.kicks.note_left(outcome.more);
    (outcome, owner.leave(), job)
}

/// Sets the timer to fire in so many nanoseconds, unless it fires sooner anyway. For the owner of
/// the shard.
///
/// Deadlines mostly move to later times: an acknowledgement has come, or more doorbells. Setting
/// the clock's interrupt anew takes longer than a message does, in a virtual machine several times
/// as long. If the timer fires too soon, the engine asks for the rest of the time.
///
/// The timer function clears `timer_due` before it tries to own the shard. An owner that has read
/// the older value has missed its call, so it comes here again. A timer that rests tries nothing,
/// but sets itself, and wakes the worker.
#[inline]
pub(super) fn fire_in(core: &WithTimer<Core>, wait: u64) {
    let at = monotonic_ns().saturating_add(wait);
    let at = at.max(timer_share::rests_until());
    if at < core.timer_due.load(Relaxed) {
        core.timer_due.store(at, Relaxed);
        core.arm_at(at);
    }
}

/// Whether packets or frames wait at the moment.
#[inline]
pub(super) fn has_arrivals(core: &Core) -> bool {
    !core.inbox.is_empty() || !core.frames.is_empty()
}

/// Whether a set of pending queue pairs or contexts has been taken in part.
fn has_notes(state: &State) -> bool {
    !(state.doorbells.is_done() && state.kicked.is_done())
}

/// Hands the engine the pending queue pairs and contexts, and the packets that wait, within half of
/// a budget, and returns the part that was used. The other half is for the work that they lead to:
/// answers, and requests that may go now.
#[inline]
pub(super) fn take_in(
    core: &WithTimer<Core>,
    state: &mut State,
    host: &mut Kernel,
    budget: Budget,
) -> Budget {
    let State {
        engine,
        doorbells,
        kicked,
    } = state;
    // Each has a part of its own, so that neither of them starves the other, or packets.
    let part = budget.looks().div_ceil(8);
    let (mut for_doorbells, mut for_kicked) = (part, part);
    core.doorbells
        .take(doorbells, &mut for_doorbells, |qpn| engine.ring_qp(qpn));
    core.kicked.take(kicked, &mut for_kicked, |number| {
        engine.kicked(ContextId::from_number(number))
    });
    let mut used = Budget {
        requests: (2 * part - for_doorbells - for_kicked) / Budget::LOOKS,
        bytes: 0,
    };
    if !has_arrivals(core) {
        return used;
    }
    let most = Budget {
        requests: budget.requests.div_ceil(2),
        bytes: budget.bytes.div_ceil(2),
    };
    while !most.less(used).is_spent() {
        let Some(packet) = core.inbox.pop() else {
            break;
        };
        used.requests += 1;
        used.bytes += packet.length() as u64;
        if let Some(rx) = packet.rx_packet() {
            engine.receive(host, &rx);
        }
        // One is always taken, so that there is an end.
        if host.need_resched() {
            return used;
        }
    }
    while !most.less(used).is_spent() {
        let Some(frame) = core.frames.pop() else {
            break;
        };
        let length = frame.frame_length();
        used.requests += 1;
        used.bytes += u64::from(length);
        engine.receive_frame(host, frame.steered_to(), &frame, length);
        if host.need_resched() {
            break;
        }
    }
    used
}

/// Ends the burst of packets that a call into the engine has sent. For the owner of the shard.
///
/// Packets by the loopback device or a veth come back meanwhile, on this processor, and wait in the
/// inbox. If the owner left before, another one could send the next packets of a queue pair on a
/// processor of its own, and these would overtake those that have yet to come back. An unreliable
/// connection would lose messages by that.
#[inline]
pub(super) fn sent(core: &WithTimer<Core>, host: Kernel) {
    let (lost, lists) = host.finish();
    if lost != 0 {
        core.lost.fetch_add(lost.into(), Relaxed);
    }
    if lists != 0 {
        core.lists.fetch_add(lists.into(), Relaxed);
    }
}

/// Carries out a copy job, which the caller has taken along from the shard, and becomes the owner
/// to hand it back. Process context.
///
/// The wait for the shard is some microseconds, unless an owner in softirq context copies.
#[inline(never)]
pub(super) fn carry_out<'a>(
    core: &'a WithTimer<Core>,
    host: &mut Kernel,
    job: Job<Kernel>,
) -> Owner<'a, State> {
    let carried = CopyJob::carry_out(job);
    let mut owner = core.shard.enter();
    if owner.engine.carried(host, carried) {
        core.awaited_ends.fetch_add(1, Relaxed);
        core.copied.wake_up();
    }
    owner
}

/// Becomes the owner to run the engine, and takes the missed calls. A caller that waits in vain for
/// the shard, or may not wait, leaves a note, and the owner does its work.
#[inline]
fn enter(
    core: &WithTimer<Core>,
    caller: Caller,
    context: Option<ContextId>,
) -> Option<Owner<'_, State>> {
    core.shard.try_enter(caller.may_wait(), || {
        if let Some(context) = context {
            core.kicked.add(context.number());
        }
    })
}

/// The result of [`serve`].
pub(super) struct Served {
    /// Work is left that the caller has come for. A kick has come for its program's work alone. The
    /// last kick in progress hears of other work ([`Kicks::end`](super::kicks::Kicks::end)).
    pub(super) more: bool,
    /// The timer is set for that, if the caller was a softirq: the last turn knew that it was the
    /// last, and no call was missed after it.
    pub(super) is_timed: bool,
    /// So many bytes were copied.
    bytes: u64,
}

/// Runs the engine until nothing is left to do or `budget` is spent.
///
/// With a `first`, until nothing is left of its work: a program that asks for little does not do
/// the work of those that ask for much. Calls that were missed meanwhile are served, but within
/// [`OTHERS`].
///
/// If another caller owns the shard, this one waits for its turn for a while, or leaves it the work
/// ([`enter`]). A `job` in the caller's hands is carried out first.
pub(super) fn serve(
    core: &WithTimer<Core>,
    budget: Budget,
    context: Option<ContextId>,
    caller: Caller,
    mut job: JobPlace<Kernel>,
) -> Served {
    let mut served = Served {
        more: false,
        is_timed: true,
        bytes: 0,
    };
    let mut first = context;
    let mut left = budget;
    // A caller that leaves work comes back for it, or wakes the worker; if it cannot enter again,
    // it has set `MISSED`, and the owner does it. So a caller that finds another one's work at its
    // first turn may leave that work to the other one. It may not at later turns: others have
    // relied on this caller.
    let mut came_back = job.is_some();
    loop {
        let mut host = core.host(caller);
        let owner = match job.take() {
            Some(job) => {
                let mut owner = carry_out(core, &mut host, job);
                owner.take_missed();
                owner
            }
            None => match enter(core, caller, context) {
                Some(owner) => owner,
                None => return served,
            },
        };
        let is_anothers = !came_back && owner.engine.has_work();
        came_back = true;
        let (outcome, missed, begun) = turn(core, owner, host, left, first);
        job = begun;
        let used = Budget {
            bytes: outcome.used.bytes + job.as_ref().map_or(0, |job| job.bytes()),
            ..outcome.used
        };
        served.bytes += used.bytes;
        if job.is_none() && !outcome.more && !missed {
            return served;
        }
        // Answers to its packets have come back by now, if the peer is on this machine.
        if first.is_some() && !outcome.first && !has_arrivals(core) {
            if job.is_none() && !missed && (is_anothers || core.kicks.leaves_work()) {
                return served;
            }
            first = None;
            left = left.min(OTHERS);
        }
        // A caller whose call was missed found this one here, which does the other one's work now.
        left = left.less(used);
        // With a job in its hands it comes back. A thread has given way already, when it left the
        // shard.
        if job.is_none() && (left.is_spent() || !caller.may_wait() && caller.gives_way()) {
            // A call that was missed after the turn is no work of the engine yet.
            if missed {
                core.kicks.note_left(true);
            }
            served.is_timed = !missed && left.is_spent();
            served.more = context.is_none() || first.is_some();
            return served;
        }
    }
}

/// Serves a context of the shard that has rung a doorbell while no worker was awake. Process
/// context.
pub(super) fn kick(core: &WithTimer<Core>, first: ContextId) {
    core.kicks.begin();
    let served = serve(core, KICK, Some(first), Caller::Thread, None);
    let nobody_comes = core.kicks.end();
    if nobody_comes || served.more || core.offers.is_due(served.bytes) {
        core.wake_worker();
    }
}

/// Calls `f` as the owner of the shard, then does the work that is left. Process context.
pub(super) fn command<R>(
    core: &WithTimer<Core>,
    f: impl FnOnce(&mut Engine<Kernel>, &mut Kernel) -> R,
) -> R {
    let mut owner = core.shard.enter();
    let mut host = core.host(Caller::Thread);
    let result = f(&mut owner.engine, &mut host);
    end_command(core, owner, host);
    result
}

/// The end of a command: leaves the shard, and does the work that is left. Not inlined, since a job
/// and a host are large for the stacks of commands.
#[inline(never)]
fn end_command(core: &WithTimer<Core>, mut owner: Owner<'_, State>, mut host: Kernel) {
    // While commands wait for their turns, nobody can enter to serve the data path. So each serves
    // it, if a call was missed, before the next has its turn.
    owner.take_missed();
    let (left, job) = if owner.has_missed() || owner.engine.has_work() {
        let (outcome, missed, job) = turn(core, owner, host, SLICE, None);
        (outcome.more || missed, job)
    } else {
        let job = host.take_job();
        sent(core, host);
        (owner.leave(), job)
    };
    if (left || job.is_some()) && serve(core, COMMAND, None, Caller::Thread, job).more {
        core.wake_worker();
    }
}

/// Does queued work of a context of the shard, up to a slice, and takes its doorbells even if it
/// has not kicked: one that ends may find its kicks refused. Process context.
///
/// Returns whether nothing is left of it. Work of others is left to the worker: their programs may
/// post without end. May wait for copy jobs before.
pub(super) fn finish(core: &WithTimer<Core>, context: ContextId) -> bool {
    let mut owner = core.shard.enter();
    owner.take_missed();
    owner.engine.kicked(context);
    let is_copying = owner.engine.claim_context(context).is_err();
    let seen = core.awaited_ends.load(Relaxed);
    // No job begins, as in a softirq: this caller waits for the last one to end.
    let host = core.host(Caller::Softirq);
    let (outcome, missed, _) = turn(core, owner, host, SLICE, Some(context));
    if outcome.more || missed {
        core.wake_worker();
    }
    if outcome.first {
        return false;
    }
    if is_copying {
        // Flushes wait for what others copy.
        core.wait_for_end(seen);
    }
    !is_copying
}

/// Reads the engine's state, for reports. Process context.
pub(super) fn inspect<R>(core: &WithTimer<Core>, f: impl FnOnce(&Engine<Kernel>) -> R) -> R {
    command(core, |engine, _| f(engine))
}
