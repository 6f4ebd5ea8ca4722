// SPDX-License-Identifier: GPL-2.0

//! The reach of a peer into this side's memory by packets, and the requests that this side hears
//! of.

use ferrule_engine::abi::{wc_flags, wr_flags, wr_opcode};
use ferrule_engine::packet::{Bth, Nak, Packet, Reth, Syndrome};
use ferrule_engine::{MwType, QpEvent, State, Status, MAX_MESSAGE};

use crate::sim::network::{Faults, Link};
use crate::sim::*;

/// A connection; the memory of the second side may be bound to windows.
struct Scene {
    link: Link,
    ends: [End; 2],
    mine: TestMr,
    theirs: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair(|world, cq| world.qp(cq, cq), |_| ());
        let mine = link.worlds[0].mr(8192);
        let memory = memory::shared(8192);
        let theirs = link.worlds[1].mr_with(1, BINDABLE, memory, 0, 8192);
        mine.fill(3);
        theirs.fill(7);
        Self {
            link,
            ends,
            mine,
            theirs,
        }
    }

    /// A window of the second side, bound to so many bytes of its memory; its key.
    fn window(&mut self, offset: u64, length: u64) -> u32 {
        let world = &mut self.link.worlds[1];
        let window = world.mw(1, MwType::Type2);
        let key = window & !0xff | (window + 1) & 0xff;
        let bind = Wr::bind(9, window, key, self.theirs.remote(offset), length);
        self.ends[1].qp.post_send(&bind);
        self.link.settle();
        self.ends[1].cq.expect(9, Status::Success);
        key
    }

    /// Posts a request of the first side; returns how it ends.
    fn ends(&mut self, wr: &Wr) -> u8 {
        self.ends[0].qp.post_send(wr);
        self.link.settle();
        self.ends[0].cq.poll().expect("no completion").status
    }
}

/// Where the first header behind the base transport header has its key and its length.
const RKEY: usize = size_of::<Bth>() + 8;
const LENGTH: usize = size_of::<Bth>() + 12;

/// Writes a word into a packet.
fn set(packet: &mut SentPacket, at: usize, word: u32) {
    packet.transport[at..at + 4].copy_from_slice(&word.to_be_bytes());
    packet.seal();
}

/// The syndrome of the only answer.
fn told(answers: &[SentPacket]) -> Option<Syndrome> {
    let [answer] = answers else {
        panic!("{} answers", answers.len());
    };
    let packet = Packet::parse(&answer.transport, answer.transport.len()).unwrap();
    Syndrome::parse(packet.aeth()?.syndrome)
}

/// An atomic operation needs all of its 8 bytes, of which the window may have only some.
#[test]
fn an_atomic_reaches_no_further_than_its_window() {
    for (offset, status) in [
        (0, Status::Success),
        (8, Status::RemoteAccess),
        (16, Status::RemoteAccess),
    ] {
        for is_swap in [false, true] {
            let mut s = Scene::new();
            let key = s.window(0, 15);
            let remote = (s.theirs.iova + offset, key);
            let before = s.theirs.bytes(0, 64);
            let found = u64::from_ne_bytes(before[offset as usize..][..8].try_into().unwrap());
            let wr = match is_swap {
                true => Wr::compare_swap(1, s.mine.sge(0, 8), remote, found, !found),
                false => Wr::fetch_add(1, s.mine.sge(0, 8), remote, 1),
            };
            assert_eq!(s.ends(&wr), status as u8, "at {offset}");
            let is_changed = s.theirs.bytes(0, 64) != before;
            assert_eq!(is_changed, status == Status::Success, "at {offset}");
        }
    }
}

/// A SEND with invalidate closes the window that it names, and no other one, and the receiver is
/// told which.
#[test]
fn a_send_invalidates_the_key_that_it_names() {
    let mut s = Scene::new();
    let keys = [s.window(0, 8), s.window(8, 8)];
    for length in [8, 3000] {
        let wr_id = u64::from(length);
        s.ends[1].qp.post_recv(wr_id, &[s.theirs.sge(64, 4096)]);
        let key = if length == 8 {
            keys[1]
        } else {
            s.window(16, 8)
        };
        let send = Wr::send(2, &[s.mine.sge(0, length)])
            .with_opcode(wr_opcode::SEND_WITH_INV)
            .with_imm(key.to_le_bytes());
        assert_eq!(s.ends(&send), Status::Success as u8);
        let wc = s.ends[1].cq.expect(wr_id, Status::Success);
        assert_eq!((wc.flags, wc.imm), (wc_flags::WITH_INV, key.to_le_bytes()));
    }
    let write = |s: &Scene, offset: u64, key| {
        Wr::write(3, &[s.mine.sge(0, 8)], (s.theirs.iova + offset, key))
    };
    let open = write(&s, 0, keys[0]);
    assert_eq!(s.ends(&open), Status::Success as u8);
    let closed = write(&s, 8, keys[1]);
    assert_eq!(s.ends(&closed), Status::RemoteAccess as u8);
}

/// A receiver that waits for solicited completions alone is woken by a message that asks for it, of
/// one packet or of several.
#[test]
fn a_solicited_message_wakes_its_receiver() {
    for opcode in [wr_opcode::SEND, wr_opcode::RDMA_WRITE_WITH_IMM] {
        for length in [8, 3000] {
            let mut s = Scene::new();
            for wr_id in 0..2 {
                s.ends[1].qp.post_recv(wr_id, &[s.theirs.sge(4096, 4096)]);
            }
            s.ends[1].cq.arm(0, true);
            let sge = [s.mine.sge(0, length)];
            let wr = Wr::write(1, &sge, s.theirs.remote(0)).with_opcode(opcode);
            let wr = match opcode {
                wr_opcode::SEND => Wr::send(1, &sge),
                _ => wr,
            };
            assert_eq!(s.ends(&wr), Status::Success as u8);
            assert_eq!(s.link.worlds[1].events(), []);
            let asks = wr.with_flags(wr_flags::SIGNALED | wr_flags::SOLICITED);
            assert_eq!(s.ends(&asks), Status::Success as u8);
            let woken = Event::Completion(s.ends[1].cq.name);
            assert_eq!(s.link.worlds[1].events(), [woken]);
        }
    }
}

/// A read that comes again is answered if it asks for the same bytes as before, or for a part of
/// them, and not for other memory or by another key.
#[test]
fn a_read_that_comes_again_reads_the_same() {
    let mut s = Scene::new();
    let read = Wr::read(1, &[s.mine.sge(0, 3000)], s.theirs.remote(64));
    s.ends[0].qp.post_send(&read);
    let request = s.link.sent(0).remove(0);
    let mut answers = |change: &dyn Fn(&mut Reth, &mut u8)| {
        let mut packet = request.clone();
        let at = size_of::<Bth>();
        let bytes = &packet.transport;
        let word = |from: usize| u32::from_be_bytes(bytes[from..from + 4].try_into().unwrap());
        let addr = u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let mut reth = Reth {
            addr: addr.into(),
            rkey: word(at + 8).into(),
            length: word(at + 12).into(),
        };
        let mut number = packet.transport[11];
        change(&mut reth, &mut number);
        packet.transport[11] = number;
        let fields = [
            &reth.addr.get().to_be_bytes()[..],
            &reth.rkey.get().to_be_bytes(),
            &reth.length.get().to_be_bytes(),
        ];
        packet.transport[at..at + 16].copy_from_slice(&fields.concat());
        packet.seal();
        s.link.give(1, &[packet]);
        s.link.sent(1).len()
    };
    assert_eq!(answers(&|_, _| ()), 3);
    assert_eq!(answers(&|_, _| ()), 3);
    let other_place = |reth: &mut Reth, _: &mut u8| reth.addr = (reth.addr.get() + 8).into();
    assert_eq!(answers(&other_place), 0);
    let other_key = |reth: &mut Reth, _: &mut u8| reth.rkey = (reth.rkey.get() ^ 1).into();
    assert_eq!(answers(&other_key), 0);
    let more = |reth: &mut Reth, _: &mut u8| reth.length = 3001.into();
    assert_eq!(answers(&more), 0);
    let second = |by: u64, length: u32| {
        move |reth: &mut Reth, number: &mut u8| {
            *number += 1;
            reth.addr = (reth.addr.get() + by).into();
            reth.length = length.into();
        }
    };
    assert_eq!(answers(&second(1024, 3000 - 1024)), 2);
    assert_eq!(answers(&second(1024, 1024)), 1);
    assert_eq!(answers(&second(1024, 1000)), 0);
    assert_eq!(answers(&second(0, 3000 - 1024)), 0);
    assert_eq!(answers(&second(2048, 1024)), 0);
}

/// A packet that the host found no space for is sent later with the same bytes, wherever in the
/// list they begin.
#[test]
fn a_packet_that_found_no_space_is_sent_whole() {
    for busy in 1..6 {
        let mut s = Scene::new();
        let sges = [
            s.mine.sge(4000, 700),
            s.mine.sge(0, 900),
            s.mine.sge(1000, 2900),
        ];
        let wr = Wr::write(1, &sges, s.theirs.remote(0));
        s.ends[0].qp.post_send(&wr);
        s.link.worlds[0].host.busy = busy;
        s.link.settle();
        s.ends[0].cq.expect(1, Status::Success);
        let lists = [(4000, 700), (0, 900), (1000, 2900)];
        let sent = lists.map(|(from, length)| s.mine.bytes(from, length));
        assert_eq!(s.theirs.bytes(0, 4500), sent.concat());
    }
}

/// A refused request is the last one of its queue pair: the one that comes in its place is not
/// carried out.
#[test]
fn nothing_is_taken_behind_a_refusal() {
    let mut s = Scene::new();
    let before = s.theirs.bytes(0, 64);
    let wr = Wr::write(1, &[s.mine.sge(0, 8)], s.theirs.remote(0));
    s.ends[0].qp.post_send(&wr);
    let good = s.link.sent(0).remove(0);
    let mut bad = good.clone();
    set(&mut bad, RKEY, s.theirs.key ^ 1);
    s.link.give(1, &[bad.clone(), bad, good]);
    let answers = s.link.sent(1);
    assert_eq!(told(&answers), Some(Syndrome::Negative(Nak::RemoteAccess)));
    assert_eq!(s.theirs.bytes(0, 64), before);
    let world = &mut s.link.worlds[1];
    world.state(&s.ends[1].qp, State::Err);
    let event = Event::Qp(s.ends[1].qp.name, QpEvent::AccessError);
    assert_eq!(world.events(), [event]);
    assert_eq!(world.engine.counters().dropped, 2);
}

/// A message has 2^31 bytes at most (IBA volume 1, 9.4.1): of more, no key is looked at.
#[test]
fn a_request_for_too_much_is_invalid() {
    for (length, nak) in [
        (MAX_MESSAGE, Nak::RemoteAccess),
        (MAX_MESSAGE + 1, Nak::InvalidRequest),
        (u32::MAX, Nak::InvalidRequest),
    ] {
        let mut s = Scene::new();
        let wr = Wr::read(1, &[s.mine.sge(0, 8)], s.theirs.remote(0));
        s.ends[0].qp.post_send(&wr);
        let mut request = s.link.sent(0).remove(0);
        set(&mut request, LENGTH, length);
        s.link.give(1, &[request]);
        let answers = s.link.sent(1);
        assert_eq!(told(&answers), Some(Syndrome::Negative(nak)), "{length}");
    }
}

/// The packets of a write have as many bytes as the first one says (C9-94).
#[test]
fn a_write_has_the_length_that_it_says() {
    for (sent, said, arrive) in [
        (3000, 2999, 2048),
        (3000, 3001, 2048),
        (3000, 4096, 2048),
        (3000, 2048, 1024),
        (3000, 1024, 0),
        (3000, 8, 0),
        (3000, 0, 0),
        (8, 7, 0),
        (8, 9, 0),
        (8, 1024, 0),
        (8, 2000, 0),
    ] {
        let mut s = Scene::new();
        let before = s.theirs.bytes(0, 4096);
        let wr = Wr::write(1, &[s.mine.sge(0, sent)], s.theirs.remote(0));
        s.ends[0].qp.post_send(&wr);
        let mut packets = s.link.sent(0);
        set(&mut packets[0], LENGTH, said);
        s.link.give(1, &packets);
        let answers = s.link.sent(1);
        let invalid = Syndrome::Negative(Nak::InvalidRequest);
        assert_eq!(told(&answers), Some(invalid), "{sent} {said}");
        let after = s.theirs.bytes(0, 4096);
        assert_eq!(after[..arrive], s.mine.bytes(0, arrive), "{sent} {said}");
        assert_eq!(after[arrive..], before[arrive..], "{sent} {said}");
    }
}

/// Numbers that were a read's are not answered for an atomic operation, nor the other way round.
#[test]
fn a_number_is_asked_for_again_as_what_it_was() {
    let mut s = Scene::new();
    let remote = s.theirs.remote(0);
    let fetch_add = Wr::fetch_add(1, s.mine.sge(0, 8), remote, 1);
    let read = Wr::read(2, &[s.mine.sge(8, 8)], remote);
    s.ends[0].qp.put_send(&fetch_add);
    s.ends[0].qp.post_send(&read);
    let requests = s.link.sent(0);
    s.link.give(1, &requests);
    assert_eq!(s.link.sent(1).len(), 2);
    let after = s.theirs.bytes(0, 64);
    // Each in the place of the other, which has its number, and each in its own.
    for (request, number, answers) in [(0, 1, 0), (1, 0, 0), (0, 0, 1), (1, 1, 1)] {
        let mut packet = requests[request].clone();
        let psn: [u8; 3] = requests[number].transport[9..12].try_into().unwrap();
        packet.transport[9..12].copy_from_slice(&psn);
        packet.seal();
        s.link.give(1, &[packet]);
        let sent = s.link.sent(1).len();
        assert_eq!(sent, answers, "{request} as {number}");
    }
    assert_eq!(s.theirs.bytes(0, 64), after);
}

/// A refusal tells whose fault it was (IBA volume 1, 9.7.5.2.5 and following).
#[test]
fn a_refusal_names_its_reason() {
    for (capacity, is_open, status) in [
        (16, true, Status::Success),
        (15, true, Status::RemoteInvalidRequest),
        (16, false, Status::RemoteOperation),
    ] {
        let mut s = Scene::new();
        let (addr, length, key) = s.theirs.sge(0, capacity);
        let key = if is_open { key } else { key ^ 1 };
        s.ends[1].qp.post_recv(7, &[(addr, length, key)]);
        let send = Wr::send(1, &[s.mine.sge(0, 16)]);
        assert_eq!(s.ends(&send), status as u8);
    }
}
