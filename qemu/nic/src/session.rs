// SPDX-License-Identifier: GPL-2.0

//! A client's connection as a state machine: bytes and files in, replies out. Nothing here reads or
//! writes a socket, so tests and the fuzzer need none.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::adapter::{Adapter, IRQS, REGIONS};
use crate::framing::{Framing, Message};
use crate::protocol::{refusal, reply, words, Broken, Request, CAPABILITIES};

/// A connection.
#[derive(Debug, Default)]
pub struct Session {
    framing: Framing,
    /// The client has told its version.
    begun: bool,
}

/// The body of an answer.
type Answer = Result<Vec<u8>, Errno>;

impl Session {
    /// How many bytes may be pushed at most.
    pub fn wanted(&self) -> usize {
        self.framing.wanted()
    }

    /// Whether the client has left between two messages.
    pub fn between(&self) -> bool {
        self.framing.between()
    }

    /// Takes what was read; returns what is to be sent.
    ///
    /// # Errors
    ///
    /// The connection is to be closed.
    pub fn push(
        &mut self,
        adapter: &mut Adapter,
        bytes: &[u8],
        files: Vec<OwnedFd>,
    ) -> Result<Option<Vec<u8>>, Broken> {
        let Some(message) = self.framing.push(bytes, files)? else {
            return Ok(None);
        };
        let Message {
            header,
            body,
            files,
        } = message;
        let answer = match Request::parse(header.command, &body) {
            Ok(Request::Version { major, minor }) if !self.begun => {
                if major != 0 {
                    return Err(Broken::Version);
                }
                self.begun = true;
                Ok(version(minor.min(1)))
            }
            _ if !self.begun => return Err(Broken::Version),
            Ok(request) => perform(adapter, request, files),
            Err(errno) => Err(errno),
        };
        if header.no_reply {
            return Ok(None);
        }
        Ok(Some(match answer {
            Ok(body) => reply(&header, &body),
            Err(errno) => refusal(&header, errno),
        }))
    }
}

/// The answer to VERSION: the lower of both minor versions. QEMU is one that speaks 0.0.
fn version(minor: u16) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0u16.to_ne_bytes());
    body.extend(minor.to_ne_bytes());
    body.extend(CAPABILITIES.as_bytes());
    body
}

fn perform(adapter: &mut Adapter, request: Request<'_>, mut files: Vec<OwnedFd>) -> Answer {
    let most = match request {
        Request::DmaMap { .. } => 1,
        Request::SetIrqs { .. } => files.len(),
        _ => 0,
    };
    if files.len() > most {
        return Err(Errno::INVAL);
    }
    const NOTHING: Answer = Ok(Vec::new());
    match request {
        // The client has begun already.
        Request::Version { .. } => Err(Errno::INVAL),
        Request::DmaMap {
            range,
            offset,
            writable,
        } => {
            adapter.map(range, files.pop(), offset, writable)?;
            NOTHING
        }
        Request::DmaUnmap { range } => {
            adapter.unmap(range)?;
            let mut body = words(&[24, 0]);
            body.extend(range.address.to_ne_bytes());
            body.extend(range.size.to_ne_bytes());
            Ok(body)
        }
        Request::DmaUnmapAll => {
            adapter.unmap_all();
            Ok(words(&[24, 2, 0, 0, 0, 0]))
        }
        Request::GetInfo => {
            const RESET: u32 = 1 << 0;
            const PCI: u32 = 1 << 1;
            Ok(words(&[16, RESET | PCI, REGIONS, IRQS]))
        }
        Request::GetRegionInfo { index } => {
            let (flags, size) = adapter.region_info(index)?;
            let mut body = words(&[32, flags, index, 0]);
            body.extend(size.to_ne_bytes());
            body.extend(0u64.to_ne_bytes());
            Ok(body)
        }
        Request::GetIrqInfo { index } => {
            let (flags, count) = adapter.irq_info(index)?;
            Ok(words(&[16, flags, index, count]))
        }
        Request::SetIrqs {
            index,
            start,
            count,
            what,
        } => {
            if what == crate::protocol::Vectors::Raise && !files.is_empty() {
                return Err(Errno::INVAL);
            }
            adapter.set_irqs(index, what, (start, count), files)?;
            NOTHING
        }
        Request::RegionRead {
            region,
            offset,
            count,
        } => {
            let mut data = vec![0; count];
            adapter.read(region, offset, &mut data)?;
            let mut body = access(region, offset, count);
            body.append(&mut data);
            Ok(body)
        }
        Request::RegionWrite {
            region,
            offset,
            data,
        } => {
            adapter.write(region, offset, data)?;
            Ok(access(region, offset, data.len()))
        }
        Request::Reset => {
            adapter.reset();
            NOTHING
        }
    }
}

fn access(region: u32, offset: u64, count: usize) -> Vec<u8> {
    let mut body = offset.to_ne_bytes().to_vec();
    body.extend(words(&[region, u32::try_from(count).unwrap_or(u32::MAX)]));
    body
}
