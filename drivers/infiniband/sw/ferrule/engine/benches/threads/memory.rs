// SPDX-License-Identifier: GPL-2.0

//! Memory that programs of several threads share with the engine: words that are atomic, since
//! nothing else may be shared without unsafe code.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{fence, AtomicU32, AtomicU64};
use std::sync::Arc;

use ferrule_engine::{abi, CompletionRing, Doorbells, Fault, Queue, Region, SharedBytes};
use zerocopy::IntoBytes;

/// The slots of a queue, and their bytes.
pub(crate) const DEPTH: u32 = 64;
pub(crate) const SLOT: u32 = 64;
/// The offset of the control words of a queue pair, behind the slots of both queues.
pub(crate) const CTRL: u32 = 2 * DEPTH * SLOT;

/// The bytes of the control words.
const CTRL_BYTES: u32 = 128;

/// A value that shares no cache line with others, nor the next one, which processors fetch along.
/// In the driver it has a page, or memory that is aligned to its size.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// A box of such a value.
pub(crate) struct ApartBox<T>(Box<Apart<T>>);

impl<T> ApartBox<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(Apart(value)))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0 .0
    }
}

impl<T> Deref for ApartBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0 .0
    }
}

impl<T> DerefMut for ApartBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0 .0
    }
}

const WORD: usize = 4;

fn words(bytes: u32) -> Arc<[AtomicU32]> {
    (0..bytes as usize / WORD)
        .map(|_| AtomicU32::new(0))
        .collect()
}

/// A registered region. Offsets and lengths are multiples of eight.
#[derive(Clone)]
pub(crate) struct SharedRegion(Arc<[AtomicU64]>);

impl SharedRegion {
    pub(crate) fn new(length: u32) -> Self {
        Self((0..length / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn range(&self, offset: u64, length: usize) -> Option<&[AtomicU64]> {
        let from = offset as usize / 8;
        self.0.get(Range {
            start: from,
            end: from + length / 8,
        })
    }
}

impl SharedBytes for SharedRegion {
    fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize) {
        Region::copy(from, from_offset, to, to_offset, length).expect("a job's range");
    }
}

impl Region for SharedRegion {
    type Shared = Self;

    fn share(&self, _: bool) -> Option<Self> {
        Some(self.clone())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        fence(AcqRel);
        let source = from.range(from_offset, length).ok_or(Fault)?;
        let target = to.range(to_offset, length).ok_or(Fault)?;
        for (source, target) in source.iter().zip(target) {
            target.store(source.load(Relaxed), Relaxed);
        }
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

/// The buffer of a queue pair: its slots, and its control words.
#[derive(Clone)]
pub(crate) struct SharedQueue {
    slots: Arc<[AtomicU64]>,
    ctrl: Arc<Apart<[AtomicU32; CTRL_BYTES as usize / WORD]>>,
}

impl SharedQueue {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..CTRL / 8).map(|_| AtomicU64::new(0)).collect(),
            ctrl: Arc::new(Apart(
                [const { AtomicU32::new(0) }; CTRL_BYTES as usize / WORD],
            )),
        }
    }

    /// Writes the bytes of a slot of the send queue.
    pub(crate) fn fill(&self, index: u32, bytes: &[u8]) {
        let first = (index % DEPTH * SLOT) as usize / 8;
        for (word, bytes) in self.slots[first..].iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap()), Relaxed);
        }
    }

    /// Stores the index behind the last request.
    pub(crate) fn publish(&self, producer: u32) {
        self.ctrl.0[0].store(producer, Release);
    }

    fn ctrl(&self, offset: u32) -> &AtomicU32 {
        &self.ctrl.0[(offset - CTRL) as usize / WORD]
    }
}

impl Queue for SharedQueue {
    fn size(&self) -> usize {
        (CTRL + CTRL_BYTES) as usize
    }

    /// Reads whole words: the engine asks for all of a slot's start.
    #[inline]
    fn read(&self, offset: u32, to: &mut [u8]) {
        let words = &self.slots[offset as usize / 8..];
        for (to, word) in to.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
    }

    #[inline]
    fn load(&self, offset: u32) -> u32 {
        self.ctrl(offset).load(Acquire)
    }

    fn store(&self, offset: u32, value: u32) {
        self.ctrl(offset).store(value, Release);
    }
}

/// A completion queue: its slots and its control words.
#[derive(Clone)]
pub(crate) struct SharedRing {
    slots: Arc<[AtomicU32]>,
    consumer: Arc<Apart<AtomicU32>>,
}

const CQE_WORDS: usize = size_of::<abi::Cqe>() / WORD;

impl SharedRing {
    pub(crate) fn new() -> Self {
        Self {
            slots: words(DEPTH * size_of::<abi::Cqe>() as u32),
            consumer: Arc::default(),
        }
    }

    /// Takes the completion of an index, and returns its status.
    pub(crate) fn poll(&self, index: u32) -> Option<u8> {
        let slot = &self.slots[(index % DEPTH) as usize * CQE_WORDS..][..CQE_WORDS];
        let phase = u32::from(index & DEPTH == 0);
        if slot[CQE_WORDS - 1].load(Acquire) & abi::CQE_PHASE != phase {
            return None;
        }
        let mut cqe = [0; size_of::<abi::Cqe>()];
        for (bytes, word) in cqe.chunks_exact_mut(WORD).zip(slot) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        self.consumer.0.store(index + 1, Release);
        let cqe: abi::Cqe = zerocopy::transmute!(cqe);
        Some(cqe.status)
    }
}

impl CompletionRing for SharedRing {
    #[inline]
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        let slot = &self.slots[slot as usize * CQE_WORDS..][..CQE_WORDS - 1];
        for (word, bytes) in slot.iter().zip(cqe.as_bytes().chunks_exact(WORD)) {
            word.store(u32::from_ne_bytes(bytes.try_into().unwrap()), Relaxed);
        }
    }

    #[inline]
    fn publish(&self, slot: u32, phase: u32) {
        self.slots[(slot as usize + 1) * CQE_WORDS - 1].store(phase, Release);
    }

    fn consumer(&self) -> u32 {
        self.consumer.0.load(Acquire)
    }

    fn arm(&self) -> u32 {
        0
    }
}

/// The first word of each level of doorbells. There are few queue pairs, so all other words are
/// never rung.
#[derive(Default)]
struct Words {
    rung: AtomicU64,
    levels: [AtomicU64; 2],
    acks: [AtomicU64; 2],
    sleeping: AtomicU32,
}

/// The doorbells of a context.
#[derive(Clone, Default)]
pub(crate) struct SharedDoorbells(Arc<Apart<Words>>);

impl SharedDoorbells {
    /// Rings, as the only thread of a program.
    pub(crate) fn ring(&self, doorbell: u32) {
        let words = &self.0 .0;
        for (level, bit) in [(1, 1 << doorbell), (0, 1)] {
            let word = words.levels[level].load(Relaxed);
            if (word ^ words.acks[level].load(Relaxed)) & bit == 0 {
                words.levels[level].store(word ^ bit, Release);
            }
            fence(SeqCst);
        }
        let rung = abi::Rung::from_word(words.rung.load(Relaxed));
        words.rung.store(rung.then(doorbell).to_word(), Release);
        fence(SeqCst);
    }

    fn load(words: &[AtomicU64; 2], level: usize, word: usize) -> u64 {
        if word == 0 {
            words[level].load(Relaxed)
        } else {
            0
        }
    }
}

impl Doorbells for SharedDoorbells {
    fn rung(&self) -> abi::Rung {
        abi::Rung::from_word(self.0 .0.rung.load(Acquire))
    }

    fn top(&self, word: usize) -> u64 {
        Self::load(&self.0 .0.levels, 0, word)
    }

    fn leaf(&self, word: usize) -> u64 {
        Self::load(&self.0 .0.levels, 1, word)
    }

    fn set_taken(&self, _: u32) {}

    fn ack_top(&self, word: usize) -> u64 {
        Self::load(&self.0 .0.acks, 0, word)
    }

    fn ack_leaf(&self, word: usize) -> u64 {
        Self::load(&self.0 .0.acks, 1, word)
    }

    fn set_ack_top(&self, _: usize, value: u64) {
        self.0 .0.acks[0].store(value, Relaxed);
    }

    fn set_ack_leaf(&self, _: usize, value: u64) {
        self.0 .0.acks[1].store(value, Relaxed);
    }

    fn set_sleeping(&self, sleeping: bool) {
        self.0 .0.sleeping.store(u32::from(sleeping), Release);
    }

    fn set_dead(&self) {}

    fn has_backlog(&self) -> bool {
        false
    }
}
