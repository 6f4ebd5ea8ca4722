// SPDX-License-Identifier: GPL-2.0

//! Data of each network namespace.
//!
//! C headers: `include/net/net_namespace.h`, `include/net/netns/generic.h`.

use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Deref,
    ptr::{
        addr_of_mut,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Completion, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    },
};

use pin_init::InPlaceWrite;

use crate::{
    bindings,
    HeldNamespace,
    Namespace, //
};

/// The number by which namespaces know a kind of data.
#[doc(hidden)]
pub struct Id {
    number: Opaque<c_uint>,
    taken: Atomic<u32>,
}

// SAFETY: The number is written while its data is registered, which one caller at a time can do,
// and read only as long as that lasts.
unsafe impl Sync for Id {}

impl Id {
    /// A number that is not given yet.
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        Id {
            number: Opaque::new(0),
            taken: Atomic::new(0),
        }
    }
}

/// A kind of data that has a number, by [`pernet_id!`](crate::pernet_id).
///
/// # Safety
///
/// `id` answers the same each time, and what no other kind answers.
pub unsafe trait HasId {
    /// The number of this kind.
    #[doc(hidden)]
    fn id() -> &'static Id;
}

/// Gives a type a number of its own, so that it may be [`PerNet`].
#[macro_export]
macro_rules! pernet_id {
    ($kind:ty) => {
        // SAFETY: The static is always the same, and nobody else can name it.
        unsafe impl $crate::pernet::HasId for $kind {
            fn id() -> &'static $crate::pernet::Id {
                static ID: $crate::pernet::Id = $crate::pernet::Id::new();
                &ID
            }
        }
    };
}

/// Data of which each namespace has one.
pub trait PerNet: HasId + Send + Sync + Sized + 'static {
    /// The data of a namespace. Process context.
    ///
    /// Called for those that there are when the kind is registered, and for each new one. The
    /// namespace must not be held from here on: objects that belong to it take the lease.
    ///
    /// # Errors
    ///
    /// If this fails, so does the registration, or the making of the namespace.
    fn new(lease: Lease) -> impl PinInit<Self, Error>;
}

/// That a namespace is there, for what belongs to it and must go before it does: sockets, routes.
///
/// A lease does not keep the namespace from ending, as [`HeldNamespace`] does. When the namespace
/// or the registration ends, the data are dropped first, and then the end waits until all leases
/// have been dropped. So keep a lease in the data, or with a network device of the namespace: both
/// have gone by then.
#[derive(Clone)]
pub struct Lease(Arc<Leased>);

/// The part that the leases of one namespace share.
///
/// # Invariants
///
/// The namespace is valid until `ended` is completed.
struct Leased {
    net: NonNull<bindings::net>,
    ended: Arc<Completion>,
}

// SAFETY: References to a namespace may be used by any thread, and so may a completion.
unsafe impl Send for Leased {}

// SAFETY: `Namespace` is `Sync`, and so is a completion.
unsafe impl Sync for Leased {}

impl Drop for Leased {
    fn drop(&mut self) {
        self.ended.complete_all();
    }
}

impl Deref for Lease {
    type Target = Namespace;

    #[inline]
    fn deref(&self) -> &Namespace {
        // SAFETY: By the type invariants, the namespace is valid, for the lease has not ended.
        unsafe { Namespace::from_raw(self.0.net.as_ptr()) }
    }
}

/// The data as it lies in the memory that comes with the namespace, zeroed.
///
/// # Invariants
///
/// `value` and `ended` are initialised if `ready` is not 0. The latter is completed when there are
/// no leases any more.
struct Slot<T> {
    ready: Atomic<u32>,
    ended: MaybeUninit<Arc<Completion>>,
    value: MaybeUninit<T>,
}

/// A kind of data that each namespace has.
///
/// The data is dropped when its namespace ends, after the namespace's devices have gone, or with
/// the registration. Process context in both cases.
///
/// # Examples
///
/// ```
/// use kernel::prelude::*;
/// use net_ext::{pernet::{Lease, PerNet, Registration}, NetDevice};
///
/// struct Cookie(u64);
///
/// net_ext::pernet_id!(Cookie);
///
/// impl PerNet for Cookie {
///     fn new(lease: Lease) -> impl PinInit<Self, Error> {
///         Ok::<_, Error>(Cookie(lease.cookie()))
///     }
/// }
///
/// fn cookie(cookies: &Registration<Cookie>, device: &NetDevice) -> Option<u64> {
///     let net = device.namespace()?;
///     Some(cookies.get(&net)?.0)
/// }
/// ```
///
/// # Invariants
///
/// `ops` is registered, with the number of `T::id()`, which is taken.
#[pin_data(PinnedDrop)]
pub struct Registration<T: PerNet> {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
    _data: PhantomData<T>,
}

// SAFETY: It may be unregistered by any thread, which drops data that is `Send`.
unsafe impl<T: PerNet> Send for Registration<T> {}

// SAFETY: By a shared reference the data alone can be reached, and that is `Sync`.
unsafe impl<T: PerNet> Sync for Registration<T> {}

impl<T: PerNet> Registration<T> {
    /// Gives data to all namespaces. Process context, without the RTNL.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    /// - `EBUSY` if the kind is registered.
    /// - What [`PerNet::new`] says of a namespace.
    pub fn new() -> impl PinInit<Self, Error> {
        // The memory of a namespace's data has the alignment of the smallest allocation.
        const { assert!(align_of::<Slot<T>>() <= 8) };
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|slot: *mut bindings::pernet_operations| {
                let id = T::id();
                if id.taken.cmpxchg(0, 1, Full).is_err() {
                    return Err(EBUSY);
                }
                let taken = ScopeGuard::new(|| id.taken.store(0, Release));
                // SAFETY: `slot` is valid for writing and stays in place, and `PinnedDrop`
                // unregisters it. The number is ours alone. Fields that are not set are zero, as
                // they should be: so the constant fields are not written one by one.
                unsafe {
                    slot.write(bindings::pernet_operations {
                        init: Some(Self::init),
                        exit: Some(Self::exit),
                        id: id.number.get(),
                        size: size_of::<Slot<T>>(),
                        ..pin_init::zeroed()
                    });
                    to_result(bindings::register_pernet_subsys(slot))?;
                }
                taken.dismiss();
                Ok(())
            }),
            _data: PhantomData,
        })
    }

    /// The data of a namespace; none if that is still in the making. Any context.
    #[inline]
    pub fn get<'a>(&'a self, net: &'a HeldNamespace) -> Option<&'a T> {
        // SAFETY: By the type invariants, the number is one of a registered kind. The namespace is
        // held, so it has not come to its end.
        let slot = unsafe { Self::slot(net.as_raw()) };
        // SAFETY: The slot is there as long as the namespace and the registration are. The place is
        // taken by itself, for the value may be in the making.
        let ready = unsafe { &(*slot).ready };
        if ready.load(Acquire) == 0 {
            return None;
        }
        // SAFETY: By the invariants of the slot; and the value is not dropped before the namespace
        // or the registration, which are both borrowed.
        Some(unsafe { &*(&raw const (*slot).value).cast::<T>() })
    }

    /// # Safety
    ///
    /// The kind is registered, and the namespace is valid.
    unsafe fn slot(net: *mut bindings::net) -> *mut Slot<T> {
        // SAFETY: By the requirements of this function. The number does not change as long as it is
        // registered.
        unsafe { bindings::net_generic(net, *T::id().number.get()) }.cast()
    }

    /// `init` of `struct pernet_operations`.
    ///
    /// # Safety
    ///
    /// To be called by the core only, once for each namespace.
    unsafe extern "C" fn init(net: *mut bindings::net) -> c_int {
        kernel::error::from_result(|| {
            let ended = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
            // INVARIANT: The namespace is valid until `exit` has seen that the leases have ended,
            // or this has, where it fails.
            let leased = Leased {
                net: NonNull::new(net).ok_or(EINVAL)?,
                ended: ended.clone(),
            };
            let lease = Lease(Arc::new(leased, GFP_KERNEL)?);
            // SAFETY: By the requirements of this function. The memory is there, and is zero.
            let slot = unsafe { Self::slot(net) };
            // SAFETY: The place is valid for writing, and nobody else reads it before it is ready.
            // It stays where it is until `exit`, and this reference is gone long before.
            let place: &'static mut MaybeUninit<T> = unsafe { &mut *addr_of_mut!((*slot).value) };
            place
                .write_pin_init(T::new(lease))
                .inspect_err(|_| ended.wait_for_completion())?;
            // INVARIANT: With this, both are initialised.
            //
            // SAFETY: The places are valid for writing, and nobody else reads `ended`; zero is a
            // value of `ready`.
            unsafe {
                addr_of_mut!((*slot).ended)
                    .cast::<Arc<Completion>>()
                    .write(ended);
                (*slot).ready.store(1, Release);
            }
            Ok(0)
        })
    }

    /// `exit` of `struct pernet_operations`.
    ///
    /// # Safety
    ///
    /// To be called by the core only, once for each namespace for which `init` has been called;
    /// nobody holds the namespace any more, or the registration is being dropped.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: By the requirements of this function.
        let slot = unsafe { Self::slot(net) };
        // SAFETY: The slot is there until this returns. The place is taken by itself, for the value
        // may never have been made.
        if unsafe { &(*slot).ready }.load(Relaxed) != 0 {
            // SAFETY: By the invariants of the slot. Nobody borrows the value, for that needs a
            // held namespace and the registration. The memory is freed after this.
            let ended = unsafe {
                core::ptr::drop_in_place(addr_of_mut!((*slot).value).cast::<T>());
                addr_of_mut!((*slot).ended).cast::<Arc<Completion>>().read()
            };
            ended.wait_for_completion();
        }
    }
}

#[pinned_drop]
impl<T: PerNet> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
        T::id().taken.store(0, Release);
    }
}
