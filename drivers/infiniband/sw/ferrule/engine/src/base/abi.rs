// SPDX-License-Identifier: GPL-2.0

//! The layouts that the engine shares with user space, as `ferrule-abi.h` defines them.
//!
//! Names are those of the header without the prefix. Only what the engine touches stands here; the
//! command channel is the driver's. A host test compiles the header and compares every size,
//! offset and value with what stands here.

use core::mem::{
    offset_of,
    size_of, //
};

use zerocopy::byteorder::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// The most scatter/gather entries of a request.
pub const MAX_SGE: usize = 32;
/// The most bytes of inline data in a request.
pub const MAX_INLINE: usize = 464;
/// The most slots of a send or receive queue, or of a shared receive queue.
pub const MAX_QP_DEPTH: u32 = 32768;
/// The most slots of a completion queue.
pub const MAX_CQ_DEPTH: u32 = 1 << 20;
/// The most queue pairs, and so doorbells, of a context.
pub const MAX_QP: u32 = 65536;
/// The part of a queue pair's number that is its doorbell.
pub const DB_INDEX_MASK: u32 = MAX_QP - 1;

/// Words of the upper level of doorbells.
pub const DB_TOP_WORDS: usize = 16;
/// Words of the lower level of doorbells.
pub const DB_LEAF_WORDS: usize = 1024;
/// Offset of the lower level in a doorbell or status area.
pub const DB_LEAF_OFFSET: usize = 4096;
/// The size of a doorbell or status area in bytes.
pub const DB_AREA_SIZE: usize = DB_LEAF_OFFSET + DB_LEAF_WORDS * 8;

/// `enum ferrule_wr_opcode`.
pub mod wr_opcode {
    /// Two-sided message.
    pub const SEND: u8 = 0;
    /// Two-sided message with immediate data.
    pub const SEND_WITH_IMM: u8 = 1;
    /// Write to the peer's memory.
    pub const RDMA_WRITE: u8 = 2;
    /// Write to the peer's memory and complete one of its receive requests.
    pub const RDMA_WRITE_WITH_IMM: u8 = 3;
    /// Read from the peer's memory.
    pub const RDMA_READ: u8 = 4;
    /// Compare and swap 8 bytes of the peer's memory.
    pub const ATOMIC_CMP_AND_SWP: u8 = 5;
    /// Fetch and add 8 bytes of the peer's memory.
    pub const ATOMIC_FETCH_AND_ADD: u8 = 6;
    /// Two-sided message that invalidates a key of the peer.
    pub const SEND_WITH_INV: u8 = 7;
    /// Invalidate a local key.
    pub const LOCAL_INV: u8 = 8;
    /// Bind a memory window.
    pub const BIND_MW: u8 = 9;
    /// See to it that all see the bytes that were written to the peer's memory.
    pub const FLUSH: u8 = 10;
    /// Write 8 bytes of the peer's memory at once.
    pub const ATOMIC_WRITE: u8 = 11;
}

/// `enum ferrule_wr_flags`.
pub mod wr_flags {
    /// Completes with a completion, even on success.
    pub const SIGNALED: u8 = 1 << 0;
    /// The peer's completion is a solicited one.
    pub const SOLICITED: u8 = 1 << 1;
    /// Begins after all earlier reads and atomics have ended.
    pub const FENCE: u8 = 1 << 2;
    /// The data stands in the slot.
    pub const INLINE: u8 = 1 << 3;
}

/// `struct ferrule_sge`: an entry of a scatter/gather list.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte, as the region was registered.
    pub addr: U64,
    /// Length in bytes.
    pub length: U32,
    /// Local key of the region.
    pub lkey: U32,
}

/// `struct ferrule_send_wqe`: the head of a slot of a send queue.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SendWqe {
    /// The program's name for the request.
    pub wr_id: U64,
    /// One of [`wr_opcode`].
    pub opcode: u8,
    /// Of [`wr_flags`].
    pub flags: u8,
    /// Scatter/gather entries that follow.
    pub num_sge: U16,
    /// Bytes of inline data that follow.
    pub inline_len: U32,
    /// Address in the peer's memory; of a bind, the first byte of the window.
    pub remote_addr: U64,
    /// Key of the peer's memory; of a bind, the key that the window is to have.
    pub rkey: U32,
    /// Immediate data, or the key to invalidate; of a bind, the region's key.
    pub imm_or_inv: [u8; 4],
    /// The words that depend on the opcode; zero where it has none.
    pub extra: [u8; 16],
}

/// The part of [`SendWqe::extra`] that atomic operations have.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicWords {
    /// The value to add, or to compare with.
    pub compare_add: U64,
    /// The value to swap in.
    pub swap: U64,
}

/// The part of [`SendWqe::extra`] that a bind has.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BindWords {
    /// A key that the window has or had.
    pub mw_rkey: U32,
    /// The rights of peers, [`Access`](crate::Access).
    pub access: U32,
    /// The length of the window in bytes.
    pub length: U64,
}

/// The part of [`SendWqe::extra`] that an atomic write has.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicWriteWords {
    /// The bytes, as they are to lie in memory.
    pub value: [u8; 8],
    /// Zero.
    pub reserved: [u8; 8],
}

/// The part of [`SendWqe::extra`] that a flush has.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FlushWords {
    /// The length in bytes of what is flushed, if it is not a whole region.
    pub length: U32,
    /// Of [`flush_placement`].
    pub placement: u8,
    /// One of [`flush_level`].
    pub level: u8,
    /// Zero.
    pub reserved: [u8; 10],
}

/// `enum ferrule_flush_placement`: the placement types.
pub mod flush_placement {
    /// All processors and devices see it.
    pub const GLOBAL: u8 = 1 << 0;
    /// It outlives a loss of power.
    pub const PERSISTENT: u8 = 1 << 1;
}

/// `enum ferrule_flush_level`: the selectivity levels.
pub mod flush_level {
    /// A range of bytes.
    pub const RANGE: u8 = 0;
    /// All that the key opens.
    pub const REGION: u8 = 1;
}

/// The part of [`SendWqe::extra`] that requests over XRC have which have no other. Atomic
/// operations have the number in the place of immediate data.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XrcWords {
    /// The peer's shared receive queue.
    pub remote_srq: U32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// The part of [`SendWqe::extra`] that datagrams have.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Destination {
    /// Number of the address handle.
    pub ah: U32,
    /// The receiver.
    pub remote_qpn: U32,
    /// The receiver's Q_Key.
    pub remote_qkey: U32,
    /// Zero.
    pub reserved: U32,
}

/// `struct ferrule_recv_wqe`: the head of a slot of a receive queue.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecvWqe {
    /// The program's name for the request.
    pub wr_id: U64,
    /// Scatter/gather entries that follow.
    pub num_sge: U16,
    /// Zero.
    pub reserved: [u8; 6],
}

/// `enum ferrule_wc_opcode`.
pub mod wc_opcode {
    /// A send of any kind.
    pub const SEND: u8 = 0;
    /// A write of any kind.
    pub const RDMA_WRITE: u8 = 1;
    /// A read.
    pub const RDMA_READ: u8 = 2;
    /// A compare and swap.
    pub const COMP_SWAP: u8 = 3;
    /// A fetch and add.
    pub const FETCH_ADD: u8 = 4;
    /// A window was bound.
    pub const BIND_MW: u8 = 5;
    /// A local key was invalidated.
    pub const LOCAL_INV: u8 = 6;
    /// A flush.
    pub const FLUSH: u8 = 8;
    /// An atomic write.
    pub const ATOMIC_WRITE: u8 = 9;
    /// A receive request took a message. The bit tells receive from send queues.
    pub const RECV: u8 = 128;
    /// A receive request took the immediate data of a write.
    pub const RECV_RDMA_WITH_IMM: u8 = 129;
}

/// `enum ferrule_wc_flags`.
pub mod wc_flags {
    /// The first 40 bytes of the buffer hold a global routing header.
    pub const GRH: u8 = 1 << 0;
    /// The completion carries immediate data.
    pub const WITH_IMM: u8 = 1 << 1;
    /// The completion carries the key that was invalidated.
    pub const WITH_INV: u8 = 1 << 3;
}

/// `FERRULE_CQE_PHASE`: the phase bit of [`Cqe::phase`].
pub const CQE_PHASE: u32 = 1;

/// `struct ferrule_cqe`: a slot of a completion queue.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// The program's name for the request.
    pub wr_id: U64,
    /// The queue pair.
    pub qp_num: U32,
    /// Tells the queue pairs of one number apart.
    pub qp_gen: U32,
    /// The length of the message in bytes.
    pub byte_len: U32,
    /// Immediate data, or the key that was invalidated.
    pub imm_or_inv: [u8; 4],
    /// The sender of the message.
    pub src_qp: U32,
    /// All slots of the queue before this index are free again; or, with `is_xrc`, the number of
    /// the shared receive queue.
    pub queue_index: U32,
    /// One of [`Status`](crate::Status).
    pub status: u8,
    /// One of [`wc_opcode`].
    pub opcode: u8,
    /// Of [`wc_flags`].
    pub flags: u8,
    /// Service level of the message.
    pub sl: u8,
    /// Index of the partition key.
    pub pkey_index: U16,
    /// The engine's own code for an error.
    pub vendor_err: U16,
    /// When the completion was made, in nanoseconds of [`Host::now`](crate::Host::now).
    pub timestamp: U64,
    /// The version of IP of the header with [`wc_flags::GRH`]: 4 or 6.
    pub ip_version: u8,
    /// Not 0: of an XRC shared receive queue.
    pub is_xrc: u8,
    /// Of a datagram, the identifier of the VLAN that it came in, plus 1; 0 if it came in none.
    pub vlan: U16,
    /// Zero.
    pub reserved: [u8; 8],
    /// [`CQE_PHASE`]; written last.
    pub phase: U32,
}

/// `struct ferrule_qp_ctrl`: the words beside the rings of a queue pair.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QpCtrl {
    /// Producer index of the send queue.
    pub sq_producer: U32,
    /// Zero.
    pub reserved0: [u8; 60],
    /// Producer index of the receive queue.
    pub rq_producer: U32,
    /// Written by the engine: not 0 while posting a receive request needs the doorbell, too.
    pub rq_doorbell: U32,
    /// Zero.
    pub reserved1: [u8; 56],
}

/// `struct ferrule_srq_ctrl`: the words beside the ring of a shared receive queue.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SrqCtrl {
    /// Producer index.
    pub producer: U32,
    /// Zero.
    pub reserved0: [u8; 60],
    /// Written by the engine: all slots before this index are free again.
    pub consumer: U32,
    /// Zero.
    pub reserved1: [u8; 60],
}

/// `FERRULE_CQ_ARM_SOLICITED`: only solicited and failed completions raise an event.
pub const CQ_ARM_SOLICITED: u32 = 1;
/// `FERRULE_CQ_ARM_SN_SHIFT`: where the sequence number of the arm word begins.
pub const CQ_ARM_SN_SHIFT: u32 = 1;

/// `struct ferrule_cq_ctrl`: the words beside the ring of a completion queue.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CqCtrl {
    /// Consumer index.
    pub consumer: U32,
    /// Zero.
    pub reserved0: [u8; 60],
    /// The arm word.
    pub arm: U32,
    /// Zero.
    pub reserved1: [u8; 60],
}

/// `struct ferrule_db`: the head of a doorbell area.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Db {
    /// Counts the rings, and names the last: [`Rung`].
    pub rung: U64,
    /// Not 0: the program posts small requests far ahead of its polls, and its kicks may be
    /// deferred.
    pub backlog: U32,
    /// Zero.
    pub reserved: [u8; 52],
    /// The upper level of doorbells.
    pub top: [U64; DB_TOP_WORDS],
}

/// Where the doorbell lies in [`Db::rung`]. The run is below.
pub const RUNG_DB_SHIFT: u32 = 16;
/// Where the count lies in [`Db::rung`].
pub const RUNG_COUNT_SHIFT: u32 = 32;

/// The parts of [`Db::rung`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// All rings of the context, modulo 2^32.
    pub count: u32,
    /// The doorbell that was rung last.
    pub doorbell: u16,
    /// So many rings in a row were of this doorbell, up to the last. 0: any doorbell may have been
    /// rung.
    pub run: u16,
}

impl Rung {
    /// Takes the word apart.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self {
            count: (word >> RUNG_COUNT_SHIFT) as u32,
            doorbell: (word >> RUNG_DB_SHIFT) as u16,
            run: word as u16,
        }
    }

    /// The word of these parts.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.count as u64) << RUNG_COUNT_SHIFT
            | (self.doorbell as u64) << RUNG_DB_SHIFT
            | self.run as u64
    }

    /// The word after one more ring, of this doorbell.
    #[inline]
    #[must_use]
    pub const fn then(self, doorbell: u32) -> Self {
        let doorbell = doorbell as u16;
        Self {
            count: self.count.wrapping_add(1),
            doorbell,
            run: if doorbell == self.doorbell {
                self.run.saturating_add(1)
            } else {
                1
            },
        }
    }
}

/// `enum ferrule_dead`.
pub mod dead {
    /// The device is gone, and all work has ended.
    pub const DEAD: u32 = 1;
    /// The device is gone, and its work was not ended: the provider makes the flush errors.
    pub const DEAD_UNFLUSHED: u32 = 2;
}

/// `struct ferrule_status`: the head of a status area.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatusArea {
    /// Not 0: a program that rings must kick.
    pub sleeping: U32,
    /// Of [`dead`]; not 0: the device is gone.
    pub dead: U32,
    /// Not 0: kicks are deferred until a poll finds nothing.
    pub deferred: U32,
    /// Zero.
    pub reserved: [u8; 52],
    /// Acknowledgements of the upper level.
    pub top: [U64; DB_TOP_WORDS],
    /// The count of [`Db::rung`] as of the engine's last look at it.
    pub taken: U32,
    /// Zero.
    pub reserved1: [u8; 60],
}

const _: () = {
    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<SendWqe>() == 48);
    assert!(offset_of!(SendWqe, remote_addr) == 16);
    assert!(offset_of!(SendWqe, extra) == 32);
    assert!(size_of::<AtomicWords>() == 16);
    assert!(size_of::<BindWords>() == 16);
    assert!(size_of::<AtomicWriteWords>() == 16);
    assert!(size_of::<FlushWords>() == 16);
    assert!(size_of::<Destination>() == 16);
    assert!(size_of::<XrcWords>() == 16);
    assert!(size_of::<RecvWqe>() == 16);
    assert!(size_of::<Cqe>() == 64);
    assert!(offset_of!(Cqe, status) == 32);
    assert!(offset_of!(Cqe, timestamp) == 40);
    assert!(offset_of!(Cqe, phase) == 60);
    assert!(size_of::<QpCtrl>() == 128);
    assert!(offset_of!(QpCtrl, rq_producer) == 64);
    assert!(size_of::<SrqCtrl>() == 128);
    assert!(offset_of!(SrqCtrl, consumer) == 64);
    assert!(size_of::<CqCtrl>() == 128);
    assert!(offset_of!(CqCtrl, arm) == 64);
    assert!(size_of::<Db>() == 192);
    assert!(size_of::<StatusArea>() == 256);
    assert!(offset_of!(StatusArea, taken) == 192);
    assert!(DB_TOP_WORDS * 64 == DB_LEAF_WORDS);
    assert!(DB_LEAF_WORDS * 64 == MAX_QP as usize);
    assert!(MAX_INLINE == 512 - 48);
};
