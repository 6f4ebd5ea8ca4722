// SPDX-License-Identifier: GPL-2.0

//! Where another process is reached: a Unix socket, or TCP on this machine.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{
    accept_with, connect, socket_with, sockopt, AddressFamily, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::socket;

/// An address of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Path(PathBuf),
    /// TCP on this machine.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    /// An IP address with a port, or a path. Frames are neither encrypted nor authenticated, so TCP
    /// is for this machine alone: the file system decides who can connect to a Unix socket.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Address::Tcp(address)),
            Ok(_) => Err(format!("{text} is not an address of this machine alone")),
            Err(_) if text.is_empty() => Err("there is no address".to_owned()),
            Err(_) => Ok(Address::Path(text.into())),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Path(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

impl Address {
    /// Its path, if it is a Unix socket's.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Path(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }

    /// Listens there.
    ///
    /// # Errors
    ///
    /// The address is in use, or cannot be used.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        let unix = |listener: UnixListener| listener.set_nonblocking(true).map(|()| listener);
        match self {
            Address::Path(path) => socket::listen(path).and_then(unix).map(OwnedFd::from),
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener.into())
            }
        }
    }

    /// Begins to connect, without waiting. The stream tells whether the connection came about.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or the queue of connections is full.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let begun = |done: Result<(), Errno>| match done {
            Err(errno) if errno != Errno::INPROGRESS => Err(errno),
            _ => Ok(()),
        };
        match self {
            Address::Path(path) => {
                let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
                begun(connect(&stream, &SocketAddrUnix::new(path)?))?;
                Ok(stream)
            }
            Address::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let stream = socket_with(family, SocketType::STREAM, FLAGS, None)?;
                sockopt::set_tcp_nodelay(&stream, true)?;
                begun(connect(&stream, address))?;
                Ok(stream)
            }
        }
    }
}

/// The next peer that has connected; `WOULDBLOCK` if there is none.
///
/// # Errors
///
/// There is none, or no file descriptor for it.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    let stream = accept_with(listener, FLAGS)?;
    // A Unix socket has no such option, and needs none.
    let _ = sockopt::set_tcp_nodelay(&stream, true);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let tcp = |text: &str| Ok(Address::Tcp(text.parse().unwrap()));
        assert_eq!("127.0.0.1:7".parse(), tcp("127.0.0.1:7"));
        assert_eq!("[::1]:7".parse(), tcp("[::1]:7"));
        assert_eq!("a.sock".parse(), Ok(Address::Path("a.sock".into())));
        for text in ["192.0.2.1:7", "0.0.0.0:7", ""] {
            assert!(text.parse::<Address>().is_err());
        }
    }
}
