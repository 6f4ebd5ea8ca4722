// SPDX-License-Identifier: GPL-2.0

//! The end of a copy job against the removal of what it uses.

use ferrule_engine::{Budget, CopyJob, Error};
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::world::World;

/// One thread takes a copy job along and hands it back, while another one removes the region or the
/// queue pair that it uses. A lock stands for the shard, which only one owns at a time.
fn remove_beside_a_job(remove: fn(&mut World, u32) -> Result<(), Error>) {
    // In one interleaving at least there is a job.
    let has_begun = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let begun = has_begun.clone();
    loom::model(move || {
        let begun = begun.clone();
        let mut world = World::new(1);
        let (key, region) = world.region();
        let (number, queue) = world.queues[0].clone();
        queue.put_send(0, 1);
        world.doorbells.ring(number, true);
        let shard = Arc::new((Mutex::new(world), Condvar::new()));
        let other = shard.clone();
        let copier = thread::spawn(move || {
            let (shard, ended) = &*other;
            let run = |world: &mut World| {
                let budget = Budget {
                    requests: 8,
                    bytes: 1 << 20,
                };
                world.engine.run(&mut world.host, budget, None);
                world.host.job.take()
            };
            let job = run(&mut shard.lock().unwrap());
            let Some(job) = job else {
                // The region had gone before.
                return;
            };
            begun.store(true, Relaxed);
            let carried = CopyJob::carry_out(job);
            let mut world = shard.lock().unwrap();
            let World { engine, host, .. } = &mut *world;
            if engine.carried(host, carried) {
                ended.notify_all();
            }
            assert!(run(&mut world).is_none());
        });
        let (shard, ended) = &*shard;
        let mut world = shard.lock().unwrap();
        loop {
            match remove(&mut world, key) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::InUse),
            }
            world = ended.wait(world).unwrap();
        }
        drop(world);
        // All that was copied is over, and is seen to be.
        let pages = &region.0;
        assert_eq!(pages.begun.load(Relaxed), pages.ended.load(Relaxed));
        pages.is_gone.store(1, Relaxed);
        copier.join().unwrap();
    });
    assert!(has_begun.load(Relaxed));
}

#[test]
fn a_region_goes_after_its_job() {
    remove_beside_a_job(|world, key| world.engine.remove_mr(key).map(drop));
}

#[test]
fn a_queue_pair_goes_after_its_job() {
    remove_beside_a_job(|world, _| {
        let number = world.queues[0].0;
        world.engine.remove_qp(number).map(drop)
    });
}
