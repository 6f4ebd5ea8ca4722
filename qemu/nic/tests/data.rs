// SPDX-License-Identifier: GPL-2.0

//! Drivers that mean well: objects by commands, data by queues.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use crate::driver::queues::*;
use crate::driver::*;

/// A guest with what a program has: a context, a protection domain, a completion queue, and memory.
pub struct Program {
    pub context: Context,
    pub pd: u32,
    pub cq: Cq,
    pub area: Area,
    pub key: u32,
}

pub fn program(guest: &mut Guest) -> Program {
    guest.up();
    program_without_address(guest)
}

pub fn program_without_address(guest: &mut Guest) -> Program {
    let context = guest.context();
    let pd = guest.pd();
    let cq = guest.cq(512, NONE);
    let area = guest.memory.alloc(1 << 20);
    let key = guest.register(pd, &area, ALL_RIGHTS);
    Program {
        context,
        pd,
        cq,
        area,
        key,
    }
}

/// Two queue pairs of one guest, connected with each other.
pub fn pair(guest: &mut Guest, program: &Program) -> (Qp, Qp) {
    pair_with(guest, program, |_| ())
}

/// The same, created with other values.
pub fn pair_with(guest: &mut Guest, program: &Program, change: impl Fn(&mut CreateQp)) -> (Qp, Qp) {
    let Program {
        context, pd, cq, ..
    } = program;
    let mut make = || {
        guest
            .qp_with(qp_type::RC, context, *pd, cq, &change)
            .unwrap()
    };
    let (a, b) = (make(), make());
    let gid = guest.gid;
    guest.connect(&a, b.number, gid).unwrap();
    guest.connect(&b, a.number, gid).unwrap();
    (a, b)
}

/// Two queue pairs that are connected with each other, one of each guest.
pub fn pair_between(
    (one, p): (&mut Guest, &Program),
    (two, q): (&mut Guest, &Program),
) -> (Qp, Qp) {
    let a = one.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    let b = two.qp(qp_type::RC, &q.context, q.pd, &q.cq);
    one.connect(&a, b.number, two.gid).unwrap();
    two.connect(&b, a.number, one.gid).unwrap();
    (a, b)
}

/// Bytes that differ.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

#[test]
fn the_device_tells_its_limits() {
    let (_worker, [mut guest, _other]) = guests();
    let info = guest.info();
    assert!(info.max_qp.get() >= 32000 && info.max_mr_pages.get() >= 1 << 18);
    assert_eq!(info.reserved, [0; 8]);
    assert!(guest.info().clock.get() >= info.clock.get());
    let counters = guest.command(opcode::QUERY_COUNTERS, &[0u8; 0]).unwrap();
    assert_eq!(counters.len(), 8 * (COUNTERS.len() + MULTICAST_COUNTERS));
    assert_eq!(guest.read(register::MAC_LOW), 2);
    assert_eq!(guest.read(register::MAC_HIGH), 0);
    assert_eq!(guest.read(register::VERSION), VERSION_VALUE);
}

#[test]
fn messages_in_one_guest() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let (mut a, mut b) = pair(&mut guest, &p);
    let bytes = pattern(100_000, 7);
    p.area.write(10, &bytes);
    // SEND, over many pages that do not follow each other.
    b.receive(1, 500_001, 200_000, p.key);
    guest.send(
        &mut a,
        &Wqe::new(2, wr_opcode::SEND).local(10, 100_000, p.key),
    );
    let (first, second) = (p.cq.done(), p.cq.done());
    let mut ids = [first.wr_id.get(), second.wr_id.get()];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    assert_eq!(p.area.read(500_001, 100_000), bytes);
    // WRITE, READ.
    let write = Wqe::new(3, wr_opcode::RDMA_WRITE);
    guest.send(
        &mut a,
        &write.local(10, 100_000, p.key).remote(700_000, p.key),
    );
    assert_eq!(p.cq.done().wr_id.get(), 3);
    assert_eq!(p.area.read(700_000, 100_000), bytes);
    let read = Wqe::new(4, wr_opcode::RDMA_READ);
    guest.send(
        &mut a,
        &read.local(200_000, 4097, p.key).remote(700_001, p.key),
    );
    assert_eq!(p.cq.done().wr_id.get(), 4);
    assert_eq!(p.area.read(200_000, 4097), bytes[1..4098]);
    // Where source and target overlap.
    guest.send(
        &mut a,
        &write.local(10, 100_000, p.key).remote(5_000, p.key),
    );
    p.cq.done();
    assert_eq!(p.area.read(5_000, 100_000).len(), 100_000);
    assert_eq!(p.area.read(5_000, 4_000), bytes[..4_000]);
    // Atomics.
    p.area.store64(8192, 40);
    let mut add = Wqe::new(5, wr_opcode::ATOMIC_FETCH_AND_ADD).local(0, 8, p.key);
    add.extra = [2, 0];
    guest.send(&mut a, &add.remote(8192, p.key));
    p.cq.done();
    let mut swap = Wqe::new(6, wr_opcode::ATOMIC_CMP_AND_SWP).local(8, 8, p.key);
    swap.extra = [42, 99];
    guest.send(&mut a, &swap.remote(8192, p.key));
    p.cq.done();
    let found = (p.area.load64(0), p.area.load64(8), p.area.load64(8192));
    assert_eq!(found, (40, 42, 99));
    // Inline data, which need no key.
    let inline = Wqe::new(7, wr_opcode::RDMA_WRITE).inline(0x0123_4567_89ab_cdef);
    guest.send(&mut a, &inline.remote(8200, p.key));
    p.cq.done();
    assert_eq!(p.area.load64(8200), 0x0123_4567_89ab_cdef);
    assert_eq!(guest.memory.damage(), 0);
}

#[test]
fn messages_between_two_guests() {
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let (mut a, mut b) = pair_between((&mut one, &p), (&mut two, &q));
    let bytes = pattern(70_000, 3);
    p.area.write(1, &bytes);
    b.receive(1, 3, 80_000, q.key);
    one.send(
        &mut a,
        &Wqe::new(2, wr_opcode::SEND).local(1, 70_000, p.key),
    );
    assert_eq!(p.cq.done().wr_id.get(), 2);
    let got = q.cq.done();
    assert_eq!((got.wr_id.get(), got.byte_len.get()), (1, 70_000));
    assert_eq!(q.area.read(3, 70_000), bytes);
    let read = Wqe::new(3, wr_opcode::RDMA_READ).local(100_000, 70_000, q.key);
    two.send(&mut b, &read.remote(1, p.key));
    q.cq.done();
    assert_eq!(q.area.read(100_000, 70_000), bytes);
    // A key of the own guest opens nothing at the peer's.
    if p.key != q.key {
        let write = Wqe::new(4, wr_opcode::RDMA_WRITE).local(1, 8, p.key);
        one.send(&mut a, &write.remote(1, p.key));
        assert_eq!(p.cq.wait().status, 10, "remote access error");
    }
}
