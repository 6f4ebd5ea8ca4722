// SPDX-License-Identifier: GPL-2.0

//! Address handles of programs: the destinations that requests of datagrams name by a number.
//!
//! A request's path is copied when the request is taken, so that a handle may go at any time. The
//! number is the index in the upper 24 bits and the index's generation in the lower 8.

use crate::base::{
    attr::Path,
    error::{
        Error,
        Refused,
        TableKind, //
    },
    host::Host,
    table::{
        tops,
        Table,
        TableChunk, //
    },
};

/// One more than the most address handles of an engine: none has the index 0.
pub const MAX_AH: u32 = 1 << 16;

/// An address handle.
pub struct Ah<H: Host> {
    number: u32,
    pd: u32,
    path: Path,
    route: Option<H::Route>,
}

impl<H: Host> Ah<H> {
    /// Makes an address handle, to be handed to [`Engine::add_ah`](crate::Engine::add_ah), for
    /// queue pairs of the protection domain `pd`. With a path to remote peers, or to a group, comes
    /// the route to them.
    pub fn new(pd: u32, path: Path, route: Option<H::Route>) -> Self {
        Self {
            number: 0,
            pd,
            path,
            route,
        }
    }
}

/// All address handles.
pub(crate) struct Ahs<H: Host> {
    table: Table<H, Ah<H>, (), { tops(MAX_AH) }>,
}

impl<H: Host> Ahs<H> {
    pub(crate) fn new() -> Self {
        // Index 0 is left out, so that no number is 0.
        Self {
            table: Table::new(TableKind::Ahs, 1, MAX_AH, 0),
        }
    }

    pub(crate) fn add(&mut self, ah: H::Box<Ah<H>>) -> Result<u32, Refused<H::Box<Ah<H>>>> {
        let mut number = 0;
        self.table.insert(ah, |ah, index, generation| {
            number = index.wrapping_shl(8) | u32::from(generation as u8);
            ah.number = number;
        })?;
        Ok(number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Result<H::Box<Ah<H>>, Error> {
        let index = number.wrapping_shr(8);
        match self.table.get(index) {
            Some(ah) if ah.number == number => self.table.remove(index).ok_or(Error::NotFound),
            _ => Err(Error::NotFound),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(
        &mut self,
        chunk: TableChunk<H, Ah<H>, ()>,
    ) -> Option<TableChunk<H, Ah<H>, ()>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, Ah<H>, ()>) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all address handles of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
    }

    /// The path of a handle, if the queue pairs of the protection domain may use it.
    #[inline]
    pub(crate) fn path(&self, number: u32, pd: u32) -> Option<Path> {
        let ah = self.table.get(number.wrapping_shr(8))?;
        (ah.number == number && ah.pd == pd).then_some(ah.path)
    }

    /// The route of a handle, to be lent to the host.
    pub(crate) fn route(&mut self, number: u32) -> Option<&mut H::Route> {
        let ah = self.table.get_mut(number.wrapping_shr(8))?;
        if ah.number == number {
            ah.route.as_mut()
        } else {
            None
        }
    }
}
