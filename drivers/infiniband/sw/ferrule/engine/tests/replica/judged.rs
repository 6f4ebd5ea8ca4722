// SPDX-License-Identifier: GPL-2.0

//! A use of a region is judged by its replica as by the region itself.

use ferrule_engine::{abi, Access, Status};

use super::{replicate, worlds};
use crate::sim::*;

/// The size of the region.
const SIZE: u64 = 64;

/// Two connected queue pairs, and memory in their engine.
struct Users {
    a: End,
    b: End,
    mine: TestMr,
}

/// A way to use 8 bytes of a region from an address on.
struct Use {
    /// Posts the request, whose completion is the first one of `a`.
    post: fn(&Users, (u64, u32)),
    /// The right that it takes.
    right: Access,
    /// How it ends without.
    refusal: Status,
    /// It changes the region.
    changes: bool,
    /// It names no bytes.
    is_whole: bool,
}

const fn remote(post: fn(&Users, (u64, u32)), right: Access) -> Use {
    Use {
        post,
        right,
        refusal: Status::RemoteAccess,
        changes: true,
        is_whole: false,
    }
}

const fn local(post: fn(&Users, (u64, u32)), right: Access) -> Use {
    Use {
        post,
        right,
        refusal: Status::LocalProtection,
        changes: right.allows(Access::LOCAL_WRITE),
        is_whole: false,
    }
}

/// An entry of a list.
fn entry((addr, key): (u64, u32)) -> (u64, u32, u32) {
    (addr, 8, key)
}

const USES: [Use; 12] = [
    // SEND from the region, and to it.
    local(
        |u, at| {
            u.b.qp.post_recv(9, &[u.mine.sge(8, 8)]);
            u.a.qp.post_send(&Wr::send(1, &[entry(at)]));
        },
        Access::NONE,
    ),
    Use {
        refusal: Status::RemoteOperation,
        ..local(
            |u, at| {
                u.b.qp.post_recv(9, &[entry(at)]);
                u.a.qp.post_send(&Wr::send(1, &[u.mine.sge(0, 8)]));
            },
            Access::LOCAL_WRITE,
        )
    },
    // As one entry of several.
    local(
        |u, at| {
            let sges = [u.mine.sge(0, 8), entry(at)];
            u.a.qp.post_send(&Wr::write(1, &sges, u.mine.remote(16)));
        },
        Access::NONE,
    ),
    local(
        |u, at| {
            u.a.qp
                .post_send(&Wr::write(1, &[entry(at)], u.mine.remote(8)))
        },
        Access::NONE,
    ),
    local(
        |u, at| {
            u.a.qp
                .post_send(&Wr::read(1, &[entry(at)], u.mine.remote(8)))
        },
        Access::LOCAL_WRITE,
    ),
    remote(
        |u, at| u.a.qp.post_send(&Wr::write(1, &[u.mine.sge(0, 8)], at)),
        Access::REMOTE_WRITE,
    ),
    Use {
        changes: false,
        ..remote(
            |u, at| u.a.qp.post_send(&Wr::read(1, &[u.mine.sge(0, 8)], at)),
            Access::REMOTE_READ,
        )
    },
    remote(
        |u, at| u.a.qp.post_send(&Wr::fetch_add(1, u.mine.sge(0, 8), at, 5)),
        Access::REMOTE_ATOMIC,
    ),
    remote(
        |u, at| {
            let word = u64::from_ne_bytes(FILLED);
            u.a.qp
                .post_send(&Wr::compare_swap(1, u.mine.sge(0, 8), at, word, 6));
        },
        Access::REMOTE_ATOMIC,
    ),
    remote(
        |u, at| u.a.qp.post_send(&Wr::atomic_write(1, at, 7)),
        Access::REMOTE_WRITE,
    ),
    Use {
        changes: false,
        ..remote(
            |u, at| u.a.qp.post_send(&Wr::flush(1, at, 8)),
            Access::FLUSH_GLOBAL,
        )
    },
    Use {
        changes: false,
        is_whole: true,
        ..remote(
            |u, at| {
                let all = Wr::flush(1, at, 0);
                let placement = abi::flush_placement::GLOBAL;
                let level = abi::flush_level::REGION;
                u.a.qp.post_send(&all.with_placement(placement, level));
            },
            Access::FLUSH_GLOBAL,
        )
    },
];

/// The bytes of the region.
const FILLED: [u8; 8] = [0xa5; 8];

/// How all requests end at both queue pairs, and the bytes of the region and of the other memory
/// then.
type Ends = ([Vec<(u64, u8)>; 2], [Vec<u8>; 2]);

/// The region is in the engine of the queue pairs, or its replica.
fn ends(by_replica: bool, used: &Use, region: (u32, Access), offset: u64, key: u32) -> Ends {
    let [mut home, mut other] = worlds();
    let size = SIZE as usize;
    let mr = home.mr_with(region.0, region.1, memory::shared(size), 0, size);
    mr.region.memory.borrow_mut().fill(FILLED[0]);
    let w = match by_replica {
        true => {
            replicate(&home, mr.key, &mut other).unwrap();
            &mut other
        }
        false => &mut home,
    };
    let (a, b) = w.pair();
    let mine = w.mr(size);
    mine.fill(1);
    let users = Users { a, b, mine };
    (used.post)(&users, (mr.iova.wrapping_add(offset), mr.key ^ key));
    w.run();
    let [a, b] = [&users.a, &users.b].map(|end| {
        let wcs = end.cq.drain().into_iter();
        wcs.map(|wc| (wc.wr_id, wc.status)).collect()
    });
    ([a, b], [&mr, &users.mine].map(|mr| mr.bytes(0, size)))
}

/// Checks how a use ends, by the region and by its replica.
#[track_caller]
fn judged(used: &Use, region: (u32, Access), offset: u64, key: u32, is_allowed: bool) {
    let [by_region, by_replica] = [false, true].map(|by| ends(by, used, region, offset, key));
    assert_eq!(by_region, by_replica);
    let status = match is_allowed {
        true => Status::Success,
        false => used.refusal,
    };
    let ([a, _], [bytes, _]) = by_replica;
    assert_eq!(a, [(1, status as u8)]);
    let is_changed = bytes.iter().any(|byte| *byte != FILLED[0]);
    assert_eq!(is_changed, is_allowed && used.changes);
}

#[test]
fn rights_bounds_and_domain_are_those_of_the_region() {
    for used in &USES {
        let good = |offset| judged(used, (1, ALL), offset, 0, true);
        let bad = |offset| judged(used, (1, ALL), offset, 0, used.is_whole);
        good(0);
        good(SIZE - 8);
        bad(SIZE);
        bad(8u64.wrapping_neg());
        // The right alone, and all others.
        judged(used, (1, used.right), 0, 0, true);
        if used.right != Access::NONE {
            judged(used, (1, Access(ALL.0 & !used.right.0)), 0, 0, false);
        }
        judged(used, (2, ALL), 0, 0, false);
        // Another generation, another index of the block, and one of another block.
        for key in [1, 0x100, 0x4000] {
            judged(used, (1, ALL), 0, key, false);
        }
    }
}
