// SPDX-License-Identifier: GPL-2.0

//! The engine's needs of the world, as traits.
//!
//! The engine allocates nothing, waits for nothing and calls no verb. All that it touches outside
//! of itself is behind [`Host`] and the traits for shared memory: [`Region`], [`PacketBytes`],
//! [`Queue`], [`CompletionRing`] and [`Doorbells`]. The kernel implements them over pages, the
//! tests over vectors.
//!
//! Memory behind these traits is shared with a program that may change it at any moment. Hence no
//! method hands out a reference to it: bytes are copied, control words are loaded and stored whole.

use core::ops::DerefMut;

use crate::{
    base::{
        abi,
        attr::Path,
        copy_job::{
            CopyJob,
            SharedBytes, //
        },
        doorbells::Doorbells,
        event::{
            CqEvent,
            QpEvent,
            SrqEvent,
            Trace, //
        },
    },
    packet, //
};

/// The world that an engine lives in.
///
/// A value of the implementing type is handed to each call and carries the services of that call:
/// the clock and the sinks of events. The engine holds no lock when it calls a method; the caller
/// of the engine may hold the shard, so no method may enter the engine again or wait for anyone.
pub trait Host: Sized {
    /// Owned memory: `KBox` in the kernel, `Box` elsewhere.
    type Box<T>: DerefMut<Target = T>;

    /// The bytes of a registered memory region.
    type Region: Region;

    /// The buffer of a queue pair or of a shared receive queue.
    type Queue: Queue;

    /// The ring of a completion queue with its control words.
    type CompletionRing: CompletionRing;

    /// The doorbell and status areas of a user context.
    type Doorbells: Doorbells;

    /// The bytes of a packet that was received.
    type Packet: PacketBytes<Self::Region>;

    /// A reorder buffer of a queue pair. Empty in the beginning.
    type Reorder: Reorder<Self::Packet>;

    /// The host's data for sending along a path: a route, headers that it has prepared. The engine
    /// keeps it and lends it to [`Host::transmit`]; it is the host that makes and drops it.
    type Route;

    /// The host's data for telling of a completion queue's events.
    type CqHandle;

    /// The host's data for telling of a queue pair's events.
    type QpHandle;

    /// The host's data for telling of a shared receive queue's events.
    type SrqHandle;

    /// Allocates memory, then makes a value there; `None` where there is no memory, and then `make`
    /// is not called. A closure and no value, since that would be on the stack until there is
    /// memory for it.
    ///
    /// May sleep. The engine's methods never call it; only what the host calls without holding the
    /// shard does: [`NeedChunk::allocate`](crate::NeedChunk::allocate) and
    /// [`Qp::new`](crate::Qp::new). The value has at most 2 KiB.
    fn boxed<T>(make: impl FnOnce() -> T) -> Option<Self::Box<T>>;

    /// Makes an array in new memory, of what `make` returns for each index; `None` where there is
    /// no memory. As [`Host::boxed`], but the array has up to 4 KiB, which should not lie on the
    /// stack.
    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<Self::Box<[T; N]>>;

    /// Returns `index`, which is below `size`, a power of two. A processor that guesses, and goes
    /// on with an index that is not, is answered one that is: its reads ahead then stay inside of
    /// the table (Linux: `array_index_nospec()`).
    fn index_nospec(index: usize, size: usize) -> usize;

    /// A full memory fence: no access before it is reordered with one after it.
    fn fence();

    /// Continues a CRC of Ethernet, not inverted at either end, over `bytes` (`crc32_le` in Linux).
    ///
    /// A host whose processor has instructions for this answers several times faster than the
    /// engine's tables, which are used where it does not.
    #[inline]
    fn crc32(crc: u32, bytes: &[u8]) -> u32 {
        packet::icrc::crc32(crc, bytes)
    }

    /// The time in nanoseconds on a clock that never goes back (`CLOCK_MONOTONIC_RAW` in Linux).
    fn now(&self) -> u64;

    /// Sends a packet along a route: adds the IP and UDP headers. [`Outgoing::write`] writes all
    /// that follows them.
    ///
    /// # Errors
    ///
    /// [`Unsent`] where the engine has to do something about it. For whatever other reason a packet
    /// cannot be sent, it is lost, which needs no telling.
    fn transmit<'a>(
        &mut self,
        route: &mut Self::Route,
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent>;

    /// The bytes that a frame of this queue has at most, from the Ethernet header on; 0 where no
    /// frames are sent.
    fn frame_limit(&mut self, _queue: &Self::Queue) -> u32 {
        0
    }

    /// Sends an Ethernet frame as it is. [`Outgoing::write`] gets no headers, and writes all of it.
    ///
    /// # Errors
    ///
    /// As [`Host::transmit`].
    fn transmit_frame<'a>(&mut self, _frame: &mut impl Outgoing<'a, Self>) -> Result<(), Unsent> {
        Ok(())
    }

    /// Where the datagram goes that the send request of this index asks for, and the route there,
    /// if the host tells it for this queue. `None`: where the address handle says that the request
    /// names, as for all programs.
    ///
    /// The request is in its slot until it has completed, and this may be asked more than once.
    fn destination(
        &mut self,
        _queue: &Self::Queue,
        _index: u32,
    ) -> Option<(Path, Option<Self::Route>)> {
        None
    }

    /// An armed completion queue has new completions: at most once for each arm.
    fn completion_event(&mut self, cq: &Self::CqHandle);

    /// An asynchronous event of a completion queue.
    fn cq_event(&mut self, cq: &Self::CqHandle, event: CqEvent);

    /// An asynchronous event of a queue pair.
    fn qp_event(&mut self, qp: &Self::QpHandle, event: QpEvent);

    /// An asynchronous event of a shared receive queue.
    fn srq_event(&mut self, srq: &Self::SrqHandle, event: SrqEvent);

    /// The place for a copy job, which the caller of the engine carries out after it has left the
    /// shard ([`Engine::run`](crate::Engine::run)). `None` from a caller that cannot do so: bytes
    /// are copied at once then.
    #[inline]
    fn job_place(&mut self) -> Option<&mut JobPlace<Self>> {
        None
    }

    /// Whether others wait for the shard. Then jobs copy shorter segments, too.
    #[inline]
    fn is_contended(&self) -> bool {
        false
    }

    /// Whether another thread is to have this processor. Then a run that has made a packet ends.
    fn need_resched(&mut self) -> bool {
        false
    }

    /// A step of the data path, for tracepoints.
    #[inline]
    fn trace(&mut self, _step: &Trace) {}
}

/// A copy job of a host's memory.
pub type Job<H> = <H as Host>::Box<CopyJob<<<H as Host>::Region as Region>::Shared>>;

/// A copy job, if there is one.
pub type JobPlace<H> = Option<Job<H>>;

/// Bytes could not be reached, although the key check allowed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Whether bytes of a region are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They are. The access has failed for another reason.
    Present,
    /// They are being brought there. The engine tries again after a while.
    Coming,
    /// They cannot be had: the access is an error.
    Gone,
}

/// The name of a party that asks for absent bytes: one for all that a queue pair asks for between
/// two resets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker(pub u64);

/// The bytes of a registered memory region.
///
/// Offsets are bytes from the start of the region. The engine has checked the range against the
/// region's length before it calls; a range that is out of bounds all the same is a [`Fault`].
///
/// Calls that follow each other are seen in that order: a CPU that sees, and acquires, a byte of a
/// later one sees all bytes of an earlier one. Programs wait for messages by looking at memory.
/// Inside of one call any order does.
pub trait Region {
    /// References to the bytes for copy jobs; [`Unshared`](crate::Unshared) if there are none.
    type Shared: SharedBytes;

    /// A reference to the bytes for a copy job, to be read or to be written. `None` where a copy
    /// might fail, as it may of memory that is paged on demand, and where nobody but the owner of
    /// the shard may access them.
    fn share(&self, write: bool) -> Option<Self::Shared>;

    /// The same bytes once more, for another engine of the device, whose owner accesses them beside
    /// the owner of this one. `None` where no two may.
    fn replica(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Copies from private memory to the region.
    ///
    /// # Errors
    ///
    /// [`Fault`] if a byte cannot be written; the region may have been changed in part.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Copies `length` bytes from one region to another or to itself.
    ///
    /// The ranges may overlap, also when the two regions differ and cover the same pages: then
    /// the result is as of `memmove` for ranges of one region, and unspecified bytes of the source
    /// (no fault) where two regions show the same page at different places.
    ///
    /// # Errors
    ///
    /// [`Fault`] if a byte cannot be reached; the destination may have been changed in part.
    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault>;

    /// Replaces the 8 bytes at `offset`, as a number of the CPU's byte order, with `swap` if they
    /// equal `compare`, and returns what was there. Atomic with every access of the CPUs.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the address of the bytes is not a multiple of 8 or they cannot be reached.
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault>;

    /// Adds `add` (wrapping) to the 8 bytes at `offset` and returns what was there. As above.
    ///
    /// # Errors
    ///
    /// As [`Region::compare_swap`].
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault>;

    /// Stores `value` to the 8 bytes at `offset`, as a number of the CPU's byte order. Every access
    /// of the CPUs sees all of it or nothing. A CPU that sees it also sees all bytes that were
    /// written to any region before.
    ///
    /// # Errors
    ///
    /// As [`Region::compare_swap`].
    fn store_word(&self, offset: u64, value: u64) -> Result<(), Fault>;

    /// Has the host bring bytes into memory that are not there now, for writing or for reading
    /// alone. Asked where an access has failed.
    ///
    /// The answer is [`Presence::Gone`] if the bytes could not be had since the asker has asked for
    /// them before. The answers that another asker has got do not count: the bytes may be there
    /// since.
    #[cold]
    fn page_in(&self, _offset: u64, _length: u64, _write: bool, _asker: Asker) -> Presence {
        Presence::Present
    }

    /// Goes over to the bytes that the host's user has named last, and returns how many they are.
    /// `None` if there are none, and for what is not for fast registration.
    fn renew(&mut self) -> Option<u64> {
        None
    }

    /// How many pieces of memory the last [`Region::renew`] has gone through: a turn pays for each.
    /// None where it takes the same time for any number.
    fn pieces(&self) -> u32 {
        0
    }
}

/// A packet in the making: bytes are added behind those that it has.
///
/// A slice has bytes from the beginning, so each would have to be written twice.
pub trait Sink<R: Region> {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// [`Fault`] if there is no space for as many; none is added then.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// Adds `length` bytes of a memory region, from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Fault`] if there is no space for as many, or one cannot be read; none is added then.
    fn put_memory(&mut self, from: &R, offset: u64, length: usize) -> Result<(), Fault>;

    /// The bytes added so far.
    fn bytes(&self) -> &[u8];
}

/// A packet that the host is to send.
pub trait Outgoing<'a, H: Host> {
    /// The buffer of the queue pair that sends it.
    fn queue(&self) -> &'a H::Queue;

    /// Whether it is of a request or of a response.
    fn kind(&self) -> Sends;

    /// The bytes of the packet, from the base transport header to the invariant CRC: a multiple
    /// of 4. Of a frame: all of it.
    fn length(&self) -> usize;

    /// Writes the packet to `to`, which is empty and has space for [`Outgoing::length`] bytes: so
    /// many it has then. The payload is copied here, once, out of registered memory.
    ///
    /// `ip` and `udp` are the headers that it gets: those of IPv4 without options, or of IPv6
    /// without extensions. Their checksums do not matter.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the payload cannot be read, or there is too little space. Nothing is to be sent
    /// then: `to` may have been written in part.
    fn write(&mut self, ip: &[u8], udp: &[u8], to: &mut impl Sink<H::Region>) -> Result<(), Fault>;
}

/// The kind of packets that a queue pair sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Requests, of which programs decide how many there are.
    Requests,
    /// Responses, for which the peer waits. It decides how many there are, by its requests.
    Responses,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Its payload could not be read: the answer of [`Outgoing::write`].
    Fault,
    /// Its payload is not in memory at present: nothing was sent. The engine tries again after a
    /// while.
    Absent,
    /// There is no space for it at present, or it would overtake those before it: nothing was sent.
    /// The engine tries again after a while.
    Busy,
    /// The queue pair has as much on its way as it may have: nothing was sent. When there is space
    /// again, the host tells by [`Engine::ring_qp`](crate::Engine::ring_qp); should it not, the
    /// engine tries again, after a longer while.
    Full,
}

impl Unsent {
    /// Nanoseconds after which the engine tries again.
    pub(crate) fn wait(self) -> u64 {
        match self {
            Unsent::Full => 100_000_000,
            Unsent::Busy | Unsent::Fault => 50_000,
            // A page that needs no input takes a thread some ten microseconds.
            Unsent::Absent => 50_000,
        }
    }
}

/// The bytes of a packet that was received, from the base transport header on.
///
/// They may lie in several pieces, and may change while they are looked at: the page of a local
/// sender's file is not copied on its way. So they are never a slice.
pub trait PacketBytes<R: Region> {
    /// The first bytes, in one piece that nobody changes: [`packet::MAX_HEADERS`] at least, or all
    /// if it has fewer.
    fn headers(&self) -> &[u8];

    /// How many bytes there are, without the invariant CRC.
    fn length(&self) -> usize;

    /// Continues a CRC as [`Host::crc32`] does, over `length` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Fault`] if there are not as many bytes.
    fn crc32(&self, crc: u32, offset: usize, length: usize) -> Result<u32, Fault>;

    /// Copies `length` bytes from `offset` on to a memory region.
    ///
    /// # Errors
    ///
    /// [`Fault`] if there are not as many bytes or one cannot be written; the region may have been
    /// changed in part.
    fn copy(&self, offset: usize, to: &R, to_offset: u64, length: usize) -> Result<(), Fault>;

    /// The identifier of the VLAN that it came in, plus 1; 0 if it came in none, or the host does
    /// not tell.
    fn vlan(&self) -> u16 {
        0
    }
}

/// A reorder buffer: out-of-order packets, each by a number of its own, until the missing one
/// before them comes.
///
/// A packet is buffered so that it need not be sent again. So it does no harm if there is no space
/// for one: it counts as lost. The engine buffers no more than two windows of packets for a queue
/// pair in each direction; the host decides how many there may be of all queue pairs.
pub trait Reorder<P>: Default {
    /// Adds a packet, if there is none of this number and space for it.
    fn insert(&mut self, number: u32, packet: &P);

    /// Takes the packet of this number out.
    fn remove(&mut self, number: u32) -> Option<P>;

    /// The number of the first packet from `number` on, as numbers follow each other: behind the
    /// greatest of 24 bits comes 0. The search takes no longer for a greater distance.
    fn first_from(&self, number: u32) -> Option<u32>;

    /// How many there are.
    fn count(&self) -> u32;

    /// Whether there is none at all.
    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Drops all.
    fn clear(&mut self);
}

/// The buffer of a queue pair or shared receive queue, which a program writes.
///
/// Offsets are bytes from the start of the buffer. The engine checks its layout against
/// [`Queue::size`] once, when the queue is created.
pub trait Queue {
    /// The size of the buffer in bytes. Constant.
    fn size(&self) -> usize;

    /// Copies out of the buffer, loading each byte exactly once. Out of bounds: zeroes.
    fn read(&self, offset: u32, to: &mut [u8]);

    /// Loads the little-endian word at `offset`, a multiple of 4, with acquire semantics.
    fn load(&self, offset: u32) -> u32;

    /// Stores a little-endian word at `offset`, a multiple of 4, with release semantics.
    ///
    /// The engine never reads back what it stores here.
    fn store(&self, offset: u32, value: u32);

    /// Prefetches the cache line at `offset`. Out of bounds: nothing.
    ///
    /// For hosts whose programs post on other processors than the engine runs on. A cache line
    /// takes some 70 nanoseconds to come over, and those of a request would come one after the
    /// other.
    #[inline]
    fn prefetch(&self, _offset: u32) {}
}

/// The ring of a completion queue, which only the engine writes, and its control words, which only
/// the program writes.
pub trait CompletionRing {
    /// Writes all of slot `slot` but its phase word.
    fn write(&self, slot: u32, cqe: &abi::Cqe);

    /// Writes the phase word of slot `slot`, with release semantics.
    fn publish(&self, slot: u32, phase: u32);

    /// Loads [`abi::CqCtrl::consumer`] with acquire semantics.
    fn consumer(&self) -> u32;

    /// Loads [`abi::CqCtrl::arm`].
    fn arm(&self) -> u32;
}
