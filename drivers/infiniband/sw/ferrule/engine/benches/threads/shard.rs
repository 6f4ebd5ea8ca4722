// SPDX-License-Identifier: GPL-2.0

//! An engine that threads share, as the driver's callers do (`soft/policy.rs`).

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, MutexGuard};

use ferrule_engine::{
    Access, Budget, Capabilities, Config, ContextId, CopyJob, Cq, CqEvent, CqInit, Engine, Host,
    JobPlace, Memory, Mr, MrInit, Outgoing, Qp, QpEvent, QpInit, QpType, QpUser, RingLayout,
    SrqEvent, Unsent, UserContext, Vport,
};

use crate::local::{add, lead, NoBytes};
use crate::memory::{
    ApartBox, SharedDoorbells, SharedQueue, SharedRegion, SharedRing, CTRL, DEPTH, SLOT,
};

/// The budget of an owner before it leaves the shard.
const SLICE: Budget = Budget {
    requests: 32,
    bytes: 64 << 10,
};

/// The services of one call into the engine.
#[derive(Default)]
pub(crate) struct Native {
    job: JobPlace<Native>,
    is_contended: bool,
}

impl Host for Native {
    type Box<T> = ApartBox<T>;
    type Region = SharedRegion;
    type Queue = SharedQueue;
    type CompletionRing = SharedRing;
    type Doorbells = SharedDoorbells;
    type Packet = NoBytes;
    type Reorder = ();
    type Route = ();
    type CqHandle = ();
    type QpHandle = ();
    type SrqHandle = ();

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<ApartBox<T>> {
        Some(ApartBox::new(make()))
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<ApartBox<[T; N]>> {
        Some(ApartBox::new(std::array::from_fn(make)))
    }

    #[inline]
    fn index_nospec(index: usize, size: usize) -> usize {
        index & (size - 1)
    }

    #[inline]
    fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        0
    }

    fn transmit<'a>(&mut self, (): &mut (), _: &mut impl Outgoing<'a, Self>) -> Result<(), Unsent> {
        Ok(())
    }

    fn completion_event(&mut self, (): &()) {}

    fn cq_event(&mut self, (): &(), _: CqEvent) {}

    fn qp_event(&mut self, (): &(), _: QpEvent) {}

    fn srq_event(&mut self, (): &(), _: SrqEvent) {}

    #[inline]
    fn job_place(&mut self) -> Option<&mut JobPlace<Self>> {
        Some(&mut self.job)
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.is_contended
    }
}

/// The memory of a program's objects: a context, a completion queue, a queue pair that is its own
/// peer, and a region.
pub(crate) struct Program {
    pub(crate) context: ContextId,
    pub(crate) doorbells: SharedDoorbells,
    pub(crate) ring: SharedRing,
    pub(crate) queue: SharedQueue,
    pub(crate) qpn: u32,
    pub(crate) key: u32,
}

/// The engine, which one thread owns at a time. Shards share no cache lines.
#[repr(align(128))]
pub(crate) struct Shard {
    /// Those who wait look at this word, as they do in the driver: to try a mutex writes to its
    /// cache line.
    is_owned: AtomicBool,
    engine: Mutex<ApartBox<Engine<Native>>>,
    /// Kicks in progress.
    kicks: AtomicU32,
}

/// The owner of a shard, which leaves it when this is dropped.
struct Owner<'a> {
    engine: Option<MutexGuard<'a, ApartBox<Engine<Native>>>>,
    is_owned: &'a AtomicBool,
}

impl Deref for Owner<'_> {
    type Target = Engine<Native>;

    fn deref(&self) -> &Engine<Native> {
        self.engine.as_ref().expect("the engine")
    }
}

impl DerefMut for Owner<'_> {
    fn deref_mut(&mut self) -> &mut Engine<Native> {
        self.engine.as_mut().expect("the engine")
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.engine = None;
        self.is_owned.store(false, Release);
    }
}

impl Shard {
    pub(crate) fn new() -> Self {
        let engine = Engine::<Native>::new(Config::default());
        Self {
            is_owned: AtomicBool::new(false),
            engine: Mutex::new(engine.expect("memory")),
            kicks: AtomicU32::new(0),
        }
    }

    /// Becomes the owner. A caller that waits does not sleep, as a kick does not for a while.
    fn enter(&self) -> Owner<'_> {
        while self.is_owned.load(Relaxed) || self.is_owned.swap(true, Acquire) {
            spin_loop();
        }
        Owner {
            engine: self.engine.lock().ok(),
            is_owned: &self.is_owned,
        }
    }

    /// Does the work of a program that has rung, and carries out its copy jobs.
    pub(crate) fn kick(&self, context: ContextId) {
        let mut host = Native::default();
        let mut carried = None;
        self.kicks.fetch_add(1, Relaxed);
        loop {
            let mut engine = self.enter();
            if let Some(carried) = carried.take() {
                engine.carried(&mut host, carried);
            }
            host.is_contended = self.kicks.load(Relaxed) > 1;
            let outcome = engine.run_for(&mut host, SLICE, context);
            drop(engine);
            match host.job.take() {
                Some(job) => carried = Some(CopyJob::carry_out(job)),
                None if !outcome.first => break,
                None => (),
            }
        }
        self.kicks.fetch_sub(1, Relaxed);
    }

    /// Makes the objects of a program, with a region of that length.
    pub(crate) fn program(&self, length: u32) -> Program {
        let mut engine = self.enter();
        let doorbells = SharedDoorbells::default();
        let context = UserContext::new(doorbells.clone());
        let context = add(&mut engine, context, Engine::add_context).expect("a context");
        let ring = SharedRing::new();
        let cq = Cq::new(CqInit {
            depth: DEPTH,
            ring: ring.clone(),
            handle: (),
        });
        let cqn = add(&mut engine, cq.expect("a queue"), Engine::add_cq).expect("its number");
        let region = MrInit {
            pd: 1,
            access: Access::LOCAL_WRITE.or(Access::REMOTE_WRITE),
            memory: Memory {
                iova: 0,
                length: length.into(),
                region: SharedRegion::new(length),
            },
        };
        let key = add(&mut engine, Mr::new(region), Engine::add_mr).expect("a key");
        let layout = |offset| RingLayout {
            offset,
            depth: DEPTH,
            stride: SLOT,
        };
        let queue = SharedQueue::new();
        let qp = Qp::<Native>::new(QpInit {
            user: QpUser::Context {
                id: context,
                privileged: false,
            },
            vport: Vport::default(),
            pd: 1,
            qp_type: QpType::Rc,
            gsi: false,
            send_cq: cqn,
            recv_cq: cqn,
            srq: None,
            cap: Capabilities {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
            },
            sq_sig_all: false,
            sq_ring: layout(0),
            rq_ring: layout(DEPTH * SLOT),
            ctrl: CTRL,
            queue: queue.clone(),
            handle: (),
        });
        let qpn = add(
            &mut engine,
            qp.expect("a queue pair").into_inner(),
            Engine::add_qp,
        )
        .expect("its number")
        .number;
        for modify in lead(qpn) {
            engine
                .modify_qp(&mut Native::default(), qpn, &modify, &mut None)
                .expect("a state");
        }
        Program {
            context,
            doorbells,
            ring,
            queue,
            qpn,
            key,
        }
    }
}
