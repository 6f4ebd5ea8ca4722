// SPDX-License-Identifier: GPL-2.0

//! The lock that changes of the network's configuration are made under.
//!
//! C header: `include/linux/rtnetlink.h`.

use core::ops::Deref;

use kernel::types::NotThreadSafe;

use crate::bindings;

/// That the RTNL is held, by the thread that has this.
pub struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes the RTNL. Process context; not where it is held, as in most notifiers.
    pub fn lock() -> RtnlGuard {
        // SAFETY: The function has no preconditions but the context.
        unsafe { bindings::rtnl_lock() };
        // INVARIANT: As just done.
        RtnlGuard(Rtnl(NotThreadSafe))
    }
}

/// The RTNL, which dropping this releases.
///
/// # Invariants
///
/// The current thread holds the RTNL, for this value.
pub struct RtnlGuard(Rtnl);

impl Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.0
    }
}

impl Drop for RtnlGuard {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the thread holds it, and a guard stays with its thread.
        unsafe { bindings::rtnl_unlock() };
    }
}
