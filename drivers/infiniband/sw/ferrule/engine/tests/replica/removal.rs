// SPDX-License-Identifier: GPL-2.0

//! Replicas go, and the region, with copy jobs under way on any; and merges that wait for these.

use ferrule_engine::Error;

use super::{
    copy_jobs::{end, job_worlds, only_job, region, write},
    *,
};

/// A job with a region in its engine, and one with a replica in another one: each stays until its
/// own job ends.
#[test]
fn region_and_replica_wait_for_their_own_jobs() {
    for home_first in [false, true] {
        let [mut home, mut w, _] = job_worlds();
        let users = [&mut home, &mut w].map(Loop::new);
        let mr = region(&mut home);
        replicate(&home, mr.key, &mut w).unwrap();
        let mut under_way = Vec::new();
        for (user, w) in users.iter().zip([&mut home, &mut w]) {
            user.post(w, &write(1, &mr, &mr));
            under_way.push(only_job(w));
        }
        let [here, there] = <[SimJob; 2]>::try_from(under_way).ok().unwrap();
        let in_use = |home: &mut World| {
            let refused = home.engine.remove_mr(mr.key).err();
            assert_eq!(refused, Some(Error::InUse));
        };
        in_use(&mut home);
        if home_first {
            end(&mut home, &users[0], here, true);
            drop(home.engine.remove_mr(mr.key).unwrap());
            users[0].expect_opened(&mut home, &mr, false);
            expect_replica_in_use(&mut w, mr.key);
            end(&mut w, &users[1], there, true);
        } else {
            expect_replica_in_use(&mut w, mr.key);
            end(&mut w, &users[1], there, true);
            in_use(&mut home);
            end(&mut home, &users[0], here, true);
            drop(home.engine.remove_mr(mr.key).unwrap());
        }
        remove_replica(&mut w, mr.key);
        users[1].expect_opened(&mut w, &mr, false);
        expect_users(&mr, 0);
    }
}

/// A region that is about to go gets no replica any more, and is otherwise what it was; one that is
/// refused has no effect.
#[test]
fn no_replica_of_a_region_that_is_leaving() {
    let [mut home, mut w, mut other] = job_worlds();
    let users = [&mut home, &mut w].map(Loop::new);
    let mr = region(&mut home);
    replicate(&home, mr.key, &mut w).unwrap();
    home.engine.begin_removal(mr.key ^ 0x100);
    replicate(&home, mr.key, &mut other).unwrap();
    remove_replica(&mut other, mr.key);
    for _ in 0..2 {
        home.engine.begin_removal(mr.key);
        assert_eq!(replicate(&home, mr.key, &mut other), Err(Error::NotFound));
    }
    for (user, w) in users.iter().zip([&mut home, &mut w]) {
        user.expect_opened(w, &mr, true);
    }
    assert!(w.engine.has_replica(mr.key) && !other.engine.has_replica(mr.key));
    remove_replica(&mut w, mr.key);
    assert!(!w.engine.has_replica(mr.key));
    drop(home.engine.remove_mr(mr.key).unwrap());
    // The next region of the number gets some again.
    let next = region(&mut home);
    replicate(&home, next.key, &mut w).unwrap();
    users[1].expect_opened(&mut w, &next, true);
}

/// The replicas may have gone when a merge that was refused is tried again. It ends the wait all
/// the same, or jobs would not begin any more.
#[test]
fn jobs_begin_again_after_a_merge_that_had_to_wait() {
    for ends_first in [false, true] {
        let [mut home, mut other, _] = job_worlds();
        let mr = region(&mut home);
        let user = Loop::new(&mut home);
        replicate(&home, mr.key, &mut other).unwrap();
        user.post(&mut home, &write(1, &mr, &mr));
        let job = only_job(&mut home);
        assert_eq!(home.merge(&mut other), Err(Error::InUse));
        if ends_first {
            end(&mut home, &user, job, true);
            remove_replica(&mut other, mr.key);
        } else {
            remove_replica(&mut other, mr.key);
            assert_eq!(home.merge(&mut other), Err(Error::InUse));
            end(&mut home, &user, job, true);
        }
        home.merge(&mut other).unwrap();
        user.post(&mut home, &write(2, &mr, &mr));
        let job = only_job(&mut home);
        end(&mut home, &user, job, false);
    }
}

/// Likewise where the engine has the replicas itself, and a merge is all that comes.
#[test]
fn jobs_begin_again_without_the_replica_that_was_waited_for() {
    let [mut home, mut w, mut third] = job_worlds();
    let [mr, own] = [region(&mut home), region(&mut w)];
    let user = Loop::new(&mut w);
    replicate(&home, mr.key, &mut w).unwrap();
    user.post(&mut w, &write(1, &own, &own));
    let job = only_job(&mut w);
    assert_eq!(w.merge(&mut third), Err(Error::InUse));
    remove_replica(&mut w, mr.key);
    assert_eq!(w.merge(&mut third), Err(Error::InUse));
    end(&mut w, &user, job, true);
    w.merge(&mut third).unwrap();
    user.post(&mut w, &write(2, &own, &own));
    let job = only_job(&mut w);
    end(&mut w, &user, job, false);
}
