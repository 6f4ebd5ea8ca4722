// SPDX-License-Identifier: GPL-2.0

//! Scans that pause, while others set bits.

use std::collections::BTreeSet;

use ferrule_engine::BitmapScan;
use proptest::prelude::*;

use crate::sim::cases;

/// The words of both levels, each of which is cleared when the scan takes it.
struct Words {
    tops: u64,
    above: [u64; 16],
    below: [u64; 1024],
}

impl Words {
    fn set(&mut self, number: u32) {
        let (word, top) = (number / 64, number / 64 / 64);
        self.below[word as usize] |= 1 << (number % 64);
        self.above[top as usize] |= 1 << (word % 64);
        self.tops |= 1 << top;
    }

    /// Goes on, and begins anew at the end of a scan. Returns what was found.
    fn resume(&mut self, scan: &mut BitmapScan, looks: &mut u32) -> Vec<u32> {
        if scan.is_done() {
            *scan = BitmapScan::new(std::mem::take(&mut self.tops));
        }
        let mut found = Vec::new();
        scan.resume(
            looks,
            |top| std::mem::take(&mut self.above[top as usize]),
            |word| std::mem::take(&mut self.below[word as usize]),
            |number| found.push(number),
        );
        found
    }
}

const NONE: Words = Words {
    tops: 0,
    above: [0; 16],
    below: [0; 1024],
};

#[test]
fn a_whole_tree_is_scanned_in_order_look_by_look() {
    let mut words = Words {
        tops: (1 << 16) - 1,
        above: [!0; 16],
        below: [!0; 1024],
    };
    let mut scan = BitmapScan::DONE;
    let mut found = Vec::new();
    for n in 0..16 + 1024 + 65536 {
        assert!(n == 0 || !scan.is_done());
        let mut looks = 1;
        found.extend(words.resume(&mut scan, &mut looks));
        assert_eq!(looks, 0, "each step is a look");
    }
    assert!(scan.is_done());
    assert!((0..65536).eq(found));
}

proptest! {
    #![proptest_config(cases(200))]

    /// Each bit is found once for each time that it was set anew, and at the latest in the scan
    /// that begins after that.
    #[test]
    fn a_set_bit_is_found_once(
        steps in prop::collection::vec(
            (prop::collection::vec(prop_oneof![0u32..200, 0u32..65536], 0..20), 0u32..40),
            1..40,
        ),
    ) {
        let mut words = NONE;
        let mut scan = BitmapScan::DONE;
        let mut waiting = BTreeSet::new();
        // Those that waited when the scan began.
        let mut due = BTreeSet::new();
        for (numbers, most) in steps {
            for number in numbers {
                words.set(number);
                waiting.insert(number);
            }
            if scan.is_done() {
                prop_assert!(due.is_empty(), "left by a scan: {due:?}");
                due = waiting.clone();
            }
            let mut looks = most;
            let found = words.resume(&mut scan, &mut looks);
            prop_assert!(found.len() as u32 <= most - looks);
            prop_assert!(looks == 0 || scan.is_done());
            for number in found {
                // One that was taken before it was set again is found twice.
                waiting.remove(&number);
                due.remove(&number);
            }
        }
        for _ in 0..2 {
            let found = words.resume(&mut scan, &mut (1 << 20));
            found.iter().for_each(|number| { waiting.remove(number); });
        }
        prop_assert!(waiting.is_empty(), "never found: {waiting:?}");
    }
}
