// SPDX-License-Identifier: GPL-2.0

//! Registered memory, as the engine reaches it.

use core::mem::MaybeUninit;

use ferrule_engine::{
    host::{
        Asker,
        Fault,
        Presence,
        Region, //
    },
    SharedBytes, //
};
use kernel::{
    pr_warn_once,
    prelude::*,
    sync::Arc, //
};
use net_ext::skb::SkBuff;
use rdma::{
    paging::{
        self,
        OnDemand, //
    },
    umem::Umem,
    Memory, //
};

/// The memory of a region: pages of a program, pinned or paged on demand, or memory of a kernel
/// user.
///
/// # Invariants
///
/// - If the memory is a kernel user's, only the engine reaches it, by what a valid key names
///   ([`Registered::of_user`]).
/// - If it is paged on demand, its bytes are accessed by the engine of the device whose shard is in
///   its [`Exclusive`](super::paging::Paging), so by the owner of the shard.
pub(crate) struct Registered(Bytes);

enum Bytes {
    /// Pinned memory of a program, which copy jobs may share.
    Pinned(Arc<Umem>),
    /// Any other.
    Alone(Memory),
}

/// A counted reference to pinned memory of a program, which anybody may access at any time.
pub(crate) struct SharedMemory(Arc<Umem>);

impl SharedBytes for SharedMemory {
    fn copy(from: &Self, from_offset: u64, to: &Self, to_offset: u64, length: usize) {
        let copied = Umem::copy(&to.0, to_offset, &from.0, from_offset, length as u64);
        if let Err(error) = copied {
            pr_warn_once!("a copy job has failed: {:?}\n", error);
        }
    }
}

impl Registered {
    /// The memory of a program.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn of_program(umem: Umem) -> Result<Self> {
        // INVARIANT: It is a program's. On-demand memory is made by `Shared::page_on_demand`, for
        // the device that it is then registered with. No other type makes accesses, and no other
        // caller than the engine calls its methods.
        Ok(Registered(if umem.memory().on_demand().is_none() {
            Bytes::Pinned(Arc::new(umem, GFP_KERNEL_ACCOUNT)?)
        } else {
            Bytes::Alone(umem.into())
        }))
    }

    #[inline(always)]
    fn memory(&self) -> &Memory {
        match &self.0 {
            Bytes::Pinned(umem) => umem.memory(),
            Bytes::Alone(memory) => memory,
        }
    }
}

impl Registered {
    /// The memory of a kernel user. Only the engine's checks of keys keep it from reaching memory
    /// that is not meant for it. The engine is safe code, and so is the trait by which it reaches
    /// the memory; but with such memory a fault in its checks (`memory/key.rs`,
    /// `memory/memory_window.rs`, `memory/bind.rs`, `memory/fast.rs`), or in the files that name
    /// offsets after them (`memory/sgl.rs`, `operation/atomic.rs`, `operation/atomic_write.rs`), is
    /// a fault in the safety of the kernel's memory.
    ///
    /// # Safety
    ///
    /// The region is handed to an engine, and to nobody else. Its range and its rights there are
    /// those by which the user knows it: no other address stands for the start of the memory than
    /// its own, and nothing is open before the user has registered it.
    pub(super) unsafe fn of_user(memory: Memory) -> Self {
        // INVARIANT: By the requirements of this function. The engine reaches the memory of its
        // regions when it carries out a request, of the queue pair or of its peer, with what the
        // check of the key that the request names has answered: that the key is valid there and
        // then, and gives the right to each byte.
        Registered(Bytes::Alone(memory))
    }

    /// The address in the process whose pages were pinned.
    pub(super) fn start(&self) -> u64 {
        self.memory().start()
    }

    /// The pieces in which its bytes lie; none of memory that is paged on demand.
    pub(super) fn extents(&self) -> u32 {
        self.memory().extents()
    }

    /// Whether it is part of a process.
    pub(super) fn is_of_process(&self) -> bool {
        self.memory().is_of_process()
    }

    /// The pages, if it is paged on demand.
    pub(super) fn on_demand(&self) -> Option<&Arc<OnDemand>> {
        self.memory().on_demand()
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> u64 {
        self.memory().len()
    }

    /// Whether the memory may be written to.
    pub(super) fn writable(&self) -> bool {
        self.memory().writable()
    }

    /// Reads bytes from `offset` on into memory that need not be initialised, and answers it: now
    /// it is.
    #[inline]
    pub(super) fn read_to<'a>(
        &self,
        offset: u64,
        to: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8]> {
        // SAFETY: By the type invariants, the user opened the bytes that are named.
        unsafe { self.memory().read_to(offset, to) }
    }

    /// Writes `length` bytes of a received packet at `offset`.
    #[inline]
    pub(super) fn write_packet(
        &self,
        offset: u64,
        packet: &SkBuff,
        from: usize,
        length: usize,
    ) -> Result<(), Fault> {
        // SAFETY: By the type invariants, the user, to whom the packet is, opened the bytes that
        // are named.
        unsafe { self.memory().write_packet(offset, packet, from, length) }.map_err(|_| Fault)
    }
}

impl Region for Registered {
    type Shared = SharedMemory;

    fn share(&self, write: bool) -> Option<SharedMemory> {
        match &self.0 {
            Bytes::Pinned(umem) if !write || umem.writable() => Some(SharedMemory(umem.clone())),
            _ => None,
        }
    }

    fn replica(&self) -> Option<Self> {
        match &self.0 {
            // INVARIANT: It is a program's, and not paged on demand.
            Bytes::Pinned(umem) => Some(Registered(Bytes::Pinned(umem.clone()))),
            Bytes::Alone(_) => None,
        }
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: By the type invariants, the user opened the bytes that are named for writing.
        unsafe { self.memory().write(offset, from) }.map_err(|_| Fault)
    }

    #[inline(always)]
    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        // SAFETY: By the type invariants, the users opened the bytes that are named, at `to` for
        // writing.
        unsafe {
            Memory::copy(
                to.memory(),
                to_offset,
                from.memory(),
                from_offset,
                length as u64,
            )
        }
        .map_err(|_| Fault)
    }

    #[inline]
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        // SAFETY: By the type invariants, the user opened the bytes that are named for writing.
        unsafe { self.memory().cmpxchg_u64(offset, compare, swap) }.map_err(|_| Fault)
    }

    #[inline]
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        // SAFETY: By the type invariants, the user opened the bytes that are named for writing.
        unsafe { self.memory().fetch_add_u64(offset, add) }.map_err(|_| Fault)
    }

    #[inline]
    fn store_word(&self, offset: u64, value: u64) -> Result<(), Fault> {
        // SAFETY: By the type invariants, what is named was opened by the user for writing.
        unsafe { self.memory().store_u64(offset, value) }.map_err(|_| Fault)
    }

    #[cold]
    fn page_in(&self, offset: u64, length: u64, write: bool, asker: Asker) -> Presence {
        // SAFETY: By the type invariants, the engine asks, and so the owner of its shard.
        match unsafe { self.memory().page_in(offset, length, write, asker.0) } {
            paging::Presence::Present => Presence::Present,
            paging::Presence::Coming => Presence::Coming,
            paging::Presence::Gone => Presence::Gone,
        }
    }

    #[inline]
    fn renew(&mut self) -> Option<u64> {
        match &mut self.0 {
            Bytes::Pinned(_) => None,
            Bytes::Alone(memory) => memory.renew(),
        }
    }
}
