// SPDX-License-Identifier: GPL-2.0

//! The counters of a port.

/// Counters of the frames from a port's peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that have come.
    pub received: u64,
    /// Of these, too short ones.
    pub short: u64,
    /// Of these, those from an address that is not the peer's.
    pub spoofed: u64,
}

impl std::fmt::Display for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            received,
            short,
            spoofed,
        } = self;
        write!(f, "{received} frames from it, {short} too short and {spoofed} from an address that is not its own")
    }
}
