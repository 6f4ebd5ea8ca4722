// SPDX-License-Identifier: GPL-2.0

//! The thread that serves the streams of all ports.
//!
//! One thread, since what it does for a frame is short and never waits: sockets do not block, a
//! peer that has much to say is read a piece at a time, and frames that a peer does not take wait
//! in a bounded queue of its own. A thread for each port would hand each frame from one to another,
//! and need two for each port, one of which waits in a write.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::connection::End;
use super::endpoint::Endpoint;
use crate::wire::Wire;

/// Bytes that are read at once.
const PIECE: usize = 128 << 10;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Poll {
    wire: Arc<Wire>,
    thread: Option<JoinHandle<()>>,
}

impl Poll {
    /// Starts it. `arrived` is called when packets have come for the engine and there were none
    /// before.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn new(
        wire: &Arc<Wire>,
        endpoints: Vec<Endpoint>,
        arrived: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let own = Arc::clone(wire);
        let thread = std::thread::Builder::new()
            .name("switch".into())
            .spawn(move || serve(&own, endpoints, &arrived))?;
        Ok(Self {
            wire: Arc::clone(wire),
            thread: Some(thread),
        })
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.wire.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(wire: &Wire, mut endpoints: Vec<Endpoint>, arrived: &dyn Fn()) {
    let mut scratch = vec![0; PIECE];
    // A device is there from the beginning.
    for endpoint in endpoints.iter().filter(|one| one.connection.is_some()) {
        wire.switch().set_up(endpoint.port, true);
    }
    while !wire.ends() {
        let ready = wait(wire, &endpoints);
        wire.signal.take();
        for (endpoint, ready) in endpoints.iter_mut().zip(ready) {
            let done = read(wire, endpoint, ready, &mut scratch, arrived);
            close_after(done, wire, endpoint);
        }
        // The frames that were read may be for any of them.
        for endpoint in &mut endpoints {
            let done = write(wire, endpoint);
            close_after(done, wire, endpoint);
        }
    }
}

/// Waits until there is something to do, and answers what each endpoint can do.
fn wait(wire: &Wire, endpoints: &[Endpoint]) -> Vec<PollFlags> {
    let now = Instant::now();
    let mut until: Option<Instant> = None;
    let mut sockets = vec![PollFd::from_borrowed_fd(wire.signal.as_fd(), PollFlags::IN)];
    for endpoint in endpoints {
        let (socket, what, due) = interest(endpoint);
        // An endpoint without a socket waits at none: the signal is one that it ignores.
        let socket = socket.unwrap_or_else(|| wire.signal.as_fd());
        sockets.push(PollFd::from_borrowed_fd(socket, what));
        until = [until, due].into_iter().flatten().min();
    }
    let left = until.map(|until| until.saturating_duration_since(now));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut sockets, timeout.as_ref()) {
        Ok(_) => sockets.iter().skip(1).map(PollFd::revents).collect(),
        Err(rustix::io::Errno::INTR) => Vec::new(),
        Err(_) => {
            // There is no memory at present.
            std::thread::sleep(Duration::from_millis(10));
            Vec::new()
        }
    }
}

/// The events that an endpoint waits for, and until when.
fn interest(endpoint: &Endpoint) -> (Option<BorrowedFd<'_>>, PollFlags, Option<Instant>) {
    match &endpoint.connection {
        Some(connection) => {
            let output = match connection.output.is_empty() {
                true => PollFlags::empty(),
                false => PollFlags::OUT,
            };
            let socket = Some(connection.file.as_fd());
            (socket, PollFlags::IN | output, connection.patience())
        }
        None => match endpoint.listener() {
            Some(listener) => (Some(listener.as_fd()), PollFlags::IN, None),
            None => (None, PollFlags::empty(), endpoint.next_try()),
        },
    }
}

/// Reads once from an endpoint's peer, or gets a peer.
fn read(
    wire: &Wire,
    endpoint: &mut Endpoint,
    ready: PollFlags,
    scratch: &mut [u8],
    arrived: &dyn Fn(),
) -> Result<(), End> {
    let port = endpoint.port;
    let now = Instant::now();
    let Some(connection) = &mut endpoint.connection else {
        let wanted = !ready.is_empty() || endpoint.next_try().is_some_and(|next| next <= now);
        if wanted && endpoint.open(now) {
            wire.switch().set_up(port, true);
        }
        return Ok(());
    };
    if ready.difference(PollFlags::OUT).is_empty() {
        return Ok(());
    }
    let mut frames = Vec::new();
    let done = connection.read(scratch, |frame| frames.push(frame));
    if !frames.is_empty() {
        endpoint.confirm();
        if wire.input(port, frames.into_iter()) {
            arrived();
        }
    }
    done
}

/// Closes a connection that has ended.
fn close_after(done: Result<(), End>, wire: &Wire, endpoint: &mut Endpoint) {
    let Err(end) = done else {
        return;
    };
    let mut switch = wire.switch();
    switch.set_up(endpoint.port, false);
    let (counters, dropped) = switch.counters(endpoint.port);
    drop(switch);
    let told = format!("{counters}, {dropped} to it dropped");
    endpoint.close(end, &told);
}

/// Writes what waits for an endpoint's peer.
fn write(wire: &Wire, endpoint: &mut Endpoint) -> Result<(), End> {
    let Some(connection) = &mut endpoint.connection else {
        return Ok(());
    };
    wire.switch().take(endpoint.port, &mut connection.output);
    let before = connection.stalled;
    connection.write(Instant::now())?;
    // Other frames that wait are written when the peer can take them.
    wire.switch().take(endpoint.port, &mut connection.output);
    let stalled = connection.stalled;
    if stalled != before {
        wire.switch().set_stalled(endpoint.port, stalled);
        if stalled {
            endpoint.warn("its peer has stopped reading");
        }
    }
    Ok(())
}
