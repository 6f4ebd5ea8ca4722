// SPDX-License-Identifier: GPL-2.0

//! How others tell the thread of a guest which vectors it is to raise.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{eventfd, EventfdFlags};

/// Vectors that wait for the guest's thread, and an eventfd by which it wakes. The eventfd is this
/// process's own, so nobody else can make a write to it block.
#[derive(Debug)]
pub(crate) struct Signal {
    file: OwnedFd,
    raised: AtomicU32,
}

impl Signal {
    /// Makes a signal.
    ///
    /// # Errors
    ///
    /// There is no file descriptor for it.
    pub(crate) fn new() -> io::Result<Self> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let raised = AtomicU32::new(0);
        Ok(Self { file, raised })
    }

    /// Asks for these vectors, as bits.
    pub(crate) fn raise(&self, vectors: u32) {
        // A caller that finds others waiting need not wake the thread: it has not taken them yet.
        if self.raised.fetch_or(vectors, Ordering::AcqRel) == 0 {
            let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }

    /// Takes the vectors that are to be raised.
    pub(crate) fn take(&self) -> u32 {
        // A vector that is raised after this read is either taken below, or written after it, and
        // wakes the thread.
        let _ = rustix::io::read(&self.file, &mut [0; 8]);
        self.raised.swap(0, Ordering::AcqRel)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
