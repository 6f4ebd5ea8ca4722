// SPDX-License-Identifier: GPL-2.0

//! Event queues, and how events get to their objects.
//!
//! There is one event queue a vector, in memory, which the device fills before it raises the
//! vector. That of vector 0 gets the events that are no completions.

use ferrule_engine::{
    abi::{
        CqCtrl,
        CQE_PHASE,
        CQ_ARM_SN_SHIFT, //
    },
    cqe_phase, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    static_lock_class,
    sync::Arc, //
};
use kernel_ext::{
    dma::DmaArea,
    new_spinlock_irq,
    pci::Handler,
    sync::SpinLockIrq, //
};
use rdma::{
    cq,
    qp,
    srq, //
};
use zerocopy::FromBytes;

use super::{
    area::Listed,
    interface::{
        event,
        EqCtrl,
        Eqe, //
    },
    table::Table, //
};
use crate::backend::ring::new_area;

/// Entries of an event queue. If more objects have events, the device keeps theirs back.
pub(super) const DEPTH: u32 = 1024;

const ENTRY: usize = size_of::<Eqe>();
/// Where the words of the driver are.
const CTRL: usize = (DEPTH as usize * ENTRY).next_multiple_of(64);
const CONSUMER: usize = CTRL + core::mem::offset_of!(EqCtrl, consumer);
const PHASE: usize = core::mem::offset_of!(Eqe, phase);
const ARM: usize = core::mem::offset_of!(CqCtrl, arm);

/// The vector of the events that are no completions.
pub(super) const ASYNC: u32 = 0;

/// An event queue.
#[pin_data]
struct Eq {
    area: DmaArea,
    /// The entries before this free-running index have been read. Events are told under the lock: a
    /// caller that has taken it knows that no earlier event is being told any more.
    #[pin]
    consumer: SpinLockIrq<u32>,
}

impl Eq {
    fn new(device: &Device<Bound>) -> Result<Pin<KBox<Self>>> {
        let area = DmaArea::new(device, new_area(CTRL + size_of::<EqCtrl>())?)?;
        KBox::pin_init(
            pin_init!(Eq {
                area,
                consumer <- new_spinlock_irq!(0, "Eq::consumer"),
            }),
            GFP_KERNEL,
        )
    }

    /// The entry of an index, if it has been written.
    fn entry(&self, index: u32) -> Option<Eqe> {
        let at = (index & (DEPTH - 1)) as usize * ENTRY;
        let area = self.area.area();
        let phase = area.load_u32_acquire(at + PHASE).ok()?;
        if phase & CQE_PHASE != cqe_phase(index, DEPTH) {
            return None;
        }
        let mut bytes = [0; ENTRY];
        area.read_bytes(at, &mut bytes).ok()?;
        Eqe::read_from_bytes(&bytes).ok()
    }

    /// Tells all events that there are. Any context.
    fn drain(&self, tell: impl Fn(&Eqe)) {
        self.consumer.with(|consumer| {
            let before = *consumer;
            while let Some(entry) = self.entry(*consumer) {
                *consumer = consumer.wrapping_add(1);
                tell(&entry);
            }
            if *consumer != before {
                let _ = self.area.area().store_u32_release(CONSUMER, *consumer);
            }
        });
    }
}

/// The driver's part of a completion queue.
pub(super) struct Cq {
    pub(super) notifier: Arc<cq::Notifier>,
    /// Of its completions.
    pub(super) vector: u32,
    /// The device writes and reads here until the queue is destroyed.
    pub(super) ring: DmaArea,
    pub(super) ctrl: DmaArea,
    /// The number that it was armed with when its owner was told last.
    pub(super) told: u32,
}

impl Cq {
    /// Whether the queue has been armed since its owner was last told. The owner counts as told by
    /// this.
    fn take_arming(&mut self) -> bool {
        let word = self.ctrl.area().load_u32(ARM).unwrap_or(0);
        let number = word >> CQ_ARM_SN_SHIFT;
        core::mem::replace(&mut self.told, number) != number
    }
}

/// The driver's part of a queue pair.
pub(super) struct Qp {
    pub(super) notifier: Arc<qp::Notifier>,
    /// It takes its receive requests from a shared queue.
    pub(super) has_srq: bool,
    pub(super) _area: DmaArea,
}

/// The driver's part of a shared receive queue.
pub(super) struct Srq {
    pub(super) notifier: Arc<srq::Notifier>,
    /// The device writes and reads here until the queue is destroyed.
    pub(super) area: DmaArea,
}

/// The event queues, and the objects that have events.
#[pin_data]
pub(crate) struct Events {
    queues: KVec<Pin<KBox<Eq>>>,
    #[pin]
    pub(super) cqs: Table<Cq>,
    #[pin]
    pub(super) qps: Table<Qp>,
    #[pin]
    pub(super) srqs: Table<Srq>,
}

impl Events {
    /// Event queues for `count` vectors, of which the device does not know yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(device: &Device<Bound>, count: u32) -> Result<Arc<Self>> {
        let mut queues = KVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            queues.push(Eq::new(device)?, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Events {
                queues,
                cqs <- Table::new(c"Events::cqs", static_lock_class!()),
                qps <- Table::new(c"Events::qps", static_lock_class!()),
                srqs <- Table::new(c"Events::srqs", static_lock_class!()),
            }),
            GFP_KERNEL,
        )
    }

    /// How many event queues there are.
    pub(super) fn count(&self) -> u32 {
        self.queues.len() as u32
    }

    /// The page list of an event queue.
    pub(super) fn list(&self, device: &Device<Bound>, vector: u32) -> Result<Listed> {
        let queue = self.queues.get(vector as usize).ok_or(EINVAL)?;
        Listed::new(device, queue.area.pages())
    }

    /// Tells the events of a vector. When it returns, none of those that were there before is being
    /// told. Any context.
    pub(super) fn drain(&self, vector: u32) {
        if let Some(queue) = self.queues.get(vector as usize) {
            queue.drain(|entry| self.tell(entry));
        }
    }

    /// Tells the owners of all completion queues that are armed that there are completions: the
    /// function is gone, and polling ends their work. Any context.
    pub(super) fn tell_armed(&self) {
        let mut next = Some(0);
        while let Some(from) = next {
            let found = self
                .cqs
                .first_from(from, |cq| cq.take_arming().then(|| cq.notifier.clone()));
            let Some((cqn, notifier)) = found else {
                break;
            };
            if let Some(notifier) = notifier {
                notifier.complete();
            }
            next = cqn.checked_add(1);
        }
    }

    /// Tells an event to its object. That of an object which has just been destroyed is dropped.
    fn tell(&self, entry: &Eqe) {
        let (number, code) = (entry.number.get(), entry.code.get());
        match entry.kind.get() {
            event::COMPLETION => {
                let notifier = self.cqs.with(number, |cq| {
                    cq.take_arming();
                    cq.notifier.clone()
                });
                if let Some(notifier) = notifier {
                    notifier.complete();
                }
            }
            event::CQ => {
                let notifier = self.cqs.with(number, |cq| cq.notifier.clone());
                if let Some(notifier) = notifier {
                    notifier.error();
                }
            }
            event::QP => {
                let notifier = self.qps.with(number, |qp| qp.notifier.clone());
                if let (Some(notifier), Some(event)) = (notifier, qp::Event::from_number(code)) {
                    notifier.event(event);
                }
            }
            event::SRQ => {
                let notifier = self.srqs.with(number, |srq| srq.notifier.clone());
                if let (Some(notifier), Some(event)) = (notifier, srq::Event::from_number(code)) {
                    notifier.event(event);
                }
            }
            _ => (),
        }
    }
}

impl Handler for Events {
    fn handle(&self, vector: u32) {
        self.drain(vector);
    }
}
