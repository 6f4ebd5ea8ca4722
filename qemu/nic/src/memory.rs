// SPDX-License-Identifier: GPL-2.0

//! A guest's memory: the ranges that its client has offered, and the one way to reach their bytes.
//!
//! Every address is the guest's own and is judged before use: [`Memory::hold`] answers with a [`Held`]
//! for bytes that all lie in one range with the rights asked for. A range is not unmapped before
//! nothing of it is held.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::mapping::{Mapping, Unfit};
use crate::protocol::{Range, MAX_RANGES};

/// The most bytes of all ranges of a guest together: address space of this process.
pub const MAX_BYTES: u64 = 1 << 40;

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

/// What is to be done with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They are only read.
    Read,
    /// They are written, and may be read.
    Write,
}

#[derive(Debug)]
struct Region {
    size: u64,
    /// None: the range came without a file.
    mapping: Option<Mapping>,
    /// How many [`Held`] there are.
    held: Mutex<usize>,
    idle: Condvar,
}

impl Region {
    fn wait_idle(&self) {
        let mut held = lock(&self.held);
        while *held > 0 {
            held = self.idle.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a panicked thread has left is whole: every change under these locks is one assignment or one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranges of a guest, by their first addresses. They do not overlap.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Mutex<BTreeMap<u64, Arc<Region>>>,
}

impl Memory {
    /// Takes a range: bytes of `file` from `offset` on, or with no file a range that cannot be reached.
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
        let mut regions = lock(&self.regions);
        // The only range that can reach into this one is the last that begins before its end.
        let before = regions.range(..=last).next_back();
        if before.is_some_and(|(&start, region)| {
            start.saturating_add(region.size.saturating_sub(1)) >= range.address
        }) {
            return Err(Refused::Overlaps);
        }
        if regions.len() >= MAX_RANGES {
            return Err(Refused::TooMany);
        }
        let mapping = match file {
            None => None,
            Some(file) => {
                let mapped = regions
                    .values()
                    .filter_map(|region| region.mapping.as_ref());
                let bytes =
                    mapped.fold(range.size, |sum, mapping| sum.saturating_add(mapping.len()));
                if bytes > MAX_BYTES {
                    return Err(Refused::TooMany);
                }
                Some(Mapping::new(file, offset, range.size, writable).map_err(Refused::File)?)
            }
        };
        let region = Region {
            size: range.size,
            mapping,
            held: Mutex::default(),
            idle: Condvar::new(),
        };
        regions.insert(range.address, Arc::new(region));
        Ok(())
    }

    /// Gives a range back, as it was taken; returns when nothing of it is held.
    ///
    /// The caller must hold nothing of it itself.
    ///
    /// # Errors
    ///
    /// There is no range of this address and size.
    pub fn unmap(&self, range: Range) -> Result<(), Refused> {
        let region = {
            let mut regions = lock(&self.regions);
            match regions.get(&range.address) {
                Some(region) if region.size == range.size => regions.remove(&range.address),
                _ => None,
            }
        };
        // From here on nobody can hold more of it.
        region.ok_or(Refused::Unknown)?.wait_idle();
        Ok(())
    }

    /// Gives all ranges back; returns when nothing is held.
    pub fn clear(&self) {
        let regions = std::mem::take(&mut *lock(&self.regions));
        regions.values().for_each(|region| region.wait_idle());
    }

    /// Returns when there was a moment for each range at which nothing of it was held.
    pub fn quiesce(&self) {
        let regions: Vec<_> = lock(&self.regions).values().cloned().collect();
        regions.iter().for_each(|region| region.wait_idle());
    }

    /// Ranges, and bytes that can be reached.
    pub fn count(&self) -> (usize, u64) {
        let regions = lock(&self.regions);
        let mapped = regions
            .values()
            .filter_map(|region| region.mapping.as_ref());
        (
            regions.len(),
            mapped.fold(0, |sum, mapping| sum.saturating_add(mapping.len())),
        )
    }

    /// Holds bytes of the guest's, so that they stay mapped.
    ///
    /// # Errors
    ///
    /// Not all of them can be reached in this way.
    pub fn hold(&self, address: u64, length: u64, access: Access) -> Result<Held, Fault> {
        let regions = lock(&self.regions);
        let (start, region) = regions
            .range(..=address)
            .next_back()
            .ok_or(Fault::NotMapped)?;
        let offset = address.checked_sub(*start).ok_or(Fault::NotMapped)?;
        let end = offset.checked_add(length).ok_or(Fault::NotMapped)?;
        if offset >= region.size || end > region.size {
            return Err(Fault::NotMapped);
        }
        let mapping = region.mapping.as_ref().ok_or(Fault::NoFile)?;
        if access == Access::Write && !mapping.writable() {
            return Err(Fault::ReadOnly);
        }
        {
            let mut held = lock(&region.held);
            *held = held.saturating_add(1);
        }
        Ok(Held {
            region: Arc::clone(region),
            offset,
            length,
            access,
        })
    }
}

/// The last address of a range; none if it is empty or wraps.
fn last(range: Range) -> Option<u64> {
    range.address.checked_add(range.size.checked_sub(1)?)
}

/// Bytes of a guest's memory. They stay mapped as long as this lives, so it lives no longer than one piece of work.
#[derive(Debug)]
pub struct Held {
    region: Arc<Region>,
    offset: u64,
    length: u64,
    access: Access,
}

impl Held {
    /// Where bytes of these are in the mapping.
    fn place(&self, at: u64, length: u64) -> Option<(&Mapping, u64)> {
        if at.checked_add(length)? > self.length {
            return None;
        }
        Some((self.region.mapping.as_ref()?, self.offset.checked_add(at)?))
    }

    /// Copies bytes out; false, and none copied, unless all of them are held.
    #[must_use]
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let place = self.place(at, into.len() as u64);
        place.is_some_and(|(mapping, offset)| mapping.read(offset, into))
    }

    /// Copies bytes in; false, and none copied, unless all of them are held for writing.
    #[must_use]
    pub fn write(&self, at: u64, from: &[u8]) -> bool {
        let place = self
            .place(at, from.len() as u64)
            .filter(|_| self.access == Access::Write);
        place.is_some_and(|(mapping, offset)| mapping.write(offset, from))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = lock(&self.region.held);
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.region.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::mapping::sealed;

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
        assert_eq!(memory.count(), (0, 0));
        // The last page of all is a range like any other.
        memory
            .map(range(u64::MAX - P + 1, P), file(1), 0, true)
            .unwrap();
        assert_eq!(
            memory.map(range(u64::MAX, 1), None, 0, true),
            Err(Refused::Overlaps)
        );
        assert!(memory.hold(u64::MAX, 1, Access::Write).is_ok());
        assert_eq!(
            memory.hold(u64::MAX, 2, Access::Read).unwrap_err(),
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
            memory.hold(0, 8, Access::Write).unwrap_err(),
            Fault::ReadOnly
        );
        assert!(!memory.hold(0, 8, Access::Read).unwrap().write(0, &[1]));
        assert_eq!(memory.hold(P, 8, Access::Read).unwrap_err(), Fault::NoFile);
        // Not even bytes of neighbouring ranges are one piece.
        assert_eq!(
            memory.hold(2 * P - 1, 2, Access::Read).unwrap_err(),
            Fault::NotMapped
        );
        let held = memory.hold(2 * P + 8, 8, Access::Write).unwrap();
        assert!(held.write(0, &[7; 8]) && !held.write(1, &[7; 8]) && !held.write(u64::MAX, &[7]));
        let read = memory.hold(2 * P + 8, 8, Access::Read).unwrap();
        assert!(!read.write(0, &[7]));
    }

    #[test]
    fn unmapping_waits() {
        let memory = Arc::new(Memory::default());
        memory.map(range(0, P), file(1), 0, true).unwrap();
        let held = memory.hold(0, P, Access::Write).unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (memory, gone) = (Arc::clone(&memory), Arc::clone(&gone));
            move || {
                memory.unmap(range(0, P)).unwrap();
                gone.store(true, Ordering::SeqCst);
            }
        });
        while memory.count().0 > 0 {
            std::thread::yield_now();
        }
        // The range is out of the table, and nobody gets it any more; who has it can go on.
        assert_eq!(
            memory.hold(0, 1, Access::Read).unwrap_err(),
            Fault::NotMapped
        );
        std::thread::sleep(Duration::from_millis(20));
        assert!(!gone.load(Ordering::SeqCst));
        assert!(held.write(0, &[1; 4096]));
        drop(held);
        thread.join().unwrap();
        assert!(gone.load(Ordering::SeqCst));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Map(u64, u64, bool, bool),
        Unmap(u64, u64),
        Hold(u64, u64, bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..24, 0u64..6, any::<bool>(), any::<bool>())
                .prop_map(|(a, n, f, w)| Step::Map(a, n, f, w)),
            (0u64..24, 0u64..6).prop_map(|(a, n)| Step::Unmap(a, n)),
            (0u64..24 * P, 0u64..3 * P, any::<bool>()).prop_map(|(a, n, w)| Step::Hold(a, n, w)),
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
                    Step::Hold(address, length, write) => {
                        let access = if write { Access::Write } else { Access::Read };
                        let last = (address + length.max(1) - 1) / P;
                        let one = pages[(address / P) as usize].filter(|page| last < page.0 + page.1);
                        let expected = match one {
                            None => Some(Fault::NotMapped),
                            Some((_, _, false, _)) => Some(Fault::NoFile),
                            Some((_, _, _, false)) if write => Some(Fault::ReadOnly),
                            _ => None,
                        };
                        prop_assert_eq!(memory.hold(address, length, access).err(), expected);
                    }
                }
            }
        }
    }
}
