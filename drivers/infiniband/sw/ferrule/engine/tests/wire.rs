// SPDX-License-Identifier: GPL-2.0

//! Reliable connections over a bad network.
//!
//! Every message arrives once, in order, byte for byte, and every request ends, in order.

use std::collections::VecDeque;

use ferrule_engine::{
    abi::{wc_opcode, wr_flags, wr_opcode},
    packet::{opcode::rc, Bth, Packet},
    Modify, Mtu, State, Status,
};

use crate::sim::network::{deliver, Faults, Link, Random, BAD};
use crate::sim::{Event, QpSpec, TestCq, TestMr, TestQp, World, Wr, MS, PLENTY};

const DEPTH: u32 = 16;
const LARGEST: u64 = 64 * 1024;

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    opcode: u8,
    length: u32,
    /// Where in the pattern its bytes begin.
    from: u64,
    imm: [u8; 4],
    /// What an atomic operation has to find.
    found: u64,
}

/// One end of a connection: what it sends, and what it is sent.
struct End {
    qp: TestQp,
    cq: TestCq,
    /// Bytes to be sent or read, never written.
    pattern: TestMr,
    /// A slot for each request: receives, then answers, then writes of the peer; then a counter.
    room: TestMr,
    outstanding: VecDeque<Sent>,
    /// Messages of this side that take a receive request of the peer, in order.
    announced: VecDeque<Sent>,
    posted: u64,
    ended: u64,
    received: u64,
    receives: u64,
    counter: u64,
}

const ANSWERS: u64 = DEPTH as u64 * LARGEST;
const WRITES: u64 = 2 * ANSWERS;
const COUNTER: u64 = 3 * ANSWERS;

impl End {
    fn new(world: &mut World, pattern: &TestMr) -> Self {
        let cq = world.cq(64);
        let spec = QpSpec {
            depth: DEPTH,
            max_inline: 256,
            ..QpSpec::default()
        };
        let qp = world.qp_with(&spec, &cq, &cq);
        Self {
            qp,
            cq,
            pattern: pattern.clone(),
            room: world.mr(COUNTER as usize + 64),
            outstanding: VecDeque::new(),
            announced: VecDeque::new(),
            posted: 0,
            ended: 0,
            received: 0,
            receives: 0,
            counter: 0,
        }
    }

    fn post_receive(&mut self) {
        let slot = self.receives % u64::from(DEPTH) * LARGEST;
        let half = LARGEST as u32 / 2;
        self.qp.post_recv(
            self.receives,
            &[
                self.room.sge(slot, half),
                self.room.sge(slot + u64::from(half), half),
            ],
        );
        self.receives += 1;
    }

    /// Posts one more request of a random kind and size.
    fn post(&mut self, random: &mut Random, peer: &TestMr, peer_pattern: &TestMr) {
        let number = self.posted;
        self.posted += 1;
        let opcode = [
            wr_opcode::SEND,
            wr_opcode::SEND_WITH_IMM,
            wr_opcode::RDMA_WRITE,
            wr_opcode::RDMA_WRITE_WITH_IMM,
            wr_opcode::RDMA_READ,
            wr_opcode::ATOMIC_FETCH_AND_ADD,
            wr_opcode::ATOMIC_CMP_AND_SWP,
        ][random.below(7) as usize];
        // Logarithmically uniform, and nothing now and then.
        let magnitude = random.below(17);
        let mut length = (random.below(1 << magnitude) as u32) & 0xffff;
        let from = random.below(LARGEST);
        let slot = number % u64::from(DEPTH) * LARGEST;
        let imm = (number as u32).to_be_bytes();
        let mut wr = Wr {
            wr_id: number,
            opcode,
            flags: wr_flags::SIGNALED,
            imm,
            ..Wr::default()
        };
        let mut found = 0;
        match opcode {
            wr_opcode::RDMA_READ => {
                let half = length / 2;
                wr.sges = vec![
                    self.room.sge(ANSWERS + slot, half),
                    self.room
                        .sge(ANSWERS + slot + u64::from(half), length - half),
                ];
                wr.remote = peer_pattern.remote(from);
            }
            wr_opcode::ATOMIC_FETCH_AND_ADD | wr_opcode::ATOMIC_CMP_AND_SWP => {
                length = 8;
                found = self.counter;
                wr.sges = vec![self.room.sge(ANSWERS + slot, 8)];
                wr.remote = peer.remote(COUNTER);
                let (first, second) = if opcode == wr_opcode::ATOMIC_FETCH_AND_ADD {
                    self.counter += 3;
                    (3, 0)
                } else {
                    self.counter += 5;
                    (found, found + 5)
                };
                wr.extra[..8].copy_from_slice(&u64::to_le_bytes(first));
                wr.extra[8..].copy_from_slice(&u64::to_le_bytes(second));
            }
            _ if length <= 200 && random.happens(300) => {
                wr = wr.inline(&self.pattern.bytes(from as usize, length as usize));
            }
            _ => {
                let third = length / 3;
                wr.sges = vec![
                    self.pattern.sge(from, third),
                    self.pattern.sge(0, 0),
                    self.pattern.sge(from + u64::from(third), length - third),
                ];
            }
        }
        let sent = Sent {
            number,
            opcode,
            length,
            from,
            imm,
            found,
        };
        match opcode {
            wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => {
                wr.remote = peer.remote(WRITES + slot);
            }
            _ => (),
        }
        if matches!(
            opcode,
            wr_opcode::SEND | wr_opcode::SEND_WITH_IMM | wr_opcode::RDMA_WRITE_WITH_IMM
        ) {
            self.announced.push_back(sent);
        }
        self.outstanding.push_back(sent);
        self.qp.post_send(&wr);
    }
}

fn same(mr: &TestMr, offset: u64, pattern: &TestMr, from: u64, length: u32) -> bool {
    let (a, b) = (mr.region.memory.borrow(), pattern.region.memory.borrow());
    let length = length as usize;
    let (a0, b0) = (
        mr.region.start + offset as usize,
        pattern.region.start + from as usize,
    );
    a[a0..a0 + length] == b[b0..b0 + length]
}

/// Looks at what has completed on one side.
fn collect(me: &mut End, peer: &mut End, peer_pattern: &TestMr) {
    while let Some(wc) = me.cq.poll() {
        assert_eq!(wc.status, Status::Success as u8, "{wc:?}");
        if wc.opcode & wc_opcode::RECV != 0 {
            let sent = peer.announced.pop_front().expect("nothing was announced");
            assert_eq!(wc.wr_id, me.received, "{sent:?}");
            let slot = me.received % u64::from(DEPTH) * LARGEST;
            me.received += 1;
            assert_eq!(wc.byte_len, sent.length, "{sent:?}");
            if sent.opcode != wr_opcode::SEND {
                assert_eq!(wc.imm, sent.imm);
            }
            let place = if sent.opcode == wr_opcode::RDMA_WRITE_WITH_IMM {
                WRITES + sent.number % u64::from(DEPTH) * LARGEST
            } else {
                slot
            };
            assert!(
                same(&me.room, place, &peer.pattern, sent.from, sent.length),
                "{sent:?}"
            );
            me.post_receive();
            continue;
        }
        let sent = me.outstanding.pop_front().expect("nothing was posted");
        assert_eq!((wc.wr_id, me.ended), (sent.number, sent.number));
        me.ended += 1;
        let slot = sent.number % u64::from(DEPTH) * LARGEST;
        match sent.opcode {
            wr_opcode::RDMA_WRITE => assert!(
                same(
                    &peer.room,
                    WRITES + slot,
                    &me.pattern,
                    sent.from,
                    sent.length
                ),
                "{sent:?}"
            ),
            wr_opcode::RDMA_READ => assert!(
                same(
                    &me.room,
                    ANSWERS + slot,
                    peer_pattern,
                    sent.from,
                    sent.length
                ),
                "{sent:?}"
            ),
            wr_opcode::ATOMIC_FETCH_AND_ADD | wr_opcode::ATOMIC_CMP_AND_SWP => {
                let bytes = me.room.bytes((ANSWERS + slot) as usize, 8);
                let found = u64::from_ne_bytes(bytes.try_into().unwrap());
                assert_eq!(found, sent.found, "{sent:?}");
            }
            _ => (),
        }
    }
}

/// Sends so many messages over 4 connections, both ways; answers the trace.
fn messages(seed: u64, count: u64, faults: Faults) -> u64 {
    let mut link = Link::new(seed, faults, true);
    let mut random = Random::new(seed ^ 0xabcd);
    let patterns: Vec<TestMr> = link
        .worlds
        .iter_mut()
        .map(|world| {
            let mr = world.mr(2 * LARGEST as usize);
            let mut bytes = Random::new(7);
            mr.region
                .memory
                .borrow_mut()
                .iter_mut()
                .for_each(|byte| *byte = bytes.next() as u8);
            mr
        })
        .collect();
    let mtus = [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096, Mtu::Mtu2048];
    let mut pairs: Vec<[End; 2]> = Vec::new();
    for mtu in mtus {
        let a = End::new(&mut link.worlds[0], &patterns[0]);
        let b = End::new(&mut link.worlds[1], &patterns[1]);
        link.connect([&a.qp, &b.qp], mtu, |modify| {
            if modify.timeout.is_some() {
                modify.timeout = Some(8);
            }
        });
        pairs.push([a, b]);
    }
    for pair in &mut pairs {
        for end in pair {
            for _ in 0..DEPTH {
                end.post_receive();
            }
        }
    }
    let each = count / 8;
    loop {
        let mut left = false;
        for pair in &mut pairs {
            let [a, b] = pair;
            collect(a, b, &patterns[1]);
            collect(b, a, &patterns[0]);
            for (me, peer, pattern) in [(0, 1, &patterns[1]), (1, 0, &patterns[0])] {
                let peer_room = pair[peer].room.clone();
                let me = &mut pair[me];
                while me.posted < each && me.posted - me.ended < u64::from(DEPTH) {
                    me.post(&mut random, &peer_room, pattern);
                }
                left |= me.ended < each;
            }
        }
        if !link.step() {
            assert!(!left, "nothing happens any more, and there is work left");
            break;
        }
    }
    // Of what is left nothing completes any more, nobody is in error, and no timer runs.
    for pair in &mut pairs {
        for (i, end) in pair.iter_mut().enumerate() {
            assert_eq!(
                (end.ended, end.outstanding.len(), end.announced.len()),
                (each, 0, 0)
            );
            assert_eq!(end.cq.poll(), None);
            assert_eq!(link.worlds[i].query(&end.qp).state, State::Rts);
        }
    }
    for world in &mut link.worlds {
        assert_eq!(world.engine.deadline(), None);
        if faults.lost != 0 {
            assert!(world.engine.counters().duplicates > 0);
            assert!(world.engine.counters().icrc_errors > 0 || faults.corrupted == 0);
        }
    }
    link.network.trace
}

/// `FERRULE_MESSAGES` says how many, and `FERRULE_SEED` by which seed.
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[test]
fn each_message_arrives_once_and_in_order() {
    let count = if cfg!(debug_assertions) {
        50_000
    } else {
        1_000_000
    };
    let seed = variable("FERRULE_SEED", 1);
    println!("FERRULE_SEED={seed}");
    messages(seed, variable("FERRULE_MESSAGES", count), BAD);
}

#[test]
fn a_sound_network_needs_no_retries() {
    messages(3, 20_000, Faults::default());
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let trace = |seed| messages(seed, 4_000, BAD);
    let (first, again, other) = (trace(5), trace(5), trace(6));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

/// Two connected ends over a network.
fn pair(link: &mut Link, change: impl Fn(&mut Modify)) -> [(TestQp, TestCq, TestMr); 2] {
    let mut memory = link
        .worlds
        .each_mut()
        .map(|world| world.mr(8192))
        .into_iter();
    link.pair(|world, cq| world.qp(cq, cq), change)
        .map(|end| (end.qp, end.cq, memory.next().unwrap()))
}

/// A connection over which nothing arrives fails after as many retries as the count says, each after
/// the timeout (C9-139, C9-140). So does 7, but where the engine was told that it stands for no limit.
#[test]
fn retries_are_as_many_as_the_count_says() {
    for (count, for_ever) in (0..8).map(|n| (n, false)).chain((0..7).map(|n| (n, true))) {
        for kind in [
            wr_opcode::SEND,
            wr_opcode::RDMA_READ,
            wr_opcode::ATOMIC_FETCH_AND_ADD,
        ] {
            retries_of(kind, count, for_ever);
        }
    }
}

fn retries_of(kind: u8, count: u8, for_ever: bool) {
    let all_lost = Faults {
        lost: 1000,
        ..Faults::default()
    };
    let mut link = Link::new(1, all_lost, for_ever);
    let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |modify| {
        if modify.retry_cnt.is_some() {
            modify.retry_cnt = Some(count);
            modify.timeout = Some(10);
        }
    });
    qp.post_send(&match kind {
        wr_opcode::RDMA_READ => Wr::read(1, &[mr.sge(0, 3000)], theirs.remote(0)),
        wr_opcode::ATOMIC_FETCH_AND_ADD => Wr::fetch_add(1, mr.sge(0, 8), theirs.remote(0), 1),
        _ => Wr::send(1, &[mr.sge(0, 3000)]),
    });
    qp.post_send(&Wr::send(2, &[mr.sge(0, 10)]));
    link.settle();
    cq.expect(1, Status::RetryExceeded);
    cq.expect(2, Status::Flushed);
    cq.expect_none();
    assert_eq!(link.now, (u64::from(count) + 1) * (4096 << 10));
    assert_eq!(link.worlds[0].engine.counters().retries, count.into());
    link.worlds[0].state(&qp, State::Err);
}

/// 7 is seven retries, and without limit where the engine was told so.
#[test]
fn seven_retries_may_stand_for_no_limit() {
    let all_lost = Faults {
        lost: 1000,
        ..Faults::default()
    };
    let mut link = Link::new(1, all_lost, true);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |modify| {
        if modify.retry_cnt.is_some() {
            modify.timeout = Some(10);
        }
    });
    peer.post_recv(9, &[peer_mr.sge(0, 4096)]);
    qp.post_send(&Wr::send(1, &[mr.sge(0, 3000)]));
    while link.now < 1000 * MS {
        assert!(link.step());
    }
    cq.expect_none();
    link.network.faults.lost = 0;
    link.settle();
    cq.expect(1, Status::Success);
    peer_cq.expect(9, Status::Success);
}

/// A responder knows no window, so the requester asks for no more than there may be room for.
#[test]
fn a_long_read_floods_nobody() {
    const LENGTH: u32 = (5 << 20) + 3;

    for (room, is_lossless) in [(160, true), (50, false)] {
        let little = Faults {
            room,
            ..Faults::default()
        };
        let mut link = Link::new(1, little, false);
        let [(qp, cq, _), (peer, peer_cq, _)] = pair(&mut link, |_| ());
        let [mine, theirs] = [0, 1].map(|i| link.worlds[i].mr(LENGTH as usize));
        theirs.fill(7);
        qp.post_send(&Wr::read(1, &[mine.sge(0, LENGTH)], theirs.remote(0)));
        // What follows does not overtake it, and needs a receive request.
        peer.post_recv(9, &[theirs.sge(0, 8)]);
        qp.post_send(&Wr::send(2, &[mine.sge(0, 8)]));
        link.settle();
        cq.expect(1, Status::Success);
        cq.expect(2, Status::Success);
        peer_cq.expect(9, Status::Success);
        assert!(
            mine.bytes(0, LENGTH as usize) == {
                let mut bytes = theirs.bytes(0, LENGTH as usize);
                bytes[..8].copy_from_slice(&mine.bytes(0, 8));
                bytes
            }
        );
        let counters = link.worlds[0].engine.counters();
        let again = counters.retries + counters.probes;
        assert_eq!(again == 0, is_lossless, "{again}");
    }
}

#[test]
fn receiver_not_ready_is_waited_for() {
    for retries in 0..7u8 {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), _] = pair(&mut link, |modify| {
            if modify.rnr_retry.is_some() {
                modify.rnr_retry = Some(retries);
            }
        });
        qp.post_send(&Wr::send(1, &[mr.sge(0, 100)]));
        link.settle();
        cq.expect(1, Status::RnrRetryExceeded);
        assert_eq!(
            link.worlds[0].engine.counters().receiver_not_ready,
            u64::from(retries) + 1
        );
    }
    // 7 is for ever (9.7.5.2.8).
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
    qp.post_send(&Wr::send(1, &[mr.sge(0, 100)]));
    while link.now < 10_000 * MS {
        assert!(link.step());
    }
    cq.expect_none();
    peer.post_recv(9, &[peer_mr.sge(0, 100)]);
    link.settle();
    cq.expect(1, Status::Success);
    peer_cq.expect(9, Status::Success);
}

/// A responder keeps resources for so many reads and atomic operations, and no more are on their way
/// (IBA volume 1, 9.4.4).
#[test]
fn reads_under_way_are_as_many_as_agreed() {
    for agreed in 1..5u8 {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |modify| {
            if modify.max_rd_atomic.is_some() {
                modify.max_rd_atomic = Some(agreed);
            }
        });
        for i in 0..6 {
            qp.post_send(&if i % 2 == 0 {
                Wr::read(i, &[mr.sge(0, 100)], theirs.remote(0))
            } else {
                Wr::fetch_add(i, mr.sge(0, 8), theirs.remote(0), 1)
            });
        }
        link.run();
        assert_eq!(link.network.sent[1], agreed.into());
        link.settle();
        for i in 0..6 {
            cq.expect(i, Status::Success);
        }
        assert_eq!(link.network.sent[1], 6);
    }
}

/// Behind the receive requests that the responder has told of, one message goes by itself, to learn of
/// more (IBA volume 1, 9.7.7.2).
#[test]
fn messages_under_way_are_as_many_as_there_are_credits() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
    for i in 0..3 {
        peer.post_recv(i, &[peer_mr.sge(0, 100)]);
    }
    qp.post_send(&Wr::send(0, &[mr.sge(0, 100)]));
    link.settle();
    let before = link.network.sent[1];
    for i in 1..7 {
        qp.post_send(&Wr::send(i, &[mr.sge(0, 100)]));
    }
    link.run();
    assert_eq!(link.network.sent[1], before + 2);
    // A write takes no receive request, but comes after the sends.
    qp.post_send(&Wr::write(7, &[mr.sge(0, 100)], peer_mr.remote(0)));
    link.run();
    assert_eq!(link.network.sent[1], before + 2);
    let not_ready = |link: &Link| link.worlds[0].engine.counters().receiver_not_ready;
    while not_ready(&link) == 0 {
        assert!(link.step());
    }
    for i in 3..7 {
        peer.post_recv(i, &[peer_mr.sge(0, 100)]);
    }
    link.settle();
    assert_eq!(not_ready(&link), 1);
    for i in 0..7 {
        cq.expect(i, Status::Success);
        peer_cq.expect(i, Status::Success);
    }
    cq.expect(7, Status::Success);
}

/// An answer with other data than were asked for is none (IBA volume 1, 9.7.5.2.8).
#[test]
fn answers_that_do_not_fit_end_the_request() {
    let changes: [fn(&mut Vec<u8>); 3] = [
        |transport| transport.truncate(transport.len() - 4),
        |transport| transport.extend_from_slice(&[7; 4]),
        |transport| {
            transport[0] = rc::READ_RESPONSE_MIDDLE;
            transport.resize(size_of::<Bth>() + 1024, 7);
        },
    ];
    for change in changes {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |_| ());
        theirs.fill(7);
        qp.post_send(&Wr::read(1, &[mr.sge(0, 1124)], theirs.remote(0)));
        qp.post_send(&Wr::send(2, &[]));
        let [world, peer] = &mut link.worlds;
        world.engine.run(&mut world.host, PLENTY, None);
        deliver(peer, &world.host.sent.remove(0));
        peer.engine.run(&mut peer.host, PLENTY, None);
        let mut answers = std::mem::take(&mut peer.host.sent);
        assert_eq!(answers[1].transport[0], rc::READ_RESPONSE_LAST);
        change(&mut answers[1].transport);
        answers[1].seal();
        for answer in &answers {
            deliver(world, answer);
        }
        world.engine.run(&mut world.host, PLENTY, None);
        cq.expect(1, Status::BadResponse);
        cq.expect(2, Status::Flushed);
        world.state(&qp, State::Err);
        assert_eq!(mr.bytes(1024, 100), vec![0; 100]);
    }
}

#[test]
fn refusals_are_told_after_all_before_has_ended() {
    let cases = [
        (wr_opcode::RDMA_WRITE, Status::RemoteAccess),
        (wr_opcode::RDMA_READ, Status::RemoteAccess),
        (wr_opcode::ATOMIC_FETCH_AND_ADD, Status::RemoteAccess),
    ];
    for (opcode, status) in cases {
        let mut link = Link::new(1, Faults::default(), false);
        let [(qp, cq, mr), (peer, peer_cq, peer_mr)] = pair(&mut link, |_| ());
        peer.post_recv(9, &[]);
        qp.post_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
        qp.post_send(
            &Wr::write(2, &[mr.sge(0, 4000)], peer_mr.remote(0)).with_opcode(wr_opcode::RDMA_READ),
        );
        let mut bad =
            Wr::write(3, &[mr.sge(0, 8)], (peer_mr.iova, peer_mr.key ^ 1)).with_opcode(opcode);
        if opcode != wr_opcode::ATOMIC_FETCH_AND_ADD {
            bad.extra = [0; 16];
        }
        qp.post_send(&bad);
        qp.post_send(&Wr::send(4, &[mr.sge(0, 8)]));
        link.settle();
        cq.expect(1, Status::Success);
        cq.expect(2, Status::Success);
        cq.expect(3, status);
        cq.expect(4, Status::Flushed);
        peer_cq.expect(9, Status::Flushed);
        link.worlds[0].state(&qp, State::Err);
        link.worlds[1].state(&peer, State::Err);
    }
}

/// A request that changes a key waits for the end of those before it, and so an answer is asked for.
#[test]
fn what_waits_for_an_answer_asks_for_one() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    qp.put_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    // It is no key that can be invalidated, of which one hears when it is tried.
    qp.put_send(&Wr::local_inv(2, mr.key));
    qp.ring();
    link.settle();
    cq.expect(1, Status::Success);
    cq.expect(2, Status::WindowBind);
    assert_eq!(link.worlds[0].engine.counters().unanswered, 0);
}

/// Where there are no bytes the responder looks at no key (C9-88), and not every one knows such a read
/// again by one.
#[test]
fn a_read_of_nothing_names_no_key() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, theirs)] = pair(&mut link, |_| ());
    for (id, length) in [(1, 0), (2, 8)] {
        qp.post_send(&Wr::read(id, &[mr.sge(0, length)], theirs.remote(0)));
        let World { engine, host, .. } = &mut link.worlds[0];
        while engine.run(host, PLENTY, None).more {}
        let [sent] = &host.sent[..] else {
            panic!("{} packets", host.sent.len());
        };
        let bytes = &sent.transport;
        let packet = Packet::parse(bytes, bytes.len()).unwrap();
        let reth = packet.reth().unwrap();
        assert_eq!(reth.length.get(), length);
        assert_eq!(reth.rkey.get(), if length == 0 { 0 } else { theirs.key });
        link.settle();
        cq.expect(id, Status::Success);
    }
}

#[test]
fn a_host_without_room_is_asked_again() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    mr.fill(3);
    link.worlds[0].host.busy = 5;
    link.worlds[1].host.busy = 3;
    qp.post_send(&Wr::write(1, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    link.settle();
    cq.expect(1, Status::Success);
    assert_eq!(peer_mr.bytes(0, 5000), mr.bytes(0, 5000));
    assert_eq!(link.worlds[0].engine.counters().retries, 0);
}

#[test]
fn the_send_queue_drains() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, cq, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    for i in 0..4 {
        qp.post_send(&Wr::write(i, &[mr.sge(0, 5000)], peer_mr.remote(0)));
    }
    link.run();
    let drain = Modify {
        state: Some(State::Sqd),
        en_sqd_async_notify: Some(true),
        ..Modify::default()
    };
    link.worlds[0].modify(&qp, &drain).unwrap();
    assert!(link.worlds[0].query(&qp).sq_draining);
    qp.post_send(&Wr::write(9, &[mr.sge(0, 8)], peer_mr.remote(0)));
    link.settle();
    assert!(!link.worlds[0].query(&qp).sq_draining);
    for i in 0..4 {
        cq.expect(i, Status::Success);
    }
    cq.expect_none();
    let drained = link.worlds[0].events();
    assert_eq!(
        drained,
        [Event::Qp(
            qp.name,
            ferrule_engine::QpEvent::SendQueueDrained
        )]
    );
    link.worlds[0].to(&qp, State::Rts);
    link.settle();
    cq.expect(9, Status::Success);
}

/// What does not come from the peer, or is not whole, is counted and changes nothing.
#[test]
fn strange_packets_are_counted_and_dropped() {
    let mut link = Link::new(1, Faults::default(), false);
    let [(qp, _, mr), (_, _, peer_mr)] = pair(&mut link, |_| ());
    qp.post_send(&Wr::write(1, &[mr.sge(0, 100)], peer_mr.remote(0)));
    let world = &mut link.worlds[0];
    world.engine.run(&mut world.host, PLENTY, None);
    let good = world.host.sent.pop().unwrap();
    assert_eq!(good.transport[0], rc::WRITE_ONLY);
    let peer = &mut link.worlds[1];
    let before = *peer.engine.counters();
    let mut bad = good.clone();
    bad.icrc[0] ^= 1;
    deliver(peer, &bad);
    assert_eq!(peer.engine.counters().icrc_errors, before.icrc_errors + 1);
    let mut elsewhere = good.clone();
    elsewhere.ip[23] ^= 1;
    elsewhere.seal();
    deliver(peer, &elsewhere);
    assert_eq!(peer.engine.counters().misdirected, 1);
    let mut short = good.clone();
    short.transport.truncate(20);
    deliver(peer, &short);
    assert_eq!(peer.engine.counters().malformed_short, 1);
    peer.engine.run(&mut peer.host, PLENTY, None);
    assert_eq!(peer.host.sent, []);
    assert_eq!(peer_mr.bytes(0, 100), vec![0; 100]);
    deliver(peer, &good);
    peer.engine.run(&mut peer.host, PLENTY, None);
    assert_eq!(peer.host.sent.len(), 1);
}
