// SPDX-License-Identifier: GPL-2.0

//! Datagrams: by address handles, by addresses beside the queue, to groups, and general services.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use crate::data::{pattern, program, Program};
use crate::driver::queues::*;
use crate::driver::*;

pub const QKEY: u32 = 0x1111;
const INVAL: u32 = 22;
const NOMEM: u32 = 12;
const NETUNREACH: u32 = 101;
/// Bytes before those of a datagram.
pub const GRH: usize = 40;

pub fn handle(guest: &mut Guest, pd: u32, to: AddressVector) -> Result<u32, u32> {
    let create = CreateAh {
        pd: pd.into(),
        reserved: 0.into(),
        to,
    };
    guest.create(opcode::CREATE_AH, &create)
}

pub fn datagram_qp(guest: &mut Guest, p: &Program) -> Qp {
    let qp = guest.qp(qp_type::UD, &p.context, p.pd, &p.cq);
    guest.datagrams(&qp, QKEY);
    qp
}

fn send(id: u64, p: &Program) -> Wqe {
    Wqe::new(id, wr_opcode::SEND).local(0, 100, p.key)
}

/// A queue pair for general services, whose requests are addressed beside the queue.
fn general_services(guest: &mut Guest, p: &Program) -> Qp {
    let qp = guest.qp_with(qp_type::UD, &p.context, p.pd, &p.cq, |create| {
        create.flags = qp_flag::GSI.into();
        create.destinations = (2 * DEPTH * 64 + 128).into();
    });
    let qp = qp.unwrap();
    assert_eq!(qp.number, 1);
    guest.datagrams(&qp, 0x8001_0000);
    qp
}

#[test]
fn by_handles_in_a_guest_and_between_two() {
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let bytes = pattern(100, 9);
    p.area.write(0, &bytes);
    let (mut a, mut b) = (datagram_qp(&mut one, &p), datagram_qp(&mut one, &p));
    let mut c = datagram_qp(&mut two, &q);
    let gid = one.gid;
    let own = handle(&mut one, p.pd, vector(gid)).unwrap();
    let foreign = handle(&mut one, p.pd, vector(two.gid)).unwrap();
    b.receive(1, 4096, 200, p.key);
    one.send(&mut a, &send(2, &p).to(own, b.number, QKEY));
    p.cq.all(2);
    assert_eq!(p.area.read(4096 + GRH as u64, 100), bytes);
    c.receive(3, 8192, 200, q.key);
    one.send(&mut a, &send(4, &p).to(foreign, c.number, QKEY));
    p.cq.done();
    let got = q.cq.done();
    assert_eq!((got.src_qp.get(), got.byte_len.get()), (a.number, 140));
    assert_eq!(q.area.read(8192 + GRH as u64, 100), bytes);
    // Both addresses are in the header.
    assert_eq!(q.area.read(8192 + 8, 32), [one.gid, two.gid].concat());
    // The other guest's queue pair is not at the own address.
    c.receive(5, 8192, 200, q.key);
    one.send(&mut a, &send(6, &p).to(own, c.number, QKEY));
    p.cq.done();
    two.info();
    assert!(q.cq.poll().is_none());
    one.named(opcode::DESTROY_AH, own).unwrap();
    assert_eq!(one.named(opcode::DESTROY_AH, own), Err(INVAL));
    one.send(&mut a, &send(7, &p).to(own, b.number, QKEY));
    assert_eq!(p.cq.wait().status, 2, "a handle that is gone");
}

#[test]
fn general_services_of_two_guests() {
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let mut a = general_services(&mut one, &p);
    let mut b = general_services(&mut two, &q);
    assert_ne!(a.doorbell, b.doorbell, "indices differ");
    let second = one.qp_with(qp_type::UD, &p.context, p.pd, &p.cq, |create| {
        create.flags = qp_flag::GSI.into();
    });
    assert_eq!(second.err(), Some(16), "EBUSY");
    b.receive(1, 0, 200, q.key);
    p.area.write(0, &pattern(100, 1));
    a.destination(&vector(two.gid));
    one.send(&mut a, &send(2, &p).to(0, 1, 0x8001_0000));
    assert_eq!(p.cq.done().qp_num.get(), 1);
    let got = q.cq.done();
    assert_eq!((got.qp_num.get(), got.src_qp.get()), (1, 1));
    assert_eq!(q.area.read(GRH as u64, 100), pattern(100, 1));
    // The slot's address is judged: nobody has it.
    a.destination(&vector([9; 16]));
    one.send(&mut a, &send(3, &p).to(0, 1, 0x8001_0000));
    assert_eq!(p.cq.wait().status, 2);
    let body = one.named(opcode::QUERY_QP, 1).unwrap();
    let info: QpInfo = zerocopy::FromBytes::read_from_bytes(&body).unwrap();
    assert_eq!(info.flags.get(), qp_flag::GSI);
    two.named(opcode::DESTROY_QP, 1).unwrap();
    assert_eq!(two.named(opcode::QUERY_QP, 1), Err(INVAL));
    general_services(&mut two, &q);
}

#[test]
fn addresses() {
    let (_worker, [mut one, mut two]) = guests();
    let p = program(&mut one);
    let q = program(&mut two);
    assert_eq!(two.set_gid(1, one.gid), Err(98), "EADDRINUSE");
    assert_eq!(two.set_gid(256, [1; 16]), Err(INVAL));
    assert_eq!(two.set_gid(1, [0xff; 16]), Err(INVAL), "a group's");
    two.set_gid(1, two.gid).unwrap();
    two.set_gid(0, [0; 16]).unwrap();
    // It is still there by its other index.
    handle(&mut one, p.pd, vector(two.gid)).unwrap();
    assert_eq!(
        handle(&mut two, q.pd, vector(one.gid)),
        Err(INVAL),
        "no source 0"
    );
    two.set_gid(1, [0; 16]).unwrap();
    assert_eq!(handle(&mut one, p.pd, vector(two.gid)), Err(NETUNREACH));
    assert_eq!(handle(&mut one, p.pd, vector([7; 16])), Err(NETUNREACH));
    let gid = two.gid;
    one.set_gid(5, gid).unwrap();
    assert_eq!(two.set_gid(0, gid), Err(98), "another has taken it");
    for bad in [
        AddressVector {
            valid: 0,
            ..vector(one.gid)
        },
        AddressVector {
            valid: 2,
            ..vector(one.gid)
        },
        AddressVector {
            sgid_index: 9,
            ..vector(one.gid)
        },
        AddressVector {
            flow_label: (1 << 20).into(),
            ..vector(one.gid)
        },
    ] {
        assert_eq!(handle(&mut one, p.pd, bad), Err(INVAL));
    }
    let a = one.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    assert_eq!(one.connect(&a, 2, [7; 16]), Err(NETUNREACH));
}

#[test]
fn groups_have_members_at_all_ports() {
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let (mut a, mut b) = (datagram_qp(&mut one, &p), datagram_qp(&mut two, &q));
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x0e, 1);
    let member = |number: u32| Multicast {
        number: number.into(),
        reserved: 0.into(),
        gid,
    };
    one.command(opcode::ATTACH_MCAST, &member(a.number))
        .unwrap();
    two.command(opcode::ATTACH_MCAST, &member(b.number))
        .unwrap();
    assert_eq!(
        two.command(opcode::ATTACH_MCAST, &member(b.number)),
        Err(INVAL)
    );
    assert_eq!(
        two.command(opcode::ATTACH_MCAST, &member(a.number)),
        Err(INVAL)
    );
    assert_eq!(
        two.command(opcode::DETACH_MCAST, &member(a.number)),
        Err(INVAL)
    );
    assert_eq!(two.named(opcode::DESTROY_QP, b.number), Err(16), "EBUSY");
    let to = handle(&mut one, p.pd, vector(gid)).unwrap();
    a.receive(1, 4096, 200, p.key);
    b.receive(2, 4096, 200, q.key);
    p.area.write(0, &pattern(100, 4));
    one.send(&mut a, &send(3, &p).to(to, 0xff_ffff, QKEY));
    p.cq.all(2);
    q.cq.done();
    assert_eq!(p.area.read(4096 + GRH as u64, 100), pattern(100, 4));
    assert_eq!(q.area.read(4096 + GRH as u64, 100), pattern(100, 4));
    two.command(opcode::DETACH_MCAST, &member(b.number))
        .unwrap();
    assert_eq!(
        two.command(opcode::DETACH_MCAST, &member(b.number)),
        Err(INVAL)
    );
    two.named(opcode::DESTROY_QP, b.number).unwrap();
}

#[test]
fn a_guest_has_its_part_of_the_members_of_a_group() {
    let (_worker, [mut one, mut two]) = guests();
    let (p, q) = (program(&mut one), program(&mut two));
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x0e, 1);
    let attach = |guest: &mut Guest, p: &Program| {
        let qp = datagram_qp(guest, p);
        let member = Multicast {
            number: qp.number.into(),
            reserved: 0.into(),
            gid,
        };
        guest.command(opcode::ATTACH_MCAST, &member).map(|_| member)
    };
    let most = one.info().max_mcast_qp_attach.get();
    let members = (0..most).map(|_| attach(&mut one, &p).unwrap());
    let last = members.last().unwrap();
    assert_eq!(attach(&mut one, &p).err(), Some(NOMEM));
    for _ in 0..most {
        attach(&mut two, &q).unwrap();
    }
    one.command(opcode::DETACH_MCAST, &last).unwrap();
    attach(&mut one, &p).unwrap();
}
