// SPDX-License-Identifier: GPL-2.0

//! Extended reliable connections: queues by their numbers, and domains that no other guest can
//! name.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use crate::data::{pattern, program, Program};
use crate::driver::queues::*;
use crate::driver::*;

const INVAL: u32 = 22;
const DEPTH: u32 = 16;
const SLOT: u32 = 64;
const DOMAIN: u32 = 5;

/// A shared receive queue of a guest.
pub struct Srq {
    pub number: u32,
    area: Area,
    posted: u32,
}

pub fn operands(guest: &Guest, p: &Program, area: &Area) -> CreateXrcSrq {
    CreateXrcSrq {
        srq: CreateSrq {
            pd: p.pd.into(),
            max_sge: 1.into(),
            ring: Ring {
                offset: 0.into(),
                depth: DEPTH.into(),
                stride: SLOT.into(),
                reserved: 0.into(),
            },
            ctrl: (DEPTH * SLOT).into(),
            reserved: 0.into(),
            area: guest.memory.list(area),
        },
        xrcd: DOMAIN.into(),
        cq: p.cq.number.into(),
    }
}

pub fn srq_area(guest: &Guest) -> Area {
    guest.memory.alloc(u64::from(DEPTH * SLOT) + 128)
}

pub fn srq(guest: &mut Guest, p: &Program) -> Srq {
    let area = srq_area(guest);
    let create = operands(guest, p, &area);
    let number = guest.create(opcode::CREATE_XRC_SRQ, &create).unwrap();
    Srq {
        number,
        area,
        posted: 0,
    }
}

impl Srq {
    pub fn receive(&mut self, id: u64, offset: u64, length: u32, key: u32) {
        let at = u64::from(self.posted % DEPTH * SLOT);
        receive_request(&self.area, at, id, (offset, length, key));
        self.posted += 1;
        self.area.store((DEPTH * SLOT).into(), self.posted);
    }
}

pub fn initiator(create: &mut CreateQp) {
    create.recv_cq = NONE.into();
    create.rq.depth = 0.into();
    create.cap.max_recv_wr = 0.into();
    create.cap.max_recv_sge = 0.into();
}

pub fn target(create: &mut CreateQp) {
    initiator(create);
    create.pd = DOMAIN.into();
    create.send_cq = NONE.into();
    create.sq.depth = 0.into();
    create.cap = Capabilities {
        max_send_wr: 0.into(),
        max_recv_wr: 0.into(),
        max_send_sge: 0.into(),
        max_recv_sge: 0.into(),
        max_inline: 0.into(),
    };
}

/// The sides of an extended connection, as [`Guest::connect_as`] has them.
pub const INITIATOR: [bool; 2] = [false, true];
const TARGET: [bool; 2] = [true, false];

/// An initiator and a target of one guest, connected with each other.
pub fn ends(guest: &mut Guest, p: &Program) -> (Qp, Qp) {
    let mut make = |kind, change: fn(&mut CreateQp)| {
        guest
            .qp_with(kind, &p.context, p.pd, &p.cq, change)
            .unwrap()
    };
    let a = make(qp_type::XRC_INI, initiator);
    let b = make(qp_type::XRC_TGT, target);
    let to = vector(guest.gid);
    guest.connect_as(&a, INITIATOR, b.number, to).unwrap();
    guest.connect_as(&b, TARGET, a.number, to).unwrap();
    (a, b)
}

/// A SEND to a shared receive queue of the target's domain.
pub fn send_to(queue: u32, id: u64) -> Wqe {
    let mut send = Wqe::new(id, wr_opcode::SEND);
    send.extra[0] = queue.into();
    send
}

#[test]
fn messages_between_two_guests() {
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let mut a = one
        .qp_with(qp_type::XRC_INI, &p.context, p.pd, &p.cq, initiator)
        .unwrap();
    let b = two
        .qp_with(qp_type::XRC_TGT, &q.context, q.pd, &q.cq, target)
        .unwrap();
    one.connect_as(&a, INITIATOR, b.number, vector(two.gid))
        .unwrap();
    two.connect_as(&b, TARGET, a.number, vector(one.gid))
        .unwrap();
    let mut queue = srq(&mut two, &q);
    queue.receive(1, 3, 80_000, q.key);
    let bytes = pattern(70_000, 3);
    p.area.write(1, &bytes);
    let send = send_to(queue.number, 2).local(1, 70_000, p.key);
    one.send(&mut a, &send);
    assert_eq!(p.cq.done().wr_id.get(), 2);
    let got = q.cq.done();
    assert_eq!((got.wr_id.get(), got.byte_len.get()), (1, 70_000));
    assert_eq!((got.is_xrc, got.queue_index.get()), (1, queue.number));
    assert_eq!(got.qp_num.get(), b.number);
    assert_eq!(q.area.read(3, 70_000), bytes);

    // The first guest's queue, in the domain of the same number, is not in this one.
    let mut own = srq(&mut one, &p);
    own.receive(5, 0, 100, p.key);
    let send = send_to(own.number, 3).local(1, 70_000, p.key);
    one.send(&mut a, &send);
    assert_eq!(p.cq.wait().status, 9, "remote invalid request");
    assert_eq!(
        own.area.load(u64::from(DEPTH * SLOT) + 64),
        0,
        "nobody took it"
    );
    // Each keeps what it needs.
    assert_eq!(two.named(opcode::DESTROY_CQ, q.cq.number), Err(16));
    two.named(opcode::DESTROY_SRQ, queue.number).unwrap();
}

#[test]
fn operands_that_make_no_sense() {
    let (_worker, [mut one, mut two]) = guests();
    let (p, q) = (program(&mut one), program(&mut two));
    let area = srq_area(&one);
    let good = operands(&one, &p, &area);
    let changes: [fn(&mut CreateXrcSrq, u32); 4] = [
        |create, _| create.xrcd = 65536.into(),
        |create, _| create.srq.reserved = 1.into(),
        |create, _| create.cq = NONE.into(),
        |create, foreign| create.cq = foreign.into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut create = good;
        change(&mut create, q.cq.number);
        // Numbers are the engine's, so those of guests differ.
        assert_ne!(p.cq.number, q.cq.number);
        let made = one.create(opcode::CREATE_XRC_SRQ, &create);
        assert_eq!(made, Err(INVAL), "{number}");
    }
    let changes: [fn(&mut CreateQp, u32); 5] = [
        |create, _| create.pd = 65536.into(),
        |create, cq| create.send_cq = cq.into(),
        |create, cq| create.recv_cq = cq.into(),
        |create, _| create.sq.depth = 16.into(),
        |create, _| create.rq.depth = 16.into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let made = one.qp_with(qp_type::XRC_TGT, &p.context, p.pd, &p.cq, |create| {
            target(create);
            change(create, p.cq.number);
        });
        assert_eq!(made.err(), Some(INVAL), "{number}");
    }
    // Each service has its own queues.
    let made = one.qp_with(qp_type::RC, &p.context, p.pd, &p.cq, initiator);
    assert_eq!(made.err(), Some(INVAL));
    let made = one.qp_with(qp_type::XRC_INI, &p.context, p.pd, &p.cq, |_| ());
    assert_eq!(made.err(), Some(INVAL));
}
