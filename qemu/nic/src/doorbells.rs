// SPDX-License-Identifier: GPL-2.0

//! The doorbell pages: a file in memory that BAR2 maps straight into the guest, and this process reads.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{fallocate, FallocateFlags};

use crate::mapping::{sealed, Mapping};

/// Bytes of one context's area: a whole number of pages, so that a program can map its own alone.
pub const STRIDE: u32 = 16384;

/// How many areas there are.
pub const AREAS: u32 = 64;

/// Bytes of all areas.
pub const SIZE: u64 = STRIDE as u64 * AREAS as u64;

/// The doorbell pages of one adapter.
#[derive(Debug)]
pub struct Doorbells {
    file: OwnedFd,
    mapping: Mapping,
}

impl Doorbells {
    /// Makes the pages.
    ///
    /// # Errors
    ///
    /// There is no memory or no file descriptor for them.
    pub fn new() -> io::Result<Self> {
        let file = sealed("ferrule-doorbells", SIZE)?;
        let mapping = Mapping::new(&file, 0, SIZE, true)
            .map_err(|unfit| io::Error::other(unfit.to_string()))?;
        Ok(Self { file, mapping })
    }

    /// The file for a client, to be mapped from offset 0.
    ///
    /// # Errors
    ///
    /// There is no file descriptor for it.
    pub fn file(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// The pages as this process has them.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Sets all of them to zero.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn clear(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, 0, SIZE)?)
    }
}
