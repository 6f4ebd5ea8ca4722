// SPDX-License-Identifier: GPL-2.0

//! Where bytes come from and where they go.

use crate::{
    base::{
        abi,
        attr::Access,
        host::Host, //
    },
    memory::{
        key::Keys,
        key_use::{
            KeyUse,
            Piece, //
        },
    },
};

/// Bytes in fragments, as one side of a copy has them.
///
/// A copy whose sides are of known kinds has no kinds to tell apart, fragment by fragment.
pub(crate) trait Fragments<H: Host> {
    /// The next fragment, and how many of `at_most` bytes it has; `None` if the key check forbids
    /// it or the side is at its end.
    fn fragment<'b>(
        &'b mut self,
        keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)>;

    /// Goes on by `length` bytes, of the fragment that was returned last.
    fn advance(&mut self, length: u32);

    /// The same side, of a kind that shows.
    fn side(&self) -> Side<'_, H>;
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
        /// The key that has opened it.
        key: u32,
    },
}

/// Inline data of a request, or other bytes that are not shared, of which the first have been used.
#[derive(Clone, Copy)]
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

    fn side(&self) -> Side<'_, H> {
        Side::Private(*self)
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
        // The code that copies out of a packet knows how many bytes it has.
        let InPacket { packet, offset } = *self;
        Some((Fragment::Packet { packet, offset }, at_most))
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.offset = self.offset.wrapping_add(length as usize);
    }

    fn side(&self) -> Side<'_, H> {
        Side::Packet(*self)
    }
}

impl<H: Host> Clone for InPacket<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for InPacket<'_, H> {}

/// A scatter/gather list, of which the first bytes have been used.
#[derive(Clone, Copy)]
pub(crate) struct Sgl<'a> {
    pd: u32,
    need: Access,
    /// The entry that is used next, and those behind it.
    entries: &'a [abi::Sge],
    /// The bytes of that entry that have been used.
    used: u32,
}

impl<'a> Sgl<'a> {
    /// The list from the byte `offset` on.
    #[inline(always)]
    pub(crate) fn at(pd: u32, need: Access, entries: &'a [abi::Sge], offset: u32) -> Self {
        let mut list = Self {
            pd,
            need,
            entries,
            used: offset,
        };
        while let [entry, rest @ ..] = list.entries {
            let Some(used) = list.used.checked_sub(entry.length.get()) else {
                break;
            };
            list.entries = rest;
            list.used = used;
        }
        list
    }

    /// The memory of the next `length` bytes, if the next entry has them all.
    #[inline(always)]
    pub(crate) fn piece<'k, H: Host>(
        &self,
        keys: &'k Keys<H>,
        length: u32,
    ) -> Option<Piece<'k, H>> {
        let [entry, ..] = self.entries else {
            return None;
        };
        let left = entry.length.get().wrapping_sub(self.used);
        if length > left {
            return None;
        }
        let (region, offset) = self.open(keys, entry, length)?;
        Some(Piece {
            region,
            offset,
            key: entry.lkey.get(),
        })
    }

    /// The memory of the next `length` bytes, which `entry` has. `None` if the key check forbids
    /// it.
    #[inline(always)]
    fn open<'k, H: Host>(
        &self,
        keys: &'k Keys<H>,
        entry: &abi::Sge,
        length: u32,
    ) -> Option<(&'k H::Region, u64)> {
        keys.check_region(&KeyUse {
            pd: self.pd,
            key: entry.lkey.get(),
            need: self.need,
            addr: entry.addr.get().checked_add(self.used.into())?,
            length: u64::from(length),
            peer_of: None,
        })
        .ok()
    }
}

impl<H: Host> Fragments<H> for Sgl<'_> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        loop {
            let [entry, rest @ ..] = self.entries else {
                break None;
            };
            let left = entry.length.get().wrapping_sub(self.used);
            if left == 0 {
                // Entries without bytes, also in the middle of a list, open nothing.
                self.entries = rest;
                self.used = 0;
                continue;
            }
            let length = left.min(at_most);
            let (region, offset) = self.open(keys, entry, length)?;
            let fragment = Fragment::Memory {
                region,
                offset,
                key: entry.lkey.get(),
            };
            break Some((fragment, length));
        }
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.used = self.used.wrapping_add(length);
    }

    fn side(&self) -> Side<'_, H> {
        Side::List(*self)
    }
}

/// Memory of a peer, which a key has opened. It stays as long as nobody else has the keys.
pub(crate) struct OpenedMemory<'a, H: Host> {
    /// None where there are no bytes.
    region: Option<&'a H::Region>,
    key: u32,
    /// The bytes from there on, and how many there are.
    offset: u64,
    left: u32,
}

impl<H: Host> Clone for OpenedMemory<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for OpenedMemory<'_, H> {}

impl<'a, H: Host> OpenedMemory<'a, H> {
    /// The peer's memory that a key opens, from the byte `offset` of the use on. The key is checked
    /// for all of the use, but for one of no bytes, which checks no key (IBA volume 1, C9-88).
    #[inline(always)]
    pub(crate) fn opened(keys: &'a Keys<H>, whole: &KeyUse, offset: u32) -> Option<Self> {
        if whole.length == 0 {
            return Some(OpenedMemory {
                region: None,
                key: 0,
                offset: 0,
                left: 0,
            });
        }
        let (region, start) = keys.check(whole).ok()?;
        Some(OpenedMemory {
            region: Some(region),
            key: whole.key,
            offset: start.wrapping_add(offset.into()),
            left: (whole.length as u32).saturating_sub(offset),
        })
    }

    /// The memory of the next `length` bytes, if there are so many.
    #[inline(always)]
    pub(crate) fn piece(&self, length: u32) -> Option<Piece<'a, H>> {
        let region = self.region?;
        (length <= self.left).then_some(Piece {
            region,
            offset: self.offset,
            key: self.key,
        })
    }
}

impl<H: Host> Fragments<H> for OpenedMemory<'_, H> {
    #[inline(always)]
    fn fragment<'b>(
        &'b mut self,
        _keys: &'b Keys<H>,
        at_most: u32,
    ) -> Option<(Fragment<'b, H>, u32)> {
        let length = at_most.min(self.left);
        let fragment = Fragment::Memory {
            region: self.region?,
            offset: self.offset,
            key: self.key,
        };
        (length != 0).then_some((fragment, length))
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.offset = self.offset.wrapping_add(u64::from(length));
        self.left = self.left.wrapping_sub(length);
    }

    fn side(&self) -> Side<'_, H> {
        Side::Memory(*self)
    }
}

/// One side of a copy, of a kind that shows when it is made.
pub(crate) enum Side<'a, H: Host> {
    Private(PrivateBytes<'a>),
    Packet(InPacket<'a, H>),
    List(Sgl<'a>),
    Memory(OpenedMemory<'a, H>),
}

impl<H: Host> Clone for Side<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Side<'_, H> {}

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

    fn side(&self) -> Side<'_, H> {
        *self
    }
}
