// SPDX-License-Identifier: GPL-2.0

//! A guest's memory: the ranges that its client has offered, and the one way to reach their bytes.
//!
//! Every address is the guest's own and is judged before use: [`Memory::pin`] answers with a
//! [`Pinned`] for bytes that all lie in one range with the rights asked for. An object of the
//! guest's keeps that as long as it lives, so an access takes no lock and counts nothing.
//!
//! A range that is given back is revoked: each later access to what is pinned of it fails. That is
//! done by the owner of the engine (`device.rs`), and the engine reaches memory only then, so no
//! access of it is underway afterwards. The guest's own thread is the one that gives ranges back.
//! To unmap one may take long, so that thread does it later ([`Memory::sweep`]), when it does not
//! own the engine, whoever has dropped the last pin.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::mapping::{Mapping, Unfit};
use crate::pinned::{Charge, Mapped, Pinned, Usage};
use crate::protocol::{Range, MAX_RANGES};

/// Why a range is not taken, or not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The range is empty, or wraps.
    Wraps,
    /// Some of it is there already.
    Overlaps,
    /// There are too many ranges, or too many bytes.
    TooMany,
    /// The file is not fit.
    File(Unfit),
    /// There is no such range.
    Unknown,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Wraps => write!(f, "it is empty or wraps"),
            Refused::Overlaps => write!(f, "it overlaps another range"),
            Refused::TooMany => write!(f, "there are too many ranges or bytes"),
            Refused::File(unfit) => write!(f, "{unfit}"),
            Refused::Unknown => write!(f, "there is no such range"),
        }
    }
}

/// Why bytes cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not all of them lie in one range.
    NotMapped,
    /// The range came without a file: a device's, or a ROM's.
    NoFile,
    /// They are to be written, and the range is read-only.
    ReadOnly,
}

/// The access that bytes are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are only read.
    Read,
    /// They are written, and may be read.
    Write,
}

#[derive(Debug)]
struct Entry {
    size: u64,
    /// None: the range came without a file.
    mapped: Option<Arc<Mapped>>,
}

/// The ranges of a guest, by their first addresses. They do not overlap.
#[derive(Debug, Default)]
pub struct Memory {
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// Ranges that were given back and are mapped still.
    revoked: Mutex<Vec<Arc<Mapped>>>,
    usage: Arc<Usage>,
}

impl Memory {
    /// Takes a range: bytes of `file` from `offset` on, or with no file a range that cannot be
    /// reached.
    ///
    /// # Errors
    ///
    /// The range is refused, and nothing has changed.
    pub fn map(
        &self,
        range: Range,
        file: Option<OwnedFd>,
        offset: u64,
        writable: bool,
    ) -> Result<(), Refused> {
        let last = last(range).ok_or(Refused::Wraps)?;
        self.sweep();
        let mut entries = self.entries.lock();
        // The only range that can reach into this one is the last that begins before its end.
        let before = entries.range(..=last).next_back();
        if before.is_some_and(|(&start, entry)| {
            start.saturating_add(entry.size.saturating_sub(1)) >= range.address
        }) {
            return Err(Refused::Overlaps);
        }
        if entries.len() >= MAX_RANGES {
            return Err(Refused::TooMany);
        }
        let mapped = match file {
            None => None,
            Some(file) => Some(self.mapped(file, offset, range.size, writable)?),
        };
        let size = range.size;
        entries.insert(range.address, Entry { size, mapped });
        Ok(())
    }

    /// Maps a file. Only the guest's own thread does, so that nobody adds to the usage meanwhile.
    fn mapped(
        &self,
        file: OwnedFd,
        offset: u64,
        size: u64,
        writable: bool,
    ) -> Result<Arc<Mapped>, Refused> {
        if !self.usage.fits(size) {
            return Err(Refused::TooMany);
        }
        let mapping = Mapping::new(file, offset, size, writable).map_err(Refused::File)?;
        Ok(Mapped::new(mapping, &self.usage))
    }

    /// Gives a range back, as it was taken. The caller owns the engine.
    ///
    /// # Errors
    ///
    /// There is no range of this address and size.
    pub fn unmap(&self, range: Range) -> Result<(), Refused> {
        let mut entries = self.entries.lock();
        let entry = entries.get(&range.address);
        entry
            .filter(|entry| entry.size == range.size)
            .ok_or(Refused::Unknown)?;
        self.revoke(entries.remove(&range.address));
        Ok(())
    }

    /// Gives all ranges back. The caller owns the engine.
    pub fn clear(&self) {
        self.revoke(std::mem::take(&mut *self.entries.lock()).into_values());
    }

    fn revoke(&self, entries: impl IntoIterator<Item = Entry>) {
        let mapped = entries.into_iter().filter_map(|entry| entry.mapped);
        self.revoked
            .lock()
            .extend(mapped.inspect(|mapped| mapped.revoke()));
    }

    /// Unmaps what was given back and nobody pins any more. The caller does not own the engine: all
    /// guests would wait.
    pub fn sweep(&self) {
        let mut revoked = self.revoked.lock();
        let all = std::mem::take(&mut *revoked).into_iter();
        let (unpinned, pinned): (Vec<_>, Vec<_>) =
            all.partition(|mapped| Arc::strong_count(mapped) == 1);
        *revoked = pinned;
        drop(revoked);
        drop(unpinned);
    }

    /// Counts pieces of what an object pins; none if they are too many.
    pub(crate) fn charge(&self, pieces: u64) -> Option<Charge> {
        self.usage.charge(pieces)
    }

    /// Ranges that there are, and bytes that are mapped.
    pub fn count(&self) -> (usize, u64) {
        let ranges = self.entries.lock().len();
        (ranges, self.usage.bytes())
    }

    /// Pins bytes of the guest's.
    ///
    /// # Errors
    ///
    /// Not all of them can be reached in this way.
    pub fn pin(&self, address: u64, length: u64, access: Access) -> Result<Pinned, Fault> {
        self.pin_between(address, (length, length), access)
    }

    /// Pins bytes of the guest's from `address` on, which are read or written: as many of `most` as
    /// there are in one range.
    ///
    /// # Errors
    ///
    /// Not even the first can be reached.
    #[inline]
    pub(crate) fn pin_some(&self, address: u64, most: u64) -> Result<Pinned, Fault> {
        self.pin_between(address, (1, most), Access::Read)
    }

    fn pin_between(
        &self,
        address: u64,
        (least, most): (u64, u64),
        access: Access,
    ) -> Result<Pinned, Fault> {
        let entries = self.entries.lock();
        let (start, entry) = entries
            .range(..=address)
            .next_back()
            .ok_or(Fault::NotMapped)?;
        let offset = address.checked_sub(*start).ok_or(Fault::NotMapped)?;
        let left = entry.size.checked_sub(offset).ok_or(Fault::NotMapped)?;
        if left < least.max(1) {
            return Err(Fault::NotMapped);
        }
        let mapped = entry.mapped.as_ref().ok_or(Fault::NoFile)?;
        if access == Access::Write && !mapped.writable() {
            return Err(Fault::ReadOnly);
        }
        Ok(Pinned::new(mapped, offset, most.min(left)))
    }
}

/// The last address of a range; none if it is empty or wraps.
fn last(range: Range) -> Option<u64> {
    range.address.checked_add(range.size.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mapping::sealed;
    use crate::pinned::MAX_BYTES;

    const P: u64 = 4096;

    fn range(address: u64, size: u64) -> Range {
        Range { address, size }
    }

    fn file(pages: u64) -> Option<OwnedFd> {
        Some(sealed("test", pages * P).unwrap())
    }

    #[test]
    fn refused() {
        let memory = Memory::default();
        assert_eq!(memory.map(range(P, 0), None, 0, true), Err(Refused::Wraps));
        assert_eq!(
            memory.map(range(u64::MAX, 2), None, 0, true),
            Err(Refused::Wraps)
        );
        assert_eq!(
            memory.map(range(0, 2 * P), file(1), 0, true),
            Err(Refused::File(Unfit::BeyondFile))
        );
        assert_eq!(
            memory.map(range(0, P), file(1), P, true),
            Err(Refused::File(Unfit::BeyondFile))
        );
        assert_eq!(
            memory.map(range(0, MAX_BYTES + P), file(1), 0, true),
            Err(Refused::TooMany)
        );
        memory.map(range(4 * P, 4 * P), file(4), 0, true).unwrap();
        for (first, pages) in [(4, 4), (3, 2), (7, 1), (7, 9), (0, 100), (5, 1)] {
            assert_eq!(
                memory.map(range(first * P, pages * P), None, 0, true),
                Err(Refused::Overlaps)
            );
        }
        for (first, pages) in [(4, 3), (5, 3), (3, 1), (4, 5)] {
            assert_eq!(
                memory.unmap(range(first * P, pages * P)),
                Err(Refused::Unknown)
            );
        }
        assert_eq!(memory.count(), (1, 4 * P));
        memory.unmap(range(4 * P, 4 * P)).unwrap();
        assert_eq!(memory.count(), (0, 4 * P), "to unmap it takes long");
        memory.sweep();
        assert_eq!(memory.count(), (0, 0));
        // The last page of all is a range like any other.
        memory
            .map(range(u64::MAX - P + 1, P), file(1), 0, true)
            .unwrap();
        assert_eq!(
            memory.map(range(u64::MAX, 1), None, 0, true),
            Err(Refused::Overlaps)
        );
        assert!(memory.pin(u64::MAX, 1, Access::Write).is_ok());
        assert_eq!(
            memory.pin(u64::MAX, 2, Access::Read).unwrap_err(),
            Fault::NotMapped
        );
    }

    #[test]
    fn too_many_ranges() {
        let memory = Memory::default();
        for number in 0..MAX_RANGES as u64 {
            memory.map(range(number, 1), None, 0, false).unwrap();
        }
        assert_eq!(
            memory.map(range(1 << 40, 1), None, 0, false),
            Err(Refused::TooMany)
        );
        memory.clear();
        memory.map(range(1 << 40, 1), None, 0, false).unwrap();
    }

    #[test]
    fn rights() {
        let memory = Memory::default();
        memory.map(range(0, P), file(1), 0, false).unwrap();
        memory.map(range(P, P), None, 0, true).unwrap();
        memory.map(range(2 * P, P), file(2), P, true).unwrap();
        assert_eq!(
            memory.pin(0, 8, Access::Write).unwrap_err(),
            Fault::ReadOnly
        );
        assert!(!memory.pin(0, 8, Access::Read).unwrap().write(0, &[1]));
        assert_eq!(memory.pin(P, 8, Access::Read).unwrap_err(), Fault::NoFile);
        // Not even bytes of neighbouring ranges are one piece.
        assert_eq!(
            memory.pin(2 * P - 1, 2, Access::Read).unwrap_err(),
            Fault::NotMapped
        );
        let pinned = memory.pin(2 * P + 8, 8, Access::Write).unwrap();
        assert!(pinned.write(0, &[7; 8]));
        assert!(!pinned.write(1, &[7; 8]) && !pinned.write(u64::MAX, &[7]));
    }

    #[test]
    fn a_pinned_range_is_revoked() {
        let memory = Memory::default();
        memory.map(range(0, P), file(1), 0, true).unwrap();
        let pinned = memory.pin(0, P, Access::Write).unwrap();
        assert!(pinned.write(0, &[1; 4096]));
        memory.unmap(range(0, P)).unwrap();
        assert!(!pinned.write(0, &[1]) && !pinned.read(0, &mut [0]));
        // The same file at the same address is another range.
        memory.map(range(0, P), file(1), 0, true).unwrap();
        assert!(!pinned.read(0, &mut [0]));
        memory.sweep();
        assert_eq!(
            memory.count(),
            (1, 2 * P),
            "it is mapped as long as it is pinned"
        );
        // The engine's owner may be the one that drops the last pin.
        drop(pinned);
        assert_eq!(memory.count(), (1, 2 * P));
        memory.sweep();
        assert_eq!(memory.count(), (1, P));
    }

    #[test]
    fn revoked_ranges_are_counted() {
        let memory = Memory::default();
        let pinned: Vec<_> = (0..MAX_RANGES)
            .map(|_| {
                memory.map(range(0, P), file(1), 0, true).unwrap();
                let pinned = memory.pin(0, 1, Access::Read).unwrap();
                memory.unmap(range(0, P)).unwrap();
                pinned
            })
            .collect();
        assert_eq!(
            memory.map(range(0, P), file(1), 0, true),
            Err(Refused::TooMany)
        );
        drop(pinned);
        assert_eq!(memory.map(range(0, P), file(1), 0, true), Ok(()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Map(u64, u64, bool, bool),
        Unmap(u64, u64),
        Pin(u64, u64, bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..24, 0u64..6, any::<bool>(), any::<bool>())
                .prop_map(|(a, n, f, w)| Step::Map(a, n, f, w)),
            (0u64..24, 0u64..6).prop_map(|(a, n)| Step::Unmap(a, n)),
            (0u64..24 * P, 0u64..3 * P, any::<bool>()).prop_map(|(a, n, w)| Step::Pin(a, n, w)),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The table says what a list of pages says, each with the range that it belongs to.
        #[test]
        fn as_a_list_of_pages(steps in steps()) {
            let memory = Memory::default();
            let mut pages: [Option<(u64, u64, bool, bool)>; 32] = [None; 32];
            for step in steps {
                match step {
                    Step::Map(first, count, has_file, writable) => {
                        let file = if has_file { file(count) } else { None };
                        let done = memory.map(range(first * P, count * P), file, 0, writable);
                        let span = &mut pages[first as usize..(first + count) as usize];
                        if count > 0 && span.iter().all(Option::is_none) {
                            prop_assert_eq!(done, Ok(()));
                            span.fill(Some((first, count, has_file, writable)));
                        } else {
                            prop_assert_eq!(done, Err(if count == 0 { Refused::Wraps } else { Refused::Overlaps }));
                        }
                    }
                    Step::Unmap(first, count) => {
                        let known = pages[first as usize].is_some_and(|page| page.0 == first && page.1 == count);
                        prop_assert_eq!(memory.unmap(range(first * P, count * P)).is_ok(), known);
                        if known {
                            pages[first as usize..(first + count) as usize].fill(None);
                        }
                    }
                    Step::Pin(address, length, write) => {
                        let access = if write { Access::Write } else { Access::Read };
                        let last = (address + length.max(1) - 1) / P;
                        let one = pages[(address / P) as usize].filter(|page| last < page.0 + page.1);
                        let expected = match one {
                            None => Some(Fault::NotMapped),
                            Some((_, _, false, _)) => Some(Fault::NoFile),
                            Some((_, _, _, false)) if write => Some(Fault::ReadOnly),
                            _ => None,
                        };
                        prop_assert_eq!(memory.pin(address, length, access).err(), expected);
                    }
                }
            }
        }
    }
}
