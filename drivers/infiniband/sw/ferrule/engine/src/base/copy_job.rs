// SPDX-License-Identifier: GPL-2.0

//! Copy jobs: copies of many bytes, which the host carries out while it does not own the shard.
//!
//! A turn puts the copies of the next segments of a send queue into a job, and the queue pair
//! waits. Whoever has run the engine takes the job along, carries it out, and hands the rest of it
//! back ([`Engine::carried`](crate::Engine::carried)). Then the requests that it has finished
//! complete, and the queue pair goes on.

use core::ops::DerefMut;

/// Segments with fewer bytes are copied at once: to leave the shard and to enter it again costs
/// more.
pub(crate) const MIN_BYTES: u32 = 8 * 1024;

/// The same beside others who wait for the shard, if the job can have several requests: the others
/// copy meanwhile.
pub(crate) const MIN_BYTES_BESIDE_OTHERS: u32 = 4 * 1024;

/// The most bytes of a job, which may exceed them by less than a path MTU. Its first request
/// completes no sooner than its last one.
const MAX_BYTES: u32 = 256 * 1024;

/// The most pieces of a job. A segment that alone has more is copied at once.
const PIECES: usize = 16;

/// A counted reference to the bytes of a region, which are there as long as it is, and can all be
/// reached.
pub trait SharedBytes {
    /// Copies `length` bytes, as [`Region::copy`](crate::Region::copy) does. The engine has checked
    /// the ranges.
    fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize);
}

/// References of a host that shares no bytes: there is none.
pub enum Unshared {}

impl SharedBytes for Unshared {
    fn copy(_: &Self, _: u64, _: &Self, _: u64, _: usize) {}
}

/// A side of a piece: where its first byte is in the region of a key.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) key: u32,
    pub(crate) offset: u64,
}

/// Bytes that lie in one region on both sides.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// Where the regions stand among those of the job.
    from: usize,
    to: usize,
    from_offset: u64,
    to_offset: u64,
    length: u32,
}

/// The regions in which the pieces lie on one side. Each stands there once: mostly all pieces lie
/// in the same one, and a reference and a count take longer than the rest of a piece.
struct Regions<S> {
    shared: [Option<S>; PIECES],
    keys: [u32; PIECES],
    count: usize,
}

impl<S> Regions<S> {
    const fn new() -> Self {
        Self {
            shared: [const { None }; PIECES],
            keys: [0; PIECES],
            count: 0,
        }
    }

    fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.keys.iter().take(self.count).copied()
    }

    /// Where the region of a key stands. `share` makes a reference to it if it is not there yet.
    #[inline]
    fn place(&mut self, key: u32, share: impl FnOnce() -> Option<S>) -> Option<usize> {
        let mut places = (0..self.count).zip(&self.keys);
        if let Some((place, _)) = places.find(|(_, other)| **other == key) {
            return Some(place);
        }
        let place = self.count;
        *self.keys.get_mut(place)? = key;
        *self.shared.get_mut(place)? = Some(share()?);
        self.count = place.wrapping_add(1);
        Some(place)
    }

    fn get(&self, place: usize) -> Option<&S> {
        self.shared.get(place)?.as_ref()
    }

    /// Lets go of the memory of the regions from a number on.
    fn let_go(&mut self, from: usize) {
        for shared in self.shared.iter_mut().take(self.count).skip(from) {
            *shared = None;
        }
    }

    /// Takes back the regions from a number on.
    fn cut(&mut self, count: usize) {
        self.let_go(count);
        self.count = count;
    }
}

/// How much a job has, to be handed to [`CopyJob::cut`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobSize {
    pieces: usize,
    from: usize,
    to: usize,
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
    pieces: [Piece; PIECES],
    /// How many pieces there are.
    count: usize,
    bytes: u32,
    endings: [Ending; PIECES],
    ending_count: usize,
    from: Regions<S>,
    to: Regions<S>,
    /// The indices of the queue pair that waits, and of its peer.
    qps: [u32; 2],
}

/// A job that was carried out, to be handed to [`Engine::carried`](crate::Engine::carried).
#[must_use]
pub struct Carried<B>(pub(crate) B);

impl<S: SharedBytes> CopyJob<S> {
    /// A job without copies.
    pub(crate) fn new() -> Self {
        Self {
            pieces: [Piece::default(); PIECES],
            count: 0,
            bytes: 0,
            endings: [Ending::default(); PIECES],
            ending_count: 0,
            from: Regions::new(),
            to: Regions::new(),
            qps: [0; 2],
        }
    }

    /// Adds a piece; `None` if there are too many, or its bytes cannot be shared. `share` makes a
    /// reference to the region of a key, to write to it or not.
    ///
    /// The keys that the job has already stay valid while it is being filled, since nobody else has
    /// the engine.
    #[inline]
    pub(crate) fn add(
        &mut self,
        from: Place,
        to: Place,
        length: u32,
        share: impl Fn(u32, bool) -> Option<S>,
    ) -> Option<()> {
        let piece = self.pieces.get_mut(self.count)?;
        *piece = Piece {
            from: self.from.place(from.key, || share(from.key, false))?,
            to: self.to.place(to.key, || share(to.key, true))?,
            from_offset: from.offset,
            to_offset: to.offset,
            length,
        };
        self.count = self.count.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(length);
        Some(())
    }

    /// Whether it has no pieces.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How much it has.
    pub(crate) fn size(&self) -> JobSize {
        JobSize {
            pieces: self.count,
            from: self.from.count,
            to: self.to.count,
        }
    }

    /// Takes back what was added since it had so much.
    pub(crate) fn cut(&mut self, size: JobSize) {
        for piece in self.pieces.iter().take(self.count).skip(size.pieces) {
            self.bytes = self.bytes.wrapping_sub(piece.length);
        }
        self.count = size.pieces;
        self.from.cut(size.from);
        self.to.cut(size.to);
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
        self.qps = [requester, peer];
    }

    /// The indices of the queue pair that waits, and of its peer.
    pub(crate) fn qps(&self) -> [u32; 2] {
        self.qps
    }

    /// The keys of the regions; one is there for each side on which it is used.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.from.keys().chain(self.to.keys())
    }

    /// How many bytes it copies.
    pub fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// Copies the bytes, and lets go of the memory. The caller does not own the shard.
    #[inline(never)]
    pub fn carry_out<B: DerefMut<Target = Self>>(mut job: B) -> Carried<B> {
        for piece in job.pieces.iter().take(job.count) {
            if let (Some(from), Some(to)) = (job.from.get(piece.from), job.to.get(piece.to)) {
                let length = piece.length as usize;
                S::copy(from, piece.from_offset, to, piece.to_offset, length);
            }
        }
        job.from.let_go(0);
        job.to.let_go(0);
        Carried(job)
    }

    /// Empties a job that was carried out, and visits the requests that have ended, in their order.
    pub(crate) fn empty(&mut self, f: impl FnMut(&Ending)) {
        self.endings.iter().take(self.ending_count).for_each(f);
        self.ending_count = 0;
        self.count = 0;
        self.bytes = 0;
        self.from.count = 0;
        self.to.count = 0;
    }
}
