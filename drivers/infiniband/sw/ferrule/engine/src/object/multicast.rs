// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: the datagram queue pairs that get the packets to a group's address.

use core::array;

use crate::{
    base::{
        attr::Gid,
        error::{
            Error,
            Refused,
            TableKind, //
        },
        host::Host,
        list::NONE,
        table::{
            tops,
            Table,
            TableChunk, //
        },
    },
    packet::ip::is_multicast,
};

/// The most groups of an engine that have members.
pub const MAX_MCAST_GRP: u32 = 1 << 13;

/// The most queue pairs of a group: a datagram to all of them is copied in one turn.
pub const MAX_MCAST_QP_ATTACH: usize = 56;

/// The number by which a datagram to a group calls its receiver (IBA volume 1, 10.5.2).
pub(crate) const MULTICAST_QPN: u32 = 0xff_ffff;

/// The lists by which a group is found: this power of two.
const LISTS_LOG: u32 = 6;
const LISTS: usize = 1 << LISTS_LOG;

/// The most groups of a list, twice as many as there are if all groups have members. Each datagram
/// to a group walks a list, and it is programs that choose the addresses.
const LONGEST: usize = 2 * MAX_MCAST_GRP as usize / LISTS;

/// A multicast group.
pub struct Group {
    gid: Gid,
    /// The numbers of the queue pairs that are attached: the first `count`.
    members: [u32; MAX_MCAST_QP_ATTACH],
    count: usize,
    /// The next group of the same list.
    next: u32,
}

impl Group {
    /// Memory for a group, to be handed to
    /// [`Engine::attach_mcast`](crate::Engine::attach_mcast).
    pub const fn new() -> Self {
        Self {
            gid: [0; 16],
            members: [0; MAX_MCAST_QP_ATTACH],
            count: 0,
            next: NONE,
        }
    }

    fn members(&self) -> &[u32] {
        self.members.get(..self.count).unwrap_or(&[])
    }
}

impl Default for Group {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue pairs of a group: so many of these.
pub(crate) struct Members([u32; MAX_MCAST_QP_ATTACH], usize);

impl Members {
    pub(crate) fn as_slice(&self) -> &[u32] {
        let Members(members, count) = self;
        members.get(..*count).unwrap_or(&[])
    }
}

/// The result of an attachment to a group: its memory `B`, if it was not needed.
pub type Attached<B> = Result<Option<B>, Refused<B>>;

/// All groups that have members.
pub(crate) struct Groups<H: Host> {
    table: Table<H, Group, (), { tops(MAX_MCAST_GRP) }>,
    /// The first group of each list.
    first: [u32; LISTS],
    /// The hash's key: it decides in which list a group stands, so that nobody can choose addresses
    /// of one list.
    secret: [u64; 4],
}

impl<H: Host> Groups<H> {
    pub(crate) fn new(random: u32) -> Self {
        // Numbers that follow from one (SplitMix64).
        let mut state = u64::from(random);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = state ^ state.wrapping_shr(30);
            let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed.wrapping_shr(27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed.wrapping_shr(31)
        };
        Self {
            table: Table::new(TableKind::Groups, 0, MAX_MCAST_GRP, 0),
            first: array::from_fn(|_| NONE),
            secret: array::from_fn(|_| next()),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Group, ()>,
    ) -> Option<TableChunk<H, Group, ()>> {
        self.table.grow(chunk)
    }

    /// The list that a group of this address stands in: a sum of products of pairs of words, each
    /// with a secret number added, of which the upper bits are as good as random.
    pub(crate) fn list(&self, gid: &Gid) -> usize {
        let [a, b, c, d] = zerocopy::transmute!(*gid);
        let [a, b, c, d]: [u64; 4] =
            [a, b, c, d].map(|word: [u8; 4]| u32::from_be_bytes(word).into());
        let [e, f, g, h] = self.secret;
        let first = a.wrapping_add(e).wrapping_mul(b.wrapping_add(f));
        let second = c.wrapping_add(g).wrapping_mul(d.wrapping_add(h));
        first
            .wrapping_add(second)
            .wrapping_shr(u64::BITS.wrapping_sub(LISTS_LOG)) as usize
    }

    /// Whether the list that begins with this group is as long as may be.
    fn is_long(&self, first: u32) -> bool {
        let mut next = first;
        for _ in 0..LONGEST {
            match self.table.get(next) {
                Some(group) => next = group.next,
                None => return false,
            }
        }
        true
    }

    /// The index of a group.
    fn find(&self, gid: &Gid) -> Option<u32> {
        let mut next = *self.first.get(self.list(gid))?;
        while let Some(group) = self.table.get(next) {
            if group.gid == *gid {
                return Some(next);
            }
            next = group.next;
        }
        None
    }

    /// Attaches a queue pair; `memory` is handed back if the group is there already.
    pub(crate) fn attach(
        &mut self,
        gid: &Gid,
        qpn: u32,
        memory: H::Box<Group>,
    ) -> Attached<H::Box<Group>> {
        let refused = |error, object| Err(Refused { error, object });
        if !is_multicast(gid) {
            return refused(Error::Invalid, memory);
        }
        if let Some(group) = self.find(gid).and_then(|index| self.table.get_mut(index)) {
            if group.members().contains(&qpn) {
                return refused(Error::Invalid, memory);
            }
            let Some(place) = group.members.get_mut(group.count) else {
                return refused(Error::Full, memory);
            };
            *place = qpn;
            group.count = group.count.wrapping_add(1);
            return Ok(Some(memory));
        }
        let list = self.list(gid);
        match self.first.get(list) {
            Some(&first) if !self.is_long(first) => (),
            _ => return refused(Error::Full, memory),
        }
        let Some(first) = self.first.get_mut(list) else {
            return refused(Error::Full, memory);
        };
        let index = self.table.insert(memory, |group, _, _| {
            *group = Group {
                gid: *gid,
                next: *first,
                ..Group::new()
            };
            if let Some(place) = group.members.first_mut() {
                *place = qpn;
                group.count = 1;
            }
        })?;
        *first = index;
        Ok(None)
    }

    /// Detaches a queue pair; returns the memory of the group if that was its last.
    pub(crate) fn detach(&mut self, gid: &Gid, qpn: u32) -> Result<Option<H::Box<Group>>, Error> {
        let index = self.find(gid).ok_or(Error::NotFound)?;
        let group = self.table.get_mut(index).ok_or(Error::NotFound)?;
        let place = group
            .members()
            .iter()
            .position(|&member| member == qpn)
            .ok_or(Error::NotFound)?;
        let last = group.count.wrapping_sub(1);
        if let Some(&moved) = group.members.get(last) {
            if let Some(place) = group.members.get_mut(place) {
                *place = moved;
            }
        }
        group.count = last;
        if last != 0 {
            return Ok(None);
        }
        let after = group.next;
        let list = self.list(gid);
        let mut before = *self.first.get(list).ok_or(Error::NotFound)?;
        if before == index {
            if let Some(first) = self.first.get_mut(list) {
                *first = after;
            }
        } else {
            while let Some(group) = self.table.get_mut(before) {
                if group.next == index {
                    group.next = after;
                    break;
                }
                before = group.next;
            }
        }
        Ok(self.table.remove(index))
    }

    /// The queue pairs that a datagram to this address is for: as they are now, whatever becomes of
    /// the group while the datagram is handed to them.
    pub(crate) fn members(&self, gid: &Gid) -> Members {
        let group = self.find(gid).and_then(|index| self.table.get(index));
        match group {
            Some(group) => Members(group.members, group.count),
            None => Members([0; MAX_MCAST_QP_ATTACH], 0),
        }
    }
}
