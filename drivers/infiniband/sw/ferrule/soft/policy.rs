// SPDX-License-Identifier: GPL-2.0

//! Who runs the engine, when, and for how long.
//!
//! Five kinds of callers move the engine, each within a [`Budget`]:
//!
//! | caller                    | context  | when                                              |
//! |---------------------------|----------|---------------------------------------------------|
//! | a program that rings      | process  | [`kick`]: no worker is awake; its own queues first |
//! | a command (create, modify)| process  | [`command`]: its answer comes first, work after it |
//! | the timer                 | softirq  | a deadline of the engine has come, or a kernel     |
//! |                           |          | user has posted ([`ring`])                        |
//! | a packet                  | softirq  | it has come from the wire ([`receive`])           |
//! | the worker                | thread   | work was left, or a stream of it comes            |
//!
//! Work is done where it arises, by the caller who asked for it: on a machine whose processors are
//! all polling, a thread that has to be scheduled first costs milliseconds, while a system call
//! costs less than a microsecond. The worker takes what exceeds a budget.
//!
//! A program that kicks again and again pays a system call a message, though another processor may
//! be idle. So a stream of kicks is offered to the worker ([`Offers`]): if it gets a processor to
//! itself it stays awake, programs see that in their status area, and post without a system call.
//! If it finds itself on a processor that has others to run, or finds no work, it sleeps again, and
//! the next offer comes later. After each small budget the awake worker looks whether it is still
//! alone ([`spin`]), and once it is not, it sleeps as soon as no doorbell is rung ([`stay_awake`]).

use ferrule_engine::{
    host::Packet,
    Budget,
    Config,
    ContextId,
    Engine,
    Outcome,
    Sleep,
    Walk, //
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
        Kthread,
        QuiescentStates, //
    },
    time::{
        monotonic_ns,
        monotonic_raw_ns,
        TimerCallback,
        WithTimer, //
    },
};
use net_ext::skb::OwnedSkBuff;

use super::{
    host::Kernel,
    net::received::{
        Inbox,
        Received, //
    },
    rung::Rung,
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

/// What of it may be done for others, who left word while this program's own work was done.
const OTHERS: Budget = SLICE;

/// What a command may do for others after its own work.
const COMMAND: Budget = KICK;

/// What a timer may do in softirq context, where nothing else runs on the processor: as much as a few slices, since
/// what is left then waits for the worker, and that for its turn. A network device may hand 300 packets to Linux in
/// one softirq.
const TIMER: Budget = Budget {
    requests: 64,
    bytes: 256 << 10,
};

/// What a packet that has come may lead to at once, in softirq context: the device has more of them,
/// and the worker takes what is left.
const RECEIVE: Budget = TIMER;

/// How many times as long as the timer has worked it does not fire again. Programs can have as many
/// timers as queue pairs, each due every ten microseconds; this leaves them a ninth of a processor at
/// most, in which nobody could be scheduled.
const TIMER_PAUSE: u64 = 8;

/// What the worker does before it looks whether it should stop.
const WORKER: Budget = Budget {
    requests: 4096,
    bytes: 16 << 20,
};

/// How many slices the end of a context may take: a million flushes, about a second, and more than
/// honest programs have outstanding.
const FINISH_ROUNDS: u32 = 32768;

/// What an owner does at most before it leaves the shard, to enter it again if its budget allows. An
/// owner is not preempted, so this is how long others may have to wait, threads with real-time
/// priority among them: some 25 thousand instructions, or 8 thousand and the copying. Looks for doorbells and for
/// messages are part of it, each of them a part of a request, since programs decide how many there are.
const SLICE: Budget = Budget {
    requests: 32,
    bytes: 64 << 10,
};

/// How long the worker stays awake without finding work.
const SPIN_NS: u64 = 200_000;

/// The looks without work after which the worker reads the clock.
const SPIN_LOOKS: u32 = 32;

/// So many kicks within [`STREAM_NS`] are a stream: more than 16,000 a second.
///
/// As few as can be told from a burst: the worker sleeps again whenever somebody else has had its
/// processor, and so many system calls it costs a program until the next offer.
const STREAM: u64 = 16;
const STREAM_NS: u64 = 1_000_000;

/// An offer that brings the worker fewer requests has come to nothing.
const WORTH: u64 = 64;

/// How long no offer is made after one that came to nothing: the first time, and at most. A futile
/// offer costs a program about 10 microseconds, so less than a part in a hundred.
const PAUSE_NS: u64 = 4_000_000;
const MAX_PAUSE_NS: u64 = 250_000_000;

/// When the worker is offered a stream of kicks.
struct Offers {
    /// When the kicks that are being counted began.
    began: Atomic<u64>,
    /// No offer before this time.
    not_before: Atomic<u64>,
    /// How long the next failure is followed by none.
    pause: Atomic<u64>,
}

impl Offers {
    fn new() -> Self {
        Self {
            began: Atomic::new(0),
            not_before: Atomic::new(0),
            pause: Atomic::new(PAUSE_NS),
        }
    }

    /// Whether the `kicks`-th kick is one of a stream that should be offered.
    #[inline]
    fn is_due(&self, kicks: u64) -> bool {
        if kicks % STREAM != 0 {
            return false;
        }
        let now = monotonic_ns();
        let began = self.began.xchg(now, Relaxed);
        now.wrapping_sub(began) <= STREAM_NS && now >= self.not_before.load(Relaxed)
    }

    /// Whether none came to nothing just now.
    fn are_welcome(&self) -> bool {
        monotonic_ns() >= self.not_before.load(Relaxed)
    }

    /// The worker went to sleep after it had found so many requests.
    fn ended(&self, found: u64) {
        if found >= WORTH {
            self.pause.store(PAUSE_NS, Relaxed);
        } else {
            let pause = self.pause.load(Relaxed);
            self.not_before.store(monotonic_ns() + pause, Relaxed);
            self.pause.store((pause * 2).min(MAX_PAUSE_NS), Relaxed);
        }
    }
}

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
    offers: Offers,
    /// When the timer may fire again, in nanoseconds of [`monotonic_ns`].
    timer_rests_until: Atomic<u64>,
    /// What the counters of the report tell.
    pub(super) kicks: Atomic<u64>,
    pub(super) worker_wakes: Atomic<u64>,
    pub(super) worker_requests: Atomic<u64>,
    /// Queue pairs of the kernel's own users that have been rung, and those that wait for room no more.
    rung: Rung,
    /// Contexts that kicked while another caller was the owner.
    kicked: Rung,
    /// What has come from the wire and waits for the owner of the shard.
    #[pin]
    inbox: Inbox,
    /// Packets for which the inbox had no room, and such as are none of RoCEv2 at all.
    pub(super) inbox_full: Atomic<u64>,
    pub(super) not_rocev2: Atomic<u64>,
    /// The memory of packets of this device that are on their way to the network.
    pub(super) queued: Atomic<usize>,
    /// Packets that were lost on the way to the network device.
    pub(super) lost: Atomic<u64>,
    /// Lists of packets that went there.
    pub(super) lists: Atomic<u64>,
}

/// What the owner of the shard owns.
pub(super) struct State {
    engine: KBox<Engine<Kernel>>,
    /// What is left to be taken of [`Core::rung`] and of [`Core::kicked`].
    rung: Walk,
    kicked: Walk,
}

impl State {
    /// Whether some who have rung or kicked were found and not told to the engine yet.
    fn has_notes(&self) -> bool {
        !(self.rung.is_over() && self.kicked.is_over())
    }
}

impl Core {
    /// An engine without anything, asleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            shard <- Shard::new(State {
                engine: Engine::<Kernel>::new(Config {
                    random: random_u32(),
                    retries_for_ever: false,
                })
                .ok_or(ENOMEM)?,
                rung: Walk::OVER,
                kicked: Walk::OVER,
            }),
            worker <- new_waitqueue!("Core::worker"),
            wanted: Atomic::new(0),
            offers: Offers::new(),
            timer_rests_until: Atomic::new(0),
            kicks: Atomic::new(0),
            worker_wakes: Atomic::new(0),
            worker_requests: Atomic::new(0),
            rung: Rung::new()?,
            kicked: Rung::new()?,
            inbox <- Inbox::new(),
            inbox_full: Atomic::new(0),
            not_rocev2: Atomic::new(0),
            queued: Atomic::new(0),
            lost: Atomic::new(0),
            lists: Atomic::new(0),
        })
    }

    fn wake_worker(&self) {
        if self.wanted.xchg(1, Full) == 0 {
            self.worker_wakes.fetch_add(1, Relaxed);
            self.worker.wake_up();
        }
    }
}

/// Runs the engine as the shard's owner, sees to the timer, and leaves. Then the caller lets go what was
/// [`sent`].
///
/// Answers what the engine did, and whether a message was left meanwhile.
#[inline]
fn turn(
    core: &WithTimer<Core>,
    mut owner: Owner<'_, State>,
    host: &mut Kernel,
    budget: Budget,
    first: Option<ContextId>,
) -> (Outcome, bool) {
    let taken = take_in(core, &mut owner, host, budget);
    let left = budget.less(taken);
    let mut outcome = match first {
        // Who left a message is served, too.
        Some(context) if !owner.has_messages() => owner.engine.run_for(host, left, context),
        _ => owner.engine.run(host, left, first),
    };
    outcome.used = Budget {
        requests: outcome.used.requests + taken.requests,
        bytes: outcome.used.bytes + taken.bytes,
    };
    outcome.more |= !core.inbox.is_empty() || owner.has_notes();
    // Who is told that there is more sees to it, and to the timer then: what is due already would
    // only fire in the middle.
    if let (false, Some(deadline)) = (outcome.more, outcome.deadline) {
        // The engine counts time by another clock than the timer. They part by some microseconds a
        // second; if the timer is early, the engine asks for the rest of the time again.
        let wait = deadline.saturating_sub(monotonic_raw_ns());
        let at = monotonic_ns().saturating_add(wait);
        core.arm_at(at.max(core.timer_rests_until.load(Relaxed)));
        // Who rings moves the timer to now, and this may just have moved it back. The timer's own
        // lock orders the two: what was rung before its last move is seen here.
        outcome.more |= core.rung.any();
    }
    (outcome, owner.leave())
}

/// Lets the engine know who has rung and who has kicked, and have the packets that wait, within half
/// of a budget, and answers what of it was used. The other half is for what they ask for: answers, and
/// requests that may go now.
#[inline]
fn take_in(core: &WithTimer<Core>, state: &mut State, host: &mut Kernel, budget: Budget) -> Budget {
    let State {
        engine,
        rung,
        kicked,
    } = state;
    // Neither of them keeps the other, or packets, from their part.
    let part = budget.looks().div_ceil(8);
    let (mut for_rung, mut for_kicked) = (part, part);
    core.rung
        .take(rung, &mut for_rung, |qpn| engine.ring_qp(qpn));
    core.kicked.take(kicked, &mut for_kicked, |number| {
        engine.kicked(ContextId::from_number(number))
    });
    let mut used = Budget {
        requests: (2 * part - for_rung - for_kicked) / Budget::LOOKS,
        bytes: 0,
    };
    if core.inbox.is_empty() {
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
        if let Some(datagram) = packet.datagram() {
            engine.receive(host, &datagram);
        }
    }
    used
}

/// Ends the burst of what a call into the engine has sent.
#[inline]
fn sent(core: &WithTimer<Core>, host: Kernel) {
    let (lost, lists) = host.finish();
    if lost != 0 {
        core.lost.fetch_add(lost.into(), Relaxed);
    }
    if lists != 0 {
        core.lists.fetch_add(lists.into(), Relaxed);
    }
}

/// Runs the engine until nothing is left to do or `budget` is spent, and says whether work is left.
///
/// With a `first`, until nothing is left of its work: who asks for little does not do the work of
/// those who ask for much. Others who left word meanwhile are served, but within [`OTHERS`].
///
/// If another caller owns the shard, that one does the work. Any context.
fn serve(core: &WithTimer<Core>, budget: Budget, caller: Option<ContextId>) -> bool {
    let mut first = caller;
    let mut left = budget;
    // Who leaves work comes back for it, or wakes the worker; who fails to come back has left a
    // message with who is there. So whoever finds work at first may leave it to another, and nobody
    // may whose second time it is: the others have relied on that one.
    let mut came_back = false;
    loop {
        let note = || {
            if let Some(context) = caller {
                core.kicked.ring(context.number());
            }
        };
        let Some(owner) = core.shard.try_enter(note) else {
            return false;
        };
        let is_anothers = !came_back && owner.engine.has_work();
        came_back = true;
        let mut host = Kernel::default();
        let (outcome, message) = turn(core, owner, &mut host, left.min(SLICE), first);
        sent(core, host);
        if !outcome.more && !message {
            return false;
        }
        if first.is_some() && !outcome.first {
            if is_anothers && !message {
                return false;
            }
            first = None;
            left = left.min(OTHERS);
        }
        // Who left a message met us here, and what it came for is ours to do. A look counts as a
        // request, so that programs which kick without end cannot keep us for ever.
        left = left.less(Budget {
            requests: outcome.used.requests + 1,
            bytes: outcome.used.bytes,
        });
        if left.is_spent() {
            return true;
        }
    }
}

/// Serves a context that has rung while no worker was awake. Process context.
pub(super) fn kick(core: &WithTimer<Core>, first: ContextId) {
    let kicks = core.kicks.fetch_add(1, Relaxed);
    let left = serve(core, KICK, Some(first));
    if left || core.offers.is_due(kicks) {
        core.wake_worker();
    }
}

/// A queue pair of a kernel user has been rung, or there is room again for packets of one that waits for that.
/// Any context.
///
/// The engine does not run here: the user may hold locks that its handlers of events take, the network those
/// that sending takes, and interrupts may be off. The timer runs it at once, in softirq context.
pub(super) fn ring(core: &WithTimer<Core>, qpn: u32) {
    if core.rung.ring(qpn) {
        core.arm_at(monotonic_ns());
    }
}

/// Does `f` as the owner of the shard, then what it left to do. Process context.
pub(super) fn command<R>(
    core: &WithTimer<Core>,
    f: impl FnOnce(&mut Engine<Kernel>, &mut Kernel) -> R,
) -> R {
    let mut owner = core.shard.enter();
    let mut host = Kernel::default();
    let result = f(&mut owner.engine, &mut host);
    // While commands wait for their turns, nobody can enter to serve the data path. So each serves
    // it, if somebody left word, before the next has its turn.
    owner.take_messages();
    let left = if owner.has_messages() || owner.engine.has_work() {
        let (outcome, message) = turn(core, owner, &mut host, SLICE, None);
        outcome.more || message
    } else {
        owner.leave()
    };
    sent(core, host);
    if left && serve(core, COMMAND, None) {
        core.wake_worker();
    }
    result
}

/// Does all queued work, with a pause for others after each budget, and takes the doorbells of a
/// context even if it has not kicked: one that ends may find its kicks refused. Process context.
///
/// A program that posts faster than its work is flushed is not waited for: the worker does the rest.
pub(super) fn finish(core: &WithTimer<Core>, context: ContextId) {
    let mut quiescent = QuiescentStates::begin();
    for _ in 0..FINISH_ROUNDS {
        let mut owner = core.shard.enter();
        owner.take_messages();
        owner.engine.kicked(context);
        let mut host = Kernel::default();
        let (outcome, message) = turn(core, owner, &mut host, SLICE, None);
        sent(core, host);
        if !outcome.more && !message {
            return;
        }
        quiescent.pass();
    }
    core.wake_worker();
}

/// A packet has come. Softirq context.
///
/// It waits in the inbox until the owner of the shard takes it, who is the caller as a rule.
pub(super) fn receive(core: &WithTimer<Core>, packet: OwnedSkBuff) {
    let Some(packet) = Received::new(packet) else {
        core.not_rocev2.fetch_add(1, Relaxed);
        return;
    };
    if !core.inbox.push(packet) {
        core.inbox_full.fetch_add(1, Relaxed);
    }
    // Entering comes after the packet was added, so whoever owns the shard meanwhile finds it.
    if serve(core, RECEIVE, None) {
        core.wake_worker();
    }
}

impl TimerCallback for Core {
    fn expired(core: &WithTimer<Self>) {
        let begin = monotonic_ns();
        let more = serve(core, TIMER, None);
        let end = monotonic_ns();
        let pause = end.saturating_sub(begin).saturating_mul(TIMER_PAUSE);
        core.timer_rests_until
            .store(end.saturating_add(pause), Relaxed);
        if more {
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
    let mut quiescent = QuiescentStates::begin();
    while !thread.should_stop() {
        core.worker
            .wait_idle(|| thread.should_stop() || core.wanted.load(Relaxed) != 0);
        core.wanted.xchg(0, Full);
        while serve(core, WORKER, None) && !thread.should_stop() {
            quiescent.pass();
        }
        if !core.offers.are_welcome() {
            continue;
        }
        // The scheduler wakes a thread near to who woke it: there, of all places, is a program.
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

/// Serves programs that need not kick, until they pause or somebody else needs the processor.
///
/// Answers how many requests it found.
fn stay_awake(thread: &Current, core: &WithTimer<Core>, quiescent: &mut QuiescentStates) -> u64 {
    let mut found = 0;
    core.shard.enter().engine.wake();
    loop {
        found += spin(thread, core, quiescent);
        // When the thread is told to stop, all contexts have been closed.
        if thread.should_stop() || fall_asleep(core, quiescent) {
            break;
        }
    }
    // Messages were left unread above, the timer unarmed, and doorbells may be rung.
    if serve(core, WORKER, None) {
        core.wake_worker();
    }
    found
}

/// Lets the engine sleep, if there is nothing to do, and answers whether it does.
///
/// From here on programs kick. What was rung before they could see that, the engine finds when it looks once more; then
/// it stays awake, and so does the worker. Where programs ring without a pause it does so beside them: else their kicks
/// would get in each other's way.
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

/// Runs the engine again and again, until it finds nothing for a while or somebody else needs the
/// processor; answers how many requests it found.
fn spin(thread: &Current, core: &WithTimer<Core>, quiescent: &mut QuiescentStates) -> u64 {
    let mut found = 0;
    let mut looks = 0u32;
    let mut idle_since = 0;
    loop {
        // Where another caller is the owner, that one does the work.
        let done = core.shard.try_enter(|| ()).map_or(0, |mut owner| {
            let mut host = Kernel::default();
            let taken = take_in(core, &mut owner, &mut host, SLICE);
            let left = SLICE.less(taken);
            let done = owner.engine.run(&mut host, left, None).done;
            drop(owner);
            sent(core, host);
            taken.requests + done
        });
        found += u64::from(done);
        // The thread sleeps only when there is nothing to do, and programs decide when that is.
        quiescent.pass();
        if !single_task_running() || thread.should_stop() {
            break;
        }
        if done != 0 {
            looks = 0;
            continue;
        }
        if looks == 0 {
            idle_since = monotonic_ns();
        }
        looks += 1;
        if looks % SPIN_LOOKS == 0 && monotonic_ns().wrapping_sub(idle_since) > SPIN_NS {
            break;
        }
        cpu_relax();
    }
    found
}

/// Looks at the engine from outside, for reports. Process context.
pub(super) fn inspect<R>(core: &WithTimer<Core>, f: impl FnOnce(&Engine<Kernel>) -> R) -> R {
    command(core, |engine, _| f(engine))
}
