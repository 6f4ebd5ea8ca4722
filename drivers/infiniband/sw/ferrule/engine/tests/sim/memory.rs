// SPDX-License-Identifier: GPL-2.0

//! The memory of the simulated host: plain vectors behind the engine's traits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ferrule_engine::{
    abi, Asker, CompletionRing, Doorbells, Fault, Presence, Queue, Region, SharedBytes,
};
use zerocopy::IntoBytes;

/// Bytes that a program and the engine share.
pub type Shared = Rc<RefCell<Vec<u8>>>;

pub fn shared(length: usize) -> Shared {
    Rc::new(RefCell::new(vec![0; length]))
}

/// A registered part of a program's memory.
#[derive(Clone)]
pub struct SimRegion {
    pub memory: Shared,
    pub start: usize,
    pub length: usize,
    /// Faults while set, as memory does that cannot be brought in.
    pub broken: Rc<Cell<bool>>,
    /// How often it is to be asked for before it is in memory.
    pub absent: Rc<Cell<u32>>,
    /// The bytes before this are in memory at any rate.
    pub absent_from: Rc<Cell<u64>>,
    /// The names of those that have asked for it.
    pub askers: Rc<RefCell<Vec<Asker>>>,
    /// The bytes for the next fast registrations: start and length.
    pub next: Rc<Cell<Option<(usize, usize)>>>,
    /// The pieces that a fast registration goes through.
    pub pieces: Rc<Cell<u32>>,
}

impl SimRegion {
    fn range(&self, offset: u64, length: usize) -> Result<std::ops::Range<usize>, Fault> {
        let offset = usize::try_from(offset).map_err(|_| Fault)?;
        let end = offset.checked_add(length).ok_or(Fault)?;
        let is_absent = self.absent.get() != 0 && end as u64 > self.absent_from.get();
        if end > self.length || self.broken.get() || is_absent {
            return Err(Fault);
        }
        Ok(self.start + offset..self.start + end)
    }

    /// The bytes from `offset` on.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
        let range = self.range(offset, length)?;
        Ok(self.memory.borrow()[range].to_vec())
    }
}

/// A reference to the bytes of a region, which counts as one more of its memory.
pub struct SimShared {
    memory: Shared,
    start: usize,
    length: usize,
}

impl SharedBytes for SimShared {
    fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize) {
        let range = |side: &Self, offset: u64| {
            let offset = offset as usize;
            assert!(offset + length <= side.length);
            side.start + offset..side.start + offset + length
        };
        let (source, target) = (range(from, from_offset), range(to, to_offset));
        if Rc::ptr_eq(&from.memory, &to.memory) {
            from.memory.borrow_mut().copy_within(source, target.start);
        } else {
            to.memory.borrow_mut()[target].copy_from_slice(&from.memory.borrow()[source]);
        }
    }
}

impl Region for SimRegion {
    type Shared = SimShared;

    /// Memory that faults or may be absent is not shared.
    fn share(&self, _: bool) -> Option<SimShared> {
        let is_there = !self.broken.get() && self.absent.get() == 0;
        is_there.then(|| SimShared {
            memory: self.memory.clone(),
            start: self.start,
            length: self.length,
        })
    }

    /// Memory that may be absent is that of one engine alone.
    fn replica(&self) -> Option<Self> {
        (self.absent.get() == 0).then(|| self.clone())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        let range = self.range(offset, from.len())?;
        self.memory.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        let source = from.range(from_offset, length)?;
        let target = to.range(to_offset, length)?;
        if Rc::ptr_eq(&from.memory, &to.memory) {
            from.memory.borrow_mut().copy_within(source, target.start);
        } else {
            to.memory.borrow_mut()[target].copy_from_slice(&from.memory.borrow()[source]);
        }
        Ok(())
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        let range = self.range(offset, 8)?;
        if range.start % 8 != 0 {
            return Err(Fault);
        }
        let mut memory = self.memory.borrow_mut();
        let old = u64::from_ne_bytes(memory[range.clone()].try_into().unwrap());
        if old == compare {
            memory[range].copy_from_slice(&swap.to_ne_bytes());
        }
        Ok(old)
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        let range = self.range(offset, 8)?;
        if range.start % 8 != 0 {
            return Err(Fault);
        }
        let mut memory = self.memory.borrow_mut();
        let old = u64::from_ne_bytes(memory[range.clone()].try_into().unwrap());
        memory[range].copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
        Ok(old)
    }

    fn store_word(&self, offset: u64, value: u64) -> Result<(), Fault> {
        let range = self.range(offset, 8)?;
        if range.start % 8 != 0 {
            return Err(Fault);
        }
        self.memory.borrow_mut()[range].copy_from_slice(&value.to_ne_bytes());
        Ok(())
    }

    fn page_in(&self, offset: u64, length: u64, _: bool, asker: Asker) -> Presence {
        if !self.broken.get() && offset + length <= self.absent_from.get() {
            return Presence::Present;
        }
        self.askers.borrow_mut().push(asker);
        match self.absent.get() {
            0 if self.broken.get() => Presence::Gone,
            0 => Presence::Present,
            asks => {
                self.absent.set(asks - 1);
                Presence::Coming
            }
        }
    }

    fn renew(&mut self) -> Option<u64> {
        (self.start, self.length) = self.next.get()?;
        Some(self.length as u64)
    }

    fn pieces(&self) -> u32 {
        self.pieces.get()
    }
}

/// The buffer of a queue.
#[derive(Clone)]
pub struct SimQueue {
    pub memory: Shared,
    /// For each byte, how often the engine read it: requests are read once. Empty if nobody wants
    /// to know.
    pub reads: Rc<RefCell<Vec<u32>>>,
    /// The host tells where its datagrams go.
    pub is_hosts: bool,
}

impl SimQueue {
    pub fn new(length: usize) -> Self {
        Self {
            memory: shared(length),
            reads: Rc::new(RefCell::new(vec![0; length])),
            is_hosts: false,
        }
    }

    /// Writes the first bytes of a slot. The engine may read the rest of its start as well, which
    /// the program leaves as it is.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.memory.borrow_mut()[offset..end].copy_from_slice(bytes);
        if let Some(reads) = self
            .reads
            .borrow_mut()
            .get_mut(offset..end.next_multiple_of(64))
        {
            reads.fill(0);
        }
    }

    pub fn word(&self, offset: usize) -> u32 {
        let bytes = self.memory.borrow()[offset..offset + 4].try_into().unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn set_word(&self, offset: usize, value: u32) {
        self.memory.borrow_mut()[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
}

impl Queue for SimQueue {
    fn size(&self) -> usize {
        self.memory.borrow().len()
    }

    fn read(&self, offset: u32, to: &mut [u8]) {
        let range = offset as usize..offset as usize + to.len();
        to.copy_from_slice(&self.memory.borrow()[range.clone()]);
        if let Some(reads) = self.reads.borrow_mut().get_mut(range) {
            reads.iter_mut().for_each(|count| *count += 1);
        }
    }

    fn load(&self, offset: u32) -> u32 {
        self.word(offset as usize)
    }

    fn store(&self, offset: u32, value: u32) {
        self.set_word(offset as usize, value);
    }
}

/// The ring of a completion queue and its control words.
pub struct CqMemory {
    pub ring: RefCell<Vec<u8>>,
    pub consumer: Rc<Cell<u32>>,
    pub arm: Rc<Cell<u32>>,
    /// How often the engine read the consumer's index.
    pub consumer_reads: Cell<u32>,
}

#[derive(Clone)]
pub struct SimRing(pub Rc<CqMemory>);

impl SimRing {
    pub fn new(depth: u32) -> Self {
        Self(Rc::new(CqMemory {
            ring: RefCell::new(vec![0; depth as usize * 64]),
            consumer: Rc::default(),
            arm: Rc::default(),
            consumer_reads: Cell::new(0),
        }))
    }

    /// Another ring with the same control words.
    pub fn resized(&self, depth: u32) -> Self {
        Self(Rc::new(CqMemory {
            ring: RefCell::new(vec![0; depth as usize * 64]),
            consumer: self.0.consumer.clone(),
            arm: self.0.arm.clone(),
            consumer_reads: Cell::new(0),
        }))
    }
}

impl CompletionRing for SimRing {
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        let start = slot as usize * 64;
        self.0.ring.borrow_mut()[start..start + 60].copy_from_slice(&cqe.as_bytes()[..60]);
    }

    fn publish(&self, slot: u32, phase: u32) {
        let start = slot as usize * 64 + 60;
        self.0.ring.borrow_mut()[start..start + 4].copy_from_slice(&phase.to_le_bytes());
    }

    fn consumer(&self) -> u32 {
        self.0.consumer_reads.set(self.0.consumer_reads.get() + 1);
        self.0.consumer.get()
    }

    fn arm(&self) -> u32 {
        self.0.arm.get()
    }
}

/// The doorbell and status areas of a context.
pub struct DbMemory {
    pub rung: Cell<abi::Rung>,
    pub top: RefCell<Vec<u64>>,
    pub leaf: RefCell<Vec<u64>>,
    pub ack_top: RefCell<Vec<u64>>,
    pub ack_leaf: RefCell<Vec<u64>>,
    pub taken: Cell<u32>,
    pub sleeping: Cell<bool>,
    pub backlog: Cell<bool>,
    pub deferred: Cell<bool>,
    pub dead: Cell<bool>,
    /// Words of the lower level that the engine looked at.
    pub leaf_reads: Cell<u32>,
    /// All that the engine looked at: counts, and words of both levels; and its word about its
    /// sleep.
    pub looks: Cell<u32>,
}

#[derive(Clone)]
pub struct SimDoorbells(pub Rc<DbMemory>);

impl SimDoorbells {
    pub fn new() -> Self {
        Self(Rc::new(DbMemory {
            rung: Cell::default(),
            top: RefCell::new(vec![0; abi::DB_TOP_WORDS]),
            leaf: RefCell::new(vec![0; abi::DB_LEAF_WORDS]),
            ack_top: RefCell::new(vec![0; abi::DB_TOP_WORDS]),
            ack_leaf: RefCell::new(vec![0; abi::DB_LEAF_WORDS]),
            taken: Cell::new(0),
            sleeping: Cell::new(false),
            backlog: Cell::new(false),
            deferred: Cell::new(false),
            dead: Cell::new(false),
            leaf_reads: Cell::new(0),
            looks: Cell::new(0),
        }))
    }

    fn looked(&self) {
        self.0.looks.set(self.0.looks.get() + 1);
    }

    /// Rings as a program does, and returns whether it has to kick.
    pub fn ring(&self, doorbell: u32) -> bool {
        let memory = &self.0;
        let rung = memory.rung.get();
        let (word, bit) = (doorbell as usize / 64, 1u64 << (doorbell % 64));
        let differs = (memory.leaf.borrow()[word] ^ memory.ack_leaf.borrow()[word]) & bit != 0;
        let is_behind = memory.taken.get() != rung.count;
        if memory.backlog.get() && differs && rung.doorbell == doorbell as u16 && is_behind {
            return memory.sleeping.get();
        }
        let toggle = |bits: &RefCell<Vec<u64>>, acks: &RefCell<Vec<u64>>, position: u32| {
            let (word, bit) = (position as usize / 64, 1u64 << (position % 64));
            let mut bits = bits.borrow_mut();
            if (bits[word] ^ acks.borrow()[word]) & bit == 0 {
                bits[word] ^= bit;
            }
        };
        toggle(&memory.leaf, &memory.ack_leaf, doorbell);
        toggle(&memory.top, &memory.ack_top, doorbell / 64);
        memory.rung.set(memory.rung.get().then(doorbell));
        memory.sleeping.get()
    }

    /// Rings whatever bits differ: the word does not tell which.
    pub fn ring_bits(&self) {
        self.0.rung.set(abi::Rung {
            count: self.0.rung.get().count.wrapping_add(1),
            ..abi::Rung::default()
        });
    }
}

impl Doorbells for SimDoorbells {
    fn rung(&self) -> abi::Rung {
        self.looked();
        self.0.rung.get()
    }

    fn top(&self, word: usize) -> u64 {
        self.looked();
        self.0.top.borrow()[word]
    }

    fn leaf(&self, word: usize) -> u64 {
        self.looked();
        self.0.leaf_reads.set(self.0.leaf_reads.get() + 1);
        self.0.leaf.borrow()[word]
    }

    fn ack_top(&self, word: usize) -> u64 {
        self.0.ack_top.borrow()[word]
    }

    fn ack_leaf(&self, word: usize) -> u64 {
        self.0.ack_leaf.borrow()[word]
    }

    fn set_ack_top(&self, word: usize, value: u64) {
        self.0.ack_top.borrow_mut()[word] = value;
    }

    fn set_ack_leaf(&self, word: usize, value: u64) {
        self.0.ack_leaf.borrow_mut()[word] = value;
    }

    fn set_taken(&self, count: u32) {
        self.0.taken.set(count);
    }

    fn set_sleeping(&self, sleeping: bool) {
        self.looked();
        self.0.sleeping.set(sleeping);
    }

    fn set_dead(&self) {
        self.0.dead.set(true);
    }

    fn has_backlog(&self) -> bool {
        self.0.backlog.get()
    }

    fn set_deferred(&self, deferred: bool) {
        self.0.deferred.set(deferred);
    }
}
