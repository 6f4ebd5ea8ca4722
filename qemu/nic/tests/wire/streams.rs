// SPDX-License-Identifier: GPL-2.0

//! Frames between guests' network devices, and hostile peers.

use ferrule_nic::frame::MOST;
use ferrule_nic::switch::address::Address;

use super::{acquaint, frame, mac, process, At, Peer, Process, Sockets};
use crate::driver::eventually;

const BROADCAST: [u8; 6] = [0xff; 6];

/// A process with network devices of two guests at a switch.
fn two_devices(sockets: &Sockets) -> (Process, Peer, Peer) {
    let [a, b] = ["a", "b"].map(|name| sockets.address(name));
    let process = process(&[At::Guest(1, Some(a)), At::Guest(2, Some(b))]);
    let [mut a, mut b] = ["a", "b"].map(|name| Peer::new(&sockets.path(name)));
    acquaint(&mut a, 1, &mut b);
    (process, a, b)
}

#[test]
fn frames_pass_unchanged() {
    let sockets = Sockets::new();
    let (_process, mut a, mut b) = two_devices(&sockets);
    for length in [0, 1, 46, 1500, 9000, MOST - 14] {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
        let sent = frame(mac(2), mac(1), &bytes);
        assert!(a.send(&sent));
        assert_eq!(b.receive().unwrap(), sent);
    }
    // Too short ones, and those from an address that is another guest's, do not; the connection
    // stays.
    assert!(a.send(&[]) && a.send(&[1; 13]) && a.send(&frame(mac(1), mac(2), &[])));
    let tagged = [&mac(2)[..], &mac(1), &[0x81, 0, 0, 5, 8, 0], &[9; 50]].concat();
    assert!(a.send(&tagged));
    assert_eq!(b.receive().unwrap(), tagged);
    assert!(b.send(&frame(BROADCAST, mac(2), b"back")));
    assert_eq!(a.receive().unwrap(), frame(BROADCAST, mac(2), b"back"));
}

#[test]
fn a_bad_length_closes_its_connection_alone() {
    let sockets = Sockets::new();
    let (_process, mut a, mut b) = two_devices(&sockets);
    use std::io::Write;
    a.0.write_all(&(MOST as u32 + 1).to_be_bytes()).unwrap();
    assert_eq!(a.receive(), None);
    // Another one may come.
    let mut a = Peer::new(&sockets.path("a"));
    acquaint(&mut a, 1, &mut b);
    // One that leaves in the middle of a frame leaves nothing behind.
    a.0.write_all(&[0, 0, 1, 0, 7, 7]).unwrap();
    drop(a);
    let mut a = Peer::new(&sockets.path("a"));
    acquaint(&mut a, 1, &mut b);
}

#[test]
fn a_peer_that_does_not_read_blocks_nobody() {
    let sockets = Sockets::new();
    let names = ["a", "b", "c"];
    let ports: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, name)| At::Guest(i as u8 + 1, Some(sockets.address(name))))
        .collect();
    let process = process(&ports);
    let [mut a, mut b, mut c] = names.map(|name| Peer::new(&sockets.path(name)));
    acquaint(&mut a, 1, &mut b);
    acquaint(&mut a, 1, &mut c);
    drop(std::mem::replace(&mut c, Peer::new(&sockets.path("b"))));
    // "c" has gone, and a second one waits at "b". The first of "b" reads nothing; "a" floods it.
    let mut c = Peer::new(&sockets.path("c"));
    acquaint(&mut a, 1, &mut c);
    let big = frame(mac(2), mac(1), &vec![1; 60_000]);
    for _ in 0..200 {
        assert!(a.send(&big));
    }
    let small = frame(mac(3), mac(1), b"still here");
    assert!(a.send(&small));
    assert_eq!(c.receive().unwrap(), small);
    let dropped = eventually("drops", || {
        assert!(a.send(&big));
        let dropped = process.wire.dropped_to(1);
        (dropped > 10).then_some(dropped)
    });
    // When it reads again, it gets what comes now.
    assert!(dropped < 100_000);
    let mut got = 0;
    let last = frame(mac(2), mac(1), b"last");
    eventually("a frame", || (b.receive().unwrap() == big).then_some(()));
    eventually("the last frame", || {
        got += 1;
        assert!(a.send(&last));
        (b.receive().unwrap() == last).then_some(())
    });
}

#[test]
fn links_come_back() {
    let sockets = Sockets::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = Address::Tcp(free.local_addr().unwrap());
    drop(free);
    for link in [sockets.address("link"), tcp] {
        let one = |name: &str| {
            process(&[
                At::Guest(1, Some(sockets.address(name))),
                At::Listen(link.clone()),
            ])
        };
        // The one that connects is there first.
        let other = At::Guest(3, Some(sockets.address("far")));
        let _two = process(&[other, At::Connect(link.clone())]);
        let mut far = Peer::new(&sockets.path("far"));
        for name in ["first", "second"] {
            let process = one(name);
            let mut near = Peer::new(&sockets.path(name));
            acquaint(&mut near, 1, &mut far);
            acquaint(&mut far, 3, &mut near);
            drop(process);
        }
        std::fs::remove_file(sockets.path("far")).unwrap();
    }
}
