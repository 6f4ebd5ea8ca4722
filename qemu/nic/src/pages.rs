// SPDX-License-Identifier: GPL-2.0

//! Bytes that lie in pages of a guest's memory, as a page list names them: areas and memory
//! regions.
//!
//! A page list is read once, when an object is made, and the pages that it names stay pinned as
//! long as the object lives. How many pages it names is known beforehand, so a list in a circle has
//! an end as well.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::interface::{PageList, PAGE_SIZE};
use crate::mapping::Mapping;
use crate::memory::{Access, Memory};
use crate::pinned::{Charge, Pinned};

/// Bytes of a page.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// Words of a page of a list; the last is the address of the next one.
const WORDS: usize = PAGE_SIZE / size_of::<u64>();

/// Pages that follow each other in a range, as one piece.
#[derive(Debug)]
struct Piece {
    /// The bytes before it.
    start: u64,
    pinned: Pinned,
}

/// A way through pieces, from a byte on.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    pieces: &'a [Piece],
    /// The bytes of the first piece that lie behind.
    offset: u64,
}

impl<'a> Walk<'a> {
    /// The piece that has the next byte, where that is in it, and how many bytes from there on are.
    #[inline]
    pub(crate) fn piece(&self) -> Option<(&'a Pinned, u64, u64)> {
        let pinned = &self.pieces.first()?.pinned;
        let left = pinned.length().checked_sub(self.offset)?;
        Some((pinned, self.offset, left))
    }

    /// Goes on by so many bytes of that piece.
    #[inline]
    pub(crate) fn advance(&mut self, count: u64) {
        self.offset = self.offset.saturating_add(count);
        if let [piece, rest @ ..] = self.pieces {
            if self.offset >= piece.pinned.length() {
                self.pieces = rest;
                self.offset = 0;
            }
        }
    }
}

/// So many bytes of a guest's memory, in pieces.
#[derive(Debug)]
pub(crate) struct Pages {
    pieces: Vec<Piece>,
    length: u64,
    /// The two pieces that were found last. Rings and messages are gone through in order, so mostly
    /// one of them has the next bytes, too: the other one is where a message goes to that comes
    /// from the same region.
    found: [AtomicUsize; 2],
    charge: Option<Charge>,
}

impl Pages {
    /// Pins the pages of a list, of which there have to be as many as `length` bytes from `offset`
    /// on take.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a list that is not well formed, `EFAULT` if memory cannot be reached in this
    /// way, `ENOMEM`.
    pub(crate) fn new(
        memory: &Memory,
        list: &PageList,
        (offset, length): (u64, u64),
        access: Access,
    ) -> Result<Self, Errno> {
        let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
        let count = u64::from(list.pages.get());
        let fits = offset < PAGE && length != 0 && end.div_ceil(PAGE) == count;
        if !fits || list.reserved.get() != 0 {
            return Err(Errno::INVAL);
        }
        let mut pages = Self {
            pieces: Vec::new(),
            length,
            found: Default::default(),
            charge: None,
        };
        let mut left = count;
        let mut next = list.list.get();
        while left != 0 {
            let words = read_list(memory, next)?;
            let (names, [link]) = words.split_at(WORDS.saturating_sub(1)) else {
                return Err(Errno::INVAL);
            };
            for &address in names
                .iter()
                .take(usize::try_from(left).unwrap_or(usize::MAX))
            {
                pages.push(memory, address, access)?;
                left = left.saturating_sub(1);
            }
            next = *link;
        }
        if next != 0 {
            return Err(Errno::INVAL);
        }
        pages.trim(offset)?;
        let charge = memory.charge(pages.pieces.len() as u64);
        pages.charge = Some(charge.ok_or(Errno::NOMEM)?);
        Ok(pages)
    }

    /// No bytes.
    pub(crate) fn none() -> Self {
        Self {
            pieces: Vec::new(),
            length: 0,
            charge: None,
            found: Default::default(),
        }
    }

    /// Pins bytes that need not be whole pages: of each extent the address and how many. All
    /// together are in `most` pieces at most.
    ///
    /// # Errors
    ///
    /// That of the extent that is an error; `EINVAL` if there are no bytes, or more than can be
    /// counted; `EFAULT` if memory cannot be reached; `ENOMEM`.
    pub(crate) fn extents(
        memory: &Memory,
        extents: impl IntoIterator<Item = Result<(u64, u64), Errno>>,
        most: usize,
    ) -> Result<Self, Errno> {
        let mut pages = Self {
            pieces: Vec::new(),
            length: 0,
            found: Default::default(),
            charge: None,
        };
        for extent in extents {
            let (address, length) = extent?;
            pages.length = pages.length.checked_add(length).ok_or(Errno::INVAL)?;
            // Bytes that follow each other for the guest may lie in several ranges.
            let mut done: u64 = 0;
            while let Some(left) = length.checked_sub(done).filter(|left| *left != 0) {
                let at = address.checked_add(done).ok_or(Errno::FAULT)?;
                let pinned = memory.pin_some(at, left).map_err(|_| Errno::FAULT)?;
                done = done.saturating_add(pinned.length());
                pages.add(pinned)?;
                if pages.pieces.len() > most {
                    return Err(Errno::NOMEM);
                }
            }
        }
        if pages.length == 0 {
            return Err(Errno::INVAL);
        }
        let charge = memory.charge(pages.pieces.len() as u64);
        pages.charge = Some(charge.ok_or(Errno::NOMEM)?);
        Ok(pages)
    }

    /// Adds a page.
    fn push(&mut self, memory: &Memory, address: u64, access: Access) -> Result<(), Errno> {
        if address % PAGE != 0 {
            return Err(Errno::INVAL);
        }
        let pinned = memory
            .pin(address, PAGE, access)
            .map_err(|_| Errno::FAULT)?;
        self.add(pinned)
    }

    /// Adds bytes behind the others.
    fn add(&mut self, pinned: Pinned) -> Result<(), Errno> {
        if let Some(last) = self.pieces.last_mut() {
            if last.pinned.extend(&pinned) {
                return Ok(());
            }
        }
        let last = self.pieces.last();
        let start = last.map_or(0, |last| last.start.saturating_add(last.pinned.length()));
        self.pieces.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        self.pieces.push(Piece { start, pinned });
        Ok(())
    }

    /// Leaves out what is before the first byte and behind the last one.
    fn trim(&mut self, offset: u64) -> Result<(), Errno> {
        self.pieces.shrink_to_fit();
        let Some(first) = self.pieces.first_mut() else {
            return Err(Errno::INVAL);
        };
        first.pinned = first.pinned.without(offset).ok_or(Errno::INVAL)?;
        for piece in self.pieces.iter_mut().skip(1) {
            piece.start = piece.start.saturating_sub(offset);
        }
        if let Some(last) = self.pieces.last_mut() {
            last.pinned.truncate(self.length.saturating_sub(last.start));
        }
        Ok(())
    }

    /// How many bytes there are.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The pieces in which they lie.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)
    }

    /// The pieces from the byte `at` on.
    #[inline]
    pub(crate) fn walk(&self, at: u64) -> Option<Walk<'_>> {
        let [last, other] = &self.found;
        let found = |number: &AtomicUsize| self.within(number.load(Ordering::Relaxed), at);
        found(last).or_else(|| found(other)).or_else(|| {
            let behind = self.pieces.partition_point(|piece| piece.start <= at);
            let number = behind.checked_sub(1)?;
            other.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
            last.store(number, Ordering::Relaxed);
            self.within(number, at)
        })
    }

    /// [`Pages::walk`], if the piece of this number has the byte.
    #[inline]
    fn within(&self, number: usize, at: u64) -> Option<Walk<'_>> {
        let pieces = self.pieces.get(number..)?;
        let piece = pieces.first()?;
        let offset = at.checked_sub(piece.start)?;
        (offset < piece.pinned.length()).then_some(Walk { pieces, offset })
    }

    /// The piece that has the byte `at`, where that is in it, and how many bytes from there on are.
    #[inline]
    pub(crate) fn piece(&self, at: u64) -> Option<(&Pinned, u64, u64)> {
        self.walk(at)?.piece()
    }

    /// The mapping and the offset there of bytes that lie in one piece. Those aligned to their size
    /// do not reach beyond a page.
    #[inline]
    pub(crate) fn place(&self, at: u64, size: u64) -> Option<(&Mapping, u64)> {
        let (pinned, offset, _) = self.walk(at)?.piece()?;
        pinned.place(offset, size)
    }

    /// Copies bytes out; false if not all can be reached.
    #[must_use]
    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        match self.place(at, into.len() as u64) {
            Some((mapping, offset)) => mapping.read(offset, into),
            None => self.read_pieces(at, into),
        }
    }

    /// [`Pages::read`] of what does not lie in one piece.
    #[cold]
    fn read_pieces(&self, mut at: u64, mut into: &mut [u8]) -> bool {
        while !into.is_empty() {
            let Some((pinned, offset, left)) = self.piece(at) else {
                return false;
            };
            let count = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
            let (head, rest) = into.split_at_mut(count);
            if !pinned.read(offset, head) {
                return false;
            }
            at = at.saturating_add(count as u64);
            into = rest;
        }
        true
    }

    /// Copies bytes in; false if not all can be reached, and some may have been copied then.
    #[must_use]
    #[inline]
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> bool {
        match self.place(at, from.len() as u64) {
            Some((mapping, offset)) => mapping.write(offset, from),
            None => self.write_pieces(at, from),
        }
    }

    /// [`Pages::write`] of what does not lie in one piece.
    #[cold]
    fn write_pieces(&self, mut at: u64, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let Some((pinned, offset, left)) = self.piece(at) else {
                return false;
            };
            let count = usize::try_from(left).map_or(from.len(), |left| left.min(from.len()));
            let (head, rest) = from.split_at(count);
            if !pinned.write(offset, head) {
                return false;
            }
            at = at.saturating_add(count as u64);
            from = rest;
        }
        true
    }

    /// Loads a word of 4 bytes, with acquire semantics.
    #[inline]
    pub(crate) fn load32(&self, at: u64) -> Option<u32> {
        let (mapping, offset) = self.place(at, 4)?;
        mapping.load32(offset)
    }

    /// Prefetches the cache line at `at`, if it is in the pages.
    #[inline]
    pub(crate) fn prefetch(&self, at: u64) {
        if let Some((mapping, offset)) = self.place(at, 1) {
            mapping.prefetch(offset);
        }
    }

    /// Stores a word of 4 bytes, with release semantics, where that is possible.
    #[inline]
    pub(crate) fn store32(&self, at: u64, value: u32) {
        let _ = self
            .place(at, 4)
            .is_some_and(|(mapping, offset)| mapping.store32(offset, value));
    }

    /// Loads a word of 8 bytes, with acquire semantics.
    #[inline]
    pub(crate) fn load64(&self, at: u64) -> Option<u64> {
        let (mapping, offset) = self.place(at, 8)?;
        mapping.load(offset)
    }

    /// Stores a word of 8 bytes, with release semantics, where that is possible.
    #[inline]
    pub(crate) fn store64(&self, at: u64, value: u64) {
        let _ = self
            .place(at, 8)
            .is_some_and(|(mapping, offset)| mapping.store(offset, value));
    }
}

/// Pins an area: all bytes of the pages, which the device may write.
///
/// # Errors
///
/// Those of [`Pages::new`]; `EINVAL` if there are not as many pages as `length` bytes take.
pub(crate) fn area(memory: &Memory, list: &PageList, length: u64) -> Result<Pages, Errno> {
    let bytes = u64::from(list.pages.get()).saturating_mul(PAGE);
    if length.div_ceil(PAGE).saturating_mul(PAGE) != bytes {
        return Err(Errno::INVAL);
    }
    Pages::new(memory, list, (0, bytes), Access::Write)
}

/// A page of a list, as a copy.
fn read_list(memory: &Memory, address: u64) -> Result<[u64; WORDS], Errno> {
    if address % PAGE != 0 {
        return Err(Errno::INVAL);
    }
    let page = memory.pin(address, PAGE, Access::Read);
    let page = page.map_err(|_| Errno::FAULT)?;
    let mut words = <[zerocopy::little_endian::U64; WORDS]>::new_zeroed();
    if !page.read(0, zerocopy::IntoBytes::as_mut_bytes(&mut words)) {
        return Err(Errno::FAULT);
    }
    Ok(words.map(|word| word.get()))
}
