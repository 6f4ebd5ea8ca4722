// SPDX-License-Identifier: GPL-2.0

//! Words of a [`Memory`] that are accessed whole, atomically with processors as well.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    }, //
};

use super::Memory;
use crate::extent::Extent;

impl Memory {
    /// The word at `offset`, for atomic operations.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`], as long as the reference lives.
    #[inline]
    unsafe fn word(&self, offset: u64) -> Result<&Atomic<u64>> {
        const WORD: u64 = size_of::<u64>() as u64;

        if !self.writable {
            return Err(EACCES);
        }
        self.check(offset, WORD)?;
        let (word, len) = match self.on_demand() {
            None => {
                let index = Extent::find(&self.extents, offset);
                let extent = self.extents.get(index).ok_or(EFAULT)?;
                let skip = offset - extent.offset;
                (extent.at(skip), extent.len - skip)
            }
            Some(pages) => {
                // SAFETY: By the requirements of this function.
                let found = unsafe { pages.piece(offset, size_of::<u64>(), true) };
                let (at, len) = found.ok_or(EFAULT)?;
                (at.as_ptr(), len as u64)
            }
        };
        let word = word.cast::<u64>();
        if !word.is_aligned() || len < WORD {
            return Err(EFAULT);
        }
        // SAFETY: The word is aligned and inside of the extent or page, of which the bytes are
        // there to be written to, by the type invariants, or may be by the requirements of this
        // function. Other accesses by this type are such as may race, and so are a program's. Any
        // bytes that they store are a valid value.
        Ok(unsafe { Atomic::from_ptr(word) })
    }

    /// Adds to the word at `offset`, in CPU order, and returns what it was. A full barrier.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if the word is not inside or not aligned.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`].
    #[inline]
    pub unsafe fn fetch_add_u64(&self, offset: u64, add: u64) -> Result<u64> {
        // SAFETY: By the requirements of this function.
        Ok(unsafe { self.word(offset) }?.fetch_add(add, Full))
    }

    /// Replaces the word at `offset`, in CPU order, by `new` if it is `old`, and returns what it
    /// was. A full barrier.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if the word is not inside or not aligned.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`].
    #[inline]
    pub unsafe fn cmpxchg_u64(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        // SAFETY: By the requirements of this function.
        match unsafe { self.word(offset) }?.cmpxchg(old, new, Full) {
            Ok(was) | Err(was) => Ok(was),
        }
    }

    /// Stores the word at `offset`, in CPU order, with release semantics.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not be written to, `EFAULT` if the word is not inside or not aligned.
    ///
    /// # Safety
    ///
    /// As for [`Memory::write`].
    #[inline]
    pub unsafe fn store_u64(&self, offset: u64, value: u64) -> Result {
        // SAFETY: By the requirements of this function.
        unsafe { self.word(offset) }?.store(value, Release);
        Ok(())
    }
}
