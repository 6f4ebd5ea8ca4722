// SPDX-License-Identifier: GPL-2.0

//! Clients that send what they should not. The server refuses, or closes their connection, and
//! serves the next one and the others as if nothing had been.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use ferrule_nic::mapping::sealed;
use ferrule_nic::protocol::{Broken, MAX_MESSAGE};
use ferrule_nic::socket::End;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{memfd_create, MemfdFlags};

use crate::client::*;

const INVAL: Option<u32> = Some(22);
const NOENT: Option<u32> = Some(2);
const NOTSUP: Option<u32> = Some(95);
const HELLO: &[u8] = b"\0\0\x01\0";

/// Sends bytes, and expects the server to close the connection.
fn closed(begin: bool, bytes: &[u8], files: &[OwnedFd]) -> Broken {
    let client = if begin {
        Client::new(adapter())
    } else {
        Client::silent(adapter())
    };
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    client.send(bytes, &files);
    assert!(client.receive().is_none());
    match client.leave().1 {
        Err(End::Broken(broken)) => broken,
        end => panic!("{end:?}"),
    }
}

#[test]
fn streams_that_make_no_sense() {
    for size in [0, 15, MAX_MESSAGE as u32 + 1, u32::MAX] {
        assert_eq!(
            closed(true, &message(0, GET_INFO, size, 0, &[]), &[]),
            Broken::Size(size)
        );
    }
    assert_eq!(
        closed(true, &message(0, GET_INFO, 16, 1, &[]), &[]),
        Broken::NoRequest(1)
    );
    let files: Vec<_> = (0..9).map(|_| sealed("test", 4096).unwrap()).collect();
    assert_eq!(closed(true, &request(GET_INFO, &[]), &files), Broken::Files);
    assert_eq!(
        closed(false, &request(GET_INFO, &words(&[16, 0, 0, 0])), &[]),
        Broken::Version
    );
    assert_eq!(closed(false, &request(VERSION, &[]), &[]), Broken::Version);
    assert_eq!(
        closed(false, &request(VERSION, b"\x01\0\0\0"), &[]),
        Broken::Version
    );
}

#[test]
fn files_a_few_at_a_time() {
    let mut client = Client::new(adapter());
    let file = sealed("test", 4096).unwrap();
    // Each byte of a message brings files: together they are too many.
    let bytes = request(GET_INFO, &words(&[16, 0, 0, 0]));
    for byte in &bytes[..4] {
        client.send(&[*byte], &[file.as_fd(), file.as_fd()]);
    }
    client.stream.write_all(&bytes[4..]).unwrap();
    let answer = client
        .receive()
        .expect("8 files are not too many for a message")
        .1;
    assert_eq!(answer.error, INVAL);
    for byte in &bytes[..5] {
        client.send(&[*byte], &[file.as_fd(), file.as_fd()]);
    }
    assert!(client.receive().is_none());
    let (_, end) = client.leave();
    assert!(matches!(end, Err(End::Broken(Broken::Files))), "{end:?}");
}

#[test]
fn bodies_that_make_no_sense() {
    let mut client = Client::new(adapter());
    for command in 0..20 {
        for length in [0, 1, 7, 15, 17, 23, 25, 31, 33, 100, 60000] {
            if (command, length) != (RESET, 0) {
                let error = client.call(command, &vec![0; length], &[]).error;
                assert!(
                    error == INVAL || error == NOTSUP,
                    "{command} {length} {error:?}"
                );
            }
        }
    }
    assert_eq!(
        client.call(VERSION, HELLO, &[]).error,
        INVAL,
        "a second time"
    );
    assert_eq!(
        client.call(GET_INFO, &words(&[15, 0, 0, 0]), &[]).error,
        INVAL
    );
    for index in [9, u32::MAX] {
        assert_eq!(
            client
                .call(GET_REGION_INFO, &words(&[32, 0, index, 0, 0, 0, 0, 0]), &[])
                .error,
            INVAL
        );
        assert_eq!(
            client
                .call(GET_IRQ_INFO, &words(&[16, 0, index, 0]), &[])
                .error,
            INVAL
        );
    }
    assert_eq!(client.read(0, 0, 4).unwrap(), b"FRUL");
}

#[test]
fn regions_have_ends() {
    let mut client = Client::new(adapter());
    for (region, size) in [(0, 4096u64), (4, 4096), (7, 4096)] {
        for at in [size - 3, size, u64::MAX - 3, u64::MAX, 1 << 32] {
            assert_eq!(client.read(region, at, 4), Err(22));
            assert_eq!(client.write(region, at, &[0xff; 4]), INVAL);
        }
        assert!(client.read(region, size, 0).is_ok());
    }
    for region in [1, 2, 3, 5, 6, 8, 9, u32::MAX] {
        assert_eq!(client.read(region, 0, 1), Err(22));
        assert_eq!(client.write(region, 0, &[1]), INVAL);
    }
    let over = region_body(0, 7, &[], 65537);
    assert_eq!(client.call(REGION_READ, &over, &[]).error, INVAL);
    let lies = region_body(0, 7, &[1, 2, 3], 4);
    assert_eq!(client.call(REGION_WRITE, &lies, &[]).error, INVAL);
}

#[test]
fn memory_that_is_refused() {
    let mut client = Client::new(adapter());
    let file = sealed("guest", 8192).unwrap();
    let open = memfd_create("guest", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&open, 8192).unwrap();
    assert_eq!(
        client.map(Some(&open), 0, 0, 4096, 3),
        INVAL,
        "it could be truncated"
    );
    assert_eq!(
        client.map(Some(&file), 4096, 0, 8192, 3),
        INVAL,
        "beyond the file"
    );
    assert_eq!(client.map(Some(&file), u64::MAX - 4095, 0, 4096, 3), INVAL);
    assert_eq!(client.map(Some(&file), 1, 0, 4096, 3), INVAL);
    assert_eq!(
        client.map(Some(&file), 0, u64::MAX - 4094, 4096, 3),
        INVAL,
        "it wraps"
    );
    assert_eq!(client.map(Some(&file), 0, 0, 0, 3), INVAL);
    assert_eq!(client.map(Some(&file), 0, 0, 4096, 2), NOTSUP, "write-only");
    assert_eq!(client.map(Some(&file), 0, 0, 4096, 7), NOTSUP);
    assert_eq!(client.map(Some(&file), 0, 0, 4096, 3), None);
    assert_eq!(
        client.map(Some(&file), 0, 4095, 4096, 3),
        INVAL,
        "it overlaps"
    );
    assert_eq!(
        client
            .call(
                DMA_MAP,
                &map_body(3, 0, 8192, 4096),
                &[file.as_fd(), file.as_fd()]
            )
            .error,
        INVAL
    );
    for (address, size) in [(0, 8192), (0, 2048), (2048, 2048), (4096, 4096), (0, 0)] {
        assert_eq!(
            client
                .call(DMA_UNMAP, &unmap_body(0, address, size), &[])
                .error,
            NOENT
        );
    }
    assert_eq!(
        client.call(DMA_UNMAP, &unmap_body(2, 0, 4096), &[]).error,
        INVAL
    );
    assert_eq!(
        client.call(DMA_UNMAP, &unmap_body(1, 0, 4096), &[]).error,
        NOTSUP
    );
    assert_eq!(
        client
            .call(DMA_UNMAP, &unmap_body(0, 0, 4096), &[file.as_fd()])
            .error,
        INVAL
    );
    assert_eq!(
        client.call(DMA_UNMAP, &unmap_body(2, 0, 0), &[]).error,
        None
    );
    assert_eq!(client.map(Some(&file), 0, 0, 8192, 1), None);
}

#[test]
fn vectors_that_are_refused() {
    let mut client = Client::new(adapter());
    let good = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let good = good.as_fd();
    let memory = sealed("no eventfd", 4096).unwrap();
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 32, 1]), &[good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, u32::MAX, 1]), &[good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 0, 2]), &[good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 0, 1]), &[good, good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 2, 0, 1]), &[memory.as_fd()])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x24, 0, 0, 1]), &[good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x21, 2, 0, 1]), &[good])
            .error,
        INVAL
    );
    assert_eq!(
        client
            .call(SET_IRQS, &words(&[20, 0x21, 2, 0, u32::MAX]), &[])
            .error,
        INVAL
    );
    for flags in [0, 1, 0x20, 0x22, 0x0c, 0x27, u32::MAX] {
        assert_eq!(
            client
                .call(SET_IRQS, &words(&[20, flags, 2, 0, 1]), &[])
                .error,
            NOTSUP
        );
    }
}

/// How many descriptors this process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many mappings this process has of files of this name.
fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(name)).count()
}

#[test]
fn a_thousand_reconnections() {
    let mut adapter = adapter();
    let file = sealed("reconnecting", 1 << 20).unwrap();
    let raised = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    for round in 0..1000usize {
        let mut client = Client::new(adapter);
        assert_eq!(client.map(Some(&file), 0, 0, 1 << 20, 3), None);
        assert_eq!(
            client
                .call(SET_IRQS, &words(&[20, 0x24, 2, 0, 1]), &[raised.as_fd()])
                .error,
            None
        );
        // It leaves with a part of a message on its way, or with replies that it has not read.
        let bytes = request(REGION_WRITE, &region_body(0, 4, &[1; 4000], 4000));
        client.send(&bytes[..round * 4 % bytes.len()], &[]);
        if round % 4 == 1 {
            let _ = client.stream.shutdown(Shutdown::Read);
        }
        adapter = client.leave().0;
        assert_eq!(adapter.memory().count(), (0, 0));
    }
    assert_eq!(mappings("reconnecting"), 0);
    // Other tests run beside this one.
    assert!(descriptors() < 500, "{}", descriptors());
}

#[test]
fn a_neighbour_is_served_meanwhile() {
    let over = Arc::new(AtomicBool::new(false));
    let hostile = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut adapter = adapter();
            let file = sealed("hostile", 65536).unwrap();
            let mut rounds = 0u64;
            while !over.load(Ordering::Relaxed) || rounds < 50 {
                let mut client = Client::new(adapter);
                for page in 0..16 {
                    client.map(Some(&file), page * 4096, page * 4096, 4096, 3);
                    client.write(0, 0x20, &(page * 8192).to_le_bytes());
                    client.write(7, 4, &[6, 0]);
                    client.write(0, 0x30, &[1; 4]);
                }
                // It does not read its replies, and ends in the middle of a message.
                let flood = request(REGION_READ, &region_body(0, 4, &[], 4096)).repeat(16);
                client.send(&flood, &[]);
                client.send(&message(1, 99, 60000, 0, &[0; 100]), &[]);
                adapter = client.leave().0;
                rounds += 1;
            }
        }
    });
    let mut client = Client::new(adapter());
    let file = sealed("neighbour", 65536).unwrap();
    let memory = ferrule_nic::mapping::Mapping::new(&file, 0, 65536, true).unwrap();
    assert_eq!(client.map(Some(&file), 0, 0, 65536, 3), None);
    assert_eq!(client.write(7, 4, &[6, 0]), None);
    for round in 1..2000u64 {
        let at = round % 4096 * 16;
        assert!(memory.store(at, round));
        assert_eq!(client.write(0, 0x20, &at.to_le_bytes()), None);
        assert_eq!(client.write(0, 0x28, &round.to_le_bytes()), None);
        assert_eq!(client.write(0, 0x30, &[1; 4]), None);
        assert_eq!(client.read32(0, 0x30), 1);
        assert_eq!(memory.load(at + 8), Some(!round));
    }
    over.store(true, Ordering::Relaxed);
    hostile.join().unwrap();
}
