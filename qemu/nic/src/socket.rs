// SPDX-License-Identifier: GPL-2.0

//! The socket of a guest: who listens, and what is read and written.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{
    recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
};

use crate::adapter::Adapter;
use crate::protocol::{Broken, MAX_FILES};
use crate::session::Session;

/// Bytes that are read at once.
const PIECE: usize = 16384;

/// Listens at a path. A socket that nobody listens at any more is replaced.
///
/// # Errors
///
/// The path is in use, or cannot be made a socket.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => (),
        bound => return bound,
    }
    if !path.symlink_metadata()?.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file that is no socket",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        _ => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "a running process listens there",
        )),
    }
}

/// Serves one client after the other, for ever.
pub fn serve(listener: &UnixListener, adapter: &mut Adapter) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                adapter.connect();
                adapter.note("a client has connected");
                let end = connection(&stream, adapter);
                adapter.disconnect();
                match end {
                    Ok(()) => adapter.note("its client has gone"),
                    Err(why) => adapter.warn(&format!("the connection is closed: {why}")),
                }
            }
            Err(error) => {
                adapter.warn(&format!("no client can connect: {error}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Why a connection has ended, other than that its client left between two messages.
#[derive(Debug)]
pub enum End {
    /// The client's messages make no sense.
    Broken(Broken),
    /// The client left in the middle of a message.
    Midway,
    /// The socket has failed.
    Socket(rustix::io::Errno),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Broken(broken) => write!(f, "{broken}"),
            End::Midway => write!(f, "its client left in the middle of a message"),
            End::Socket(errno) => write!(f, "{errno}"),
        }
    }
}

/// Serves a client until it leaves.
///
/// # Errors
///
/// It did not leave in good order.
pub fn connection(stream: impl AsFd, adapter: &mut Adapter) -> Result<(), End> {
    let mut session = Session::default();
    let mut buffer = vec![0; PIECE];
    loop {
        wait(stream.as_fd(), adapter)?;
        let wanted = session.wanted().min(PIECE);
        let (count, files) = receive(stream.as_fd(), buffer.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 {
            return match session.between() {
                true => Ok(()),
                false => Err(End::Midway),
            };
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        if let Some(reply) = session.push(adapter, bytes, files).map_err(End::Broken)? {
            send(stream.as_fd(), &reply).map_err(End::Socket)?;
        }
    }
}

/// Waits until there is something to read, and raises vectors meanwhile.
fn wait(stream: impl AsFd, adapter: &Adapter) -> Result<(), End> {
    loop {
        let signal = adapter.signal();
        let mut files = [
            PollFd::new(&stream, PollFlags::IN),
            PollFd::new(&signal, PollFlags::IN),
        ];
        match poll(&mut files, None) {
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready.map_err(End::Socket)?,
        };
        let [messages, vectors] = files.map(|file| !file.revents().is_empty());
        if vectors {
            adapter.raise();
        }
        if messages {
            return Ok(());
        }
    }
}

fn receive(stream: impl AsFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), End> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            &stream,
            &mut [IoSliceMut::new(into)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => (),
            received => break received.map_err(End::Socket)?,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    // The kernel has closed those for which there was no room.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(End::Broken(Broken::Files));
    }
    Ok((received.bytes, files))
}

fn send(stream: impl AsFd, reply: &[u8]) -> rustix::io::Result<()> {
    let mut rest = reply;
    while !rest.is_empty() {
        match rustix::net::send(&stream, rest, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}
