// SPDX-License-Identifier: GPL-2.0

//! The port behind which each Ethernet address was seen.
//!
//! An address that the user has given to a guest stays at that guest's port: nobody else can send
//! from it, nor get what is sent to it. Others are learned. Each port has a bounded share, so that
//! no peer can displace what others need.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::frame::{is_group, Mac};

/// An address that was not seen for so long is forgotten (IEEE 802.1Q, 8.8.3).
pub const AGE: Duration = Duration::from_secs(300);

/// Addresses that a port may have. Frames to others behind it are flooded.
pub const SHARE: usize = 256;

/// How often the table is searched for old entries: each search looks at all of it.
const SWEEP: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Station {
    port: usize,
    /// When it was seen last; none if it stays for ever.
    seen: Option<Instant>,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    stations: HashMap<Mac, Station>,
    /// How many were learned of each port.
    shares: HashMap<usize, usize>,
    swept: Option<Instant>,
}

/// The address is another port's for ever, or none that a frame can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoofed;

impl Table {
    /// An address that stays at its port.
    pub fn fix(&mut self, mac: Mac, port: usize) {
        self.stations.insert(mac, Station { port, seen: None });
    }

    /// A frame from this address has come by this port.
    ///
    /// # Errors
    ///
    /// It cannot have.
    pub fn learn(&mut self, mac: Mac, port: usize, now: Instant) -> Result<(), Spoofed> {
        if is_group(&mac) || mac == Mac::default() {
            return Err(Spoofed);
        }
        self.sweep(now);
        match self.stations.get_mut(&mac) {
            Some(Station {
                port: own,
                seen: None,
            }) => return if *own == port { Ok(()) } else { Err(Spoofed) },
            Some(station) if station.port == port => {
                station.seen = Some(now);
                return Ok(());
            }
            _ => (),
        }
        // The station has left its old port, even if this one cannot have it.
        if let Some(before) = self.stations.remove(&mac) {
            self.give_back(before.port);
        }
        let share = self.shares.entry(port).or_default();
        if *share < SHARE {
            *share = share.saturating_add(1);
            let seen = Some(now);
            self.stations.insert(mac, Station { port, seen });
        }
        Ok(())
    }

    /// Where an address is.
    pub fn port(&self, mac: &Mac) -> Option<usize> {
        self.stations.get(mac).map(|station| station.port)
    }

    /// Forgets what was learned of a port, whose peer has gone.
    pub fn forget(&mut self, port: usize) {
        self.stations
            .retain(|_, station| station.port != port || station.seen.is_none());
        self.shares.remove(&port);
    }

    fn sweep(&mut self, now: Instant) {
        let since = *self.swept.get_or_insert(now);
        if now.saturating_duration_since(since) < SWEEP {
            return;
        }
        self.swept = Some(now);
        let shares = &mut self.shares;
        self.stations.retain(|_, station| {
            let old = station
                .seen
                .is_some_and(|seen| now.saturating_duration_since(seen) >= AGE);
            if old {
                if let Some(share) = shares.get_mut(&station.port) {
                    *share = share.saturating_sub(1);
                }
            }
            !old
        });
    }

    fn give_back(&mut self, port: usize) {
        if let Some(share) = self.shares.get_mut(&port) {
            *share = share.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mac(number: u16) -> Mac {
        let [a, b] = number.to_be_bytes();
        [2, 0, 0, 0, a, b]
    }

    #[test]
    fn an_address_that_sends_nothing_is_forgotten() {
        let begin = Instant::now();
        let mut table = Table::default();
        table.fix(mac(1), 0);
        table.learn(mac(2), 1, begin).unwrap();
        table.learn(mac(3), 1, begin).unwrap();
        table.learn(mac(3), 2, begin + AGE - SWEEP).unwrap();
        table.learn(mac(4), 2, begin + AGE).unwrap();
        let found = [1, 2, 3].map(|number| table.port(&mac(number)));
        assert_eq!(found, [Some(0), None, Some(2)]);
        assert_eq!(table.shares[&1], 0);
        table.forget(2);
        assert_eq!(table.port(&mac(3)), None);
        table.forget(0);
        assert_eq!(table.port(&mac(1)), Some(0));
    }

    #[test]
    fn fixed_addresses_are_nobody_elses() {
        let now = Instant::now();
        let mut table = Table::default();
        table.fix(mac(1), 0);
        assert_eq!(table.learn(mac(1), 0, now), Ok(()));
        assert_eq!(table.learn(mac(1), 1, now), Err(Spoofed));
        for bad in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            assert_eq!(table.learn(bad, 1, now), Err(Spoofed));
        }
        assert_eq!(table.port(&mac(1)), Some(0));
    }

    #[test]
    fn an_address_that_moves_to_a_full_port_is_forgotten() {
        let now = Instant::now();
        let mut table = Table::default();
        for number in 0..SHARE as u16 {
            table.learn(mac(number), 1, now).unwrap();
        }
        table.learn(mac(1000), 2, now).unwrap();
        table.learn(mac(1000), 1, now).unwrap();
        assert_eq!(table.port(&mac(1000)), None);
        assert_eq!([table.shares[&1], table.shares[&2]], [SHARE, 0]);
    }

    proptest! {
        /// However many addresses a peer claims, it has no more than its share, and the counts are
        /// right.
        #[test]
        fn shares_are_bounded(steps in prop::collection::vec((0u16..700, 0usize..3, 0u64..20), 1..2000)) {
            let mut now = Instant::now();
            let mut table = Table::default();
            for (number, port, seconds) in steps {
                now += Duration::from_secs(seconds / 19);
                let _ = table.learn(mac(number), port, now);
            }
            for port in 0..3 {
                let count = table.stations.values().filter(|station| station.port == port).count();
                prop_assert_eq!(count, table.shares.get(&port).copied().unwrap_or(0));
                prop_assert!(count <= SHARE);
            }
        }
    }
}
