// SPDX-License-Identifier: GPL-2.0

//! Kicks that leave work to each other. No work is left in the end, or the worker is woken for it.
//!
//! The shard and the kicks are those of `soft/shard.rs` and `soft/kicks.rs`, written here anew,
//! since the kernel's atomics are not loom's. The engine is a number of requests for each caller.

use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

const OWNED: u32 = 1;
const MISSED: u32 = 2;

/// The engine's work, for the owner of the shard.
struct Engine {
    /// Of each program.
    own: [u32; 2],
    /// Of packets.
    packets: u32,
}

impl Engine {
    fn has_work(&self) -> bool {
        self.own != [0, 0] || self.packets != 0
    }
}

struct Core {
    word: AtomicU32,
    /// Nobody waits for the lock: only the owner takes it.
    engine: Mutex<Engine>,
    inbox: AtomicU32,
    in_progress: AtomicU32,
    left: AtomicU32,
    /// The worker was woken.
    wanted: AtomicU32,
}

impl Core {
    fn new() -> Arc<Self> {
        Arc::new(Core {
            word: AtomicU32::new(0),
            engine: Mutex::new(Engine {
                own: [1, 1],
                packets: 0,
            }),
            inbox: AtomicU32::new(0),
            in_progress: AtomicU32::new(0),
            left: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
        })
    }

    /// Enters, and says whether calls were missed. Else notes that this one was. A caller that
    /// waits sees the shard become free, or gives up: both are cases of the order in which threads
    /// run.
    fn try_enter(&self) -> Option<bool> {
        let mut word = self.word.load(Relaxed);
        loop {
            let free = word & OWNED == 0;
            let next = if free { OWNED } else { word | MISSED };
            match self.word.compare_exchange(word, next, SeqCst, SeqCst) {
                Ok(_) => return free.then_some(word & MISSED != 0),
                Err(now) => word = now,
            }
        }
    }

    /// A turn of the owner, who leaves. Returns whether work is left, and whether a call was
    /// missed.
    fn turn(&self, work: impl FnOnce(&mut Engine)) -> (bool, bool) {
        let mut engine = self.engine.try_lock().expect("one owner at a time");
        engine.packets += self.inbox.swap(0, SeqCst);
        work(&mut engine);
        let more = engine.has_work();
        drop(engine);
        self.left.store(more.into(), Relaxed);
        let word = self.word.fetch_and(!OWNED, SeqCst);
        (more, word & MISSED != 0)
    }

    fn has_others(&self) -> bool {
        self.in_progress.load(Relaxed) > 1
    }

    /// The kick of a program that has posted a request.
    fn kick(&self, program: usize) {
        self.in_progress.fetch_add(1, Relaxed);
        self.serve(program);
        if self.in_progress.fetch_sub(1, SeqCst) == 1 && self.left.load(Relaxed) != 0 {
            self.wanted.store(1, Relaxed);
        }
    }

    /// Does the program's own request, then a turn for others, unless another kick is in progress
    /// and no call was missed.
    fn serve(&self, program: usize) {
        let Some(missed) = self.try_enter() else {
            // The context is noted before. The owner that takes the missed call does its work.
            return;
        };
        let (more, missed) = self.turn(|engine| {
            engine.own[program] = 0;
            if missed {
                engine.own = [0, 0];
            }
        });
        if !more && !missed || !missed && self.has_others() {
            return;
        }
        if self.try_enter().is_none() {
            return;
        }
        let (_, missed) = self.turn(|engine| {
            engine.own = [0, 0];
            engine.packets = engine.packets.saturating_sub(1);
        });
        // The budget for others is spent.
        if missed {
            self.left.store(1, Relaxed);
        }
    }

    /// Packets come in a softirq, whose budget is spent before they are done.
    fn packets(&self, count: u32) {
        self.inbox.fetch_add(count, SeqCst);
        if self.try_enter().is_none() {
            return;
        }
        let (more, missed) = self.turn(|engine| engine.packets = engine.packets.saturating_sub(1));
        if more || missed {
            self.wanted.store(1, Relaxed);
        }
    }
}

/// Two programs kick while packets come, as many as are done at once or more. All is done at the
/// end, or the worker is woken.
fn kicks_beside_packets(packets: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let core = Core::new();
        let kicks: Vec<_> = (0..2)
            .map(|program| {
                let core = core.clone();
                thread::spawn(move || core.kick(program))
            })
            .collect();
        core.packets(packets);
        for kick in kicks {
            kick.join().unwrap();
        }
        let work = core.engine.lock().unwrap().has_work();
        let is_left = work || core.inbox.load(SeqCst) != 0 || core.word.load(SeqCst) != 0;
        assert!(!is_left || core.wanted.load(SeqCst) != 0);
    });
}

#[test]
fn a_packet_beside_two_kicks_is_not_left() {
    kicks_beside_packets(1);
}

#[test]
fn packets_beside_two_kicks_are_not_left() {
    kicks_beside_packets(3);
}
