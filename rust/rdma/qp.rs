// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use core::ptr::NonNull;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
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
    udata::{
        no_udata,
        Call, //
    },
    work::{
        self,
        RecvRequests,
        SendRequests, //
    },
    Cq,
    Device,
    Driver,
    Gid,
    Pd,
    Srq,
    UserCall, //
};

mod attr;

pub use attr::{
    modify_is_ok,
    AttrMask,
    Cap,
    MigState,
    ModifyAttr,
    QueryAttr,
    State,
    Type, //
};

/// What is asked for when a queue pair is made: `struct ib_qp_init_attr`.
#[derive(Clone, Copy)]
pub struct InitAttr {
    /// The least sizes.
    pub cap: Cap,
    /// The transport service.
    pub qp_type: Type,
    /// Whether all send requests complete with an entry.
    pub sq_sig_all: bool,
    /// `enum ib_qp_create_flags`.
    pub create_flags: u32,
    /// The port, for types that belong to one from the start.
    pub port_num: u8,
}

/// What a driver does with queue pairs. The value is dropped when the pair goes.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Qp = Self>;

    /// Makes a queue pair. `user` is none if the kernel asks. The number and the sizes must be set
    /// ([`New::set_qp_num`], [`New::set_cap`]).
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn create(
        new: &mut New<'_, Self::Driver>,
        attr: &InitAttr,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result<Self>;

    /// Changes attributes. It may be called more than once at the same time. What is in range for
    /// the type of each attribute was checked, but not whether the change is allowed
    /// ([`modify_is_ok`]). `user` is none if the kernel asks; it has sent nothing along.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer, and nothing has changed.
    fn modify(
        qp: &Qp<Self::Driver>,
        attr: &ModifyAttr<'_>,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result;

    /// Tells the attributes.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn query(qp: &Qp<Self::Driver>, attr: &mut QueryAttr) -> Result;

    /// Posts send requests of a kernel user. Any context, also with interrupts off and with locks of
    /// the user's held: nothing may be waited for, and no handler of the user's be called.
    ///
    /// # Errors
    ///
    /// Any error is the user's answer. The request that was taken from the list last was not posted
    /// then, and those before it were.
    fn post_send(_qp: &Qp<Self::Driver>, _requests: &mut SendRequests<'_, Self::Driver>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts receive requests of a kernel user. As [`post_send`](Self::post_send).
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send).
    fn post_recv(_qp: &Qp<Self::Driver>, _requests: &mut RecvRequests<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Attaches a datagram pair to a multicast group. The core has checked the type of the pair and
    /// that the GID is a group's, and lets no program attach a pair twice.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn attach_mcast(_qp: &Qp<Self::Driver>, _group: &Gid) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Detaches a pair from a multicast group. A pair that is attached is not destroyed.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer, and the pair stays attached.
    fn detach_mcast(_qp: &Qp<Self::Driver>, _group: &Gid) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What this crate keeps for a queue pair.
pub(crate) struct Extra {
    notifier: Arc<Notifier>,
    sq_sig_all: bool,
}

/// A queue pair: `struct ib_qp`.
#[repr(transparent)]
pub struct Qp<D: Driver>(pub(crate) Object<bindings::ib_qp, Extra, D::Qp>);

impl_object!(Qp, bindings::ib_qp, Qp);

impl<D: Driver> Qp<D> {
    /// The device of the pair.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A pair has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The protection domain, which all types have but targets of XRC.
    pub fn pd(&self) -> Option<&Pd<D>> {
        // SAFETY: The domain does not change and outlives the pair.
        unsafe {
            let pd = (*self.as_raw()).pd;
            (!pd.is_null()).then(|| Pd::from_raw(pd))
        }
    }

    /// The completion queue of the send queue.
    pub fn send_cq(&self) -> Option<&Cq<D>> {
        // SAFETY: The completion queue does not change and outlives the pair.
        unsafe {
            let cq = (*self.as_raw()).send_cq;
            (!cq.is_null()).then(|| Cq::from_raw(cq))
        }
    }

    /// The completion queue of the receive queue.
    pub fn recv_cq(&self) -> Option<&Cq<D>> {
        // SAFETY: The completion queue does not change and outlives the pair.
        unsafe {
            let cq = (*self.as_raw()).recv_cq;
            (!cq.is_null()).then(|| Cq::from_raw(cq))
        }
    }

    /// The shared receive queue.
    pub fn srq(&self) -> Option<&Srq<D>> {
        // SAFETY: The shared receive queue does not change and outlives the pair.
        unsafe {
            let srq = (*self.as_raw()).srq;
            (!srq.is_null()).then(|| Srq::from_raw(srq))
        }
    }

    /// The number.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: The number was set when the pair was made.
        unsafe { (*self.as_raw()).qp_num }
    }

    /// The transport service.
    pub fn qp_type(&self) -> Type {
        // SAFETY: The type does not change.
        Type::from_raw(unsafe { (*self.as_raw()).qp_type }).unwrap_or(Type::Driver)
    }

    /// Whether it is a program's.
    pub fn is_user(&self) -> bool {
        // SAFETY: The field does not change.
        unsafe { !(*self.as_raw()).uobject.is_null() }
    }

    /// The way to the pair's owner.
    pub fn notifier(&self) -> Arc<Notifier> {
        // SAFETY: The pair is borrowed, so it is alive.
        unsafe { self.0.extra() }.notifier.clone()
    }
}

/// A queue pair that is being made.
pub struct New<'a, D: Driver> {
    qp: &'a Qp<D>,
    cap: &'a mut bindings::ib_qp_cap,
}

impl<D: Driver> New<'_, D> {
    /// The device of the pair.
    pub fn device(&self) -> &Device<D> {
        self.qp.device()
    }

    /// The protection domain, which all types have but targets of XRC.
    pub fn pd(&self) -> Option<&Pd<D>> {
        self.qp.pd()
    }

    /// The completion queue of the send queue.
    pub fn send_cq(&self) -> Option<&Cq<D>> {
        self.qp.send_cq()
    }

    /// The completion queue of the receive queue.
    pub fn recv_cq(&self) -> Option<&Cq<D>> {
        self.qp.recv_cq()
    }

    /// The shared receive queue.
    pub fn srq(&self) -> Option<&Srq<D>> {
        self.qp.srq()
    }

    /// Sets the number.
    pub fn set_qp_num(&mut self, qp_num: u32) {
        // SAFETY: Nobody but this call knows of the pair.
        unsafe { (*self.qp.as_raw()).qp_num = qp_num };
    }

    /// Tells the sizes that there are.
    pub fn set_cap(&mut self, cap: Cap) {
        cap.write_to(self.cap);
    }

    /// The way to the pair's owner.
    pub fn notifier(&self) -> Arc<Notifier> {
        // SAFETY: The pair is in stage 2.
        unsafe { self.qp.0.extra() }.notifier.clone()
    }
}

/// What happens to a queue pair without being a completion: `enum ib_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is broken.
    Fatal,
    /// A peer asked for what is not possible.
    RequestError,
    /// A peer asked for what is not allowed.
    AccessError,
    /// The first packet arrived before it was told that it may send.
    CommEstablished,
    /// All send requests from before it was told to drain are done.
    SqDrained,
    /// The last request of the shared receive queue is done.
    LastWqeReached,
}

impl Event {
    fn to_raw(self) -> bindings::ib_event_type {
        match self {
            Event::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Event::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Event::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Event::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            Event::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            Event::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        }
    }
}

/// The way from a queue pair to its owner.
///
/// It may outlive the pair: then it does nothing any more. Destroying the pair waits for calls that
/// are under way.
#[pin_data]
pub struct Notifier {
    #[pin]
    qp: Gated<bindings::ib_qp>,
}

impl Notifier {
    /// # Safety
    ///
    /// `qp` is valid until the gate is closed.
    unsafe fn new(qp: NonNull<bindings::ib_qp>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: By the requirements of this function.
                qp <- unsafe { Gated::new(qp) },
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Lends the pair to `visit`, unless it has gone. Any context.
    pub(crate) fn with_raw(&self, visit: impl FnOnce(*mut bindings::ib_qp)) {
        self.qp.pass(visit);
    }

    /// Tells the owner of an event. Any context.
    pub fn event(&self, event: Event) {
        self.qp.pass(|qp| {
            // SAFETY: The pair is valid inside of the gate; its handler does not change.
            unsafe {
                let mut raw = bindings::ib_event {
                    device: (*qp).device,
                    event: event.to_raw(),
                    ..Default::default()
                };
                *raw.element.qp.as_mut() = qp;
                if let Some(handler) = (*qp).event_handler {
                    handler(&mut raw, (*qp).qp_context);
                }
            }
        });
    }
}

/// `create_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D` in stage 1, `attr` is valid, and `udata` is null or
/// belongs to the call.
pub(crate) unsafe extern "C" fn create_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_qp, Extra, D::Qp>>();
        // SAFETY: By the requirements of this function.
        let (attr, call) = unsafe { (&mut *attr, Call::new(udata)) };
        let init = InitAttr {
            cap: Cap::from_raw(&attr.cap),
            qp_type: Type::from_raw(attr.qp_type).ok_or(EOPNOTSUPP)?,
            sq_sig_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            create_flags: attr.create_flags,
            port_num: attr.port_num as u8,
        };
        if !attr.rwq_ind_tbl.is_null() {
            return Err(EOPNOTSUPP);
        }

        // SAFETY: The gate is closed below, before the object leaves stage 2 downwards.
        let notifier = unsafe { Notifier::new(NonNull::new(raw).ok_or(EINVAL)?) }?;
        let extra = Extra {
            notifier,
            sq_sig_all: init.sq_sig_all,
        };
        // SAFETY: The object is in stage 1 and not known to anybody.
        unsafe { Object::begin(this, extra) };

        let mut new = New::<D> {
            // SAFETY: The object is in stage 2, which is all that `New` uses.
            qp: unsafe { Qp::from_raw(raw) },
            cap: &mut attr.cap,
        };
        // SAFETY: `D` is the driver of the device.
        let made = D::Qp::create(&mut new, &init, unsafe { call.user() })
            .and_then(|value| call.finish().map(|()| value));
        // SAFETY: The object is in stage 2, and `new` is not used any more. The core frees the memory
        // when it has the error.
        unsafe { Object::settle(this, made, |extra| extra.notifier.qp.close()) }?;
        Ok(0)
    })
}

/// `modify_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, `attr` is valid, and `udata` is null or
/// belongs to the call.
pub(crate) unsafe extern "C" fn modify_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // The driver has nothing to read, and must not change anything for a request that is refused.
        // SAFETY: By the requirements of this function.
        unsafe { no_udata(udata) }?;
        // SAFETY: By the requirements of this function.
        let (qp, attr) = unsafe { (Qp::<D>::from_raw(raw), &*attr) };
        // SAFETY: The core holds a reference to the entry of the address vector during the call.
        let attr = unsafe { ModifyAttr::from_raw(attr, AttrMask::from_bits(mask as u32)) }?;
        // SAFETY: By the requirements of this function.
        let call = unsafe { Call::new(udata) };
        // SAFETY: `D` is the driver of the device.
        D::Qp::modify(qp, &attr, unsafe { call.user() })?;
        Ok(0)
    })
}

/// `query_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, and `attr` and `init` may be written to.
pub(crate) unsafe extern "C" fn query_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let qp = unsafe { Qp::<D>::from_raw(raw) };
        let mut out = QueryAttr::default();
        D::Qp::query(qp, &mut out)?;

        // SAFETY: By the requirements of this function. What is written over need not be initialised.
        let (attr, init) = unsafe {
            attr.write(Default::default());
            init.write(Default::default());
            (&mut *attr, &mut *init)
        };
        out.write_to(attr);
        out.cap.write_to(&mut init.cap);
        // SAFETY: The pair is alive, and these fields do not change.
        unsafe {
            init.event_handler = (*raw).registered_event_handler;
            init.qp_context = (*raw).qp_context;
            init.send_cq = (*raw).send_cq;
            init.recv_cq = (*raw).recv_cq;
            init.srq = (*raw).srq;
            init.xrcd = (*raw).xrcd;
            init.qp_type = (*raw).qp_type;
            init.sq_sig_type = if qp.0.extra().sq_sig_all {
                bindings::ib_sig_type_IB_SIGNAL_ALL_WR
            } else {
                bindings::ib_sig_type_IB_SIGNAL_REQ_WR
            };
        }
        Ok(0)
    })
}

/// `post_send` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, `first` is a valid list of requests for a
/// pair of its type, and `bad` may be written to.
pub(crate) unsafe extern "C" fn post_send_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    first: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let qp = unsafe { Qp::<D>::from_raw(raw) };
        let is_datagram = matches!(qp.qp_type(), Type::Smi | Type::Gsi | Type::Ud);
        // SAFETY: By the requirements of this function.
        unsafe {
            work::post_send(first, bad, qp.is_user(), is_datagram, |requests| {
                D::Qp::post_send(qp, requests)
            })
        }?;
        Ok(0)
    })
}

/// `post_recv` of `struct ib_device_ops`.
///
/// # Safety
///
/// As for [`post_send_callback`].
pub(crate) unsafe extern "C" fn post_recv_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    first: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let qp = unsafe { Qp::<D>::from_raw(raw) };
        // SAFETY: By the requirements of this function.
        unsafe {
            work::post_recv(first, bad, qp.is_user(), |requests| {
                D::Qp::post_recv(qp, requests)
            })
        }?;
        Ok(0)
    })
}

/// `attach_mcast` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, and `gid` is valid.
pub(crate) unsafe extern "C" fn attach_mcast_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (qp, gid) = unsafe { (Qp::from_raw(raw), Gid::from_raw(&*gid)) };
        D::Qp::attach_mcast(qp, &gid)?;
        Ok(0)
    })
}

/// `detach_mcast` of `struct ib_device_ops`.
///
/// # Safety
///
/// As for [`attach_mcast_callback`].
pub(crate) unsafe extern "C" fn detach_mcast_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (qp, gid) = unsafe { (Qp::from_raw(raw), Gid::from_raw(&*gid)) };
        D::Qp::detach_mcast(qp, &gid)?;
        Ok(0)
    })
}

/// `destroy_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, and nobody uses it any more. `udata` is null
/// or belongs to the call.
pub(crate) unsafe extern "C" fn destroy_callback<D: Driver>(
    raw: *mut bindings::ib_qp,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe { no_udata(udata) }?;
        let this = raw.cast::<Qp<D>>();
        // SAFETY: By the requirements of this function. `Qp` is transparent over `Object`.
        unsafe { Object::dismiss(&raw mut (*this).0, |extra| extra.notifier.qp.close()) };
        Ok(0)
    })
}
