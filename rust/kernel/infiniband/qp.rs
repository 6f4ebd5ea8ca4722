// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    prelude::*,
    sync::Arc, //
};

use crate::{
    bindings,
    object::{
        impl_object,
        Object, //
    },
    wr::{
        RecvRequests,
        SendRequests, //
    },
    Cq,
    Device,
    Driver,
    Gid,
    Pd,
    Srq,
    UserCall,
    Xrcd, //
};

mod attr;
pub(crate) mod callbacks;
mod notifier;

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
pub use notifier::{
    Event,
    Notifier, //
};

/// The attributes of a queue pair that is to be made: `struct ib_qp_init_attr`.
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

/// A driver's verbs of queue pairs. The value is dropped when the pair goes.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Qp = Self>;

    /// Makes a queue pair. `user` is none if the kernel asks, which it does for targets of XRC,
    /// too: they belong to all programs that open them. The number and the sizes must be set
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

    /// Changes attributes. It may be called more than once at the same time. The range of each
    /// attribute was checked, but not whether the change is allowed ([`modify_is_ok`]). `user` is
    /// none if the kernel asks; it has sent nothing along.
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

    /// Posts send requests of a kernel user. Any context, also with interrupts off and with locks
    /// of the user's held: nothing may be waited for, and no handler of the user's be called.
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

/// This crate's part of a queue pair.
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
    xrcd: Option<&'a Xrcd<D>>,
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

    /// The XRC domain, which targets of XRC have.
    pub fn xrcd(&self) -> Option<&Xrcd<D>> {
        self.xrcd
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
