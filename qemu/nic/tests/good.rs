// SPDX-License-Identifier: GPL-2.0

//! The server as a client finds it that asks as QEMU does.

use std::os::fd::AsFd;

use ferrule_nic::interface::register;
use ferrule_nic::mapping::{sealed, Mapping};
use rustix::event::{eventfd, EventfdFlags};

use crate::client::*;
use crate::running::{guest, Running};
use crate::wire::Sockets;

const PAGE: u64 = 4096;
const COMMAND: u64 = 4;
const DEVICE_CONTROL: u64 = 0x48;

fn client() -> Client {
    Client::new(adapter())
}

#[test]
fn regions_and_interrupts_have_their_sizes() {
    let mut client = client();
    let info = client.call(GET_INFO, &words(&[16, 0, 0, 0]), &[]);
    assert_eq!((info.word(1), info.word(2), info.word(3)), (3, 9, 5));
    let mut sizes = Vec::new();
    for index in 0..9 {
        let info = client.call(GET_REGION_INFO, &words(&[32, 0, index, 0, 0, 0, 0, 0]), &[]);
        assert_eq!((info.word(0), info.word(2), info.word(3)), (32, index, 0));
        assert_eq!(info.word(1) & 4, 0, "none is mapped");
        sizes.push(info.word(4));
    }
    assert_eq!(sizes, [4096, 0, 0, 0, 4096, 0, 0, 4096, 0]);
    for index in 0..5 {
        let info = client.call(GET_IRQ_INFO, &words(&[16, 0, index, 0]), &[]);
        assert_eq!(info.word(3), if index == 2 { 32 } else { 0 });
    }
    assert_eq!(client.read32(7, 0), 0x10f1_1af4);
    assert_eq!(client.read(7, 0, 4096).unwrap().len(), 4096);
    assert_eq!(client.read(0, 0, 4).unwrap(), b"FRUL");
    assert!(client.leave().1.is_ok());
}

fn check(client: &mut Client, address: u64, nonce: u64) -> u32 {
    assert_eq!(
        client.write(0, register::CHECK_ADDRESS as u64, &address.to_le_bytes()),
        None
    );
    assert_eq!(
        client.write(0, register::CHECK_NONCE as u64, &nonce.to_le_bytes()),
        None
    );
    assert_eq!(client.write(0, register::CHECK as u64, &[1, 0, 0, 0]), None);
    client.read32(0, register::CHECK as u64)
}

#[test]
fn memory_check() {
    let mut client = client();
    let file = sealed("guest", 4 * PAGE).unwrap();
    let guest = Mapping::new(&file, 0, 4 * PAGE, true).unwrap();
    // Two pages of the file from its second on, then one that is read-only, and one without a file.
    assert_eq!(client.map(Some(&file), PAGE, 0x10000, 2 * PAGE, 3), None);
    assert_eq!(client.map(Some(&file), 0, 0x20000, PAGE, 1), None);
    assert_eq!(client.map(None, 0, 0x30000, PAGE, 3), None);
    let nonce = 0x1122_3344_5566_7788;
    assert!(guest.store(PAGE + 64, nonce));
    assert!(guest.store(0, nonce));
    assert_eq!(check(&mut client, 0x10040, nonce), 4, "no bus master");
    assert_eq!(client.write(7, COMMAND, &[6, 0]), None);
    assert_eq!(check(&mut client, 0x10040, nonce), 1);
    assert_eq!(guest.load(PAGE + 72), Some(!nonce));
    assert_eq!(client.read32(0, register::STATUS as u64), 3);
    // Memory that is not shared looks like this: the driver's word is not there.
    assert_eq!(check(&mut client, 0x10080, nonce), 2);
    assert_eq!(guest.load(PAGE + 136), Some(0));
    assert_eq!(client.read32(0, register::STATUS as u64), 1);
    for address in [0x20000, 0x30000, 0x40000, 0x11ff8, 0xfff8, u64::MAX - 7] {
        assert_eq!(check(&mut client, address, nonce), 3, "{address:#x}");
    }
    assert_eq!(guest.load(8), Some(0), "read-only memory stays as it is");
    assert_eq!(
        client
            .call(DMA_UNMAP, &unmap_body(0, 0x10000, 2 * PAGE), &[])
            .error,
        None
    );
    assert_eq!(check(&mut client, 0x10040, nonce), 3);
}

#[test]
fn vectors() {
    let mut client = client();
    let files: Vec<_> = (0..8)
        .map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap())
        .collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    // As QEMU begins: a vector without a file, then files.
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 0, 1]), &[])
            .error,
        None
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 24, 8]), &borrowed)
            .error,
        None
    );
    assert_eq!(
        client.write(0, register::RAISE as u64, &[31, 0, 0, 0]),
        None
    );
    assert_eq!(
        client.write(0, register::RAISE as u64, &[23, 0, 0, 0]),
        None
    );
    assert_eq!(client.write(0, register::RAISE as u64, &[0xff; 4]), None);
    let raised = |at: usize| rustix::io::read(&files[at], &mut [0; 8]).is_ok();
    assert!(raised(7) && (0..7).all(|at| !raised(at)));
    // They are the client's, so a reset leaves them.
    assert_eq!(client.call(RESET, &[], &[]).error, None);
    assert_eq!(
        client.write(0, register::RAISE as u64, &[24, 0, 0, 0]),
        None
    );
    assert!(raised(0));
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x21, 2, 0, 0]), &[])
            .error,
        None
    );
    assert_eq!(
        client.write(0, register::RAISE as u64, &[24, 0, 0, 0]),
        None
    );
    assert!(!raised(0));
}

#[test]
fn function_level_reset() {
    let mut client = client();
    let file = sealed("guest", PAGE).unwrap();
    assert_eq!(client.map(Some(&file), 0, 0, PAGE, 3), None);
    assert_eq!(client.write(7, COMMAND, &[6, 5]), None);
    assert_eq!(client.write(7, 0x82, &[0, 0x80]), None);
    assert_eq!(
        client.write(0, register::CHECK_ADDRESS as u64, &[1; 8]),
        None
    );
    assert_eq!(client.read32(7, 0x80) >> 31, 1);
    assert_eq!(client.write(7, DEVICE_CONTROL, &[0x10, 0xa8]), None);
    assert_eq!(client.read32(7, COMMAND) & 0xffff, 0);
    assert_eq!(client.read32(7, 0x80) >> 31, 0);
    assert_eq!(client.read32(0, register::CHECK_ADDRESS as u64), 0);
    let (adapter, _) = client.leave();
    assert_eq!(
        adapter.memory().count(),
        (0, 0),
        "the client's memory went with it"
    );
}

#[test]
fn reset_by_its_register_leaves_the_configuration_space() {
    let mut client = client();
    assert_eq!(client.write(7, COMMAND, &[6, 0]), None);
    assert_eq!(client.write(0, register::CHECK_NONCE as u64, &[1; 8]), None);
    assert_eq!(client.write(0, register::RESET as u64, &[1, 0, 0, 0]), None);
    assert_eq!(client.read32(7, COMMAND) & 0xffff, 6);
    assert_eq!(client.read32(0, register::CHECK_NONCE as u64), 0);
}

#[test]
fn versions() {
    // The client's minor version, and the server's answer; QEMU says 0.0.
    for (minor, answered) in [(0, 0), (1, 1), (2, 1), (255, 1)] {
        let mut client = Client::silent(adapter());
        let answer = client.call(VERSION, &[0, 0, minor, 0], &[]);
        assert_eq!(answer.body[..4], [0, 0, answered, 0]);
    }
}

#[test]
fn requests_without_a_reply() {
    let mut client = client();
    client.send(
        &message(3, REGION_READ, 32, 0x10, &region_body(0, 0, &[], 4)),
        &[],
    );
    client.send(&message(4, 99, 16, 0x10, &[]), &[]);
    // The next reply is that of the next request.
    assert_eq!(client.read(0, 0, 4).unwrap(), b"FRUL");
}

/// A client need not wait for a reply before it sends the next request.
#[test]
fn files_come_with_their_message() {
    let sockets = Sockets::new();
    let path = sockets.path("guest");
    let running = Running::new(&[guest(&path)], sockets.path("log"));
    running.tells("waits for a client");
    let mut client = Client::at(&path);
    let file = sealed("guest", 2 * PAGE).unwrap();
    assert_eq!(client.map(Some(&file), 0, 0, PAGE, 3), None);
    running.stop();
    client.send(&request(DMA_UNMAP, &unmap_body(0, 0, PAGE)), &[]);
    client.send(
        &request(DMA_MAP, &map_body(3, PAGE, 0, PAGE)),
        &[file.as_fd()],
    );
    client.send(&request(RESET, &[]), &[]);
    running.go_on();
    for _ in 0..3 {
        assert_eq!(client.receive().unwrap().1.error, None);
    }
}

#[test]
fn both_registers_of_an_access_are_written() {
    let mut client = client();
    let file = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let body = words(&[20, 0x24, 2, 3, 1]);
    assert_eq!(client.call(SET_IRQS, &body, &[file.as_fd()]).error, None);
    // The memory check, and behind it the vector to raise.
    let at = register::CHECK as u64;
    assert_eq!(client.write(0, at, &[1, 0, 0, 0, 3, 0, 0, 0]), None);
    assert_ne!(client.read32(0, at), ferrule_nic::interface::check::NEVER);
    assert!(rustix::io::read(&file, &mut [0; 8]).is_ok());
}
