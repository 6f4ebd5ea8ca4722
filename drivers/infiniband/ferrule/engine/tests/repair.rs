// SPDX-License-Identifier: GPL-2.0

//! What was lost is sent again, and little else.

mod sim;

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::{Mtu, State, Status};
use proptest::prelude::*;

use sim::network::{Faults, Link};
use sim::*;

const PACKET: u32 = 1024;
const PACKETS: u32 = 30;
const SIZE: u32 = PACKET * PACKETS;

/// A connection, and what is lost of it.
struct Scene {
    link: Link,
    ends: [End; 2],
    memory: [TestMr; 2],
}

impl Scene {
    fn new(doomed: &[(usize, u64)]) -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = [0, 1].map(|i| {
            let world = &mut link.worlds[i];
            let cq = world.cq(64);
            let qp = world.qp(&cq, &cq);
            End { qp, cq }
        });
        link.connect([&ends[0].qp, &ends[1].qp], Mtu::Mtu1024, |_| ());
        let memory = [0, 1].map(|i| link.worlds[i].mr(SIZE as usize));
        memory[0].fill(3);
        memory[1].fill(7);
        link.network.doomed = doomed.iter().copied().collect();
        Self { link, ends, memory }
    }

    fn write(&self, wr_id: u64, from: u32, length: u32) -> Wr {
        let sge = self.memory[0].sge(from.into(), length);
        Wr::write(wr_id, &[sge], self.memory[1].remote(from.into()))
    }

    /// Lets all happen; answers how many packets either side was sent.
    fn settle(&mut self) -> [u64; 2] {
        self.link.settle();
        assert_eq!(KEPT.get(), 0, "nothing is kept when all has come");
        for world in &self.link.worlds {
            assert_eq!(world.engine.counters().unanswered, 0);
        }
        self.link.network.sent
    }

    fn is_copied(&self) -> bool {
        let [mine, theirs] = &self.memory;
        mine.bytes(0, SIZE as usize) == theirs.bytes(0, SIZE as usize)
    }
}

#[test]
fn of_a_write_only_the_lost_packets_are_sent_again() {
    // Of two in a row, the second one is taken for a sign that nothing is kept, but where it is known
    // better.
    for doomed in [
        &[(1, 5)][..],
        &[(1, 0)],
        &[(1, 5), (1, 17)],
        &[(1, 1), (1, 15), (1, 16)],
    ] {
        let mut s = Scene::new(doomed);
        s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
        let [_, sent] = s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        assert_eq!(sent, u64::from(PACKETS) + doomed.len() as u64, "{doomed:?}");
    }
}

#[test]
fn of_a_read_only_the_lost_packets_are_asked_for_again() {
    for doomed in [&[(0, 5)][..], &[(0, 0)], &[(0, 5), (0, 6), (0, 17)]] {
        let mut s = Scene::new(doomed);
        let sge = s.memory[0].sge(0, SIZE);
        s.ends[0]
            .qp
            .post_send(&Wr::read(1, &[sge], s.memory[1].remote(0)));
        let [sent, asked] = s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        assert_eq!(sent, u64::from(PACKETS) + doomed.len() as u64, "{doomed:?}");
        let gaps = if doomed.len() == 1 { 1 } else { 2 };
        assert_eq!(asked, 1 + gaps, "{doomed:?}");
    }
}

/// The gap may begin in one read and end in another, and other requests may be between.
#[test]
fn gaps_of_several_reads_are_filled() {
    let mut s = Scene::new(&[(0, 3), (0, 4), (0, 5), (0, 6), (0, 9)]);
    for i in 0..4 {
        let at = i * 5 * PACKET;
        let sge = s.memory[0].sge(at.into(), 5 * PACKET);
        let read = Wr::read(i.into(), &[sge], s.memory[1].remote(at.into()));
        s.ends[0].qp.post_send(&read);
    }
    let rest = 20 * PACKET;
    s.ends[0].qp.post_send(&s.write(4, rest, SIZE - rest));
    s.settle();
    for i in 0..5 {
        s.ends[0].cq.expect(i, Status::Success);
    }
    assert!(s.is_copied());
}

/// A peer that goes by the letter, and keeps nothing, gets all from there on.
#[test]
fn a_peer_that_keeps_nothing_gets_all_again() {
    KEEPS.set(false);
    for doomed in [&[(1, 5)][..], &[(1, 5), (1, 45)]] {
        let mut s = Scene::new(doomed);
        s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
        s.settle();
        s.ends[0].cq.expect(1, Status::Success);
        assert!(s.is_copied());
        let sge = s.memory[0].sge(0, SIZE);
        s.memory[1].fill(9);
        let read = Wr::read(2, &[sge], s.memory[1].remote(0));
        s.ends[0].qp.post_send(&read);
        s.settle();
        s.ends[0].cq.expect(2, Status::Success);
        assert!(s.is_copied());
    }
    KEEPS.set(true);
}

/// What is kept is judged when its turn comes, and not before.
#[test]
fn what_is_kept_is_refused_in_its_turn() {
    let mut s = Scene::new(&[(1, 1)]);
    s.ends[0].qp.post_send(&s.write(1, 0, 3 * PACKET));
    let [mine, theirs] = &s.memory;
    let bad = Wr::write(2, &[mine.sge(0, 8)], (theirs.iova, theirs.key ^ 1));
    s.ends[0].qp.post_send(&bad);
    s.ends[0].qp.post_send(&s.write(3, 0, 8));
    s.settle();
    let cq = &s.ends[0].cq;
    cq.expect(1, Status::Success);
    cq.expect(2, Status::RemoteAccess);
    cq.expect(3, Status::Flushed);
    s.link.worlds[1].state(&s.ends[1].qp, State::Err);
}

/// A receive request that is missing has the rest wait, and lose nothing.
#[test]
fn what_is_kept_waits_for_receive_requests() {
    let mut s = Scene::new(&[(1, 1)]);
    for i in 0..4 {
        let sge = s.memory[0].sge(0, 2 * PACKET);
        s.ends[0].qp.post_send(&Wr::send(i, &[sge]));
    }
    let room = s.memory[1].sge(0, 2 * PACKET);
    s.ends[1].qp.post_recv(10, &[room]);
    while s.link.now < 50 * MS {
        assert!(s.link.step());
    }
    for i in 11..14 {
        s.ends[1].qp.post_recv(i, &[room]);
    }
    s.settle();
    for i in 0..4 {
        s.ends[0].cq.expect(i, Status::Success);
        s.ends[1].cq.expect(10 + i, Status::Success);
    }
}

/// Nothing is kept that is further ahead than a window, nor for a queue pair that has no more use for it.
#[test]
fn what_is_kept_is_bounded_and_goes_with_its_queue_pair() {
    let mut s = Scene::new(&[(1, 0)]);
    s.ends[0].qp.post_send(&s.write(1, 0, SIZE));
    let world = &mut s.link.worlds[0];
    while world.engine.run(&mut world.host, PLENTY, None).more {}
    let packets = std::mem::take(&mut world.host.sent);
    let peer = &mut s.link.worlds[1];
    let first = u32::from_be_bytes(packets[0].transport[8..12].try_into().unwrap()) & 0xff_ffff;
    for ahead in 1..1000u32 {
        let mut packet = packets[1].clone();
        packet.transport[9..12].copy_from_slice(&(first + ahead).to_be_bytes()[1..]);
        packet.seal();
        for _ in 0..2 {
            network::deliver(peer, &packet);
        }
    }
    assert_eq!(KEPT.get(), 127);
    // Nor does it stay for ever.
    peer.host.now = peer.engine.deadline().unwrap();
    assert_eq!(peer.host.now, 1000 * MS);
    peer.run();
    assert_eq!(KEPT.get(), 0);
    network::deliver(peer, &packets[1]);
    assert_eq!(KEPT.get(), 1);
    peer.to(&s.ends[1].qp, State::Err);
    peer.run();
    assert_eq!(KEPT.get(), 0);
}

/// What a program may post.
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
    ]);
    (opcodes, 0..SIZE, 0..SIZE).prop_map(|(opcode, from, length)| Request {
        opcode,
        from,
        length: length.min(SIZE - from),
    })
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whichever packets are lost, whether the peer keeps those behind them or not: each request ends
    /// well, in order, and an atomic operation is carried out once.
    #[test]
    fn whatever_is_lost_arrives(
        requests in prop::collection::vec(request(), 1..12),
        doomed in prop::collection::btree_set((0..2usize, 0..200u64), 0..30),
        keeps: bool,
    ) {
        KEEPS.set(keeps);
        let mut s = Scene::new(&[]);
        s.link.network.doomed = doomed;
        let counter = s.link.worlds[1].mr(8);
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
                _ => Wr::fetch_add(i, answers.sge(8 * i, 8), counter.remote(0), 1),
            });
        }
        let start = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        s.link.settle();
        prop_assert_eq!(KEPT.get(), 0);
        let mut added = 0;
        for (i, request) in requests.iter().enumerate() {
            s.ends[0].cq.expect(i as u64, Status::Success);
            if request.opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
                let found = answers.bytes(8 * i, 8).try_into().unwrap();
                prop_assert_eq!(u64::from_ne_bytes(found), start + added);
                added += 1;
            }
        }
        let end = u64::from_ne_bytes(counter.bytes(0, 8).try_into().unwrap());
        prop_assert_eq!(end, start + added);
    }
}
