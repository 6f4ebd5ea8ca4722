// SPDX-License-Identifier: GPL-2.0

//! Reliable connections and datagrams between guests of two processes.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use super::{gid, gid4, linked, process, to, wire_only, At, Peer, Process, Sockets};
use crate::data::{pattern, program, Program};
use crate::datagrams::{datagram_qp, handle, GRH, QKEY};
use crate::driver::queues::*;
use crate::driver::*;

const NETUNREACH: u32 = 101;
const INVAL: u32 = 22;

/// One guest with a queue pair.
struct Side<'a> {
    guest: &'a mut Guest,
    p: Program,
    qp: Qp,
}

/// Guest 1 of the first process and guest 3 of the second, connected by addresses that `address`
/// tells.
fn connected([one, two]: &mut [Process; 2], address: fn(u8) -> [u8; 16]) -> (Side<'_>, Side<'_>) {
    sides(&mut one.guests[0], &mut two.guests[0], address)
}

/// Guests 1 and 3, connected.
fn sides<'a>(
    one: &'a mut Guest,
    two: &'a mut Guest,
    address: fn(u8) -> [u8; 16],
) -> (Side<'a>, Side<'a>) {
    let side = |guest: &'a mut Guest, number| {
        guest.gid = address(number);
        let p = program(guest);
        let qp = guest.qp(qp_type::RC, &p.context, p.pd, &p.cq);
        Side { guest, p, qp }
    };
    let (a, b) = (side(one, 1), side(two, 3));
    let numbers = (a.qp.number, b.qp.number);
    a.guest
        .connect_to(&a.qp, numbers.1, to(3, address(3)))
        .unwrap();
    b.guest
        .connect_to(&b.qp, numbers.0, to(1, address(1)))
        .unwrap();
    (a, b)
}

impl Side<'_> {
    fn send(&mut self, wqe: &Wqe) {
        self.guest.send(&mut self.qp, wqe);
    }

    /// Sends a request that ends well.
    fn done(&mut self, wqe: &Wqe) {
        self.send(wqe);
        assert_eq!(self.p.cq.done().wr_id.get(), wqe.id);
    }
}

/// All operations of reliable connections, from one to the other.
fn operations(a: &mut Side<'_>, b: &mut Side<'_>) {
    let (near, far) = (a.p.key, b.p.key);
    let bytes = pattern(100_000, 7);
    a.p.area.write(10, &bytes);
    b.qp.receive(1, 500_001, 200_000, far);
    a.done(&Wqe::new(2, wr_opcode::SEND).local(10, 100_000, near));
    let got = b.p.cq.done();
    assert_eq!((got.wr_id.get(), got.byte_len.get()), (1, 100_000));
    assert_eq!(b.p.area.read(500_001, 100_000), bytes);
    let write = Wqe::new(3, wr_opcode::RDMA_WRITE).local(10, 100_000, near);
    a.done(&write.remote(700_000, far));
    assert_eq!(b.p.area.read(700_000, 100_000), bytes);
    let read = Wqe::new(4, wr_opcode::RDMA_READ).local(200_000, 99_999, near);
    a.done(&read.remote(700_001, far));
    assert_eq!(a.p.area.read(200_000, 99_999), bytes[1..]);
    b.p.area.store64(8192, 40);
    let mut add = Wqe::new(5, wr_opcode::ATOMIC_FETCH_AND_ADD).local(400_000, 8, near);
    add.extra = [2, 0];
    a.done(&add.remote(8192, far));
    let mut swap = Wqe::new(6, wr_opcode::ATOMIC_CMP_AND_SWP).local(400_008, 8, near);
    swap.extra = [42, 99];
    a.done(&swap.remote(8192, far));
    let found = [400_000, 400_008].map(|at| a.p.area.load64(at));
    assert_eq!((found, b.p.area.load64(8192)), ([40, 42], 99));
}

#[test]
fn operations_over_a_link() {
    for address in [gid, gid4] {
        let sockets = Sockets::new();
        let mut processes = linked(&sockets);
        let (mut a, mut b) = connected(&mut processes, address);
        operations(&mut a, &mut b);
        operations(&mut b, &mut a);
        for side in [&a, &b] {
            assert_eq!(side.guest.memory.damage(), 0);
        }
        // A key that is none, and memory that is not the peer's.
        let wrong = Wqe::new(7, wr_opcode::RDMA_WRITE).local(0, 8, a.p.key);
        a.send(&wrong.remote(0, b.p.key ^ 0x1_0000));
        assert_eq!(a.p.cq.wait().status, 10, "remote access error");
    }
}

#[test]
fn packets_in_the_place_of_copies() {
    let mut process = wire_only(&[At::Guest(1, None), At::Guest(3, None)]);
    let [one, two] = &mut process.guests[..] else {
        panic!("there are two guests");
    };
    let (mut a, mut b) = sides(one, two, gid);
    operations(&mut a, &mut b);
    operations(&mut b, &mut a);
    for name in ["pkts", "bytes"] {
        let [sent, received] = ["sent", "rcvd"].map(|way| {
            let name = format!("{way}_{name}");
            [&mut a, &mut b].map(|side| counter(side.guest, &name))
        });
        assert_eq!(sent, [received[1], received[0]]);
        // The data of two messages and of what was read.
        let least = if name == "pkts" { 60 } else { 300_000 };
        assert!(sent.iter().all(|&sent| sent > least), "{sent:?} {name}");
        let local = format!("local_{name}");
        assert_eq!(counter(a.guest, &local) + counter(b.guest, &local), 0);
    }
}

/// Carries frames between two links, and loses one in so many.
fn relay(from: &Sockets, loss: u32) {
    let [one, two] = ["one", "two"].map(|name| Peer::new(&from.path(name)));
    let again = |peer: &Peer| Peer(peer.0.try_clone().unwrap());
    for (mut from, mut to, mut random) in [(again(&one), again(&two), 1u32), (two, one, 2)] {
        std::thread::spawn(move || {
            while let Some(frame) = from.receive() {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if (random >> 8) % loss != 0 && !to.send(&frame) {
                    return;
                }
            }
        });
    }
}

/// As [`linked`], by a relay.
fn lossy(sockets: &Sockets, loss: u32) -> [Process; 2] {
    let [one, two] = ["one", "two"].map(|name| At::Listen(sockets.address(name)));
    let processes = [
        process(&[At::Guest(1, None), one]),
        process(&[At::Guest(3, None), two]),
    ];
    relay(sockets, loss);
    processes
}

#[test]
fn lost_packets_are_retransmitted() {
    let sockets = Sockets::new();
    let mut processes = lossy(&sockets, 20);
    let (mut a, mut b) = connected(&mut processes, gid);
    for _ in 0..3 {
        operations(&mut a, &mut b);
        operations(&mut b, &mut a);
    }
    let mut retries = 0;
    for side in [&mut a, &mut b] {
        retries += counter(side.guest, "retries");
    }
    assert_ne!(retries, 0, "nothing was lost");
}

#[test]
fn a_peer_that_has_gone() {
    let sockets = Sockets::new();
    let [mut one, two] = linked(&sockets);
    let guest = &mut one.guests[0];
    let mut p = program(guest);
    let mut qp = guest.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    guest.connect_to(&qp, 17, to(3, gid(3))).unwrap();
    drop(two);
    guest.send(&mut qp, &Wqe::new(1, wr_opcode::SEND).local(0, 8, p.key));
    assert_eq!(p.cq.wait().status, 12, "retries exceeded");
}

#[test]
fn vectors_that_lead_out() {
    let sockets = Sockets::new();
    let [mut one, _two] = linked(&sockets);
    let guest = &mut one.guests[0];
    let p = program(guest);
    guest.set_gid(1, gid4(1)).unwrap();
    handle(guest, p.pd, to(9, gid(9))).unwrap();
    let by = |index, gid| AddressVector {
        sgid_index: index,
        ..to(9, gid)
    };
    handle(guest, p.pd, by(1, gid4(9))).unwrap();
    // Another family, no Ethernet address, and a group's.
    assert_eq!(handle(guest, p.pd, by(0, gid4(9))), Err(INVAL));
    assert_eq!(handle(guest, p.pd, by(1, gid(9))), Err(INVAL));
    assert_eq!(handle(guest, p.pd, vector(gid(9))), Err(INVAL));
    let group = AddressVector {
        dmac: [0x33, 0x33, 0, 0, 0, 1],
        ..to(9, gid(9))
    };
    assert_eq!(handle(guest, p.pd, group), Err(INVAL));
    // A switch without a port for others.
    let mut alone = process(&[At::Guest(1, Some(sockets.address("net")))]);
    let guest = &mut alone.guests[0];
    let p = program(guest);
    assert_eq!(handle(guest, p.pd, to(9, gid(9))), Err(NETUNREACH));
}

#[test]
fn datagrams_over_a_link() {
    let sockets = Sockets::new();
    let [mut one, mut two] = linked(&sockets);
    let (one, two) = (&mut one.guests[0], &mut two.guests[1]);
    let (mut p, mut q) = (program(one), program(two));
    let (mut a, mut b) = (datagram_qp(one, &p), datagram_qp(two, &q));
    let far = handle(one, p.pd, to(4, gid(4))).unwrap();
    let bytes = pattern(1000, 5);
    p.area.write(0, &bytes);
    b.receive(1, 4096, 2000, q.key);
    let send = Wqe::new(2, wr_opcode::SEND).local(0, 1000, p.key);
    one.send(&mut a, &send.to(far, b.number, QKEY));
    p.cq.done();
    let got = q.cq.done();
    assert_eq!((got.src_qp.get(), got.byte_len.get()), (a.number, 1040));
    assert_eq!(q.area.read(4096 + GRH as u64, 1000), bytes);
    assert_eq!(q.area.read(4096 + 8, 32), [gid(1), gid(4)].concat());
}
