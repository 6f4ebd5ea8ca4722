// SPDX-License-Identifier: GPL-2.0

//! How many copy jobs use an object, and whether a command waits for their end.

use crate::base::error::Error;

/// The uses of a memory region, a queue pair or a context by copy jobs, or of all objects of an
/// engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    jobs: u32,
    /// A command was refused. No job begins until one succeeds, or there would always be another
    /// one.
    is_awaited: bool,
}

impl Uses {
    /// Whether a job may use the object.
    #[inline]
    pub(crate) fn may_begin(self) -> bool {
        !self.is_awaited
    }

    /// A job uses it from now on.
    pub(crate) fn begin(&mut self) {
        self.jobs = self.jobs.wrapping_add(1);
    }

    /// A job does not use it any more. Returns whether that was the last one, and a command waits
    /// for it.
    pub(crate) fn end(&mut self) -> bool {
        self.jobs = self.jobs.wrapping_sub(1);
        self.is_awaited && self.jobs == 0
    }

    /// Whether a job uses it.
    #[inline]
    pub(crate) fn is_used(self) -> bool {
        self.jobs != 0
    }

    /// A command is about to change or to remove the object.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a job uses it.
    pub(crate) fn claim(&mut self) -> Result<(), Error> {
        self.is_awaited = self.is_used();
        if self.is_awaited {
            return Err(Error::InUse);
        }
        Ok(())
    }
}
