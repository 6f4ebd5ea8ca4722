// SPDX-License-Identifier: GPL-2.0

//! The counters of each guest, by the control socket and in Prometheus' format.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::control;
use ferrule_nic::device::Device;
use ferrule_nic::interface::*;
use ferrule_nic::show::{parse, Values};
use ferrule_nic::worker::Worker;

use crate::client::RESET;
use crate::data::{pair_between, program};
use crate::driver::queues::*;
use crate::driver::*;
use crate::running::{guest, Running};
use crate::wire::Sockets;

fn value(values: &Values, name: &str, guest: &str) -> f64 {
    values[name][guest]
}

#[test]
fn each_guest_has_its_own_counters() {
    let device = Device::new(2).unwrap();
    let _worker = Worker::new(&device).unwrap();
    let (mut one, mut two) = (Guest::new(&device, 0), Guest::new(&device, 1));
    let (mut p, mut q) = (program(&mut one), program(&mut two));
    let (mut a, mut b) = pair_between((&mut one, &p), (&mut two, &q));
    for round in 0..3 {
        b.receive(round, 0, 100, q.key);
        let send = Wqe::new(round, wr_opcode::SEND).local(1, 100, p.key);
        one.send(&mut a, &send);
        assert_eq!(p.cq.done().wr_id.get(), round);
        assert_eq!(q.cq.done().wr_id.get(), round);
    }
    let write = Wqe::new(4, wr_opcode::RDMA_WRITE).local(0, 8, q.key);
    two.send(&mut b, &write.remote(0, p.key ^ 0xff00));
    assert_eq!(q.cq.wait().status, 10, "remote access error");

    assert_eq!(counter(&mut one, "send_requests"), 3);
    assert_eq!(counter(&mut two, "send_requests"), 1);
    assert_eq!(counter(&mut one, "rcvd_messages"), 0);
    assert_eq!(counter(&mut two, "rcvd_messages"), 3);
    assert_eq!(counter(&mut two, "message_bytes"), 300);
    assert_eq!(counter(&mut one, "responder_errors"), 1);
    assert_eq!(counter(&mut two, "send_errors"), 1);

    let names = ["a".to_owned(), "say \"b\"".to_owned()];
    let text = control::text(&device, None, &names);
    assert!(text.contains("ferrule_requests_total{guest=\"say \\\"b\\\"\"} 1\n"));
    let values = parse(&control::text(&device, None, &["a".into(), "b".into()]));
    assert_eq!(value(&values, "messages_total", "b"), 3.0);
    assert_eq!(value(&values, "objects qp", "a"), 1.0);
    assert_eq!(value(&values, "latency_seconds_count", "a"), 1.0);
    assert_eq!(value(&values, "registered_bytes", "a"), f64::from(1 << 20));
    assert!(value(&values, "memory_bytes", "a") > 0.0);
    assert!(value(&values, "commands_total", "a") > 5.0);
    assert!(value(&values, "accesses_total", "a") > value(&values, "commands_total", "a"));
    assert_eq!(value(&values, "refused_commands_total", "a"), 0.0);

    drop(one);
    eventually("the guest to be gone", || {
        let gone = parse(&control::text(&device, None, &["a".into()]));
        (value(&gone, "objects qp", "a") == 0.0).then_some(())
    });
}

/// A slot that loses its power, and a guest that starts again, are resets by the client.
#[test]
fn a_reset_under_a_driver_is_logged() {
    let sockets = Sockets::new();
    let path = sockets.path("guest");
    let running = Running::new(&[guest(&path)], sockets.path("log"));
    running.tells("waits for a client");
    let mut one = Guest::at(&path, 0);
    let told = || {
        let lines = running.log();
        lines.iter().filter(|line| line.contains("reset")).count()
    };
    let reset = |one: &mut Guest| {
        assert_eq!(one.client.call(RESET, &[], &[]).error, None);
    };
    reset(&mut one);
    assert_eq!(told(), 1);
    // Nobody has it any more.
    reset(&mut one);
    assert_eq!(told(), 1);
    // A driver lets go of it.
    one.begin();
    one.write(register::RESET, 1);
    reset(&mut one);
    assert_eq!(told(), 1);
    // Bus mastering is taken away, too.
    one.begin();
    assert_eq!(one.client.write(7, 4, &[2, 0]), None);
    reset(&mut one);
    assert_eq!(told(), 2);
    // A client that leaves has a line of its own.
    one.begin();
    drop(one);
    running.tells("its client has gone");
    assert_eq!(told(), 2);
}
