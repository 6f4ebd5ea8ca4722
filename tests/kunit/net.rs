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

    /// The packets that wait for a device are bounded; one too many is given back.
    #[test]
    fn a_queue_takes_no_more_than_its_limit() -> Result {
        const LIMIT: usize = 100;

        let queue = KBox::pin_init(Queue::new(), GFP_KERNEL)?;
        for number in 0..2 * LIMIT {
            let mut packet = NewSkBuff::new(0, 1)?;
            packet.append(&[number as u8])?;
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

    /// A packet is what was written to it: neither less, nor what was in memory before.
    #[test]
    fn a_packet_has_what_was_added() -> Result {
        let mut packet = NewSkBuff::new(2, 8)?;
        packet.append_with(8, |to| to.append(b"cd"))?;
        packet.append(b"ef")?;
        packet.prepend(b"b")?;
        packet.prepend(b"a")?;
        assert_eq!(packet.linear(), b"abcdef");
        assert_eq!(packet.prepend(b"x"), Err(ENOSPC));
        // A failed write leaves nothing, whatever was written before it.
        let failed = packet.append_with(4, |to| {
            to.append(b"gh")?;
            assert_eq!(to.bytes(), b"gh");
            assert_eq!(to.append(b"ijk"), Err(ENOSPC));
            Err(EIO)
        });
        assert_eq!((failed, packet.linear()), (Err(EIO), &b"abcdef"[..]));
        assert_eq!(packet.append(&[0; 1024]), Err(ENOSPC));
        // Other bytes are not those that were lent.
        let strange = packet.append_with(2, |to| to.append_by(2, |_| Ok(&mut [])));
        assert_eq!((strange, packet.len()), (Err(EINVAL), 6));
        Ok(())
    }

    /// A packet with so much behind the headers of IPv4 and UDP, and so much space in front.
    fn packet_in(headroom: usize, payload: usize) -> Result<NewSkBuff> {
        let mut packet = NewSkBuff::new(headroom, 28 + payload)?;
        let mut front = [0; 28];
        (front[0], front[9]) = (0x45, 17);
        packet.append(&front)?;
        for _ in 0..payload {
            packet.append(&[0])?;
        }
        Ok(packet)
    }

    fn packet(payload: usize) -> Result<NewSkBuff> {
        packet_in(PacketList::HEADROOM, payload)
    }

    fn list(payload: usize) -> Result<PacketList> {
        PacketList::new(packet(payload)?).map_err(|_| EINVAL)
    }

    /// A list ends with a shorter packet, with its most packets, and before an IP packet would be
    /// too long for its length; and what cannot be cut is not taken at all. That is given back, and
    /// all is freed.
    #[test]
    fn a_list_takes_what_can_be_cut() -> Result {
        let mut some = list(100)?;
        assert!(some.push(packet(101)?).is_err());
        assert!(some.push(packet(0)?).is_err());
        let close = packet_in(PacketList::HEADROOM - 1, 100)?;
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

        assert!(PacketList::new(packet(0)?).is_err());
        let close = packet_in(PacketList::HEADROOM - 1, 100)?;
        assert!(PacketList::new(close).is_err());

        // A packet without such headers is none of UDP.
        let mut other = NewSkBuff::new(PacketList::HEADROOM, 200)?;
        other.append(&[0x45; 200])?;
        let other = PacketList::new(other).err().ok_or(EINVAL)?;
        assert!(list(200)?.push(other).is_err());
        Ok(())
    }
}
