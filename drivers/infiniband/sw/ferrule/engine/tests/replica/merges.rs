// SPDX-License-Identifier: GPL-2.0

//! Engines become one, with a region and its replica, or with replicas of more than one engine.

use ferrule_engine::{Error, Objects};

use super::*;
use crate::sim::network::Random;

/// Merges two engines, the second one into the first or the other way round; the first one has all
/// then.
fn merge(w: &mut World, other: &mut World, swapped: bool) -> Result<(), Error> {
    if !swapped {
        return w.merge(other).map(drop);
    }
    std::mem::swap(w, other);
    let merged = w.merge(other);
    if merged.is_err() {
        std::mem::swap(w, other);
    }
    merged.map(drop)
}

#[test]
fn a_region_and_its_replica_come_together() {
    for swapped in [false, true] {
        let [mut w, mut other] = worlds();
        let users = [&mut w, &mut other].map(Loop::new);
        let [mr, kept] = [(); 2].map(|()| w.mr(64));
        for mr in [&mr, &kept] {
            replicate(&w, mr.key, &mut other).unwrap();
        }
        merge(&mut w, &mut other, swapped).unwrap();
        assert_eq!(other.engine.objects(), Objects::default());
        assert_eq!(w.engine.objects().regions, 2);
        expect_no_replica(&mut other, mr.key);
        // Both know the region until the host removes the replica.
        expect_users(&mr, 2);
        for user in &users {
            user.expect_opened(&mut w, &mr, true);
        }
        // The region counts then, and not its replica.
        for (pd, is_opened) in [(2, false), (1, true)] {
            let mut change = MrChange {
                pd: Some(pd),
                access: None,
                memory: None,
            };
            w.engine.rereg_mr(kept.key, &mut change).unwrap();
            users[0].expect_opened(&mut w, &kept, is_opened);
        }
        // The other engine can have replicas again.
        assert_eq!(replicate(&w, mr.key, &mut other), Ok(()));
        remove_replica(&mut other, mr.key);
        remove_replica(&mut w, mr.key);
        expect_no_replica(&mut w, mr.key);
        expect_users(&mr, 1);
        for user in &users {
            user.expect_opened(&mut w, &mr, true);
        }
        assert_eq!(w.engine.objects().regions, 2);
        drop(w.engine.remove_mr(mr.key).unwrap());
        expect_users(&mr, 0);
        assert_eq!(w.engine.objects().regions, 1);
        for user in &users {
            user.expect_opened(&mut w, &mr, false);
            user.expect_opened(&mut w, &kept, true);
        }
        // The rest goes with the engine.
        expect_users(&kept, 2);
        drop(w);
        expect_users(&kept, 0);
    }
}

/// Whether the engine takes over another one while a job uses a region: it has no replicas then.
fn merges_beside_a_job(w: &mut World, user: &Loop) -> bool {
    const LONG: u32 = 16 << 10;
    let mr = w.mr(2 * LONG as usize);
    let far = mr.remote(LONG.into());
    w.host.has_job_place = true;
    user.post(w, &Wr::write(7, &[mr.sge(0, LONG)], far));
    let mut jobs = Vec::new();
    w.run_to_jobs(&mut jobs);
    let merged = w.merge(&mut World::of_blocks(12));
    assert_eq!(w.carry(jobs.pop().unwrap()), merged.is_err());
    w.run();
    user.cq.expect(7, Status::Success);
    w.host.has_job_place = false;
    drop(w.engine.remove_mr(mr.key).unwrap());
    // Jobs begin again.
    let again = merged.is_err().then(|| w.merge(&mut World::of_blocks(13)));
    assert!(again.is_none_or(|merged| merged.is_ok()));
    merged.is_ok()
}

/// Replicas of regions in one block, in neighbours and far away: both engines have any of them.
/// Those of a region are looked up until they are one, and go one after the other.
#[test]
fn replicas_of_all_blocks_come_together() {
    let mut random = Random::new(3);
    for _ in 0..100 {
        let mut homes = [20, 21, 70, 900].map(world_at);
        let keys: Vec<_> = homes
            .iter_mut()
            .flat_map(|home| [home.mr(64), home.mr(64)])
            .collect();
        let [mut w, mut other] = worlds();
        let users = [&mut w, &mut other].map(Loop::new);
        let has = [random.below(256), random.below(256)];
        for (number, mr) in keys.iter().enumerate() {
            for (w, has) in [&mut w, &mut other].into_iter().zip(has) {
                if has >> number & 1 != 0 {
                    replicate(&homes[number / 2], mr.key, w).unwrap();
                }
            }
        }
        let is_any = has != [0; 2];
        merge(&mut w, &mut other, random.below(2) != 0).unwrap();
        assert_eq!(w.engine.objects().regions, 0);
        // A few steps, or all, or none.
        let steps = random.below(12) as usize;
        let made = (0..steps).map_while(|_| w.engine.unite_replicas()).count();
        assert!(made <= 10, "one for each part, and one for the tree");
        assert_eq!(merges_beside_a_job(&mut w, &users[0]), !is_any);
        for (number, mr) in keys.iter().enumerate() {
            let count = has.iter().filter(|has| **has >> number & 1 != 0).count();
            let mut left = std::rc::Rc::strong_count(&mr.region.memory) - 2;
            assert!(left == count || left == 1 && count == 2);
            let is_one = made < steps;
            assert!(left <= 1 || !is_one);
            while left != 0 {
                users
                    .iter()
                    .for_each(|user| user.expect_opened(&mut w, mr, true));
                remove_replica(&mut w, mr.key);
                left -= 1;
                expect_users(mr, 1 + left);
            }
            expect_no_replica(&mut w, mr.key);
            expect_no_replica(&mut other, mr.key);
            users
                .iter()
                .for_each(|user| user.expect_opened(&mut w, mr, false));
        }
        unite(&mut w);
        assert!(merges_beside_a_job(&mut w, &users[0]));
        // All numbers are free again.
        for (number, mr) in keys.iter().enumerate() {
            replicate(&homes[number / 2], mr.key, &mut w).unwrap();
            users[0].expect_opened(&mut w, mr, true);
        }
        drop(w);
        keys.iter().for_each(|mr| expect_users(mr, 1));
    }
}
