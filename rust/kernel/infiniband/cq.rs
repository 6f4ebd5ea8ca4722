// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::ptr::NonNull;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
    new_mutex, //
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::error::code::EOPNOTSUPP;
use net_ext::Batch;

use crate::{
    bindings,
    gate::Gated,
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    wc::{
        self,
        Completions, //
    },
    workqueues,
    Device,
    Driver,
    UserCall, //
};

/// The attributes of a completion queue that is to be made: `struct ib_cq_init_attr`.
pub struct InitAttr {
    /// The least number of entries.
    pub cqe: u32,
    /// The completion vector.
    pub comp_vector: u32,
    /// `enum ib_uverbs_ex_create_cq_flags`.
    pub flags: u32,
}

/// A driver's verbs of completion queues. The value is dropped when the queue goes, after all that
/// complete to it.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Cq = Self>;

    /// Makes a completion queue. `user` is none if the kernel asks. The number of entries must be
    /// set ([`New::set_cqe`]).
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn create(
        new: &mut New<'_, Self::Driver>,
        attr: &InitAttr,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result<Self>;

    /// Gives a program's queue space for at least `cqe` entries, and says for how many. No other
    /// call resizes the queue meanwhile. `user` brings no request: a call with one is refused
    /// before.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer, which takes it that the queue is as it was. So the
    /// response comes last: only where that cannot be written has the queue been resized all the
    /// same.
    fn resize(_cq: &Cq<Self::Driver>, _cqe: u32, _user: UserCall<'_, Self::Driver>) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Sets how long events wait for more completions: until there are `count`, or `period`
    /// microseconds have passed. It may be called more than once at the same time.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn moderate(_cq: &Cq<Self::Driver>, _count: u16, _period: u16) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Takes completions for a kernel user, in order, as many as there are and as there is space
    /// for. Any context, also with interrupts off and from a handler of the user's.
    ///
    /// # Errors
    ///
    /// Any error is the user's answer.
    fn poll(_cq: &Cq<Self::Driver>, _completions: &mut Completions<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Arms the queue of a kernel user: the next completion, or the next solicited one, is an
    /// event. While the former was asked for and has not come, the latter changes nothing. Then
    /// says whether completions lie there already. Context as for [`poll`](Self::poll).
    ///
    /// # Errors
    ///
    /// Any error is the user's answer.
    fn req_notify(_cq: &Cq<Self::Driver>, _solicited: bool) -> Result<bool> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A completion queue: `struct ib_cq`.
#[repr(transparent)]
pub struct Cq<D: Driver>(pub(crate) Object<bindings::ib_cq, Arc<Notifier>, D::Cq>);

impl_object!(Cq, bindings::ib_cq, Cq);

impl<D: Driver> Cq<D> {
    /// The device of the queue.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A queue has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The number of entries.
    pub fn cqe(&self) -> u32 {
        // SAFETY: The number was set when the queue was made, and changes as a whole. It is not
        // negative.
        unsafe { (&raw const (*self.as_raw()).cqe).read_volatile() as u32 }
    }

    /// Whether it is a program's.
    pub fn is_user(&self) -> bool {
        // SAFETY: The field does not change.
        unsafe { !(*self.as_raw()).uobject.is_null() }
    }

    /// The way to the queue's owner.
    pub fn notifier(&self) -> Arc<Notifier> {
        // SAFETY: The queue is borrowed, so it is alive.
        unsafe { self.0.extra() }.clone()
    }
}

/// A completion queue that is being made.
pub struct New<'a, D: Driver>(&'a Cq<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the queue.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }

    /// Tells the number of entries that there are.
    pub fn set_cqe(&mut self, cqe: u32) {
        // SAFETY: Nobody but this call knows of the queue.
        unsafe { (*self.0.as_raw()).cqe = cqe as c_int };
    }

    /// The way to the queue's owner.
    pub fn notifier(&self) -> Arc<Notifier> {
        // SAFETY: The queue is in stage 2.
        unsafe { self.0 .0.extra() }.clone()
    }
}

/// The way from a completion queue to its owner.
///
/// It may outlive the queue: then it does nothing any more. Destroying the queue waits for calls
/// that are under way, and one that the core polls (`ib_alloc_cq()`) has no calls any more before
/// the core cancels the work or the softirq that polls it.
#[pin_data]
pub struct Notifier {
    #[pin]
    cq: Gated<bindings::ib_cq>,
    /// How often the owner was told of completions.
    told: Atomic<u32>,
    /// How many of the next events go by the work item.
    behind: Atomic<u32>,
    #[pin]
    work: Work<Notifier>,
    /// Held while the queue is resized: the core lets several calls through at a time.
    #[pin]
    resizing: Mutex<()>,
}

impl Notifier {
    /// # Safety
    ///
    /// `cq` is valid until the gate is closed.
    unsafe fn new(cq: NonNull<bindings::ib_cq>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: By the requirements of this function.
                cq <- unsafe { Gated::new(cq) },
                told: Atomic::new(0),
                behind: Atomic::new(0),
                work <- new_work!("rdma::cq::Notifier::work"),
                resizing <- new_mutex!((), "rdma::cq::Notifier::resizing"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Tells the owner that there are completions. Any context; the owner may post and poll from
    /// inside of the call.
    pub fn complete(&self) {
        // This comes before the owner's handler: if that arms the queue, it is armed anew.
        self.told.fetch_add(1, Relaxed);
        self.call_handler();
    }

    /// As [`complete`](Self::complete). But if the owner [`fell_behind`](Self::fell_behind), a work
    /// item tells it soon, on the processor that the scheduler takes. Without
    /// [`Workqueues`](crate::Workqueues) it is always told at once. Any context.
    pub fn complete_or_queue(self: &Arc<Self>) {
        let behind = self.behind.load(Relaxed);
        if behind == 0 {
            return self.complete();
        }
        // A poll may set it meanwhile. Then one event more or less goes by the work item.
        self.behind.store(behind - 1, Relaxed);
        self.told.fetch_add(1, Relaxed);
        self.cq.pass(|_| {
            // SAFETY: The completion queue has not gone, and belongs to a device.
            if let Some(queue) = unsafe { workqueues::completions() } {
                // If it is queued already, it has yet to call the handler.
                let _ = queue.enqueue(self.clone());
            }
        });
    }

    /// The owner found many completions at once: the next `events` events go by the work item. Any
    /// context.
    pub fn fell_behind(&self, events: u32) {
        // SAFETY: It is not used here.
        if unsafe { workqueues::completions() }.is_some() {
            self.behind.store(events, Relaxed);
        }
    }

    /// Calls the owner's handler, unless the queue has gone.
    fn call_handler(&self) {
        self.cq.pass(|cq| {
            // SAFETY: The queue is valid inside of the gate; its handler does not change.
            unsafe {
                if let Some(handler) = (*cq).comp_handler {
                    handler(cq, (*cq).cq_context);
                }
            }
        });
    }

    /// How often the owner was told that there are completions: counted before it is told. Any
    /// context.
    pub fn told(&self) -> u32 {
        self.told.load(Relaxed)
    }

    /// Tells the owner that the queue is broken, for example because it overran. Any context.
    pub fn error(&self) {
        self.cq.pass(|cq| {
            // SAFETY: The queue is valid inside of the gate; its handler does not change.
            unsafe {
                let mut event = bindings::ib_event {
                    device: (*cq).device,
                    event: bindings::ib_event_type_IB_EVENT_CQ_ERR,
                    ..Default::default()
                };
                *event.element.cq.as_mut() = cq;
                if let Some(handler) = (*cq).event_handler {
                    handler(&mut event, (*cq).cq_context);
                }
            }
        });
    }
}

impl_has_work! {
    impl HasWork<Self> for Notifier { self.work }
}

impl WorkItem for Notifier {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The handler of an owner that polls in a softirq raises that one. It runs when the batch
        // ends.
        let _batch = Batch::new();
        this.call_handler();
    }
}

/// `create_cq` and `create_user_cq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D` in stage 1, `attr` is valid, and `attrs` is null
/// or belongs to the call.
pub(crate) unsafe extern "C" fn create_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_cq, Arc<Notifier>, D::Cq>>();
        // SAFETY: By the requirements of this function.
        let (attr, call) = unsafe { (&*attr, Call::of_attrs(attrs)) };
        // SAFETY: The gate is closed below, before the object leaves stage 2 downwards.
        let notifier = unsafe { Notifier::new(NonNull::new(raw).ok_or(EINVAL)?) }?;
        // SAFETY: The object is in stage 1 and not known to anybody.
        unsafe { Object::begin(this, notifier) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let mut new = New::<D>(unsafe { Cq::from_raw(raw) });
        let attr = InitAttr {
            cqe: attr.cqe,
            comp_vector: attr.comp_vector,
            flags: attr.flags,
        };
        // SAFETY: `D` is the driver of the device.
        let made = D::Cq::create(&mut new, &attr, unsafe { call.user() })
            .and_then(|value| call.finish().map(|()| value));
        // SAFETY: The object is in stage 2, and `new` is not used any more. The core frees the
        // memory when it has the error.
        unsafe { Object::settle(this, made, |notifier| notifier.cq.close()) }?;
        Ok(0)
    })
}

/// `resize_user_cq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a program's queue of a device of the driver `D`, alive. `udata` belongs to the call.
pub(crate) unsafe extern "C" fn resize_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    cqe: c_uint,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (cq, call) = unsafe { (Cq::<D>::from_raw(raw), Call::new(udata)) };
        // SAFETY: `D` is the driver of the device.
        let user = unsafe { call.user() }.ok_or(EOPNOTSUPP)?;
        // Input of the program is refused before anything changes.
        call.refuse_request()?;
        let notifier = cq.notifier();
        let _resizing = notifier.resizing.lock();
        let cqe = D::Cq::resize(cq, cqe, user)?;
        // SAFETY: The queue is alive. Others that write the number are kept out by the lock, and a
        // reader meanwhile finds the one or the other.
        unsafe { (&raw mut (*raw).cqe).write_volatile(cqe as c_int) };
        call.finish()?;
        Ok(0)
    })
}

/// `modify_cq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive.
pub(crate) unsafe extern "C" fn modify_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    count: u16,
    period: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let cq = unsafe { Cq::<D>::from_raw(raw) };
        D::Cq::moderate(cq, count, period)?;
        Ok(0)
    })
}

/// `poll_cq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, and there is space for `count`
/// completions at `wc`.
pub(crate) unsafe extern "C" fn poll_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    count: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let cq = unsafe { Cq::<D>::from_raw(raw) };
        // Programs poll in memory of their own.
        if cq.is_user() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the requirements of this function.
        unsafe { wc::poll(wc, count, |completions| D::Cq::poll(cq, completions)) }
    })
}

/// `req_notify_cq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive.
pub(crate) unsafe extern "C" fn req_notify_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    from_result(|| {
        let asked = |flag| flags & flag != 0;
        // SAFETY: By the requirements of this function.
        let cq = unsafe { Cq::<D>::from_raw(raw) };
        if cq.is_user() {
            return Err(EOPNOTSUPP);
        }
        let solicited = !asked(bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP);
        let missed = D::Cq::req_notify(cq, solicited)?;
        let report = asked(bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS);
        Ok(c_int::from(report && missed))
    })
}

/// `pre_destroy_cq` of `struct ib_device_ops`: the core is about to free a queue that it polls
/// (`ib_free_cq()`). An event after it has cancelled its poll would begin another one, of a queue
/// that is freed then.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, and this is called once for it. Process
/// context.
pub(crate) unsafe extern "C" fn pre_destroy_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(raw) };
    cq.notifier().cq.close();
    0
}

/// `post_destroy_cq` of `struct ib_device_ops`, which follows [`pre_destroy_callback`].
///
/// # Safety
///
/// As for [`destroy_callback`], and [`pre_destroy_callback`] has been called for the queue.
pub(crate) unsafe extern "C" fn post_destroy_callback<D: Driver>(raw: *mut bindings::ib_cq) {
    let this = raw.cast::<Cq<D>>();
    // SAFETY: By the requirements of this function. `Cq` is transparent over `Object`, and the gate
    // has been closed.
    unsafe { Object::dismiss(&raw mut (*this).0, |_| ()) };
}

/// `destroy_cq` of `struct ib_device_ops`, for queues that the core does not poll, or not yet.
/// It takes [any request](crate::udata::no_udata).
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn destroy_callback<D: Driver>(
    raw: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    let this = raw.cast::<Cq<D>>();
    // SAFETY: By the requirements of this function. `Cq` is transparent over `Object`.
    unsafe { Object::dismiss(&raw mut (*this).0, |notifier| notifier.cq.close()) };
    0
}
