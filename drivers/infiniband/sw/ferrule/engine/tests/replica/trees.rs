// SPDX-License-Identifier: GPL-2.0

//! Engines that have replicas of one region become one, which has several then until its trees have
//! come together.

use ferrule_engine::Error;

use super::{
    copy_jobs::{end, job_worlds, only_job, region, write},
    *,
};

/// Engines that have become one in this order, each with a replica of a region; and their queue
/// pairs.
fn together(order: [usize; 3]) -> (World, World, TestMr, Vec<Loop>) {
    let mut home = World::of_blocks(20);
    let mr = region(&mut home);
    let mut worlds = job_worlds();
    let users: Vec<_> = worlds.iter_mut().map(Loop::new).collect();
    for w in &mut worlds {
        replicate(&home, mr.key, w).unwrap();
    }
    let [first, rest @ ..] = order;
    for from in rest {
        let [into, from] = two(&mut worlds, first, from);
        into.merge(from).unwrap();
    }
    let mut worlds = worlds.into_iter();
    (home, worlds.nth(first).unwrap(), mr, users)
}

/// Whatever steps have been taken, the region is opened, and the replicas go one after the other.
#[test]
fn any_replica_opens_the_region() {
    for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0]] {
        for steps in 0..4 {
            let (home, mut w, mr, users) = together(order);
            // Each frees a further tree.
            let made = (0..steps).map_while(|_| w.engine.unite_replicas()).count();
            assert_eq!(made, steps.min(2));
            let left = 3 - made;
            expect_users(&mr, 1 + left);
            assert_eq!(replicate(&home, mr.key, &mut w), Err(Error::Busy));
            for left in (0..left).rev() {
                for user in &users {
                    user.expect_opened(&mut w, &mr, true);
                }
                remove_replica(&mut w, mr.key);
                expect_users(&mr, 1 + left);
            }
            expect_no_replica(&mut w, mr.key);
            users[0].expect_opened(&mut w, &mr, false);
            assert_eq!(unite(&mut w), 0, "an empty tree goes at once");
            replicate(&home, mr.key, &mut w).unwrap();
            users[0].expect_opened(&mut w, &mr, true);
        }
    }
}

/// Of two replicas that come together one goes at once, though the host has yet to drop the memory
/// of the tree.
#[test]
fn no_replica_is_left_in_memory_that_is_not_needed() {
    let (_home, mut w, mr, _) = together([0, 1, 2]);
    for replicas in [2, 1] {
        let left = w.engine.unite_replicas();
        assert!(left.is_some());
        expect_users(&mr, 1 + replicas);
    }
    remove_replica(&mut w, mr.key);
    expect_users(&mr, 1);
}

/// A job ends where it has begun, though trees come together meanwhile.
#[test]
fn jobs_use_the_first_replica() {
    for steps in 0..3 {
        let (_home, mut w, mr, users) = together([1, 0, 2]);
        users[2].post(&mut w, &write(1, &mr, &mr));
        let job = only_job(&mut w);
        for _ in 0..steps {
            assert!(w.engine.unite_replicas().is_some());
            expect_replica_in_use(&mut w, mr.key);
        }
        expect_replica_in_use(&mut w, mr.key);
        end(&mut w, &users[2], job, true);
        // The next one is found then.
        for _ in 1..3 - steps {
            remove_replica(&mut w, mr.key);
            users[0].post(&mut w, &write(2, &mr, &mr));
            let job = only_job(&mut w);
            expect_replica_in_use(&mut w, mr.key);
            end(&mut w, &users[0], job, true);
        }
        remove_replica(&mut w, mr.key);
        expect_no_replica(&mut w, mr.key);
        expect_users(&mr, 1);
    }
}

/// A leaf, a part of the top, or an entry goes over as it is, with the job that uses it.
#[test]
fn replicas_go_over_while_a_job_uses_them() {
    for (first, second) in [(20, 20), (20, 21), (20, 900)] {
        let mut homes = vec![world_at(first)];
        let near = homes[0].mr(64);
        if second != first {
            homes.push(world_at(second));
        }
        let home = homes.last_mut().unwrap();
        let mr = region(home);
        let [mut w, mut other, _] = job_worlds();
        let user = Loop::new(&mut other);
        replicate(&homes[0], near.key, &mut w).unwrap();
        replicate(homes.last().unwrap(), mr.key, &mut other).unwrap();
        w.merge(&mut other).unwrap();
        user.post(&mut w, &write(1, &mr, &mr));
        let job = only_job(&mut w);
        assert_eq!(unite(&mut w), 1);
        expect_users(&mr, 3 + 1);
        expect_replica_in_use(&mut w, mr.key);
        end(&mut w, &user, job, true);
        remove_replica(&mut w, mr.key);
        user.expect_opened(&mut w, &near, true);
        remove_replica(&mut w, near.key);
        for mr in [&mr, &near] {
            expect_users(mr, 1);
        }
    }
}
