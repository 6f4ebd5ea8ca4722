// SPDX-License-Identifier: GPL-2.0

//! Completion queues of the kernel's own users: how completions get out of the ring.

use ferrule_engine::{
    abi::{
        self,
        wc_flags,
        wc_opcode, //
    },
    fast, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    mm::SharedArea,
    new_spinlock_irq,
    sync::{
        smp_mb,
        SpinLockIrq, //
    },
};
use rdma::{
    cq::Notifier,
    work::{
        Completion,
        CompletionOpcode,
        Completions,
        Extra, //
    }, //
};
use zerocopy::FromBytes;

use super::{
    host::{
        Ring,
        CQE_SIZE, //
    },
    posting::Directory, //
};

const CQE_PHASE: usize = core::mem::offset_of!(abi::Cqe, phase);
const CONSUMER: usize = core::mem::offset_of!(abi::CqCtrl, consumer);
const ARM: usize = core::mem::offset_of!(abi::CqCtrl, arm);

/// Where those who poll stand.
struct Consumer {
    index: u32,
    /// How many times the queue was armed.
    armed: u32,
    /// It was armed for whatever completes next, after so many events.
    any_after: Option<u32>,
}

/// The ring of a completion queue, for those who poll.
#[pin_data]
pub(crate) struct Polling {
    slots: Arc<SharedArea>,
    ctrl: Arc<SharedArea>,
    depth: u32,
    directory: Arc<Directory>,
    notifier: Arc<Notifier>,
    #[pin]
    consumer: SpinLockIrq<Consumer>,
}

impl Polling {
    /// An empty ring of `depth` slots, a power of two, and what the engine needs of it.
    pub(crate) fn new(
        depth: u32,
        directory: Arc<Directory>,
        notifier: Arc<Notifier>,
    ) -> Result<(Pin<KBox<Self>>, Ring)> {
        let ring = Ring::new(depth)?;
        let (slots, ctrl) = (ring.slots.clone(), ring.ctrl.clone());
        let consumer = Consumer {
            index: 0,
            armed: 0,
            any_after: None,
        };
        let polling = KBox::pin_init(
            pin_init!(Polling {
                slots,
                ctrl,
                depth,
                directory,
                notifier,
                consumer <- new_spinlock_irq!(consumer, "Polling::consumer"),
            }),
            GFP_KERNEL,
        )?;
        Ok((polling, ring))
    }

    /// Where the slot of an index is, if there is a completion in it.
    fn valid(&self, index: u32) -> Option<usize> {
        let slot = (index & (self.depth - 1)) as usize * CQE_SIZE;
        let expected = if index & self.depth == 0 {
            abi::CQE_PHASE
        } else {
            0
        };
        let phase = self.slots.load_u32_acquire(slot + CQE_PHASE).ok()?;
        (phase & abi::CQE_PHASE == expected).then_some(slot)
    }

    /// Takes completions as long as there is room. Those of queue pairs that have gone are dropped.
    /// Any context.
    pub(crate) fn poll(&self, completions: &mut Completions<'_>) -> Result {
        let mut consumer = self.consumer.lock();
        let before = consumer.index;
        // One lock for the whole device. It is held for the copies of a few completions.
        let directory = self.directory.lock();
        while !completions.is_full() {
            let Some(slot) = self.valid(consumer.index) else {
                break;
            };
            let mut bytes = [0; CQE_SIZE];
            self.slots.read_bytes(slot, &mut bytes)?;
            consumer.index = consumer.index.wrapping_add(1);
            let Ok(cqe) = abi::Cqe::read_from_bytes(&bytes) else {
                continue;
            };
            let Some((generation, posting)) = directory.get(&cqe.qp_num.get()) else {
                continue;
            };
            if *generation != cqe.qp_gen.get() {
                continue;
            }
            let is_receive = cqe.opcode & wc_opcode::RECV != 0;
            posting.completed(is_receive, cqe.queue_index.get());
            completions.push(&posting.notifier, &completion(&cqe));
        }
        drop(directory);
        if consumer.index != before {
            self.ctrl.store_u32_release(CONSUMER, consumer.index)?;
        }
        Ok(())
    }

    /// Arms the queue, and says whether there are completions already. Any context.
    pub(crate) fn arm(&self, solicited: bool) -> Result<bool> {
        let mut consumer = self.consumer.lock();
        let told = self.notifier.told();
        // Who waits for any completion does not come to wait for less by asking for a solicited one
        // (IBA volume 1, 11.4.2.2). If the event is just on its way, it comes after this call.
        if !(solicited && consumer.any_after == Some(told)) {
            consumer.any_after = (!solicited).then_some(told);
            consumer.armed = consumer.armed.wrapping_add(1);
            let mut word = consumer.armed << abi::CQ_ARM_SN_SHIFT;
            if solicited {
                word |= abi::CQ_ARM_SOLICITED;
            }
            self.ctrl.store_u32_release(ARM, word)?;
        }
        // Either the engine sees that the queue is armed, or this sees what it has completed.
        smp_mb();
        Ok(self.valid(consumer.index).is_some())
    }
}

/// A completion as the core has it.
fn completion(cqe: &abi::Cqe) -> Completion {
    let has = |flag| cqe.flags & flag != 0;
    Completion {
        wr_id: cqe.wr_id.get(),
        status: cqe.status.into(),
        opcode: match cqe.opcode {
            wc_opcode::RDMA_WRITE => CompletionOpcode::Write,
            wc_opcode::RDMA_READ => CompletionOpcode::Read,
            wc_opcode::COMP_SWAP => CompletionOpcode::CompareSwap,
            wc_opcode::FETCH_ADD => CompletionOpcode::FetchAdd,
            wc_opcode::LOCAL_INV => CompletionOpcode::LocalInv,
            fast::WC_REGISTER => CompletionOpcode::Register,
            wc_opcode::RECV => CompletionOpcode::Recv,
            wc_opcode::RECV_RDMA_WITH_IMM => CompletionOpcode::RecvWriteWithImm,
            _ => CompletionOpcode::Send,
        },
        vendor_err: cqe.vendor_err.get().into(),
        byte_len: cqe.byte_len.get(),
        extra: if has(wc_flags::WITH_IMM) {
            Extra::Immediate(cqe.imm_or_inv)
        } else if has(wc_flags::WITH_INV) {
            Extra::Invalidated(u32::from_le_bytes(cqe.imm_or_inv))
        } else {
            Extra::Nothing
        },
        src_qp: cqe.src_qp.get(),
        grh: has(wc_flags::GRH),
        pkey_index: cqe.pkey_index.get(),
        sl: cqe.sl,
    }
}
