// SPDX-License-Identifier: GPL-2.0

//! Commands that a driver should not give: each is refused, and changes nothing.

use ferrule_nic::interface::*;
use zerocopy::IntoBytes;

use crate::data::program;
use crate::driver::queues::*;
use crate::driver::*;

const IO: u32 = 5;
const FAULT: u32 = 14;
const INVAL: u32 = 22;
const NOTSUPP: u32 = 95;

fn header(opcode: u16, length: u32, tag: u32) -> CommandHeader {
    CommandHeader {
        opcode: opcode.into(),
        version: 1.into(),
        length: length.into(),
        tag: tag.into(),
        reserved: 0.into(),
    }
}

#[test]
fn heads_that_make_no_sense() {
    let (_worker, [mut guest]) = guests();
    let good = header(opcode::QUERY_DEVICE, 0, 1000);
    let mut try_one = |change: fn(&mut CommandHeader)| {
        let mut header = good;
        change(&mut header);
        guest.raw(header.as_bytes(), 1000).expect("no response")
    };
    assert_eq!(try_one(|_| ()).map(|body| body.len()), Ok(64));
    assert_eq!(try_one(|head| head.opcode = 0.into()), Err(NOTSUPP));
    assert_eq!(try_one(|head| head.opcode = 37.into()), Err(NOTSUPP));
    assert_eq!(try_one(|head| head.opcode = u16::MAX.into()), Err(NOTSUPP));
    assert_eq!(try_one(|head| head.version = 0.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.version = 2.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.tag = 1001.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.reserved = 1.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.length = 8.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.length = 2033.into()), Err(INVAL));
    assert_eq!(try_one(|head| head.length = u32::MAX.into()), Err(INVAL));
}

#[test]
fn every_command_has_its_length() {
    let (_worker, [mut guest]) = guests();
    for opcode in 1..=32u16 {
        for length in [1u32, 7, 9, 63, 500, 2032] {
            let head = header(opcode, length, 7);
            let bytes = [head.as_bytes(), &vec![0; length as usize]].concat();
            assert_eq!(guest.raw(&bytes, 7), Some(Err(INVAL)), "{opcode} {length}");
        }
    }
}

#[test]
fn no_command_before_the_memory_was_checked() {
    let (_worker, [mut guest]) = guests();
    guest.write(register::RESET, 1);
    let head = header(opcode::QUERY_DEVICE, 0, 5);
    assert_eq!(guest.read(register::COMMAND_ADDRESS), 0);
    // Bus mastering stays.
    guest.command_area();
    assert_eq!(guest.raw(head.as_bytes(), 5), Some(Err(IO)));
    guest.begin();
    assert!(guest.raw(head.as_bytes(), 5).unwrap().is_ok());
    // A check that fails takes it back.
    guest.write(register::CHECK_NONCE, 99);
    guest.write(register::CHECK, 1);
    assert_eq!(guest.raw(head.as_bytes(), 6), Some(Err(IO)));
    guest.begin();
    // No bus master: not even an answer.
    assert_eq!(guest.client.write(7, 4, &[2, 0]), None);
    assert_eq!(guest.raw(head.as_bytes(), 8), None);
    guest.begin();
    guest.info();
    // The tag 0 names no command, and an area has to be a page that is there.
    assert_eq!(guest.raw(header(1, 0, 0).as_bytes(), 0), None);
    for address in [0x1008u64, 1 << 40, !0xfff] {
        let bytes = address.to_le_bytes();
        let at = register::COMMAND_ADDRESS as u64;
        assert_eq!(guest.client.write(0, at, &bytes), None);
        assert_eq!(guest.raw(head.as_bytes(), 9), None, "{address:#x}");
    }
    guest.begin();
    guest.info();
}

#[test]
fn objects_of_another_guest() {
    let (_worker, [mut one, mut two]) = guests();
    let p = program(&mut one);
    let q = program(&mut two);
    let qp = one.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    let mw = AllocMw {
        pd: p.pd.into(),
        kind: 2.into(),
    };
    let mw = one.create(opcode::ALLOC_MW, &mw).unwrap();
    let objects = [
        (opcode::QUIESCE_CONTEXT, p.context.number),
        (opcode::CLOSE_CONTEXT, p.context.number),
        (opcode::QUERY_MR, p.key),
        (opcode::DEREG_MR, p.key),
        (opcode::DEALLOC_MW, mw),
        (opcode::DESTROY_CQ, p.cq.number),
        (opcode::QUERY_QP, qp.number),
        (opcode::DESTROY_QP, qp.number),
    ];
    for (opcode, number) in objects {
        if number != q.context.number && number != q.cq.number {
            assert_eq!(two.named(opcode, number), Err(INVAL), "{opcode} {number}");
        }
    }
    for opcode in 1..=32u16 {
        for number in [0x0100_0002, 0xffff, 0x7fff_ffff, NONE] {
            if opcode == opcode::SET_MTU || opcode == opcode::DESTROY_EQ {
                continue;
            }
            assert_eq!(two.named(opcode, number), Err(INVAL), "{opcode} {number}");
        }
    }
    assert_eq!(two.modify(qp.number, 1, |_| ()), Err(INVAL));
    // Each part of a queue pair has to be the guest's own.
    let area = two.memory.alloc(QP_BYTES);
    let good = create_qp(
        &two,
        qp_type::RC,
        q.context.number,
        q.pd,
        q.cq.number,
        &area,
    );
    let changes: [fn(&mut CreateQp, u32); 5] = [
        |create, foreign| create.context = foreign.into(),
        |create, foreign| create.pd = foreign.into(),
        |create, foreign| create.send_cq = foreign.into(),
        |create, foreign| create.recv_cq = foreign.into(),
        |create, foreign| create.srq = foreign.into(),
    ];
    for change in changes {
        let mut create = good;
        change(&mut create, 77);
        assert_eq!(two.create(opcode::CREATE_QP, &create), Err(INVAL));
    }
    // A kick for another's context does nothing but that.
    two.write(register::KICK, p.context.number);
    two.write(register::KICK, u32::MAX);
    one.info();
}

#[test]
fn queue_pairs_that_make_no_sense() {
    let (_worker, [mut guest]) = guests();
    let p = program(&mut guest);
    let changes: [fn(&mut CreateQp); 14] = [
        |create| create.reserved[15] = 1,
        |create| create.flags = 8.into(),
        |create| create.flags = qp_flag::GSI.into(),
        |create| create.qp_type = 0.into(),
        |create| create.sq.reserved = 1.into(),
        |create| create.rq.offset = u32::MAX.into(),
        |create| create.sq.depth = 3.into(),
        |create| create.sq.stride = 65.into(),
        |create| create.cap.max_send_wr = 257.into(),
        |create| create.cap.max_inline = 465.into(),
        |create| create.ctrl = 60000.into(),
        |create| create.destinations = 4.into(),
        |create| create.destinations = 60000.into(),
        |create| create.area.pages = 20000.into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let made = guest.qp_with(qp_type::RC, &p.context, p.pd, &p.cq, change);
        assert_eq!(made.err(), Some(INVAL), "{number}");
    }
    let qp = guest.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    for mask in [1 << 21, 1 << 24, 1 << 31] {
        assert_eq!(guest.modify(qp.number, mask, |_| ()), Err(INVAL));
    }
    let huge = guest.modify(qp.number, 1, |m| m.attributes.state = 7.into());
    assert_eq!(huge, Err(INVAL));
    let migration = guest.modify(qp.number, mask(&[0, 19]), |m| m.attributes.state = 0.into());
    assert_eq!(migration, Err(INVAL));
}

#[test]
fn lists_that_make_no_sense() {
    let (_worker, [mut guest]) = guests();
    let p = program(&mut guest);
    let area = guest.memory.alloc(600 * PAGE);
    let good = guest.region(p.pd, &area, 1);
    let key = guest.create(opcode::REG_MR, &good).unwrap();
    guest.named(opcode::DEREG_MR, key).unwrap();
    let mut refused = |change: &dyn Fn(&mut RegMr)| {
        let mut region = good;
        change(&mut region);
        guest.create(opcode::REG_MR, &region).unwrap_err()
    };
    assert_eq!(refused(&|r| r.length = (600 * PAGE + 1).into()), INVAL);
    assert_eq!(refused(&|r| r.length = (599 * PAGE).into()), INVAL);
    assert_eq!(refused(&|r| r.length = 0.into()), INVAL);
    assert_eq!(refused(&|r| r.length = u64::MAX.into()), INVAL);
    assert_eq!(refused(&|r| r.offset = 4096.into()), INVAL);
    assert_eq!(refused(&|r| r.offset = u32::MAX.into()), INVAL);
    assert_eq!(refused(&|r| r.iova = u64::MAX.into()), INVAL);
    assert_eq!(refused(&|r| r.flags = 8.into()), INVAL);
    assert_eq!(refused(&|r| r.memory.reserved = 1.into()), INVAL);
    assert_eq!(refused(&|r| r.memory.pages = 601.into()), INVAL);
    assert_eq!(refused(&|r| r.memory.pages = 0.into()), INVAL);
    assert_eq!(refused(&|r| r.memory.list = 8.into()), INVAL, "unaligned");
    assert_eq!(refused(&|r| r.memory.list = (1 << 50).into()), FAULT);
    assert_eq!(refused(&|r| r.pd = 5.into()), INVAL);
    // A list in a circle ends where its pages do; then it should have had an end.
    let pages = area.addresses();
    let circle = guest.memory.list_of(&pages[..511]);
    let page = circle.list.get();
    let at = guest.memory.at(page);
    assert!(guest.memory.bytes.store(at + 511 * 8, page));
    for (count, wanted) in [
        (511, Err(INVAL)),
        (1 << 20, Err(INVAL)),
        (1 << 30, Err(INVAL)),
    ] {
        let mut region = good;
        region.memory = PageList {
            pages: count.into(),
            ..circle
        };
        region.length = (u64::from(count) * PAGE).into();
        assert_eq!(guest.create(opcode::REG_MR, &region), wanted, "{count}");
    }
    // Pages that are not aligned, or not there.
    for (bad, errno) in [
        (pages[0] + 8, INVAL),
        (1 << 45, FAULT),
        (u64::MAX - 4095, FAULT),
    ] {
        let mut region = good;
        region.length = (2 * PAGE).into();
        region.memory = guest.memory.list_of(&[pages[1], bad]);
        assert_eq!(guest.create(opcode::REG_MR, &region), Err(errno));
    }
    // Areas have to have the size that their use takes.
    let one = guest.memory.alloc(PAGE);
    let one = guest.memory.list(&one);
    let open = OpenContext {
        doorbell: one,
        status: one,
    };
    assert_eq!(guest.create(opcode::OPEN_CONTEXT, &open), Err(INVAL));
    let cq = |depth: u32, eq: u32| CreateCq {
        depth: depth.into(),
        eq: eq.into(),
        ring: one,
        ctrl: one,
    };
    for (depth, eq) in [
        (65, NONE),
        (128, NONE),
        (0, NONE),
        (64, 3),
        (64, 32),
        (64, NONE - 1),
    ] {
        assert_eq!(guest.create(opcode::CREATE_CQ, &cq(depth, eq)), Err(INVAL));
    }
    assert!(guest.create(opcode::CREATE_CQ, &cq(64, NONE)).is_ok());
}

#[test]
fn quotas() {
    let (_worker, [mut guest]) = guests();
    let most = guest.info().max_pd.get();
    for _ in 0..most {
        guest.pd();
    }
    let none: [u8; 0] = [];
    assert_eq!(guest.create(opcode::ALLOC_PD, &none), Err(12));
    guest.named(opcode::DEALLOC_PD, 17).unwrap();
    assert_eq!(guest.named(opcode::DEALLOC_PD, 17), Err(INVAL));
    assert_eq!(guest.create(opcode::ALLOC_PD, &none), Ok(17));
}
