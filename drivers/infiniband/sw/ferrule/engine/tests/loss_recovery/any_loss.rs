// SPDX-License-Identifier: GPL-2.0

//! Any requests, with any packets lost.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::Status;
use proptest::prelude::*;

use super::{Scene, SIZE};
use crate::sim::*;

/// A request that a program may post.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    from: u32,
    length: u32,
}

fn request() -> impl Strategy<Value = Request> {
    let opcodes = prop::sample::select(vec![
        wr_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ,
        wr_opcode::SEND,
        wr_opcode::ATOMIC_FETCH_AND_ADD,
        wr_opcode::ATOMIC_WRITE,
        wr_opcode::FLUSH,
    ]);
    (opcodes, 0..SIZE, 0..SIZE).prop_map(|(opcode, from, length)| Request {
        opcode,
        from,
        length: length.min(SIZE - from),
    })
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whichever packets are lost, whether the peer keeps those behind them or not: each request
    /// ends well, in order, and an atomic operation is carried out once.
    #[test]
    fn whatever_is_lost_arrives(
        requests in prop::collection::vec(request(), 1..12),
        doomed in prop::collection::btree_set((0..2usize, 0..200u64), 0..30),
        keeps: bool,
    ) {
        REORDERS.set(keeps);
        let mut s = Scene::new(&[]);
        s.link.network.doomed = doomed;
        let counter = s.link.worlds[1].mr(16);
        let answers = s.link.worlds[0].mr(8 * 12);
        for (i, request) in requests.iter().enumerate() {
            let i = i as u64;
            let sge = s.memory[0].sge(request.from.into(), request.length);
            let remote = s.memory[1].remote(request.from.into());
            s.ends[1].qp.post_recv(100 + i, &[s.memory[1].sge(0, SIZE)]);
            s.ends[0].qp.post_send(&match request.opcode {
                wr_opcode::RDMA_WRITE => Wr::write(i, &[sge], remote),
                wr_opcode::RDMA_READ => Wr::read(i, &[sge], remote),
                wr_opcode::SEND => Wr::send(i, &[sge]),
                wr_opcode::ATOMIC_WRITE => Wr::atomic_write(i, counter.remote(8), i + 1),
                wr_opcode::FLUSH => Wr::flush(i, remote, request.length),
                _ => Wr::fetch_add(i, answers.sge(8 * i, 8), counter.remote(0), 1),
            });
        }
        let start = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        s.link.settle();
        prop_assert_eq!(BUFFERED.get(), 0);
        let mut added = 0;
        for (i, request) in requests.iter().enumerate() {
            s.ends[0].cq.expect(i as u64, Status::Success);
            if request.opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
                let found = answers.bytes(8 * i, 8).try_into().unwrap();
                prop_assert_eq!(u64::from_ne_bytes(found), start + added);
                added += 1;
            }
        }
        // The last one stands, whichever of them came again.
        let is_write = |request: &Request| request.opcode == wr_opcode::ATOMIC_WRITE;
        let last = requests.iter().rposition(is_write).map_or(0, |i| i as u64 + 1);
        prop_assert_eq!(counter.bytes(8, 8), last.to_ne_bytes());
        let end = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        prop_assert_eq!(end, start + added);
    }
}
