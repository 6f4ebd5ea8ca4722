// SPDX-License-Identifier: GPL-2.0

//! The memory of a guest that objects pin, and its amount.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::protocol::MAX_RANGES;

/// The most bytes of all ranges of a guest together: address space of this process.
pub const MAX_BYTES: u64 = 1 << 40;

/// The most pieces of what a guest's objects have pinned: memory of this process.
pub(crate) const MAX_PIECES: u64 = 1 << 22;

/// The memory of a guest that is mapped, given back or not: objects may pin ranges that were given
/// back.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    ranges: AtomicU64,
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl Usage {
    /// Bytes that are mapped.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is space for one more range of so many bytes.
    pub(crate) fn fits(&self, size: u64) -> bool {
        self.ranges.load(Ordering::Relaxed) < MAX_RANGES as u64
            && self.bytes().saturating_add(size) <= MAX_BYTES
    }

    /// Counts pieces of what an object pins; none if they are too many.
    pub(crate) fn charge(self: &Arc<Self>, pieces: u64) -> Option<Charge> {
        let before = self.pieces.fetch_add(pieces, Ordering::Relaxed);
        let usage = Arc::clone(self);
        let charge = Charge { usage, pieces };
        (before.saturating_add(pieces) <= MAX_PIECES).then_some(charge)
    }
}

/// So many pieces, counted as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    usage: Arc<Usage>,
    pieces: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.pieces.fetch_sub(self.pieces, Ordering::Relaxed);
    }
}

/// The mapping of a range, which lives as long as the range is there or anything of it is pinned.
#[derive(Debug)]
pub(crate) struct Mapped {
    mapping: Mapping,
    /// The range was given back.
    revoked: AtomicBool,
    usage: Arc<Usage>,
}

impl Mapped {
    /// Counts a mapping.
    pub(crate) fn new(mapping: Mapping, usage: &Arc<Usage>) -> Arc<Self> {
        usage.ranges.fetch_add(1, Ordering::Relaxed);
        usage.bytes.fetch_add(mapping.len(), Ordering::Relaxed);
        Arc::new(Self {
            mapping,
            revoked: AtomicBool::new(false),
            usage: Arc::clone(usage),
        })
    }

    /// Whether bytes may be written.
    pub(crate) fn writable(&self) -> bool {
        self.mapping.writable()
    }

    /// Nobody reaches it any more by what is pinned of it. The engine's lock orders this with the
    /// engine's accesses.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.usage.ranges.fetch_sub(1, Ordering::Relaxed);
        self.usage
            .bytes
            .fetch_sub(self.mapping.len(), Ordering::Relaxed);
    }
}

/// Bytes of a guest's memory, which stay mapped as long as this lives.
#[derive(Clone, Debug)]
pub struct Pinned {
    mapped: Arc<Mapped>,
    offset: u64,
    length: u64,
}

impl Pinned {
    /// Pins bytes of a range, which has them.
    pub(crate) fn new(mapped: &Arc<Mapped>, offset: u64, length: u64) -> Self {
        let mapped = Arc::clone(mapped);
        Self {
            mapped,
            offset,
            length,
        }
    }

    /// Bytes.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Adds bytes that follow these in the same range; false if they do not.
    pub(crate) fn extend(&mut self, next: &Pinned) -> bool {
        let follows = Arc::ptr_eq(&self.mapped, &next.mapped)
            && self.offset.checked_add(self.length) == Some(next.offset);
        if follows {
            self.length = self.length.saturating_add(next.length);
        }
        follows
    }

    /// These without the first `offset` bytes; none if there are no others.
    pub(crate) fn without(&self, offset: u64) -> Option<Pinned> {
        let length = self.length.checked_sub(offset)?;
        Some(Pinned {
            mapped: Arc::clone(&self.mapped),
            offset: self.offset.checked_add(offset)?,
            length: (length != 0).then_some(length)?,
        })
    }

    /// Leaves out what is behind the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: u64) {
        self.length = self.length.min(length);
    }

    /// The mapping, and where bytes of these are in it; none if they are not all pinned, or were
    /// revoked.
    #[inline]
    pub(crate) fn place(&self, at: u64, length: u64) -> Option<(&Mapping, u64)> {
        if at.checked_add(length)? > self.length || self.mapped.revoked.load(Ordering::Relaxed) {
            return None;
        }
        Some((&self.mapped.mapping, self.offset.checked_add(at)?))
    }

    /// Copies bytes out; false, and none copied, unless all of them can be reached.
    #[must_use]
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let place = self.place(at, into.len() as u64);
        place.is_some_and(|(mapping, offset)| mapping.read(offset, into))
    }

    /// Copies bytes in; false, and none copied, unless all of them can be reached and the range is
    /// writable.
    #[must_use]
    pub fn write(&self, at: u64, from: &[u8]) -> bool {
        let place = self.place(at, from.len() as u64);
        place.is_some_and(|(mapping, offset)| mapping.write(offset, from))
    }
}
