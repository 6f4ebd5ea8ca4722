// SPDX-License-Identifier: GPL-2.0

//! Rings beside an engine that looks for bits, as it does when it has missed rings of several queue
//! pairs.

use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use crate::world::World;

/// One thread posts to queue pairs, one after the other.
struct Scene {
    qps: usize,
    /// Those to which it has posted when the engine begins. Then it posts to the others beside the
    /// engine.
    before: &'static [usize],
    beside: &'static [usize],
    /// The engine has looked at those before.
    looked: bool,
    /// The thread leaves out to ring where it may.
    backlog: bool,
}

impl Scene {
    /// All requests are carried out, by the engine on its own or by a kick.
    fn check(self) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let mut world = World::new(self.qps);
            let queues = world.queues.clone();
            let doorbells = world.doorbells.clone();
            let mut posted = vec![0; self.qps];
            let mut names = 0..;
            let mut post = move |qp: usize| {
                let (number, queue) = &queues[qp];
                queue.put_send(posted[qp], names.next().unwrap());
                posted[qp] += 1;
                doorbells.ring(*number, true)
            };
            for &qp in self.before {
                post(qp);
            }
            if self.looked {
                world.run();
            }
            world.doorbells.0.backlog.store(self.backlog, Relaxed);
            let program = thread::spawn(move || {
                // A kick for one is one for all, since nobody wakes the engine.
                self.beside.iter().fold(false, |kick, &qp| kick | post(qp))
            });
            world.run_to_sleep();
            if program.join().unwrap() {
                world.kick();
            }
            let mut names = world.completions();
            names.sort_unstable();
            let all = (self.before.len() + self.beside.len()) as u64;
            assert!(names.into_iter().eq(0..all));
        });
    }
}

/// The next look misses both rings, so it has to find the bits, which the thread has found rung.
#[test]
fn bits_that_are_rung() {
    Scene {
        qps: 2,
        before: &[0, 1],
        beside: &[0, 1],
        looked: false,
        backlog: false,
    }
    .check();
}

/// The first of them toggles its bits.
#[test]
fn bits_at_rest() {
    Scene {
        qps: 3,
        before: &[0, 1],
        beside: &[2, 0],
        looked: false,
        backlog: false,
    }
    .check();
}

/// The ring before was of this doorbell, or of another one.
#[test]
fn rings_that_are_left_out() {
    for (qps, beside) in [(2, &[1, 0]), (3, &[1, 2]), (3, &[2, 1])] {
        Scene {
            qps,
            before: &[0, 1],
            beside,
            looked: false,
            backlog: true,
        }
        .check();
    }
}

/// The engine went by the word alone, and the bit is still rung: that is no ring that it has yet to
/// see.
#[test]
fn a_bit_that_is_left_rung() {
    Scene {
        qps: 2,
        before: &[0],
        beside: &[1, 0],
        looked: true,
        backlog: true,
    }
    .check();
}

/// The scan takes a bit, whose ring is one that the engine has yet to count.
#[test]
fn a_bit_that_is_taken_before_its_ring() {
    Scene {
        qps: 3,
        before: &[0, 1],
        beside: &[2, 2, 0],
        looked: false,
        backlog: true,
    }
    .check();
}
