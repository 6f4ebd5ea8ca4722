// SPDX-License-Identifier: GPL-2.0

//! Regions of one engine, for queue pairs of another one.
//!
//! Threads of a program may have engines of their own, and use the regions of the program in all of
//! them. A region is in one engine, that of its number. Each other engine that needs it has a
//! *replica*: the same bytes by the same key, with the same rights, to be looked up without that
//! engine.
//!
//! The host removes all replicas of a region before the region itself. So a number never has
//! replicas of two regions.

use crate::{
    base::{
        error::{
            Error,
            Refused, //
        },
        host::Host,
        table::Table, //
    },
    memory::memory_region::Mr,
};

/// The branches of a level: those of a [`Table`], whose positions the tree has.
const FANOUT: usize = 64;

type Leaf<H> = [Option<<H as Host>::Box<Mr<H>>>; FANOUT];

type Middle<H> = [Option<<H as Host>::Box<Leaf<H>>>; FANOUT];

/// A tree of replicas by the index of the region.
pub struct Replicas<H: Host> {
    top: [Option<H::Box<Middle<H>>>; FANOUT],
    /// The next tree of the engine.
    next: Option<H::Box<Replicas<H>>>,
}

/// Memory that trees do not need any more, to be dropped without the shard: a leaf, the level
/// above, and the top.
pub type Pruned<H> = (
    Option<<H as Host>::Box<Leaf<H>>>,
    Option<<H as Host>::Box<Middle<H>>>,
    Option<<H as Host>::Box<Replicas<H>>>,
);

/// A replica that has been removed, and memory that is not needed without it.
pub type Removed<H> = (<H as Host>::Box<Mr<H>>, Pruned<H>);

/// Takes a part of a tree that has nothing any more.
fn take_empty<B, T>(part: &mut Option<B>) -> Option<B>
where
    B: core::ops::Deref<Target = [Option<T>; FANOUT]>,
{
    match part {
        Some(entries) if entries.iter().all(Option::is_none) => part.take(),
        _ => None,
    }
}

impl<H: Host> Replicas<H> {
    /// Allocates a tree with space for the replica of a region, with [`Host::boxed`], so this may
    /// sleep. `None` without memory.
    pub fn for_region(key: u32) -> Option<H::Box<Self>> {
        let (top, middle, _) = Self::position(key)?;
        let mut tree = H::boxed(|| Self {
            top: [const { None }; FANOUT],
            next: None,
        })?;
        let mut leaves: H::Box<Middle<H>> = H::boxed_array(|_| None)?;
        *leaves.get_mut(middle)? = Some(H::boxed_array(|_| None)?);
        *tree.top.get_mut(top)? = Some(leaves);
        Some(tree)
    }

    fn position(key: u32) -> Option<(usize, usize, usize)> {
        Table::<H, Mr<H>, (), FANOUT>::position(key.wrapping_shr(8))
    }

    fn is_empty(&self) -> bool {
        self.top.iter().all(Option::is_none)
    }

    /// The replica of the region with the index of a key.
    fn get(&self, key: u32) -> Option<&Mr<H>> {
        let (top, middle, leaf) = Self::position(key)?;
        let middle = self.top.get(top)?.as_ref()?.get(middle)?.as_ref()?;
        middle.get(leaf)?.as_deref()
    }

    /// Where it is, or may be.
    fn place_mut(&mut self, key: u32) -> Option<&mut Option<H::Box<Mr<H>>>> {
        let (top, middle, leaf) = Self::position(key)?;
        let middle = self.top.get_mut(top)?.as_mut()?.get_mut(middle)?.as_mut()?;
        middle.get_mut(leaf)
    }

    /// Takes it, with the memory of the tree that has nothing any more.
    fn take(&mut self, key: u32) -> Option<Removed<H>> {
        let mr = self.place_mut(key)?.take()?;
        let (top, middle, _) = Self::position(key)?;
        let middles = self.top.get_mut(top)?;
        let leaf = take_empty(middles.as_mut()?.get_mut(middle)?);
        Some((mr, (leaf, take_empty(middles), None)))
    }

    /// Takes over a leaf of `other`, or all leaves that have one place in its top. Returns what is
    /// not needed any more.
    fn take_over_part(&mut self, other: &mut Self) -> Pruned<H> {
        let mut parts = other.top.iter_mut().zip(&mut self.top);
        match parts.find(|(theirs, _)| theirs.is_some()) {
            Some((theirs, Some(own))) => {
                let leaf = theirs
                    .as_deref_mut()
                    .and_then(|theirs| Self::take_over_leaf(own, theirs));
                (leaf, take_empty(theirs), None)
            }
            Some((theirs, own)) => {
                *own = theirs.take();
                (None, None, None)
            }
            None => (None, None, None),
        }
    }

    fn take_over_leaf(own: &mut Middle<H>, other: &mut Middle<H>) -> Option<H::Box<Leaf<H>>> {
        let mut leaves = other.iter_mut().zip(own);
        match leaves.find(|(theirs, _)| theirs.is_some())? {
            (theirs, Some(own)) => {
                let entries = theirs.as_deref_mut().into_iter().flatten();
                for (theirs, own) in entries.zip(own.iter_mut()) {
                    let replica = theirs.take();
                    // Of two replicas of a region, look-ups have found that of the first tree. The
                    // other one goes here, since whoever removes the region would not find it. The
                    // region is there, so its memory stays.
                    if own.is_none() {
                        *own = replica;
                    }
                }
                theirs.take()
            }
            (theirs, own) => {
                *own = theirs.take();
                None
            }
        }
    }
}

/// The replicas that an engine has.
///
/// There is one tree as a rule, and none without a replica. Where engines have become one, the
/// trees of both are looked up until [`ReplicaTrees::unite`] has made one of them, step by step.
pub(crate) struct ReplicaTrees<H: Host> {
    first: Option<H::Box<Replicas<H>>>,
}

impl<H: Host> Default for ReplicaTrees<H> {
    fn default() -> Self {
        Self { first: None }
    }
}

impl<H: Host> ReplicaTrees<H> {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The replica that a key opens. Not inlined into the look-up of a region, which finds most in
    /// the engine of the queue pair.
    #[inline(never)]
    pub(super) fn opened(&self, key: u32) -> Option<&Mr<H>> {
        let mr = self.of_index(key)?;
        (mr.open == key).then_some(mr)
    }

    /// The first replica of the region with the index of a key.
    fn of_index(&self, key: u32) -> Option<&Mr<H>> {
        let mut next = self.first.as_deref();
        while let Some(tree) = next {
            match tree.get(key) {
                None => next = tree.next.as_deref(),
                found => return found,
            }
        }
        None
    }

    pub(crate) fn has(&self, key: u32) -> bool {
        self.of_index(key).is_some()
    }

    /// The replica that [`ReplicaTrees::opened`] finds.
    pub(super) fn find_mut(&mut self, key: u32) -> Option<&mut Mr<H>> {
        let tree = self.tree_of(key)?.as_mut()?;
        let mr = tree.place_mut(key)?.as_deref_mut()?;
        (mr.open == key).then_some(mr)
    }

    /// The first tree with a replica of the region with the index of a key; else the end of the
    /// list.
    fn tree_of(&mut self, key: u32) -> Option<&mut Option<H::Box<Replicas<H>>>> {
        let mut at = &mut self.first;
        while at.as_ref().is_some_and(|tree| tree.get(key).is_none()) {
            at = &mut at.as_mut()?.next;
        }
        Some(at)
    }

    /// See [`Engine::add_replica`](crate::Engine::add_replica).
    pub(crate) fn add(
        &mut self,
        mr: H::Box<Mr<H>>,
        space: &mut Option<H::Box<Replicas<H>>>,
    ) -> Result<(), Refused<H::Box<Mr<H>>>> {
        let key = mr.key;
        if self.of_index(key).is_some() {
            let error = Error::Busy;
            return Err(Refused { error, object: mr });
        }
        let mut at = &mut self.first;
        loop {
            let tree = match at {
                Some(tree) => tree,
                None => match space.take() {
                    Some(more) => at.insert(more),
                    None => {
                        let error = Error::NoMemory;
                        return Err(Refused { error, object: mr });
                    }
                },
            };
            match tree.place_mut(key) {
                Some(place) => {
                    *place = Some(mr);
                    return Ok(());
                }
                None => at = &mut tree.next,
            }
        }
    }

    /// See [`Engine::remove_replica`](crate::Engine::remove_replica).
    pub(crate) fn remove(&mut self, key: u32) -> Result<Removed<H>, Error> {
        self.find_mut(key).ok_or(Error::NotFound)?.uses.claim()?;
        let at = self.tree_of(key).ok_or(Error::NotFound)?;
        let tree = at.as_mut().ok_or(Error::NotFound)?;
        let (mr, mut pruned) = tree.take(key).ok_or(Error::NotFound)?;
        if tree.is_empty() {
            let next = tree.next.take();
            pruned.2 = core::mem::replace(at, next);
        }
        Ok((mr, pruned))
    }

    /// The trees of `other` are here from now on, behind those that were.
    pub(super) fn take_over(&mut self, other: &mut Self) {
        let mut last = &mut self.first;
        while let Some(tree) = last {
            last = &mut tree.next;
        }
        *last = other.first.take();
    }

    /// See [`Engine::unite_replicas`](crate::Engine::unite_replicas).
    pub(crate) fn unite(&mut self) -> Option<Pruned<H>> {
        let first = self.first.as_mut()?;
        let mut second = first.next.take()?;
        let mut pruned = first.take_over_part(&mut second);
        if second.is_empty() {
            first.next = second.next.take();
            pruned.2 = Some(second);
        } else {
            first.next = Some(second);
        }
        Some(pruned)
    }
}
