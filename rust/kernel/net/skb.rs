// SPDX-License-Identifier: GPL-2.0

//! Packets: `struct sk_buff`.
//!
//! A packet is one of two things here. A [`NewSkBuff`] is being made: its bytes are in one piece,
//! belong to nobody else, and may be written. An [`OwnedSkBuff`] has come from the stack: its first
//! bytes are in one piece, the others may be in pages, and all of it may be shared with other
//! readers, so it is read-only.
//!
//! Pages are not only shared with readers. If a packet has come from a program on the same machine,
//! its pages may be those of a file which are written to while the packet travels. So no reference
//! to them is ever handed out: bytes are copied, or go into a checksum, by C code.
//!
//! C header: `include/linux/skbuff.h`.

use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    types::Opaque, //
};

use crate::bindings;

mod list;
mod new;
mod queue;

pub use list::PacketList;
pub use new::{
    Appender,
    NewSkBuff, //
};
pub use queue::Queue;

/// The state of a received packet's checksum: `ip_summed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing.
    None,
    /// It was found to be right, or does not matter.
    Unnecessary,
    /// The device has summed up all bytes.
    Complete,
    /// It was not written, for the packet has not left the machine.
    Partial,
}

/// A packet, for reading.
///
/// # Invariants
///
/// The buffer is a valid one, and nobody else changes its lengths, places or bytes in one piece
/// while this is borrowed.
#[repr(transparent)]
pub struct SkBuff(Opaque<bindings::sk_buff>);

// SAFETY: A buffer refers to nothing of the thread or processor that made it, so any may read and
// free it.
unsafe impl Send for SkBuff {}

// SAFETY: The methods by shared reference read lengths and bytes, which nobody changes while the
// buffer is borrowed (invariant of the type).
unsafe impl Sync for SkBuff {}

impl SkBuff {
    /// Borrows a buffer that C code has handed in.
    ///
    /// # Safety
    ///
    /// `ptr` points to a valid buffer, which nobody changes during the lifetime `'a`.
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::sk_buff) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is transparent over `Opaque`.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.get()
    }

    /// The bytes from the current start on.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a packet is not a collection")]
    pub fn len(&self) -> usize {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { (*self.as_raw()).len as usize }
    }

    /// The first bytes, as far as they are in one piece. See [`OwnedSkBuff::make_linear`].
    #[inline]
    pub fn linear(&self) -> &[u8] {
        let skb = self.as_raw();
        // SAFETY: `self` is valid by the type invariants: from `data` on there are `len - data_len`
        // initialised bytes, which nobody changes while they are borrowed.
        unsafe {
            let len = (*skb).len - (*skb).data_len;
            core::slice::from_raw_parts((*skb).data, len as usize)
        }
    }

    /// The bytes in front of the current start from the network header on: the headers that were
    /// pulled. Empty if that header is not known, or not in front.
    pub fn headers(&self) -> &[u8] {
        let skb = self.as_raw();
        // SAFETY: `self` is valid by the type invariants. The bytes between `head` and `data` are
        // one allocation. The network header points into the buffer: if it was not set, to `head`,
        // where that of a received packet never is, and else behind a link header, from where on
        // all bytes are initialised.
        unsafe {
            let (data, head) = ((*skb).data.cast_const(), (*skb).head.cast_const());
            let start = bindings::skb_network_header(skb).cast::<u8>();
            if start <= head || start > data {
                return &[];
            }
            core::slice::from_raw_parts(start, data.addr() - start.addr())
        }
    }

    /// The state of the checksum.
    pub fn checksum(&self) -> Checksum {
        // SAFETY: `self` is valid by the type invariants.
        match u32::from(unsafe { bindings::skb_ip_summed(self.as_raw()) }) {
            bindings::CHECKSUM_UNNECESSARY => Checksum::Unnecessary,
            bindings::CHECKSUM_COMPLETE => Checksum::Complete,
            bindings::CHECKSUM_PARTIAL => Checksum::Partial,
            _ => Checksum::None,
        }
    }

    /// The VLAN tag that the packet has beside its bytes, as in the header: priority and
    /// identifier.
    ///
    /// The tag of a packet that was received by the device of a VLAN is gone.
    pub fn vlan_tag(&self) -> Option<u16> {
        // SAFETY: `self` is valid by the type invariants.
        unsafe {
            bindings::skb_vlan_tag_present(self.as_raw())
                .then(|| bindings::skb_vlan_tag_get(self.as_raw()))
        }
    }

    /// The mark, which is the owner's.
    pub fn mark(&self) -> u32 {
        // SAFETY: `self` is valid by the type invariants.
        unsafe { bindings::skb_mark(self.as_raw()) }
    }

    /// Copies bytes from `offset` on out of the packet, from wherever they are. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there are not as many.
    pub fn copy_bits(&self, offset: usize, to: &mut [u8]) -> Result {
        // SAFETY: A slice may be written to.
        unsafe { self.copy_bits_raw(offset, to.as_mut_ptr(), to.len()) }
    }

    /// As [`copy_bits`](Self::copy_bits), to memory that need not be a slice: somebody may write
    /// to it at the same time, and then nobody knows what is there.
    ///
    /// # Safety
    ///
    /// `to` is valid for writing `len` bytes, but for data races.
    ///
    /// # Errors
    ///
    /// As [`copy_bits`](Self::copy_bits).
    #[inline]
    pub unsafe fn copy_bits_raw(&self, offset: usize, to: *mut u8, len: usize) -> Result {
        self.check(offset, len)?;
        // SAFETY: `self` is valid by the type invariants, and `to` by the requirements of this
        // function. The packet is no longer than an `int` can tell, and the range is inside of it.
        let err = unsafe {
            bindings::skb_copy_bits(self.as_raw(), offset as c_int, to.cast(), len as c_int)
        };
        if err < 0 {
            Err(EFAULT)
        } else {
            Ok(())
        }
    }

    /// Goes on with a CRC-32 (the polynomial of Ethernet, bits reflected, nothing inverted) that
    /// stands at `crc`, over bytes of the packet. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there are not as many.
    pub fn crc32(&self, crc: u32, offset: usize, len: usize) -> Result<u32> {
        self.check(offset, len)?;
        let (mut crc, mut offset, end) = (crc, offset, offset + len);
        while offset < end {
            let mut bytes = core::ptr::null();
            // SAFETY: `self` is valid by the type invariants.
            let piece =
                unsafe { bindings::skb_contiguous(self.as_raw(), offset as u32, &mut bytes) };
            let piece = (end - offset).min(piece as usize);
            if piece == 0 {
                return Err(EFAULT);
            }
            // SAFETY: The function has found at least as many bytes. They are summed up by C code,
            // which takes them as they come.
            crc = unsafe { bindings::crc32_le(crc, bytes.cast(), piece) };
            offset += piece;
        }
        Ok(crc)
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(EFAULT),
        }
    }
}

/// A packet that has come from the stack, to be read and dropped.
///
/// # Invariants
///
/// The buffer is valid, and we own a reference to it, which is the only one to the `sk_buff` though
/// maybe not to its bytes. It refers to nothing that only RCU keeps.
#[repr(transparent)]
pub struct OwnedSkBuff(NonNull<SkBuff>);

// SAFETY: `SkBuff` is `Send`.
unsafe impl Send for OwnedSkBuff {}

// SAFETY: `SkBuff` is `Sync`.
unsafe impl Sync for OwnedSkBuff {}

impl OwnedSkBuff {
    /// Takes a buffer over from C code.
    ///
    /// # Safety
    ///
    /// `skb` is valid, and the caller gives up the only reference to it. It has no socket, no route
    /// and no device.
    pub unsafe fn from_raw(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the requirements of this function.
        OwnedSkBuff(skb.cast())
    }

    /// Gives the buffer up, to C code.
    pub fn into_raw(self) -> NonNull<bindings::sk_buff> {
        ManuallyDrop::new(self).0.cast()
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        // SAFETY: By the type invariants, the `sk_buff` is ours alone.
        unsafe { bindings::skb_set_mark(self.as_raw(), mark) };
    }

    /// Another buffer of the same bytes, which are not copied. Any context; allocates.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn try_clone(&self) -> Result<Self> {
        // SAFETY: By the type invariants.
        let clone = unsafe { bindings::skb_clone(self.as_raw()) };
        // INVARIANT: The clone has one reference, which is ours. It refers to no more than the
        // original.
        NonNull::new(clone)
            .map(|clone| OwnedSkBuff(clone.cast()))
            .ok_or(ENOMEM)
    }

    /// Makes at least the first `len` bytes be in one piece. Any context; may allocate.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there are not as many, or no memory.
    #[inline]
    pub fn make_linear(&mut self, len: usize) -> Result {
        if len <= self.linear().len() {
            return Ok(());
        }
        self.check(0, len)?;
        // SAFETY: By the type invariants; nobody has borrowed bytes of it, for `self` is borrowed
        // mutably.
        if unsafe { bindings::pskb_may_pull(self.as_raw(), len as u32) } {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Moves the start of the packet `len` bytes on, which must be in one piece.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there are not as many in one piece; see [`make_linear`](Self::make_linear).
    #[inline]
    pub fn pull(&mut self, len: usize) -> Result {
        if len > self.linear().len() {
            return Err(EFAULT);
        }
        // SAFETY: By the type invariants, and there are as many bytes.
        unsafe { bindings::skb_pull(self.as_raw(), len as u32) };
        Ok(())
    }

    /// Moves the start of the packet back over `len` bytes that were pulled, down to its network
    /// header.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there are not as many in [`headers`](SkBuff::headers).
    pub fn unpull(&mut self, len: usize) -> Result {
        if len > self.headers().len() {
            return Err(EFAULT);
        }
        // SAFETY: By the type invariants, and there are as many bytes in front, initialised.
        unsafe { bindings::skb_push(self.as_raw(), len as u32) };
        Ok(())
    }

    /// Cuts the packet down to its first `len` bytes; does nothing if it is not longer. Any
    /// context; may allocate.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn trim(&mut self, len: usize) -> Result {
        if len >= self.len() {
            return Ok(());
        }
        // SAFETY: By the type invariants; nobody has borrowed bytes of it.
        kernel::error::to_result(unsafe { bindings::pskb_trim(self.as_raw(), len as u32) })
    }
}

impl Deref for OwnedSkBuff {
    type Target = SkBuff;

    #[inline]
    fn deref(&self) -> &SkBuff {
        // SAFETY: By the type invariants.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OwnedSkBuff {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, we own a reference, which is given up.
        unsafe { bindings::consume_skb(self.as_raw()) };
    }
}
