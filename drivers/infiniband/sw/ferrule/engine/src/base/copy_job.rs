// SPDX-License-Identifier: GPL-2.0

//! Copy jobs: copies of many bytes, which the host carries out while it does not own the shard.
//!
//! A turn puts the copies of the next segments of a send queue into a job, and the queue pair waits. Whoever has run the
//! engine takes the job along, carries it out, and hands the rest of it back
//! ([`Engine::carried`](crate::Engine::carried)). Then the requests that it has finished complete, and the queue pair goes on.

use core::ops::DerefMut;

/// Segments with fewer bytes are copied at once: to leave the shard and to enter it again costs more.
pub(crate) const MIN_BYTES: u32 = 8 * 1024;

/// The same beside others who wait for the shard, if the job can have several requests: the others copy meanwhile.
pub(crate) const MIN_BYTES_BESIDE_OTHERS: u32 = 4 * 1024;

/// The most bytes of a job, which may exceed them by less than a path MTU. Its first request completes no sooner than its
/// last one.
const MAX_BYTES: u32 = 256 * 1024;

/// The most pieces of a job. A segment that alone has more is copied at once.
const PIECES: usize = 16;

/// A counted reference to the bytes of a region, which are there as long as it is, and can all be reached.
pub trait SharedBytes {
    /// Copies `length` bytes, as [`Region::copy`](crate::Region::copy) does. The engine has checked the ranges.
    fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize);
}

/// References of a host that shares no bytes: there is none.
pub enum Unshared {}

impl SharedBytes for Unshared {
    fn copy(_: &Self, _: u64, _: &Self, _: u64, _: usize) {}
}

/// A side of a piece: the bytes of a region from an offset on, and the region's key.
pub(crate) struct Place<S> {
    pub(crate) bytes: S,
    pub(crate) offset: u64,
    pub(crate) key: u32,
}

/// Bytes that lie in one region on both sides.
struct Piece<S> {
    from: S,
    from_offset: u64,
    to: S,
    to_offset: u64,
    length: u32,
}

/// A send request that ends with the job, and whose completion is due then.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ending {
    pub(crate) wr_id: u64,
    pub(crate) index: u32,
    pub(crate) length: u32,
    /// The operation, as the completion names it.
    pub(crate) opcode: u8,
}

/// Copies that are to be carried out outside of the shard.
///
/// One that is dropped leaves its queue pair waiting for ever, and its regions in use.
#[must_use]
pub struct CopyJob<S: SharedBytes> {
    pieces: [Option<Piece<S>>; PIECES],
    /// How many pieces there are.
    count: usize,
    bytes: u32,
    endings: [Ending; PIECES],
    ending_count: usize,
    used: Used,
}

/// The objects that a job uses.
pub(crate) struct Used {
    /// The indices of the queue pair that waits, and of its peer.
    pub(crate) requester: u32,
    pub(crate) peer: u32,
    /// The keys of the regions, a pair for each piece. 0 is none.
    keys: [[u32; 2]; PIECES],
}

impl Used {
    /// The keys of the regions; one may be there more than once.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.keys.iter().flatten().copied().filter(|key| *key != 0)
    }
}

/// A job that was carried out, to be handed to [`Engine::carried`](crate::Engine::carried).
#[must_use]
pub struct Carried<B>(pub(crate) B);

impl<S: SharedBytes> CopyJob<S> {
    /// A job without copies.
    pub(crate) fn new() -> Self {
        Self {
            pieces: [const { None }; PIECES],
            count: 0,
            bytes: 0,
            endings: [Ending::default(); PIECES],
            ending_count: 0,
            used: Used {
                requester: 0,
                peer: 0,
                keys: [[0; 2]; PIECES],
            },
        }
    }

    /// Adds a piece; `None` if there are too many.
    pub(crate) fn add(&mut self, from: Place<S>, to: Place<S>, length: u32) -> Option<()> {
        let piece = self.pieces.get_mut(self.count)?;
        *self.used.keys.get_mut(self.count)? = [from.key, to.key];
        *piece = Some(Piece {
            from: from.bytes,
            from_offset: from.offset,
            to: to.bytes,
            to_offset: to.offset,
            length,
        });
        self.count = self.count.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(length);
        Some(())
    }

    /// How many pieces it has, to be handed to [`CopyJob::cut`].
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes back the pieces from a number on.
    pub(crate) fn cut(&mut self, count: usize) {
        let pieces = self.pieces.iter_mut().zip(&mut self.used.keys);
        for (piece, keys) in pieces.take(self.count).skip(count) {
            let length = piece.take().map_or(0, |piece| piece.length);
            self.bytes = self.bytes.wrapping_sub(length);
            *keys = [0; 2];
        }
        self.count = count;
    }

    /// A request ends with the job.
    pub(crate) fn add_ending(&mut self, ending: Ending) {
        if let Some(place) = self.endings.get_mut(self.ending_count) {
            *place = ending;
            self.ending_count = self.ending_count.wrapping_add(1);
        }
    }

    /// How many bytes may be added; 0 if no further piece or request has a place.
    pub(crate) fn space(&self) -> u32 {
        if self.count == PIECES || self.ending_count == PIECES {
            return 0;
        }
        MAX_BYTES.saturating_sub(self.bytes)
    }

    /// It is of these queue pairs.
    pub(crate) fn belongs_to(&mut self, requester: u32, peer: u32) {
        self.used.requester = requester;
        self.used.peer = peer;
    }

    /// The objects that it uses.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// How many bytes it copies.
    pub fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// Copies the bytes, and lets go of the memory. The caller does not own the shard.
    #[inline(never)]
    pub fn carry_out<B: DerefMut<Target = Self>>(mut job: B) -> Carried<B> {
        let count = job.count;
        for place in job.pieces.iter_mut().take(count) {
            if let Some(piece) = place.take() {
                S::copy(
                    &piece.from,
                    piece.from_offset,
                    &piece.to,
                    piece.to_offset,
                    piece.length as usize,
                );
            }
        }
        Carried(job)
    }

    /// Empties a job that was carried out, and visits the requests that have ended, in their order.
    pub(crate) fn empty(&mut self, f: impl FnMut(&Ending)) {
        self.endings.iter().take(self.ending_count).for_each(f);
        self.ending_count = 0;
        self.cut(0);
        self.bytes = 0;
    }
}
