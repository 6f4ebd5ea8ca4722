// SPDX-License-Identifier: GPL-2.0

//! Objects beside messages: windows, shared receive queues, other rings, other memory.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;
use zerocopy::FromBytes;

use crate::data::{pair, pattern, program};
use crate::driver::queues::*;
use crate::driver::*;

const INVAL: u32 = 22;
const FAULT: u32 = 14;

#[test]
fn a_window_opens_a_part() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let (mut a, mut b) = pair(&mut guest, &p);
    let alloc = |kind: u32| AllocMw {
        pd: p.pd.into(),
        kind: kind.into(),
    };
    assert_eq!(guest.create(opcode::ALLOC_MW, &alloc(3)), Err(INVAL));
    let key = guest.create(opcode::ALLOC_MW, &alloc(1)).unwrap();
    let new = (key & !0xff) | ((key + 1) & 0xff);
    // Bytes 4096 to 8191, for writes.
    let mut bind = Wqe::new(1, wr_opcode::BIND_MW).remote(4096, new);
    bind.extra = [u64::from(key) | (2 << 32), 4096];
    bind.imm = p.key;
    guest.send(&mut b, &bind);
    p.cq.done();
    let write = Wqe::new(2, wr_opcode::RDMA_WRITE).local(0, 100, p.key);
    p.area.write(0, &pattern(100, 2));
    guest.send(&mut a, &write.remote(8000, new));
    p.cq.done();
    assert_eq!(p.area.read(8000, 100), pattern(100, 2));
    let info = MrInfo::read_from_bytes(&guest.named(opcode::QUERY_MR, p.key).unwrap()).unwrap();
    assert_eq!(info.has_windows.get(), 1);
    assert_eq!(info.length.get(), 1 << 20);
    guest.send(&mut a, &write.remote(8100, new));
    assert_eq!(p.cq.wait().status, 10, "beyond the window");
    // By any key that it has had.
    guest.named(opcode::DEALLOC_MW, new).unwrap();
    assert_eq!(guest.named(opcode::DEALLOC_MW, key), Err(INVAL));
}

#[test]
fn a_shared_receive_queue() {
    let (_worker, [mut guest]) = guests();
    let mut events = guest.event_queue(0, 16).unwrap();
    let mut p = program(&mut guest);
    let area = guest.memory.alloc(16 * 64 + 128);
    let create = CreateSrq {
        pd: p.pd.into(),
        max_sge: 1.into(),
        ring: Ring {
            offset: 0.into(),
            depth: 16.into(),
            stride: 64.into(),
            reserved: 0.into(),
        },
        ctrl: 1024.into(),
        reserved: 0.into(),
        area: guest.memory.list(&area),
    };
    let srq = guest.create(opcode::CREATE_SRQ, &create).unwrap();
    let info = SrqInfo::read_from_bytes(&guest.named(opcode::QUERY_SRQ, srq).unwrap()).unwrap();
    assert_eq!(
        (info.max_wr.get(), info.max_sge.get(), info.limit.get()),
        (16, 1, 0)
    );
    let mut a = guest.qp(qp_type::RC, &p.context, p.pd, &p.cq);
    let b = guest
        .qp_with(qp_type::RC, &p.context, p.pd, &p.cq, |create| {
            create.srq = srq.into();
            create.rq.depth = 0.into();
            create.cap.max_recv_wr = 0.into();
        })
        .unwrap();
    let gid = guest.gid;
    guest.connect(&a, b.number, gid).unwrap();
    guest.connect(&b, a.number, gid).unwrap();
    for number in 0..4u64 {
        let local = (4096 * (number + 1), 100, p.key);
        receive_request(&area, number * 64, 10 + number, local);
    }
    area.store(1024, 4);
    let limit = |limit: u32| SetSrqLimit {
        number: srq.into(),
        limit: limit.into(),
    };
    guest.command(opcode::SET_SRQ_LIMIT, &limit(3)).unwrap();
    assert_eq!(guest.command(opcode::SET_SRQ_LIMIT, &limit(17)), Err(INVAL));
    assert_eq!(events.next(), None);
    for number in 0..4u8 {
        p.area.write(0, &pattern(100, number));
        guest.send(&mut a, &Wqe::new(1, wr_opcode::SEND).local(0, 100, p.key));
        p.cq.all(2);
        let at = 4096 * (u64::from(number) + 1);
        assert_eq!(p.area.read(at, 100), pattern(100, number));
    }
    assert_eq!(area.load(1024 + 64), 4, "its slots are free");
    assert_eq!(
        eventually("the limit", || events.next()),
        (event::SRQ, srq, 15)
    );
    // Another ring, with a request at the slot of its index.
    let larger = guest.memory.alloc(64 * 64 + 128);
    let list = guest.memory.list(&larger);
    let resize = |depth: u32, reserved: u32| ResizeSrq {
        number: srq.into(),
        limit: NONE.into(),
        ring: Ring {
            offset: 0.into(),
            depth: depth.into(),
            stride: 64.into(),
            reserved: 0.into(),
        },
        ctrl: 4096.into(),
        reserved: reserved.into(),
        area: list,
    };
    for (depth, reserved) in [(3, 0), (0, 0), (128, 0), (64, 1)] {
        let refused = guest.command(opcode::RESIZE_SRQ, &resize(depth, reserved));
        assert_eq!(refused, Err(INVAL), "{depth}, {reserved}");
    }
    receive_request(&larger, 4 * 64, 14, (4096, 100, p.key));
    larger.store(4096, 5);
    guest.command(opcode::RESIZE_SRQ, &resize(64, 0)).unwrap();
    let info = SrqInfo::read_from_bytes(&guest.named(opcode::QUERY_SRQ, srq).unwrap()).unwrap();
    assert_eq!(info.max_wr.get(), 64);
    p.area.write(0, &pattern(100, 9));
    guest.send(&mut a, &Wqe::new(1, wr_opcode::SEND).local(0, 100, p.key));
    p.cq.all(2);
    assert_eq!(p.area.read(4096, 100), pattern(100, 9));
    assert_eq!((area.load(1024 + 64), larger.load(4096 + 64)), (4, 5));
    assert_eq!(guest.named(opcode::DESTROY_SRQ, srq), Err(16), "EBUSY");
    guest.named(opcode::DESTROY_QP, b.number).unwrap();
    guest.named(opcode::DESTROY_SRQ, srq).unwrap();
    assert_eq!(guest.memory.damage(), 0);
}

#[test]
fn a_completion_queue_gets_other_rings() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let (mut a, mut b) = pair(&mut guest, &p);
    for depth in [1024u32, 4, 256] {
        guest.resize(&mut p.cq, depth).unwrap();
        for _ in 0..300 {
            b.receive(1, 0, 8, p.key);
            guest.send(&mut a, &Wqe::new(2, wr_opcode::SEND).local(8, 8, p.key));
            p.cq.all(2);
        }
    }
    for depth in [0, 3] {
        assert_eq!(guest.resize(&mut p.cq, depth), Err(INVAL));
    }
    let resize = |depth: u32, ring| ResizeCq {
        cqn: p.cq.number.into(),
        depth: depth.into(),
        ring,
    };
    let answer = guest.named(opcode::QUERY_CQ, p.cq.number).unwrap();
    let info = CqInfo::read_from_bytes(&answer).unwrap();
    assert_eq!((info.depth.get(), info.producer.get()), (256, 1800));
    assert_eq!(info.overrun.get(), 0);
    assert_eq!(guest.named(opcode::QUERY_CQ, NONE), Err(INVAL));
    let list = guest.memory.list(&p.cq.ring);
    for depth in [2, 512, 1 << 21, 1 << 31] {
        let refused = guest.command(opcode::RESIZE_CQ, &resize(depth, list));
        assert_eq!(refused, Err(INVAL), "{depth}");
    }
}

#[test]
fn a_region_gets_other_memory() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let (mut a, _b) = pair(&mut guest, &p);
    let other = guest.memory.alloc(3 * PAGE);
    let mut change = ReregMr {
        key: p.key.into(),
        mask: rereg::MEMORY.into(),
        change: guest.region(0, &other, 0),
    };
    // A part of the pages: from the middle of the first to the middle of the last.
    change.change.offset = 100.into();
    change.change.length = (2 * PAGE).into();
    guest.command(opcode::REREG_MR, &change).unwrap();
    other.write(100, &pattern(8192, 5));
    let read = Wqe::new(1, wr_opcode::RDMA_READ).local(4100, 4000, p.key);
    guest.send(&mut a, &read.remote(0, p.key));
    p.cq.done();
    assert_eq!(other.read(4200, 4000), pattern(8192, 5)[..4000]);
    guest.send(&mut a, &read.remote(4193, p.key));
    assert_eq!(p.cq.wait().status, 10, "beyond the end");
    let info = MrInfo::read_from_bytes(&guest.named(opcode::QUERY_MR, p.key).unwrap()).unwrap();
    assert_eq!((info.length.get(), info.access.get()), (8192, ALL_RIGHTS));
    change.mask = rereg::ACCESS.into();
    change.change.access = 1.into();
    guest.command(opcode::REREG_MR, &change).unwrap();
    let info = MrInfo::read_from_bytes(&guest.named(opcode::QUERY_MR, p.key).unwrap()).unwrap();
    assert_eq!(info.access.get(), 1);
    change.mask = 8.into();
    assert_eq!(guest.command(opcode::REREG_MR, &change), Err(INVAL));
    assert_eq!(guest.memory.damage(), 0);
}

#[test]
fn all_memory_by_its_addresses() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let mut all = guest.region(p.pd, &p.area, ALL_RIGHTS);
    all.flags = (mr_flag::ALL | mr_flag::WRITABLE).into();
    assert_eq!(
        guest.create(opcode::REG_MR, &all),
        Err(INVAL),
        "with a list"
    );
    (all.iova, all.length) = (0.into(), u64::MAX.into());
    all.memory = PageList::read_from_bytes(&[0; 16]).unwrap();
    let key = guest.create(opcode::REG_MR, &all).unwrap();
    let (mut a, _b) = pair(&mut guest, &p);
    // Pages 4 to 7 of an area follow each other in the same range.
    let page = p.area.addresses()[20];
    let at = |address: u64| address.wrapping_sub(IOVA);
    p.area.write(0, &pattern(64, 6));
    let write = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 64, p.key);
    guest.send(&mut a, &write.remote(at(page + 8), key));
    p.cq.done();
    assert_eq!(p.area.read(20 * PAGE + 8, 64), pattern(64, 6));
    // The end of the first range; nothing is behind it.
    guest.send(&mut a, &write.remote(at((32 << 20) - 63), key));
    assert_ne!(p.cq.wait().status, 0);
}

#[test]
fn rights_of_pages() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let read_only = ferrule_nic::mapping::sealed("rom", 2 * PAGE).unwrap();
    let at = 0x1000_0000_0000;
    assert_eq!(guest.client.map(Some(&read_only), 0, at, 2 * PAGE, 1), None);
    let mut region = guest.region(p.pd, &p.area, ALL_RIGHTS);
    region.length = (2 * PAGE).into();
    region.memory = guest.memory.list_of(&[at, at + PAGE]);
    assert_eq!(guest.create(opcode::REG_MR, &region), Err(FAULT));
    region.flags = 0.into();
    let key = guest.create(opcode::REG_MR, &region).unwrap();
    let (mut a, _b) = pair(&mut guest, &p);
    let read = Wqe::new(1, wr_opcode::RDMA_READ).local(0, 5000, p.key);
    guest.send(&mut a, &read.remote(0, key));
    p.cq.done();
    let write = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 8, p.key);
    guest.send(&mut a, &write.remote(0, key));
    assert_ne!(p.cq.wait().status, 0);
}
