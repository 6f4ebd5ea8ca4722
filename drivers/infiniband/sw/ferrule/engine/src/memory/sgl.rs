// SPDX-License-Identifier: GPL-2.0

//! Where bytes come from and where they go, and the copy between the two.

use crate::{
    base::{
        abi,
        attr::Access,
        host::{
            Fault,
            Host,
            PacketBytes,
            Presence,
            Region,
            Sink, //
        },
    },
    memory::{
        key::Keys,
        key_use::KeyUse, //
    },
};

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

    /// Goes on by `length` bytes, of the fragment that was returned last.
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
            let key = entry.lkey.get();
            let (region, offset) = keys
                .check_region(&KeyUse {
                    pd: self.pd,
                    key,
                    need: self.need,
                    addr: entry.addr.get().checked_add(self.used.into())?,
                    length: u64::from(length),
                    peer_of: None,
                })
                .ok()?;
            let fragment = Fragment::Memory {
                region,
                offset,
                key,
            };
            break Some((fragment, length));
        }
    }

    #[inline(always)]
    fn advance(&mut self, length: u32) {
        self.used = self.used.wrapping_add(length);
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
}

/// The side of a copy that could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Source,
    Target,
    /// Either: its bytes are not in memory at present, and are being brought there.
    Absent,
    /// None: a job copies the bytes ([`outside`](crate::memory::outside)).
    Later,
}

/// A way for the bytes of a segment. The responder judges the segment, and does not know which way it is.
pub(crate) trait CopyWay<H: Host> {
    /// Copies `length` bytes, or sees to it that they are copied.
    ///
    /// # Errors
    ///
    /// As [`copy`]; and [`Unreachable::Later`]: a job copies the bytes, and the segment is to be judged again when it has
    /// been carried out.
    fn copy(
        &mut self,
        keys: &Keys<H>,
        source: impl Fragments<H> + Copy,
        target: impl Fragments<H> + Copy,
        length: u32,
    ) -> Result<(), Unreachable>;
}

/// The bytes are copied at once.
pub(crate) struct AtOnce;

impl<H: Host> CopyWay<H> for AtOnce {
    #[inline(always)]
    fn copy(
        &mut self,
        keys: &Keys<H>,
        source: impl Fragments<H> + Copy,
        target: impl Fragments<H> + Copy,
        length: u32,
    ) -> Result<(), Unreachable> {
        copy(keys, source, target, length)
    }
}

/// Copies `length` bytes, once, from where they lie to where they belong.
///
/// # Errors
///
/// The side that could not be reached. Bytes before the one in question may have been copied.
#[inline(always)]
pub(crate) fn copy<H: Host>(
    keys: &Keys<H>,
    mut source: impl Fragments<H>,
    mut target: impl Fragments<H>,
    length: u32,
) -> Result<(), Unreachable> {
    if length == 0 {
        return Ok(());
    }
    let copied = copy_fragment(keys, &mut source, &mut target, length)?;
    // Most copies are of one fragment.
    if copied == length {
        return Ok(());
    }
    copy_rest(keys, source, target, length, copied)
}

/// Goes on with a copy of more than one fragment, of which `copied` bytes are done.
#[inline(never)]
fn copy_rest<H: Host>(
    keys: &Keys<H>,
    mut source: impl Fragments<H>,
    mut target: impl Fragments<H>,
    length: u32,
    mut copied: u32,
) -> Result<(), Unreachable> {
    let mut left = length;
    loop {
        source.advance(copied);
        target.advance(copied);
        left = left.wrapping_sub(copied);
        if left == 0 {
            return Ok(());
        }
        copied = copy_fragment(keys, &mut source, &mut target, left)?;
    }
}

/// Copies what lies in one fragment on both sides, `at_most` so many bytes, and returns how many it was.
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
            ..
        },
        length,
    )) = target.fragment(keys, at_most)
    else {
        return Err(Unreachable::Target);
    };
    // The host does not tell which of the two sides failed; the key check allowed both. It may be that one is absent.
    let copied = match from {
        Fragment::Private(bytes) => {
            let bytes = bytes.get(..length as usize).ok_or(Unreachable::Source)?;
            to.write(to_offset, bytes)
        }
        Fragment::Packet { packet, offset } => packet.copy(offset, to, to_offset, length as usize),
        Fragment::Memory {
            region: from,
            offset: from_offset,
            ..
        } => {
            let copied = H::Region::copy(from, from_offset, to, to_offset, length as usize);
            if copied.is_err() {
                match from.page_in(from_offset, length.into(), false, keys.asker) {
                    Presence::Present => (),
                    Presence::Gone => return Err(Unreachable::Source),
                    Presence::Coming => {
                        // Both sides are brought in at once.
                        to.page_in(to_offset, length.into(), true, keys.asker);
                        return Err(Unreachable::Absent);
                    }
                }
            }
            copied
        }
    };
    if copied.is_err() {
        return Err(
            match to.page_in(to_offset, length.into(), true, keys.asker) {
                Presence::Coming => Unreachable::Absent,
                Presence::Present | Presence::Gone => Unreachable::Target,
            },
        );
    }
    Ok(length)
}

/// Whether `length` bytes are in memory, to be written. Where they are not, the host brings them there.
#[cold]
pub(crate) fn page_in<H: Host>(
    keys: &Keys<H>,
    mut target: impl Fragments<H>,
    length: u32,
) -> Presence {
    let mut left = length;
    while left != 0 {
        // A side that cannot be reached at all fails with the copy.
        let Some((Fragment::Memory { region, offset, .. }, length)) = target.fragment(keys, left)
        else {
            return Presence::Present;
        };
        match region.page_in(offset, length.into(), true, keys.asker) {
            Presence::Present => (),
            absent => return absent,
        }
        target.advance(length);
        left = left.wrapping_sub(length);
    }
    Presence::Present
}

/// Copies `length` bytes, once, from where they lie into a packet. `is_absent` becomes `true` if they are not in memory at
/// present.
///
/// # Errors
///
/// [`Fault`] if they cannot be read, or there is no space for them; some may have been copied.
pub(crate) fn gather<H: Host>(
    keys: &Keys<H>,
    source: &mut impl Fragments<H>,
    to: &mut impl Sink<H::Region>,
    length: u32,
    is_absent: &mut bool,
) -> Result<(), Fault> {
    let mut left = length;
    while left != 0 {
        let (from, length) = source.fragment(keys, left).ok_or(Fault)?;
        match from {
            Fragment::Private(bytes) => to.put(bytes.get(..length as usize).ok_or(Fault)?)?,
            Fragment::Memory { region, offset, .. } => {
                if to.put_memory(region, offset, length as usize).is_err() {
                    let presence = region.page_in(offset, length.into(), false, keys.asker);
                    *is_absent = presence == Presence::Coming;
                    return Err(Fault);
                }
            }
            // Packets are not forwarded.
            Fragment::Packet { .. } => return Err(Fault),
        }
        source.advance(length);
        left = left.wrapping_sub(length);
    }
    Ok(())
}
