// SPDX-License-Identifier: GPL-2.0

//! An endpoint of a port: a stream, to a peer that connects or is connected to, once more when it
//! has ended; or a TAP device.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::address::{accept, Address};
use super::connection::{Connection, End};
use super::tap;
use crate::log::Lines;

/// How long a try to connect is put off after one that failed: at first, and at most.
const FIRST: Duration = Duration::from_millis(50);
/// See [`FIRST`].
const LAST: Duration = Duration::from_secs(2);

/// How long nobody is taken after a try that failed, as without a file descriptor: the peer goes on
/// waiting, so poll(2) would return at once.
const PAUSE: Duration = Duration::from_millis(100);

/// How peers come.
#[derive(Debug)]
enum Role {
    /// They connect, one after the other; none before the time, if there is one.
    Listens(OwnedFd, Option<Instant>),
    /// This process connects.
    Connects {
        address: Address,
        wait: Duration,
        next: Instant,
    },
    /// There is one from the beginning, and never another: a device.
    Comes,
}

/// The endpoint of a port.
#[derive(Debug)]
pub struct Endpoint {
    /// The port of the switch.
    pub port: usize,
    /// For the log.
    name: String,
    role: Role,
    pub(super) connection: Option<Connection>,
    /// The peer has sent something. Until then, one that was connected to may not be there.
    talks: bool,
    /// It has been told that nobody is there.
    told: bool,
    lines: Lines,
}

impl Endpoint {
    /// A stream that peers connect to.
    ///
    /// # Errors
    ///
    /// Those of [`Address::listen`].
    pub fn listen(port: usize, address: &Address) -> io::Result<Self> {
        let role = Role::Listens(address.listen()?, None);
        Ok(Self::new(port, address.to_string(), role))
    }

    /// A stream that is connected to a peer, now or later, and again when it has ended.
    pub fn connect(port: usize, address: &Address, now: Instant) -> Self {
        let role = Role::Connects {
            address: address.clone(),
            wait: FIRST,
            next: now,
        };
        Self::new(port, address.to_string(), role)
    }

    /// A TAP device that is open.
    pub fn device(port: usize, name: &tap::Name, file: OwnedFd, now: Instant) -> Self {
        Self {
            connection: Some(Connection::device(file, now)),
            talks: true,
            ..Self::new(port, name.to_string(), Role::Comes)
        }
    }

    fn new(port: usize, name: String, role: Role) -> Self {
        Self {
            port,
            name,
            role,
            connection: None,
            talks: false,
            told: false,
            lines: Lines::default(),
        }
    }

    /// Listens without a peer: the descriptor to wait at.
    pub(super) fn listener(&self) -> Option<&OwnedFd> {
        match &self.role {
            Role::Listens(listener, None) if self.connection.is_none() => Some(listener),
            _ => None,
        }
    }

    /// When to try to get a peer, if it is not a listener that tells.
    pub(super) fn next_try(&self) -> Option<Instant> {
        match self.role {
            _ if self.connection.is_some() => None,
            Role::Listens(_, next) => next,
            Role::Connects { next, .. } => Some(next),
            Role::Comes => None,
        }
    }

    /// Gets a peer, if there is one by now, and returns whether there is.
    pub(super) fn open(&mut self, now: Instant) -> bool {
        let stream = match &mut self.role {
            Role::Listens(_, Some(next)) if now < *next => return false,
            Role::Listens(listener, next) => {
                *next = None;
                accept(listener)
            }
            Role::Connects { next, .. } if now < *next => return false,
            Role::Connects {
                address,
                wait,
                next,
            } => {
                *next = now.checked_add(*wait).unwrap_or(now);
                *wait = wait.saturating_mul(2).min(LAST);
                address.connect()
            }
            Role::Comes => return false,
        };
        match stream {
            Ok(stream) => {
                self.connection = Some(Connection::stream(stream, now));
                true
            }
            Err(error) => {
                match &mut self.role {
                    Role::Listens(_, next) if error.kind() != ErrorKind::WouldBlock => {
                        *next = now.checked_add(PAUSE);
                        self.warn(&format!("nobody can connect: {error}"));
                    }
                    Role::Connects { .. } => self.note_silence(&error.to_string()),
                    _ => (),
                }
                false
            }
        }
    }

    /// The peer has sent something. When it goes, the next try comes soon.
    pub(super) fn confirm(&mut self) {
        if !std::mem::replace(&mut self.talks, true) {
            self.note("a peer is there");
            self.told = false;
        }
        if let Role::Connects { wait, .. } = &mut self.role {
            *wait = FIRST;
        }
    }

    /// Drops the connection.
    pub(super) fn close(&mut self, end: End, told: &str) {
        self.connection = None;
        let was_there = std::mem::take(&mut self.talks);
        match end {
            // There was nobody to connect to.
            End::Closed | End::File(_) if !was_there => {
                if matches!(self.role, Role::Connects { .. }) {
                    self.note_silence(&end.to_string());
                }
            }
            End::File(_) if matches!(self.role, Role::Comes) => {
                self.warn(&format!("the device is gone: {told}"));
            }
            End::Closed => self.note(&format!("its peer has gone: {told}")),
            _ => self.warn(&format!("the connection is closed, {end}: {told}")),
        }
    }

    /// Writes a line to the log, once, if nobody is there to connect to.
    fn note_silence(&mut self, why: &str) {
        if !std::mem::replace(&mut self.told, true) {
            self.warn(&format!(
                "no peer answers, {why}: it is tried again until one does"
            ));
        }
    }

    /// Writes a line to the log, unless there were many.
    pub(super) fn note(&mut self, what: &str) {
        if self.lines.take() {
            info!("{}: {what}", self.name);
        }
    }

    /// Likewise, of what a person should look at.
    pub(super) fn warn(&mut self, what: &str) {
        if self.lines.take() {
            warn!("{}: {what}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_listener_that_fails_pauses() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let role = Role::Listens(socket.into(), None);
        let mut endpoint = Endpoint::new(0, "test".to_owned(), role);
        assert!(endpoint.listener().is_some());
        let now = Instant::now();
        // No peer can be accepted: nobody listens at the socket.
        assert!(!endpoint.open(now));
        assert!(endpoint.listener().is_none());
        assert_eq!(endpoint.next_try(), Some(now + PAUSE));
        assert!(!endpoint.open(now) && endpoint.listener().is_none());
        // It is tried again, and fails again.
        assert!(!endpoint.open(now + PAUSE));
        assert_eq!(endpoint.next_try(), Some(now + PAUSE + PAUSE));
    }
}
