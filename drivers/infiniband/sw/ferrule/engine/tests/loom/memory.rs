// SPDX-License-Identifier: GPL-2.0

//! Memory that programs and the engine share, of atomics of loom, and the side of the programs.

use ferrule_engine::{abi, CompletionRing, Doorbells, Fault, Queue, Region, SharedBytes};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// No bytes of a packet.
pub(crate) struct NoBytes;

/// The events of the memory of a region, without its bytes.
#[derive(Default)]
pub(crate) struct Pages {
    /// Copies that have begun, and that have ended.
    pub(crate) begun: AtomicU32,
    pub(crate) ended: AtomicU32,
    /// The memory is somebody else's.
    pub(crate) is_gone: AtomicU32,
}

/// A registered region, and references to it for copy jobs.
#[derive(Clone)]
pub(crate) struct LoomRegion(pub(crate) Arc<Pages>);

impl SharedBytes for LoomRegion {
    fn copy(from: &Self, _: u64, to: &Self, _: u64, _: usize) {
        for side in [from, to] {
            side.0.begun.fetch_add(1, Relaxed);
            assert_eq!(side.0.is_gone.load(Relaxed), 0);
        }
        thread::yield_now();
        for side in [from, to] {
            assert_eq!(side.0.is_gone.load(Relaxed), 0);
            side.0.ended.fetch_add(1, Relaxed);
        }
    }
}

impl Region for LoomRegion {
    type Shared = Self;

    fn share(&self, _: bool) -> Option<Self> {
        Some(self.clone())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn copy(from: &Self, from_at: u64, to: &Self, to_at: u64, length: usize) -> Result<(), Fault> {
        SharedBytes::copy(from, from_at, to, to_at, length);
        Ok(())
    }

    fn compare_swap(&self, _: u64, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn fetch_add(&self, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn store_word(&self, _: u64, _: u64) -> Result<(), Fault> {
        Err(Fault)
    }
}

/// The bytes of a message that has any.
pub(crate) const LONG: u32 = 8 * 1024;

pub(crate) const DEPTH: u32 = 2;
pub(crate) const SLOT: u32 = 64;
pub(crate) const CTRL: u32 = 2 * DEPTH * SLOT;

/// The buffer of a queue pair: two slots for sending and two for receiving. Of a slot, only the
/// request's name and the opcode are not zero, and what has to do with the bytes of a message that has some.
pub(crate) struct QpMemory {
    /// The key of a region of [`LONG`] bytes, which all messages bring from there to there; 0 if they have no bytes.
    pub(crate) key: AtomicU32,
    pub(crate) names: [AtomicU64; 4],
    pub(crate) sq_producer: AtomicU32,
    pub(crate) rq_producer: AtomicU32,
    pub(crate) rq_doorbell: AtomicU32,
}

#[derive(Clone)]
pub(crate) struct LoomQueue(pub(crate) Arc<QpMemory>);

impl LoomQueue {
    pub(crate) fn new() -> Self {
        Self(Arc::new(QpMemory {
            key: AtomicU32::new(0),
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            sq_producer: AtomicU32::new(0),
            rq_producer: AtomicU32::new(0),
            rq_doorbell: AtomicU32::new(0),
        }))
    }

    /// Posts the send request of `index`, without ringing.
    pub(crate) fn put_send(&self, index: u32, name: u64) {
        self.0.names[(index % DEPTH) as usize].store(name, Relaxed);
        self.0.sq_producer.store(index + 1, Release);
    }

    /// Posts the receive request of `index`, and returns whether it has to be rung.
    pub(crate) fn put_recv(&self, index: u32, name: u64) -> bool {
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
        let key = self.0.key.load(Relaxed).to_le_bytes();
        if offset % SLOT == 48 {
            to[8..12].copy_from_slice(&LONG.to_le_bytes());
            to[12..].copy_from_slice(&key);
            return;
        }
        let name = self.0.names[(offset / SLOT) as usize].load(Relaxed);
        to[..8].copy_from_slice(&name.to_le_bytes());
        if to.len() == 48 {
            to[8] = abi::wr_opcode::RDMA_WRITE;
            to[9] = abi::wr_flags::SIGNALED;
            to[10] = u8::from(key != [0; 4]);
            to[24..28].copy_from_slice(&key);
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
pub(crate) struct CqMemory {
    pub(crate) names: [AtomicU64; 4],
    pub(crate) phases: [AtomicU32; 4],
    pub(crate) arm: AtomicU32,
}

#[derive(Clone)]
pub(crate) struct LoomRing(pub(crate) Arc<CqMemory>);

impl LoomRing {
    pub(crate) fn new() -> Self {
        Self(Arc::new(CqMemory {
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            phases: std::array::from_fn(|_| AtomicU32::new(0)),
            arm: AtomicU32::new(0),
        }))
    }

    pub(crate) fn poll(&self, index: usize) -> Option<u64> {
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
pub(crate) struct DbMemory {
    pub(crate) seq: AtomicU32,
    pub(crate) top: AtomicU64,
    pub(crate) leaf: AtomicU64,
    pub(crate) ack_top: AtomicU64,
    pub(crate) ack_leaf: AtomicU64,
    pub(crate) sleeping: AtomicU32,
    /// The program's hint, which each case sets once.
    pub(crate) backlog: AtomicBool,
    /// The program's lock around the top bits.
    pub(crate) lock: Mutex<()>,
}

#[derive(Clone)]
pub(crate) struct LoomDoorbells(pub(crate) Arc<DbMemory>);

impl LoomDoorbells {
    pub(crate) fn new() -> Self {
        Self(Arc::new(DbMemory {
            seq: AtomicU32::new(0),
            top: AtomicU64::new(0),
            leaf: AtomicU64::new(0),
            ack_top: AtomicU64::new(0),
            ack_leaf: AtomicU64::new(0),
            sleeping: AtomicU32::new(0),
            backlog: AtomicBool::new(false),
            lock: Mutex::new(()),
        }))
    }

    /// Toggles `bit` of `word` if it agrees with its acknowledgement.
    pub(crate) fn toggle(word: &AtomicU64, ack: &AtomicU64, bit: u64) -> bool {
        let agree = (word.load(Relaxed) ^ ack.load(Relaxed)) & bit == 0;
        if agree {
            word.fetch_xor(bit, Relaxed);
        }
        agree
    }

    /// Rings as the ABI has it, and returns whether a kick is due. `lock`: whether the top bit is
    /// compared and toggled in one critical section. The caller is the only one to ring this
    /// doorbell at the time.
    pub(crate) fn ring(&self, doorbell: u32, lock: bool) -> bool {
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

    /// Rings for a device that is kicked by a message, and returns whether the caller has to send it: only the first
    /// caller that finds the engine asleep has to, since it clears `sleeping`.
    pub(crate) fn ring_by_message(&self, doorbell: u32) -> bool {
        if !self.ring(doorbell, true) {
            return false;
        }
        fence(SeqCst);
        let sleeping = self.0.sleeping.swap(0, Relaxed);
        fence(SeqCst);
        sleeping != 0
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

    /// The engine stores this word. Here it swaps it, since loom orders a store only behind those that its thread has seen:
    /// a program could read a peer's swapped 0 after a later 1 of the engine's. Coherence forbids that, since the swap
    /// follows what it has read at once, and loom does order swaps. A relaxed one orders nothing else.
    fn set_sleeping(&self, sleeping: bool) {
        self.0.sleeping.swap(u32::from(sleeping), Relaxed);
    }

    fn set_dead(&self) {}

    fn has_backlog(&self) -> bool {
        self.0.backlog.load(Relaxed)
    }
}
