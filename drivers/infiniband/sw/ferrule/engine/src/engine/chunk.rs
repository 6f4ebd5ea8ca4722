// SPDX-License-Identifier: GPL-2.0

//! Memory for tables to grow, of each kind that there is.

use core::fmt;

use crate::{
    base::{
        error::{
            NeedChunk,
            TableKind, //
        },
        host::Host,
        table::TableChunk, //
    },
    memory::{
        memory_region::Mr,
        memory_window::Mw, //
    },
    object::{
        address::Ah,
        cq::{
            Cq,
            CqLink, //
        },
        multicast::Group,
        protection_domain::Pd,
        srq::Srq,
        user_context::{
            ContextLink,
            UserContext, //
        },
    },
    queue_pair::qp::{
        Qp,
        QpLink, //
    },
};

/// A host may have a table grow before it asks.
impl From<TableKind> for NeedChunk {
    fn from(kind: TableKind) -> Self {
        Self(kind)
    }
}

impl NeedChunk {
    /// Allocates the chunk, with [`Host::boxed`], so this may sleep: call it without the shard.
    ///
    /// It is for the next block of numbers. A host with several engines says which one it is
    /// instead, by [`Chunk::set_block`] or [`Engine::give_block`](crate::Engine::give_block).
    pub fn allocate<H: Host>(self) -> Option<Chunk<H>> {
        Some(Chunk(match self.0 {
            TableKind::Contexts => ChunkKind::Contexts(TableChunk::new()?),
            TableKind::Pds => ChunkKind::Pds(TableChunk::new()?),
            TableKind::Keys => ChunkKind::Keys(TableChunk::new()?),
            TableKind::Mws => ChunkKind::Mws(TableChunk::new()?),
            TableKind::Cqs => ChunkKind::Cqs(TableChunk::new()?),
            TableKind::Qps => ChunkKind::Qps(TableChunk::new()?),
            TableKind::Srqs => ChunkKind::Srqs(TableChunk::new()?),
            TableKind::Ahs => ChunkKind::Ahs(TableChunk::new()?),
            TableKind::Groups => ChunkKind::Groups(TableChunk::new()?),
        }))
    }

    /// The kind of objects for which there is no number.
    pub fn kind(self) -> TableKind {
        self.0
    }
}

/// Memory for 64 more objects, on its way to [`Engine::add_chunk`](crate::Engine::add_chunk).
pub struct Chunk<H: Host>(pub(crate) ChunkKind<H>);

impl<H: Host> Chunk<H> {
    /// It is for this block of numbers, which no engine of the device has.
    pub fn set_block(&mut self, number: u32) {
        match &mut self.0 {
            ChunkKind::Contexts(chunk) => chunk.set_block(number),
            ChunkKind::Pds(chunk) => chunk.set_block(number),
            ChunkKind::Keys(chunk) => chunk.set_block(number),
            ChunkKind::Mws(chunk) => chunk.set_block(number),
            ChunkKind::Cqs(chunk) => chunk.set_block(number),
            ChunkKind::Qps(chunk) => chunk.set_block(number),
            ChunkKind::Srqs(chunk) => chunk.set_block(number),
            ChunkKind::Ahs(chunk) => chunk.set_block(number),
            ChunkKind::Groups(chunk) => chunk.set_block(number),
        }
    }
}

impl<H: Host> fmt::Debug for Chunk<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chunk")
    }
}

/// A chunk of each kind of table.
pub(crate) enum ChunkKind<H: Host> {
    Contexts(TableChunk<H, UserContext<H>, ContextLink>),
    Pds(TableChunk<H, Pd, ()>),
    Keys(TableChunk<H, Mr<H>, ()>),
    Mws(TableChunk<H, Mw, ()>),
    Cqs(TableChunk<H, Cq<H>, CqLink>),
    Qps(TableChunk<H, Qp<H>, QpLink>),
    Srqs(TableChunk<H, Srq<H>, ()>),
    Ahs(TableChunk<H, Ah<H>, ()>),
    Groups(TableChunk<H, Group, ()>),
}
