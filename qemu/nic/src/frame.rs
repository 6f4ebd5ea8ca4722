// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames.

use std::sync::Arc;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header without a VLAN tag: a frame has them at least.
pub const HEADER: usize = 14;

/// The most bytes of a frame: the longest packet of IP behind a header with a VLAN tag. QEMU takes
/// 69,632.
pub const MOST: usize = 18 + 65_535;

/// Whether an address is that of a group; the broadcast address is one.
pub fn is_group(mac: &Mac) -> bool {
    mac.first().is_some_and(|first| first & 1 != 0)
}

/// A frame, which all who have it share.
///
/// # Invariants
///
/// It has [`HEADER`] to [`MOST`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Arc<Vec<u8>>);

impl Frame {
    /// These bytes as a frame, unless they are too few or too many.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (HEADER..=MOST)
            .contains(&bytes.len())
            .then(|| Self(Arc::new(bytes)))
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn mac(&self, at: usize) -> Mac {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or_default()
    }

    /// Where it goes.
    pub fn destination(&self) -> Mac {
        self.mac(0)
    }

    /// Where it comes from.
    pub fn source(&self) -> Mac {
        self.mac(6)
    }
}
