// SPDX-License-Identifier: GPL-2.0

//! Copy jobs use regions by their replicas, which stay until the jobs end; and engines do not merge
//! before.

use ferrule_engine::Error;

use super::*;
use crate::sim::network::Random;

/// Enough for a job.
pub(super) const LONG: u32 = 16 << 10;

/// A region of twice that.
pub(super) fn region(w: &mut World) -> TestMr {
    let mr = w.mr(2 * LONG as usize);
    mr.fill(5);
    mr
}

/// A WRITE from the first half of a region to the second half of another one.
pub(super) fn write(wr_id: u64, from: &TestMr, to: &TestMr) -> Wr {
    Wr::write(wr_id, &[from.sge(0, LONG)], to.remote(LONG.into()))
}

/// The jobs that there are now.
pub(super) fn jobs(w: &mut World) -> Vec<SimJob> {
    let mut jobs = Vec::new();
    w.run_to_jobs(&mut jobs);
    jobs
}

#[track_caller]
pub(super) fn only_job(w: &mut World) -> SimJob {
    let mut jobs = jobs(w);
    assert_eq!(jobs.len(), 1);
    jobs.pop().unwrap()
}

/// Carries out the job of a request, which a command waits for or not.
#[track_caller]
pub(super) fn end(w: &mut World, user: &Loop, job: SimJob, is_awaited: bool) {
    assert_eq!(w.carry(job), is_awaited);
    w.run();
    let wc = user.cq.poll().expect("no completion");
    assert_eq!(wc.status, Status::Success as u8);
}

/// Engines that take jobs along.
pub(super) fn job_worlds() -> [World; 3] {
    [4, 8, 12].map(|first| {
        let mut w = World::of_blocks(first);
        w.host.has_job_place = true;
        w
    })
}

#[test]
fn a_replica_stays_while_a_job_uses_it() {
    let [mut home, mut w, _] = job_worlds();
    let users = [(); 2].map(|()| Loop::new(&mut w));
    let own = region(&mut w);
    for is_source in [false, true] {
        let mr = region(&mut home);
        replicate(&home, mr.key, &mut w).unwrap();
        let wr = match is_source {
            true => write(1, &mr, &own),
            false => write(1, &own, &mr),
        };
        users[0].post(&mut w, &wr);
        let job = only_job(&mut w);
        assert!(w.engine.is_copying() && !home.engine.is_copying());
        expect_users(&mr, 3);
        expect_replica_in_use(&mut w, mr.key);
        // Nobody else begins one with it meanwhile.
        users[1].post(&mut w, &wr);
        assert!(jobs(&mut w).is_empty());
        users[1].cq.expect(1, Status::Success);
        end(&mut w, &users[0], job, true);
        remove_replica(&mut w, mr.key);
        expect_users(&mr, 1);
        users[0].expect_opened(&mut w, &mr, false);
        drop(home.engine.remove_mr(mr.key).unwrap());
    }
    drop(w.engine.remove_mr(own.key).unwrap());
}

/// Engines with a region and its replica, or with two replicas, and a job that has begun with the
/// one or the other.
#[test]
fn engines_merge_after_jobs_with_replicas() {
    for number in 0..8 {
        let [in_first, into_first, are_both] = [1, 2, 4].map(|bit| number & bit != 0);
        let [mut home, mut w, mut other] = job_worlds();
        let mr = region(&mut home);
        if !are_both {
            std::mem::swap(&mut home, &mut w);
        }
        let users = [&mut w, &mut other].map(Loop::new);
        if are_both {
            replicate(&home, mr.key, &mut w).unwrap();
            replicate(&home, mr.key, &mut other).unwrap();
        } else {
            replicate(&w, mr.key, &mut other).unwrap();
        }
        let (copying, user) = match in_first {
            true => (&mut w, &users[0]),
            false => (&mut other, &users[1]),
        };
        user.post(copying, &write(1, &mr, &mr));
        let job = only_job(copying);
        let before = [&w, &other].map(|w| w.engine.objects());
        let (into, from) = match into_first {
            true => (&mut w, &mut other),
            false => (&mut other, &mut w),
        };
        assert_eq!(into.merge(from), Err(Error::InUse));
        assert_eq!([&w, &other].map(|w| w.engine.objects()), before);
        let copying = if in_first { &mut w } else { &mut other };
        assert!(copying.engine.is_copying());
        // No job begins there until they have merged.
        let beside = Loop::new(copying);
        beside.post(copying, &write(2, &mr, &mr));
        assert!(jobs(copying).is_empty());
        beside.cq.expect(2, Status::Success);
        end(copying, user, job, true);
        assert!(!copying.engine.is_copying());
        let (into, from) = match into_first {
            true => (&mut w, &mut other),
            false => (&mut other, &mut w),
        };
        into.merge(from).unwrap();
        // They begin again, and each ends where it has begun: with the region, or else the first
        // replica.
        for user in [&users[0], &users[1], &beside] {
            user.post(into, &write(3, &mr, &mr));
            let job = only_job(into);
            let mut change = MrChange {
                pd: None,
                access: None,
                memory: None,
            };
            if are_both {
                expect_replica_in_use(into, mr.key);
            } else {
                let refused = into.engine.rereg_mr(mr.key, &mut change);
                assert_eq!(refused, Err(Error::InUse));
            }
            unite(into);
            end(into, user, job, true);
            // The command does not come again, but another one does.
            if are_both {
                remove_replica(into, mr.key);
                replicate(&home, mr.key, into).unwrap();
            } else {
                into.engine.rereg_mr(mr.key, &mut change).unwrap();
            }
        }
        remove_replica(into, mr.key);
        expect_no_replica(into, mr.key);
        let home = if are_both { &mut home } else { into };
        drop(home.engine.remove_mr(mr.key).unwrap());
        expect_users(&mr, 0);
    }
}

/// Where a region and its replica are in one engine, jobs use the region: the replica goes at once,
/// and the region stays.
#[test]
fn jobs_use_a_region_rather_than_its_replica() {
    let [mut home, mut w, mut third] = job_worlds();
    let mr = region(&mut home);
    let user = Loop::new(&mut w);
    replicate(&home, mr.key, &mut w).unwrap();
    w.merge(&mut home).unwrap();
    user.post(&mut w, &write(1, &mr, &mr));
    let job = only_job(&mut w);
    remove_replica(&mut w, mr.key);
    assert_eq!(w.engine.remove_mr(mr.key).err(), Some(Error::InUse));
    w.merge(&mut third).unwrap();
    end(&mut w, &user, job, true);
    drop(w.engine.remove_mr(mr.key).unwrap());
    expect_users(&mr, 0);
}

/// Three engines, each with a region of which the others have replicas. Jobs end late and in any
/// order; engines try to merge and replicas to go between any two steps. In the end all are free.
#[test]
fn merges_come_between_any_two_steps() {
    let mut merged = 0;
    for seed in 1..200 {
        let mut random = Random::new(seed);
        let mut worlds = job_worlds();
        let mut place: [usize; 3] = [0, 1, 2];
        let regions: Vec<_> = worlds.iter_mut().map(region).collect();
        let users: Vec<_> = worlds.iter_mut().map(Loop::new).collect();
        for (home, mr) in regions.iter().enumerate() {
            for other in (0..3).filter(|other| *other != home) {
                let [home, to] = two(&mut worlds, home, other);
                replicate(home, mr.key, to).unwrap();
            }
        }
        let mut waiting: Vec<(usize, SimJob)> = Vec::new();
        let mut posted = [0u64; 3];
        for step in 0..60 {
            // In the last steps the jobs end.
            match if step < 40 { random.below(8) } else { 7 } {
                0..=2 => {
                    let i = random.below(3) as usize;
                    let [from, to] = [0; 2].map(|_| &regions[random.below(3) as usize]);
                    users[i].post(&mut worlds[place[i]], &write(posted[i], from, to));
                    posted[i] += 1;
                }
                3..=4 => {
                    let i = random.below(3) as usize;
                    waiting.extend(jobs(&mut worlds[i]).into_iter().map(|job| (i, job)));
                }
                5 => {
                    let to = random.below(3) as usize;
                    let from = (to + 1 + random.below(2) as usize) % 3;
                    let is_copying = [to, from].map(|i| worlds[i].engine.is_copying());
                    let has = [to, from].map(|i| place.contains(&i));
                    let [into, other] = two(&mut worlds, to, from);
                    let result = into.merge(other);
                    // The contexts have replicas. An engine whose objects have gone has none.
                    let is_refused = is_copying[1] || is_copying[0] && has.contains(&true);
                    assert_eq!(result.is_err(), is_refused);
                    if result.is_ok() {
                        place
                            .iter_mut()
                            .filter(|i| **i == from)
                            .for_each(|i| *i = to);
                        merged += usize::from(has == [true; 2]);
                    }
                }
                6 => {
                    let (i, home) = (random.below(3) as usize, random.below(3) as usize);
                    let key = regions[home].key;
                    let replica = worlds[place[home]].engine.replica(key).ok().unwrap();
                    // It goes, and comes again. A command that was refused does so in the end.
                    let w = &mut worlds[place[i]];
                    if w.engine.remove_replica(key).is_ok() {
                        let added = add_replica(w, replica);
                        assert!(matches!(added, Ok(()) | Err(Error::Busy)));
                    }
                    unite(w);
                }
                _ if !waiting.is_empty() => {
                    let next = random.below(waiting.len() as u64) as usize;
                    let (i, job) = waiting.swap_remove(next);
                    worlds[i].carry(job);
                }
                _ => {
                    for (i, w) in worlds.iter_mut().enumerate() {
                        waiting.extend(jobs(w).into_iter().map(|job| (i, job)));
                    }
                }
            }
        }
        while let Some((i, job)) = waiting.pop() {
            worlds[i].carry(job);
            waiting.extend(jobs(&mut worlds[i]).into_iter().map(|job| (i, job)));
        }
        for w in &mut worlds {
            w.run();
        }
        for (i, user) in users.iter().enumerate() {
            let wcs = user.cq.drain().into_iter();
            let ends: Vec<_> = wcs.map(|wc| (wc.wr_id, wc.status)).collect();
            assert_eq!(
                ends,
                (0..posted[i]).map(|wr_id| (wr_id, 0)).collect::<Vec<_>>()
            );
        }
        let [mut w, rest @ ..] = worlds;
        for mut other in rest {
            w.merge(&mut other).unwrap();
        }
        // Nothing is in use, and no command waits any more.
        assert!(!w.engine.is_copying());
        for mr in &regions {
            while let Ok((replica, _)) = w.engine.remove_replica(mr.key) {
                assert_eq!(replica.key(), mr.key);
            }
            drop(w.engine.remove_mr(mr.key).unwrap());
            expect_users(mr, 0);
        }
        let mr = region(&mut w);
        for user in &users {
            user.post(&mut w, &write(0, &mr, &mr));
            let job = only_job(&mut w);
            end(&mut w, user, job, false);
        }
        drop(w.engine.remove_mr(mr.key).unwrap());
        assert_eq!(w.engine.objects().regions, 0);
    }
    assert!(merged > 100, "{merged}");
}
