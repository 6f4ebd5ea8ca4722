// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: which datagram queue pairs get what is sent to a group's address.

use core::array;

use crate::{
    attr::Gid,
    error::{
        Error,
        Refused, //
    },
    host::Host,
    table::{
        tops,
        Table,
        TableChunk,
        TableKind,
        NONE, //
    },
};

/// The most groups of an engine that have members.
pub const MAX_MCAST_GRP: u32 = 1 << 13;

/// The most queue pairs of a group: a datagram to all of them is copied in one turn.
pub const MAX_MCAST_QP_ATTACH: usize = 56;

/// The number by which a datagram to a group calls its receiver (IBA volume 1, 10.5.2).
pub(crate) const MULTICAST_QPN: u32 = 0xff_ffff;

/// The lists by which a group is found.
const BUCKETS: usize = 64;

/// Whether an address is a group's: that of an IPv6 or, mapped, of an IPv4 multicast group.
pub(crate) fn is_multicast(gid: &Gid) -> bool {
    matches!(
        gid,
        [0xff, ..] | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xe0..=0xef, ..]
    )
}

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

/// What the attachment to a group answers: its memory `B`, if it was not needed.
pub type Attached<B> = Result<Option<B>, Refused<B>>;

/// All groups that have members.
pub(crate) struct Groups<H: Host> {
    table: Table<H, Group, (), { tops(MAX_MCAST_GRP) }>,
    /// The first group of each list.
    first: [u32; BUCKETS],
}

impl<H: Host> Groups<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Groups, 0, MAX_MCAST_GRP, 0),
            first: array::from_fn(|_| NONE),
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

    /// The list that a group of this address stands in.
    fn bucket(gid: &Gid) -> usize {
        let sum = gid
            .iter()
            .fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
        usize::from(sum) % BUCKETS
    }

    /// The index of a group.
    fn find(&self, gid: &Gid) -> Option<u32> {
        let mut next = *self.first.get(Self::bucket(gid))?;
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
        let Some(first) = self.first.get_mut(Self::bucket(gid)) else {
            return refused(Error::Invalid, memory);
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

    /// Detaches a queue pair; answers the memory of the group if that was its last.
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
        let bucket = Self::bucket(gid);
        let mut before = *self.first.get(bucket).ok_or(Error::NotFound)?;
        if before == index {
            if let Some(first) = self.first.get_mut(bucket) {
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
