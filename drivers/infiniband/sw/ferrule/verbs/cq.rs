// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use ferrule_engine::{
    abi,
    Moderation, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};
use rdma::{
    cq,
    mmap::{
        Entry,
        Protection, //
    },
    wc::Completions,
    Ucontext,
    UserCall, //
};

use crate::{
    backend::{
        destination::Destination,
        polling::Polling,
        ring::CqRing,
        Backend,
        Commands, //
    },
    verbs::{
        abi::{
            CreateCqResp,
            ResizeCqResp, //
        },
        doorbells::doorbells,
        Ferrule, //
    },
};

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`: completions tell their time, as those of each queue
/// here do.
const TIMESTAMP_COMPLETION: u32 = 1 << 0;

/// A completion queue. Dropping it takes the ring from the engine.
pub(crate) struct Cq<B: Backend> {
    commands: B::Commands,
    cqn: u32,
    consumer: Consumer<B::Destination>,
}

/// The side that polls it.
enum Consumer<D: Destination> {
    Program(Mapped),
    Kernel(Arc<Polling<D>>),
}

/// The areas that a program has mapped.
struct Mapped {
    /// The ring; another one when the queue is resized.
    ring: Pin<KBox<Mutex<Entry>>>,
    ctrl: Arc<SharedArea>,
    _ctrl_entry: Entry,
}

/// The slots of a ring for at least `cqe` completions.
fn depth(cqe: u32) -> Result<u32> {
    if cqe == 0 || cqe > abi::MAX_CQ_DEPTH {
        return Err(EINVAL);
    }
    Ok(cqe.next_power_of_two())
}

/// Makes a ring of at least `cqe` slots, and returns how many it has.
fn new_ring<B: Backend>(
    ctx: &Ucontext<Ferrule<B>>,
    cqe: u32,
) -> Result<(u32, Arc<SharedArea>, Entry)> {
    let depth = depth(cqe)?;
    let slots = CqRing::slots(depth)?;
    let entry = ctx.map(slots.clone(), Protection::ReadOnly)?;
    Ok((depth, slots, entry))
}

impl<B: Backend> Cq<B> {
    /// The number of the completion queue.
    pub(super) fn cqn(&self) -> u32 {
        self.cqn
    }

    /// The command channel of its device.
    pub(super) fn commands(&self) -> &B::Commands {
        &self.commands
    }

    /// Makes a queue for a kernel user.
    fn for_kernel(new: &mut cq::New<'_, Ferrule<B>>, attr: &cq::InitAttr) -> Result<Self> {
        let commands = new.device().commands();
        let depth = depth(attr.cqe)?;
        let (polling, ring) = Polling::new(depth, new.notifier())?;
        let cqn = commands.add_cq(None, depth, ring, attr.comp_vector, new.notifier())?;
        new.set_cqe(depth);
        Ok(Cq {
            commands,
            cqn,
            consumer: Consumer::Kernel(polling),
        })
    }

    /// The ring of a kernel user.
    pub(super) fn polling(&self) -> Result<&Arc<Polling<B::Destination>>> {
        match &self.consumer {
            Consumer::Kernel(polling) => Ok(polling),
            Consumer::Program(_) => Err(EOPNOTSUPP),
        }
    }
}

#[vtable]
impl<B: Backend> cq::Operations for Cq<B> {
    type Driver = Ferrule<B>;

    fn create(
        new: &mut cq::New<'_, Ferrule<B>>,
        attr: &cq::InitAttr,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        if attr.flags & !TIMESTAMP_COMPLETION != 0 {
            return Err(EOPNOTSUPP);
        }
        let Some(user) = user else {
            return Self::for_kernel(new, attr);
        };
        let doorbells = doorbells(&user)?;
        let (depth, slots, ring_entry) = new_ring(user.ucontext(), attr.cqe)?;
        let ctrl = CqRing::ctrl()?;
        let ctrl_entry = user.ucontext().map(ctrl.clone(), Protection::ReadWrite)?;
        let mut resp = CreateCqResp {
            ring_offset: ring_entry.offset(),
            ctrl_offset: ctrl_entry.offset(),
            ring_size: ring_entry.len() as u32,
            ctrl_size: ctrl_entry.len() as u32,
            depth,
            ..Default::default()
        };
        let ring = KBox::pin_init(new_mutex!(ring_entry, "Cq::ring"), GFP_KERNEL_ACCOUNT)?;

        let commands = new.device().commands();
        let handle = new.notifier();
        let cqn = commands.add_cq(
            Some(doorbells.id()),
            depth,
            CqRing {
                slots,
                ctrl: ctrl.clone(),
            },
            attr.comp_vector,
            handle,
        )?;
        let cq = Cq {
            commands,
            cqn,
            consumer: Consumer::Program(Mapped {
                ring,
                ctrl,
                _ctrl_entry: ctrl_entry,
            }),
        };
        new.set_cqe(depth);
        resp.cqn = cqn;
        user.respond(&resp)?;
        Ok(cq)
    }

    fn resize(cq: &rdma::Cq<Ferrule<B>>, cqe: u32, user: UserCall<'_, Ferrule<B>>) -> Result<u32> {
        let Consumer::Program(mapped) = &cq.consumer else {
            return Err(EOPNOTSUPP);
        };
        let (depth, slots, entry) = new_ring(user.ucontext(), cqe)?;
        let mut resp = ResizeCqResp {
            ring_offset: entry.offset(),
            ring_size: entry.len() as u32,
            depth,
            ..Default::default()
        };
        let ring = CqRing {
            slots,
            ctrl: mapped.ctrl.clone(),
        };
        resp.base = cq.commands.resize_cq(cq.cqn, depth, ring)?;
        // A program that has mapped the previous ring may read it to its end.
        let _before = core::mem::replace(&mut *mapped.ring.lock(), entry);
        user.respond(&resp)?;
        Ok(depth)
    }

    fn moderate(cq: &rdma::Cq<Ferrule<B>>, count: u16, period: u16) -> Result {
        cq.commands
            .moderate_cq(cq.cqn, Moderation { count, period })
    }

    fn poll(cq: &rdma::Cq<Ferrule<B>>, completions: &mut Completions<'_>) -> Result {
        cq.polling()?.poll(completions, cq.commands.is_gone())
    }

    fn req_notify(cq: &rdma::Cq<Ferrule<B>>, solicited: bool) -> Result<bool> {
        cq.polling()?.arm(solicited, cq.commands.is_gone())
    }
}

impl<B: Backend> Drop for Cq<B> {
    fn drop(&mut self) {
        self.commands.remove_cq(self.cqn);
    }
}
