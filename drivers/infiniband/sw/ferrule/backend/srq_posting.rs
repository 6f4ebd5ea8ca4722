// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues of the kernel's own users: how requests get into the ring.
//!
//! As in [`posting`](super::posting), the ring is that of programs, and posting never runs the
//! engine. It need not: a queue pair takes a request when a message comes for it.

use ferrule_engine::{
    abi,
    RingLayout, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    mm::SharedArea,
    new_spinlock_irq,
    sync::SpinLockIrq, //
};
use rdma::wr::RecvRequest;

use super::posting::put_recv;

const PRODUCER: usize = core::mem::offset_of!(abi::SrqCtrl, producer);
const CONSUMER: usize = core::mem::offset_of!(abi::SrqCtrl, consumer);

/// The ring of a shared receive queue, for those who post.
#[pin_data]
pub(crate) struct SrqPosting {
    area: Arc<SharedArea>,
    ring: RingLayout,
    /// The most scatter/gather entries of a request.
    max_sge: u32,
    /// The offset of the control words, in bytes.
    ctrl: u32,
    #[pin]
    producer: SpinLockIrq<u32>,
}

impl SrqPosting {
    /// An empty ring in a buffer.
    pub(crate) fn new(
        area: Arc<SharedArea>,
        ring: RingLayout,
        max_sge: u32,
        ctrl: u32,
    ) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(SrqPosting {
                area,
                ring,
                max_sge,
                ctrl,
                producer <- new_spinlock_irq!(0, "SrqPosting::producer"),
            }),
            GFP_KERNEL,
        )
    }

    /// Posts requests, as many as go. Any context.
    ///
    /// # Errors
    ///
    /// Of the first request that was not posted (`bad_wr`): `ENOMEM` if the queue is full, `EINVAL`
    /// for more entries than it has space for.
    pub(crate) fn post<'a>(&self, mut requests: impl Iterator<Item = RecvRequest<'a>>) -> Result {
        self.producer.with(|producer| {
            let before = *producer;
            let result = requests.try_for_each(|request| self.put(producer, &request));
            if *producer != before {
                self.area
                    .store_u32_release(self.ctrl as usize + PRODUCER, *producer)?;
            }
            result
        })
    }

    /// Fills the next slot.
    fn put(&self, producer: &mut u32, request: &RecvRequest<'_>) -> Result {
        // The engine has copied the requests of the slots before.
        let free = self.area.load_u32_acquire(self.ctrl as usize + CONSUMER)?;
        if producer.wrapping_sub(free) >= self.ring.depth {
            return Err(ENOMEM);
        }
        put_recv(&self.area, &self.ring, *producer, request, self.max_sge)?;
        *producer = producer.wrapping_add(1);
        Ok(())
    }
}
