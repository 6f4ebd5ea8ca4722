// SPDX-License-Identifier: GPL-2.0

//! The operations on queue pairs in `struct ib_device_ops`, by those of a driver.

use core::ptr::NonNull;

use kernel::{
    error::from_result,
    prelude::*, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use super::{
    attr::{
        AttrMask,
        Cap,
        ModifyAttr,
        QueryAttr,
        Type, //
    },
    notifier::Notifier,
    Extra,
    InitAttr,
    New,
    Operations,
    Qp, //
};
use crate::{
    bindings,
    object::Object,
    udata::{
        no_udata,
        Call, //
    },
    wr,
    Driver,
    Gid,
    Xrcd, //
};

/// `create_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D` in stage 1, `attr` is valid, and `udata` is null
/// or belongs to the call.
pub(crate) unsafe extern "C" fn create<D: Driver>(
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
            xrcd: (!attr.xrcd.is_null()).then(|| {
                // SAFETY: A domain that is named is one of the device, alive, and outlives the
                // pair.
                unsafe { Xrcd::from_raw(attr.xrcd) }
            }),
            cap: &mut attr.cap,
        };
        // SAFETY: `D` is the driver of the device.
        let made = D::Qp::create(&mut new, &init, unsafe { call.user() })
            .and_then(|value| call.finish().map(|()| value));
        // SAFETY: The object is in stage 2, and `new` is not used any more. The core frees the
        // memory when it has the error.
        unsafe { Object::settle(this, made, |extra| extra.notifier.close()) }?;
        Ok(0)
    })
}

/// `modify_qp` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, `attr` is valid, and `udata` is null or
/// belongs to the call.
pub(crate) unsafe extern "C" fn modify<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // The driver has nothing to read, and must not change anything for a request that is
        // refused.
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
pub(crate) unsafe extern "C" fn query<D: Driver>(
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

        // SAFETY: By the requirements of this function. Memory that is written over need not be
        // initialised.
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

/// Whether programs post to a pair. A target of XRC has no user object, since the core shares it
/// among those that open it.
fn is_programs<D: Driver>(qp: &Qp<D>) -> bool {
    qp.is_user() || qp.qp_type() == Type::XrcTgt
}

/// `post_send` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, `first` is a valid list of requests for a
/// pair of its type, and `bad` may be written to.
pub(crate) unsafe extern "C" fn post_send<D: Driver>(
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
            wr::post_send(first, bad, is_programs(qp), is_datagram, |requests| {
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
/// As for [`post_send`].
pub(crate) unsafe extern "C" fn post_recv<D: Driver>(
    raw: *mut bindings::ib_qp,
    first: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let qp = unsafe { Qp::<D>::from_raw(raw) };
        // SAFETY: By the requirements of this function.
        unsafe {
            wr::post_recv(first, bad, is_programs(qp), |requests| {
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
pub(crate) unsafe extern "C" fn attach_mcast<D: Driver>(
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
/// As for [`attach_mcast`].
pub(crate) unsafe extern "C" fn detach_mcast<D: Driver>(
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

/// `destroy_qp` of `struct ib_device_ops`. It takes [any request](no_udata).
///
/// # Safety
///
/// `raw` is a pair of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn destroy<D: Driver>(
    raw: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    let this = raw.cast::<Qp<D>>();
    // SAFETY: By the requirements of this function. `Qp` is transparent over `Object`.
    unsafe { Object::dismiss(&raw mut (*this).0, |extra| extra.notifier.close()) };
    0
}
