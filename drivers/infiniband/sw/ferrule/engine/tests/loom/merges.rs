// SPDX-License-Identifier: GPL-2.0

//! A kick while its context goes to another shard: what was rung is served, by the kick or by a
//! worker that was woken.
//!
//! The shards and the kick are those of `soft/shards.rs` and `soft/policy.rs`, written here anew,
//! since the kernel's atomics are not loom's. Linux's fully ordered exchanges are barriers as well,
//! which stand here as fences.

use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{fence, AtomicU32, AtomicUsize};
use loom::sync::{Arc, Mutex};
use loom::thread;

const OWNED: u32 = 1;
const MISSED: u32 = 2;

/// An engine, for the owner of its shard.
#[derive(Default)]
struct Engine {
    has_context: bool,
    /// The context has kicked, and is to be looked at.
    is_due: bool,
}

#[derive(Default)]
struct Core {
    word: AtomicU32,
    /// Nobody waits for the lock: only the owner takes it.
    engine: Mutex<Engine>,
    /// The note of a kick that has found the shard owned.
    kicked: AtomicU32,
    /// The worker was woken.
    wanted: AtomicU32,
}

struct Shards {
    cores: [Core; 2],
    /// The shard that has the context.
    owner: AtomicUsize,
    /// The context's doorbell.
    rung: AtomicU32,
}

impl Core {
    /// Becomes the owner, or leaves a note.
    fn try_enter(&self) -> bool {
        let mut noted = false;
        let mut word = self.word.load(Relaxed);
        loop {
            let free = word & OWNED == 0;
            if !free && !noted {
                noted = true;
                self.kicked.swap(1, SeqCst);
                fence(SeqCst);
            }
            let next = if free { OWNED } else { word | MISSED };
            match self.word.compare_exchange(word, next, SeqCst, SeqCst) {
                Ok(_) => break free,
                Err(now) => word = now,
            }
        }
    }

    /// Becomes the owner when nobody else is. Missed calls stay.
    fn enter(&self) {
        loop {
            let word = self.word.load(Relaxed) & !OWNED;
            let next = word | OWNED;
            if (self.word.compare_exchange(word, next, SeqCst, SeqCst)).is_ok() {
                break;
            }
            thread::yield_now();
        }
    }

    /// Gives the shard up, and wakes the worker for a call that was missed.
    fn leave(&self) {
        if self.word.fetch_and(!OWNED, SeqCst) & MISSED != 0 {
            self.wanted.store(1, Relaxed);
        }
        fence(SeqCst);
    }
}

impl Shards {
    fn new() -> Arc<Self> {
        let shards = Shards {
            cores: Default::default(),
            owner: AtomicUsize::new(1),
            rung: AtomicU32::new(0),
        };
        shards.cores[1].engine.try_lock().unwrap().has_context = true;
        Arc::new(shards)
    }

    /// Runs the engine of a shard for those that have kicked, for `first` among them, as its owner.
    fn run(&self, core: &Core, first: bool) {
        let mut engine = core.engine.try_lock().expect("one owner at a time");
        engine.is_due |= core.kicked.swap(0, SeqCst) != 0;
        if engine.has_context && (engine.is_due || first) {
            engine.is_due = false;
            self.rung.store(0, Relaxed);
        }
    }

    fn kick(&self) {
        loop {
            let index = self.owner.load(Relaxed);
            let core = &self.cores[index];
            if core.try_enter() {
                self.run(core, true);
                core.leave();
            }
            fence(SeqCst);
            if self.owner.load(Relaxed) == index {
                break;
            }
        }
    }

    /// Moves the context to the shard 0.
    fn merge(&self) {
        let [into, from] = &self.cores;
        into.enter();
        from.enter();
        let mut engine = into.engine.try_lock().expect("one owner at a time");
        let mut other = from.engine.try_lock().expect("one owner at a time");
        std::mem::swap(&mut *engine, &mut *other);
        self.owner.store(0, Relaxed);
        fence(SeqCst);
        if from.kicked.load(Relaxed) != 0 {
            engine.is_due |= from.kicked.swap(0, SeqCst) != 0;
        }
        drop((engine, other));
        for core in [into, from] {
            core.leave();
            core.wanted.store(1, Relaxed);
        }
    }
}

#[test]
fn a_kick_finds_its_context() {
    // In one interleaving at least the kick meets the merge.
    let has_noted = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let noted = has_noted.clone();
    loom::model(move || {
        let shards = Shards::new();
        let merger = {
            let shards = shards.clone();
            thread::spawn(move || shards.merge())
        };
        shards.rung.store(1, Relaxed);
        shards.kick();
        merger.join().unwrap();
        // Workers that were woken run, in whatever order.
        let is_served = shards.rung.load(Relaxed) == 0;
        for core in &shards.cores {
            if core.wanted.load(Relaxed) != 0 {
                assert!(core.try_enter());
                shards.run(core, false);
            }
        }
        assert_eq!(shards.rung.load(Relaxed), 0);
        if !is_served {
            noted.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(has_noted.load(std::sync::atomic::Ordering::Relaxed));
}
