// SPDX-License-Identifier: GPL-2.0

//! The protocols between programs and the engine, in every interleaving and with every reordering
//! that memory may show: doorbells and their acknowledgement, sleep and kick, the arming of
//! completion queues, and receive requests posted in error. And the end of a copy job against the
//! removal of what it uses; and kicks that leave work to each other, and that find their context
//! while shards merge.
//!
//! The engine under test is the engine itself, on memory of loom's atomics. The programs' side is
//! written here as the head of `ferrule-abi.h` tells it. Run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom
//! ```

#![cfg(loom)]

mod copy_jobs;
mod kicks;
#[path = "../local.rs"]
mod local;
mod memory;
mod merges;
mod scans;
mod world;

use ferrule_engine::{abi, Modify, State, Status};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{fence, AtomicU32};
use loom::sync::{Arc, Mutex};
use loom::thread;
use world::World;

/// One thread posts twice while the engine goes to sleep: both requests are carried out, by the
/// engine on its own or by a kick. With `backlog`, the second may go without a ring of its own.
fn post_while_it_falls_asleep(backlog: bool) {
    loom::model(move || {
        let mut world = World::new(1);
        world.doorbells.0.backlog.store(backlog, Relaxed);
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

#[test]
fn post_is_seen_or_kicks() {
    post_while_it_falls_asleep(false);
}

#[test]
fn post_of_a_backlog_is_seen_or_kicks() {
    post_while_it_falls_asleep(true);
}

/// One thread posts while the engine goes to sleep whatever is rung: the request is carried out, by
/// the next run or by a kick.
#[test]
fn post_beside_an_engine_that_gives_way() {
    loom::model(|| {
        let mut world = World::new(1);
        let (number, queue) = world.queues[0].clone();
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            queue.put_send(0, 1);
            doorbells.ring(number, true)
        });
        world.give_way();
        if program.join().unwrap() {
            world.kick();
        }
        assert_eq!(world.completions(), [1]);
    });
}

/// One thread posts while the engine, awake, gives up looking at its context: the request is
/// carried out, by a further look or by a kick.
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

/// One thread posts while a kick of another begins to defer kicks: the request is carried out by
/// that kick or by one more, now or when the program waits, and not by the timer.
#[test]
fn post_beside_the_beginning_of_a_deferral() {
    loom::model(|| {
        let mut world = World::new(1);
        world.run_to_sleep();
        world.doorbells.0.backlog.store(true, Relaxed);
        let (number, queue) = world.queues[0].clone();
        queue.put_send(0, 1);
        assert!(world.doorbells.ring(number, true));
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            queue.put_send(1, 2);
            doorbells.ring(number, true) || doorbells.is_deferred()
        });
        world.kick();
        if program.join().unwrap() {
            world.kick();
        }
        assert_eq!(world.completions(), [1, 2]);
    });
}

/// One thread posts while the timer ends the deferral of its kicks: the request is carried out, by
/// the engine on its own or by a kick. With `backlog`, the deferral goes on where the doorbell was
/// rung in time.
fn post_beside_the_end_of_a_deferral(backlog: bool) {
    loom::model(move || {
        let mut world = World::new(1);
        world.run_to_sleep();
        world.doorbells.0.backlog.store(true, Relaxed);
        let (number, queue) = world.queues[0].clone();
        queue.put_send(0, 1);
        assert!(world.doorbells.ring(number, true));
        world.kick();
        assert_eq!(world.doorbells.0.sleeping.load(Relaxed), 0);
        world.doorbells.0.backlog.store(backlog, Relaxed);
        let doorbells = world.doorbells.clone();
        let program = thread::spawn(move || {
            queue.put_send(1, 2);
            doorbells.ring(number, true)
        });
        world.fire_timer();
        if program.join().unwrap() {
            world.kick();
        }
        while world.engine.deadline().is_some() {
            world.fire_timer();
        }
        assert_eq!(world.completions(), [1, 2]);
        assert_eq!(world.doorbells.0.sleeping.load(Relaxed), 1);
    });
}

#[test]
fn post_beside_the_end_of_a_deferral_that_may_go_on() {
    post_beside_the_end_of_a_deferral(true);
}

#[test]
fn post_beside_the_end_of_a_deferral_for_good() {
    post_beside_the_end_of_a_deferral(false);
}

/// One thread posts twice to each of two queue pairs, while the engine takes their doorbells in
/// steps, and between two steps of one scan: all requests are carried out, by the engine on its own
/// or by a kick.
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

/// Two threads post while the engine falls asleep or sleeps, and kick by messages, which the first
/// of them alone sends and the engine has later: both requests are carried out.
fn kicks_by_messages(before: fn(&mut World), meanwhile: fn(&mut World)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut world = World::new(2);
        before(&mut world);
        let sent = Arc::new(AtomicU32::new(0));
        let programs: Vec<_> = (0..2)
            .map(|i| {
                let (number, queue) = world.queues[i].clone();
                let (doorbells, sent) = (world.doorbells.clone(), sent.clone());
                thread::spawn(move || {
                    queue.put_send(0, i as u64 + 1);
                    if doorbells.ring_by_message(number) {
                        // As a message, it comes after what was stored before.
                        sent.fetch_add(1, Release);
                    }
                })
            })
            .collect();
        meanwhile(&mut world);
        // One may have come by now.
        let served = sent.load(Acquire).min(1);
        if served != 0 {
            world.kick_by_message();
        }
        for program in programs {
            program.join().unwrap();
        }
        for _ in served..sent.load(Relaxed) {
            world.kick_by_message();
        }
        let mut names = world.completions();
        names.sort_unstable();
        assert_eq!(names, [1, 2]);
    });
}

#[test]
fn kicks_by_messages_of_threads_while_it_falls_asleep() {
    kicks_by_messages(|_| (), World::run_to_sleep);
}

#[test]
fn kicks_by_messages_of_threads_while_it_sleeps() {
    kicks_by_messages(World::run_to_sleep, |_| ());
}

#[test]
fn threads_share_doorbell_words() {
    two_programs(true);
}

#[test]
fn threads_share_doorbell_words_of_a_scan_that_pauses() {
    two_programs_beside(true, World::step_to_sleep);
}

/// Two threads post to one queue pair, and ring when they have let go of its lock: each compares
/// the bit while the other may toggle it. With `backlog`, each leaves out to ring where it may.
fn ring_one_doorbell(backlog: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut world = World::new(1);
        world.doorbells.0.backlog.store(backlog, Relaxed);
        let posted = Arc::new(Mutex::new(0));
        let programs: Vec<_> = (0..2)
            .map(|_| {
                let (number, queue) = world.queues[0].clone();
                let (doorbells, posted) = (world.doorbells.clone(), posted.clone());
                thread::spawn(move || {
                    let mut index = posted.lock().unwrap();
                    queue.put_send(*index, u64::from(*index) + 1);
                    *index += 1;
                    drop(index);
                    doorbells.ring(number, true)
                })
            })
            .collect();
        world.run_to_sleep();
        let mut kick = false;
        for program in programs {
            kick |= program.join().unwrap();
        }
        if kick {
            world.kick();
        }
        assert_eq!(world.completions(), [1, 2]);
    });
}

#[test]
fn threads_share_a_doorbell() {
    ring_one_doorbell(false);
}

#[test]
fn threads_with_a_backlog_share_a_doorbell() {
    ring_one_doorbell(true);
}

/// The lock around the top bit is needed: without it two toggles undo each other. This also shows
/// that the model finds such a loss.
#[test]
#[should_panic(expected = "left == right")]
fn threads_without_the_lock_lose_a_doorbell() {
    two_programs(false);
}

/// A program arms, fences and polls; the engine completes, fences and looks at the arm word. A
/// completion that the program does not see raises an event.
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
        assert_eq!(world.ended(Status::Flushed), [9]);
    });
}

/// A program sees a message in its memory, and acquires it: then it sees the one before as well. It
/// needs no completion.
#[test]
fn messages_are_seen_in_their_order() {
    loom::model(|| {
        let mut world = World::new(1);
        let (_, region) = world.region();
        let (number, queue) = world.queues[0].clone();
        queue.0.length.store(memory::WORD, Relaxed);
        queue.put_send(0, 1);
        queue.put_send(1, 2);
        world.doorbells.ring(number, true);
        let pages = region.clone();
        let program = thread::spawn(move || {
            let words = &pages.0.words;
            let later = words[1].load(Acquire);
            (words[0].load(Relaxed), later)
        });
        world.run();
        assert_ne!(program.join().unwrap(), (0, 1));
        let words = region.0.words.each_ref().map(|word| word.load(Relaxed));
        assert_eq!(words, [1, 1]);
        assert_eq!(world.completions(), [1, 2]);
    });
}
