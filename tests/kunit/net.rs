// SPDX-License-Identifier: GPL-2.0

//! `net_ext`.

use kernel::prelude::*;

#[kunit_tests(net_ext)]
mod tests {
    use net_ext::{
        eui64_from_mac,
        skb::{
            NewSkBuff,
            PacketList,
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

    /// A packet with so much behind the headers of IPv4 and UDP.
    fn packet(payload: usize) -> Result<NewSkBuff> {
        let mut packet = NewSkBuff::new(PacketList::HEADROOM, 28 + payload)?;
        packet.append(28 + payload)?;
        Ok(packet)
    }

    fn list(payload: usize) -> Result<PacketList> {
        PacketList::new(packet(payload)?, 20).map_err(|_| EINVAL)
    }

    /// A list ends with a shorter packet, with its most packets, and before an IP packet would be too
    /// long for its length; and what cannot be cut is not taken at all. That is given back, and all is
    /// freed.
    #[test]
    fn a_list_takes_what_can_be_cut() -> Result {
        let mut some = list(100)?;
        assert!(some.push(packet(101)?).is_err());
        assert!(some.push(packet(0)?).is_err());
        let mut close = NewSkBuff::new(PacketList::HEADROOM - 1, 128)?;
        close.append(128)?;
        assert_eq!(some.push(close).map_err(|packet| packet.len()), Err(128));
        assert!(some.push(packet(100)?).is_ok() && !some.is_full());
        assert!(some.push(packet(99)?).is_ok() && some.is_full());
        assert!(some.push(packet(99)?).is_err());
        assert_eq!(some.count(), 3);

        let mut many = list(100)?;
        while !many.is_full() {
            assert!(many.push(packet(100)?).is_ok());
        }
        assert_eq!(many.count(), PacketList::MOST);

        // 28 + 15 * 4112 = 61708.
        let mut long = list(4112)?;
        while !long.is_full() {
            assert!(long.push(packet(4112)?).is_ok());
        }
        assert_eq!(long.count(), 15);

        assert!(PacketList::new(packet(0)?, 20).is_err());
        let mut close = NewSkBuff::new(PacketList::HEADROOM - 1, 128)?;
        close.append(128)?;
        assert!(PacketList::new(close, 20).is_err());
        Ok(())
    }
}
