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
        virt_mb,
        SpinLockIrq, //
    },
    task::NoPreempt, //
};

use crate::backend::ring::Doorbells;

const RUNG: usize = core::mem::offset_of!(abi::Db, rung);
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

    /// Rings a doorbell, and calls `kick` if the device sleeps and nobody has kicked it. Any
    /// context.
    pub(super) fn ring(&self, doorbell: u32, kick: impl FnOnce()) -> Result {
        let doorbell = doorbell & abi::DB_INDEX_MASK;
        let status = &self.doorbells.status;
        // A bit that was rung before the fence may have been acknowledged before the producer index
        // was stored.
        if !self.count_ring(doorbell)? && self.is_at_rest(LEAF, doorbell)? {
            self.count_ring(doorbell)?;
        }
        if status.load_u32(SLEEPING)? != 0 {
            self.ringing.with(|()| kick_once(status, kick));
        }
        Ok(())
    }

    /// Stores the word `rung`, and toggles the bits of a doorbell that is at rest. Returns whether
    /// it was.
    fn count_ring(&self, doorbell: u32) -> Result<bool> {
        let toggled = self.ringing.with(|()| {
            let toggled = self.toggle(LEAF, doorbell)?;
            if toggled {
                virt_mb();
                self.toggle(TOP, doorbell / 64)?;
            }
            let area = &self.doorbells.doorbell;
            let rung = abi::Rung::from_word(area.load_u64(RUNG)?).then(doorbell);
            area.store_u64_release(RUNG, rung.to_word())?;
            Ok(toggled)
        });
        virt_mb();
        toggled
    }

    /// Whether the device has acknowledged all toggles of a bit of these words.
    fn is_at_rest(&self, words: usize, position: u32) -> Result<bool> {
        let (at, bit) = place(words, position);
        let Doorbells { doorbell, status } = &self.doorbells;
        Ok((doorbell.load_u64(at)? ^ status.load_u64(at)?) & bit == 0)
    }

    /// Toggles a bit of these words that is at rest, and returns whether it was.
    fn toggle(&self, words: usize, position: u32) -> Result<bool> {
        let (at, bit) = place(words, position);
        let area = &self.doorbells.doorbell;
        let at_rest = self.is_at_rest(words, position)?;
        if at_rest {
            area.store_u64_release(at, area.load_u64(at)? ^ bit)?;
        }
        Ok(at_rest)
    }
}

/// Where a bit of these words lies: the offset of its word, and the bit.
fn place(words: usize, position: u32) -> (usize, u64) {
    let position = position as usize;
    (
        words + position / 64 * size_of::<u64>(),
        1 << (position % 64),
    )
}

/// Calls `kick` if the device sleeps and nobody has kicked it for this context. Any context.
///
/// A kick arrives at the device some time after it was given. Until then other callers find
/// `sleeping` cleared, and do not kick. The device sets it before it looks at the doorbells: it
/// sees those that were rung before, and is kicked for those that are rung after. The others rely
/// on this caller's kick, so no thread may come between the swap and the kick: on PREEMPT_RT the
/// caller's lock does not keep it away, and the others do not wait for that lock.
pub(super) fn kick_once(status: &SharedArea, kick: impl FnOnce()) {
    let _here = NoPreempt::new();
    if status
        .exchange_u32(SLEEPING, 0)
        .is_ok_and(|sleeping| sleeping != 0)
    {
        kick();
    }
}
