// SPDX-License-Identifier: GPL-2.0

//! The limits of the process that the program runs in.

use std::os::fd::AsFd;

use rustix::event::{eventfd, EventfdFlags};

use crate::client::{request, words, Client, SET_IRQS};
use crate::running::{guest, Running};
use crate::wire::Sockets;

/// Hands over a file for each vector, and returns whether the program has taken all of them.
/// `limit` is a command that sets its limit of open files.
fn takes_all_vectors(limit: &str) -> bool {
    let sockets = Sockets::new();
    let path = sockets.path("guest");
    let running = Running::behind(limit, &[guest(&path)], sockets.path("log"));
    running.tells("waits for a client");
    let client = Client::at(&path);
    let file = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let taken = (0..32).step_by(8).all(|start| {
        let body = words(&[20, 0x24, 2, start, 8]);
        client.send(&request(SET_IRQS, &body), &[file.as_fd(); 8]);
        client
            .receive()
            .is_some_and(|(_, answer)| answer.error.is_none())
    });
    if !taken {
        running.tells("no file descriptor is left");
    }
    running.end();
    taken
}

#[test]
fn as_many_files_as_the_hard_limit_allows() {
    assert!(takes_all_vectors("ulimit -S -n 30"));
    assert!(!takes_all_vectors("ulimit -n 30"));
}
