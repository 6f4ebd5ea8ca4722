// SPDX-License-Identifier: GPL-2.0

//! Datagrams to groups with members in two processes.

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::interface::*;

use super::{linked, Sockets};
use crate::data::{pattern, program};
use crate::datagrams::{datagram_qp, handle, GRH, QKEY};
use crate::driver::queues::*;

/// The number by which a datagram to a group calls its receivers.
const MULTICAST_QPN: u32 = 0xff_ffff;

#[test]
fn each_member_gets_a_datagram_once() {
    let sockets = Sockets::new();
    let mut processes = linked(&sockets);
    let mut group = [0; 16];
    (group[0], group[1], group[15]) = (0xff, 0x0e, 7);
    let dmac = [0x33, 0x33, 0, 0, 0, 7];
    let mut members = Vec::new();
    for guest in processes.iter_mut().flat_map(|process| &mut process.guests) {
        let p = program(guest);
        let mut qp = datagram_qp(guest, &p);
        let member = Multicast {
            number: qp.number.into(),
            reserved: 0.into(),
            gid: group,
        };
        guest.command(opcode::ATTACH_MCAST, &member).unwrap();
        for id in 0..4 {
            qp.receive(id, 4096 * (id + 1), 2000, p.key);
        }
        members.push((guest, p, qp));
    }
    let (guest, p, _) = &mut members[1];
    let to = AddressVector {
        dmac,
        ..vector(group)
    };
    let ah = handle(guest, p.pd, to).unwrap();
    for round in 0..2 {
        let bytes = pattern(500, round);
        let (guest, p, qp) = &mut members[1];
        p.area.write(0, &bytes);
        let send = Wqe::new(9, wr_opcode::SEND).local(0, 500, p.key);
        guest.send(qp, &send.to(ah, MULTICAST_QPN, QKEY));
        let ids = [p.cq.done().wr_id.get(), p.cq.done().wr_id.get()];
        assert!(ids.contains(&9) && ids.contains(&round.into()));
        for (number, (_, p, _)) in members.iter_mut().enumerate() {
            if number != 1 {
                assert_eq!(p.cq.done().wr_id.get(), round.into());
            }
            let at = 4096 * (u64::from(round) + 1) + GRH as u64;
            assert_eq!(p.area.read(at, 500), bytes, "member {number}");
        }
    }
    // A copy too many would have taken one of the requests that are left.
    let (guest, p, qp) = &mut members[3];
    let near = handle(guest, p.pd, vector(guest.gid)).unwrap();
    guest.send(
        qp,
        &Wqe::new(9, wr_opcode::SEND)
            .local(0, 500, p.key)
            .to(near, qp.number, QKEY),
    );
    let ids = [p.cq.done().wr_id.get(), p.cq.done().wr_id.get()];
    assert!(ids.contains(&9) && ids.contains(&2), "{ids:?}");
}
