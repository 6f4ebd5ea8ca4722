// SPDX-License-Identifier: GPL-2.0

//! Captures: each frame once, by the port at which it comes; and local traffic, where it is asked
//! for.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use ferrule_engine::abi::wr_opcode;
use ferrule_nic::capture::pcapng::Interface;
use ferrule_nic::captures::Captures;
use ferrule_nic::frame::Frame;
use ferrule_nic::interface::qp_type;
use ferrule_nic::roce::received::parse;
use rustix::fs::{mknodat, FileType, Mode, OFlags, CWD};

use super::{acquaint, frame, gid, mac, process, At, Peer, Process, Sockets};
use crate::data::{pair, pattern, program, Program};
use crate::datagrams::{datagram_qp, handle, QKEY};
use crate::driver::queues::*;
use crate::driver::*;

/// The operation codes of IBA volume 1, 9.2, that the transfers below have.
const SEND: [u8; 3] = [0x00, 0x01, 0x02];
const WRITE: [u8; 3] = [0x06, 0x07, 0x08];
const ACKNOWLEDGE: u8 = 0x11;
const READ: [u8; 4] = [0x0c, 0x0d, 0x0e, 0x0f];
const UD_SEND: u8 = 0x64;

fn captures(process: &Process) -> Captures {
    let names = ["a", "b", "link"].map(|name| Interface {
        name: name.to_owned(),
        mac: None,
    });
    Captures::new(&process.wire, names.to_vec())
}

/// A frame, with its interface.
type Recorded = (u32, Vec<u8>);

/// The frames of a file, and of each interface the numbers of those that came and that were lost.
fn contents(path: &Path) -> (Vec<Recorded>, Vec<(u64, u64)>) {
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[..];
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut frames, mut statistics) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (block, next) = rest.split_at(word(rest, 4) as usize);
        rest = next;
        match word(block, 0) {
            6 => {
                let length = word(block, 20) as usize;
                frames.push((word(block, 8), block[28..28 + length].to_vec()));
            }
            5 => statistics.push((long(block, 24), long(block, 36))),
            _ => (),
        }
    }
    (frames, statistics)
}

/// Operation code and number of the packet in each frame of an interface, all of which have to be
/// good.
fn packets(frames: &[Recorded], interface: u32) -> Vec<(u8, u32)> {
    let of = frames.iter().filter(|(from, _)| *from == interface);
    let packet = of.map(|(_, frame)| {
        let (_, judged) = parse(frame).expect("no packet of RoCEv2");
        judged.unwrap();
        let udp = if frame[12..14] == [0x86, 0xdd] {
            54
        } else {
            34
        };
        let bth = &frame[udp + 8..];
        let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
        (bth[0], psn)
    });
    packet.collect()
}

/// Each packet once: on a machine that is busy, one may be sent again before its answer has come.
fn first(packets: &[(u8, u32)]) -> Vec<(u8, u32)> {
    let mut numbers = BTreeSet::new();
    let mut packets = packets.to_vec();
    packets.retain(|(_, psn)| numbers.insert(*psn));
    packets
}

/// A queue pair of each of two guests of a process, connected.
fn connected(process: &mut Process) -> [(&mut Guest, Program, Qp); 2] {
    let mut sides: Vec<_> = process
        .guests
        .iter_mut()
        .map(|guest| {
            let p = program(guest);
            let qp = guest.qp(qp_type::RC, &p.context, p.pd, &p.cq);
            (guest, p, qp)
        })
        .collect();
    let numbers: Vec<_> = sides.iter().map(|(.., qp)| qp.number).collect();
    let gids: Vec<_> = sides.iter().map(|(guest, ..)| guest.gid).collect();
    for (side, other) in [(0, 1), (1, 0)] {
        let (guest, _, qp) = &mut sides[side];
        guest.connect(qp, numbers[other], gids[other]).unwrap();
    }
    sides.try_into().ok().unwrap()
}

fn two_guests() -> Process {
    process(&[At::Guest(1, None), At::Guest(2, None)])
}

#[test]
fn local_messages_are_packets() {
    let sockets = Sockets::new();
    let path = sockets.path("capture");
    let mut process = two_guests();
    let captures = captures(&process);
    captures.start(&path, true).unwrap();
    let [(one, mut p, mut a), (_, q, mut b)] = connected(&mut process);
    let bytes = pattern(10_000, 3);
    p.area.write(7, &bytes);
    b.receive(1, 50_000, 20_000, q.key);
    let requests = [
        Wqe::new(2, wr_opcode::SEND).local(7, 10_000, p.key),
        Wqe::new(3, wr_opcode::RDMA_WRITE)
            .local(7, 10_000, p.key)
            .remote(100_000, q.key),
        Wqe::new(4, wr_opcode::RDMA_READ)
            .local(200_000, 10_000, p.key)
            .remote(100_000, q.key),
    ];
    for wqe in requests {
        one.send(&mut a, &wqe);
        assert_eq!(p.cq.done().wr_id.get(), wqe.id);
    }
    assert_eq!(q.area.read(50_000, 10_000), bytes);
    assert_eq!(p.area.read(200_000, 10_000), bytes);
    assert_eq!(captures.stop().as_deref(), Some(&*path));
    let (frames, statistics) = contents(&path);
    // Three packets each at a path MTU of 4096 bytes; whoever sends them has the next numbers.
    let (all_near, all_far) = (packets(&frames, 0), packets(&frames, 1));
    let near = first(&all_near);
    let expected: Vec<u8> = [&SEND[..], &WRITE, &READ[..1]].concat();
    let opcodes: Vec<_> = near.iter().map(|(opcode, _)| *opcode).collect();
    assert_eq!(opcodes, expected);
    let numbers: Vec<_> = near.iter().map(|(_, psn)| psn - near[0].1).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
    for (opcode, _) in &all_far {
        assert!(
            *opcode == ACKNOWLEDGE || READ[1..].contains(opcode),
            "{opcode:#x}"
        );
    }
    let read: Vec<_> = all_far
        .iter()
        .filter(|(opcode, _)| *opcode != ACKNOWLEDGE)
        .copied()
        .collect();
    assert_eq!(first(&read).len(), 3);
    let counts = [
        (all_near.len() as u64, 0),
        (all_far.len() as u64, 0),
        (0, 0),
    ];
    assert_eq!(statistics, counts);
}

#[test]
fn a_guest_with_itself() {
    let sockets = Sockets::new();
    let path = sockets.path("capture");
    let mut process = two_guests();
    let captures = captures(&process);
    captures.start(&path, true).unwrap();
    let guest = &mut process.guests[0];
    let mut p = program(guest);
    let (mut a, mut b) = pair(guest, &p);
    p.area.write(0, &pattern(100, 1));
    b.receive(1, 4096, 100, p.key);
    guest.send(&mut a, &Wqe::new(2, wr_opcode::SEND).local(0, 100, p.key));
    p.cq.all(2);
    assert_eq!(p.area.read(4096, 100), pattern(100, 1));
    // A datagram as well, which tells of no Ethernet address.
    let mut qp = datagram_qp(guest, &p);
    let to = handle(guest, p.pd, vector(guest.gid)).unwrap();
    qp.receive(3, 8192, 200, p.key);
    let number = qp.number;
    let send = Wqe::new(4, wr_opcode::SEND).local(0, 100, p.key);
    guest.send(&mut qp, &send.to(to, number, QKEY));
    p.cq.all(2);
    drop(captures);
    let opcodes: Vec<_> = packets(&contents(&path).0, 0)
        .iter()
        .map(|(opcode, _)| *opcode)
        .collect();
    assert_eq!(opcodes, [0x04, ACKNOWLEDGE, UD_SEND]);
}

#[test]
fn local_traffic_is_left_alone_unless_asked_for() {
    let sockets = Sockets::new();
    let path = sockets.path("capture");
    let mut process = two_guests();
    let captures = captures(&process);
    for wire_only in [true, false] {
        captures.start(&path, wire_only).unwrap();
        // The file of one that runs stays as it is.
        let again = captures.start(&path, wire_only).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::ResourceBusy);
        if !wire_only {
            let [(one, mut p, mut a), (_, q, _)] = connected(&mut process);
            let write = Wqe::new(1, wr_opcode::RDMA_WRITE).local(0, 100, p.key);
            one.send(&mut a, &write.remote(0, q.key));
            p.cq.done();
        }
        assert!(captures.stop().is_some() && captures.stop().is_none());
        assert_eq!(contents(&path).0, []);
    }
}

#[test]
fn frames_between_devices() {
    let sockets = Sockets::new();
    let [a, b] = ["a", "b"].map(|name| sockets.address(name));
    let process = process(&[At::Guest(1, Some(a)), At::Guest(2, Some(b))]);
    let [mut a, mut b] = ["a", "b"].map(|name| Peer::new(&sockets.path(name)));
    acquaint(&mut a, 1, &mut b);
    let path = sockets.path("capture");
    let captures = captures(&process);
    captures.start(&path, false).unwrap();
    let there = frame(mac(2), mac(1), b"there");
    let back = frame(mac(1), mac(2), &[7; 60_000]);
    assert!(a.send(&there));
    assert_eq!(b.receive().unwrap(), there);
    assert!(b.send(&back));
    assert_eq!(a.receive().unwrap(), back);
    captures.stop();
    assert!(a.send(&there));
    assert_eq!(b.receive().unwrap(), there);
    assert_eq!(
        contents(&path),
        (vec![(0, there), (1, back)], vec![(1, 0), (1, 0), (0, 0)])
    );
}

#[test]
fn many_packets_get_through() {
    let sockets = Sockets::new();
    let path = sockets.path("capture");
    let mut process = two_guests();
    let captures = captures(&process);
    captures.start(&path, true).unwrap();
    let [(one, mut p, mut a), (_, q, _)] = connected(&mut process);
    p.area.write(0, &pattern(400_000, 9));
    for number in 0..40 {
        let write = Wqe::new(number, wr_opcode::RDMA_WRITE).local(0, 400_000, p.key);
        a.post(&write.remote(500_000, q.key));
    }
    one.ring(&a);
    p.cq.all(40);
    assert_eq!(q.area.read(500_000, 400_000), pattern(400_000, 9));
    captures.stop();
    let (frames, statistics) = contents(&path);
    let recorded: u64 = statistics
        .iter()
        .map(|(received, dropped)| received - dropped)
        .sum();
    assert_eq!(frames.len() as u64, recorded);
    assert!(statistics[0].0 >= 40 * 98);
    // Its own addresses, for a person who looks at the file.
    assert_eq!(frames[0].1[..12], [mac(2), mac(1)].concat());
    assert_eq!(frames[0].1[22..54], [gid(1), gid(2)].concat());
}

#[test]
fn files_that_cannot_be_written() {
    let sockets = Sockets::new();
    let process = two_guests();
    let captures = captures(&process);
    for (path, kind) in [
        (sockets.path("no/such"), ErrorKind::NotFound),
        (sockets.path("."), ErrorKind::IsADirectory),
        ("/dev/full".into(), ErrorKind::StorageFull),
    ] {
        assert_eq!(captures.start(&path, false).unwrap_err().kind(), kind);
        assert_eq!(captures.stop(), None);
    }
}

/// Makes a pipe. The end that is returned reads and writes, and never waits.
fn pipe(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut options = OpenOptions::new();
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    options.read(true).write(true).custom_flags(nonblock);
    options.open(path).unwrap()
}

#[test]
fn a_full_pipe_is_refused() {
    let sockets = Sockets::new();
    let path = sockets.path("pipe");
    let mut end = pipe(&path);
    while end.write(&[0; 4096]).is_ok() {}
    let captures = captures(&two_guests());
    let (done, begun) = channel();
    std::thread::spawn(move || {
        let refused = captures.start(&path, false).map_err(|error| error.kind());
        done.send((refused, captures.stop())).unwrap();
    });
    let begun = begun.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(begun, (Err(ErrorKind::WouldBlock), None));
}

#[test]
fn packets_are_sent_as_long_as_the_capture_runs() {
    let sockets = Sockets::new();
    let path = sockets.path("pipe");
    let end = pipe(&path);
    let process = two_guests();
    let captures = captures(&process);
    captures.start(&path, true).unwrap();
    assert!(process.wire.is_wire_only());
    // Nobody reads any more, and the next frame tells.
    drop(end);
    let frame = Frame::new(frame(mac(2), mac(1), &[])).unwrap();
    process.wire.send(0, &frame);
    eventually("the capture's end", || {
        (!process.wire.is_wire_only()).then_some(())
    });
    assert_eq!(captures.stop().as_deref(), Some(&*path));
}
