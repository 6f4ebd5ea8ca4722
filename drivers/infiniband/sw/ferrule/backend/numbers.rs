// SPDX-License-Identifier: GPL-2.0

//! Numbers of objects that are nothing but a number.

use kernel::{
    id_pool::IdPool,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Numbers below this are given out.
const LIMIT: u32 = 65536;

/// A pool of numbers, which clones share.
#[derive(Clone)]
pub(crate) struct Numbers(Arc<Mutex<IdPool>>);

impl Numbers {
    /// All numbers, none of which is taken.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let pool = IdPool::with_capacity(LIMIT as usize, GFP_KERNEL)?;
        let pool = Arc::pin_init(new_mutex!(pool, "Numbers"), GFP_KERNEL)?;
        Ok(Numbers(pool))
    }

    /// Takes a number.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if all are taken.
    pub(crate) fn take(&self) -> Result<u32> {
        let mut pool = self.0.lock();
        let id = pool.find_unused_id(0).ok_or(ENOMEM)?;
        Ok(id.acquire() as u32)
    }

    /// Gives a number back.
    pub(crate) fn give_back(&self, number: u32) {
        self.0.lock().release_id(number as usize);
    }
}
