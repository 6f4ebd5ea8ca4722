// SPDX-License-Identifier: GPL-2.0

//! A client of its own, over a pair of sockets.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::socket::{connection, End};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Commands by their numbers in the protocol.
pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const GET_INFO: u16 = 4;
pub const GET_REGION_INFO: u16 = 5;
pub const GET_IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const RESET: u16 = 13;

/// A message of a client.
pub fn message(id: u16, command: u16, size: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [id.to_ne_bytes(), command.to_ne_bytes()].concat();
    bytes.extend(size.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// The message ID of a client's calls.
pub const CALL: u16 = 7;

/// A request whose size is that of its body.
pub fn request(command: u16, body: &[u8]) -> Vec<u8> {
    message(CALL, command, 16 + body.len() as u32, 0, body)
}

pub fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

pub fn map_body(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    let mut body = words(&[32, flags]);
    body.extend(
        [offset, address, size]
            .iter()
            .flat_map(|value| value.to_ne_bytes()),
    );
    body
}

pub fn unmap_body(flags: u32, address: u64, size: u64) -> Vec<u8> {
    let mut body = words(&[24, flags]);
    body.extend([address, size].iter().flat_map(|value| value.to_ne_bytes()));
    body
}

pub fn region_body(offset: u64, region: u32, data: &[u8], count: u32) -> Vec<u8> {
    let mut body = offset.to_ne_bytes().to_vec();
    body.extend(words(&[region, count]));
    body.extend(data);
    body
}

/// The answer: the reply's error and its body.
#[derive(Debug)]
pub struct Answer {
    pub error: Option<u32>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn word(&self, number: usize) -> u32 {
        u32::from_ne_bytes(self.body[4 * number..][..4].try_into().unwrap())
    }
}

/// The adapter of a device that has no other.
pub fn adapter() -> Adapter {
    Adapter::new(&Device::new(1).unwrap(), 0, "test", [0; 6]).unwrap()
}

/// The client's end, and the thread that serves it.
pub struct Client {
    pub stream: UnixStream,
    /// None if that is another process.
    server: Option<JoinHandle<(Adapter, Result<(), End>)>>,
}

impl Client {
    /// Connects to an adapter, without a word.
    pub fn silent(mut adapter: Adapter) -> Self {
        let (stream, other) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let end = connection(&other, &mut adapter);
            adapter.disconnect();
            (adapter, end)
        });
        Self {
            stream,
            server: Some(server),
        }
    }

    /// Connects, and agrees on a version.
    pub fn new(adapter: Adapter) -> Self {
        Self::silent(adapter).greeted()
    }

    /// Connects to a process, and agrees on a version.
    pub fn at(path: &Path) -> Self {
        let client = Self {
            stream: UnixStream::connect(path).unwrap(),
            server: None,
        };
        client.greeted()
    }

    fn greeted(mut self) -> Self {
        let client = &mut self;
        let answer = client.call(VERSION, b"\0\0\x01\0{\"capabilities\":{}}\0", &[]);
        assert_eq!(answer.error, None);
        assert_eq!(answer.body[..4], [0, 0, 1, 0]);
        self
    }

    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(
            &self.stream,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// The next reply; none if the server has closed the connection.
    pub fn receive(&self) -> Option<(u16, Answer)> {
        let read = |length: usize| {
            let mut bytes = vec![0; length];
            (&self.stream).read_exact(&mut bytes).ok()?;
            Some(bytes)
        };
        let head = read(16)?;
        let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        let body = read(word(4) as usize - 16)?;
        let error = match word(8) {
            1 => None,
            0x21 => Some(word(12)),
            flags => panic!("flags {flags:#x}"),
        };
        let id = u16::from_ne_bytes([head[0], head[1]]);
        Some((id, Answer { error, body }))
    }

    pub fn call(&mut self, command: u16, body: &[u8], files: &[BorrowedFd<'_>]) -> Answer {
        self.send(&request(command, body), files);
        let (id, answer) = self
            .receive()
            .expect("the server has closed the connection");
        assert_eq!(id, CALL);
        answer
    }

    pub fn map(
        &mut self,
        file: Option<&OwnedFd>,
        offset: u64,
        address: u64,
        size: u64,
        flags: u32,
    ) -> Option<u32> {
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.call(DMA_MAP, &map_body(flags, offset, address, size), &files)
            .error
    }

    pub fn read(&mut self, region: u32, offset: u64, count: usize) -> Result<Vec<u8>, u32> {
        let answer = self.call(
            REGION_READ,
            &region_body(offset, region, &[], count as u32),
            &[],
        );
        match answer.error {
            None => Ok(answer.body[16..].to_vec()),
            Some(error) => Err(error),
        }
    }

    pub fn read32(&mut self, region: u32, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(region, offset, 4).unwrap().try_into().unwrap())
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Option<u32> {
        self.call(
            REGION_WRITE,
            &region_body(offset, region, data, data.len() as u32),
            &[],
        )
        .error
    }

    /// Leaves; returns the adapter, and how the connection has ended.
    pub fn leave(self) -> (Adapter, Result<(), End>) {
        drop(self.stream);
        let server = self.server.expect("the server is another process");
        server.join().expect("the server has panicked")
    }
}
