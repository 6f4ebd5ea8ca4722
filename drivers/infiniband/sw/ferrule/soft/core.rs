// SPDX-License-Identifier: GPL-2.0

//! An engine of a device in its shard, and the notes of other callers for the owner of the shard
//! and for the worker.

use ferrule_engine::{
    BitmapScan,
    Config,
    Engine,
    TableKind, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
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
    time::WithTimer, //
};

use super::{
    host::{
        Caller,
        Kernel, //
    },
    kicks::Kicks,
    net::received::Inbox,
    offers::Offers,
    pending::PendingSet,
    shard::Shard, //
};

/// An engine of a device, and the state that callers share without owning its shard.
#[pin_data]
pub(crate) struct Core {
    /// The number of the shard.
    pub(super) index: usize,
    /// The index of the device among RDMA devices, for tracepoints.
    dev_index: Atomic<u32>,
    /// How many user contexts, protection domains and completion queues are in it. All other
    /// objects need one of these.
    parents: Atomic<u32>,
    /// How many are about to be added.
    pub(super) expected: Atomic<u32>,
    /// Of which kinds of numbers the engine may have a block to spare: a bit for each. Only the
    /// owner of the shard writes it.
    spare: Atomic<u32>,
    #[pin]
    pub(super) shard: Shard<State>,
    /// The worker sleeps here.
    #[pin]
    pub(super) worker: WaitQueue,
    /// Not 0: the worker has something to do.
    pub(super) wanted: Atomic<u32>,
    pub(super) offers: Offers,
    /// When the timer fires at the latest, in nanoseconds of
    /// [`monotonic_ns`](kernel_ext::time::monotonic_ns); `u64::MAX`: it is not set.
    pub(super) timer_due: Atomic<u64>,
    /// Until when the timer rests, by the same clock; `u64::MAX`: it does not. For the timer alone.
    pub(super) timer_rests_until: Atomic<u64>,
    /// Until when the timer waits for a thread of real-time priority, by the same clock; 0: it does
    /// not. For the timer alone.
    pub(super) timer_waits_until: Atomic<u64>,
    /// The looks of the worker since it is awake; 0: it is not. The worker alone counts.
    pub(super) worker_looks: Atomic<u32>,
    /// How many of them the timer has seen, and when it looks for more. For the timer alone.
    pub(super) looks_seen: Atomic<u32>,
    pub(super) sees_looks_at: Atomic<u64>,
    pub(super) kicks: Kicks,
    /// Counters of the report.
    pub(super) worker_wakes: Atomic<u64>,
    pub(super) worker_requests: Atomic<u64>,
    /// Queue pairs of the kernel's own users that have new requests, or space again for packets.
    pub(super) doorbells: PendingSet,
    /// Contexts that kicked while another caller was the owner.
    pub(super) kicked: PendingSet,
    /// Commands wait here for the end of copy jobs.
    #[pin]
    pub(super) copied: WaitQueue,
    /// The ends of jobs so far that commands have waited for. Only the owner of the shard counts.
    pub(super) awaited_ends: Atomic<u32>,
    /// Packets that have come and wait for the owner of the shard.
    #[pin]
    pub(super) inbox: Inbox,
    /// Frames that are steered to raw packet queue pairs, which wait as well. They have a place of
    /// their own, so that they take none from packets.
    #[pin]
    pub(super) frames: Inbox,
    /// Packets for which the inbox had no space, and packets that are not RoCEv2 at all.
    pub(super) inbox_full: Atomic<u64>,
    pub(super) not_rocev2: Atomic<u64>,
    /// Packets that were lost on the way to the network device.
    pub(super) lost: Atomic<u64>,
    /// Lists of packets that went there.
    pub(super) lists: Atomic<u64>,
}

/// The state that the owner of the shard owns.
pub(super) struct State {
    pub(super) engine: KBox<Engine<Kernel>>,
    /// The positions in [`Core::doorbells`] and in [`Core::kicked`].
    pub(super) doorbells: BitmapScan,
    pub(super) kicked: BitmapScan,
}

impl Core {
    /// The engine of the shard of a number, without anything, asleep.
    fn new(index: usize, dev_index: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            index,
            dev_index: Atomic::new(dev_index),
            parents: Atomic::new(0),
            expected: Atomic::new(0),
            spare: Atomic::new(0),
            shard <- Shard::new(State {
                engine: Engine::<Kernel>::new(Config {
                    random: random_u32(),
                    ..Config::default()
                })
                .ok_or(ENOMEM)?,
                doorbells: BitmapScan::DONE,
                kicked: BitmapScan::DONE,
            }),
            worker <- new_waitqueue!("Core::worker"),
            wanted: Atomic::new(0),
            offers: Offers::new(),
            timer_due: Atomic::new(u64::MAX),
            timer_rests_until: Atomic::new(u64::MAX),
            timer_waits_until: Atomic::new(0),
            worker_looks: Atomic::new(0),
            looks_seen: Atomic::new(0),
            sees_looks_at: Atomic::new(0),
            kicks: Kicks::new(),
            worker_wakes: Atomic::new(0),
            worker_requests: Atomic::new(0),
            doorbells: PendingSet::new()?,
            kicked: PendingSet::new()?,
            copied <- new_waitqueue!("Core::copied"),
            awaited_ends: Atomic::new(0),
            inbox <- Inbox::new(),
            frames <- Inbox::new(),
            inbox_full: Atomic::new(0),
            not_rocev2: Atomic::new(0),
            lost: Atomic::new(0),
            lists: Atomic::new(0),
        })
    }

    /// The shard of a number of the device with this index, without anything.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn in_arc(index: usize, dev_index: u32) -> Result<Arc<WithTimer<Self>>> {
        Arc::pin_init(WithTimer::new(Core::new(index, dev_index)), GFP_KERNEL)
    }

    /// The index of the device among RDMA devices.
    pub(super) fn dev_index(&self) -> u32 {
        self.dev_index.load(Relaxed)
    }

    /// Sets it, while nobody uses the device yet.
    pub(super) fn set_dev_index(&self, index: u32) {
        self.dev_index.store(index, Relaxed);
    }

    /// The services of a call by such a caller into the engine.
    #[inline]
    pub(super) fn host(&self, caller: Caller) -> Kernel {
        Kernel::new(self.dev_index(), caller)
    }

    /// How many user contexts, protection domains and completion queues are in the shard, or about
    /// to be.
    pub(super) fn all_parents(&self) -> u32 {
        // A user is counted before it is expected no more ([`Place`](super::shards::Place)), so it
        // is found here or there.
        let expected = self.expected.load(Acquire);
        expected + self.parents.load(Relaxed)
    }

    /// Whether the engine may have a block of a kind to spare. If not, no object of the kind has
    /// gone since it was asked.
    pub(super) fn may_spare(&self, kind: TableKind) -> bool {
        self.spare.load(Relaxed) & bit(kind) != 0
    }

    /// The engine was asked for a block of a kind, or an object of it has gone. The caller owns the
    /// shard.
    pub(super) fn set_spare(&self, kind: TableKind, spare: bool) {
        let others = self.spare.load(Relaxed) & !bit(kind);
        let of_kind = if spare { bit(kind) } else { 0 };
        self.spare.store(others | of_kind, Relaxed);
    }

    /// The engine may have blocks of all kinds to spare. The caller owns the shard.
    pub(super) fn set_all_spare(&self) {
        self.spare.store(u32::MAX, Relaxed);
    }

    /// Whether it is a shard for users that may have one of their own, and has none.
    pub(super) fn is_idle(&self) -> bool {
        self.index != 0 && self.all_parents() == 0
    }

    /// Counts the objects that others need. An engine without any has its last blocks to spare,
    /// too. The caller owns the shard.
    pub(super) fn count_parents(&self, engine: &Engine<Kernel>) {
        let parents = engine.parents();
        self.parents.store(parents, Relaxed);
        if parents == 0 {
            self.set_all_spare();
        }
    }

    /// Waits for the end of a copy job that a command waits for, after so many. Process context.
    pub(super) fn wait_for_end(&self, seen: u32) {
        self.copied.wait(|| self.awaited_ends.load(Relaxed) != seen);
    }

    /// Wakes the worker, unless somebody has done so already. Any context.
    pub(super) fn wake_worker(&self) {
        if self.wanted.xchg(1, Full) == 0 {
            self.worker_wakes.fetch_add(1, Relaxed);
            self.worker.wake_up();
        }
    }
}

/// The bit of a kind of numbers in [`Core::spare`].
fn bit(kind: TableKind) -> u32 {
    1 << kind as u32
}
