// SPDX-License-Identifier: GPL-2.0

//! Index arithmetic of the rings.
//!
//! All indices are free-running 32-bit counters, and depths are powers of two, so that an index
//! names its slot by its low bits also after the counter has wrapped.

use crate::base::error::Error;

/// Where a ring of requests stands in its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLayout {
    /// The first slot, in bytes from the start of the buffer.
    pub offset: u32,
    /// Slots: a power of two, or 0 if there is no such ring.
    pub depth: u32,
    /// Bytes from one slot to the next: a power of two of at least 64.
    pub stride: u32,
}

impl RingLayout {
    /// The most slots of a ring, of `FERRULE_MAX_QP_DEPTH`.
    const MAX_DEPTH: u32 = crate::base::abi::MAX_QP_DEPTH;

    /// Checks that the ring is well formed, that it lies in a buffer of `size` bytes, and that a
    /// slot has space for `entry` bytes.
    pub(crate) fn check(&self, size: usize, entry: usize) -> Result<(), Error> {
        if self.depth == 0 {
            return Ok(());
        }
        let well_formed = self.depth.is_power_of_two()
            && self.depth <= Self::MAX_DEPTH
            && self.stride.is_power_of_two()
            && self.stride >= 64
            && self.offset % 64 == 0
            && entry <= self.stride as usize;
        let end = self
            .depth
            .checked_mul(self.stride)
            .and_then(|bytes| bytes.checked_add(self.offset));
        match end {
            Some(end) if well_formed && end as usize <= size => Ok(()),
            _ => Err(Error::Invalid),
        }
    }

    /// Where the slot of `index` begins, in bytes from the start of the buffer.
    #[inline]
    pub fn slot(&self, index: u32) -> u32 {
        let slot = index & self.depth.wrapping_sub(1);
        self.offset.wrapping_add(slot.wrapping_mul(self.stride))
    }

    /// How many requests wait between `consumer` and `producer`; `None` if the producer, which a
    /// program writes, claims more than there are slots.
    #[inline]
    pub(crate) fn waiting(&self, consumer: u32, producer: u32) -> Option<u32> {
        let waiting = producer.wrapping_sub(consumer);
        (waiting <= self.depth).then_some(waiting)
    }
}

/// The engine's end of a ring of requests: how far it has taken them.
pub(crate) struct Consumer {
    /// The next slot to be taken.
    pub(crate) index: u32,
    /// The producer index as last read.
    pub(crate) producer: u32,
    /// The producer index made no sense: nothing in the ring can be believed.
    broken: bool,
}

/// The producer index of a ring claims, or once claimed, more requests than there are slots.
pub(crate) struct Jump;

impl Consumer {
    /// Of a ring in which nothing was posted yet.
    pub(crate) const NEW: Self = Self {
        index: 0,
        producer: 0,
        broken: false,
    };

    /// Goes on as if so many requests had been taken.
    #[cfg(test)]
    pub(crate) fn set_indices(&mut self, index: u32) {
        (self.index, self.producer) = (index, index);
    }

    /// The producer index made no sense once: the ring has no requests any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// All that is known to be posted has been taken: the next look at the ring loads the producer
    /// index.
    #[inline]
    pub(crate) fn has_taken_all(&self) -> bool {
        self.index == self.producer
    }

    /// How many requests wait, as far as is known; only where none does, `load` reads the producer
    /// index.
    ///
    /// # Errors
    ///
    /// [`Jump`]: the ring is broken from then on, and has no requests.
    #[inline(always)]
    pub(crate) fn waiting(
        &mut self,
        ring: &RingLayout,
        load: impl FnOnce() -> u32,
    ) -> Result<u32, Jump> {
        if !self.has_taken_all() {
            return self.judge(ring);
        }
        self.available(ring, load)
    }

    /// How many requests wait at this moment, whatever was known before.
    ///
    /// # Errors
    ///
    /// As [`Consumer::waiting`].
    #[inline(always)]
    pub(crate) fn available(
        &mut self,
        ring: &RingLayout,
        load: impl FnOnce() -> u32,
    ) -> Result<u32, Jump> {
        if ring.depth == 0 {
            return Ok(0);
        }
        self.producer = load();
        self.judge(ring)
    }

    /// How many requests wait by the producer index as last read.
    #[inline(always)]
    fn judge(&mut self, ring: &RingLayout) -> Result<u32, Jump> {
        match ring.waiting(self.index, self.producer) {
            Some(waiting) if !self.broken => Ok(waiting),
            _ => {
                self.broken = true;
                Err(Jump)
            }
        }
    }

    /// Takes the next request: returns the index of its slot, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Consumer::waiting`].
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        ring: &RingLayout,
        load: impl FnOnce() -> u32,
    ) -> Result<Option<u32>, Jump> {
        if self.waiting(ring, load)? == 0 {
            return Ok(None);
        }
        let index = self.index;
        self.index = index.wrapping_add(1);
        Ok(Some(index))
    }
}
