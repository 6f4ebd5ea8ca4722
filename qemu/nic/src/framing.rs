// SPDX-License-Identifier: GPL-2.0

//! Cuts a stream of bytes and files into messages. Nothing here does I/O.
//!
//! The reader asks how many bytes are wanted and never takes more: so it never reads across the end
//! of a message, and the files that came belong to the message that is being read.

use std::os::fd::OwnedFd;

use crate::protocol::{Broken, Header, HEADER, MAX_FILES};

/// A whole message.
#[derive(Debug)]
pub struct Message {
    /// Its head.
    pub header: Header,
    /// The bytes behind the header.
    pub body: Vec<u8>,
    /// The files that came with it.
    pub files: Vec<OwnedFd>,
}

/// A message that is being read.
#[derive(Debug, Default)]
pub struct Framing {
    header: Option<Header>,
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Framing {
    /// How many bytes the message still needs; never 0.
    pub fn wanted(&self) -> usize {
        self.length().saturating_sub(self.bytes.len()).max(1)
    }

    /// Whether nothing has come of the next message.
    pub fn between(&self) -> bool {
        self.header.is_none() && self.bytes.is_empty()
    }

    fn length(&self) -> usize {
        match self.header {
            None => HEADER,
            Some(header) => header.size.saturating_sub(HEADER),
        }
    }

    /// Takes what was read, at most as many bytes as are wanted; returns the message that it
    /// completes.
    ///
    /// # Errors
    ///
    /// The stream makes no sense; nothing more can be read from it.
    pub fn push(&mut self, bytes: &[u8], files: Vec<OwnedFd>) -> Result<Option<Message>, Broken> {
        self.files.extend(files);
        if self.files.len() > MAX_FILES {
            return Err(Broken::Files);
        }
        self.bytes.extend(bytes);
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(head) = self.bytes.first_chunk::<HEADER>() else {
                    return Ok(None);
                };
                let header = Header::parse(*head)?;
                self.bytes.clear();
                self.header = Some(header);
                header
            }
        };
        if self.bytes.len() < header.size.saturating_sub(HEADER) {
            return Ok(None);
        }
        self.header = None;
        Ok(Some(Message {
            header,
            body: std::mem::take(&mut self.bytes),
            files: std::mem::take(&mut self.files),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol;

    fn request(id: u16, body: &[u8]) -> Vec<u8> {
        let header = Header {
            id,
            command: 10,
            size: 0,
            no_reply: false,
        };
        let mut bytes = protocol::reply(&header, body);
        bytes[8] = 0;
        bytes
    }

    proptest! {
        /// However the stream is cut, the same messages come out of it.
        #[test]
        fn messages_come_out_whole(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
            cuts in prop::collection::vec(1usize..40, 1..40),
        ) {
            let stream: Vec<u8> = bodies.iter().enumerate().flat_map(|(id, body)| request(id as u16, body)).collect();
            let mut framing = Framing::default();
            let mut rest = &stream[..];
            let mut found = Vec::new();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let length = framing.wanted().min(*cuts.next().unwrap()).min(rest.len());
                let (head, tail) = rest.split_at(length);
                rest = tail;
                if let Some(message) = framing.push(head, Vec::new()).unwrap() {
                    prop_assert_eq!(usize::from(message.header.id), found.len());
                    found.push(message.body);
                }
            }
            prop_assert!(framing.between());
            prop_assert_eq!(found, bodies);
        }
    }
}
