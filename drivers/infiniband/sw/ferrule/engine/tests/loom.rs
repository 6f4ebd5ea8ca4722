// SPDX-License-Identifier: GPL-2.0

//! The protocols between programs and the engine, in every interleaving and with every reordering
//! that memory may show: doorbells and their acknowledgement, sleep and kick, the arming of
//! completion queues, and receive requests posted in error.
//!
//! The engine under test is the engine itself, on memory of loom's atomics. The programs' side is
//! written here as the head of `ferrule-abi.h` tells it. Run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom
//! ```
#![cfg(loom)]

use ferrule_engine::{
    abi, Access, Budget, Capabilities, CompletionRing, Config, Context, ContextId, Cq, CqEvent,
    CqInit, Doorbells, Engine, Error, Fault, Host, Modify, Mtu, Outgoing, Packet, Path, PathKind,
    Qp, QpEvent, QpInit, QpType, Queue, Refused, Region, Reorder, RingLayout, Sleep, SrqEvent,
    State, Unsent,
};
use loom::sync::atomic::{
    fence, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Memory that nobody touches: messages here have no bytes.
struct NoBytes;

impl Region for NoBytes {
    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn copy(_: &Self, _: u64, _: &Self, _: u64, _: usize) -> Result<(), Fault> {
        Err(Fault)
    }

    fn compare_swap(&self, _: u64, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn fetch_add(&self, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }
}

const DEPTH: u32 = 2;
const SLOT: u32 = 64;
const CTRL: u32 = 2 * DEPTH * SLOT;

/// The buffer of a queue pair: two slots for sending and two for receiving. Of a slot, only the
/// request's name and the opcode are not zero.
struct QpMemory {
    names: [AtomicU64; 4],
    sq_producer: AtomicU32,
    rq_producer: AtomicU32,
    rq_doorbell: AtomicU32,
}

#[derive(Clone)]
struct LoomQueue(Arc<QpMemory>);

impl LoomQueue {
    fn new() -> Self {
        Self(Arc::new(QpMemory {
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            sq_producer: AtomicU32::new(0),
            rq_producer: AtomicU32::new(0),
            rq_doorbell: AtomicU32::new(0),
        }))
    }

    /// Posts the send request of `index`, without ringing.
    fn put_send(&self, index: u32, name: u64) {
        self.0.names[(index % DEPTH) as usize].store(name, Relaxed);
        self.0.sq_producer.store(index + 1, Release);
    }

    /// Posts the receive request of `index`, and answers whether it has to be rung.
    fn put_recv(&self, index: u32, name: u64) -> bool {
        self.0.names[(DEPTH + index % DEPTH) as usize].store(name, Relaxed);
        self.0.rq_producer.store(index + 1, Release);
        fence(SeqCst);
        self.0.rq_doorbell.load(Relaxed) != 0
    }
}

impl Queue for LoomQueue {
    fn size(&self) -> usize {
        CTRL as usize + 128
    }

    fn read(&self, offset: u32, to: &mut [u8]) {
        to.fill(0);
        let name = self.0.names[(offset / SLOT) as usize].load(Relaxed);
        to[..8].copy_from_slice(&name.to_le_bytes());
        if to.len() == 48 {
            to[8] = abi::wr_opcode::RDMA_WRITE;
            to[9] = abi::wr_flags::SIGNALED;
        }
    }

    fn load(&self, offset: u32) -> u32 {
        match offset - CTRL {
            0 => self.0.sq_producer.load(Acquire),
            64 => self.0.rq_producer.load(Acquire),
            _ => unreachable!(),
        }
    }

    fn store(&self, offset: u32, value: u32) {
        assert_eq!(offset - CTRL, 68);
        self.0.rq_doorbell.store(value, Release);
    }
}

/// A completion queue of one slot more than any test fills.
struct CqMemory {
    names: [AtomicU64; 4],
    phases: [AtomicU32; 4],
    arm: AtomicU32,
}

#[derive(Clone)]
struct LoomRing(Arc<CqMemory>);

impl LoomRing {
    fn new() -> Self {
        Self(Arc::new(CqMemory {
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            phases: std::array::from_fn(|_| AtomicU32::new(0)),
            arm: AtomicU32::new(0),
        }))
    }

    fn poll(&self, index: usize) -> Option<u64> {
        if self.0.phases[index].load(Acquire) == 0 {
            return None;
        }
        Some(self.0.names[index].load(Relaxed))
    }
}

impl CompletionRing for LoomRing {
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        self.0.names[slot as usize].store(cqe.wr_id.get(), Relaxed);
    }

    fn publish(&self, slot: u32, phase: u32) {
        self.0.phases[slot as usize].store(phase, Release);
    }

    fn consumer(&self) -> u32 {
        0
    }

    fn arm(&self) -> u32 {
        self.0.arm.load(Relaxed)
    }
}

/// The first word of each level of doorbells; all other words are never rung.
struct DbMemory {
    seq: AtomicU32,
    top: AtomicU64,
    leaf: AtomicU64,
    ack_top: AtomicU64,
    ack_leaf: AtomicU64,
    sleeping: AtomicU32,
    /// The program's lock around the top bits.
    lock: Mutex<()>,
}

#[derive(Clone)]
struct LoomDoorbells(Arc<DbMemory>);

impl LoomDoorbells {
    fn new() -> Self {
        Self(Arc::new(DbMemory {
            seq: AtomicU32::new(0),
            top: AtomicU64::new(0),
            leaf: AtomicU64::new(0),
            ack_top: AtomicU64::new(0),
            ack_leaf: AtomicU64::new(0),
            sleeping: AtomicU32::new(0),
            lock: Mutex::new(()),
        }))
    }

    /// Toggles `bit` of `word` if it agrees with its acknowledgement.
    fn toggle(word: &AtomicU64, ack: &AtomicU64, bit: u64) -> bool {
        let agree = (word.load(Relaxed) ^ ack.load(Relaxed)) & bit == 0;
        if agree {
            word.fetch_xor(bit, Relaxed);
        }
        agree
    }

    /// Rings as the ABI has it, and answers whether a kick is due. `lock`: whether the top bit is
    /// compared and toggled in one critical section. The caller is the only one to ring this
    /// doorbell at the time.
    fn ring(&self, doorbell: u32, lock: bool) -> bool {
        let memory = &self.0;
        fence(SeqCst);
        if Self::toggle(&memory.leaf, &memory.ack_leaf, 1 << doorbell) {
            fence(SeqCst);
        }
        {
            let _guard = lock.then(|| memory.lock.lock().unwrap());
            if Self::toggle(&memory.top, &memory.ack_top, 1) {
                fence(SeqCst);
            }
        }
        memory.seq.fetch_add(1, Relaxed);
        fence(SeqCst);
        memory.sleeping.load(Relaxed) != 0
    }
}

impl Doorbells for LoomDoorbells {
    fn seq(&self) -> u32 {
        self.0.seq.load(Acquire)
    }

    fn top(&self, word: usize) -> u64 {
        if word == 0 {
            self.0.top.load(Relaxed)
        } else {
            0
        }
    }

    fn leaf(&self, word: usize) -> u64 {
        assert_eq!(word, 0);
        self.0.leaf.load(Relaxed)
    }

    fn ack_top(&self, word: usize) -> u64 {
        if word == 0 {
            self.0.ack_top.load(Relaxed)
        } else {
            0
        }
    }

    fn ack_leaf(&self, word: usize) -> u64 {
        assert_eq!(word, 0);
        self.0.ack_leaf.load(Relaxed)
    }

    fn set_ack_top(&self, word: usize, value: u64) {
        assert_eq!(word, 0);
        self.0.ack_top.store(value, Relaxed);
    }

    fn set_ack_leaf(&self, word: usize, value: u64) {
        assert_eq!(word, 0);
        self.0.ack_leaf.store(value, Relaxed);
    }

    fn set_sleeping(&self, sleeping: bool) {
        self.0.sleeping.store(u32::from(sleeping), Relaxed);
    }

    fn set_dead(&self) {}
}

#[derive(Default)]
struct Loom {
    events: u32,
}

impl Reorder<NoBytes> for () {
    fn insert(&mut self, _: u32, _: &NoBytes) {}

    fn remove(&mut self, _: u32) -> Option<NoBytes> {
        None
    }

    fn first_from(&self, _: u32) -> Option<u32> {
        None
    }

    fn count(&self) -> u32 {
        0
    }

    fn clear(&mut self) {}
}

impl Packet<NoBytes> for NoBytes {
    fn headers(&self) -> &[u8] {
        &[]
    }

    fn length(&self) -> usize {
        0
    }

    fn crc32(&self, _: u32, _: usize, _: usize) -> Result<u32, Fault> {
        Err(Fault)
    }

    fn copy(&self, _: usize, _: &NoBytes, _: u64, _: usize) -> Result<(), Fault> {
        Err(Fault)
    }
}

impl Host for Loom {
    type Box<T> = Box<T>;
    type Region = NoBytes;
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

    fn now(&mut self) -> u64 {
        0
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
}

fn add<T, R>(
    engine: &mut Engine<Loom>,
    object: T,
    add: impl Fn(&mut Engine<Loom>, Box<T>) -> Result<R, Refused<Box<T>>>,
) -> R {
    let mut object = Box::new(object);
    loop {
        match add(engine, object) {
            Ok(result) => return result,
            Err(Refused {
                error: Error::NeedChunk(need),
                object: refused,
            }) => {
                object = refused;
                engine.add_chunk(need.allocate().unwrap());
            }
            Err(_) => panic!("refused"),
        }
    }
}

/// More than any test needs.
const PLENTY: Budget = Budget {
    requests: 100,
    bytes: 100,
};

/// An engine with a context, a completion queue, and queue pairs that are their own peers.
struct World {
    engine: Engine<Loom>,
    host: Loom,
    context: ContextId,
    doorbells: LoomDoorbells,
    ring: LoomRing,
    queues: Vec<(u32, LoomQueue)>,
}

impl World {
    fn new(qps: usize) -> Self {
        let mut engine = *Engine::<Loom>::new(Config {
            random: 1,
            retries_for_ever: false,
        })
        .unwrap();
        engine.wake();
        let mut host = Loom::default();
        let doorbells = LoomDoorbells::new();
        let context = add(
            &mut engine,
            Context::new(doorbells.clone()),
            Engine::add_context,
        );
        let ring = LoomRing::new();
        let cq = Cq::new(CqInit {
            depth: 4,
            ring: ring.clone(),
            handle: (),
        });
        let cqn = add(&mut engine, cq.unwrap(), Engine::add_cq);
        let layout = |offset| RingLayout {
            offset,
            depth: DEPTH,
            stride: SLOT,
        };
        let mut queues = Vec::new();
        for _ in 0..qps {
            let queue = LoomQueue::new();
            let qp = Qp::<Loom>::new(QpInit {
                context: Some(context),
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
                sq: layout(0),
                rq: layout(DEPTH * SLOT),
                ctrl: CTRL,
                queue: queue.clone(),
                handle: (),
            });
            let number = add(&mut engine, *qp.unwrap(), Engine::add_qp).number;
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

    fn run(&mut self) {
        self.run_first(None);
    }

    /// What a kick does.
    fn kick(&mut self) {
        self.run_first(Some(self.context));
    }

    fn run_first(&mut self, first: Option<ContextId>) {
        assert!(!self.engine.run(&mut self.host, PLENTY, first).more);
    }

    /// What the worker does when it finds no work: it runs until it can sleep.
    fn run_to_sleep(&mut self) {
        loop {
            self.run();
            if self.engine.try_sleep(PLENTY.looks()) == Sleep::Asleep {
                break;
            }
        }
    }

    /// The same with two looks for each run, so that each takes a word or a doorbell or two of them.
    fn step_to_sleep(&mut self) {
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

    /// The names of all completions.
    fn completions(&self) -> Vec<u64> {
        (0..4).map_while(|index| self.ring.poll(index)).collect()
    }
}

fn lead(peer: u32) -> [Modify; 3] {
    let path = Path {
        kind: PathKind::Local,
        sgid_index: 0,
        sgid: [0; 16],
        dgid: [0; 16],
        dmac: [0; 6],
        flow_label: 0,
        hop_limit: 0,
        traffic_class: 0,
        sl: 0,
        static_rate: 0,
    };
    [
        Modify {
            state: Some(State::Init),
            access: Some(Access::REMOTE_WRITE),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rtr),
            path: Some(path),
            path_mtu: Some(Mtu::Mtu1024),
            dest_qpn: Some(peer),
            rq_psn: Some(0),
            max_dest_rd_atomic: Some(0),
            min_rnr_timer: Some(0),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rts),
            sq_psn: Some(0),
            timeout: Some(0),
            retry_cnt: Some(0),
            rnr_retry: Some(0),
            max_rd_atomic: Some(0),
            ..Modify::default()
        },
    ]
}

/// One thread posts twice while the engine goes to sleep: both requests are carried out, by the
/// engine on its own or by a kick.
#[test]
fn post_is_seen_or_kicks() {
    loom::model(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            let mut kick = false;
            for index in 0..2 {
                queue.put_send(index, u64::from(index) + 1);
                // A kick for the first is one for the second, since nobody wakes the engine.
                kick |= doorbells.ring(number, true);
            }
            kick
        });
        world.run_to_sleep();
        if program.join().unwrap() {
            world.kick();
        }
        assert_eq!(world.completions(), [1, 2]);
    });
}

/// One thread posts while the engine, awake, gives up looking at its context: the request is carried out, by a further
/// look or by a kick.
#[test]
fn a_context_is_looked_at_or_kicks() {
    let mut builder = loom::model::Builder::new();
    // Each look is one.
    builder.max_branches = 10_000;
    builder.check(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        let doorbells = world.doorbells.clone();
        // As many looks as leave it two.
        while world.engine.counters().contexts % 1024 != 1022 {
            world.run();
        }
        assert_eq!(world.doorbells.0.sleeping.load(Relaxed), 0);
        let program = thread::spawn(move || {
            queue.put_send(0, 1);
            doorbells.ring(number, true)
        });
        for _ in 0..3 {
            world.run();
        }
        if program.join().unwrap() {
            world.kick();
        } else {
            world.run();
        }
        assert_eq!(world.completions(), [1]);
    });
}

/// One thread posts twice to each of two queue pairs, while the engine takes their doorbells in steps, and between two
/// steps of one scan: all requests are carried out, by the engine on its own or by a kick.
#[test]
fn a_scan_may_pause() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let mut world = World::new(2);
        let queues = world.queues.clone();
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            let mut kick = false;
            for index in 0..2 {
                for (number, queue) in &queues {
                    queue.put_send(index, 2 * u64::from(index) + u64::from(number & 1));
                    kick |= doorbells.ring(*number, true);
                }
            }
            kick
        });
        world.step_to_sleep();
        if program.join().unwrap() {
            world.kick();
        }
        let mut names = world.completions();
        names.sort_unstable();
        assert_eq!(names, [0, 1, 2, 3]);
    });
}

/// Two threads post to two queue pairs whose doorbells share words.
fn two_programs(lock: bool) {
    two_programs_beside(lock, World::run_to_sleep);
}

fn two_programs_beside(lock: bool, engine: fn(&mut World)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut world = World::new(2);
        let programs: Vec<_> = (0..2)
            .map(|i| {
                let (number, queue) = world.queues[i].clone();
                let doorbells = world.doorbells.clone();
                thread::spawn(move || {
                    queue.put_send(0, i as u64 + 1);
                    doorbells.ring(number, lock)
                })
            })
            .collect();
        engine(&mut world);
        let mut kick = false;
        for program in programs {
            kick |= program.join().unwrap();
        }
        if kick {
            world.kick();
        }
        let mut names = world.completions();
        names.sort_unstable();
        assert_eq!(names, [1, 2]);
    });
}

#[test]
fn threads_share_doorbell_words() {
    two_programs(true);
}

#[test]
fn threads_share_doorbell_words_of_a_scan_that_pauses() {
    two_programs_beside(true, World::step_to_sleep);
}

/// What the lock around the top bit is for: without it two toggles undo each other. This also
/// shows that the model finds such a loss.
#[test]
#[should_panic(expected = "left == right")]
fn threads_without_the_lock_lose_a_doorbell() {
    two_programs(false);
}

/// A program arms, fences and polls; the engine completes, fences and looks at the arm word. What
/// the program does not see raises an event.
#[test]
fn completion_is_seen_or_raises_an_event() {
    loom::model(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        queue.put_send(0, 7);
        world.doorbells.ring(number, true);
        let ring = world.ring.clone();
        let program = thread::spawn(move || {
            ring.0.arm.store(1 << abi::CQ_ARM_SN_SHIFT, Relaxed);
            fence(SeqCst);
            ring.poll(0)
        });
        world.run();
        match program.join().unwrap() {
            Some(name) => assert_eq!(name, 7),
            None => assert_eq!(world.host.events, 1),
        }
        assert!(world.host.events <= 1);
    });
}

/// Of two completions, one before and one after an event was taken and the queue armed again, none
/// is missed, and there are no more events than arms.
#[test]
fn arming_again_misses_nothing() {
    loom::model(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        let ring = world.ring.clone();
        ring.0.arm.store(1 << abi::CQ_ARM_SN_SHIFT, Relaxed);
        queue.put_send(0, 1);
        world.doorbells.ring(number, true);
        world.run();
        assert_eq!(world.host.events, 1);
        // The program has taken the event, arms anew and polls, while the next request completes.
        queue.put_send(1, 2);
        world.doorbells.ring(number, true);
        let program = thread::spawn(move || {
            ring.0.arm.store(2 << abi::CQ_ARM_SN_SHIFT, Relaxed);
            fence(SeqCst);
            ring.poll(0).into_iter().chain(ring.poll(1)).count()
        });
        world.run();
        let seen = program.join().unwrap();
        assert!(seen == 2 || world.host.events == 2);
        assert!(world.host.events <= 2);
    });
}

/// A receive request posted while its queue pair enters ERR is flushed: the engine sees it, or the
/// program sees that it has to ring.
#[test]
fn receive_posted_in_error_is_flushed() {
    loom::model(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            if queue.put_recv(0, 9) {
                return doorbells.ring(number, true);
            }
            false
        });
        let error = Modify {
            state: Some(State::Err),
            ..Modify::default()
        };
        let World { engine, host, .. } = &mut world;
        engine.modify_qp(host, number, &error, &mut None).unwrap();
        world.run_to_sleep();
        if program.join().unwrap() {
            world.kick();
        }
        assert_eq!(world.completions(), [9]);
    });
}
