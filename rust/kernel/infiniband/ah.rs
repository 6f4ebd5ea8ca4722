// SPDX-License-Identifier: GPL-2.0

//! Address handles, and the address vectors that they stand for.

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::{
    bindings,
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    Device,
    Driver,
    Gid,
    GidAttr,
    Pd,
    UserCall, //
};

/// An address vector: `struct rdma_ah_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AhAttr {
    /// The GID of the receiver.
    pub dgid: Gid,
    /// The place of the sender's GID in the port's table.
    pub sgid_index: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The hop limit.
    pub hop_limit: u8,
    /// The traffic class.
    pub traffic_class: u8,
    /// Whether there is a global route at all; without, the fields above say nothing.
    pub grh: bool,
    /// The service level.
    pub sl: u8,
    /// The rate not to be exceeded: `enum ib_rate`.
    pub static_rate: u8,
    /// The port to send from.
    pub port_num: u8,
    /// The Ethernet address to send to.
    pub dmac: [u8; 6],
}

impl AhAttr {
    pub(crate) fn from_raw(raw: &bindings::rdma_ah_attr) -> Self {
        let dmac = if raw.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
            // SAFETY: The type says which of the union's fields is there.
            unsafe { raw.__bindgen_anon_1.roce.as_ref().dmac }
        } else {
            [0; 6]
        };
        AhAttr {
            dgid: Gid::from_raw(&raw.grh.dgid),
            sgid_index: raw.grh.sgid_index,
            flow_label: raw.grh.flow_label,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            grh: u32::from(raw.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0,
            sl: raw.sl,
            static_rate: raw.static_rate,
            // A port's number is at most 255 in the tables that it comes from.
            port_num: raw.port_num as u8,
            dmac,
        }
    }

    /// Copies this to where the core reads it, all but the reference to the sender's GID.
    pub(crate) fn write_to(&self, raw: &mut bindings::rdma_ah_attr) {
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        raw.grh.dgid = self.dgid.to_raw();
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.ah_flags = if self.grh {
            bindings::ib_ah_flags_IB_AH_GRH as u8
        } else {
            0
        };
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port_num.into();
        // SAFETY: The type that was just set says that this field of the union is there.
        unsafe { raw.__bindgen_anon_1.roce.as_mut().dmac = self.dmac };
    }
}

/// The attributes of an address handle that is to be made.
pub struct InitAttr<'a> {
    /// The address vector.
    pub av: AhAttr,
    /// The sender's GID.
    pub sgid_attr: Option<&'a GidAttr>,
    /// Whether the verb may sleep. If not, a kernel user asks in atomic context, and the handle may
    /// be destroyed in atomic context, too.
    pub sleepable: bool,
}

/// A driver's verbs of address handles. The value is dropped when the handle goes.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Ah = Self>;

    /// Whether there are any. See [`Unsupported`](crate::Unsupported).
    const SUPPORTED: bool = true;

    /// Makes an address handle. `user` is none if the kernel asks.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn create(
        new: &New<'_, Self::Driver>,
        attr: &InitAttr<'_>,
        user: Option<UserCall<'_, Self::Driver>>,
    ) -> Result<Self>;

    /// Tells the address vector.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn query(ah: &Ah<Self::Driver>) -> Result<AhAttr>;
}

/// An address handle: `struct ib_ah`.
#[repr(transparent)]
pub struct Ah<D: Driver>(pub(crate) Object<bindings::ib_ah, (), D::Ah>);

impl_object!(Ah, bindings::ib_ah, Ah);

impl<D: Driver> Ah<D> {
    /// The device of the handle.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A handle has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The protection domain of the handle.
    #[inline]
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: A handle has a domain, which does not change and outlives it.
        unsafe { Pd::from_raw((*self.as_raw()).pd) }
    }
}

/// An address handle that is being made.
pub struct New<'a, D: Driver>(&'a Ah<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the handle.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }

    /// The protection domain of the handle.
    pub fn pd(&self) -> &Pd<D> {
        self.0.pd()
    }
}

/// `create_ah` and `create_user_ah` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a handle of a device of the driver `D` in stage 1, `attr` is valid, and `udata` is null
/// or belongs to the call.
pub(crate) unsafe extern "C" fn create_callback<D: Driver>(
    raw: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Object<bindings::ib_ah, (), D::Ah>>();
        // SAFETY: By the requirements of this function.
        let (attr, call) = unsafe { (&*attr, Call::new(udata)) };
        // SAFETY: By the requirements of this function.
        let av = unsafe { &*attr.ah_attr };
        let sgid_attr = (!av.grh.sgid_attr.is_null()).then(|| {
            // SAFETY: The core holds a reference to the entry during the call.
            unsafe { GidAttr::from_raw(av.grh.sgid_attr) }
        });
        // SAFETY: The object is in stage 1 and not known to anybody. There is nothing to be dropped
        // in stage 2, so errors need not end it.
        unsafe { Object::begin(this, ()) };

        // SAFETY: The object is in stage 2, which is all that `New` uses.
        let new = New::<D>(unsafe { Ah::from_raw(raw) });
        let attr = InitAttr {
            av: AhAttr::from_raw(av),
            sgid_attr,
            sleepable: attr.flags & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0,
        };
        // SAFETY: `D` is the driver of the device.
        let value = D::Ah::create(&new, &attr, unsafe { call.user() })?;
        call.finish()?;
        // SAFETY: The object is in stage 2, and `new` is not used any more.
        unsafe { Object::complete(this, value) };
        Ok(0)
    })
}

/// `query_ah` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a handle of a device of the driver `D`, alive, and `attr` is valid.
pub(crate) unsafe extern "C" fn query_callback<D: Driver>(
    raw: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (ah, attr) = unsafe { (Ah::from_raw(raw), &mut *attr) };
        D::Ah::query(ah)?.write_to(attr);
        Ok(0)
    })
}

/// `destroy_ah` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a handle of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn destroy_callback<D: Driver>(
    raw: *mut bindings::ib_ah,
    _flags: u32,
) -> c_int {
    let this = raw.cast::<Ah<D>>();
    // SAFETY: By the requirements of this function; `Ah` is transparent over `Object`.
    unsafe { Object::drop_data(&raw mut (*this).0) };
    0
}
