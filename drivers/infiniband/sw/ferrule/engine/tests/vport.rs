// SPDX-License-Identifier: GPL-2.0

//! Virtual ports of one engine: the queue pairs that reach each other, and by which numbers.

use ferrule_engine::{
    Budget, Config, Error, Group, Modify, Mtu, Path, PathKind, QpType, State, Status, Vport, GSI,
};

use crate::sim::*;

const QKEY: u32 = 0x1111_1111;
const GRH: u32 = 40;

/// The address of a group.
const GROUP: [u8; 16] = [0xff; 16];

fn vport(number: u8) -> Vport {
    Vport::from_number(number).unwrap()
}

fn world(vports: u8) -> World {
    let mut w = World::with(Config {
        random: 0x5eed,
        vports,
        ..Config::default()
    });
    for number in 0..vports.max(1) {
        w.engine.set_port_mtu(vport(number), Mtu::Mtu1024);
    }
    w
}

fn to(number: u8) -> Path {
    path(PathKind::Local(vport(number)))
}

fn spec(number: u8) -> QpSpec {
    QpSpec {
        vport: vport(number),
        ..QpSpec::default()
    }
}

/// Connects `qp` to `peer`, which is to be found on a virtual port.
fn connect(w: &mut World, qp: &TestQp, peer: &TestQp, number: u8) {
    w.modify(qp, &init()).unwrap();
    let rtr = Modify {
        path: Some(to(number)),
        ..rtr(peer.id.number)
    };
    w.modify(qp, &rtr).unwrap();
    w.modify(qp, &rts()).unwrap();
}

/// The port's queue pair for general services, ready, with its completion queue.
fn general(w: &mut World, number: u8) -> End {
    let cq = w.cq(16);
    let spec = QpSpec {
        qp_type: QpType::Ud,
        gsi: true,
        ..spec(number)
    };
    let qp = w.qp_in(None, &spec, &cq, &cq);
    w.ready_ud(&qp, QKEY);
    End { qp, cq }
}

#[test]
fn connections_reach_the_virtual_port_that_their_path_names() {
    let mut w = world(2);
    let (ca, cb) = (w.cq(16), w.cq(16));
    let a = w.qp_with(&spec(0), &ca, &ca);
    let b = w.qp_with(&spec(1), &cb, &cb);
    connect(&mut w, &a, &b, 1);
    connect(&mut w, &b, &a, 0);
    let mr = w.mr(4096);
    mr.fill(5);
    a.post_send(&Wr::write(1, &[mr.sge(0, 1000)], mr.remote(2000)));
    w.run();
    ca.expect(1, Status::Success);
    assert_eq!(mr.bytes(2000, 1000), mr.bytes(0, 1000));

    // Nobody answers by another address, although there is a queue pair of this number.
    let (c, d) = (w.qp_with(&spec(0), &ca, &ca), w.qp_with(&spec(1), &cb, &cb));
    connect(&mut w, &c, &d, 0);
    connect(&mut w, &d, &c, 0);
    c.post_send(&Wr::write(2, &[mr.sge(0, 8)], mr.remote(2000)));
    w.settle(10_000 * MS);
    ca.expect(2, Status::RetryExceeded);
    cb.expect_none();
}

#[test]
fn datagrams_reach_the_virtual_port_that_they_are_sent_to() {
    let mut w = world(2);
    let (near, far) = (w.ud(&spec(0), QKEY), w.ud(&spec(1), QKEY));
    let mr = w.mr(4096);
    for (i, number, arrives) in [(1, 1, true), (2, 0, false)] {
        let ah = w.ah(1, to(number));
        far.qp.post_recv(i, &[mr.sge(0, 200)]);
        let wr = Wr::datagram(i, &[mr.sge(1000, 50)], (ah, far.qp.id.number), QKEY);
        near.qp.post_send(&wr);
        w.run();
        near.cq.expect(i, Status::Success);
        match arrives {
            true => assert_eq!(far.cq.expect(i, Status::Success).byte_len, 50 + GRH),
            false => far.cq.expect_none(),
        }
    }
    assert_eq!(w.engine.counters().dropped, 1);

    // By another address than its own, it does not even reach itself.
    let ah = w.ah(1, to(1));
    near.qp.post_recv(3, &[mr.sge(0, 200)]);
    let wr = Wr::datagram(3, &[mr.sge(0, 50)], (ah, near.qp.id.number), QKEY);
    near.qp.post_send(&wr);
    w.run();
    near.cq.expect(3, Status::Success);
    near.cq.expect_none();
    assert_eq!(w.engine.counters().dropped, 2);
}

#[test]
fn general_services_have_one_number_on_each_virtual_port() {
    let mut w = world(3);
    let ends = [0, 1, 2].map(|number| general(&mut w, number));
    let numbers = [0, 1, 2].map(|i: usize| ends[i].qp.id.number);
    assert!(ends.iter().all(|end| end.qp.id.qpn() == GSI));
    assert_eq!(numbers[0], GSI);
    assert!(numbers[1..].iter().all(|&number| number > 0xff_ffff));
    let indices = numbers.map(|number| number & 0xffff);
    assert_eq!(indices, [1, 2, 3]);
    let again = QpSpec {
        qp_type: QpType::Ud,
        gsi: true,
        ..spec(1)
    };
    let cq = w.cq(4);
    let second = w.try_qp_in(None, &again, &cq, &cq);
    assert_eq!(second.err(), Some(Error::Busy));

    let mr = w.mr(4096);
    for (from, target) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
        ends[target].qp.post_recv(1, &[mr.sge(0, 200)]);
        w.host.destination = Some(to(target as u8));
        let wr = Wr::datagram(2, &[mr.sge(1000, 50)], (0, GSI), QKEY);
        ends[from].qp.put_send(&wr);
        w.engine.ring_qp(numbers[from]);
        w.run();
        let wc = ends[target].cq.expect(1, Status::Success);
        assert_eq!((wc.qp_num, wc.src_qp), (GSI, GSI));
        assert_eq!(ends[from].cq.expect(2, Status::Success).qp_num, GSI);
    }
    // The number in the engine is no number for a sender.
    let program = w.ud(&spec(0), QKEY);
    let ah = w.ah(1, to(1));
    let wr = Wr::datagram(3, &[], (ah, numbers[1]), QKEY);
    program.qp.post_send(&wr);
    w.run();
    program.cq.expect(3, Status::LocalOperation);

    w.engine.remove_qp(numbers[1]).unwrap();
    assert_eq!(general(&mut w, 1).qp.id.number, numbers[1]);
}

/// Two members of a group, on two virtual ports, each with so many receive requests; and memory.
fn group(requests: u64) -> (World, [End; 2], TestMr) {
    let mut w = world(2);
    let ends = [w.ud(&spec(0), QKEY), w.ud(&spec(1), QKEY)];
    let mr = w.mr(4096);
    for end in &ends {
        let number = end.qp.id.number;
        let attached = add(&mut w.engine, Group::new(), |engine, memory| {
            engine.attach_mcast(number, &GROUP, memory)
        });
        attached.unwrap();
        for id in 1..=requests {
            end.qp.post_recv(id, &[mr.sge(0, 200)]);
        }
    }
    (w, ends, mr)
}

/// The first member sends a datagram to the group, by this path.
fn send(w: &mut World, ends: &[End; 2], mr: &TestMr, path: Path) {
    let ah = w.ah(
        1,
        Path {
            dgid: GROUP,
            ..path
        },
    );
    let wr = Wr::datagram(3, &[mr.sge(0, 50)], (ah, 0xff_ffff), QKEY);
    ends[0].qp.post_send(&wr);
    w.run();
}

#[test]
fn groups_have_members_on_all_virtual_ports() {
    let (mut w, ends, mr) = group(1);
    send(&mut w, &ends, &mr, to(0));
    for end in &ends {
        end.cq.expect(1, Status::Success);
    }
}

#[test]
fn a_packet_to_a_group_is_for_members_on_all_virtual_ports() {
    let (mut w, ends, mr) = group(2);
    send(&mut w, &ends, &mr, path(PathKind::Remote));
    for end in &ends {
        end.cq.expect(1, Status::Success);
    }
    // The packet that left comes back as if another had sent it.
    ends[0].cq.expect(3, Status::Success);
    let sent = w.host.sent.pop().unwrap();
    w.engine.receive(&mut w.host, &sent.rx_packet());
    w.run();
    for end in &ends {
        end.cq.expect(2, Status::Success);
    }
}

#[test]
fn each_virtual_port_has_a_path_mtu() {
    let mut w = world(2);
    w.engine.set_port_mtu(vport(1), Mtu::Mtu256);
    let mr = w.mr(4096);
    let expected = [Status::Success, Status::LocalLength];
    for (number, expected) in (0..).zip(expected) {
        let end = w.ud(&spec(number), QKEY);
        let ah = w.ah(1, to(number));
        let wr = Wr::datagram(1, &[mr.sge(0, 257)], (ah, end.qp.id.number), QKEY);
        end.qp.post_send(&wr);
        w.run();
        end.cq.expect(1, expected);
    }
}

#[test]
fn a_virtual_port_that_there_is_not() {
    for (vports, number) in [(0, 1), (1, 1), (3, 3), (3, Vport::LIMIT - 1)] {
        let mut w = world(vports);
        let cq = w.cq(4);
        for gsi in [false, true] {
            let spec = QpSpec {
                qp_type: QpType::Ud,
                gsi,
                ..spec(number)
            };
            let refused = w.try_qp_in(None, &spec, &cq, &cq);
            assert_eq!(refused.err(), Some(Error::Invalid));
        }
    }
    assert_eq!(Vport::from_number(Vport::LIMIT), None);
    let mut w = world(Vport::LIMIT);
    let end = general(&mut w, Vport::LIMIT - 1);
    w.state(&end.qp, State::Rts);
}

/// As much as ferrule-nic's worker does at a time.
const SLICE: Budget = Budget {
    requests: 256,
    bytes: 1 << 20,
};

/// A program of a port that writes 64 KiB to itself so many times.
fn program(w: &mut World, cq: &TestCq, mr: &TestMr, number: u8, writes: u64) -> TestContext {
    let context = w.context_at(vport(number));
    let spec = QpSpec {
        depth: writes as u32,
        ..spec(number)
    };
    let qp = w.qp_in(Some(&context), &spec, cq, cq);
    connect(w, &qp, &qp, number);
    for id in 0..writes {
        qp.post_send(&Wr::write(id, &[mr.sge(0, 64 << 10)], mr.remote(0)));
    }
    context
}

/// A port whose programs have work without an end takes no more than its part from another with one
/// queue pair, whatever the numbers of their contexts, and whoever is to be first.
#[test]
fn a_port_has_its_turns_beside_one_with_many_queue_pairs() {
    const WRITES: u64 = 64;
    // Each has run queues of its own.
    for vports in [2, 5, 32] {
        let mut w = world(vports);
        let cq = w.cq(1 << 16);
        let mr = w.mr(64 << 10);
        let program = |w: &mut World, number| program(w, &cq, &mr, number, WRITES);
        let busy: Vec<_> = (0..130).map(|_| program(&mut w, vports - 1)).collect();
        let one = program(&mut w, 0);
        for context in busy.iter().chain([&one]) {
            w.engine.kicked(context.id);
        }
        let turns = |w: &World, number| w.engine.counters_of(vport(number)).turns;
        while turns(&w, 0) < WRITES {
            w.engine.run(&mut w.host, SLICE, Some(busy[0].id));
            let (few, many) = (turns(&w, 0), turns(&w, vports - 1));
            assert!(few + 20 > many, "{vports} ports: {few} turns beside {many}");
        }
        // It waits for its own work only.
        assert!(!w.engine.run_for(&mut w.host, SLICE, one.id).first);
    }
}

/// A guest that kicks without a pause is first, and the others have their turns in the same order
/// as without it.
#[test]
fn a_port_that_is_always_first_leaves_the_others_their_turns() {
    const PORTS: u8 = 32;
    let mut w = world(PORTS);
    let cq = w.cq(1 << 16);
    let mr = w.mr(64 << 10);
    let contexts: Vec<_> = (0..PORTS)
        .map(|number| program(&mut w, &cq, &mr, number, 64))
        .collect();
    for context in &contexts {
        w.engine.kicked(context.id);
    }
    let kick = Budget {
        bytes: 64 << 10,
        ..SLICE
    };
    for _ in 0..40 {
        w.engine.run_for(&mut w.host, kick, contexts[0].id);
        w.engine.run(&mut w.host, SLICE, None);
    }
    for number in 1..PORTS {
        let turns = w.engine.counters_of(vport(number)).turns;
        assert!(turns >= 15, "{turns} turns of port {number}");
    }
}
