// SPDX-License-Identifier: GPL-2.0

//! Accounts: sockets that packets on their way are charged to, so that their memory can be limited.
//!
//! A packet that was sent lies in the queue of a network device, or waits for a neighbour, for as
//! long as others like. Meanwhile it is charged to a socket. All senders of a
//! [`Port`](crate::udp::Port) share the port's socket. A sender that limits its own packets has an
//! [`Account`].
//!
//! Packets hold the socket, and nothing else. So an account may be dropped, and the module go,
//! whatever is still on its way. When a packet is gone, the network core calls `sk_write_space` of
//! the socket. That is the core's own function, which wakes those who wait at the socket. An
//! account has an entry in the socket's wait queue, with a function of its own. Entries are taken
//! out of the queue under its lock, and the function is called under it. A function of a module in
//! `sk_write_space` would be called under no such lock.
//!
//! C headers: `include/net/sock.h`, `include/linux/wait.h`.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        Arc, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    pernet::Lease, //
};

/// A socket that packets are charged to. It may have been released: then they still are.
///
/// # Invariants
///
/// The socket is a valid one, and stays so while this is borrowed.
#[repr(transparent)]
pub struct Charged(Opaque<bindings::sock>);

// SAFETY: A socket belongs to no thread, and any context may give back a reference to it.
unsafe impl Send for Charged {}

// SAFETY: Packets are charged, and counted, by atomic operations.
unsafe impl Sync for Charged {}

// SAFETY: A socket is there as long as somebody has a reference, by `sock_hold()`.
unsafe impl AlwaysRefCounted for Charged {
    fn inc_ref(&self) {
        // SAFETY: By the type invariants, the socket is valid, so there is a reference.
        unsafe { bindings::sock_hold(self.as_raw()) };
    }

    unsafe fn dec_ref(charged: NonNull<Self>) {
        // SAFETY: By the requirements of this function, the reference is the caller's, and given
        // up.
        unsafe { bindings::sock_put(charged.cast().as_ptr()) };
    }
}

impl Charged {
    /// # Safety
    ///
    /// `sk` points to a valid socket, which stays valid for the lifetime `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*sk.cast() }
    }

    /// The C object.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// Another reference, which any context may give back. Any context.
    #[inline]
    pub fn hold(&self) -> ARef<Self> {
        self.into()
    }

    /// The memory, in bytes, of packets that were sent and are not gone yet: they wait in the queue
    /// of a device, for a neighbour, or to be received on this machine. Any context.
    #[inline]
    pub fn queued(&self) -> usize {
        // SAFETY: The socket is valid by the type invariants.
        usize::try_from(unsafe { bindings::sk_wmem_alloc_get(self.as_raw()) }).unwrap_or(0)
    }
}

/// The callback for packets of an account that are gone.
pub trait Gone: Send + Sync + 'static {
    /// One or several packets are gone since the last time. `charged` tells the packets that are
    /// left.
    ///
    /// Any context, also with interrupts off and with locks of the network taken. It must not send:
    /// sending may take the same locks.
    fn gone(&self, charged: &Charged);
}

/// An account in a network namespace. Its socket has no port, and neither sends nor receives.
///
/// It is dropped in process context. Code in other contexts holds the socket alone
/// ([`Charged::hold`]). The namespace is not held, and its end waits for the account.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::{atomic::{Atomic, Relaxed}, Arc}};
/// use net_ext::{account::{Account, Charged, Gone}, pernet::Lease};
///
/// struct Left(Atomic<usize>);
///
/// impl Gone for Left {
///     fn gone(&self, charged: &Charged) {
///         self.0.store(charged.queued(), Relaxed);
///     }
/// }
///
/// fn open(lease: Lease) -> Result<Pin<KBox<Account<Left>>>> {
///     let left = Arc::new(Left(Atomic::new(0)), GFP_KERNEL)?;
///     KBox::pin_init(Account::new(lease, left), GFP_KERNEL)
/// }
/// ```
///
/// # Invariants
///
/// `socket` is a socket of the namespace of `_lease`, and is ours. `entry` is in its wait queue,
/// and points to this.
#[pin_data(PinnedDrop)]
pub struct Account<G: Gone> {
    socket: NonNull<bindings::socket>,
    sk: NonNull<bindings::sock>,
    watcher: Arc<G>,
    /// Dropped after the socket has been released.
    _lease: Lease,
    /// The last to be made: from then on it may be called.
    #[pin]
    entry: Opaque<bindings::wait_queue_entry>,
}

// SAFETY: A socket belongs to no thread, the wait queue has a lock, and `G` is `Send`.
unsafe impl<G: Gone> Send for Account<G> {}

// SAFETY: By a shared reference, packets are charged, by atomic operations, and `G` is `Sync`.
unsafe impl<G: Gone> Sync for Account<G> {}

/// A socket, until an account has it.
struct Socket(NonNull<bindings::socket>);

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: `Account::new` has made it, and nobody else has it.
        unsafe { bindings::sock_release(self.0.as_ptr()) };
    }
}

impl<G: Gone> Account<G> {
    /// Opens an account. Process context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(lease: Lease, watcher: Arc<G>) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let mut raw = core::ptr::null_mut();
            // SAFETY: The lease keeps the namespace, and the place for the socket is valid for
            // writing.
            to_result(unsafe { bindings::account_socket(lease.as_raw(), &mut raw) })?;
            let made = Socket(NonNull::new(raw).ok_or(ENOMEM)?);
            // SAFETY: The function has made the socket, which is ours.
            let sk = NonNull::new(unsafe { (*raw).sk }).ok_or(ENOMEM)?;
            Ok(try_pin_init!(&this in Self {
                socket: {
                    // From here on nothing fails, and it is the account's.
                    let socket = made.0;
                    core::mem::forget(made);
                    socket
                },
                sk,
                watcher,
                _lease: lease,
                // SAFETY: The place is valid for writing and stays where it is until `PinnedDrop`
                // takes it out of the queue. All other fields have been initialised, so `gone` may
                // be called.
                entry <- Opaque::ffi_init(move |slot| unsafe {
                    bindings::account_watch(
                        raw,
                        slot,
                        Some(Self::gone),
                        this.as_ptr().cast(),
                    );
                }),
            }))
        })
    }

    /// The function of the entry.
    ///
    /// # Safety
    ///
    /// To be called for the entry of an account, under the lock of the wait queue that it is in.
    unsafe extern "C" fn gone(
        entry: *mut bindings::wait_queue_entry,
        _mode: c_uint,
        _flags: c_int,
        _key: *mut c_void,
    ) -> c_int {
        // SAFETY: By the type invariants, the entry points to its account. `PinnedDrop` takes it
        // out of the queue first of all, for which it needs the lock that the caller has; so the
        // account is there.
        let account = unsafe { &*(*entry).private.cast::<Self>() };
        account.watcher.gone(account);
        // Others are to be woken, too.
        0
    }
}

impl<G: Gone> Deref for Account<G> {
    type Target = Charged;

    #[inline]
    fn deref(&self) -> &Charged {
        // SAFETY: By the type invariants, the socket is valid as long as `self` is.
        unsafe { Charged::from_raw(self.sk.as_ptr()) }
    }
}

#[pinned_drop]
impl<G: Gone> PinnedDrop for Account<G> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants, the entry is in the queue of the socket, which is ours.
        // Packets that are on their way hold what of it they need.
        unsafe {
            bindings::account_unwatch(self.socket.as_ptr(), self.entry.get());
            bindings::sock_release(self.socket.as_ptr());
        }
    }
}
