// SPDX-License-Identifier: GPL-2.0

//! Messages of vfio-user 0.1: bytes to requests, replies to bytes. Nothing here does I/O.
//!
//! The protocol is described in QEMU's `docs/interop/vfio-user.rst`. All words are in host order.
//! A message is a header of 16 bytes and a body whose size the header tells. Each kind of body has
//! one size; a body of another size is refused, and does no harm to the message behind it.

use rustix::io::Errno;

/// Bytes of a header.
pub const HEADER: usize = 16;

/// The most bytes of a region that one request may read or write.
pub const MAX_TRANSFER: usize = 65536;

/// The most bytes of a message: a write to a region.
pub const MAX_MESSAGE: usize = HEADER + 16 + MAX_TRANSFER;

/// The most files that a message may bring.
pub const MAX_FILES: usize = 8;

/// The most memory ranges of a client at a time.
pub const MAX_RANGES: usize = 1024;

/// The server's capabilities in its answer to VERSION; the zero ends it.
pub const CAPABILITIES: &str = concat!(
    r#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":65536,"#,
    r#""max_dma_maps":1024,"pgsizes":4096}}"#,
    "\0"
);

const REPLY: u32 = 1;
const TYPE_MASK: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// The fields of a message's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client; its reply has the same.
    pub id: u16,
    /// The number of the command.
    pub command: u16,
    /// Bytes of the message, the header's among them.
    pub size: usize,
    /// The client wants no reply.
    pub no_reply: bool,
}

/// The stream makes no sense any more: where the next message begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A size below the header's, or above [`MAX_MESSAGE`].
    Size(u32),
    /// A message that is no request.
    NoRequest(u32),
    /// More files than a message may bring.
    Files,
    /// Files for which this process has no descriptors.
    NoDescriptors,
    /// The client did not begin with a VERSION that the server speaks.
    Version,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Size(size) => write!(f, "a message of {size} bytes"),
            Broken::NoRequest(flags) => {
                write!(f, "a message that is no request (flags {flags:#x})")
            }
            Broken::Files => write!(f, "a message with more than {MAX_FILES} files"),
            Broken::NoDescriptors => write!(
                f,
                "no file descriptor is left for those that it sends (see ulimit -Hn)"
            ),
            Broken::Version => write!(
                f,
                "no common version of vfio-user: this one speaks 0.0 and 0.1"
            ),
        }
    }
}

/// Little words out of bytes, from the front.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Refuses a body that has more bytes than its command knows.
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Its size is out of bounds, or it is none of a request.
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, Broken> {
        let mut words = Words(&bytes);
        let mut read = || Some((words.u16()?, words.u16()?, words.u32()?, words.u32()?));
        let (id, command, size, flags) = read().ok_or(Broken::Size(0))?;
        if flags & TYPE_MASK != 0 {
            return Err(Broken::NoRequest(flags));
        }
        let length = usize::try_from(size).map_err(|_| Broken::Size(size))?;
        if !(HEADER..=MAX_MESSAGE).contains(&length) {
            return Err(Broken::Size(size));
        }
        Ok(Self {
            id,
            command,
            size: length,
            no_reply: flags & NO_REPLY != 0,
        })
    }
}

/// A range of guest memory that the client offers or takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address, as the guest's devices see it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// The work to do with the vectors of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Raise these, or with a count of 0 forget the files of all.
    Raise,
    /// Take the message's files as theirs, or without a file forget those that they have.
    Files,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of the protocol.
pub enum Request<'a> {
    Version {
        major: u16,
        minor: u16,
    },
    DmaMap {
        range: Range,
        offset: u64,
        writable: bool,
    },
    DmaUnmap {
        range: Range,
    },
    /// VFIO_DMA_UNMAP_FLAG_ALL.
    DmaUnmapAll,
    GetInfo,
    GetRegionInfo {
        index: u32,
    },
    GetIrqInfo {
        index: u32,
    },
    SetIrqs {
        index: u32,
        start: u32,
        count: u32,
        what: Vectors,
    },
    RegionRead {
        region: u32,
        offset: u64,
        count: usize,
    },
    RegionWrite {
        region: u32,
        offset: u64,
        data: &'a [u8],
    },
    Reset,
}

const DMA_READ: u32 = 1 << 0;
const DMA_WRITE: u32 = 1 << 1;
const UNMAP_ALL: u32 = 1 << 1;

const IRQ_DATA_NONE: u32 = 1 << 0;
const IRQ_DATA_EVENTFD: u32 = 1 << 2;
const IRQ_TRIGGER: u32 = 1 << 5;

impl<'a> Request<'a> {
    /// Reads the body of a message.
    ///
    /// # Errors
    ///
    /// EINVAL for a body that is not as its command has it, ENOTSUP for commands and flags that the
    /// server does not know.
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Self, Errno> {
        match command {
            13 => body
                .is_empty()
                .then_some(Request::Reset)
                .ok_or(Errno::INVAL),
            1..=5 | 7..=10 => Self::read(command, body).ok_or(Errno::INVAL)?,
            _ => Err(Errno::NOTSUP),
        }
    }

    /// None where the body has not the size that it should have.
    fn read(command: u16, body: &'a [u8]) -> Option<Result<Self, Errno>> {
        let mut words = Words(body);
        if command == 1 {
            // The client's capabilities follow, in JSON. They limit what a server may send; this
            // one never sends more than one file, nor more bytes than it is asked for.
            let (major, minor) = (words.u16()?, words.u16()?);
            return Some(Ok(Request::Version { major, minor }));
        }
        if command == 9 || command == 10 {
            let (offset, region, count) = (words.u64()?, words.u32()?, words.u32()?);
            let count = usize::try_from(count).ok()?;
            if count > MAX_TRANSFER {
                return None;
            }
            let data = words.0;
            return if command == 9 {
                words.end()?;
                Some(Ok(Request::RegionRead {
                    region,
                    offset,
                    count,
                }))
            } else {
                (data.len() == count).then_some(Ok(Request::RegionWrite {
                    region,
                    offset,
                    data,
                }))
            };
        }
        let (argsz, flags) = (words.u32()?, words.u32()?);
        let request = match command {
            2 => {
                let offset = words.u64()?;
                let range = Range {
                    address: words.u64()?,
                    size: words.u64()?,
                };
                let writable = flags & DMA_WRITE != 0;
                if flags & !(DMA_READ | DMA_WRITE) != 0 || flags & DMA_READ == 0 {
                    Err(Errno::NOTSUP)
                } else {
                    Ok(Request::DmaMap {
                        range,
                        offset,
                        writable,
                    })
                }
            }
            3 => {
                let range = Range {
                    address: words.u64()?,
                    size: words.u64()?,
                };
                match flags {
                    0 => Ok(Request::DmaUnmap { range }),
                    UNMAP_ALL if range.address == 0 && range.size == 0 => Ok(Request::DmaUnmapAll),
                    UNMAP_ALL => Err(Errno::INVAL),
                    _ => Err(Errno::NOTSUP),
                }
            }
            4 => {
                let _counts = words.u64()?;
                Ok(Request::GetInfo)
            }
            5 => {
                let index = words.u32()?;
                let _answers: [u8; 20] = words.take()?;
                Ok(Request::GetRegionInfo { index })
            }
            7 => {
                let index = words.u32()?;
                let _count = words.u32()?;
                Ok(Request::GetIrqInfo { index })
            }
            8 => {
                let (index, start, count) = (words.u32()?, words.u32()?, words.u32()?);
                let what = match flags {
                    f if f == IRQ_DATA_NONE | IRQ_TRIGGER => Ok(Vectors::Raise),
                    f if f == IRQ_DATA_EVENTFD | IRQ_TRIGGER => Ok(Vectors::Files),
                    _ => Err(Errno::NOTSUP),
                };
                what.map(|what| Request::SetIrqs {
                    index,
                    start,
                    count,
                    what,
                })
            }
            _ => return None,
        };
        words.end()?;
        // The size of the client's buffer, which holds its own structure at least.
        let argsz = usize::try_from(argsz).ok()?;
        let needed = match command {
            // QEMU counts the kernel's structure, which is 8 bytes shorter than the message's.
            3 => 24,
            _ => body.len(),
        };
        Some(if argsz < needed {
            Err(Errno::INVAL)
        } else {
            request
        })
    }
}

/// The bytes of a reply.
pub fn reply(header: &Header, body: &[u8]) -> Vec<u8> {
    message(header, REPLY, 0, body)
}

/// The bytes of a reply that refuses.
pub fn refusal(header: &Header, errno: Errno) -> Vec<u8> {
    message(
        header,
        REPLY | ERROR,
        errno.raw_os_error().unsigned_abs(),
        &[],
    )
}

fn message(header: &Header, flags: u32, error: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER.saturating_add(body.len()));
    // A body is at most that of a read, so this does not saturate.
    let size = u32::try_from(HEADER.saturating_add(body.len())).unwrap_or(u32::MAX);
    bytes.extend(header.id.to_ne_bytes());
    bytes.extend(header.command.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(error.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Words as the bytes of a body.
pub fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: u32, flags: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&7u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&9u16.to_ne_bytes());
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn sizes_of_messages() {
        assert!(Header::parse(header(16, 0)).is_ok());
        assert!(Header::parse(header(MAX_MESSAGE as u32, 0)).is_ok());
        for size in [0, 15, MAX_MESSAGE as u32 + 1, u32::MAX] {
            assert_eq!(Header::parse(header(size, 0)), Err(Broken::Size(size)));
        }
        assert!(Header::parse(header(16, 0x10)).unwrap().no_reply);
        assert_eq!(
            Header::parse(header(16, 0x21)),
            Err(Broken::NoRequest(0x21))
        );
    }

    #[test]
    fn each_body_has_one_size() {
        for (command, size) in [
            (2u16, 32usize),
            (3, 24),
            (4, 16),
            (5, 32),
            (7, 16),
            (8, 20),
            (9, 16),
            (13, 0),
        ] {
            let mut body = vec![0; size];
            let fill = |body: &mut Vec<u8>| {
                if command != 9 && body.len() >= 4 {
                    body[..4].copy_from_slice(&64u32.to_ne_bytes());
                }
                if (command == 2 || command == 8) && body.len() >= 8 {
                    body[4..8]
                        .copy_from_slice(&if command == 2 { 3u32 } else { 0x21 }.to_ne_bytes());
                }
            };
            fill(&mut body);
            assert!(Request::parse(command, &body).is_ok(), "{command}");
            body.push(0);
            assert_eq!(
                Request::parse(command, &body),
                Err(Errno::INVAL),
                "{command}"
            );
            body.truncate(size.saturating_sub(1));
            if size > 0 {
                assert_eq!(
                    Request::parse(command, &body),
                    Err(Errno::INVAL),
                    "{command}"
                );
            }
        }
    }

    #[test]
    fn a_write_has_as_many_bytes_as_it_says() {
        let mut body = vec![0; 20];
        body[12..16].copy_from_slice(&4u32.to_ne_bytes());
        assert!(Request::parse(10, &body).is_ok());
        body[12..16].copy_from_slice(&5u32.to_ne_bytes());
        assert_eq!(Request::parse(10, &body), Err(Errno::INVAL));
        body[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Request::parse(9, &body[..16]), Err(Errno::INVAL));
    }

    #[test]
    fn commands_that_are_not_there() {
        for command in [0, 6, 11, 12, 14, 15, u16::MAX] {
            assert_eq!(Request::parse(command, &[]), Err(Errno::NOTSUP));
        }
    }

    #[test]
    fn limits_are_those_that_it_tells() {
        assert!(CAPABILITIES.contains(&format!("\"max_msg_fds\":{MAX_FILES},")));
        assert!(CAPABILITIES.contains(&format!("\"max_data_xfer_size\":{MAX_TRANSFER},")));
        assert!(CAPABILITIES.contains(&format!("\"max_dma_maps\":{MAX_RANGES},")));
    }
}
