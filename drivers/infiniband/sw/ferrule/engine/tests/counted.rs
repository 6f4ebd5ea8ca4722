// SPDX-License-Identifier: GPL-2.0

//! Packets and bytes, as the port counts them.

use ferrule_engine::{abi, Status};

use crate::sim::network::{Faults, Link};
use crate::sim::*;
use abi::wr_opcode;

/// The headers before a packet of the simulated network, which is of IPv6, and the base transport
/// header and CRC behind them.
const TRANSPORT: u64 = 40 + 8 + 12 + 4;
const RETH: u64 = 16;
const AETH: u64 = 4;

/// Packets and their bytes.
type Amount = (u64, u64);

#[track_caller]
fn expect(w: &World, local: Amount, sent: Amount, received: Amount) {
    let c = w.engine.counters();
    assert_eq!((c.local_packets, c.local_bytes), local);
    assert_eq!((c.packets_sent, c.bytes_sent), sent);
    assert_eq!((c.packets_received, c.bytes_received), received);
    assert_eq!((c.multicast_sent, c.multicast_received), (0, 0));
}

#[track_caller]
fn expect_local(w: &World, local: Amount) {
    expect(w, local, (0, 0), (0, 0));
}

#[test]
fn local_messages_count_in_packets_of_the_mtu() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let (from, to) = (w.mr(8192), w.mr(8192));
    // The path MTU is 1024: 3 packets, then 1 that is empty, then 5.
    for (wr_id, length) in [(1, 2049), (2, 0)] {
        b.qp.post_recv(wr_id, &[to.sge(0, 4096)]);
        a.qp.post_send(&Wr::send(wr_id, &[from.sge(0, length)]));
    }
    a.qp.post_send(&Wr::write(3, &[from.sge(0, 5000)], to.remote(0)));
    w.run();
    expect_local(&w, (9, 7049));
}

#[test]
fn local_data_that_are_asked_for_take_one_packet_more() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    let (from, to) = (w.mr(8192), w.mr(8192));
    a.qp.post_send(&Wr::read(1, &[to.sge(0, 3000)], from.remote(0)));
    a.qp.post_send(&Wr::fetch_add(2, to.sge(0, 8), from.remote(0), 1));
    w.run();
    a.cq.expect(1, Status::Success);
    a.cq.expect(2, Status::Success);
    expect_local(&w, (1 + 3 + 1 + 1, 3008));
}

#[test]
fn locally_refused_requests_do_not_count() {
    let mut w = World::new();
    let (a, _b) = w.pair();
    let (from, to) = (w.mr(4096), w.mr(4096));
    let (address, key) = to.remote(0);
    a.qp.post_send(&Wr::write(1, &[from.sge(0, 8)], (address, key ^ 1)));
    w.run();
    a.cq.expect(1, Status::RemoteAccess);
    expect_local(&w, (0, 0));
}

/// A request on the wire, its packets and the answers.
#[track_caller]
fn on_the_wire(mut request: Wr, sent: Amount, received: Amount) {
    let mut link = Link::new(1, Faults::default(), false);
    let [from, to] = link.worlds.each_mut().map(|world| world.mr(8192));
    let [a, b] = link.pair(|world, cq| world.qp(cq, cq), |_| ());
    b.qp.post_recv(9, &[to.sge(0, 8192)]);
    request.sges = vec![from.sge(0, 2049)];
    request.remote = to.remote(0);
    a.qp.post_send(&request);
    link.settle();
    a.cq.expect(request.wr_id, Status::Success);
    expect(&link.worlds[0], (0, 0), sent, received);
    expect(&link.worlds[1], (0, 0), received, sent);
}

#[test]
fn packets_count_from_the_ip_header_to_the_invariant_crc() {
    // 2 packets of the path MTU and one of 1 byte, padded; one acknowledgement.
    let acknowledgement = (1, TRANSPORT + AETH);
    let data = 3 * TRANSPORT + 2052;
    on_the_wire(Wr::send(1, &[]), (3, data), acknowledgement);
    let write = Wr::write(1, &[], (0, 0));
    on_the_wire(write.clone(), (3, data + RETH), acknowledgement);
    let write = write.with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM);
    on_the_wire(write, (3, data + RETH + 4), acknowledgement);
    // The first and the last response tell how far the responder is.
    on_the_wire(
        Wr::read(1, &[], (0, 0)),
        (1, TRANSPORT + RETH),
        (3, data + 2 * AETH),
    );
}
