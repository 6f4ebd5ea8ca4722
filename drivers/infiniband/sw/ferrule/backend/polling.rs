// SPDX-License-Identifier: GPL-2.0

//! Completion queues of the kernel's own users: how completions get out of the ring.

use ferrule_engine::{
    abi::{
        self,
        wc_flags,
        wc_opcode, //
    },
    cqe_phase,
    fast,
    Status, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};
use kernel_ext::{
    mm::SharedArea,
    new_spinlock_irq,
    sync::{
        virt_mb,
        SpinLockIrq, //
    },
};
use rdma::{
    cq::Notifier,
    qp::State,
    wc::{
        Completion,
        CompletionOpcode,
        Completions,
        Extra, //
    }, //
};
use zerocopy::FromBytes;

use super::{
    destination::Destination,
    posting::Posting,
    ring::{
        CqRing,
        CQE_SIZE, //
    }, //
};

const CQE_PHASE: usize = core::mem::offset_of!(abi::Cqe, phase);
const CONSUMER: usize = core::mem::offset_of!(abi::CqCtrl, consumer);
const ARM: usize = core::mem::offset_of!(abi::CqCtrl, arm);

/// A user that finds so many completions when it polls has fallen behind. It runs on the processor
/// where the engine raises its events, as a rule the poster's, and had to wait for that.
const BEHIND: u64 = 3;

/// So many of its next events go by the work item. Then it is told at once again, and the next poll
/// shows whether it keeps up.
const EVENTS: u32 = 16;

/// A queue pair of which the sends, the receives or both complete to a queue.
struct Completes<D: Destination> {
    generation: u32,
    sends: bool,
    receives: bool,
    /// Completions before this one are of its life before the last RESET.
    first_cqe: u64,
    posting: Arc<Posting<D>>,
}

/// The consumer's state.
struct Consumer<D: Destination> {
    /// The low half is the index of the next slot. The whole never comes back to one that it has
    /// had.
    index: u64,
    /// How many times the queue was armed.
    armed: u32,
    /// It was armed for whatever completes next, after so many events.
    any_after: Option<u32>,
    /// The device is gone, and all that it has written is read: the ring is not read any more.
    is_flushing: bool,
    /// The queue pairs that complete here, by number.
    listed: RBTree<u32, Completes<D>>,
}

impl<D: Destination> Consumer<D> {
    /// The queue pair of the completion at an index: none if it has gone, or was reset since.
    fn owner(&self, cqe: &abi::Cqe, index: u64) -> Option<&Completes<D>> {
        let listed = self.listed.get(&cqe.qp_num.get())?;
        (listed.generation == cqe.qp_gen.get() && index >= listed.first_cqe).then_some(listed)
    }
}

/// The ring of a completion queue, for those who poll.
#[pin_data]
pub(crate) struct Polling<D: Destination> {
    slots: Arc<SharedArea>,
    ctrl: Arc<SharedArea>,
    depth: u32,
    notifier: Arc<Notifier>,
    #[pin]
    consumer: SpinLockIrq<Consumer<D>>,
}

impl<D: Destination> Polling<D> {
    /// An empty ring of `depth` slots, a power of two, and the engine's side of it.
    pub(crate) fn new(depth: u32, notifier: Arc<Notifier>) -> Result<(Arc<Self>, CqRing)> {
        let ring = CqRing::new(depth)?;
        let (slots, ctrl) = (ring.slots.clone(), ring.ctrl.clone());
        let consumer = Consumer {
            index: 0,
            armed: 0,
            any_after: None,
            is_flushing: false,
            listed: RBTree::new(),
        };
        let polling = Arc::pin_init(
            pin_init!(Polling {
                slots,
                ctrl,
                depth,
                notifier,
                consumer <- new_spinlock_irq!(consumer, "Polling::consumer"),
            }),
            GFP_KERNEL,
        )?;
        Ok((polling, ring))
    }

    /// The completion at an index, if there is one.
    fn read(&self, index: u64) -> Option<abi::Cqe> {
        let slot = self.valid(index)?;
        let mut bytes = [0; CQE_SIZE];
        self.slots.read_bytes(slot, &mut bytes).ok()?;
        abi::Cqe::read_from_bytes(&bytes).ok()
    }

    /// The offset of the slot of an index, if there is a completion in it.
    fn valid(&self, index: u64) -> Option<usize> {
        let index = index as u32;
        let slot = (index & (self.depth - 1)) as usize * CQE_SIZE;
        let found = self.slots.load_u32_acquire(slot + CQE_PHASE).ok()?;
        (found & abi::CQE_PHASE == cqe_phase(index, self.depth)).then_some(slot)
    }

    /// Takes completions as long as there is space. Those of queue pairs that have gone, or were
    /// reset since, are dropped. If the device `is_gone`, the requests that it has not completed
    /// end with flush errors. Any context.
    pub(crate) fn poll(&self, completions: &mut Completions<'_>, is_gone: bool) -> Result {
        self.consumer.with(|consumer| {
            if consumer.is_flushing {
                return flush(consumer, completions);
            }
            let before = consumer.index;
            while !completions.is_full() {
                let index = consumer.index;
                let Some(cqe) = self.read(index) else {
                    break;
                };
                consumer.index = index.wrapping_add(1);
                // The slot goes back before `completed` gives back those of the work queue. Else a
                // thread could post into these, and the engine find no slot for the completion if
                // this ring is no deeper.
                self.ctrl
                    .store_u32_release(CONSUMER, consumer.index as u32)?;
                let Some(listed) = consumer.owner(&cqe, index) else {
                    continue;
                };
                let posting = &listed.posting;
                let is_receive = cqe.opcode & wc_opcode::RECV != 0;
                posting.completed(is_receive, cqe.queue_index.get());
                // SAFETY: The queue pair is the one that the engine means, by number and
                // generation, and completes to this queue, to whose ring only the engine writes:
                // for each request one completion, which is read once, with the number that the
                // request has in its ring. That is the user's: only `posting` writes there.
                unsafe { completions.push(&posting.notifier, &completion(&cqe)) };
            }
            if consumer.index.wrapping_sub(before) >= BEHIND {
                self.notifier.fell_behind(EVENTS);
            }
            if is_gone && !completions.is_full() {
                consumer.is_flushing = true;
                flush(consumer, completions)?;
            }
            Ok(())
        })
    }

    /// Arms the queue, and says whether there are completions already, or will be since the device
    /// `is_gone`. Any context.
    pub(crate) fn arm(&self, solicited: bool, is_gone: bool) -> Result<bool> {
        self.consumer.with(|consumer| {
            let told = self.notifier.told();
            // A queue that is armed for any completion stays so if it is armed for a solicited one
            // then (IBA volume 1, 11.4.2.2). An event that is just on its way comes after this
            // call.
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
            virt_mb();
            let is_unflushed = is_gone
                && (consumer.listed.values()).any(|listed| {
                    listed.sends && listed.posting.unflushed(false).is_some()
                        || listed.receives && listed.posting.unflushed(true).is_some()
                });
            Ok(is_unflushed || !consumer.is_flushing && self.valid(consumer.index).is_some())
        })
    }

    /// Lists a queue pair whose completions come here.
    fn list(&self, qpn: u32, completes: Completes<D>) -> Result {
        let node = RBTreeNode::new(qpn, completes, GFP_KERNEL)?;
        let before = self.consumer.with(|consumer| consumer.listed.insert(node));
        drop(before);
        Ok(())
    }

    /// The owner of a queue pair has moved it to a state.
    ///
    /// In RESET requests end without a completion (IBA volume 1, 10.3.1), and the device counts
    /// from 0 again. The completions that it has written must neither be seen in the new life nor
    /// give back slots of it. It has written all of them by now.
    fn moved(&self, qpn: u32, to: State) {
        self.consumer.with(|consumer| {
            let Some(listed) = consumer.listed.get_mut(&qpn) else {
                return;
            };
            if to == State::Reset {
                let end = consumer.index.wrapping_add(self.depth.into());
                listed.first_cqe = (consumer.index..end)
                    .find(|&index| self.valid(index).is_none())
                    .unwrap_or(end);
            }
            if listed.sends {
                listed.posting.moved(false, to);
            }
            if listed.receives {
                listed.posting.moved(true, to);
            }
            self.drop_stale(consumer);
        });
    }

    /// Forgets a queue pair, if it is listed. The device has written all of its completions.
    fn unlist(&self, qpn: u32) {
        let node = self.consumer.with(|consumer| {
            let node = consumer.listed.remove_node(&qpn);
            self.drop_stale(consumer);
            node
        });
        drop(node);
    }

    /// Gives back the slots of completions that nobody will see, up to the first one that is yet to
    /// be polled. Queue pairs that come and go would fill the ring else.
    fn drop_stale(&self, consumer: &mut Consumer<D>) {
        while let Some(cqe) = self.read(consumer.index) {
            if consumer.owner(&cqe, consumer.index).is_some() {
                break;
            }
            consumer.index = consumer.index.wrapping_add(1);
        }
        // It lies within the area.
        let _ = (self.ctrl).store_u32_release(CONSUMER, consumer.index as u32);
    }
}

/// A queue pair in the lists of its completion queues. Dropping it takes it off them.
pub(crate) struct Listed<D: Destination> {
    send: Arc<Polling<D>>,
    recv: Arc<Polling<D>>,
    qpn: u32,
    /// The rings of the queue pair.
    pub(crate) posting: Arc<Posting<D>>,
}

impl<D: Destination> Listed<D> {
    /// Lists a queue pair in its two completion queues, which may be one.
    pub(crate) fn new(
        [send, recv]: [Arc<Polling<D>>; 2],
        qpn: u32,
        generation: u32,
        posting: Arc<Posting<D>>,
    ) -> Result<Self> {
        let is_one = Arc::ptr_eq(&send, &recv);
        let completes = |sends, receives| Completes {
            generation,
            sends,
            receives,
            first_cqe: 0,
            posting: posting.clone(),
        };
        let (first, second) = (completes(true, is_one), completes(false, true));
        // If one of them fails, dropping this takes it off the other.
        let listed = Listed {
            send,
            recv,
            qpn,
            posting,
        };
        listed.send.list(qpn, first)?;
        if !is_one {
            listed.recv.list(qpn, second)?;
        }
        Ok(listed)
    }

    /// The owner of the queue pair has moved it to a state.
    pub(crate) fn moved(&self, to: State) {
        self.send.moved(self.qpn, to);
        if !Arc::ptr_eq(&self.send, &self.recv) {
            self.recv.moved(self.qpn, to);
        }
    }
}

impl<D: Destination> Drop for Listed<D> {
    fn drop(&mut self) {
        self.send.unlist(self.qpn);
        self.recv.unlist(self.qpn);
    }
}

/// Ends requests that the device had not completed when it went, as long as there is space: as in
/// state ERR, in the order of each queue.
fn flush<D: Destination>(consumer: &Consumer<D>, completions: &mut Completions<'_>) -> Result {
    for listed in consumer.listed.values() {
        let queues = [
            (listed.sends, CompletionOpcode::Send),
            (listed.receives, CompletionOpcode::Recv),
        ];
        for (_, opcode) in queues.into_iter().filter(|&(completes, _)| completes) {
            while !completions.is_full() {
                let is_receive = opcode == CompletionOpcode::Recv;
                let Some(wr_id) = listed.posting.flush_next(is_receive)? else {
                    break;
                };
                let completion = Completion {
                    wr_id,
                    status: Status::Flushed as u32,
                    opcode,
                    vendor_err: 0,
                    byte_len: 0,
                    extra: Extra::Nothing,
                    src_qp: 0,
                    grh: false,
                    pkey_index: 0,
                    sl: 0,
                    vlan: None,
                };
                // SAFETY: The queue pair completes to this queue, and the request is in its ring,
                // where only `posting` writes the number. None of the completions in the ring of
                // this queue was of it or of a later request, and that ring is not read any more.
                // `flush_next` names it once.
                unsafe { completions.push(&listed.posting.notifier, &completion) };
            }
        }
    }
    Ok(())
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
        vlan: cqe.vlan.get().checked_sub(1),
    }
}
