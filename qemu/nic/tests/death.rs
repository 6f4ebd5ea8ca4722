// SPDX-License-Identifier: GPL-2.0

//! The program dies, or closes a connection: its client gets a reply to each request, and then the
//! end, which is no reset of the connection.

use std::io::Read;

use rustix::io::Errno;

use crate::client::{message, region_body, request, Client, CALL, REGION_READ, REGION_WRITE};
use crate::running::{guest, Running};
use crate::wire::Sockets;

fn running(sockets: &Sockets) -> (Running, Client) {
    let path = sockets.path("guest");
    let running = Running::new(&[guest(&path)], sockets.path("log"));
    running.tells("waits for a client");
    (running, Client::at(&path))
}

fn ends(client: &Client) {
    assert_eq!((&client.stream).read(&mut [0; 16]).unwrap(), 0);
}

/// The last request has its answer. A request is answered just before it is taken out of the
/// socket, so it may be refused on top of that.
fn ends_after_an_answer(client: &Client) {
    let mut rest = Vec::new();
    (&client.stream).read_to_end(&mut rest).unwrap();
    assert!([0, 16].contains(&rest.len()), "{rest:?}");
}

#[test]
fn requests_wait_when_it_is_killed() {
    let sockets = Sockets::new();
    let (running, client) = running(&sockets);
    running.stop();
    let write = region_body(0, 0, &[0; 4], 4);
    client.send(
        &message(1, REGION_READ, 32, 0, &region_body(0, 0, &[], 4)),
        &[],
    );
    client.send(&message(2, REGION_WRITE, 36, 1 << 4, &write), &[]);
    client.send(&message(3, REGION_WRITE, 36, 0, &write), &[]);
    // One that is there in part has no reply.
    client.send(&message(4, REGION_WRITE, 36, 0, &write)[..20], &[]);
    running.kill();
    let refused = || {
        let (id, answer) = client.receive().unwrap();
        let error = Errno::IO.raw_os_error().unsigned_abs();
        assert_eq!(answer.error, Some(error));
        id
    };
    // The call before has its answer, but the process may have stopped just before it took that one
    // out of the socket.
    let first = match refused() {
        CALL => refused(),
        first => first,
    };
    assert_eq!([first, refused()], [1, 3]);
    ends(&client);
}

#[test]
fn nothing_waits_when_it_is_killed() {
    let sockets = Sockets::new();
    let (running, mut client) = running(&sockets);
    client.read(0, 0, 4).unwrap();
    running.kill();
    ends_after_an_answer(&client);
}

#[test]
fn it_ends_by_a_signal() {
    let sockets = Sockets::new();
    let (running, client) = running(&sockets);
    running.end();
    ends_after_an_answer(&client);
}

#[test]
fn a_client_that_makes_no_sense() {
    let sockets = Sockets::new();
    let (_running, client) = running(&sockets);
    let nonsense = message(CALL, REGION_READ, 3, 0, &[]);
    let unread = request(REGION_READ, &region_body(0, 0, &[], 4));
    client.send(&[nonsense, unread].concat(), &[]);
    ends(&client);
}
