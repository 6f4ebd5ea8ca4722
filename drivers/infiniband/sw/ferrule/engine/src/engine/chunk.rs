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
        key::Mr,
        memory_window::Mw, //
    },
    object::{
        address::Ah,
        cq::{
            Cq,
            CqLink, //
        },
        multicast::Group,
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

impl NeedChunk {
    /// Allocates the chunk, with [`Host::boxed`], so this may sleep: call it without the shard.
    pub fn allocate<H: Host>(self) -> Option<Chunk<H>> {
        Some(Chunk(match self.0 {
            TableKind::Contexts => ChunkKind::Contexts(TableChunk::new()?),
            TableKind::Keys => ChunkKind::Keys(TableChunk::new()?),
            TableKind::Mws => ChunkKind::Mws(TableChunk::new()?),
            TableKind::Cqs => ChunkKind::Cqs(TableChunk::new()?),
            TableKind::Qps => ChunkKind::Qps(TableChunk::new()?),
            TableKind::Srqs => ChunkKind::Srqs(TableChunk::new()?),
            TableKind::Ahs => ChunkKind::Ahs(TableChunk::new()?),
            TableKind::Groups => ChunkKind::Groups(TableChunk::new()?),
        }))
    }
}

/// Memory for 64 more objects, on its way to [`Engine::add_chunk`](crate::Engine::add_chunk).
pub struct Chunk<H: Host>(pub(crate) ChunkKind<H>);

impl<H: Host> fmt::Debug for Chunk<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chunk")
    }
}

/// A chunk of each kind of table.
pub(crate) enum ChunkKind<H: Host> {
    Contexts(TableChunk<H, UserContext<H>, ContextLink>),
    Keys(TableChunk<H, Mr<H>, ()>),
    Mws(TableChunk<H, Mw, ()>),
    Cqs(TableChunk<H, Cq<H>, CqLink>),
    Qps(TableChunk<H, Qp<H>, QpLink>),
    Srqs(TableChunk<H, Srq<H>, ()>),
    Ahs(TableChunk<H, Ah<H>, ()>),
    Groups(TableChunk<H, Group, ()>),
}
