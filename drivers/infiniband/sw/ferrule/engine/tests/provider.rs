// SPDX-License-Identifier: GPL-2.0

//! The provider takes a request where the engine does: its table of operations is compared with what becomes
//! of each operation on each type of queue pair.

use std::collections::BTreeMap;

use ferrule_engine::{abi::wr_opcode, MwType, PathKind, QpType, Status};

use crate::sim::*;

const SOURCE: &str = include_str!("../../../../../../userspace-provider/send.h");

const TYPES: [(&str, QpType); 3] = [("RC", QpType::Rc), ("UC", QpType::Uc), ("UD", QpType::Ud)];

/// The types of queue pairs that the provider lets post each operation, by the names it has in the ABI.
fn table() -> BTreeMap<String, Vec<QpType>> {
    let (_, rest) = SOURCE.split_once("send_ops[] = {").unwrap();
    let (rows, _) = rest.split_once("\n};").unwrap();
    let row = |row: &str| {
        let mut fields = row.split(',').map(str::trim);
        let name = fields.next().unwrap().strip_prefix("FERRULE_WR_");
        let types = fields.next().unwrap().split(" | ").map(|name| {
            let known = TYPES.iter().find(|(known, _)| *known == name);
            known.unwrap_or_else(|| panic!("{name}")).1
        });
        (name.unwrap().to_string(), types.collect())
    };
    rows.split('{').skip(1).map(row).collect()
}

/// How an operation ends that is as it should be.
fn status(qp_type: QpType, opcode: u8) -> u8 {
    let mut w = World::new();
    let mr = w.mr_with(1, BINDABLE, memory::shared(64), 0, 64);
    let (spec, cq) = (
        QpSpec {
            qp_type,
            ..QpSpec::default()
        },
        w.cq(16),
    );
    let (a, b) = (w.qp_with(&spec, &cq, &cq), w.qp_with(&spec, &cq, &cq));
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        match qp_type {
            QpType::Rc => w.connect(qp, peer),
            QpType::Uc => w.connect_uc(qp, peer),
            QpType::Ud => w.ready_ud(qp, 7),
        }
    }
    b.post_recv(1, &[mr.sge(0, 64)]);
    let window = w.mw(1, MwType::Type2);
    let key = window & !0xff | (window + 1) & 0xff;
    let bind = Wr::bind(2, window, key, mr.remote(0), 8);
    let (sge, remote) = (mr.sge(0, 8), mr.remote(8));
    let wr = match opcode {
        wr_opcode::LOCAL_INV => Wr::local_inv(2, key),
        wr_opcode::BIND_MW => bind,
        wr_opcode::ATOMIC_CMP_AND_SWP => Wr::compare_swap(2, sge, remote, 1, 2),
        wr_opcode::ATOMIC_FETCH_AND_ADD => Wr::fetch_add(2, sge, remote, 1),
        _ if qp_type == QpType::Ud => {
            let ah = w.ah(1, path(PathKind::Local));
            Wr::datagram(2, &[sge], (ah, b.id.number), 7).with_opcode(opcode)
        }
        _ => Wr::write(2, &[sge], remote).with_opcode(opcode),
    };
    a.post_send(&wr);
    w.run();
    let ended = cq.drain().into_iter().find(|wc| wc.wr_id == 2);
    ended.expect("no completion").status
}

#[test]
fn the_provider_takes_what_the_engine_takes() {
    let operations = [
        ("SEND", wr_opcode::SEND),
        ("SEND_WITH_IMM", wr_opcode::SEND_WITH_IMM),
        ("SEND_WITH_INV", wr_opcode::SEND_WITH_INV),
        ("RDMA_WRITE", wr_opcode::RDMA_WRITE),
        ("RDMA_WRITE_WITH_IMM", wr_opcode::RDMA_WRITE_WITH_IMM),
        ("RDMA_READ", wr_opcode::RDMA_READ),
        ("ATOMIC_CMP_AND_SWP", wr_opcode::ATOMIC_CMP_AND_SWP),
        ("ATOMIC_FETCH_AND_ADD", wr_opcode::ATOMIC_FETCH_AND_ADD),
        ("LOCAL_INV", wr_opcode::LOCAL_INV),
        ("BIND_MW", wr_opcode::BIND_MW),
    ];
    let mut table = table();
    for (name, opcode) in operations {
        let taken = table.remove(name).unwrap_or_else(|| panic!("{name}"));
        for (_, qp_type) in TYPES {
            let is_taken = status(qp_type, opcode) != Status::LocalOperation as u8;
            assert_eq!(is_taken, taken.contains(&qp_type), "{name}, {qp_type:?}");
        }
    }
    assert!(table.is_empty(), "not compared: {table:?}");
}
