// SPDX-License-Identifier: GPL-2.0

//! Flow steering: rules by which queue pairs get frames of the port (`ibv_create_flow(3)`).
//!
//! The core has found that the program has `CAP_NET_RAW`, and that the queue pair is for datagrams
//! or raw packets.

use core::mem::MaybeUninit;

use kernel::prelude::*;

use crate::{
    bindings,
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    Driver,
    Qp, //
};

/// The types of rules: `enum ib_flow_attr_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// By specifications.
    Normal,
    /// All frames that are steered to nobody.
    AllDefault,
    /// Of these, those to groups.
    MulticastDefault,
    /// All frames.
    Sniffer,
}

/// The header or the action of a specification: `enum ib_flow_spec_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecType {
    /// The Ethernet header: `struct ib_flow_eth_filter`.
    Ethernet,
    /// The header of IPv4: `struct ib_flow_ipv4_filter`.
    Ipv4,
    /// The header of IPv6: `struct ib_flow_ipv6_filter`.
    Ipv6,
    /// The header of TCP: `struct ib_flow_tcp_udp_filter`.
    Tcp,
    /// The header of UDP: the same.
    Udp,
    /// The action of dropping, without filters.
    Drop,
    /// Any other header or action.
    Other,
}

/// A specification of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Its type.
    pub spec_type: SpecType,
    /// The filter's value, in the layout of the structure that the type names, and in the byte
    /// order of the wire.
    pub value: &'a [u8],
    /// The bits of it that are compared.
    pub mask: &'a [u8],
}

/// A rule that is to be made: `struct ib_flow_attr`.
pub struct Attr<'a> {
    /// Its type.
    pub flow_type: Type,
    /// Rules with a lower number come first.
    pub priority: u16,
    /// Frames of it are for rules of lower priority, too.
    pub dont_trap: bool,
    /// It is for frames that are sent.
    pub egress: bool,
    /// The specifications, one behind the other.
    bytes: &'a [u8],
}

impl<'a> Attr<'a> {
    /// # Safety
    ///
    /// `raw` is valid for the lifetime `'a`, and so are as many bytes as its size says.
    unsafe fn from_raw(raw: *const bindings::ib_flow_attr) -> Result<Self> {
        const DONT_TRAP: u32 = bindings::ib_flow_flags_IB_FLOW_ATTR_FLAGS_DONT_TRAP;
        const EGRESS: u32 = bindings::ib_flow_flags_IB_FLOW_ATTR_FLAGS_EGRESS;

        // SAFETY: By the requirements of this function.
        let (flow_type, priority, flags, bytes) = unsafe {
            let bytes = core::slice::from_raw_parts(raw.cast(), usize::from((*raw).size));
            ((*raw).type_, (*raw).priority, (*raw).flags, bytes)
        };
        if flags & !(DONT_TRAP | EGRESS) != 0 {
            return Err(EINVAL);
        }
        Ok(Attr {
            flow_type: match flow_type {
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_NORMAL => Type::Normal,
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_ALL_DEFAULT => Type::AllDefault,
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_MC_DEFAULT => Type::MulticastDefault,
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_SNIFFER => Type::Sniffer,
                _ => return Err(EINVAL),
            },
            priority,
            dont_trap: flags & DONT_TRAP != 0,
            egress: flags & EGRESS != 0,
            bytes: bytes
                .get(size_of::<bindings::ib_flow_attr>()..)
                .unwrap_or(&[]),
        })
    }

    /// The specifications.
    pub fn specs(&self) -> Specs<'a> {
        Specs(self.bytes)
    }
}

/// The specifications of a rule.
pub struct Specs<'a>(&'a [u8]);

/// Where the two filters of a specification are, and how long each is.
macro_rules! filters {
    ($spec:ident, $filter:ident) => {
        (
            core::mem::offset_of!(bindings::$spec, val),
            core::mem::offset_of!(bindings::$spec, mask),
            size_of::<bindings::$filter>(),
        )
    };
}

impl<'a> Iterator for Specs<'a> {
    type Item = Spec<'a>;

    fn next(&mut self) -> Option<Spec<'a>> {
        let (raw_type, rest) = self.0.split_first_chunk()?;
        let size = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        // The core has written whole ones.
        let (spec, rest) = self.0.split_at_checked(size.max(6))?;
        self.0 = rest;
        let (spec_type, (value, mask, length)) = match u32::from_ne_bytes(*raw_type) {
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_ETH => (
                SpecType::Ethernet,
                filters!(ib_flow_spec_eth, ib_flow_eth_filter),
            ),
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_IPV4 => (
                SpecType::Ipv4,
                filters!(ib_flow_spec_ipv4, ib_flow_ipv4_filter),
            ),
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_IPV6 => (
                SpecType::Ipv6,
                filters!(ib_flow_spec_ipv6, ib_flow_ipv6_filter),
            ),
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_TCP => (
                SpecType::Tcp,
                filters!(ib_flow_spec_tcp_udp, ib_flow_tcp_udp_filter),
            ),
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_UDP => (
                SpecType::Udp,
                filters!(ib_flow_spec_tcp_udp, ib_flow_tcp_udp_filter),
            ),
            bindings::ib_flow_spec_type_IB_FLOW_SPEC_ACTION_DROP => (SpecType::Drop, (0, 0, 0)),
            _ => (SpecType::Other, (0, 0, 0)),
        };
        let part = |from: usize| spec.get(from..)?.get(..length);
        Some(Spec {
            spec_type,
            value: part(value)?,
            mask: part(mask)?,
        })
    }
}

/// A driver's verbs of flow steering. The value is dropped when the rule goes, before its queue
/// pair does.
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Flow = Self>;

    /// Whether there is any. See [`Unsupported`](crate::Unsupported).
    const SUPPORTED: bool = true;

    /// Makes a rule for a program's queue pair.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn create(qp: &Qp<Self::Driver>, attr: &Attr<'_>) -> Result<Self>;
}

/// A rule: `struct ib_flow`. The driver allocates these, so this crate does.
#[repr(transparent)]
pub struct Flow<D: Driver>(Object<bindings::ib_flow, (), D::Flow>);

impl_object!(Flow, bindings::ib_flow, Flow);

/// `create_flow` of `struct ib_device_ops`.
///
/// # Safety
///
/// `qp` is a queue pair of a device of the driver `D`, alive; `attr` is valid with all its
/// specifications; `udata` belongs to the call.
pub(crate) unsafe extern "C" fn create_callback<D: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_flow_attr,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_flow {
    // SAFETY: By the requirements of this function.
    let (qp, attr, call) = unsafe { (Qp::from_raw(qp), Attr::from_raw(attr), Call::new(udata)) };
    let made = call.refuse_request().and_then(|()| create::<D>(qp, &attr?));
    match made {
        Ok(flow) => KBox::into_raw(flow).cast(),
        Err(error) => error.to_ptr(),
    }
}

/// Allocates the object, and has the driver make its value.
fn create<D: Driver>(qp: &Qp<D>, attr: &Attr<'_>) -> Result<KBox<Flow<D>>> {
    let mut place = KBox::<Flow<D>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
    let value = D::Flow::create(qp, attr)?;
    let this = place.as_mut_ptr();
    // SAFETY: The memory is ours, and all zeroes are a valid `struct ib_flow`, of which the core
    // sets each field. The object is in stage 1 and then in stage 2, each left once.
    unsafe {
        this.cast::<bindings::ib_flow>().write_bytes(0, 1);
        Object::begin(&raw mut (*this).0, ());
        Object::complete(&raw mut (*this).0, value);
    }
    // SAFETY: The object is in stage 3: each part of it is initialised.
    Ok(unsafe { place.assume_init() })
}

/// `destroy_flow` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` was made by [`create_callback`] for the driver `D`, and nobody uses it any more.
pub(crate) unsafe extern "C" fn destroy_callback<D: Driver>(raw: *mut bindings::ib_flow) -> c_int {
    let this = raw.cast::<Flow<D>>();
    // SAFETY: By the requirements of this function. `Flow` is transparent over `Object`, which has
    // nothing to drop but the driver's value.
    unsafe {
        Object::dismiss(&raw mut (*this).0, |()| ());
        drop(KBox::from_raw(this.cast::<MaybeUninit<Flow<D>>>()));
    }
    0
}
