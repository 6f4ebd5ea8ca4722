// SPDX-License-Identifier: GPL-2.0

//! Where bytes come from and where they go, and the copy between the two.

use crate::{
    base::{
        abi,
        attr::Access,
        host::{
            Fault,
            Host,
            Packet,
            Region,
            Sink, //
        },
    },
    memory::{
        key::Keys,
        key_use::KeyUse, //
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

/// Bytes in fragments, as one side of a copy has them.
///
/// A copy whose sides are of known kinds has no kinds to tell apart, fragment by fragment.
pub(crate) trait Fragments<H: Host> {
    /// The next fragment, and how many of `at_most` bytes it has; `None` if the key check forbids it
    /// or the side is at its end.
    fn fragment<'b>(
        &'b mut self,
        keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)>;

    /// Goes on by `length` bytes, of the fragment that was answered last.
    fn advance(&mut self, length: u32);
}

/// The next bytes of a side that lie in one fragment.
pub(crate) enum Fragment<'a, H: Host> {
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

/// Inline data of a request, or whatever else is not shared, of which the first bytes have been used.
pub(crate) struct PrivateBytes<'a>(pub(crate) &'a [u8]);

impl<H: Host> Fragments<H> for PrivateBytes<'_> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        _keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        let length = self.0.len().min(at_most as usize);
        let fragment = self.0.get(..length)?;
        (length != 0).then_some((Fragment::Private(fragment), length as u32))
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.0 = self.0.get(length as usize..).unwrap_or(&[]);
    }
}

/// The payload of a packet that was received.
pub(crate) struct InPacket<'a, H: Host> {
    pub(crate) packet: &'a H::Packet,
    /// Where it goes on: bytes from the base transport header on.
    pub(crate) offset: usize,
}

impl<H: Host> Fragments<H> for InPacket<'_, H> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        _keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        // Whoever copies out of a packet knows how many bytes it has.
        let InPacket { packet, offset } = *self;
        Some((Fragment::Packet { packet, offset }, at_most))
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.offset = self.offset.wrapping_add(length as usize);
    }
}

/// A scatter/gather list.
pub(crate) struct Sgl<'a> {
    pub(crate) pd: u32,
    pub(crate) need: Access,
    pub(crate) entries: &'a [abi::Sge],
    pub(crate) cursor: &'a mut Cursor,
}

impl<H: Host> Fragments<H> for Sgl<'_> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        loop {
            let entry = self.entries.get(self.cursor.entry)?;
            let rest = entry.length.get().wrapping_sub(self.cursor.offset);
            if rest == 0 {
                // Entries without bytes, also in the middle of a list, open nothing.
                self.cursor.entry = self.cursor.entry.wrapping_add(1);
                self.cursor.offset = 0;
                continue;
            }
            let length = rest.min(at_most);
            let first = u64::from(self.cursor.offset);
            let (region, offset) = keys
                .check_local(&KeyUse {
                    pd: self.pd,
                    key: entry.lkey.get(),
                    need: self.need,
                    addr: entry.addr.get().checked_add(first)?,
                    length: u64::from(length),
                    peer_of: None,
                })
                .ok()?;
            break Some((Fragment::Memory { region, offset }, length));
        }
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.cursor.offset = self.cursor.offset.wrapping_add(length);
    }
}

/// Memory of a peer, which a key has opened. It stays as long as nobody else has the keys.
pub(crate) struct Memory<'a, H: Host> {
    /// None where there are no bytes.
    region: Option<&'a H::Region>,
    /// The bytes from there on, and how many there are.
    offset: u64,
    left: u32,
}

impl<'a, H: Host> Memory<'a, H> {
    /// The peer's memory that a key opens, from the byte `offset` of the use on. The key is checked
    /// for all of the use, but for one of no bytes, which checks no key (IBA volume 1, C9-88).
    #[inline(always)]
    pub(crate) fn opened(keys: &'a Keys<H>, whole: &KeyUse, offset: u32) -> Option<Self> {
        if whole.length == 0 {
            return Some(Memory {
                region: None,
                offset: 0,
                left: 0,
            });
        }
        let (region, start) = keys.check(whole).ok()?;
        Some(Memory {
            region: Some(region),
            offset: start.wrapping_add(offset.into()),
            left: (whole.length as u32).saturating_sub(offset),
        })
    }
}

impl<H: Host> Fragments<H> for Memory<'_, H> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        _keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        let length = at_most.min(self.left);
        let (region, offset) = (self.region?, self.offset);
        (length != 0).then_some((Fragment::Memory { region, offset }, length))
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.offset = self.offset.wrapping_add(u64::from(length));
        self.left = self.left.wrapping_sub(length);
    }
}

/// One side of a copy, of a kind that shows when it is made.
pub(crate) enum Side<'a, H: Host> {
    Private(PrivateBytes<'a>),
    Packet(InPacket<'a, H>),
    List(Sgl<'a>),
    Memory(Memory<'a, H>),
}

impl<H: Host> Fragments<H> for Side<'_, H> {
    #[inline]
    fn fragment<'b>(
        &'b mut self,
        keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        match self {
            Side::Private(bytes) => bytes.fragment(keys, at_most),
            Side::Packet(packet) => packet.fragment(keys, at_most),
            Side::List(list) => list.fragment(keys, at_most),
            Side::Memory(memory) => memory.fragment(keys, at_most),
        }
    }

    #[inline]
    fn advance(&mut self, length: u32) {
        match self {
            Side::Private(bytes) => Fragments::<H>::advance(bytes, length),
            Side::Packet(packet) => packet.advance(length),
            Side::List(list) => Fragments::<H>::advance(list, length),
            Side::Memory(memory) => memory.advance(length),
        }
    }
}

/// Which side of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Source,
    Target,
}

/// Copies `length` bytes, once, from where they lie to where they belong.
///
/// # Errors
///
/// The side that could not be reached. Bytes before the one in question may have been copied.
#[inline(always)]
pub(crate) fn copy<H: Host>(
    keys: &Keys<H>,
    source: &mut impl Fragments<H>,
    target: &mut impl Fragments<H>,
    length: u32,
) -> Result<(), Unreachable> {
    let mut left = length;
    while left != 0 {
        left = left.wrapping_sub(copy_fragment(keys, source, target, left)?);
    }
    Ok(())
}

/// Copies what lies in one fragment on both sides, `at_most` so many bytes, and answers how many it was.
#[inline(always)]
fn copy_fragment<H: Host>(
    keys: &Keys<H>,
    source: &mut impl Fragments<H>,
    target: &mut impl Fragments<H>,
    at_most: u32,
) -> Result<u32, Unreachable> {
    let Some((from, at_most)) = source.fragment(keys, at_most) else {
        return Err(Unreachable::Source);
    };
    let Some((
        Fragment::Memory {
            region: to,
            offset: to_offset,
        },
        length,
    )) = target.fragment(keys, at_most)
    else {
        return Err(Unreachable::Target);
    };
    // Which of the two sides failed is not told; the key check allowed both.
    let copied = match from {
        Fragment::Private(bytes) => {
            let bytes = bytes.get(..length as usize).ok_or(Unreachable::Source)?;
            to.write(to_offset, bytes)
        }
        Fragment::Packet { packet, offset } => packet.copy(offset, to, to_offset, length as usize),
        Fragment::Memory {
            region: from,
            offset: from_offset,
        } => H::Region::copy(from, from_offset, to, to_offset, length as usize),
    };
    copied.map_err(|_| Unreachable::Target)?;
    source.advance(length);
    target.advance(length);
    Ok(length)
}

/// Copies `length` bytes, once, from where they lie into a packet.
///
/// # Errors
///
/// [`Fault`] if they cannot be read, or there is no room for them; some may have been copied.
pub(crate) fn gather<H: Host>(
    keys: &Keys<H>,
    source: &mut impl Fragments<H>,
    to: &mut impl Sink<H::Region>,
    length: u32,
) -> Result<(), Fault> {
    let mut left = length;
    while left != 0 {
        let (from, length) = source.fragment(keys, left).ok_or(Fault)?;
        match from {
            Fragment::Private(bytes) => to.put(bytes.get(..length as usize).ok_or(Fault)?)?,
            Fragment::Memory { region, offset } => {
                to.put_memory(region, offset, length as usize)?
            }
            // Packets are not forwarded.
            Fragment::Packet { .. } => return Err(Fault),
        }
        source.advance(length);
        left = left.wrapping_sub(length);
    }
    Ok(())
}

/// Whether all of a list may be used so.
#[inline(always)]
pub(crate) fn check_list<H: Host>(
    keys: &Keys<H>,
    pd: u32,
    need: Access,
    entries: &[abi::Sge],
) -> bool {
    entries.iter().all(|entry| {
        entry.length.get() == 0
            || keys
                .check_local(&KeyUse {
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
