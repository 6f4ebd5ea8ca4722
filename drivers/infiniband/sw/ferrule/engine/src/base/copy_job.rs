// SPDX-License-Identifier: GPL-2.0

//! Copy jobs: copies of many bytes, which the host carries out while it does not own the shard.
//!
//! A turn puts the copies of one segment of a message into a job, and the queue pair waits. Whoever has run the engine
//! takes the job along, carries it out, and hands the rest of it back ([`Engine::carried`](crate::Engine::carried)).
//! Then the queue pair goes on.

/// Segments with fewer bytes are copied at once: to leave the shard and to enter it again costs more.
pub(crate) const MIN_BYTES: u32 = 8 * 1024;

/// The most pieces of a job. A segment in more pieces is copied at once.
const PIECES: usize = 2;

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

/// Copies that are to be carried out outside of the shard.
///
/// One that is dropped leaves its queue pair waiting for ever, and its regions in use.
#[must_use]
pub struct CopyJob<S: SharedBytes> {
    pieces: [Option<Piece<S>>; PIECES],
    used: Used,
}

/// The objects that a job uses.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    /// The indices of the queue pair that waits, and of its peer.
    pub(crate) requester: u32,
    pub(crate) peer: u32,
    /// The keys of the regions, a pair for each piece. 0 is none.
    keys: [[u32; 2]; PIECES],
}

impl Used {
    /// The keys of the regions; one that is used twice is there twice.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.keys.iter().flatten().copied().filter(|key| *key != 0)
    }
}

/// A job that was carried out, to be handed to [`Engine::carried`](crate::Engine::carried).
#[must_use]
pub struct Carried(pub(crate) Used);

impl<S: SharedBytes> CopyJob<S> {
    /// A job without copies.
    pub(crate) fn new() -> Self {
        Self {
            pieces: [const { None }; PIECES],
            used: Used {
                requester: 0,
                peer: 0,
                keys: [[0; 2]; PIECES],
            },
        }
    }

    /// Adds a piece; `None` if there are too many.
    pub(crate) fn add(&mut self, from: Place<S>, to: Place<S>, length: u32) -> Option<()> {
        let mut places = self.pieces.iter_mut().zip(&mut self.used.keys);
        let (piece, keys) = places.find(|(piece, _)| piece.is_none())?;
        *keys = [from.key, to.key];
        *piece = Some(Piece {
            from: from.bytes,
            from_offset: from.offset,
            to: to.bytes,
            to_offset: to.offset,
            length,
        });
        Some(())
    }

    /// It is of these queue pairs.
    pub(crate) fn belongs_to(&mut self, requester: u32, peer: u32) {
        self.used.requester = requester;
        self.used.peer = peer;
    }

    /// The objects that it uses.
    pub(crate) fn used(&self) -> Used {
        self.used
    }

    /// How many bytes it copies.
    pub fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().flatten();
        pieces.fold(0, |sum, piece| u64::wrapping_add(sum, piece.length.into()))
    }

    /// Copies the bytes, and lets go of the memory. The caller does not own the shard.
    #[inline(never)]
    pub fn carry_out(self) -> Carried {
        for piece in self.pieces.into_iter().flatten() {
            S::copy(
                &piece.from,
                piece.from_offset,
                &piece.to,
                piece.to_offset,
                piece.length as usize,
            );
        }
        Carried(self.used)
    }
}
