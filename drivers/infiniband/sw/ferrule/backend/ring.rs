// SPDX-License-Identifier: GPL-2.0

//! The memory that a device shares with those who post and poll, as
//! `include/uapi/rdma/ferrule-abi.h` lays it out.

use ferrule_engine::{
    abi,
    Capabilities,
    RingLayout, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::mm::SharedArea;

/// How the rings of a queue pair lie in its buffer.
#[derive(Clone, Copy)]
pub(crate) struct QpRings {
    pub(crate) sq: RingLayout,
    pub(crate) rq: RingLayout,
    /// The offset of the control words, in bytes.
    pub(crate) ctrl: u32,
    /// The offset of a kernel user's destinations, if its send requests are datagrams: one a slot,
    /// in bytes.
    pub(crate) destinations: Option<u32>,
    /// The sizes that were granted.
    pub(crate) cap: Capabilities,
}

/// The ring of a completion queue: the slots, which programs can only read, and the control words.
pub(crate) struct CqRing {
    pub(crate) slots: Arc<SharedArea>,
    pub(crate) ctrl: Arc<SharedArea>,
}

/// Bytes of a slot.
pub(crate) const CQE_SIZE: usize = size_of::<abi::Cqe>();

impl CqRing {
    /// An empty one of `depth` slots, a power of two.
    pub(crate) fn new(depth: u32) -> Result<Self> {
        Ok(CqRing {
            slots: Self::slots(depth)?,
            ctrl: Self::ctrl()?,
        })
    }

    /// So many empty slots, a power of two.
    pub(crate) fn slots(depth: u32) -> Result<Arc<SharedArea>> {
        new_area(depth as usize * CQE_SIZE)
    }

    /// Control words.
    pub(crate) fn ctrl() -> Result<Arc<SharedArea>> {
        new_area(size_of::<abi::CqCtrl>())
    }
}

/// A context's doorbell area, which its user writes, and its status area, which the device writes.
#[derive(Clone)]
pub(crate) struct Doorbells {
    pub(crate) doorbell: Arc<SharedArea>,
    pub(crate) status: Arc<SharedArea>,
}

impl Doorbells {
    /// Those of a new context.
    pub(crate) fn new() -> Result<Self> {
        Ok(Doorbells {
            doorbell: new_area(abi::DB_AREA_SIZE)?,
            status: new_area(abi::DB_AREA_SIZE)?,
        })
    }
}

/// At least `len` bytes, zeroed, charged to the calling process.
pub(crate) fn new_area(len: usize) -> Result<Arc<SharedArea>> {
    Ok(Arc::new(SharedArea::new(len)?, GFP_KERNEL_ACCOUNT)?)
}
