// SPDX-License-Identifier: GPL-2.0

//! A client sends messages, as told by a string of bytes, and the same rules hold whatever these
//! are.
//!
//! `tests/random.rs` runs this with random bytes, and `fuzz/` lets a fuzzer look for bytes that
//! reach further. No socket is involved: [`Session`] takes bytes and files.

#[allow(dead_code)] // The target of sessions has no use for it.
pub mod frames;
mod write;

use std::os::fd::OwnedFd;

use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::interface::{opcode, qp_mask, qp_type, register, RESPONSE_OFFSET};
use ferrule_nic::mapping::{sealed, Mapping};
use ferrule_nic::protocol::MAX_RANGES;
use ferrule_nic::session::Session;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{memfd_create, MemfdFlags};

/// How long the guest's file is.
const FILE: u64 = 65536;

thread_local! {
    /// Good memory, memory that can be truncated, an eventfd, and something else.
    static FILES: [OwnedFd; 4] = {
        let open = memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, FILE).unwrap();
        [
            sealed("good", FILE).unwrap(),
            open,
            eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
            std::fs::File::open("/proc/self/exe").unwrap().into(),
        ]
    };
    /// The good memory, as the guest has it.
    static GOOD: Mapping = Mapping::new(file(0), 0, FILE, true).unwrap();
}

/// A file of a kind.
fn file(kind: u8) -> OwnedFd {
    FILES.with(|files| files[usize::from(kind % 4)].try_clone().unwrap())
}

/// The command by which a script writes to the good file, as the guest does: its body begins with
/// an offset of 4 bytes.
const STORE: u8 = 0xfe;

/// One message of the script: a byte that tells the command, one for flags and files, one for the
/// length of the body; then the body, whose 8-byte words are often made such that they mean
/// something.
fn message(script: &mut &[u8]) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut next = || {
        let (first, rest) = script.split_first()?;
        *script = rest;
        Some(*first)
    };
    let (command, how, length) = (next()?, next()?, next()?);
    let body: Vec<u8> = (0..length).map(|_| next().unwrap_or(0)).collect();
    if command == STORE {
        if let Some((offset, bytes)) = body.split_first_chunk() {
            let at = u32::from_ne_bytes(*offset).into();
            let _ = GOOD.with(|good| good.write(at, bytes));
        }
        return Some((Vec::new(), Vec::new()));
    }
    let mut bytes = vec![command, 0, u16::from(command % 24) as u8, 0];
    let size = 16 + body.len() as u32;
    bytes.extend(
        if how == 0xff {
            u32::from(length) << 16
        } else {
            size
        }
        .to_ne_bytes(),
    );
    bytes.extend((if how & 0x80 != 0 { 0x10u32 } else { 0 }).to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    let files = (0..how & 3)
        .map(|number| file((how >> 2).wrapping_add(number)))
        .collect();
    Some((bytes, files))
}

/// Runs a script; answers the status of the last command's response, where the seeds have that.
pub fn run(script: &[u8]) -> u32 {
    let device = Device::new(1).unwrap();
    let mut adapter = Adapter::new(&device, 0, "fuzz", [0; 6]).unwrap();
    assert!(GOOD.with(|good| good.write(0, &[0; FILE as usize])));
    session(&mut adapter, script);
    let status = u64::from(COMMANDS) + RESPONSE_OFFSET as u64 + 4;
    let status = GOOD.with(|good| good.load32(status)).unwrap();
    adapter.disconnect();
    assert_eq!(adapter.memory().count(), (0, 0));
    assert_eq!(device.objects(), Default::default());
    let mut bytes = [0; 8];
    adapter.read(0, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"FRUL\x04\0\0\0");
    adapter.read(7, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0xf4, 0x1a, 0xf1, 0x10, 0, 0, 0x10, 0]);
    status
}

fn session(adapter: &mut Adapter, mut script: &[u8]) {
    let mut session = Session::default();
    let hello = [&[0, 0, 1, 0, 20, 0, 0, 0][..], &[0; 8], &[0, 0, 1, 0]].concat();
    push(&mut session, adapter, &hello, Vec::new());
    while let Some((bytes, files)) = message(&mut script) {
        if !push(&mut session, adapter, &bytes, files) {
            return;
        }
        let (ranges, bytes) = adapter.memory().count();
        assert!(ranges <= MAX_RANGES && bytes <= MAX_RANGES as u64 * FILE);
    }
}

/// Hands bytes over as they are wanted; false once the connection is closed.
fn push(
    session: &mut Session,
    adapter: &mut Adapter,
    mut bytes: &[u8],
    mut files: Vec<OwnedFd>,
) -> bool {
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(session.wanted().min(bytes.len()));
        match session.push(adapter, head, std::mem::take(&mut files)) {
            Err(_) => return false,
            Ok(None) => (),
            Ok(Some(reply)) => {
                let word = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
                assert_eq!(word(4) as usize, reply.len());
                assert!(
                    word(8) == 1 && word(12) == 0
                        || word(8) == 0x21 && word(12) != 0 && reply.len() == 16
                );
            }
        }
        bytes = rest;
    }
    true
}

/// A script of one message.
fn line(command: u8, how: u8, body: &[u8]) -> Vec<u8> {
    [&[command, how, body.len() as u8][..], body].concat()
}

/// Scripts that reach each command, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let words = |values: &[u32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    };
    vec![
        // A range of good memory at 0x10000, and one without a file; the first is unmapped.
        line(2, 1, &words(&[32, 3, 0, 0, 0x10000, 0, 0x8000, 0])),
        line(2, 0, &words(&[32, 1, 0, 0, 0x20000, 0, 0x1000, 0])),
        line(2, 5, &words(&[32, 3, 0, 0, 0x30000, 0, 0x1000, 0])),
        line(3, 0, &words(&[24, 0, 0x10000, 0, 0x8000, 0])),
        line(3, 0, &words(&[24, 2, 0, 0, 0, 0])),
        line(4, 0, &words(&[16, 0, 0, 0])),
        line(5, 0, &words(&[32, 0, 2, 0, 0, 0, 0, 0])),
        line(7, 0, &words(&[16, 0, 2, 0])),
        line(8, 9, &words(&[20, 0x24, 2, 3, 1])),
        line(8, 0, &words(&[20, 0x21, 2, 0, 0])),
        line(9, 0, &words(&[0, 0, 7, 256])),
        // Bus master; the address, and the memory check; a vector; a reset by register and by
        // capability.
        line(10, 0, &words(&[4, 0, 7, 4, 6])),
        line(10, 0, &words(&[0x20, 0, 0, 8, 0x10000, 0])),
        line(10, 0, &words(&[0x30, 0, 0, 4, 1])),
        line(10, 0, &words(&[0x34, 0, 0, 4, 3])),
        line(10, 0, &words(&[0x10, 0, 0, 4, 1])),
        line(10, 0, &words(&[0x48, 0, 7, 4, 0x8000])),
        line(13, 0, &[]),
    ]
}

/// Where the seeds have the command area.
const COMMANDS: u32 = 0xf000;

/// A script that executes a command with these operands, after the memory check.
fn command(code: u16, operands: &[u8]) -> Vec<u8> {
    let tag = 7u32;
    let mut body = COMMANDS.to_ne_bytes().to_vec();
    body.extend(code.to_le_bytes());
    body.extend([1, 0]);
    body.extend((operands.len() as u32).to_le_bytes());
    body.extend(tag.to_le_bytes());
    body.extend([0; 4]);
    body.extend(operands);
    [line(STORE, 0, &body), poke(register::COMMAND, tag)].concat()
}

/// A script that writes a register.
fn poke(register: usize, value: u32) -> Vec<u8> {
    let body = [register as u32, 0, 0, 4, value].map(u32::to_ne_bytes);
    line(10, 0, &body.concat())
}

/// The first messages: memory at its own offsets, bus master, the memory check by the nonce 0, and
/// a page list of pages 1 to 14, without page 8.
fn begin() -> Vec<u8> {
    let words =
        |values: &[u32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_ne_bytes()).collect() };
    let list: Vec<u8> = [1u64, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14]
        .iter()
        .flat_map(|page| (page * 4096).to_le_bytes())
        .collect();
    [
        line(2, 1, &words(&[32, 3, 0, 0, 0, 0, FILE as u32, 0])),
        line(10, 0, &words(&[4, 0, 7, 4, 6])),
        poke(register::CHECK_ADDRESS, COMMANDS + RESPONSE_OFFSET as u32),
        poke(register::CHECK, 1),
        poke(register::COMMAND_ADDRESS, COMMANDS),
        line(STORE, 0, &[&LIST.to_ne_bytes()[..], &list].concat()),
    ]
    .concat()
}

/// Where the seeds have their page list.
const LIST: u32 = 0x8000;

/// Scripts of commands, each with objects that it needs made before. Numbers begin with 0, and keys
/// are random.
pub fn commands() -> Vec<Vec<u8>> {
    let words =
        |values: &[u32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let pages = |count: u32| [LIST, 0, count, 0];
    let with = |head: &[u32], lists: &[u32]| words(&[head, lists].concat());
    let none = u32::MAX;
    let area = [pages(3), pages(3)].concat();
    let context = command(opcode::OPEN_CONTEXT, &words(&area));
    let cq = command(
        opcode::CREATE_CQ,
        &with(&[64, 0], &[pages(1), pages(1)].concat()),
    );
    let eq = command(opcode::CREATE_EQ, &with(&[0, 16], &pages(1)));
    let pd = command(opcode::ALLOC_PD, &[]);
    let gid = command(opcode::SET_GID, &words(&[0, 1, 1, 2, 3, 4]));
    let sq = [0, 16, 64, 0];
    let rq = [1024, 16, 64, 0];
    let qp = |kind: u32, flags: u32| {
        let head = [0, 0, kind, flags, 0, 0, none, 16, 16, 1, 1, 0];
        let tail = [2048, 2176, LIST, 0, 1, 0, 0, 0, 0, 0];
        command(
            opcode::CREATE_QP,
            &words(&[&head[..], &sq, &rq, &tail].concat()),
        )
    };
    let base = [begin(), context, eq, cq, pd, gid].concat();
    let region = [0, 7, 0, 0, 4096, 0, 0, 2, LIST, 0, 1, 0];
    let vector = [1, 2, 3, 4, 0, 0x4000_0000, 0, 0x0100_0000];
    let srq = |code: u16, xrc: &[u32]| {
        let lists = [&sq[..], &[2048, 0], &pages(1), xrc].concat();
        command(code, &with(&[0, 1], &lists))
    };
    // The queues that a side of XRC has not are not there.
    let xrc_qp = |kind: u32| {
        let (pd, cq, depth, sge) = match kind {
            qp_type::XRC_INI => (0, 0, 16, 1),
            _ => (5, none, 0, 0),
        };
        let head = [0, pd, kind, 0, cq, none, none, depth, 0, sge, 0, 0];
        let rings = [0, depth, 64, 0, 1024, 0, 64, 0];
        let tail = [2048, none, LIST, 0, 1, 0, 0, 0, 0, 0];
        command(
            opcode::CREATE_QP,
            &words(&[&head[..], &rings, &tail].concat()),
        )
    };
    // From RESET to RTS, for a side that answers requests, or sends them, or both.
    let connect = |number: u32, [answers, sends]: [bool; 2], peer: u32| {
        let of = |does, bits| if does { bits } else { 0 };
        let to_rtr = qp_mask::AV | qp_mask::PATH_MTU | qp_mask::RQ_PSN | qp_mask::DEST_QPN;
        let answering = qp_mask::MIN_RNR_TIMER | qp_mask::MAX_DEST_RD_ATOMIC;
        let sending = qp_mask::RETRY_CNT | qp_mask::RNR_RETRY | qp_mask::MAX_QP_RD_ATOMIC;
        let masks = [
            qp_mask::ACCESS_FLAGS | qp_mask::PKEY_INDEX | qp_mask::PORT,
            to_rtr | of(answers, answering),
            qp_mask::TIMEOUT | qp_mask::SQ_PSN | of(sends, sending),
        ];
        let change = |(state, mask): (u32, &u32)| {
            let ends = [0, 16, 16, 1, peer, mask | qp_mask::STATE];
            let attributes = [state, 0, 0, 0xf, 0, 1, 0, 5, 14, 7, 7, 0];
            let head = [&[number, 0][..], &attributes, &ends].concat();
            command(opcode::MODIFY_QP, &with(&head, &vector))
        };
        (1..).zip(&masks).flat_map(change).collect::<Vec<u8>>()
    };
    let tails = [
        command(opcode::QUERY_DEVICE, &[]),
        command(opcode::QUERY_COUNTERS, &[]),
        command(opcode::SET_MTU, &words(&[5, 0])),
        command(opcode::REG_MR, &words(&region)),
        command(opcode::ALLOC_MW, &words(&[0, 2])),
        command(opcode::CREATE_AH, &with(&[0, 0], &vector)),
        srq(opcode::CREATE_SRQ, &[]),
        [
            srq(opcode::CREATE_SRQ, &[]),
            command(
                opcode::RESIZE_SRQ,
                &with(&[0, none], &[&sq[..], &[2048, 0], &pages(1)].concat()),
            ),
        ]
        .concat(),
        [
            srq(opcode::CREATE_SRQ, &[]),
            command(opcode::SET_SRQ_LIMIT, &words(&[0, 3])),
            command(opcode::QUERY_SRQ, &words(&[0, 0])),
            command(opcode::DESTROY_SRQ, &words(&[0, 0])),
        ]
        .concat(),
        // Of XRC domain 5: a shared receive queue, an initiator, and a target, which is connected.
        [
            srq(opcode::CREATE_XRC_SRQ, &[5, 0]),
            xrc_qp(qp_type::XRC_INI),
            xrc_qp(qp_type::XRC_TGT),
            connect(2, [false, true], 3),
            connect(3, [true, false], 2),
            poke(register::KICK, 0),
        ]
        .concat(),
        command(opcode::RESIZE_CQ, &with(&[0, 32], &pages(1))),
        command(opcode::MODERATE_CQ, &words(&[0, 0x0010_0010])),
        command(opcode::QUERY_CQ, &words(&[0, 0])),
        [qp(1, 0), command(opcode::QUERY_QP, &words(&[2, 0]))].concat(),
        [
            qp(1, 0),
            connect(2, [true, true], 2),
            poke(register::KICK, 0),
            command(opcode::DESTROY_QP, &words(&[2, 0])),
        ]
        .concat(),
        qp(3, 3),
        [
            qp(3, 2),
            command(opcode::ATTACH_MCAST, &words(&[1, 0, 0xff, 0, 0, 0])),
            command(opcode::DETACH_MCAST, &words(&[1, 0, 0xff, 0, 0, 0])),
        ]
        .concat(),
        [
            command(opcode::QUIESCE_CONTEXT, &words(&[0, 0])),
            poke(register::KICK, 0),
            command(opcode::CLOSE_CONTEXT, &words(&[0, 0])),
        ]
        .concat(),
        command(opcode::DEALLOC_PD, &words(&[0, 0])),
        command(opcode::DESTROY_CQ, &words(&[0, 0])),
        command(opcode::DESTROY_EQ, &words(&[0, 0])),
        line(3, 0, &[24u32, 2, 0, 0, 0, 0].map(u32::to_ne_bytes).concat()),
    ];
    tails
        .iter()
        .map(|tail| [&base[..], tail].concat())
        .collect()
}

/// Writes what the fuzzer begins with.
#[allow(dead_code)]
pub fn write_seeds() {
    write::write(seeds().iter().chain(&commands()));
}
