// SPDX-License-Identifier: GPL-2.0

//! `net_ext`.

use kernel::prelude::*;

#[kunit_tests(net_ext)]
mod tests {
    use net_ext::{
        eui64_from_mac,
        skb::{
            NewSkBuff,
            Queue, //
        }, //
    };

    use super::*;

    #[test]
    fn eui64_has_the_local_bit_inverted() {
        // RFC 4291, appendix A.
        let eui = eui64_from_mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(eui, 0x3656_78ff_fe9a_bcde);
        assert_eq!(eui64_from_mac([0x02, 0, 0, 0, 0, 1]), 0x0000_00ff_fe00_0001);
    }

    /// What waits for a device is bounded, whatever comes; what does not fit is given back.
    #[test]
    fn a_queue_takes_no_more_than_its_limit() -> Result {
        const LIMIT: usize = 100;

        let queue = KBox::pin_init(Queue::new(), GFP_KERNEL)?;
        for number in 0..2 * LIMIT {
            let mut packet = NewSkBuff::new(0, 1)?;
            packet.append(1)?.fill(number as u8);
            assert_eq!(queue.push(packet.into(), LIMIT).is_ok(), number < LIMIT);
        }
        assert_eq!(queue.len(), LIMIT);
        // In their order; the rest is dropped with the queue.
        for number in 0..LIMIT / 2 {
            let first = queue.pop().ok_or(ENOENT)?;
            assert_eq!(first.linear().first().copied(), Some(number as u8));
        }
        assert_eq!(queue.len(), LIMIT / 2);
        Ok(())
    }
}
