// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames as they are: those that come to a network device, and sending one.
//!
//! A [`Watch`] sees copies: the stack gets the frames as well. C header:
//! `include/linux/netdevice.h` (`struct packet_type`).

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    types::Opaque, //
};

use crate::{
    account::Charged,
    bindings,
    skb::OwnedSkBuff,
    NetDevice,
    Rtnl,
    ETH_ALEN, //
};

/// The receiver of a device's frames.
pub trait Receive: Send + Sync + 'static {
    /// A frame has come, or leaves. RCU is read-locked, and bottom halves are off. Several
    /// processors may call at once.
    ///
    /// A frame that leaves comes with locks of the network taken, which a sender may want: nothing
    /// is sent from here then.
    fn receive(&self, frame: Frame<'_>);
}

/// A frame of a device that is watched.
///
/// # Invariants
///
/// `skb` is valid, its MAC header is set, and the reference, of which there may be others, is ours.
pub struct Frame<'a> {
    skb: NonNull<bindings::sk_buff>,
    _watch: PhantomData<&'a ()>,
}

impl Frame<'_> {
    /// Copies the first bytes, from the Ethernet header on, and answers them.
    pub fn head<'b>(&self, to: &'b mut [u8]) -> &'b [u8] {
        let size = c_int::try_from(to.len()).unwrap_or(c_int::MAX);
        // SAFETY: By the type invariants, and there is space for as many bytes.
        let len = unsafe { bindings::frame_head(self.skb.as_ptr(), to.as_mut_ptr().cast(), size) };
        usize::try_from(len)
            .ok()
            .and_then(|len| to.get(..len))
            .unwrap_or(&[])
    }

    /// The VLAN tag that the frame has beside its bytes: it is not among those of
    /// [`head`](Self::head).
    pub fn vlan_tag(&self) -> Option<u16> {
        let skb = self.skb.as_ptr();
        // SAFETY: By the type invariants.
        unsafe { bindings::skb_vlan_tag_present(skb).then(|| bindings::skb_vlan_tag_get(skb)) }
    }

    /// It leaves by the device.
    pub fn is_leaving(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::frame_leaves(self.skb.as_ptr()) }
    }

    /// The frame as it is on the wire: from the Ethernet header on, with the VLAN tag and right
    /// checksums. The stack may have put several frames together, or may have left it to the device
    /// to cut one; then they are several again. None without memory.
    pub fn cut(self) -> Cut {
        let skb = core::mem::ManuallyDrop::new(self).skb;
        // INVARIANT: The function answers such a list.
        //
        // SAFETY: By the type invariants; the reference is given up.
        Cut(unsafe { bindings::frame_cut(skb.as_ptr()) })
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is ours.
        unsafe { bindings::consume_skb(self.skb.as_ptr()) };
    }
}

/// Frames as they are on the wire.
///
/// # Invariants
///
/// A list of buffers, which may be empty. The only reference to each is ours, and none has a
/// socket, a route or a device.
pub struct Cut(*mut bindings::sk_buff);

impl Iterator for Cut {
    type Item = OwnedSkBuff;

    fn next(&mut self) -> Option<OwnedSkBuff> {
        // SAFETY: By the type invariants.
        let skb = NonNull::new(unsafe { bindings::skb_list_pop(&mut self.0) })?;
        // SAFETY: By the type invariants; it has just been taken off the list.
        Some(unsafe { OwnedSkBuff::from_raw(skb) })
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

/// That a receiver gets the frames of a device. Dropping it waits until nobody calls the receiver;
/// process context.
///
/// # Invariants
///
/// `raw` is in the list of the device's packet handlers, and its private pointer is that of
/// `_receiver`.
#[pin_data(PinnedDrop)]
pub struct Watch<R: Receive> {
    _receiver: Arc<R>,
    _netdev: ARef<NetDevice>,
    #[pin]
    raw: Opaque<bindings::packet_type>,
}

// SAFETY: The handler belongs to no thread, and `R` is `Send`.
unsafe impl<R: Receive> Send for Watch<R> {}

// SAFETY: By a shared reference a flag alone is stored, whole; `R` is `Sync`.
unsafe impl<R: Receive> Sync for Watch<R> {}

impl<R: Receive> Watch<R> {
    /// Begins. Process context.
    pub fn new(netdev: ARef<NetDevice>, receiver: Arc<R>) -> impl PinInit<Self> {
        let private: *const R = &*receiver;
        let device = netdev.as_raw();
        pin_init!(Self {
            _receiver: receiver,
            _netdev: netdev,
            // SAFETY: The place is valid for writing and stays where it is until `PinnedDrop` takes
            // it out of the list. The device is held by `_netdev`, and what `private` points to by
            // `_receiver`.
            raw <- Opaque::ffi_init(move |slot| unsafe {
                bindings::frames_watch(slot, device, Some(Self::handle), private.cast_mut().cast());
            }),
        })
    }

    /// Has the receiver get frames that leave by the device, or not.
    pub fn watch_leaving(&self, wanted: bool) {
        // SAFETY: By the type invariants.
        unsafe { bindings::frames_watch_leaving(self.raw.get(), wanted) };
    }

    /// The function of the handler.
    ///
    /// # Safety
    ///
    /// To be called by the network for the handler of a watch, with a frame whose reference is
    /// given up.
    unsafe extern "C" fn handle(
        skb: *mut bindings::sk_buff,
        _dev: *mut bindings::net_device,
        handler: *mut bindings::packet_type,
        _orig_dev: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: By the requirements of this function, and by the invariants of `Watch` the
        // pointer is that of the receiver, which is there as long as the handler is in the list.
        let (receiver, skb) = unsafe {
            let receiver = bindings::frames_private(handler).cast::<R>();
            (&*receiver, NonNull::new_unchecked(skb))
        };
        // INVARIANT: By the requirements of this function; each frame has a MAC header.
        receiver.receive(Frame {
            skb,
            _watch: PhantomData,
        });
        0
    }
}

#[pinned_drop]
impl<R: Receive> PinnedDrop for Watch<R> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants. Afterwards nobody calls.
        unsafe { bindings::frames_unwatch(self.raw.get()) };
    }
}

/// The frames that a device is to receive, beside those to its own address and to its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// None.
    Nothing,
    /// Those to this address.
    Address([u8; ETH_ALEN]),
    /// Those to any group.
    AllMulticast,
    /// All.
    All,
}

impl NetDevice {
    /// Has the device receive more frames, or undoes one such call. Addresses are forgotten when it
    /// moves to another network namespace, and then are not to be taken back. Process context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the device's own.
    pub fn accept(&self, _rtnl: &Rtnl, frames: Accept, wanted: bool) -> Result {
        let dev = self.as_raw();
        let by = if wanted { 1 } else { -1 };
        // SAFETY: `self` is valid by the type invariants, and the RTNL is held. An Ethernet address
        // has as many bytes as the functions read.
        to_result(unsafe {
            match frames {
                Accept::Nothing => 0,
                Accept::Address(address) => match (address[0] & 1 != 0, wanted) {
                    (true, true) => bindings::dev_mc_add(dev, address.as_ptr()),
                    (true, false) => bindings::dev_mc_del(dev, address.as_ptr()),
                    (false, true) => bindings::dev_uc_add(dev, address.as_ptr()),
                    (false, false) => bindings::dev_uc_del(dev, address.as_ptr()),
                },
                Accept::AllMulticast => bindings::dev_set_allmulti(dev, by),
                Accept::All => bindings::dev_set_promiscuity(dev, by),
            }
        })
    }

    /// The space in front that a frame should have.
    pub fn headroom(&self) -> usize {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::netdev_headroom(self.as_raw()) as usize }
    }

    /// Sends a frame as it is, and charges it to an account. Any context.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if it is no Ethernet device, or the frame has no Ethernet header in one piece.
    /// - `ENOBUFS` if the queue of the device is full.
    /// - `ENETDOWN` if the device is down.
    pub fn send_frame(&self, frame: OwnedSkBuff, charged: &Charged) -> Result {
        if !self.is_ethernet() || frame.linear().len() < 14 {
            return Err(EINVAL);
        }
        // SAFETY: `self` and the socket are valid by their invariants. The buffer is ours and is
        // given up.
        to_result(unsafe {
            bindings::frame_xmit(frame.into_raw().as_ptr(), self.as_raw(), charged.as_raw())
        })
    }
}
