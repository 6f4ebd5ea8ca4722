// SPDX-License-Identifier: GPL-2.0

//! Memory that programs and the engine share, of atomics of loom, and the side of the programs.

use ferrule_engine::{abi, CompletionRing, Doorbells, Fault, Queue, Region, SharedBytes};
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The events of the memory of a region, and words in the place of its bytes.
#[derive(Default)]
pub(crate) struct Pages {
    /// Copies that have begun, and that have ended.
    pub(crate) begun: AtomicU32,
    pub(crate) ended: AtomicU32,
    /// The memory is somebody else's.
    pub(crate) is_gone: AtomicU32,
    /// Words, as messages of a [`WORD`] bring them.
    pub(crate) words: [AtomicU64; 2],
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

    /// A message of a [`WORD`] stores it. This is the order that each host owes, and that
    /// `memory.rs` of the crate rdma has.
    fn copy(from: &Self, from_at: u64, to: &Self, to_at: u64, length: usize) -> Result<(), Fault> {
        if length != WORD as usize {
            SharedBytes::copy(from, from_at, to, to_at, length);
            return Ok(());
        }
        fence(AcqRel);
        to.0.words[to_at as usize / length].store(1, Relaxed);
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

/// The bytes of a message that has any: of one that becomes a copy job, and of one that does not.
pub(crate) const LONG: u32 = 8 * 1024;
pub(crate) const WORD: u32 = 8;

pub(crate) const DEPTH: u32 = 2;
pub(crate) const SLOT: u32 = 64;
pub(crate) const CTRL: u32 = 2 * DEPTH * SLOT;

/// The buffer of a queue pair: two slots for sending and two for receiving. Of a slot, only the
/// request's name and the opcode are not zero, and what has to do with the bytes of a message that
/// has some.
pub(crate) struct QpMemory {
    /// The key of a region of [`LONG`] bytes, from which and to which all messages bring so many; 0
    /// if they have no bytes.
    pub(crate) key: AtomicU32,
    /// [`LONG`], or [`WORD`]: then each slot's message has the word of its number.
    pub(crate) length: AtomicU32,
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
            length: AtomicU32::new(LONG),
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

    /// Puts the bytes of a message into its slot, if it has any: where they come from and go to.
    fn put_bytes(&self, slot: &mut [u8; SLOT as usize], number: u32) {
        let key = self.0.key.load(Relaxed);
        if key == 0 {
            return;
        }
        let length = self.0.length.load(Relaxed);
        let at = if length == WORD { number * WORD } else { 0 };
        slot[10] = 1;
        slot[16..20].copy_from_slice(&at.to_le_bytes());
        slot[24..28].copy_from_slice(&key.to_le_bytes());
        slot[48..52].copy_from_slice(&at.to_le_bytes());
        slot[56..60].copy_from_slice(&length.to_le_bytes());
        slot[60..].copy_from_slice(&key.to_le_bytes());
    }
}

impl Queue for LoomQueue {
    fn size(&self) -> usize {
        CTRL as usize + 128
    }

    fn read(&self, offset: u32, to: &mut [u8]) {
        let number = offset / SLOT;
        let mut slot = [0; SLOT as usize];
        let name = self.0.names[number as usize].load(Relaxed);
        slot[..8].copy_from_slice(&name.to_le_bytes());
        if number < DEPTH {
            slot[8] = abi::wr_opcode::RDMA_WRITE;
            slot[9] = abi::wr_flags::SIGNALED;
            self.put_bytes(&mut slot, number);
        }
        to.copy_from_slice(&slot[(offset % SLOT) as usize..][..to.len()]);
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

/// The slots of a completion queue, which no test fills twice.
pub(crate) const COMPLETIONS: usize = 8;

/// A completion queue.
pub(crate) struct CqMemory {
    pub(crate) names: [AtomicU64; COMPLETIONS],
    pub(crate) statuses: [AtomicU32; COMPLETIONS],
    pub(crate) phases: [AtomicU32; COMPLETIONS],
    pub(crate) arm: AtomicU32,
}

#[derive(Clone)]
pub(crate) struct LoomRing(pub(crate) Arc<CqMemory>);

impl LoomRing {
    pub(crate) fn new() -> Self {
        Self(Arc::new(CqMemory {
            names: std::array::from_fn(|_| AtomicU64::new(0)),
            statuses: std::array::from_fn(|_| AtomicU32::new(0)),
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
        self.0.statuses[slot as usize].store(cqe.status.into(), Relaxed);
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
    pub(crate) rung: AtomicU64,
    pub(crate) top: AtomicU64,
    pub(crate) leaf: AtomicU64,
    pub(crate) ack_top: AtomicU64,
    pub(crate) ack_leaf: AtomicU64,
    pub(crate) taken: AtomicU32,
    pub(crate) sleeping: AtomicU32,
    pub(crate) deferred: AtomicU32,
    /// The program's hint, which each case sets once: then it leaves out to ring where it may.
    pub(crate) backlog: AtomicBool,
    /// The program's lock around the top bits.
    pub(crate) lock: Mutex<()>,
}

#[derive(Clone)]
pub(crate) struct LoomDoorbells(pub(crate) Arc<DbMemory>);

impl LoomDoorbells {
    pub(crate) fn new() -> Self {
        Self(Arc::new(DbMemory {
            rung: AtomicU64::new(0),
            top: AtomicU64::new(0),
            leaf: AtomicU64::new(0),
            ack_top: AtomicU64::new(0),
            ack_leaf: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            deferred: AtomicU32::new(0),
            backlog: AtomicBool::new(false),
            lock: Mutex::new(()),
        }))
    }

    /// Whether the engine has answered to all toggles of a bit.
    fn at_rest(word: &AtomicU64, ack: &AtomicU64, bit: u64) -> bool {
        (word.load(Relaxed) ^ ack.load(Relaxed)) & bit == 0
    }

    /// A load and a store: only the lock keeps others away.
    fn toggle(word: &AtomicU64, bit: u64) {
        word.store(word.load(Relaxed) ^ bit, Release);
    }

    /// Rings as the provider does (`ferrule_db_ring()`), with its accesses and its orders and none
    /// that is stronger, and returns whether a kick is due. Without `lock`, nothing keeps threads
    /// from each other.
    pub(crate) fn ring(&self, doorbell: u32, lock: bool) -> bool {
        if !(self.0.backlog.load(Relaxed) && self.is_rung(doorbell)) {
            let toggled = self.toggle_bits(doorbell, lock);
            self.count(doorbell);
            if !toggled && self.toggle_bits(doorbell, lock) {
                self.count(doorbell);
            }
        }
        self.0.sleeping.load(Acquire) != 0
    }

    /// Whether the kick that [`ring`](Self::ring) has not asked for is given when the program
    /// waits: the end of `ferrule_db_ring()`.
    pub(crate) fn is_deferred(&self) -> bool {
        self.0.deferred.load(Relaxed) != 0
    }

    /// `ferrule_db_is_rung()`.
    fn is_rung(&self, doorbell: u32) -> bool {
        let memory = &self.0;
        fence(SeqCst);
        let rung = abi::Rung::from_word(memory.rung.load(Relaxed));
        u32::from(rung.doorbell) == doorbell
            && (memory.taken.load(Relaxed).wrapping_sub(rung.count) as i32) < 0
            && !Self::at_rest(&memory.leaf, &memory.ack_leaf, 1 << doorbell)
    }

    /// `ferrule_db_toggle_bits()`.
    fn toggle_bits(&self, doorbell: u32, lock: bool) -> bool {
        let memory = &self.0;
        let bit = 1 << doorbell;
        if !Self::at_rest(&memory.leaf, &memory.ack_leaf, bit) {
            return false;
        }
        let _guard = lock.then(|| memory.lock.lock().unwrap());
        if !Self::at_rest(&memory.leaf, &memory.ack_leaf, bit) {
            return false;
        }
        Self::toggle(&memory.leaf, bit);
        fence(SeqCst);
        if Self::at_rest(&memory.top, &memory.ack_top, 1) {
            Self::toggle(&memory.top, 1);
        }
        true
    }

    /// `ferrule_db_count()`.
    fn count(&self, doorbell: u32) {
        let _ = self.0.rung.fetch_update(Release, Relaxed, |word| {
            Some(abi::Rung::from_word(word).then(doorbell).to_word())
        });
        fence(SeqCst);
    }

    /// Rings for a device that is kicked by a message, and returns whether the caller has to send
    /// it: only the first caller that finds the engine asleep has to, since it clears `sleeping`.
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
    fn rung(&self) -> abi::Rung {
        abi::Rung::from_word(self.0.rung.load(Acquire))
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

    fn set_taken(&self, count: u32) {
        self.0.taken.store(count, Relaxed);
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

    /// The engine stores this word. Here it swaps it, since loom orders a store only behind those
    /// that its thread has seen: a program could read a peer's swapped 0 after a later 1 of the
    /// engine's. Coherence forbids that, since the swap follows what it has read at once, and loom
    /// does order swaps. It orders nothing else that a store with release semantics does not.
    fn set_sleeping(&self, sleeping: bool) {
        self.0.sleeping.swap(u32::from(sleeping), Release);
    }

    fn set_dead(&self) {}

    fn has_backlog(&self) -> bool {
        self.0.backlog.load(Relaxed)
    }

    fn set_deferred(&self, deferred: bool) {
        self.0.deferred.store(deferred.into(), Relaxed);
    }
}
