// SPDX-License-Identifier: GPL-2.0

//! Atomic operations between queue pairs of one engine.

use ferrule_engine::{abi, Access, Engine, Memory, Mr, MrInit, QpEvent, State, Status};
use proptest::prelude::*;

use crate::sim::refused::*;
use crate::sim::*;
use abi::{wc_opcode, wr_opcode};

fn put(mr: &TestMr, offset: usize, value: u64) {
    let start = mr.region.start + offset;
    mr.region.memory.borrow_mut()[start..start + 8].copy_from_slice(&value.to_ne_bytes());
}

fn get(mr: &TestMr, offset: usize) -> u64 {
    u64::from_ne_bytes(mr.bytes(offset, 8).try_into().unwrap())
}

#[test]
fn compare_swap_swaps_what_is_equal() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (mine, theirs) = (w.mr(64), w.mr(64));
    put(&theirs, 16, 5);
    // Equal, then not equal; the old value comes back both times.
    for (wr_id, compare, swap, before, after) in
        [(1, 5, u64::MAX, 5, u64::MAX), (2, 5, 6, u64::MAX, u64::MAX)]
    {
        let (to, remote) = (mine.sge(8 * wr_id, 8), theirs.remote(16));
        a.qp.post_send(&Wr::compare_swap(wr_id, to, remote, compare, swap));
        w.run();
        let wc = a.cq.expect(wr_id, Status::Success);
        assert_eq!((wc.opcode, wc.byte_len), (wc_opcode::COMP_SWAP, 8));
        assert_eq!(get(&mine, 8 * wr_id as usize), before);
        assert_eq!(get(&theirs, 16), after);
    }
    assert_eq!((get(&theirs, 8), get(&theirs, 24)), (0, 0));
    b.cq.expect_none();
    assert_eq!(w.query(&a.qp).attr.sq_psn, (SQ_PSN + 2) & 0xff_ffff);
    assert_eq!(w.query(&b.qp).attr.rq_psn, (SQ_PSN + 2) & 0xff_ffff);
}

#[test]
fn fetch_add_adds_and_wraps() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    let (mine, theirs) = (w.mr(64), w.mr(64));
    put(&theirs, 0, u64::MAX - 1);
    // The answer is cut by the list as any data are; more space than it needs is left alone.
    let mut wr = Wr::fetch_add(1, mine.sge(0, 3), theirs.remote(0), 5);
    wr.sges.extend([(1, 0, 0), mine.sge(10, 20)]);
    a.qp.post_send(&wr);
    w.run();
    let wc = a.cq.expect(1, Status::Success);
    assert_eq!((wc.opcode, wc.byte_len), (wc_opcode::FETCH_ADD, 8));
    assert_eq!(get(&theirs, 0), 3);
    let mut answer = mine.bytes(0, 3);
    answer.extend(mine.bytes(10, 5));
    assert_eq!(answer, (u64::MAX - 1).to_ne_bytes());
    assert_eq!(mine.bytes(15, 40), [0; 40]);
}

#[test]
fn address_that_is_not_aligned_is_an_invalid_request() {
    let either = |sge, remote, swap| match swap {
        true => Wr::compare_swap(1, sge, remote, 0, 1),
        false => Wr::fetch_add(1, sge, remote, 1),
    };
    for swap in [false, true] {
        for offset in 1..8 {
            refused(
                |w, _, _| {
                    let mr = w.mr(64);
                    either(mr.sge(0, 8), mr.remote(offset), swap)
                },
                Status::RemoteInvalidRequest,
                Some(QpEvent::RequestError),
            );
        }
        // The key comes first.
        refused(
            |w, _, _| {
                let mr = w.mr(64);
                either(mr.sge(0, 8), (mr.iova + 1, mr.key ^ 1), swap)
            },
            Status::RemoteAccess,
            Some(QpEvent::AccessError),
        );
    }
    // Aligned by the address that requests use, but not in memory.
    refused(
        |w, _, _| {
            let mr = w.mr(64);
            let mut region = mr.region.clone();
            (region.start, region.length) = (1, 40);
            let odd = Mr::new(MrInit {
                pd: 1,
                access: ALL,
                memory: Memory {
                    iova: 0,
                    length: 40,
                    region,
                },
            });
            let key = add(&mut w.engine, odd, Engine::add_mr).unwrap();
            Wr::fetch_add(1, mr.sge(0, 8), (8, key), 1)
        },
        Status::RemoteInvalidRequest,
        Some(QpEvent::RequestError),
    );
}

#[test]
fn atomics_are_refused_without_key_right_or_resource() {
    let add: Request = |sge, remote| Wr::fetch_add(1, sge, remote, 1);
    let swap: Request = |sge, remote| Wr::compare_swap(1, sge, remote, 0, 1);
    for request in [add, swap] {
        refused_without_access(request, Access::REMOTE_ATOMIC);
        refused_without_right(request, Access::REMOTE_ATOMIC);
        refused_without_resource(request);
    }
}

#[test]
fn atomics_fail_at_the_requester() {
    let mut w = World::new();
    let mr = w.mr(64);
    let read_only = w.mr_with(1, Access::NONE, mr.region.memory.clone(), 0, 64);
    let short = Wr::fetch_add(1, mr.sge(0, 7), mr.remote(8), 1);
    let nowhere = Wr {
        sges: Vec::new(),
        ..short.clone()
    };
    let inline = Wr::fetch_add(1, mr.sge(0, 8), mr.remote(8), 1).inline(&[0; 8]);
    for (wr, status) in [
        (short, Status::LocalLength),
        (nowhere, Status::LocalLength),
        (inline, Status::LocalOperation),
        (
            Wr::fetch_add(1, read_only.sge(0, 8), mr.remote(8), 1),
            Status::LocalProtection,
        ),
        // The words of an atomic operation are for atomic operations only.
        (
            Wr::fetch_add(1, mr.sge(0, 8), mr.remote(8), 1).with_opcode(wr_opcode::RDMA_READ),
            Status::LocalOperation,
        ),
    ] {
        let (a, b) = w.pair();
        a.qp.post_send(&wr);
        w.run();
        a.cq.expect(1, status);
        w.state(&b.qp, State::Rts);
        assert_eq!(get(&mr, 8), 0);
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn words_are_as_counted(
        steps in prop::collection::vec((any::<bool>(), 0..3usize, 0..4u64, 0..4u64), 1..50),
    ) {
        let mut w = World::new();
        let (a, _b) = w.pair();
        let (mine, theirs) = (w.mr(64), w.mr(64));
        let mut model = [0u64; 3];
        for (i, (swap, word, x, y)) in steps.into_iter().enumerate() {
            let remote = theirs.remote(8 * word as u64);
            let to = mine.sge(8, 8);
            let before = model[word];
            let wr = if swap {
                if before == x {
                    model[word] = y;
                }
                Wr::compare_swap(i as u64, to, remote, x, y)
            } else {
                model[word] = before.wrapping_add(x);
                Wr::fetch_add(i as u64, to, remote, x)
            };
            a.qp.post_send(&wr);
            w.run();
            a.cq.expect(i as u64, Status::Success);
            prop_assert_eq!(get(&mine, 8), before);
            prop_assert_eq!([0, 8, 16].map(|at| get(&theirs, at)), model);
        }
    }
}
