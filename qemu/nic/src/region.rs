// SPDX-License-Identifier: GPL-2.0

//! Memory regions, as the engine reaches them.

use std::borrow::Cow;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use ferrule_engine::host;
use ferrule_engine::{Asker, Fault, Presence, Unshared};

use crate::fast::Fast;
use crate::interface::mr_flag;
use crate::mapping::Mapping;
use crate::memory::Memory;
use crate::pages::{Pages, Walk};
use crate::pinned::Pinned;

/// The bytes of a memory region.
#[derive(Debug)]
pub(crate) struct Region {
    bytes: Bytes,
    /// The guest lets them be written.
    writable: bool,
}

#[derive(Debug)]
enum Bytes {
    /// Pages that a list has named.
    Pages(Pages),
    /// All of the guest's memory by its own addresses, as it is mapped at each access.
    All(Arc<Memory>),
    /// The memory that a request has registered.
    Fast(Fast),
}

/// Bytes in one piece: the memory that they are part of, where they begin there, and how many.
type Span<'a> = (Cow<'a, Pinned>, u64, u64);

/// Keeps earlier reads and writes of regions ahead of later ones, as the guest sees them. On x86 it
/// is no instruction.
#[inline]
fn in_order() {
    fence(Ordering::AcqRel);
}

/// [`Region::span`] of pages.
#[inline]
fn pages_span(pages: &Pages, at: u64, most: u64) -> Result<Span<'_>, Fault> {
    let (pinned, offset, left) = pages.piece(at).ok_or(Fault)?;
    Ok((Cow::Borrowed(pinned), offset, left.min(most)))
}

impl Region {
    /// The bytes of pages.
    pub(crate) fn pages(pages: Pages, writable: bool) -> Self {
        let bytes = Bytes::Pages(pages);
        Self { bytes, writable }
    }

    /// All of a guest's memory.
    pub(crate) fn all(memory: &Arc<Memory>, writable: bool) -> Self {
        let bytes = Bytes::All(Arc::clone(memory));
        Self { bytes, writable }
    }

    /// Memory that requests register. They tell its rights.
    pub(crate) fn fast(fast: Fast) -> Self {
        let bytes = Bytes::Fast(fast);
        Self {
            bytes,
            writable: true,
        }
    }

    /// The kind of this memory: bits of [`mr_flag`].
    pub(crate) fn flags(&self) -> u32 {
        let writable = match self.writable {
            true => mr_flag::WRITABLE,
            false => 0,
        };
        match &self.bytes {
            Bytes::Pages(_) => writable,
            Bytes::All(_) => writable | mr_flag::ALL,
            Bytes::Fast(_) => writable | mr_flag::FAST,
        }
    }

    /// The pieces in which the bytes lie. Of all the guest's memory nobody counts them.
    pub(crate) fn extents(&self) -> u32 {
        match &self.bytes {
            Bytes::Pages(pages) => pages.count(),
            Bytes::All(_) | Bytes::Fast(_) => 0,
        }
    }

    /// The mapping and the offset there of bytes that lie in one piece, if they are of pages.
    #[inline]
    fn place(&self, at: u64, length: u64) -> Option<(&Mapping, u64)> {
        match &self.bytes {
            Bytes::Pages(pages) => pages.place(at, length),
            Bytes::Fast(fast) => fast.pages()?.place(at, length),
            Bytes::All(_) => None,
        }
    }

    /// The pieces from `at` on, if they are of pages.
    #[inline]
    fn walk(&self, at: u64) -> Option<Walk<'_>> {
        match &self.bytes {
            Bytes::Pages(pages) => pages.walk(at),
            Bytes::Fast(fast) => fast.pages()?.walk(at),
            Bytes::All(_) => None,
        }
    }

    /// Bytes from `at` on that lie in one piece, at most `most`: where they are, and how many.
    #[inline]
    fn span(&self, at: u64, most: u64) -> Result<Span<'_>, Fault> {
        match &self.bytes {
            Bytes::Pages(pages) => pages_span(pages, at, most),
            Bytes::All(memory) => {
                let pinned = memory.pin_some(at, most).map_err(|_| Fault)?;
                let length = pinned.length();
                Ok((Cow::Owned(pinned), 0, length))
            }
            Bytes::Fast(fast) => pages_span(fast.pages().ok_or(Fault)?, at, most),
        }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    ///
    /// [`Fault`] if one cannot be read; some may have been copied then.
    pub(crate) fn read(&self, mut offset: u64, mut into: &mut [u8]) -> Result<(), Fault> {
        in_order();
        while !into.is_empty() {
            let (pinned, at, count) = self.span(offset, into.len() as u64)?;
            let count = usize::try_from(count).map_err(|_| Fault)?;
            let (head, rest) = into.split_at_mut_checked(count).ok_or(Fault)?;
            if !pinned.read(at, head) {
                return Err(Fault);
            }
            offset = offset.checked_add(head.len() as u64).ok_or(Fault)?;
            into = rest;
        }
        Ok(())
    }

    /// Whether all of the bytes can be reached.
    fn is_reached(&self, mut offset: u64, mut length: u64) -> bool {
        while length != 0 {
            let Ok((pinned, at, count)) = self.span(offset, length) else {
                return false;
            };
            if pinned.place(at, count).is_none() {
                return false;
            }
            offset = offset.saturating_add(count);
            length = length.saturating_sub(count);
        }
        true
    }

    /// The word at `at`, to be written by an atomic operation.
    fn atomic(&self, at: u64, f: impl FnOnce(&Mapping, u64) -> Option<u64>) -> Result<u64, Fault> {
        let (pinned, offset, left) = self.span(at, 8)?;
        if !self.writable || left < 8 {
            return Err(Fault);
        }
        let (mapping, offset) = pinned.place(offset, 8).ok_or(Fault)?;
        f(mapping, offset).ok_or(Fault)
    }
}

/// Copies bytes that do not lie in one piece on either side.
fn copy_pieces(
    (from, from_offset): (&Region, u64),
    (to, to_offset): (&Region, u64),
    length: u64,
) -> Result<(), Fault> {
    let mut left = length;
    let (mut from_offset, mut to_offset) = (from_offset, to_offset);
    from_offset.checked_add(left).ok_or(Fault)?;
    to_offset.checked_add(left).ok_or(Fault)?;
    // Whether the two are the same memory does not matter: if they are not, any order does.
    if to_offset > from_offset && to_offset.saturating_sub(from_offset) < left {
        return copy_backwards((from, from_offset), (to, to_offset), left);
    }
    if let (Some(from), Some(to)) = (from.walk(from_offset), to.walk(to_offset)) {
        return copy_walks(from, to, length);
    }
    while left != 0 {
        let count = copy_piece((from, from_offset), (to, to_offset), left, false)?;
        from_offset = from_offset.saturating_add(count);
        to_offset = to_offset.saturating_add(count);
        left = left.saturating_sub(count);
    }
    Ok(())
}

/// Copies bytes of pages, piece by piece.
fn copy_walks(mut from: Walk<'_>, mut to: Walk<'_>, length: u64) -> Result<(), Fault> {
    let mut left = length;
    while left != 0 {
        let (source, source_offset, some) = from.piece().ok_or(Fault)?;
        let (target, target_offset, count) = to.piece().ok_or(Fault)?;
        let count = count.min(some).min(left);
        copy_pinned((source, source_offset), (target, target_offset), count)?;
        from.advance(count);
        to.advance(count);
        left = left.saturating_sub(count);
    }
    Ok(())
}

/// Copies as many of the first bytes as lie in one piece on either side, at most `most`, unless it
/// is only `asked` how many these are.
#[inline]
fn copy_piece(
    (from, from_offset): (&Region, u64),
    (to, to_offset): (&Region, u64),
    most: u64,
    asked: bool,
) -> Result<u64, Fault> {
    let (source, source_offset, count) = from.span(from_offset, most)?;
    let (target, target_offset, count) = to.span(to_offset, count)?;
    if asked {
        return Ok(count);
    }
    copy_pinned((&source, source_offset), (&target, target_offset), count)?;
    Ok(count)
}

/// Copies so many bytes, which lie in one piece on either side.
#[inline]
fn copy_pinned(
    (from, from_offset): (&Pinned, u64),
    (to, to_offset): (&Pinned, u64),
    count: u64,
) -> Result<(), Fault> {
    let (source, source_offset) = from.place(from_offset, count).ok_or(Fault)?;
    let (target, target_offset) = to.place(to_offset, count).ok_or(Fault)?;
    let bytes = usize::try_from(count).map_err(|_| Fault)?;
    Mapping::copy(source, source_offset, target, target_offset, bytes)
        .then_some(())
        .ok_or(Fault)
}

/// Copies bytes to where some of them are read from: the last piece goes first.
#[cold]
fn copy_backwards(
    (from, from_offset): (&Region, u64),
    (to, to_offset): (&Region, u64),
    length: u64,
) -> Result<(), Fault> {
    let at = |done: u64| {
        let from = (from, from_offset.saturating_add(done));
        (from, (to, to_offset.saturating_add(done)))
    };
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < length {
        let (from, to) = at(done);
        let count = copy_piece(from, to, length.saturating_sub(done), true)?;
        pieces.push((done, count));
        done = done.saturating_add(count);
    }
    for (begin, count) in pieces.into_iter().rev() {
        let (from, to) = at(begin);
        copy_piece(from, to, count, false)?;
    }
    Ok(())
}

impl host::Region for Region {
    /// The process has one thread for the engine.
    type Shared = Unshared;

    fn share(&self, _write: bool) -> Option<Unshared> {
        None
    }

    #[inline]
    fn write(&self, mut offset: u64, mut from: &[u8]) -> Result<(), Fault> {
        if !self.writable {
            return Err(Fault);
        }
        in_order();
        if let Some((mapping, at)) = self.place(offset, from.len() as u64) {
            return mapping.write(at, from).then_some(()).ok_or(Fault);
        }
        while !from.is_empty() {
            let (pinned, at, count) = self.span(offset, from.len() as u64)?;
            let count = usize::try_from(count).map_err(|_| Fault)?;
            let (head, rest) = from.split_at_checked(count).ok_or(Fault)?;
            if !pinned.write(at, head) {
                return Err(Fault);
            }
            offset = offset.checked_add(head.len() as u64).ok_or(Fault)?;
            from = rest;
        }
        Ok(())
    }

    #[inline]
    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        if !to.writable {
            return Err(Fault);
        }
        in_order();
        let bytes = length as u64;
        if let Some((source, source_offset)) = from.place(from_offset, bytes) {
            if let Some((target, target_offset)) = to.place(to_offset, bytes) {
                return Mapping::copy(source, source_offset, target, target_offset, length)
                    .then_some(())
                    .ok_or(Fault);
            }
        }
        copy_pieces((from, from_offset), (to, to_offset), bytes)
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.atomic(offset, |mapping, at| {
            mapping.compare_swap(at, compare, swap)
        })
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        self.atomic(offset, |mapping, at| mapping.fetch_add(at, add))
    }

    fn store_word(&self, offset: u64, value: u64) -> Result<(), Fault> {
        let stored = self.atomic(offset, |mapping, at| {
            mapping.store_word(at, value).map(|()| value)
        });
        stored.map(|_| ())
    }

    /// Memory that the guest has given back does not come again, so the side that it belongs to is
    /// to blame.
    #[cold]
    fn page_in(&self, offset: u64, length: u64, _write: bool, _asker: Asker) -> Presence {
        match self.is_reached(offset, length) {
            true => Presence::Present,
            false => Presence::Gone,
        }
    }

    fn renew(&mut self) -> Option<u64> {
        match &mut self.bytes {
            Bytes::Fast(fast) => fast.renew(),
            Bytes::Pages(_) | Bytes::All(_) => None,
        }
    }

    fn pieces(&self) -> u32 {
        match &self.bytes {
            Bytes::Fast(fast) => fast.pieces(),
            Bytes::Pages(_) | Bytes::All(_) => 0,
        }
    }
}
