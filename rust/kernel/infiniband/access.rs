// SPDX-License-Identifier: GPL-2.0

//! Access rights of memory: `enum ib_access_flags`.

use core::ops;

use crate::bindings;

/// A set of access rights: `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The device may write on behalf of its owner.
    pub const LOCAL_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE);
    /// A peer may write.
    pub const REMOTE_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE);
    /// A peer may read.
    pub const REMOTE_READ: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ);
    /// A peer may do atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC);
    /// A peer may flush what was written until all see it.
    pub const FLUSH_GLOBAL: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL);
    /// A peer may flush what was written until it persists.
    pub const FLUSH_PERSISTENT: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Self = Self(bindings::ib_access_flags_IB_ACCESS_MW_BIND);
    /// Addresses count from the start of the region.
    pub const ZERO_BASED: Self = Self(bindings::ib_access_flags_IB_ZERO_BASED);
    /// Pages are not pinned but brought in when they are used.
    pub const ON_DEMAND: Self = Self(bindings::ib_access_flags_IB_ACCESS_ON_DEMAND);
    /// Pages that are not pinned are huge ones: a hint.
    pub const HUGETLB: Self = Self(bindings::ib_access_flags_IB_ACCESS_HUGETLB);
    /// Writes may become visible in any order.
    pub const RELAXED_ORDERING: Self = Self(bindings::ib_access_flags_IB_ACCESS_RELAXED_ORDERING);
    /// All rights that a device may ignore.
    pub const OPTIONAL: Self = Self(bindings::ib_access_flags_IB_ACCESS_OPTIONAL);

    /// The set with these bits of `enum ib_access_flags`.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits of `enum ib_access_flags`.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether pages have to be writable for it: binding windows may lead to writing.
    #[inline]
    pub const fn writes(self) -> bool {
        let writing = Self::LOCAL_WRITE
            .or(Self::REMOTE_WRITE)
            .or(Self::REMOTE_ATOMIC)
            .or(Self::MW_BIND);
        self.0 & writing.0 != 0
    }

    /// This set and `other`.
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}
