// SPDX-License-Identifier: GPL-2.0

//! Packets that have come, as the engine takes them, and where they wait for one before them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrule_engine::{host, Fault, Host, PacketBytes, Region as _, RxPacket};

use crate::addresses::vport;
use crate::region::Region;
use crate::roce::received::Received;

/// Continues a CRC of Ethernet, not inverted at either end. The crate's is by the processor's
/// instructions, and inverts it.
#[inline]
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!crc);
    hasher.update(bytes);
    !hasher.finalize()
}

/// A packet as the engine takes it; `None` if its port can be none of the engine's.
pub(crate) fn rx_packet<H: Host<Packet = Received>>(packet: &Received) -> Option<RxPacket<'_, H>> {
    Some(RxPacket {
        ip: packet.ip(),
        udp: packet.udp(),
        packet,
        icrc: packet.icrc(),
        sl: 0,
        vport: vport(packet.port()).ok()?,
    })
}

impl PacketBytes<Region> for Received {
    #[inline]
    fn headers(&self) -> &[u8] {
        self.transport()
    }

    #[inline]
    fn length(&self) -> usize {
        self.transport().len()
    }

    #[inline]
    fn crc32(&self, crc: u32, offset: usize, length: usize) -> Result<u32, Fault> {
        Ok(crc32(crc, part(self, offset, length)?))
    }

    #[inline]
    fn copy(&self, offset: usize, to: &Region, to_offset: u64, length: usize) -> Result<(), Fault> {
        to.write(to_offset, part(self, offset, length)?)
    }
}

fn part(packet: &Received, offset: usize, length: usize) -> Result<&[u8], Fault> {
    let rest = packet.transport().get(offset..).ok_or(Fault)?;
    rest.get(..length).ok_or(Fault)
}

/// How many packets are buffered at most, of all queue pairs: peers decide how many come. With the
/// frames that they lie in, they are 20 MiB.
const LIMIT: u32 = 4096;

/// How many are buffered.
static BUFFERED: AtomicU32 = AtomicU32::new(0);

/// One slot of [`LIMIT`], for one packet.
#[derive(Debug)]
struct Slot(());

impl Slot {
    /// One more, if there is space.
    fn new() -> Option<Self> {
        // Dropped again if there is none, which is when it is counted down.
        let slot = Slot(());
        (BUFFERED.fetch_add(1, Ordering::Relaxed) < LIMIT).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        BUFFERED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The out-of-order packets of a queue pair in one direction, by sequence number.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer(BTreeMap<u32, (Received, Slot)>);

impl host::Reorder<Received> for ReorderBuffer {
    fn insert(&mut self, number: u32, packet: &Received) {
        if self.0.contains_key(&number) {
            return;
        }
        if let Some(slot) = Slot::new() {
            self.0.insert(number, (packet.kept(), slot));
        }
    }

    fn remove(&mut self, number: u32) -> Option<Received> {
        self.0.remove(&number).map(|(packet, _)| packet)
    }

    fn first_from(&self, number: u32) -> Option<u32> {
        let mut from = self.0.range(number..);
        let first = from.next().or_else(|| self.0.first_key_value())?;
        Some(*first.0)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use ferrule_engine::packet::icrc;

    use super::*;

    #[test]
    fn the_crc_is_the_engines() {
        let bytes: Vec<u8> = (0..300).map(|i| (i * 7) as u8).collect();
        for length in [0, 1, 15, 16, 17, 63, 300] {
            for crc in [0, !0, 0x1234_5678] {
                let expected = icrc::crc32(crc, &bytes[..length]);
                assert_eq!(crc32(crc, &bytes[..length]), expected);
            }
        }
    }
}
