// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use core::ptr::NonNull;

use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::{
    bindings,
    gate::Gated,
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    wr::{
        self,
        RecvRequests, //
    },
    xrcd::Operations as _,
    Cq,
    Device,
    Driver,
    Pd,
    UserCall,
    Xrcd, //
};

/// The sizes and the limit of a queue: `struct ib_srq_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attr {
    /// Requests.
    pub max_wr: u32,
    /// Scatter/gather entries of a request.
    pub max_sge: u32,
    /// With fewer requests than this, the owner is told, once; 0: never.
    pub limit: u32,
}

/// The changes that [`Operations::modify`] is to make: none is unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModifyAttr {
    /// `IB_SRQ_MAX_WR`: requests that it is to hold.
    pub max_wr: Option<u32>,
    /// `IB_SRQ_LIMIT`.
    pub limit: Option<u32>,
}

/// A driver's verbs of shared receive queues. The value is dropped when the queue goes, after all
/// queue pairs that take from it.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Srq = Self>;

    /// Whether there are any. See [`Unsupported`](crate::Unsupported).
    const SUPPORTED: bool = true;

    /// Makes a queue that holds at least what `attr` says; the limit has no meaning yet. `user` is
    /// none if the kernel asks. The sizes must be set ([`New::set_sizes`]).
    ///
    /// Only basic queues are asked for, and those of XRC ([`New::xrc`]) if the driver has XRC
    /// domains; none with tag matching.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn create(
        new: &mut New<'_, Self::Driver>,
        attr: &Attr,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result<Self>;

    /// Changes size or limit. It may be called more than once at the same time. `user` is none if
    /// the kernel asks. A program has a request if the size changes, and no response.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer, and nothing has changed.
    fn modify(
        srq: &Srq<Self::Driver>,
        attr: &ModifyAttr,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result;

    /// Tells the sizes and the limit.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn query(srq: &Srq<Self::Driver>) -> Result<Attr>;

    /// Posts receive requests of a kernel user. As
    /// [`post_recv`](crate::qp::Operations::post_recv) of queue pairs.
    ///
    /// # Errors
    ///
    /// Any error is the user's answer. The request that was taken from the list last was not posted
    /// then, and those before it were.
    fn post_recv(srq: &Srq<Self::Driver>, requests: &mut RecvRequests<'_>) -> Result;
}

/// A shared receive queue: `struct ib_srq`.
#[repr(transparent)]
pub struct Srq<D: Driver>(pub(crate) Object<bindings::ib_srq, Arc<Notifier>, D::Srq>);

impl_object!(Srq, bindings::ib_srq, Srq);

impl<D: Driver> Srq<D> {
    /// The device of the queue.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A queue has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The protection domain of the queue.
    #[inline]
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: A queue has a domain, which does not change and outlives it.
        unsafe { Pd::from_raw((*self.as_raw()).pd) }
    }

    /// Whether it is a program's.
    pub fn is_user(&self) -> bool {
        // SAFETY: The field does not change.
        unsafe { !(*self.as_raw()).uobject.is_null() }
    }
}

/// The parts that a queue of XRC has beside those of a basic one.
pub struct Xrc<'a, D: Driver> {
    /// The domain.
    pub domain: &'a Xrcd<D>,
    /// The completion queue of its requests.
    pub cq: &'a Cq<D>,
}

/// A queue that is being made.
pub struct New<'a, D: Driver> {
    srq: &'a Srq<D>,
    attr: &'a mut bindings::ib_srq_attr,
}

impl<D: Driver> New<'_, D> {
    /// The device of the queue.
    pub fn device(&self) -> &Device<D> {
        self.srq.device()
    }

    /// The protection domain of the queue.
    pub fn pd(&self) -> &Pd<D> {
        self.srq.pd()
    }

    /// Its domain and completion queue, if it is one of XRC. Its number must be set then
    /// ([`New::set_number`]).
    pub fn xrc(&self) -> Option<Xrc<'_, D>> {
        let raw = self.srq.as_raw();
        // SAFETY: The type does not change. A queue of XRC has both objects, which are the device's
        // and outlive it.
        unsafe {
            ((*raw).srq_type == bindings::ib_srq_type_IB_SRQT_XRC).then(|| Xrc {
                domain: Xrcd::from_raw((*raw).ext.__bindgen_anon_1.xrc.as_ref().xrcd),
                cq: Cq::from_raw((*raw).ext.cq),
            })
        }
    }

    /// Sets the number of a queue of XRC, 24 bits, by which peers name it.
    pub fn set_number(&mut self, number: u32) {
        // SAFETY: Nobody but this call knows of the queue, and no type of queue has another member
        // there.
        unsafe {
            (*self.srq.as_raw())
                .ext
                .__bindgen_anon_1
                .xrc
                .as_mut()
                .srq_num = number
        };
    }

    /// Tells the sizes that there are.
    pub fn set_sizes(&mut self, max_wr: u32, max_sge: u32) {
        self.attr.max_wr = max_wr;
        self.attr.max_sge = max_sge;
    }

    /// The way to the queue's owner.
    pub fn notifier(&self) -> Arc<Notifier> {
        // SAFETY: The queue is in stage 2.
        unsafe { self.srq.0.extra() }.clone()
    }
}

/// Events of a shared receive queue: `enum ib_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is broken.
    Error,
    /// It has fewer requests than the limit.
    LimitReached,
}

impl Event {
    /// The event of a number of `enum ib_event_type`, as devices tell them.
    pub fn from_number(number: u32) -> Option<Self> {
        [Event::Error, Event::LimitReached]
            .into_iter()
            .find(|event| event.to_raw() == number)
    }

    fn to_raw(self) -> bindings::ib_event_type {
        match self {
            Event::Error => bindings::ib_event_type_IB_EVENT_SRQ_ERR,
            Event::LimitReached => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
        }
    }
}

/// The way from a shared receive queue to its owner.
///
/// It may outlive the queue: then it does nothing any more. Destroying the queue waits for calls
/// that are under way.
#[pin_data]
pub struct Notifier {
    #[pin]
    srq: Gated<bindings::ib_srq>,
}

impl Notifier {
    /// # Safety
    ///
    /// `srq` is valid until the gate is closed.
    unsafe fn new(srq: NonNull<bindings::ib_srq>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: By the requirements of this function.
                srq <- unsafe { Gated::new(srq) },
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Tells the owner of an event. Any context.
    pub fn event(&self, event: Event) {
        self.srq.pass(|srq| {
            // SAFETY: The queue is valid inside of the gate; its handler does not change.
            unsafe {
                let mut raw = bindings::ib_event {
                    device: (*srq).device,
                    event: event.to_raw(),
                    ..Default::default()
                };
                *raw.element.srq.as_mut() = srq;
                if let Some(handler) = (*srq).event_handler {
                    handler(&mut raw, (*srq).srq_context);
                }
            }
        });
    }
}

/// `create_srq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D` in stage 1, `attr` is valid, and `udata` is null
/// or belongs to the call.
pub(crate) unsafe extern "C" fn create_callback<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_srq, Arc<Notifier>, D::Srq>>();
        // SAFETY: By the requirements of this function.
        let (attr, call) = unsafe { (&mut *attr, Call::new(udata)) };
        match attr.srq_type {
            bindings::ib_srq_type_IB_SRQT_BASIC => (),
            bindings::ib_srq_type_IB_SRQT_XRC if D::Xrcd::SUPPORTED => (),
            _ => return Err(EOPNOTSUPP),
        }
        let asked = Attr {
            max_wr: attr.attr.max_wr,
            max_sge: attr.attr.max_sge,
            limit: attr.attr.srq_limit,
        };

        // SAFETY: The gate is closed below, before the object leaves stage 2 downwards.
        let notifier = unsafe { Notifier::new(NonNull::new(raw).ok_or(EINVAL)?) }?;
        // SAFETY: The object is in stage 1 and not known to anybody.
        unsafe { Object::begin(this, notifier) };

        let mut new = New::<D> {
            // SAFETY: The object is in stage 2, which is all that `New` uses.
            srq: unsafe { Srq::from_raw(raw) },
            attr: &mut attr.attr,
        };
        // SAFETY: `D` is the driver of the device.
        let made = D::Srq::create(&mut new, &asked, unsafe { call.user() })
            .and_then(|value| call.finish().map(|()| value));
        // SAFETY: The object is in stage 2, and `new` is not used any more. The core frees the
        // memory when it has the error.
        unsafe { Object::settle(this, made, |notifier| notifier.srq.close()) }?;
        Ok(0)
    })
}

/// `modify_srq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, `attr` is valid, and `udata` is null or
/// belongs to the call.
pub(crate) unsafe extern "C" fn modify_callback<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut bindings::ib_udata,
) -> c_int {
    const MAX_WR: bindings::ib_srq_attr_mask = bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR;
    const LIMIT: bindings::ib_srq_attr_mask = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;

    from_result(|| {
        // SAFETY: By the requirements of this function.
        let call = unsafe { Call::new(udata) };
        // Otherwise the driver has nothing to read, and must not change anything for a request that
        // is refused.
        if mask & MAX_WR == 0 {
            call.refuse_request()?;
        }
        // SAFETY: By the requirements of this function.
        let (srq, attr) = unsafe { (Srq::<D>::from_raw(raw), &*attr) };
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(EINVAL);
        }
        D::Srq::modify(
            srq,
            &ModifyAttr {
                max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
                limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
            },
            // SAFETY: `D` is the driver of the device.
            unsafe { call.user() },
        )?;
        call.finish()?;
        Ok(0)
    })
}

/// `query_srq` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, and `attr` is valid.
pub(crate) unsafe extern "C" fn query_callback<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (srq, attr) = unsafe { (Srq::<D>::from_raw(raw), &mut *attr) };
        let found = D::Srq::query(srq)?;
        attr.max_wr = found.max_wr;
        attr.max_sge = found.max_sge;
        attr.srq_limit = found.limit;
        Ok(0)
    })
}

/// `post_srq_recv` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive. `first` is a valid list of requests, and
/// `bad` may be written to.
pub(crate) unsafe extern "C" fn post_recv_callback<D: Driver>(
    raw: *mut bindings::ib_srq,
    first: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let srq = unsafe { Srq::<D>::from_raw(raw) };
        // SAFETY: By the requirements of this function.
        unsafe {
            wr::post_recv(first, bad, srq.is_user(), |requests| {
                D::Srq::post_recv(srq, requests)
            })
        }?;
        Ok(0)
    })
}

/// `destroy_srq` of `struct ib_device_ops`. It takes [any request](crate::udata::no_udata).
///
/// # Safety
///
/// `raw` is a queue of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn destroy_callback<D: Driver>(
    raw: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    let this = raw.cast::<Srq<D>>();
    // SAFETY: By the requirements of this function. `Srq` is transparent over `Object`.
    unsafe { Object::dismiss(&raw mut (*this).0, |notifier| notifier.srq.close()) };
    0
}
