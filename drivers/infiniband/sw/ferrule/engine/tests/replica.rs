// SPDX-License-Identifier: GPL-2.0

//! Regions of one engine that queue pairs of another one use: what a replica opens, to whom, and
//! for how long.

mod copy_jobs;
mod domain;
mod judged;
mod merges;
mod random;
mod removal;
mod trees;

use std::rc::Rc;

use ferrule_engine::{
    Access, Block, Error, Mr, MrChange, MwType, NeedChunk, Replicas, State, Status, TableKind,
};

use crate::sim::*;

/// The engine that has the regions, and one that has replicas of them.
fn worlds() -> [World; 2] {
    [World::of_blocks(4), World::of_blocks(8)]
}

/// Memory for replicas of the regions of a block, or for other objects.
fn chunk_of(kind: TableKind, block: u32) -> ferrule_engine::Chunk<Sim> {
    let mut chunk = NeedChunk::from(kind).allocate().unwrap();
    chunk.set_block(block);
    chunk
}

/// An engine whose regions are in this block.
fn world_at(block: u32) -> World {
    let mut w = World::new();
    let chunk = chunk_of(TableKind::Keys, block);
    assert!(w.engine.add_chunk(chunk).is_none());
    w
}

/// Two of several engines, in this order.
fn two(worlds: &mut [World], first: usize, second: usize) -> [&mut World; 2] {
    let (low, high) = worlds.split_at_mut(first.max(second));
    match first < second {
        true => [&mut low[first], &mut high[0]],
        false => [&mut high[0], &mut low[second]],
    }
}

/// Adds a replica, as a host does it, but for bringing trees together ([`unite`]).
fn add_replica(w: &mut World, mr: Mr<Sim>) -> Result<(), Error> {
    let mut space = None;
    let mut mr = Box::new(mr);
    loop {
        let refused = match w.engine.add_replica(mr, &mut space) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if refused.error != Error::NoMemory {
            return Err(refused.error);
        }
        mr = refused.object;
        assert!(space.is_none());
        space = Replicas::<Sim>::for_region(mr.key());
    }
}

/// An engine has a replica of a region of another one from now on.
fn replicate(from: &World, key: u32, to: &mut World) -> Result<(), Error> {
    add_replica(to, from.engine.replica(key)?)
}

/// Brings the trees of replicas of an engine together, and tells of the steps.
fn unite(w: &mut World) -> usize {
    std::iter::from_fn(|| w.engine.unite_replicas()).count()
}

#[track_caller]
fn remove_replica(w: &mut World, key: u32) {
    let (replica, _) = w.engine.remove_replica(key).expect("a replica");
    assert_eq!(replica.key(), key);
}

#[track_caller]
fn expect_replica_in_use(w: &mut World, key: u32) {
    assert_eq!(w.engine.remove_replica(key).err(), Some(Error::InUse));
}

#[track_caller]
fn expect_no_replica(w: &mut World, key: u32) {
    assert_eq!(w.engine.remove_replica(key).err(), Some(Error::NotFound));
}

/// How many have the memory of a region, beside the test.
#[track_caller]
fn expect_users(mr: &TestMr, users: usize) {
    assert_eq!(Rc::strong_count(&mr.region.memory), 1 + users);
}

/// A queue pair that is its own peer, of a context of its own.
struct Loop {
    qp: TestQp,
    cq: TestCq,
    context: TestContext,
}

impl Loop {
    fn new(w: &mut World) -> Self {
        let (context, cq) = (w.context(), w.cq(16));
        let qp = w.qp_in(Some(&context), &QpSpec::default(), &cq, &cq);
        w.connect(&qp, &qp);
        Self { qp, cq, context }
    }

    fn post(&self, w: &mut World, wr: &Wr) {
        self.qp.put_send(wr);
        if self.qp.ring() {
            w.engine.kicked(self.context.id);
        }
    }

    /// A request is carried out, and ends so. The queue pair is ready for the next one.
    #[track_caller]
    fn expect(&self, w: &mut World, wr: &Wr, status: Status) {
        self.post(w, wr);
        w.run();
        self.cq.expect(wr.wr_id, status);
        if status != Status::Success {
            w.to(&self.qp, State::Reset);
            self.qp.rewind();
            w.connect(&self.qp, &self.qp);
        }
    }

    /// The key of a region opens its memory, both to the owner and to the peer; or to neither.
    #[track_caller]
    fn expect_opened(&self, w: &mut World, mr: &TestMr, is_opened: bool) {
        let mine = w.mr(8);
        mine.fill(mr.bytes(0, 1)[0] ^ 0x55);
        let write = Wr::write(1, &[mine.sge(0, 8)], mr.remote(0));
        let read = Wr::read(2, &[mr.sge(8, 8)], mine.remote(0));
        let [remote, local] = match is_opened {
            true => [Status::Success; 2],
            false => [Status::RemoteAccess, Status::LocalProtection],
        };
        self.expect(w, &write, remote);
        self.expect(w, &read, local);
        assert_eq!(mr.bytes(0, 8) == mine.bytes(0, 8), is_opened);
        assert!(!is_opened || mr.bytes(8, 8) == mine.bytes(0, 8));
        drop(w.engine.remove_mr(mine.key).unwrap());
    }
}

/// A key that was taken back opens nothing, nor does it when there is a replica of the next region
/// of its number.
#[test]
fn a_replica_that_was_removed_opens_nothing() {
    let [mut home, mut other] = worlds();
    let user = Loop::new(&mut other);
    let old = home.mr(64);
    user.expect_opened(&mut other, &old, false);
    replicate(&home, old.key, &mut other).unwrap();
    expect_users(&old, 2);
    user.expect_opened(&mut other, &old, true);
    // It is known by its key alone, and in its engine.
    expect_no_replica(&mut other, old.key ^ 1);
    expect_no_replica(&mut other, old.key + 0x100);
    expect_no_replica(&mut home, old.key);
    user.expect_opened(&mut other, &old, true);
    remove_replica(&mut other, old.key);
    expect_no_replica(&mut other, old.key);
    expect_users(&old, 1);
    user.expect_opened(&mut other, &old, false);

    drop(home.engine.remove_mr(old.key).unwrap());
    let new: Vec<_> = (0..64).map(|_| home.mr(64)).collect();
    let new = new.iter().find(|mr| mr.key >> 8 == old.key >> 8).unwrap();
    assert_ne!(new.key, old.key);
    for mr in [new, &old] {
        user.expect_opened(&mut other, mr, false);
    }
    replicate(&home, new.key, &mut other).unwrap();
    user.expect_opened(&mut other, new, true);
    user.expect_opened(&mut other, &old, false);
    expect_no_replica(&mut other, old.key);
    remove_replica(&mut other, new.key);
    user.expect_opened(&mut other, new, false);
}

#[test]
fn a_replica_has_its_number_for_itself() {
    let [mut home, mut other] = worlds();
    let [mr, second] = [(); 2].map(|()| home.mr(64));
    let replica = |mr: &TestMr| Box::new(home.engine.replica(mr.key).ok().unwrap());
    // It needs space, once for the regions of a block.
    let refused = other.engine.add_replica(replica(&mr), &mut None).err();
    let refused = refused.unwrap();
    assert_eq!(refused.error, Error::NoMemory);
    assert_eq!(refused.object.key(), mr.key);
    let mut space = Replicas::<Sim>::for_region(mr.key);
    let added = other.engine.add_replica(refused.object, &mut space);
    assert!(added.is_ok() && space.is_none());
    for key in [mr.key, second.key] {
        space = Replicas::<Sim>::for_region(key);
        let (mr, error) = match key == mr.key {
            true => (&mr, Some(Error::Busy)),
            false => (&second, None),
        };
        let refused = other.engine.add_replica(replica(mr), &mut space).err();
        assert_eq!(refused.map(|refused| refused.error), error);
        assert!(space.is_some());
    }
    assert_eq!(unite(&mut other), 0);
    // That of another block does not do.
    let mut far = world_at(4095);
    let third = far.mr(64);
    assert_eq!(Block::of_key(third.key).number, 4095);
    replicate(&far, third.key, &mut other).unwrap();
    for mr in [&mr, &second, &third] {
        expect_users(mr, 2);
    }
    // Replicas are no regions.
    assert_eq!(other.engine.objects().regions, 0);
    let own: Vec<_> = (0..64).map(|_| other.mr(8)).collect();
    assert!(own.iter().all(|mr| Block::of_key(mr.key).number == 8));
    for mr in [&mr, &second, &third] {
        remove_replica(&mut other, mr.key);
        expect_users(mr, 1);
    }
    assert_eq!(other.engine.objects().regions, 64);
    replicate(&home, mr.key, &mut other).unwrap();
    expect_users(&mr, 2);
}

/// The host does not free a number that has a replica. If it did, the next region would have none.
#[test]
fn a_number_has_replicas_of_one_region() {
    let [mut home, mut other] = worlds();
    let user = Loop::new(&mut other);
    let old = home.mr(64);
    replicate(&home, old.key, &mut other).unwrap();
    drop(home.engine.remove_mr(old.key).unwrap());
    let new: Vec<_> = (0..64).map(|_| home.mr(64)).collect();
    let new = new.iter().find(|mr| mr.key >> 8 == old.key >> 8).unwrap();
    let refused = replicate(&home, new.key, &mut other);
    assert_eq!(refused, Err(Error::Busy));
    expect_no_replica(&mut other, new.key);
    user.expect_opened(&mut other, new, false);
    remove_replica(&mut other, old.key);
    replicate(&home, new.key, &mut other).unwrap();
    user.expect_opened(&mut other, new, true);
}

/// Commands find a region in its own engine alone.
#[test]
fn commands_do_not_find_a_replica() {
    let [mut home, mut other] = worlds();
    let mr = home.mr(64);
    let user = Loop::new(&mut other);
    replicate(&home, mr.key, &mut other).unwrap();
    let mut change = MrChange {
        pd: Some(2),
        access: None,
        memory: None,
    };
    let changed = other.engine.rereg_mr(mr.key, &mut change);
    assert_eq!(changed, Err(Error::NotFound));
    let removed = other.engine.remove_mr(mr.key);
    assert_eq!(removed.err(), Some(Error::NotFound));
    let found = other.engine.query_mr(mr.key);
    assert_eq!(found.err(), Some(Error::NotFound));
    let replica = other.engine.replica(mr.key);
    assert_eq!(replica.err(), Some(Error::NotFound));
    user.expect_opened(&mut other, &mr, true);
}

#[test]
fn some_regions_have_no_replica() {
    let [mut home, mut other] = worlds();
    let fast = home.fast_mr(1, memory::shared(64));
    // Whether it opens anything or not.
    for is_open in [false, true] {
        if is_open {
            let cq = home.cq(16);
            let qp = home.qp_in(None, &QpSpec::default(), &cq, &cq);
            home.connect(&qp, &qp);
            fast.region.next.set(Some((0, 64)));
            qp.put_send(&Wr::register(1, fast.key, 0, 64));
            home.engine.ring_qp(qp.id.number);
            home.run();
            cq.expect(1, Status::Success);
        }
        let refused = replicate(&home, fast.key, &mut other);
        assert_eq!(refused, Err(Error::NotSupported));
    }
    let paged = home.mr_with(1, ALL.or(Access::ON_DEMAND), memory::shared(64), 0, 64);
    paged.region.absent.set(1);
    let refused = replicate(&home, paged.key, &mut other);
    assert_eq!(refused, Err(Error::NotSupported));
    let window = home.mw(1, MwType::Type1);
    for key in [0, 1, fast.key + 0x100_0000, paged.key ^ 1, window] {
        let refused = replicate(&home, key, &mut other);
        assert_eq!(refused, Err(Error::NotFound));
    }
    for mr in [&fast, &paged] {
        expect_users(mr, 1);
    }
}

/// A window is bound to a region in the engine of both, which counts it. Those that are bound stay
/// so when replicas come.
#[test]
fn no_window_is_bound_by_a_replica() {
    let [mut home, mut other] = worlds();
    let size = 64;
    let mr = home.mr_with(1, BINDABLE, memory::shared(size), 0, size);
    let [here, there] = [&mut home, &mut other].map(Loop::new);
    replicate(&home, mr.key, &mut other).unwrap();
    let bind = |key: u32| Wr::bind(3, key, key + 1, mr.remote(0), 64);
    let window = other.mw(1, MwType::Type2);
    there.expect(&mut other, &bind(window), Status::WindowBind);
    let bound = home.mw(1, MwType::Type2);
    here.expect(&mut home, &bind(bound), Status::Success);
    let mut change = MrChange {
        pd: None,
        access: None,
        memory: None,
    };
    other.merge(&mut home).unwrap();
    let mine = other.mr(64);
    let write = Wr::write(4, &[mine.sge(0, 8)], (mr.iova, bound + 1));
    here.expect(&mut other, &write, Status::Success);
    there.expect(&mut other, &bind(window), Status::Success);
    remove_replica(&mut other, mr.key);
    for (user, key) in [(&here, bound), (&there, window)] {
        assert!(other.engine.query_mr(mr.key).unwrap().has_windows());
        let changed = other.engine.rereg_mr(mr.key, &mut change);
        assert_eq!(changed, Err(Error::Busy));
        user.expect(&mut other, &Wr::local_inv(5, key + 1), Status::Success);
    }
    assert!(!other.engine.query_mr(mr.key).unwrap().has_windows());
    other.engine.rereg_mr(mr.key, &mut change).unwrap();
}
