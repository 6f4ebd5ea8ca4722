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
        context::{
            Context,
            ContextLink, //
        },
        cq::{
            Cq,
            CqLink, //
        },
        multicast::Group,
        srq::Srq, //
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
            TableKind::Contexts => Kind::Contexts(TableChunk::new()?),
            TableKind::Keys => Kind::Keys(TableChunk::new()?),
            TableKind::Windows => Kind::Windows(TableChunk::new()?),
            TableKind::Cqs => Kind::Cqs(TableChunk::new()?),
            TableKind::Qps => Kind::Qps(TableChunk::new()?),
            TableKind::Srqs => Kind::Srqs(TableChunk::new()?),
            TableKind::Ahs => Kind::Ahs(TableChunk::new()?),
            TableKind::Groups => Kind::Groups(TableChunk::new()?),
        }))
    }
}

/// Memory for 64 more objects, on its way to [`Engine::add_chunk`](crate::Engine::add_chunk).
pub struct Chunk<H: Host>(pub(crate) Kind<H>);

impl<H: Host> fmt::Debug for Chunk<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chunk")
    }
}

/// A chunk of each kind of table.
pub(crate) enum Kind<H: Host> {
    Contexts(TableChunk<H, Context<H>, ContextLink>),
    Keys(TableChunk<H, Mr<H>, ()>),
    Windows(TableChunk<H, Mw, ()>),
    Cqs(TableChunk<H, Cq<H>, CqLink>),
    Qps(TableChunk<H, Qp<H>, QpLink>),
    Srqs(TableChunk<H, Srq<H>, ()>),
    Ahs(TableChunk<H, Ah<H>, ()>),
    Groups(TableChunk<H, Group, ()>),
}
