// SPDX-License-Identifier: GPL-2.0

//! A connection to a peer: a stream, or a TAP device. Neither reading nor writing waits.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{read, write, Errno};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendFlags};

use super::stream::{BadLength, Input, Output};

/// A peer that takes nothing for so long has stopped reading.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Frames that are read from a device before others have their turn.
const BATCH: usize = 64;

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has closed it.
    Closed,
    /// The peer's stream makes no sense.
    Length(BadLength),
    /// The socket or device has failed.
    File(Errno),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Closed => write!(f, "its peer has closed it"),
            End::Length(length) => write!(f, "its peer has announced {length}"),
            End::File(errno) => write!(f, "{errno}"),
        }
    }
}

/// How frames are told apart.
#[derive(Debug)]
enum Framing {
    /// A stream of bytes, with the length in front of each frame.
    Stream(Input),
    /// A device: each read and each write is one frame.
    Device,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) file: OwnedFd,
    framing: Framing,
    pub(super) output: Output,
    /// When the peer last took something, or had nothing to take.
    moved: Instant,
    /// The peer has stopped reading.
    pub(super) stalled: bool,
}

impl Connection {
    /// A stream that does not block.
    pub fn stream(file: OwnedFd, now: Instant) -> Self {
        Self::new(file, Framing::Stream(Input::default()), now)
    }

    /// A TAP device that does not block.
    pub fn device(file: OwnedFd, now: Instant) -> Self {
        Self::new(file, Framing::Device, now)
    }

    fn new(file: OwnedFd, framing: Framing, now: Instant) -> Self {
        Self {
            file,
            framing,
            output: Output::default(),
            moved: now,
            stalled: false,
        }
    }

    /// Reads what there is, up to a limit, into `scratch`, and hands over the bytes of each frame
    /// that is complete.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn read(&mut self, scratch: &mut [u8], mut each: impl FnMut(Vec<u8>)) -> Result<(), End> {
        let reads = match self.framing {
            Framing::Stream(_) => 1,
            Framing::Device => BATCH,
        };
        for _ in 0..reads {
            let count = match read(&self.file, &mut *scratch) {
                Ok(0) => return Err(End::Closed),
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(End::File(errno)),
            };
            let bytes = scratch.get(..count).unwrap_or_default();
            match &mut self.framing {
                Framing::Stream(input) => input.push(bytes, &mut each).map_err(End::Length)?,
                Framing::Device => each(bytes.to_vec()),
            }
        }
        Ok(())
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
        let done = match self.framing {
            Framing::Stream(_) => self.send(),
            Framing::Device => self.write_frames(),
        };
        match done {
            Ok(()) => {
                self.moved = now;
                self.stalled = false;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.stalled |= self.patience().is_some_and(|until| until <= now);
                Ok(())
            }
            Err(errno) => Err(End::File(errno)),
        }
    }

    fn send(&mut self) -> Result<(), Errno> {
        let mut none = SendAncillaryBuffer::default();
        let slices = self.output.slices();
        let count = sendmsg(&self.file, &slices, &mut none, SendFlags::NOSIGNAL)?;
        drop(slices);
        self.output.advance(count);
        Ok(())
    }

    fn write_frames(&mut self) -> Result<(), Errno> {
        while let Some(frame) = self.output.front() {
            match write(&self.file, frame.bytes()) {
                // The interface is down, as a cable may be; or the kernel takes no such frame.
                Ok(_) | Err(Errno::IO | Errno::INVAL) => self.output.pop(),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// When the peer will count as one that has stopped reading, if something waits for it.
    pub fn patience(&self) -> Option<Instant> {
        let waits = !self.output.is_empty() && !self.stalled;
        waits.then(|| self.moved.checked_add(PATIENCE)).flatten()
    }
}
