// SPDX-License-Identifier: GPL-2.0

//! Whatever order regions and replicas come and go in, and engines merge: as a simple model has it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const ENGINES: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// A region comes, of a protection domain.
    Add(usize, u32),
    /// A region goes, and its replicas before it.
    Remove(usize),
    /// An engine has a replica from here on, or one less.
    Replicate(usize, usize),
    RemoveReplica(usize, usize),
    /// Its trees of replicas come together, so many steps.
    Unite(usize, usize),
    /// One engine takes over the objects of another one.
    Merge(usize, usize),
    /// A queue pair writes from one region to another, so many bytes.
    Write(usize, usize, usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (engine, region) = (0..ENGINES, 0..1000usize);
    prop_oneof![
        3 => (engine.clone(), 1..3u32).prop_map(|(engine, pd)| Step::Add(engine, pd)),
        2 => region.clone().prop_map(Step::Remove),
        4 => (region.clone(), engine.clone()).prop_map(|(mr, to)| Step::Replicate(mr, to)),
        2 => (region.clone(), engine.clone()).prop_map(|(mr, from)| Step::RemoveReplica(mr, from)),
        2 => (engine.clone(), 1..4usize).prop_map(|(engine, steps)| Step::Unite(engine, steps)),
        1 => (engine.clone(), engine.clone()).prop_map(|(to, from)| Step::Merge(to, from)),
        6 => (engine, region.clone(), region, prop_oneof![Just(8u32), Just(LONG)])
            .prop_map(|(user, from, to, length)| Step::Write(user, from, to, length)),
    ]
}

/// Enough for a job.
const LONG: u32 = 8 << 10;

/// How many numbers are left of the first ones of an engine, so that they are used again.
const NUMBERS: usize = 4;

/// A region as the model has it.
struct Known {
    mr: TestMr,
    pd: u32,
    /// The engine that has it; none has one that is gone.
    home: Option<usize>,
    /// How many replicas each engine has.
    replicas: [usize; ENGINES],
}

impl Known {
    /// Whether it opens to queue pairs of an engine.
    fn opens(&self, engine: usize) -> bool {
        self.pd == 1 && (self.home == Some(engine) || self.replicas[engine] != 0)
    }
}

/// The engines, and what each is to have.
struct Model {
    worlds: [World; ENGINES],
    users: Vec<Loop>,
    /// In which engine each queue pair is.
    place: [usize; ENGINES],
    regions: Vec<Known>,
    /// The others of each engine.
    fillers: [usize; ENGINES],
    blocks: u32,
}

impl Model {
    fn new() -> Self {
        let mut worlds = [4, 8, 12].map(World::of_blocks);
        worlds.iter_mut().for_each(|w| w.host.has_job_place = true);
        let users = worlds.iter_mut().map(Loop::new).collect();
        let fillers = 64 - NUMBERS;
        for w in &mut worlds {
            (0..fillers).for_each(|_| drop(w.mr_with(3, ALL, memory::shared(8), 0, 8)));
        }
        Self {
            worlds,
            users,
            place: [0, 1, 2],
            regions: Vec::new(),
            fillers: [fillers; ENGINES],
            blocks: 300,
        }
    }

    fn take(&mut self, step: &Step) {
        let count = self.regions.len();
        match *step {
            Step::Add(home, pd) => {
                if self.own(home).count() == NUMBERS {
                    return;
                }
                let size = 2 * LONG as usize;
                let mr = self.worlds[home].mr_with(pd, ALL, memory::shared(size), 0, size);
                self.regions.push(Known {
                    mr,
                    pd,
                    home: Some(home),
                    replicas: [0; ENGINES],
                });
            }
            _ if count == 0 => (),
            Step::Remove(i) => {
                let known = &mut self.regions[i % count];
                let Some(home) = known.home.take() else {
                    return;
                };
                let counts = std::mem::take(&mut known.replicas);
                for (w, count) in self.worlds.iter_mut().zip(counts) {
                    (0..count).for_each(|_| remove_replica(w, known.mr.key));
                    expect_no_replica(w, known.mr.key);
                }
                drop(self.worlds[home].engine.remove_mr(known.mr.key).unwrap());
            }
            Step::Replicate(i, engine) => self.replicate(i % count, engine),
            Step::RemoveReplica(i, engine) => {
                let known = &mut self.regions[i % count];
                let w = &mut self.worlds[engine];
                match known.replicas[engine].checked_sub(1) {
                    Some(left) => {
                        known.replicas[engine] = left;
                        remove_replica(w, known.mr.key);
                    }
                    None => expect_no_replica(w, known.mr.key),
                }
            }
            Step::Unite(engine, steps) => {
                let w = &mut self.worlds[engine];
                if (0..steps).all(|_| w.engine.unite_replicas().is_some()) {
                    // Some have come together.
                    for known in &mut self.regions {
                        let others: usize = known.home.iter().count()
                            + known.replicas.iter().sum::<usize>()
                            - known.replicas[engine];
                        let users = Rc::strong_count(&known.mr.region.memory) - 1 - others;
                        assert!(users <= known.replicas[engine]);
                        assert_eq!(users == 0, known.replicas[engine] == 0);
                        known.replicas[engine] = users;
                    }
                } else {
                    for known in &mut self.regions {
                        let count = &mut known.replicas[engine];
                        *count = (*count).min(1);
                    }
                }
            }
            Step::Merge(to, from) if to != from => self.merge(to, from),
            Step::Merge(..) => (),
            Step::Write(user, from, to, length) => {
                self.write(user, from % count, to % count, length);
            }
        }
    }

    /// The regions of an engine.
    fn own(&self, engine: usize) -> impl Iterator<Item = &Known> {
        let regions = self.regions.iter();
        regions.filter(move |known| known.home == Some(engine))
    }

    /// The region may be in this engine.
    fn replicate(&mut self, i: usize, engine: usize) {
        let known = &mut self.regions[i];
        let Some(home) = known.home else {
            return;
        };
        let key = known.mr.key;
        let replica = self.worlds[home].engine.replica(key).ok().unwrap();
        let added = add_replica(&mut self.worlds[engine], replica);
        let has_one = known.replicas[engine] != 0;
        assert_eq!(added, if has_one { Err(Error::Busy) } else { Ok(()) });
        known.replicas[engine] += usize::from(!has_one);
    }

    fn merge(&mut self, to: usize, from: usize) {
        let [into, other] = two(&mut self.worlds, to, from);
        into.merge(other).unwrap();
        assert_eq!(other.engine.objects(), ferrule_engine::Objects::default());
        // It has no numbers any more.
        let chunk = chunk_of(TableKind::Keys, self.blocks);
        assert!(other.engine.add_chunk(chunk).is_none());
        self.blocks += 37;
        let moved = |place: &mut usize| {
            if *place == from {
                *place = to;
            }
        };
        self.place.iter_mut().for_each(moved);
        for known in &mut self.regions {
            known.home.iter_mut().for_each(moved);
            known.replicas[to] += std::mem::take(&mut known.replicas[from]);
        }
        self.fillers[to] += std::mem::take(&mut self.fillers[from]);
    }

    fn write(&mut self, user: usize, from: usize, to: usize, length: u32) {
        let engine = self.place[user];
        let [source, target] = [from, to].map(|i| &self.regions[i]);
        source.mr.fill(length as u8 ^ engine as u8);
        let status = match (source.opens(engine), target.opens(engine)) {
            (false, _) => Status::LocalProtection,
            (true, false) => Status::RemoteAccess,
            (true, true) => Status::Success,
        };
        let wr = Wr::write(
            1,
            &[source.mr.sge(0, length)],
            target.mr.remote(LONG.into()),
        );
        self.users[user].expect(&mut self.worlds[engine], &wr, status);
        if status == Status::Success {
            let length = length as usize;
            let arrived = target.mr.bytes(LONG as usize, length);
            assert!(arrived == source.mr.bytes(0, length));
        }
    }

    /// The engines have as many objects as the model, and know their regions by their domains.
    fn check(&self) {
        for (engine, w) in self.worlds.iter().enumerate() {
            let count = self.own(engine).count() + self.fillers[engine];
            assert_eq!(w.engine.objects().regions as usize, count);
            for pd in 1..3 {
                let keys: BTreeSet<_> = self
                    .own(engine)
                    .filter(|known| known.pd == pd)
                    .map(|known| known.mr.key)
                    .collect();
                let (mut found, mut next) = (BTreeSet::new(), Some(0));
                while let Some(from) = next {
                    let (key, behind) = w.engine.next_of_domain(pd, from);
                    assert!(key.is_none_or(|key| found.insert(key)));
                    next = behind;
                }
                assert_eq!(found, keys);
            }
        }
        for Known {
            mr, home, replicas, ..
        } in &self.regions
        {
            expect_users(mr, home.iter().count() + replicas.iter().sum::<usize>());
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn regions_open_where_they_are_or_their_replicas(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.take(step);
            model.check();
        }
        let regions = model.regions.len();
        for i in 0..regions {
            model.take(&Step::Remove(i));
        }
        model.check();
        for known in &model.regions {
            expect_users(&known.mr, 0);
        }
    }
}
