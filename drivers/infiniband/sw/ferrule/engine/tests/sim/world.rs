// SPDX-License-Identifier: GPL-2.0

//! An engine with its host, and the objects of its programs.

use std::rc::Rc;

use ferrule_engine::host::Queue;
use ferrule_engine::{
    Access, Ah, Block, Budget, Capabilities, Config, CopyJob, Cq, CqInit, CqResize, Engine, Error,
    Memory, Moderation, Mr, MrInit, Mtu, Mw, MwType, NeedChunk, Outcome, Path, Pd, Qp, QpInit,
    QpType, QpUser, RingLayout, Sleep, Srq, SrqInfo, SrqInit, SrqResize, TableKind, UserContext,
    Vport, XrcSrq, NO_CQ,
};

use super::connect::route;
use super::host::{Event, Sim};
use super::local::add;
use super::memory::{shared, Shared, SimDoorbells, SimQueue, SimRegion, SimRing, SimShared};
use super::program::{TestContext, TestCq, TestMr, TestQp, TestSrq, ALL};
use super::PLENTY;

/// A copy job.
pub type SimJob = Box<CopyJob<SimShared>>;

/// An engine, its host, and one context to begin with.
pub struct World {
    pub engine: Engine<Sim>,
    pub host: Sim,
    pub context: TestContext,
    /// Names given so far.
    pub(super) names: u32,
}

/// How a queue pair is made.
#[derive(Clone)]
pub struct QpSpec {
    pub qp_type: QpType,
    pub gsi: bool,
    pub vport: Vport,
    /// Of a target of XRC, the XRC domain.
    pub pd: u32,
    pub depth: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub sq_sig_all: bool,
    pub srq: Option<u32>,
}

impl Default for QpSpec {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            gsi: false,
            vport: Vport::default(),
            pd: 1,
            depth: 16,
            max_sge: 4,
            max_inline: 256,
            sq_sig_all: false,
            srq: None,
        }
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Config {
            random: 0x5eed,
            ..Config::default()
        })
    }

    pub fn with(config: Config) -> Self {
        Self::of_engine(*Engine::<Sim>::new(config).unwrap())
    }

    /// A world whose objects have numbers from this block on, and names from 1000 times that on.
    pub fn of_blocks(first: u32) -> Self {
        let mut engine = *Engine::<Sim>::new(Config::default()).unwrap();
        for kind in TableKind::ALL {
            let mut chunk = NeedChunk::from(kind).allocate().unwrap();
            chunk.set_block(first);
            assert!(engine.add_chunk(chunk).is_none());
        }
        let mut world = Self::of_engine(engine);
        world.names = 1000 * first;
        world
    }

    fn of_engine(mut engine: Engine<Sim>) -> Self {
        engine.wake();
        let doorbells = SimDoorbells::new();
        let id = add(
            &mut engine,
            UserContext::new(doorbells.clone()),
            Engine::add_context,
        )
        .unwrap();
        engine.set_port_mtu(Vport::default(), Mtu::Mtu1024);
        Self {
            engine,
            host: Sim {
                has_job_place: std::env::var_os("FERRULE_SIM_JOBS").is_some(),
                ..Sim::default()
            },
            context: TestContext { id, doorbells },
            names: 0,
        }
    }

    pub(super) fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    pub fn context(&mut self) -> TestContext {
        self.context_at(Vport::default())
    }

    pub fn context_at(&mut self, vport: Vport) -> TestContext {
        let doorbells = SimDoorbells::new();
        let context = UserContext::new(doorbells.clone()).with_vport(vport);
        let id = add(&mut self.engine, context, Engine::add_context).unwrap();
        TestContext { id, doorbells }
    }

    pub fn cq(&mut self, depth: u32) -> TestCq {
        let name = self.name();
        let ring = SimRing::new(depth);
        let cq = Cq::new(CqInit {
            depth,
            ring: ring.clone(),
            handle: name,
        });
        let cqn = add(&mut self.engine, cq.unwrap(), Engine::add_cq).unwrap();
        TestCq {
            cqn,
            name,
            depth,
            ring,
            base: 0,
            next: Rc::default(),
        }
    }

    /// Gives a queue another ring; answers the queue to be polled when `cq` is empty.
    pub fn resize(&mut self, cq: &TestCq, depth: u32) -> Result<TestCq, Error> {
        let ring = cq.ring.resized(depth);
        let mut resize = CqResize {
            depth,
            ring: ring.clone(),
        };
        let base = self.engine.resize_cq(cq.cqn, &mut resize)?;
        Ok(TestCq {
            depth,
            ring,
            base,
            ..cq.clone()
        })
    }

    pub fn mr(&mut self, length: usize) -> TestMr {
        self.mr_with(1, ALL, shared(length), 0, length)
    }

    pub fn mr_with(
        &mut self,
        pd: u32,
        access: Access,
        memory: Shared,
        start: usize,
        length: usize,
    ) -> TestMr {
        let region = SimRegion {
            memory,
            start,
            length,
            broken: Rc::default(),
            absent: Rc::default(),
            absent_from: Rc::default(),
            askers: Rc::default(),
            next: Rc::default(),
            pieces: Rc::default(),
        };
        let iova = 0x7f00_0000_0000 + start as u64;
        let mr = Mr::new(MrInit {
            pd,
            access,
            memory: Memory {
                iova,
                length: length as u64,
                region: region.clone(),
            },
        });
        let key = add(&mut self.engine, mr, Engine::add_mr).unwrap();
        TestMr { key, iova, region }
    }

    /// A region for fast registration, of bytes of `memory`.
    pub fn fast_mr(&mut self, pd: u32, memory: Shared) -> TestMr {
        let region = SimRegion {
            memory,
            start: 0,
            length: 0,
            broken: Rc::default(),
            absent: Rc::default(),
            absent_from: Rc::default(),
            askers: Rc::default(),
            next: Rc::default(),
            pieces: Rc::default(),
        };
        let mr = Mr::fast(MrInit {
            pd,
            access: Access::NONE,
            memory: Memory {
                iova: 0,
                length: 0,
                region: region.clone(),
            },
        });
        let key = add(&mut self.engine, mr, Engine::add_mr).unwrap();
        let iova = 0;
        TestMr { key, iova, region }
    }

    /// A window that is not bound, and its key.
    pub fn pd(&mut self) -> u32 {
        add(&mut self.engine, Pd::default(), Engine::add_pd).unwrap()
    }

    pub fn mw(&mut self, pd: u32, mw_type: MwType) -> u32 {
        add(&mut self.engine, Mw::new(pd, mw_type), Engine::add_mw).unwrap()
    }

    pub fn qp(&mut self, send: &TestCq, recv: &TestCq) -> TestQp {
        self.qp_with(&QpSpec::default(), send, recv)
    }

    pub fn qp_with(&mut self, spec: &QpSpec, send: &TestCq, recv: &TestCq) -> TestQp {
        let context = self.context.clone();
        self.qp_in(Some(&context), spec, send, recv)
    }

    pub fn qp_in(
        &mut self,
        context: Option<&TestContext>,
        spec: &QpSpec,
        send: &TestCq,
        recv: &TestCq,
    ) -> TestQp {
        self.try_qp_in(context, spec, send, recv).unwrap()
    }

    /// # Errors
    ///
    /// Those of [`Engine::add_qp`].
    pub fn try_qp_in(
        &mut self,
        context: Option<&TestContext>,
        spec: &QpSpec,
        send: &TestCq,
        recv: &TestCq,
    ) -> Result<TestQp, Error> {
        let name = self.name();
        let sends = spec.qp_type != QpType::XrcTgt;
        let receives = sends && spec.qp_type != QpType::XrcIni;
        let stride = |head: u32, body: u32| (head + body).next_power_of_two().max(64);
        let body = (spec.max_sge * 16).max(spec.max_inline);
        let sq = RingLayout {
            offset: 0,
            depth: if sends { spec.depth } else { 0 },
            stride: stride(48, body),
        };
        let rq = RingLayout {
            offset: sq.depth * sq.stride,
            depth: if spec.srq.is_some() || !receives {
                0
            } else {
                spec.depth
            },
            stride: stride(16, spec.max_sge * 16),
        };
        let ctrl = rq.offset + rq.depth * rq.stride;
        let queue = SimQueue {
            is_hosts: context.is_none(),
            ..SimQueue::new(ctrl as usize + 128)
        };
        let qp = Qp::<Sim>::new(QpInit {
            user: context.map_or(QpUser::Host, |context| QpUser::Context {
                id: context.id,
                privileged: false,
            }),
            vport: spec.vport,
            pd: spec.pd,
            qp_type: spec.qp_type,
            gsi: spec.gsi,
            send_cq: if sends { send.cqn } else { NO_CQ },
            recv_cq: if receives { recv.cqn } else { NO_CQ },
            srq: spec.srq,
            cap: Capabilities {
                max_send_wr: sq.depth,
                max_recv_wr: rq.depth,
                max_send_sge: spec.max_sge,
                max_recv_sge: spec.max_sge,
                max_inline: spec.max_inline,
            },
            sq_sig_all: spec.sq_sig_all,
            sq_ring: sq,
            rq_ring: rq,
            ctrl,
            queue: queue.clone(),
            handle: name,
        });
        let id = add(&mut self.engine, *qp.unwrap(), Engine::add_qp)?;
        Ok(TestQp {
            id,
            name,
            queue,
            sq,
            rq,
            ctrl,
            doorbells: context.map(|context| context.doorbells.clone()),
            sq_producer: Rc::default(),
            rq_producer: Rc::default(),
        })
    }

    /// A shared receive queue of a protection domain.
    pub fn srq(&mut self, pd: u32, depth: u32, max_sge: u32) -> TestSrq {
        self.try_srq(pd, depth, max_sge, None).unwrap()
    }

    /// An XRC shared receive queue of a protection domain and an XRC domain.
    pub fn xrc_srq(&mut self, pd: u32, domain: u32, cq: &TestCq) -> TestSrq {
        let xrc = XrcSrq { domain, cq: cq.cqn };
        self.try_srq(pd, 16, 2, Some(xrc)).unwrap()
    }

    /// # Errors
    ///
    /// Those of [`Engine::add_srq`].
    pub fn try_srq(
        &mut self,
        pd: u32,
        depth: u32,
        max_sge: u32,
        xrc: Option<XrcSrq>,
    ) -> Result<TestSrq, Error> {
        let name = self.name();
        let ring = RingLayout {
            offset: 0,
            depth,
            stride: (16 + max_sge * 16).next_power_of_two().max(64),
        };
        let ctrl = ring.depth * ring.stride;
        let queue = SimQueue::new(ctrl as usize + 128);
        let srq = Srq::new(SrqInit {
            pd,
            xrc,
            max_sge,
            ring,
            ctrl,
            queue: queue.clone(),
            handle: name,
        });
        let number = add(&mut self.engine, srq.unwrap(), Engine::add_srq)?;
        Ok(TestSrq {
            number,
            name,
            queue,
            ring,
            ctrl,
            producer: Rc::default(),
        })
    }

    pub fn moderate_cq(&mut self, cq: &TestCq, count: u16, period: u16) {
        let moderation = Moderation { count, period };
        self.engine
            .moderate_cq(&mut self.host, cq.cqn, moderation)
            .unwrap();
    }

    /// Lets the queue go on with the ring of `copy`; answers the size of the buffer that is left.
    pub fn resize_srq(&mut self, copy: &TestSrq, limit: Option<u32>) -> Result<usize, Error> {
        let mut resize = SrqResize {
            ring: copy.ring,
            ctrl: copy.ctrl,
            queue: copy.queue.clone(),
            limit,
        };
        self.engine
            .resize_srq(&mut self.host, copy.number, &mut resize)?;
        Ok(resize.queue.size())
    }

    pub fn set_srq_limit(&mut self, srq: &TestSrq, limit: u32) -> Result<(), Error> {
        self.engine.set_srq_limit(&mut self.host, srq.number, limit)
    }

    pub fn query_srq(&self, srq: &TestSrq) -> SrqInfo {
        self.engine.query_srq(srq.number).unwrap()
    }

    /// An address handle of a protection domain.
    pub fn ah(&mut self, pd: u32, path: Path) -> u32 {
        add(
            &mut self.engine,
            Ah::new(pd, path, route(Some(path))),
            Engine::add_ah,
        )
        .unwrap()
    }

    /// Takes over the objects of another world, and returns their blocks.
    pub fn merge(&mut self, other: &mut World) -> Result<Vec<Block>, Error> {
        let mut blocks = Vec::new();
        self.engine
            .merge(&mut other.engine, |block| blocks.push(block))?;
        Ok(blocks)
    }

    /// Runs until nothing is left to do at this moment.
    pub fn run(&mut self) -> Outcome {
        loop {
            let outcome = self.engine.run(&mut self.host, PLENTY, None);
            if let Some(job) = self.host.job.take() {
                self.carry(job);
            } else if !outcome.more {
                return outcome;
            }
        }
    }

    /// Runs until nothing is left to do but jobs, which are taken along.
    pub fn run_to_jobs(&mut self, jobs: &mut Vec<SimJob>) {
        loop {
            let outcome = self.engine.run(&mut self.host, PLENTY, None);
            match self.host.job.take() {
                Some(job) => jobs.push(job),
                None if outcome.more => (),
                None => break,
            }
        }
    }

    /// Carries out a job and hands it back. Returns whether a command waits for it.
    pub fn carry(&mut self, job: SimJob) -> bool {
        let carried = CopyJob::carry_out(job);
        self.engine.carried(&mut self.host, carried)
    }

    /// Runs until so many bytes have moved, of requests that have more.
    #[track_caller]
    pub fn run_part(&mut self, bytes: u64) {
        let budget = Budget {
            requests: 10,
            bytes,
        };
        assert!(self.engine.run(&mut self.host, budget, None).more);
    }

    /// Has the engine go to sleep, and returns whether it does.
    pub fn try_sleep(&mut self) -> bool {
        loop {
            match self.engine.try_sleep(PLENTY.looks()) {
                Sleep::Asleep => return true,
                Sleep::Awake => return false,
                Sleep::Step => (),
            }
        }
    }

    /// Lets time pass until nothing waits for it any more, but no longer than `limit`.
    pub fn settle(&mut self, limit: u64) {
        let end = self.host.now + limit;
        while let Some(deadline) = self.run().deadline {
            if deadline > end {
                break;
            }
            self.host.now = self.host.now.max(deadline);
        }
        self.run();
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.host.events)
    }
}
