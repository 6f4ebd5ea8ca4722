// SPDX-License-Identifier: GPL-2.0

//! Ends in the middle of work: memory that is given back, resets, clients that leave. Nothing is
//! touched afterwards.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::interface::*;
use ferrule_nic::mapping::{sealed, Mapping};
use ferrule_nic::worker::Worker;

use crate::client::{unmap_body, DMA_UNMAP, RESET};
use crate::data::{pair, pair_between, pattern, program, Program};
use crate::driver::queues::*;
use crate::driver::*;

/// Posts so much that it takes a while.
pub fn flood(guest: &mut Guest, p: &Program, a: &mut Qp) {
    for number in 0..DEPTH {
        let length = 256 << 10;
        let write = Wqe::new(number.into(), wr_opcode::RDMA_WRITE).local(0, length, p.key);
        a.post(&write.remote(512 << 10, p.key));
    }
    guest.ring(a);
}

/// A copy of all of a guest's memory.
fn contents(bytes: &Mapping) -> Vec<u8> {
    let mut copy = vec![0; bytes.len() as usize];
    assert!(bytes.read(0, &mut copy));
    copy
}

/// Nobody writes to the memory any more.
pub fn is_still(bytes: &Mapping) {
    let before = contents(bytes);
    std::thread::sleep(Duration::from_millis(30));
    assert!(contents(bytes) == before);
}

fn is_empty(device: &Device) {
    assert_eq!(device.objects(), ferrule_engine::Objects::default());
}

#[test]
fn memory_that_is_given_back() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let file = sealed("hotplug", 1 << 20).unwrap();
    let bytes = Mapping::new(&file, 0, 1 << 20, true).unwrap();
    let at = 1 << 40;
    assert_eq!(guest.client.map(Some(&file), 0, at, 1 << 20, 3), None);
    let mut region = guest.region(p.pd, &p.area, ALL_RIGHTS);
    let pages: Vec<_> = (0..256).map(|page| at + page * PAGE).collect();
    region.memory = guest.memory.list_of(&pages);
    let key = guest.create(opcode::REG_MR, &region).unwrap();
    let (mut a, _b) = pair(&mut guest, &p);
    p.area.write(0, &pattern(1 << 20, 1));
    for number in 0..DEPTH {
        let write = Wqe::new(number.into(), wr_opcode::RDMA_WRITE).local(0, 1 << 20, p.key);
        a.post(&write.remote(0, key));
    }
    guest.ring(&a);
    let unmap = unmap_body(0, at, 1 << 20);
    assert_eq!(guest.client.call(DMA_UNMAP, &unmap, &[]).error, None);
    // From now on a write to the memory is one too many, and shows.
    let other = vec![0xee; 1 << 20];
    assert!(bytes.write(0, &other));
    let statuses: Vec<_> = (0..DEPTH).map(|_| p.cq.wait().status).collect();
    // Requests that were begun have ended well or not; the rest is flushed.
    let well = statuses.iter().take_while(|status| **status == 0).count();
    match statuses.get(well..) {
        Some([first, rest @ ..]) => {
            assert_ne!(*first, 5);
            assert!(rest.iter().all(|status| *status == 5));
        }
        // All of them were done before: one that is posted now cannot be.
        _ => {
            let late = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 8, p.key);
            guest.send(&mut a, &late.remote(0, key));
            assert!(![0, 5].contains(&p.cq.wait().status));
        }
    }
    assert!(
        contents(&bytes) == other,
        "memory is written that was given back"
    );
    // The same file at the same address is other memory.
    assert_eq!(guest.client.map(Some(&file), 0, at, 1 << 20, 3), None);
    let (mut c, _d) = pair(&mut guest, &p);
    let write = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 8, p.key);
    guest.send(&mut c, &write.remote(0, key));
    assert_ne!(p.cq.wait().status, 0);
    guest.named(opcode::DEREG_MR, key).unwrap();
}

/// A region in a range of its own, which the guest can give back.
fn region_apart(guest: &mut Guest, p: &Program, file: &OwnedFd) -> u32 {
    assert_eq!(guest.client.map(Some(file), 0, APART, PAGE, 3), None);
    let mut region = guest.region(p.pd, &guest.memory.alloc(PAGE), ALL_RIGHTS);
    region.memory = guest.memory.list_of(&[APART]);
    guest.create(opcode::REG_MR, &region).unwrap()
}

/// Where that range begins.
const APART: u64 = 1 << 40;

#[test]
fn the_side_whose_memory_is_gone_is_to_blame() {
    const OPCODES: [u8; 4] = [
        wr_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ,
        wr_opcode::ATOMIC_FETCH_AND_ADD,
        wr_opcode::ATOMIC_CMP_AND_SWP,
    ];
    const REMOTE_ACCESS: u8 = 10;
    const LOCAL_PROTECTION: u8 = 4;
    let (_worker, [mut one, mut two]) = guests();
    let (mut p, q) = (program(&mut one), program(&mut two));
    let file = sealed("hotplug", PAGE).unwrap();
    let unmap = unmap_body(0, APART, PAGE);
    let own = region_apart(&mut one, &p, &file);
    let far = region_apart(&mut two, &q, &file);
    for guest in [&mut one, &mut two] {
        assert_eq!(guest.client.call(DMA_UNMAP, &unmap, &[]).error, None);
    }
    for code in OPCODES {
        for (local, remote, status) in [(p.key, far, REMOTE_ACCESS), (own, q.key, LOCAL_PROTECTION)]
        {
            let (mut a, _b) = pair_between((&mut one, &p), (&mut two, &q));
            let request = Wqe::new(1, code).local(0, 8, local).remote(0, remote);
            one.send(&mut a, &request);
            assert_eq!(p.cq.wait().status, status, "of operation {code}");
        }
    }
}

#[test]
fn all_memory_is_given_back_with_queues_in_it() {
    let (_worker, [mut guest]) = guests();
    let p = program(&mut guest);
    let (mut a, _b) = pair(&mut guest, &p);
    flood(&mut guest, &p, &mut a);
    let unmap = unmap_body(2, 0, 0);
    assert_eq!(guest.client.call(DMA_UNMAP, &unmap, &[]).error, None);
    is_still(&guest.memory.bytes);
    guest.write(register::KICK, p.context.number);
    guest.write(register::COMMAND, 1);
    assert_eq!(guest.client.read(0, 0, 4).unwrap(), b"FRUL");
    is_still(&guest.memory.bytes);
}

#[test]
fn resets_in_the_middle_of_work() {
    let device = Device::new(1).unwrap();
    let _worker = Worker::new(&device).unwrap();
    let mut guest = Guest::new(&device, 0);
    for round in 0..12 {
        guest.memory = Memory::again(&guest.memory);
        let mut p = program(&mut guest);
        let (mut a, mut b) = pair(&mut guest, &p);
        guest.event_queue(0, 16).unwrap();
        let ud = guest.qp(qp_type::UD, &p.context, p.pd, &p.cq);
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xff, round);
        let member = Multicast {
            number: ud.number.into(),
            reserved: 0.into(),
            gid,
        };
        guest.command(opcode::ATTACH_MCAST, &member).unwrap();
        // It works, and then much is underway.
        b.receive(1, 0, 8, p.key);
        guest.send(&mut a, &Wqe::new(2, wr_opcode::SEND).local(8, 8, p.key));
        p.cq.all(2);
        flood(&mut guest, &p, &mut a);
        match round % 4 {
            0 => guest.write(register::RESET, 1),
            1 => assert_eq!(guest.client.call(RESET, &[], &[]).error, None),
            // A kernel that starts another one takes bus mastering away, and the memory is the
            // other one's.
            2 => assert_eq!(guest.client.write(7, 4, &[2, 0]), None),
            _ => assert_eq!(guest.client.write(7, 0x48, &[0x10, 0xa8]), None),
        }
        is_empty(&device);
        is_still(&guest.memory.bytes);
        guest.begin();
    }
}

#[test]
fn clients_that_leave_in_the_middle_of_work() {
    let device = Device::new(2).unwrap();
    let _worker = Worker::new(&device).unwrap();
    let mut adapter = Adapter::new(&device, 1, "leaving", [0; 6]).unwrap();
    let mut stays = Guest::new(&device, 0);
    let mut q = program(&mut stays);
    for _ in 0..10 {
        let mut guest = Guest::with(adapter, 1);
        let p = program(&mut guest);
        // One of its queue pairs is connected with that of a guest who stays.
        let (mut a, mut b) = pair_between((&mut guest, &p), (&mut stays, &q));
        let write = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 256 << 10, p.key);
        (0..DEPTH).for_each(|_| a.post(&write.remote(0, q.key)));
        guest.ring(&a);
        let bytes = Arc::clone(&guest.memory.bytes);
        adapter = guest.client.leave().0;
        assert_eq!(adapter.memory().count(), (0, 0));
        is_still(&bytes);
        is_still(&stays.memory.bytes);
        // The guest that stays finds that the peer does not answer.
        let write = Wqe::new(7, wr_opcode::RDMA_WRITE).local(0, 8, q.key);
        stays
            .modify(b.number, 1, |m| m.attributes.state = 6.into())
            .unwrap();
        stays.send(&mut b, &write.remote(0, q.key));
        assert_eq!(q.cq.wait().status, 5, "flushed");
        stays.named(opcode::DESTROY_QP, b.number).unwrap();
    }
}

#[test]
fn a_client_that_leaves_does_not_answer_any_more() {
    const FLUSHED: u8 = 5;
    const RETRIES_EXCEEDED: u8 = 12;
    let device = Device::new(2).unwrap();
    let _worker = Worker::new(&device).unwrap();
    let mut adapter = Adapter::new(&device, 1, "leaving", [0; 6]).unwrap();
    let mut stays = Guest::new(&device, 0);
    let mut q = program(&mut stays);
    for round in 0..20 {
        let mut guest = Guest::with(adapter, 1);
        let p = program(&mut guest);
        let (mut b, _a) = pair_between((&mut stays, &q), (&mut guest, &p));
        // Many objects, so that it takes a while until all of them are gone.
        let _others: Vec<_> = (0..8).map(|_| pair(&mut guest, &p)).collect();
        let codes = [wr_opcode::RDMA_WRITE, wr_opcode::RDMA_READ];
        for code in codes.into_iter().cycle().take(DEPTH as usize) {
            let request = Wqe::new(round, code).local(0, 512 << 10, q.key);
            b.post(&request.remote(0, p.key));
        }
        stays.ring(&b);
        adapter = guest.client.leave().0;
        let statuses: Vec<_> = (0..DEPTH).map(|_| q.cq.wait().status).collect();
        let mut statuses = statuses.into_iter().skip_while(|status| *status == 0);
        assert_eq!(
            statuses.next().unwrap_or(RETRIES_EXCEEDED),
            RETRIES_EXCEEDED
        );
        assert!(statuses.all(|status| status == FLUSHED));
        stays.named(opcode::DESTROY_QP, b.number).unwrap();
    }
}

#[test]
fn a_context_that_ends_flushes_its_work() {
    let (_worker, [mut guest]) = guests();
    let mut p = program(&mut guest);
    let (mut a, b) = pair(&mut guest, &p);
    assert_eq!(
        guest.named(opcode::CLOSE_CONTEXT, p.context.number),
        Err(16)
    );
    flood(&mut guest, &p, &mut a);
    guest
        .named(opcode::QUIESCE_CONTEXT, p.context.number)
        .unwrap();
    assert_eq!(p.context.status.load(4), 1, "dead");
    for _ in 0..DEPTH {
        let cqe = p.cq.poll().expect("each request has its completion");
        assert!(matches!(cqe.status, 0 | 5));
    }
    for qp in [a, b] {
        guest.named(opcode::DESTROY_QP, qp.number).unwrap();
    }
    guest
        .named(opcode::CLOSE_CONTEXT, p.context.number)
        .unwrap();
    assert_eq!(
        guest.named(opcode::CLOSE_CONTEXT, p.context.number),
        Err(22)
    );
}
