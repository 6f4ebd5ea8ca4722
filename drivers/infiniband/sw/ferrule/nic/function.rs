// SPDX-License-Identifier: GPL-2.0

//! The function: what all objects of its device share.

use ferrule_engine::abi;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex, pci, pr_warn_once,
    prelude::*,
    static_lock_class,
    sync::{
        aref::ARef,
        Arc,
        Mutex,
        UniqueArc, //
    },
};
use kernel_ext::{
    dma::DmaArea,
    time::{
        monotonic_ns,
        TimerCallback,
        WithTimer, //
    }, //
};
use rdma::{
    qp,
    Memory, //
};

use super::{
    area,
    command::{
        self,
        Channel,
        Command, //
    },
    doorbell::{
        kick_once,
        Bell, //
    },
    events::{
        self,
        Events, //
    },
    fast::List,
    interface::{
        register,
        CreateEq,
        DeviceInfo,
        Number,
        OpenContext, //
    },
    registers::Registers,
    table::Table, //
};
use crate::backend::{
    numbers::Numbers,
    ring::Doorbells, //
};

/// Where the word `dead` of a status area is.
pub(super) const DEAD: usize = core::mem::offset_of!(abi::StatusArea, dead);

/// The device of the driver model.
///
/// # Invariants
///
/// It is bound to this driver as long as somebody can reach this.
struct Parent(ARef<Device>);

/// The driver's part of a context.
pub(super) struct Context {
    pub(super) doorbells: Doorbells,
    pub(super) _mapped: [DmaArea; 2],
}

/// The driver's part of a memory region.
pub(super) enum Region {
    /// Pages of a program, pinned, and mapped for the device.
    Pinned(Memory),
    /// An area, mapped for the device, of which the region is a part.
    Area(#[allow(dead_code, reason = "it is kept, so that it stays mapped")] DmaArea),
    /// The list of one for fast registration.
    Fast(List),
}

/// Tells kernel users, outside of their calls, that there are completions to poll though the
/// function is gone.
struct Waker(Arc<Events>);

impl TimerCallback for Waker {
    fn expired(this: &WithTimer<Self>) {
        this.0.tell_armed();
    }
}

/// The function.
#[pin_data(PinnedDrop)]
pub(crate) struct Function {
    channel: Pin<KBox<Channel>>,
    pub(super) events: Arc<Events>,
    pub(super) info: DeviceInfo,
    /// The context of kernel users' queue pairs.
    pub(super) context: u32,
    /// The numbers of XRC domains, which the device leaves to the driver.
    pub(super) xrcds: Numbers,
    #[pin]
    bell: Bell,
    mapped: [DmaArea; 2],
    waker: Pin<KBox<WithTimer<Waker>>>,
    /// Held while a context or a completion queue is made or destroyed, from the command on until
    /// its table knows of that: another one may get the number of one that has just gone. Numbers
    /// of other objects have a generation.
    #[pin]
    pub(super) reused: Mutex<()>,
    #[pin]
    pub(super) contexts: Table<Context>,
    #[pin]
    pub(super) regions: Table<Region>,
    parent: Parent,
}

impl Function {
    /// Sets a function up: its events go to `events`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it does not see this machine's memory; `ENOMEM`; those of its commands.
    ///
    /// # Safety
    ///
    /// Nobody uses the result when `function` is not bound to the driver any more.
    pub(super) unsafe fn new(
        function: &pci::Device<Bound>,
        registers: Registers,
        events: Arc<Events>,
    ) -> Result<Arc<Self>> {
        let device: &Device<Bound> = function.as_ref();
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let channel = KBox::pin_init(Channel::open(function, registers)?, GFP_KERNEL)?;
        for vector in 0..events.count() {
            let list = events.list(device, vector)?;
            let operands = CreateEq {
                vector: vector.into(),
                depth: events::DEPTH.into(),
                area: list.operand(),
            };
            channel.hand_over::<command::AddEq, _>(&operands, events.clone(), list)?;
        }
        let info = channel.execute::<command::QueryDevice>(&())?;
        let doorbells = Doorbells::new()?;
        let waker = KBox::pin_init(WithTimer::new(Waker(events.clone())), GFP_KERNEL)?;
        let xrcds = Numbers::new()?;
        let (context, mapped) = open_context(&channel, device, &doorbells)?;
        // Nothing fails from here on: the function knows the memory of its context.
        let function = place.pin_init_with(pin_init!(Function {
            channel,
            events,
            info,
            context,
            xrcds,
            bell <- Bell::new(doorbells),
            mapped,
            waker,
            reused <- new_mutex!((), "Function::reused"),
            contexts <- Table::new(c"Function::contexts", static_lock_class!()),
            regions <- Table::new(c"Function::regions", static_lock_class!()),
            // INVARIANT: By the requirements of this function.
            parent: Parent(device.into()),
        }))?;
        Ok(function.into())
    }

    /// The device that maps memory for the function.
    pub(super) fn device(&self) -> &Device<Bound> {
        // SAFETY: By the type invariants of `Parent`, which is borrowed.
        unsafe { self.parent.0.as_bound() }
    }

    /// Executes a command. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Channel::execute`].
    pub(super) fn execute<C: Command>(&self, operands: &C::Operands) -> Result<C::Answer> {
        self.channel.execute::<C>(operands)
    }

    /// Executes a command that names memory. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Channel::hand_over`].
    pub(super) fn hand_over<C: Command, M>(
        &self,
        operands: &C::Operands,
        memory: M,
        list: impl Sized,
    ) -> Result<(C::Answer, M)> {
        self.channel.hand_over::<C, M>(operands, memory, list)
    }

    /// Executes a command that destroys an object, and returns whether the device may use it still.
    ///
    /// The RDMA core destroys an object only when nothing uses it, so a refusal is a fault of this
    /// driver or of the device: it is logged once.
    pub(super) fn destroy<C>(&self, number: u32) -> Destroyed
    where
        C: Command<Operands = Number, Answer = ()>,
    {
        match self.execute::<C>(&number.into()) {
            Ok(()) => Destroyed::Free,
            Err(_) if self.is_gone() => {
                if self.channel.registers.use_no_memory() {
                    Destroyed::Free
                } else {
                    Destroyed::InUse
                }
            }
            Err(error) => {
                pr_warn_once!("an object could not be destroyed: {:?}\n", error);
                Destroyed::InUse
            }
        }
    }

    /// Whether the function has been found to be gone. Any context.
    pub(super) fn is_gone(&self) -> bool {
        self.channel.registers.are_gone()
    }

    /// Looks whether the function is there, and answers that. Any context.
    pub(super) fn look(&self) -> bool {
        self.channel.registers.look()
    }

    /// Ends the work of all users of a function that is gone: from now on polling ends it, with
    /// flush errors. Any context.
    pub(super) fn fail(&self) {
        let why = if self.channel.registers.use_no_memory() {
            "it has been reset by others, or did not answer"
        } else {
            "it does not answer"
        };
        dev_err!(self.device(), "{why}: its device goes\n");
        let mut next = Some(0);
        while let Some(from) = next {
            let found = self
                .contexts
                .first_from(from, |context| context.doorbells.status.clone());
            let Some((number, status)) = found else {
                break;
            };
            // Release: a program that sees it sees the completions that were there before.
            let _ = status.store_u32_release(DEAD, abi::dead::DEAD_UNFLUSHED);
            next = number.checked_add(1);
        }
        self.events.tell_armed();
    }

    /// Tells the owner of a queue pair that it has taken its last request from a shared receive
    /// queue, if it takes them from one, as the device would when it moves to state ERR.
    pub(super) fn tell_last_wqe(&self, qpn: u32) {
        let notifier = self
            .events
            .qps
            .with(qpn, |qp| qp.has_srq.then(|| qp.notifier.clone()));
        if let Some(Some(notifier)) = notifier {
            notifier.event(qp::Event::LastWqeReached);
        }
    }

    /// Has the device serve a context that has rung while it slept. Any context.
    fn kick(&self, context: u32) {
        self.channel.registers.write(register::KICK, context);
    }

    /// The same for a context of a program, unless that has been done since the device sleeps. Any
    /// context.
    pub(super) fn kick_for(&self, number: u32) {
        self.contexts.with(number, |context| {
            kick_once(&context.doorbells.status, || self.kick(number));
        });
    }

    /// Rings a doorbell of the driver's own context. Any context.
    pub(super) fn ring(&self, doorbell: u32) {
        if self.is_gone() {
            // The user may hold locks that its handlers take.
            self.waker.arm_at(monotonic_ns());
        } else {
            // A doorbell of a queue pair is one of the area's.
            let _ = self.bell.ring(doorbell, || self.kick(self.context));
        }
    }

    /// Opens a context of a program.
    pub(super) fn open_context(&self, doorbells: &Doorbells) -> Result<(u32, [DmaArea; 2])> {
        open_context(&self.channel, self.device(), doorbells)
    }
}

#[pinned_drop]
impl PinnedDrop for Function {
    fn drop(self: Pin<&mut Self>) {
        if self.channel.registers.reset() {
            return;
        }
        // Nobody knows whether the process lives, and writes to the memory that it was given.
        let [doorbells, status] = &self.mapped;
        for area in [doorbells, status] {
            core::mem::forget(area.area().clone());
        }
        core::mem::forget(self.events.clone());
        dev_err!(
            self.device(),
            "it does not answer a reset: the memory that it was given stays in use\n"
        );
    }
}

/// The fate of an object that was to be destroyed.
#[must_use]
pub(super) enum Destroyed {
    /// The device does not use it any more.
    Free,
    /// The device may use it for ever.
    InUse,
}

impl Destroyed {
    /// Drops what belongs to the object, or leaks it.
    pub(super) fn release<T>(self, owned: T) {
        match self {
            Destroyed::Free => drop(owned),
            Destroyed::InUse => core::mem::forget(owned),
        }
    }
}

/// Opens a context, and answers its number and the areas as they are mapped for it.
fn open_context(
    channel: &Channel,
    device: &Device<Bound>,
    doorbells: &Doorbells,
) -> Result<(u32, [DmaArea; 2])> {
    let (doorbell, doorbell_list) = area::map(device, doorbells.doorbell.clone())?;
    let (status, status_list) = area::map(device, doorbells.status.clone())?;
    let operands = OpenContext {
        doorbell: doorbell_list.operand(),
        status: status_list.operand(),
    };
    let (opened, mapped) = channel.hand_over::<command::AddContext, _>(
        &operands,
        [doorbell, status],
        (doorbell_list, status_list),
    )?;
    Ok((opened.number.get(), mapped))
}
