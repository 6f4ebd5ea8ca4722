// SPDX-License-Identifier: GPL-2.0

//! The socket of a guest: its listener, reads and writes.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{
    recv, recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendFlags,
};

use crate::adapter::Adapter;
use crate::drain::drain;
use crate::protocol::{Broken, Header, HEADER, MAX_FILES};
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

/// Serves one client after the other, for ever. `keep` gives a connection to the keeper.
pub fn serve(
    listener: &UnixListener,
    adapter: &mut Adapter,
    keep: impl Fn(&UnixStream) -> io::Result<()>,
) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = keep(&stream) {
                    adapter.warn(&format!("QEMU may end with this process: {error}"));
                }
                adapter.connect();
                adapter.note("a client has connected");
                let end = connection(&stream, adapter);
                adapter.disconnect();
                drain(&stream);
                // The keeper's copy holds the connection otherwise.
                let _ = stream.shutdown(Shutdown::Both);
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
/// A message stays in the socket until its reply has been sent: so the keeper of a process that
/// dies finds each request that has none.
///
/// # Errors
///
/// It did not leave in good order.
pub fn connection(stream: impl AsFd, adapter: &mut Adapter) -> Result<(), End> {
    let mut session = Session::default();
    let mut buffer = vec![0; PIECE];
    loop {
        wait(stream.as_fd(), adapter)?;
        if let Some(length) = peek(&stream, &session, &mut buffer)? {
            let message = buffer.get(..length).unwrap_or_default();
            let (head, body) = message.split_at_checked(HEADER).unwrap_or_default();
            let mut push = |part| session.push(adapter, part, Vec::new());
            let mut reply = push(head).map_err(End::Broken)?;
            if !body.is_empty() {
                reply = push(body).map_err(End::Broken)?;
            }
            reply_with(&stream, reply)?;
            skip(&stream, &mut buffer, length)?;
            continue;
        }
        let wanted = session.wanted().min(PIECE);
        let (count, files) = receive(stream.as_fd(), buffer.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 {
            return match session.between() {
                true => Ok(()),
                false => Err(End::Midway),
            };
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        let reply = session.push(adapter, bytes, files).map_err(End::Broken)?;
        reply_with(&stream, reply)?;
    }
}

fn reply_with(stream: impl AsFd, reply: Option<Vec<u8>>) -> Result<(), End> {
    reply.map_or(Ok(()), |reply| send(stream, &reply).map_err(End::Socket))
}

/// Looks at the message that is next, if it is there as a whole, short, and without files; answers
/// its length.
///
/// Linux hands out files of later messages with the bytes that were asked for, so the files that
/// one looks at are those of any message that waits. Where there are some, messages are taken out
/// as they are read. Only requests about memory and vectors bring files.
fn peek(stream: impl AsFd, session: &Session, buffer: &mut [u8]) -> Result<Option<usize>, End> {
    if !session.between() {
        return Ok(None);
    }
    let mut no_files = RecvAncillaryBuffer::default();
    let seen = receive_message(&stream, buffer, &mut no_files, RecvFlags::PEEK)?;
    let bytes = buffer.get(..seen.bytes).unwrap_or_default();
    let Some(head) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = Header::parse(*head).map_err(End::Broken)?.size;
    let is_plain = length <= bytes.len() && !seen.flags.contains(ReturnFlags::CTRUNC);
    Ok(is_plain.then_some(length))
}

/// Takes so many bytes, which were looked at, out of the socket.
fn skip(stream: impl AsFd, buffer: &mut [u8], length: usize) -> Result<(), End> {
    let mut rest = buffer.get_mut(..length).unwrap_or_default();
    while !rest.is_empty() {
        match recv(&stream, &mut *rest, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(End::Socket(errno)),
            Ok((_, 0)) => return Err(End::Midway),
            Ok((_, count)) => rest = rest.get_mut(count..).unwrap_or_default(),
        }
    }
    Ok(())
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

/// Reads the bytes that wait, and the files that came with them.
///
/// # Errors
///
/// The socket has failed, there are more files than a message may bring, or no descriptors for
/// them.
pub(crate) fn receive(stream: impl AsFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), End> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = receive_message(stream, into, &mut control, RecvFlags::empty())?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    // The kernel has closed those for which there was no space, or no descriptor.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(End::Broken(if files.len() < MAX_FILES {
            Broken::NoDescriptors
        } else {
            Broken::Files
        }));
    }
    Ok((received.bytes, files))
}

fn receive_message(
    stream: impl AsFd,
    into: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
) -> Result<RecvMsg, End> {
    loop {
        let into = &mut [IoSliceMut::new(&mut *into)];
        match recvmsg(&stream, into, control, flags | RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => (),
            received => return received.map_err(End::Socket),
        }
    }
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
