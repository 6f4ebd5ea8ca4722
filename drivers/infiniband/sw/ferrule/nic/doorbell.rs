// SPDX-License-Identifier: GPL-2.0

//! The doorbells of the driver's own context, which ring queue pairs of kernel users.
//!
//! `include/uapi/rdma/ferrule-abi.h` has the protocol. Programs follow it in the provider.

use ferrule_engine::abi;
use kernel::prelude::*;
use kernel_ext::{
    mm::SharedArea,
    new_spinlock_irq,
    sync::{
        smp_mb,
        SpinLockIrq, //
    },
};

use crate::backend::ring::Doorbells;

const SEQ: usize = core::mem::offset_of!(abi::Db, seq);
const TOP: usize = core::mem::offset_of!(abi::Db, top);
const LEAF: usize = abi::DB_LEAF_OFFSET;
const SLEEPING: usize = core::mem::offset_of!(abi::StatusArea, sleeping);

const _: () = assert!(core::mem::offset_of!(abi::StatusArea, top) == TOP);

/// The doorbells of a context that many ring.
#[pin_data]
pub(super) struct Bell {
    doorbells: Doorbells,
    /// Held while one rings.
    #[pin]
    ringing: SpinLockIrq<()>,
}

impl Bell {
    pub(super) fn new(doorbells: Doorbells) -> impl PinInit<Self> {
        pin_init!(Bell {
            doorbells,
            ringing <- new_spinlock_irq!((), "Bell::ringing"),
        })
    }

    /// Rings a doorbell, and calls `kick` if the device sleeps and nobody has kicked it. Any context.
    pub(super) fn ring(&self, doorbell: u32, kick: impl FnOnce()) -> Result {
        let leaf = (doorbell & abi::DB_INDEX_MASK) as usize;
        let Doorbells { doorbell, status } = &self.doorbells;
        smp_mb();
        self.ringing.with(|()| {
            for (words, bit) in [(LEAF, leaf), (TOP, leaf / 64)] {
                let word = words + bit / 64 * size_of::<u64>();
                let rung = doorbell.load_u64(word)?;
                // A bit that differs already is rung: the device has yet to look.
                if (rung ^ status.load_u64(word)?) & 1 << (bit % 64) == 0 {
                    doorbell.store_u64(word, rung ^ 1 << (bit % 64))?;
                    smp_mb();
                }
            }
            doorbell.store_u32(SEQ, doorbell.load_u32(SEQ)?.wrapping_add(1))
        })?;
        smp_mb();
        if status.load_u32(SLEEPING)? != 0 {
            self.ringing.with(|()| kick_once(status, kick));
        }
        Ok(())
    }
}

/// Calls `kick` if the device sleeps and nobody has kicked it for this context. Any context.
///
/// A kick arrives at the device some time after it was given. Until then other callers find `sleeping` cleared, and do not
/// kick. The device sets it before it looks at the doorbells: it sees those that were rung before, and is kicked for those
/// that are rung after. The others rely on this caller's kick, so it holds a lock with interrupts off: nothing on this
/// processor comes between the swap and the kick.
pub(super) fn kick_once(status: &SharedArea, kick: impl FnOnce()) {
    if status
        .exchange_u32(SLEEPING, 0)
        .is_ok_and(|sleeping| sleeping != 0)
    {
        kick();
    }
}
