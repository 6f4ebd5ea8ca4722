// SPDX-License-Identifier: GPL-2.0

//! The keeper: a process of its own that ends the connections of a ferrule-nic that has died.
//!
//! QEMU survives the end of a connection only if all that it sent was read and each request has its
//! reply (`drain`). A process that is killed can do neither. So the keeper has each connection's
//! socket, too, and does nothing until the process is gone.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::drain::drain;
use crate::socket::receive;

/// The word on the command line by which this program is a keeper. The other end of its standard
/// input is the process.
pub const KEEP: &str = "keep";

/// The keeper, as the process has it.
#[derive(Debug)]
pub struct Keeper {
    control: UnixStream,
    _process: Child,
}

impl Keeper {
    /// Starts a keeper of this process, which ends with it.
    ///
    /// # Errors
    ///
    /// No process can be made, or there is no /proc.
    pub fn start() -> io::Result<Self> {
        let (control, other) = UnixStream::pair()?;
        // A terminal's signals are for the process alone.
        let process = Command::new("/proc/self/exe")
            .arg(KEEP)
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            control,
            _process: process,
        })
    }

    /// Gives it a connection, which it keeps until the client has gone or either side has shut it
    /// down.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn keep(&self, stream: impl AsFd) -> io::Result<()> {
        let files = [stream.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let byte = [IoSlice::new(&[0])];
        sendmsg(&self.control, &byte, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Is a keeper until the process at the other end of `control` is gone.
///
/// # Errors
///
/// Handlers of signals, or waiting, fail.
pub fn run(control: impl AsFd) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"ferrule-keeper");
    // A service manager sends them to all processes of a service; the keeper ends after the last
    // connection has.
    let _ignored = Signals::new([SIGINT, SIGTERM])?;
    let mut kept: Vec<OwnedFd> = Vec::new();
    loop {
        let mut files = vec![PollFd::new(&control, PollFlags::IN)];
        files.extend(
            kept.iter()
                .map(|file| PollFd::new(file, PollFlags::empty())),
        );
        match poll(&mut files, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let told = ready.next() == Some(true);
        let gone: Vec<bool> = ready.collect();
        drop(files);
        let mut gone = gone.into_iter();
        kept.retain(|_| gone.next() != Some(true));
        if !told {
            continue;
        }
        match receive(&control, &mut [0]) {
            Ok((1, files)) => kept.extend(files),
            _ => break,
        }
    }
    kept.iter().for_each(drain);
    Ok(())
}
