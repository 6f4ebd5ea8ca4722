// SPDX-License-Identifier: GPL-2.0

//! The engine on that memory, and the queue pairs of its programs.

use ferrule_engine::{
    Access, Budget, Capabilities, Config, ContextId, Cq, CqEvent, CqInit, Engine, Host, JobPlace,
    Memory, Mr, MrInit, Outgoing, Qp, QpEvent, QpInit, QpType, QpUser, RingLayout, Sleep, SrqEvent,
    Status, Unsent, UserContext, Vport,
};
use loom::sync::atomic::fence;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::local::{add, lead, NoBytes};
use crate::memory::{
    LoomDoorbells, LoomQueue, LoomRegion, LoomRing, COMPLETIONS, CTRL, DEPTH, LONG, SLOT,
};

#[derive(Default)]
pub(crate) struct Loom {
    pub(crate) now: u64,
    pub(crate) events: u32,
    /// A copy job that is to be taken along.
    pub(crate) job: JobPlace<Loom>,
}

impl Host for Loom {
    type Box<T> = Box<T>;
    type Region = LoomRegion;
    type Queue = LoomQueue;
    type CompletionRing = LoomRing;
    type Doorbells = LoomDoorbells;
    type Packet = NoBytes;
    type Reorder = ();
    type Route = ();
    type CqHandle = ();
    type QpHandle = ();
    type SrqHandle = ();

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<Box<T>> {
        Some(Box::new(make()))
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<Box<[T; N]>> {
        Some(Box::new(std::array::from_fn(make)))
    }

    fn index_nospec(index: usize, size: usize) -> usize {
        assert!(index < size && size.is_power_of_two());
        index
    }

    fn fence() {
        fence(SeqCst);
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn transmit<'a>(&mut self, (): &mut (), _: &mut impl Outgoing<'a, Self>) -> Result<(), Unsent> {
        Ok(())
    }

    fn completion_event(&mut self, _: &()) {
        self.events += 1;
    }

    fn cq_event(&mut self, _: &(), _: CqEvent) {}

    fn qp_event(&mut self, _: &(), _: QpEvent) {}

    fn srq_event(&mut self, _: &(), _: SrqEvent) {}

    fn job_place(&mut self) -> Option<&mut JobPlace<Self>> {
        Some(&mut self.job)
    }
}

/// More than any test needs.
pub(crate) const PLENTY: Budget = Budget {
    requests: 100,
    bytes: 100,
};

/// An engine with a context, a completion queue, and queue pairs that are their own peers.
pub(crate) struct World {
    pub(crate) engine: Engine<Loom>,
    pub(crate) host: Loom,
    pub(crate) context: ContextId,
    pub(crate) doorbells: LoomDoorbells,
    pub(crate) ring: LoomRing,
    pub(crate) queues: Vec<(u32, LoomQueue)>,
}

impl World {
    pub(crate) fn new(qps: usize) -> Self {
        let mut engine = *Engine::<Loom>::new(Config {
            random: 1,
            ..Config::default()
        })
        .unwrap();
        engine.wake();
        let mut host = Loom::default();
        let doorbells = LoomDoorbells::new();
        let context = add(
            &mut engine,
            UserContext::new(doorbells.clone()),
            Engine::add_context,
        )
        .unwrap();
        let ring = LoomRing::new();
        let cq = Cq::new(CqInit {
            depth: COMPLETIONS as u32,
            ring: ring.clone(),
            handle: (),
        });
        let cqn = add(&mut engine, cq.unwrap(), Engine::add_cq).unwrap();
        let layout = |offset| RingLayout {
            offset,
            depth: DEPTH,
            stride: SLOT,
        };
        let mut queues = Vec::new();
        for _ in 0..qps {
            let queue = LoomQueue::new();
            let qp = Qp::<Loom>::new(QpInit {
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
            let number = add(&mut engine, *qp.unwrap(), Engine::add_qp)
                .unwrap()
                .number;
            for modify in lead(number) {
                engine
                    .modify_qp(&mut host, number, &modify, &mut None)
                    .unwrap();
            }
            queues.push((number, queue));
        }
        let mut world = Self {
            engine,
            host,
            context,
            doorbells,
            ring,
            queues,
        };
        world.run();
        world
    }

    /// Adds a region, which the messages of the first queue pair move from there to there.
    pub(crate) fn region(&mut self) -> (u32, LoomRegion) {
        let region = LoomRegion(Default::default());
        let init = MrInit {
            pd: 1,
            access: Access::LOCAL_WRITE.or(Access::REMOTE_WRITE),
            memory: Memory {
                iova: 0,
                length: LONG.into(),
                region: region.clone(),
            },
        };
        let key = add(&mut self.engine, Mr::new(init), Engine::add_mr).unwrap();
        self.queues[0].1 .0.key.store(key, Relaxed);
        (key, region)
    }

    pub(crate) fn run(&mut self) {
        self.run_first(None);
    }

    /// Serves the program as a kick does.
    pub(crate) fn kick(&mut self) {
        self.run_first(Some(self.context));
    }

    /// Lets time pass until the next timer fires, and does the work that there is then.
    pub(crate) fn fire_timer(&mut self) {
        self.host.now = self.engine.deadline().unwrap_or(self.host.now);
        while self.engine.run(&mut self.host, PLENTY, None).more {}
    }

    /// Serves a kick that has come as a message, some time after it was sent.
    pub(crate) fn kick_by_message(&mut self) {
        self.engine.kicked_by_message(self.context);
        self.kick();
    }

    pub(crate) fn run_first(&mut self, first: Option<ContextId>) {
        assert!(!self.engine.run(&mut self.host, PLENTY, first).more);
    }

    /// Runs until the engine can sleep, as the worker does when it finds no work.
    pub(crate) fn run_to_sleep(&mut self) {
        loop {
            self.run();
            if self.engine.try_sleep(PLENTY.looks()) == Sleep::Asleep {
                break;
            }
        }
    }

    /// The same with two looks for each run, so that each takes a word or a doorbell or two of
    /// them.
    pub(crate) fn step_to_sleep(&mut self) {
        let budget = Budget {
            requests: 1,
            bytes: 100,
        };
        loop {
            while self.engine.run(&mut self.host, budget, None).more {}
            if self.engine.try_sleep(1) == Sleep::Asleep {
                break;
            }
        }
    }

    /// Goes to sleep beside others that want the processor, and does what was rung.
    pub(crate) fn give_way(&mut self) {
        while self.engine.sleep(PLENTY.looks()) != Sleep::Asleep {}
        while self.engine.has_work() {
            self.run();
        }
    }

    /// The names of all completions. All have this status.
    pub(crate) fn ended(&self, status: Status) -> Vec<u64> {
        let names: Vec<_> = (0..COMPLETIONS)
            .map_while(|index| self.ring.poll(index))
            .collect();
        for index in 0..names.len() {
            assert_eq!(self.ring.0.statuses[index].load(Relaxed), status as u32);
        }
        names
    }

    /// The names of all completions, which are good.
    pub(crate) fn completions(&self) -> Vec<u64> {
        self.ended(Status::Success)
    }
}
