// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys, queues and address handles have in common.
//!
//! A host with several engines finds by it the one that has them. A host with one engine may number its domains as it likes.

use crate::base::{
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

/// How many protection domains there can be.
pub const MAX_PD: u32 = 65536;

/// A protection domain.
#[derive(Debug, Default)]
pub struct Pd(());

/// All protection domains.
pub(crate) struct Pds<H: Host> {
    table: Table<H, Pd, (), { tops(MAX_PD) }>,
}

impl<H: Host> Pds<H> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TableKind::Pds, 0, MAX_PD, 0),
        }
    }

    pub(crate) fn add(&mut self, pd: H::Box<Pd>) -> Result<u32, Refused<H::Box<Pd>>> {
        self.table.insert(pd, |_, _, _| ())
    }

    pub(crate) fn remove(&mut self, number: u32) -> Result<H::Box<Pd>, Error> {
        self.table.remove(number).ok_or(Error::NotFound)
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn grow(&mut self, chunk: TableChunk<H, Pd, ()>) -> Option<TableChunk<H, Pd, ()>> {
        self.table.grow(chunk)
    }

    /// Gives a block without objects to the table of another engine ([`Table::give`]).
    pub(crate) fn give(&mut self, all: bool, chunk: &mut TableChunk<H, Pd, ()>) -> Option<u32> {
        self.table.give(all, chunk)
    }

    /// Takes over all domains of `other`, and tells of each block.
    pub(crate) fn take_over(&mut self, other: &mut Self, each: impl FnMut(u32)) {
        self.table.take_over(&mut other.table, each);
    }
}
