// SPDX-License-Identifier: GPL-2.0

//! A stream to a peer, which neither reading nor writing waits for.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{read, Errno};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendFlags};

use super::stream::{BadLength, Input, Output};

/// Who takes nothing for so long has stopped reading.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has closed it.
    Closed,
    /// The peer's stream makes no sense.
    Length(BadLength),
    /// The socket has failed.
    Socket(Errno),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Closed => write!(f, "its peer has closed it"),
            End::Length(length) => write!(f, "its peer has announced {length}"),
            End::Socket(errno) => write!(f, "{errno}"),
        }
    }
}

/// A stream.
#[derive(Debug)]
pub struct Connection {
    pub(super) stream: OwnedFd,
    input: Input,
    pub(super) output: Output,
    /// When the peer last took something, or had nothing to take.
    moved: Instant,
    /// The peer has stopped reading.
    pub(super) stalled: bool,
}

impl Connection {
    /// A stream that does not block.
    pub fn new(stream: OwnedFd, now: Instant) -> Self {
        Self {
            stream,
            input: Input::default(),
            output: Output::default(),
            moved: now,
            stalled: false,
        }
    }

    /// Reads once, into `scratch`, and hands over the bytes of each frame that is complete.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn read(&mut self, scratch: &mut [u8], each: impl FnMut(Vec<u8>)) -> Result<(), End> {
        match read(&self.stream, &mut *scratch) {
            Ok(0) => Err(End::Closed),
            Ok(count) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                self.input.push(bytes, each).map_err(End::Length)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(End::Socket(errno)),
        }
    }

    /// Writes what the peer takes.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn write(&mut self, now: Instant) -> Result<(), End> {
        if self.output.is_empty() {
            self.moved = now;
            return Ok(());
        }
        let mut none = SendAncillaryBuffer::default();
        let slices = self.output.slices();
        match sendmsg(&self.stream, &slices, &mut none, SendFlags::NOSIGNAL) {
            Ok(count) => {
                drop(slices);
                self.output.advance(count);
                self.moved = now;
                self.stalled = false;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.stalled |= self.patience().is_some_and(|until| until <= now);
                Ok(())
            }
            Err(errno) => Err(End::Socket(errno)),
        }
    }

    /// When the peer will count as one that has stopped reading, if something waits for it.
    pub fn patience(&self) -> Option<Instant> {
        let waits = !self.output.is_empty() && !self.stalled;
        waits.then(|| self.moved.checked_add(PATIENCE)).flatten()
    }
}
