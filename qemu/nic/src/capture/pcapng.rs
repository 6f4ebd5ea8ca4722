// SPDX-License-Identifier: GPL-2.0

//! The blocks of a pcapng file that a capture needs (draft-ietf-opsawg-pcapng): a section, its
//! interfaces, packets, and what was lost at each interface. Numbers are in this machine's byte
//! order, of which the section header tells readers.

use std::io::{self, Write};
use std::time::Duration;

use crate::frame::Mac;

/// Block types.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// By this number readers find the byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Options of the section header: the program.
const USERAPPL: u16 = 4;
/// Options of an interface: its name, its Ethernet address, and the unit of its times as a negative
/// power of ten.
const IF_NAME: u16 = 2;
/// See [`IF_NAME`].
const IF_MACADDR: u16 = 6;
/// See [`IF_NAME`].
const IF_TSRESOL: u16 = 9;
/// Options of an interface's statistics: frames that have come, and of these those that are not in
/// the file.
const ISB_IFRECV: u16 = 4;
/// See [`ISB_IFRECV`].
const ISB_IFDROP: u16 = 5;

/// Times are in nanoseconds.
const NANOSECONDS: u8 = 9;

/// An interface of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The Ethernet address of what is there, where it is known.
    pub mac: Option<Mac>,
}

/// The body of a block.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn words(mut self, words: &[u32]) -> Self {
        words
            .iter()
            .for_each(|word| self.0.extend(word.to_ne_bytes()));
        self
    }

    fn halves(mut self, halves: &[u16]) -> Self {
        halves
            .iter()
            .for_each(|half| self.0.extend(half.to_ne_bytes()));
        self
    }

    /// Bytes, and zeroes up to the next multiple of four.
    fn padded(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        let value = value.get(..u16::MAX.into()).unwrap_or(value);
        let length = u16::try_from(value.len()).unwrap_or(0);
        self.halves(&[code, length]).padded(value)
    }

    fn end_of_options(self) -> Self {
        self.halves(&[0, 0])
    }

    fn write(self, kind: u32, to: &mut impl Write) -> io::Result<()> {
        const FRAME: usize = 12;
        let length = u32::try_from(self.0.len().saturating_add(FRAME)).unwrap_or(u32::MAX);
        to.write_all(&kind.to_ne_bytes())?;
        to.write_all(&length.to_ne_bytes())?;
        to.write_all(&self.0)?;
        to.write_all(&length.to_ne_bytes())
    }
}

/// A time as the two halves that blocks have.
fn halves(time: Duration) -> [u32; 2] {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    [nanoseconds.wrapping_shr(32) as u32, nanoseconds as u32]
}

/// Begins a file whose interfaces have these names.
///
/// # Errors
///
/// Those of the writer.
pub fn begin(interfaces: &[Interface], to: &mut impl Write) -> io::Result<()> {
    let program = concat!("ferrule-nic ", env!("CARGO_PKG_VERSION"));
    // Version 1.0; the length of the section is not known.
    Body::default()
        .words(&[BYTE_ORDER_MAGIC])
        .halves(&[1, 0])
        .words(&[u32::MAX, u32::MAX])
        .option(USERAPPL, program.as_bytes())
        .end_of_options()
        .write(SECTION_HEADER, to)?;
    for Interface { name, mac } in interfaces {
        // Frames are never cut: there is no snapshot length.
        let mut body = Body::default()
            .halves(&[ETHERNET, 0])
            .words(&[0])
            .option(IF_NAME, name.as_bytes())
            .option(IF_TSRESOL, &[NANOSECONDS]);
        if let Some(mac) = mac {
            body = body.option(IF_MACADDR, mac);
        }
        body.end_of_options().write(INTERFACE_DESCRIPTION, to)?;
    }
    Ok(())
}

/// Writes a frame that has come by an interface, `time` after 1970 began.
///
/// # Errors
///
/// Those of the writer.
pub fn packet(interface: u32, time: Duration, frame: &[u8], to: &mut impl Write) -> io::Result<()> {
    let [high, low] = halves(time);
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    Body::default()
        .words(&[interface, high, low, length, length])
        .padded(frame)
        .write(ENHANCED_PACKET, to)
}

/// Writes how many frames have come by an interface until `time`, and how many of these are not in
/// the file.
///
/// # Errors
///
/// Those of the writer.
pub fn statistics(
    interface: u32,
    time: Duration,
    (received, dropped): (u64, u64),
    to: &mut impl Write,
) -> io::Result<()> {
    let [high, low] = halves(time);
    Body::default()
        .words(&[interface, high, low])
        .option(ISB_IFRECV, &received.to_ne_bytes())
        .option(ISB_IFDROP, &dropped.to_ne_bytes())
        .end_of_options()
        .write(INTERFACE_STATISTICS, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type and body of each block of a file; lengths have to agree.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |at: &[u8]| u32::from_ne_bytes(*at.first_chunk().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!(length % 4, 0);
            let (block, rest) = file.split_at(length);
            assert_eq!(word(&block[length - 4..]) as usize, length);
            blocks.push((word(block), block[8..length - 4].to_vec()));
            file = rest;
        }
        blocks
    }

    #[test]
    fn a_file() {
        let interface = |name: &str, mac| Interface {
            name: name.to_owned(),
            mac,
        };
        let interfaces = [
            interface("a", Some([2, 0, 0, 0, 0, 1])),
            interface("", None),
        ];
        let mut file = Vec::new();
        begin(&interfaces, &mut file).unwrap();
        let time = Duration::from_nanos((7 << 32) + 9);
        packet(1, time, &[1, 2, 3, 4, 5], &mut file).unwrap();
        statistics(1, time, (2, 1), &mut file).unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, ENHANCED_PACKET, 5]);
        let body = |words: &[u32], rest: &[u8]| Body::default().words(words).padded(rest).0;
        assert_eq!(blocks[3].1, body(&[1, 7, 9, 5, 5], &[1, 2, 3, 4, 5]));
        assert_eq!(blocks[0].1[..4], BYTE_ORDER_MAGIC.to_ne_bytes());
        let named = Body::default().option(IF_NAME, b"a").0;
        assert_eq!(blocks[1].1[8..16], named);
        // The second has an empty name.
        assert_eq!(blocks[2].1[8..12], Body::default().halves(&[IF_NAME, 0]).0);
    }
}
