// SPDX-License-Identifier: GPL-2.0

//! The copy from where bytes lie to where they belong.

use crate::{
    base::host::{
        Fault,
        Host,
        PacketBytes,
        Presence,
        Region,
        Sink, //
    },
    memory::{
        key::Keys,
        key_use::Piece,
        sgl::{
            Fragment,
            Fragments,
            Side, //
        },
    },
};

/// The side of a copy that could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Source,
    Target,
    /// The bytes of the source are not in memory at present, and are being brought there. So are
    /// those of the target.
    SourceAbsent,
    /// The bytes of the target are not in memory at present, and are being brought there.
    TargetAbsent,
    /// None: a job copies the bytes ([`outside`](crate::memory::outside)).
    Later,
}

/// A way for the bytes of a segment. The responder judges the segment, and does not know which way
/// it is.
pub(crate) trait CopyWay<H: Host> {
    /// Copies `length` bytes that lie in one piece on both sides, or sees to it that they are
    /// copied.
    ///
    /// # Errors
    ///
    /// Those of [`CopyWay::copy`]. But for [`Unreachable::Later`], that function is to copy the
    /// bytes then, and it says why it cannot.
    fn copy_piece(
        &mut self,
        keys: &Keys<H>,
        source: Piece<'_, H>,
        target: Piece<'_, H>,
        length: u32,
    ) -> Result<(), Unreachable>;

    /// Copies `length` bytes, or sees to it that they are copied.
    ///
    /// # Errors
    ///
    /// As [`copy`]; and [`Unreachable::Later`]: a job copies the bytes, and the segment is to be
    /// judged again when it has been carried out.
    fn copy(
        &mut self,
        keys: &Keys<H>,
        source: Side<'_, H>,
        target: Side<'_, H>,
        length: u32,
    ) -> Result<(), Unreachable>;
}

/// The bytes are copied at once.
pub(crate) struct AtOnce;

impl<H: Host> CopyWay<H> for AtOnce {
    #[inline(always)]
    fn copy_piece(
        &mut self,
        _keys: &Keys<H>,
        source: Piece<'_, H>,
        target: Piece<'_, H>,
        length: u32,
    ) -> Result<(), Unreachable> {
        let (from, to) = (source.region, target.region);
        // It does not tell which of the two sides failed.
        H::Region::copy(from, source.offset, to, target.offset, length as usize)
            .map_err(|_| Unreachable::Target)
    }

    #[inline(always)]
    fn copy(
        &mut self,
        keys: &Keys<H>,
        source: Side<'_, H>,
        target: Side<'_, H>,
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
    copy_rest(keys, source.side(), target.side(), length, copied)
}

/// Goes on with a copy of more than one fragment, of which `copied` bytes are done. The same
/// function for all kinds of sides.
#[inline(never)]
fn copy_rest<H: Host>(
    keys: &Keys<H>,
    mut source: Side<'_, H>,
    mut target: Side<'_, H>,
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

/// Copies what lies in one fragment on both sides, `at_most` so many bytes, and returns how many it
/// was.
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
    // The host does not tell which of the two sides failed; the key check allowed both. It may be
    // that one is absent.
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
                        return Err(Unreachable::SourceAbsent);
                    }
                }
            }
            copied
        }
    };
    if copied.is_err() {
        return Err(
            match to.page_in(to_offset, length.into(), true, keys.asker) {
                Presence::Coming => Unreachable::TargetAbsent,
                Presence::Present | Presence::Gone => Unreachable::Target,
            },
        );
    }
    Ok(length)
}

/// Whether `length` bytes are in memory, to be written. Where they are not, the host brings them
/// there.
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

/// Copies `length` bytes, once, from where they lie into a packet. `is_absent` becomes `true` if
/// they are not in memory at present.
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
