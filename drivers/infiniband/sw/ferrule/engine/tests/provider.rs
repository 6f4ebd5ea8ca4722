// SPDX-License-Identifier: GPL-2.0

//! Programs and kernel users can post what the engine does, and nothing else: the tables of the
//! provider and the matches of the kernel's side are compared with the header, and with what
//! becomes of each operation in the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ferrule_engine::{abi::wr_opcode, MwType, PathKind, QpType, Status, Vport};

use crate::sim::*;

const HEADER: &str = include_str!("../../../../../../include/uapi/rdma/ferrule-abi.h");
const SEND: &str = include_str!("../../../../../../userspace-provider/send.h");
const SEND_WR: &str = include_str!("../../../../../../userspace-provider/send_wr.c");
const POLL: &str = include_str!("../../../../../../userspace-provider/poll.c");

const TYPES: [(&str, QpType); 5] = [
    ("RC", QpType::Rc),
    ("UC", QpType::Uc),
    ("UD", QpType::Ud),
    ("XRC", QpType::XrcIni),
    ("RAW", QpType::RawPacket),
];

/// The driver's file of this name, which is not of the engine.
fn driver(name: &str) -> String {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().unwrap().to_str().unwrap() {
                "engine" => (),
                _ if path.is_dir() => folders.push(path),
                file if file == name => found.push(path),
                _ => (),
            }
        }
    }
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    fs::read_to_string(&found[0]).unwrap()
}

/// The text between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to}")).0
}

/// The constants of an enumeration of the header, without their prefix.
fn constants(name: &str, prefix: &str) -> BTreeMap<String, u8> {
    let lines = between(HEADER, &format!("enum {name} {{"), "};").lines();
    let constant = |line: &str| {
        let (name, value) = line.trim().strip_prefix(prefix)?.split_once('=')?;
        let value = value.split([',', '/']).next()?.trim().parse();
        Some((name.trim().to_string(), value.unwrap()))
    };
    lines.filter_map(constant).collect()
}

/// The names behind each place where a text has `prefix`.
fn named(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let name = |rest: &str| {
        rest.split(|letter| !is_of_name(letter))
            .next()
            .map(str::to_string)
    };
    text.split(prefix).skip(1).filter_map(name).collect()
}

/// The operations that the provider lets programs post: the types of queue pairs and whether the
/// data may be inline, by the names of operations in the ABI.
fn table() -> BTreeMap<String, (Vec<QpType>, bool)> {
    let row = |row: &str| {
        let mut fields = row.split([',', '}']).map(str::trim);
        let name = fields.next().unwrap().strip_prefix("FERRULE_WR_");
        let types = fields.next().unwrap().split(" | ").map(|name| {
            let known = TYPES.iter().find(|(known, _)| *known == name);
            known.unwrap_or_else(|| panic!("{name}")).1
        });
        let types = types.collect();
        let may_inline = fields.next().unwrap().parse().unwrap();
        (name.unwrap().to_string(), (types, may_inline))
    };
    let rows = between(SEND, "send_ops[] = {", "\n};");
    rows.split('{').skip(1).map(row).collect()
}

/// How an operation ends, with its data inline or not: the completion's status and opcode.
fn outcome(qp_type: QpType, opcode: u8, is_inline: bool) -> (u8, u8) {
    let mut w = World::new();
    w.host.frame_limit = 1518;
    let mr = w.mr_with(1, BINDABLE, memory::shared(64), 0, 64);
    let (spec, cq) = (
        QpSpec {
            qp_type,
            ..QpSpec::default()
        },
        w.cq(16),
    );
    let is_xrc = qp_type == QpType::XrcIni;
    let peer = QpSpec {
        qp_type: if is_xrc { QpType::XrcTgt } else { qp_type },
        pd: if is_xrc { 3 } else { spec.pd },
        ..spec.clone()
    };
    let (a, b) = (w.qp_with(&spec, &cq, &cq), w.qp_with(&peer, &cq, &cq));
    let srq = w.xrc_srq(1, 3, &cq);
    srq.post(1, &[mr.sge(0, 64)]);
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        match qp_type {
            QpType::Rc => w.connect(qp, peer),
            QpType::Uc => w.connect_uc(qp, peer),
            QpType::Ud => w.ready_ud(qp, 7),
            QpType::XrcIni | QpType::XrcTgt => (),
            QpType::RawPacket => w.ready_raw(qp),
        }
    }
    if is_xrc {
        w.connect_xrc(&a, &b);
    } else {
        b.post_recv(1, &[mr.sge(0, 64)]);
    }
    let window = w.mw(1, MwType::Type2);
    let key = window & !0xff | (window + 1) & 0xff;
    let bind = Wr::bind(2, window, key, mr.remote(0), 8);
    let (sge, remote) = (mr.sge(0, 8), mr.remote(8));
    let wr = match opcode {
        wr_opcode::LOCAL_INV => Wr::local_inv(2, key),
        wr_opcode::BIND_MW => bind,
        wr_opcode::ATOMIC_CMP_AND_SWP => Wr::compare_swap(2, sge, remote, 1, 2),
        wr_opcode::ATOMIC_FETCH_AND_ADD => Wr::fetch_add(2, sge, remote, 1),
        wr_opcode::ATOMIC_WRITE => Wr::atomic_write(2, remote, 1),
        wr_opcode::FLUSH => Wr::flush(2, remote, 8),
        _ if qp_type == QpType::Ud => {
            let ah = w.ah(1, path(PathKind::Local(Vport::default())));
            Wr::datagram(2, &[sge], (ah, b.id.number), 7).with_opcode(opcode)
        }
        _ if qp_type == QpType::RawPacket => Wr::send(2, &[mr.sge(0, 60)]).with_opcode(opcode),
        _ => Wr::write(2, &[sge], remote).with_opcode(opcode),
    };
    let names_queue = is_xrc && !matches!(opcode, wr_opcode::LOCAL_INV | wr_opcode::BIND_MW);
    let wr = if names_queue {
        wr.to_srq(srq.number)
    } else {
        wr
    };
    a.post_send(&if is_inline { wr.inline(&[7; 8]) } else { wr });
    w.run();
    let ended = cq.drain().into_iter().find(|wc| wc.wr_id == 2);
    let wc = ended.expect("no completion");
    (wc.status, wc.opcode)
}

#[test]
fn the_provider_takes_what_the_engine_takes() {
    let refused = Status::LocalOperation as u8;
    let mut table = table();
    for (name, opcode) in constants("ferrule_wr_opcode", "FERRULE_WR_") {
        let (types, may_inline) = table.remove(&name).unwrap_or_else(|| panic!("{name}"));
        for (_, qp_type) in TYPES {
            let (status, _) = outcome(qp_type, opcode, false);
            assert_eq!(
                status != refused,
                types.contains(&qp_type),
                "{name}, {qp_type:?}"
            );
        }
        let (status, _) = outcome(QpType::Rc, opcode, true);
        assert_eq!(status != refused, may_inline, "{name} inline");
    }
    assert!(table.is_empty(), "not compared: {table:?}");
}

/// `ibv_wr_start(3)`: each operation has a function, but `ibv_bind_mw(3)` posts for windows of type
/// 1.
#[test]
fn each_operation_has_a_function_of_the_provider() {
    assert_eq!(
        named(SEND_WR, "wr_begin(ibqp, IBV_WR_"),
        named(SEND, "[IBV_WR_")
    );
}

/// The provider hands the number on, so the verbs' has to be the same.
#[test]
fn completions_are_those_of_the_operations() {
    let completions = constants("ferrule_wc_opcode", "FERRULE_WC_");
    for name in completions.keys() {
        let same = format!("(int)FERRULE_WC_{name} == IBV_WC_{name}");
        assert!(POLL.contains(&same), "poll.c does not compare {name}");
    }
    for (name, opcode) in constants("ferrule_wr_opcode", "FERRULE_WR_") {
        let expected = match &*name {
            "ATOMIC_CMP_AND_SWP" => "COMP_SWAP",
            "ATOMIC_FETCH_AND_ADD" => "FETCH_ADD",
            name => name
                .trim_end_matches("_WITH_IMM")
                .trim_end_matches("_WITH_INV"),
        };
        let (_, completion) = outcome(QpType::Rc, opcode, false);
        assert_eq!(Some(&completion), completions.get(expected), "{name}");
    }
}

const PROGRAMS_ALONE: [&str; 3] = ["BIND_MW", "FLUSH", "ATOMIC_WRITE"];

/// Windows are for programs alone, and registration for kernel users (`fast::WR_REGISTER`). Linux
/// has no structure of a kernel user's request that could name a flush or the bytes of an atomic
/// write.
#[test]
fn kernel_users_post_what_the_engine_takes() {
    let (posting, polling) = (driver("posting.rs"), driver("polling.rs"));
    let mut posted = named(&posting, "(wr_opcode::");
    posted.extend(PROGRAMS_ALONE.map(str::to_string));
    let all: BTreeSet<_> = constants("ferrule_wr_opcode", "FERRULE_WR_")
        .into_keys()
        .collect();
    assert_eq!(posted, all);

    // An opcode without an arm is a SEND.
    let mut polled = named(
        between(&polling, "match cqe.opcode {", "_ =>"),
        " wc_opcode::",
    );
    polled.extend(PROGRAMS_ALONE.map(str::to_string));
    polled.insert("SEND".to_string());
    let all: BTreeSet<_> = constants("ferrule_wc_opcode", "FERRULE_WC_")
        .into_keys()
        .collect();
    assert_eq!(polled, all);
    assert!(posting.contains("fast::WR_REGISTER") && polling.contains("fast::WC_REGISTER"));
    assert!(posting.contains("fast::WR_READ_WITH_INV"));
}
