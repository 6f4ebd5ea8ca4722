// SPDX-License-Identifier: GPL-2.0

//! Packets that leave as one.

use core::ptr::NonNull;

use kernel::prelude::*;

use super::{
    NewSkBuff,
    OwnedSkBuff, //
};
use crate::{
    bindings,
    ip::{
        self,
        UDP_LEN, //
    }, //
};

/// Packets of one flow and one size, but for the last, that take the way out as one.
///
/// Each is whole, with headers of its own. The stack reads the first one's; filters and queueing
/// disciplines see one packet, and where a device does not take it as such, it is cut into what it
/// was made of, which the device's driver then gets in one go, with one doorbell.
///
/// When it is cut, the lengths in the headers are set to what they were, and the checksums of IPv4
/// are made anew; in front, each packet gets the link header of the first. They have one size
/// because a list that was changed on its way is linearised and cut by size.
///
/// A list that was sent counts as on its way ([`Charged::queued`](crate::account::Charged::queued))
/// until the first packet is gone, so up to a list for each queue of the device may be on its way
/// without being counted.
///
/// # Invariants
///
/// `head` and the packets that hang behind it belong to us alone. `last` is the last of them. Each
/// begins, or began, with an IP header of `ip_len` bytes and a UDP header, in one piece, and has
/// more; in front of that it has space for [`PacketList::HEADROOM`] bytes.
pub struct PacketList {
    head: OwnedSkBuff,
    last: NonNull<bindings::sk_buff>,
    ip_len: usize,
    /// The bytes of the first one, with its headers, and of all, in which headers count once.
    size: usize,
    total: usize,
    count: usize,
}

impl PacketList {
    /// As many as GRO puts together, and so what every device has met.
    pub const MOST: usize = 64;

    /// The space that each packet has to have in front. When a list is cut, the link header, with
    /// tags or a tunnel's headers if some have got into it on the way, is copied there from the
    /// first packet's, and nobody checks whether there is space: lists of GRO have it. It is what
    /// drivers leave in front of what they receive (`NET_SKB_PAD`), and more.
    pub const HEADROOM: usize = 128;

    /// A list of one packet, which begins with an IP header, without options or extensions, and a
    /// UDP header.
    ///
    /// # Errors
    ///
    /// The packet, if it does not, has no more than its headers, or too little space in front.
    pub fn new(packet: NewSkBuff) -> Result<Self, NewSkBuff> {
        let size = packet.len();
        let Some(ip_len) = Self::fit(&packet) else {
            return Err(packet);
        };
        let last = OwnedSkBuff::from(packet).into_raw();
        // SAFETY: The only reference to it has just been given up. Nobody has given it a socket, a
        // route or a device, as it was a `NewSkBuff` until now.
        let head = unsafe { OwnedSkBuff::from_raw(last) };
        // INVARIANT: The packet was ours alone, and in one piece. `fit` has found its headers,
        // something behind them, and the space in front.
        Ok(PacketList {
            last,
            head,
            ip_len,
            size,
            total: size,
            count: 1,
        })
    }

    /// The length of a packet's IP header, if the packet may be in a list: it has that header,
    /// without options or extensions, a UDP header and more, and the space in front.
    #[inline]
    fn fit(packet: &NewSkBuff) -> Option<usize> {
        let ip_len = ip::udp_header_at(packet.linear())?;
        let is_fit = packet.len() > ip_len + UDP_LEN && packet.headroom() >= Self::HEADROOM;
        is_fit.then_some(ip_len)
    }

    /// Adds a packet of the same flow.
    ///
    /// # Errors
    ///
    /// The packet, if it is longer than the first one, has other headers, no more than these or too
    /// little space in front, comes behind one that is shorter, or makes too many: more than
    /// [`MOST`](Self::MOST), or more bytes than the length of an IP packet can tell.
    #[inline]
    pub fn push(&mut self, packet: NewSkBuff) -> Result<(), NewSkBuff> {
        let headers = self.ip_len + UDP_LEN;
        let size = packet.len();
        if Self::fit(&packet) != Some(self.ip_len) || size > self.size || self.is_full() {
            return Err(packet);
        }
        let skb = OwnedSkBuff::from(packet).into_raw();
        // INVARIANT: The packet was ours alone, and is the list's now. `fit` has found its headers,
        // something behind them, and the space in front.
        //
        // SAFETY: All are ours alone and valid, by the type invariants. `last` is the last of the
        // list that begins with `head`, and the packet has more than the headers, in one piece, as
        // `NewSkBuff` has all of it.
        unsafe {
            bindings::skb_list_add(
                self.head.as_raw(),
                self.last.as_ptr(),
                skb.as_ptr(),
                self.ip_len as u32,
            );
        }
        self.last = skb;
        self.total += size - headers;
        self.count += 1;
        Ok(())
    }

    /// Whether no other packet may follow.
    #[inline]
    pub fn is_full(&self) -> bool {
        let payload = self.size - self.ip_len - UDP_LEN;
        let is_even = self.total == self.size + (self.count - 1) * payload;
        !is_even || self.count == Self::MOST || self.total + payload > usize::from(u16::MAX)
    }

    /// How many packets there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first packet, behind which the others hang.
    pub(crate) fn into_head(self) -> OwnedSkBuff {
        self.head
    }
}
