// SPDX-License-Identifier: GPL-2.0

//! Where bytes come from and where they go, and the copy between the two.

use crate::{
    abi,
    attr::Access,
    host::{
        Fault,
        Host,
        Packet,
        Region, //
    },
    key::{
        KeyUse,
        Keys, //
    },
};

/// How far a scatter/gather list has been used.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    entry: usize,
    /// Bytes of that entry.
    offset: u32,
}

impl Cursor {
    /// Goes to the byte `offset` of a list.
    pub(crate) fn seek(&mut self, entries: &[abi::Sge], offset: u32) {
        *self = Cursor { entry: 0, offset };
        for entry in entries {
            match self.offset.checked_sub(entry.length.get()) {
                Some(rest) => {
                    self.offset = rest;
                    self.entry = self.entry.wrapping_add(1);
                }
                None => break,
            }
        }
    }
}

/// One side of a copy.
pub(crate) enum Side<'a, H: Host> {
    /// Inline data of a request, of which the first bytes have been used.
    Inline(&'a [u8]),
    /// The payload of a packet that was received.
    Packet {
        packet: &'a H::Packet,
        /// Where it goes on: bytes from the base transport header on.
        offset: usize,
    },
    /// A scatter/gather list.
    List {
        pd: u32,
        need: Access,
        entries: &'a [abi::Sge],
        cursor: &'a mut Cursor,
    },
    /// A range of a peer's memory, opened by a key that is checked for all of the range.
    Range {
        /// The key and the whole range.
        whole: KeyUse,
        /// Bytes of it that have been used.
        offset: u64,
    },
}

/// Which side of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Source,
    Target,
}

/// The next bytes of a side that lie in one piece.
enum Piece<'a, H: Host> {
    Private(&'a [u8]),
    Packet {
        packet: &'a H::Packet,
        offset: usize,
    },
    Memory {
        region: &'a H::Region,
        offset: u64,
    },
}

impl<H: Host> Side<'_, H> {
    /// The next piece, and how many of `at_most` bytes it has; `None` if the key check forbids it
    /// or the side is at its end.
    #[inline]
    fn piece<'b>(&'b mut self, keys: &'b Keys<H>, at_most: u32) -> Option<(Piece<'b, H>, u32)> {
        match self {
            Side::Inline(bytes) => {
                let length = bytes.len().min(at_most as usize);
                let piece = bytes.get(..length)?;
                (length != 0).then_some((Piece::Private(piece), length as u32))
            }
            // Whoever copies out of a packet knows how many bytes it has.
            Side::Packet { packet, offset } => {
                let offset = *offset;
                Some((Piece::Packet { packet, offset }, at_most))
            }
            Side::List {
                pd,
                need,
                entries,
                cursor,
            } => loop {
                let entry = entries.get(cursor.entry)?;
                let rest = entry.length.get().wrapping_sub(cursor.offset);
                if rest == 0 {
                    // Entries without bytes, also in the middle of a list, open nothing.
                    cursor.entry = cursor.entry.wrapping_add(1);
                    cursor.offset = 0;
                    continue;
                }
                let length = rest.min(at_most);
                let (region, offset) = keys
                    .check(&KeyUse {
                        pd: *pd,
                        key: entry.lkey.get(),
                        need: *need,
                        addr: entry.addr.get().checked_add(u64::from(cursor.offset))?,
                        length: u64::from(length),
                        peer_of: None,
                    })
                    .ok()?;
                break Some((Piece::Memory { region, offset }, length));
            },
            Side::Range { whole, offset } => {
                let (region, start) = keys.check(whole).ok()?;
                let rest = whole.length.checked_sub(*offset)?;
                let length = rest.min(u64::from(at_most)) as u32;
                let offset = start.checked_add(*offset)?;
                (length != 0).then_some((Piece::Memory { region, offset }, length))
            }
        }
    }

    /// Goes on by `length` bytes, of the piece that was answered last.
    #[inline]
    fn advance(&mut self, length: u32) {
        match self {
            Side::Inline(bytes) => *bytes = bytes.get(length as usize..).unwrap_or(&[]),
            Side::Packet { offset, .. } => *offset = offset.wrapping_add(length as usize),
            Side::List { cursor, .. } => cursor.offset = cursor.offset.wrapping_add(length),
            Side::Range { offset, .. } => *offset = offset.wrapping_add(u64::from(length)),
        }
    }
}

/// Copies `length` bytes, once, from where they lie to where they belong.
///
/// # Errors
///
/// The side that could not be reached. Bytes before the one in question may have been copied.
pub(crate) fn copy<H: Host>(
    keys: &Keys<H>,
    source: &mut Side<'_, H>,
    target: &mut Side<'_, H>,
    length: u32,
) -> Result<(), Unreachable> {
    let mut left = length;
    while left != 0 {
        let (from, at_most) = source.piece(keys, left).ok_or(Unreachable::Source)?;
        let (to, length) = target.piece(keys, at_most).ok_or(Unreachable::Target)?;
        let Piece::Memory {
            region: to,
            offset: to_offset,
        } = to
        else {
            return Err(Unreachable::Target);
        };
        match from {
            Piece::Private(bytes) => {
                let bytes = bytes.get(..length as usize).ok_or(Unreachable::Source)?;
                to.write(to_offset, bytes)
                    .map_err(|_| Unreachable::Target)?;
            }
            Piece::Packet { packet, offset } => {
                packet
                    .copy(offset, to, to_offset, length as usize)
                    .map_err(|_| Unreachable::Target)?;
            }
            Piece::Memory {
                region: from,
                offset: from_offset,
            } => {
                // Which of the two failed is not told; the key check allowed both.
                H::Region::copy(from, from_offset, to, to_offset, length as usize)
                    .map_err(|_| Unreachable::Target)?;
            }
        }
        source.advance(length);
        target.advance(length);
        left = left.wrapping_sub(length);
    }
    Ok(())
}

/// Copies bytes, once, from where they lie to private memory.
///
/// # Errors
///
/// [`Fault`] if they cannot be read; some may have been copied.
pub(crate) fn gather<H: Host>(
    keys: &Keys<H>,
    source: &mut Side<'_, H>,
    mut to: &mut [u8],
) -> Result<(), Fault> {
    while !to.is_empty() {
        let at_most = u32::try_from(to.len()).map_err(|_| Fault)?;
        let (from, length) = source.piece(keys, at_most).ok_or(Fault)?;
        let (now, later) = core::mem::take(&mut to)
            .split_at_mut_checked(length as usize)
            .ok_or(Fault)?;
        match from {
            Piece::Private(bytes) => now.copy_from_slice(bytes.get(..now.len()).ok_or(Fault)?),
            Piece::Memory { region, offset } => region.read(offset, now)?,
            // Packets are not forwarded.
            Piece::Packet { .. } => return Err(Fault),
        }
        source.advance(length);
        to = later;
    }
    Ok(())
}

/// Whether all of a list may be used so.
pub(crate) fn check_list<H: Host>(
    keys: &Keys<H>,
    pd: u32,
    need: Access,
    entries: &[abi::Sge],
) -> bool {
    entries.iter().all(|entry| {
        entry.length.get() == 0
            || keys
                .check(&KeyUse {
                    pd,
                    key: entry.lkey.get(),
                    need,
                    addr: entry.addr.get(),
                    length: u64::from(entry.length.get()),
                    peer_of: None,
                })
                .is_ok()
    })
}
