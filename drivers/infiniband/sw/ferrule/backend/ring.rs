// SPDX-License-Identifier: GPL-2.0

//! The memory that a device shares with those who post and poll, as `include/uapi/rdma/ferrule-abi.h` lays it out.

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
        let size = depth as usize * CQE_SIZE;
        Ok(Arc::new(SharedArea::new(size)?, GFP_KERNEL_ACCOUNT)?)
    }

    /// Control words.
    pub(crate) fn ctrl() -> Result<Arc<SharedArea>> {
        let size = size_of::<abi::CqCtrl>();
        Ok(Arc::new(SharedArea::new(size)?, GFP_KERNEL_ACCOUNT)?)
    }
}

/// A user context's doorbell area, which the program writes, and its status area, which the device writes.
pub(crate) struct Doorbells {
    pub(crate) doorbell: Arc<SharedArea>,
    pub(crate) status: Arc<SharedArea>,
}
