// SPDX-License-Identifier: GPL-2.0

//! Two engines of one device become one.

use crate::{
    base::{
        error::{
            Error,
            TableKind, //
        },
        host::Host, //
    },
    engine::{
        block::Block,
        chunk::{
            Chunk,
            ChunkKind, //
        },
        Engine, //
    },
};

/// Tells of blocks of a kind, of which a table tells the number.
fn of_kind(each: &mut impl FnMut(Block), kind: TableKind) -> impl FnMut(u32) + '_ {
    move |number| each(Block { kind, number })
}

impl<H: Host> Engine<H> {
    /// Puts a block of numbers without objects into a chunk that is for another engine of the
    /// device, and returns it; `None` if it finds none, or has no other free numbers of the kind.
    /// An engine that is not in use needs none.
    ///
    /// Multicast groups stay in one engine.
    pub fn give_block(&mut self, chunk: &mut Chunk<H>) -> Option<Block> {
        let all = self.parents() == 0;
        let (kind, number) = match &mut chunk.0 {
            ChunkKind::Contexts(chunk) => (TableKind::Contexts, self.contexts.give(all, chunk)),
            ChunkKind::Pds(chunk) => (TableKind::Pds, self.pds.give(all, chunk)),
            ChunkKind::Keys(chunk) => (TableKind::Keys, self.keys.give(all, chunk)),
            ChunkKind::Mws(chunk) => (TableKind::Mws, self.keys.mws.give(all, chunk)),
            ChunkKind::Cqs(chunk) => (TableKind::Cqs, self.cqs.give(all, chunk)),
            ChunkKind::Qps(chunk) => (TableKind::Qps, self.qps.give(all, chunk)),
            ChunkKind::Srqs(chunk) => (TableKind::Srqs, self.srqs.give(all, chunk)),
            ChunkKind::Ahs(chunk) => (TableKind::Ahs, self.port.ahs.give(all, chunk)),
            ChunkKind::Groups(_) => return None,
        };
        number.map(|number| Block { kind, number })
    }

    /// Takes over all objects of another engine of the same device, which has none then. Their
    /// numbers stay, and so does their work: the next [`Engine::run`] goes on with it. The counters
    /// of the other engine stay there.
    ///
    /// Tells of each block of numbers that has gone over. Takes time in proportion to the blocks,
    /// and to the contexts of the other engine that need not kick: they have to from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the other engine has multicast groups or sets of counters;
    /// [`Error::InUse`] while a copy job uses objects there. With replicas in one of the two, no
    /// job may use objects here either, since a region may be found at another place then than when
    /// its use was counted; [`Engine::is_copying`] tells which one is to be waited for. Nothing has
    /// changed then.
    pub fn merge(&mut self, other: &mut Self, mut each: impl FnMut(Block)) -> Result<(), Error> {
        if other.port.groups.len() != 0 || other.counters.has_sets() {
            return Err(Error::Busy);
        }
        other.keys.uses.claim()?;
        // A caller that was refused because of this engine is here again, or another one waits
        // likewise.
        let is_awaited = !self.keys.uses.may_begin();
        if is_awaited || !self.keys.replicas.is_empty() || !other.keys.replicas.is_empty() {
            self.keys.uses.claim()?;
        }
        self.contexts
            .take_over(&mut other.contexts, of_kind(&mut each, TableKind::Contexts));
        self.pds
            .take_over(&mut other.pds, of_kind(&mut each, TableKind::Pds));
        self.keys
            .take_over(&mut other.keys, of_kind(&mut each, TableKind::Keys));
        self.keys
            .mws
            .take_over(&mut other.keys.mws, of_kind(&mut each, TableKind::Mws));
        self.cqs
            .take_over(&mut other.cqs, of_kind(&mut each, TableKind::Cqs));
        self.qps
            .take_over(&mut other.qps, of_kind(&mut each, TableKind::Qps));
        self.srqs
            .take_over(&mut other.srqs, of_kind(&mut each, TableKind::Srqs));
        self.port
            .ahs
            .take_over(&mut other.port.ahs, of_kind(&mut each, TableKind::Ahs));
        Ok(())
    }
}
