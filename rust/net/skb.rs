// SPDX-License-Identifier: GPL-2.0

//! Packets: `struct sk_buff`.
//!
//! A packet is one of two things here. A [`NewSkBuff`] is being made: its bytes are in one piece,
//! belong to nobody else, and may be written. An [`OwnedSkBuff`] has come from the stack: its first
//! bytes are in one piece, what follows may be in pages, and all of it may be shared with others who
//! read it, so it is read-only.
//!
//! Pages are not only shared with readers. Where a packet has come from a program on the same
//! machine, its pages may be those of a file which are written to while the packet travels. So no
//! reference to them is ever handed out: bytes are copied, or go into a checksum, by C code.
//!
//! C header: `include/linux/skbuff.h`.

use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    types::Opaque, //
};

use crate::{
    bindings,
    ip::{
        self,
        UDP_LEN, //
    }, //
};

/// What is known of a received packet's checksum: `ip_summed`.
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

// SAFETY: A buffer belongs to no thread.
unsafe impl Send for SkBuff {}

// SAFETY: By a shared reference it is only read.
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

    /// The bytes in front of the current start from the network header on: what was pulled of it
    /// and of the headers that follow it. Empty if that header is not known, or not in front.
    pub fn headers(&self) -> &[u8] {
        let skb = self.as_raw();
        // SAFETY: `self` is valid by the type invariants. What is between `head` and `data` is one
        // allocation. The network header points into the buffer: if it was not set, to `head`, where
        // that of a received packet never is, and else behind a link header, from where on all bytes
        // are initialised.
        unsafe {
            let (data, head) = ((*skb).data.cast_const(), (*skb).head.cast_const());
            let start = bindings::skb_network_header(skb).cast::<u8>();
            if start <= head || start > data {
                return &[];
            }
            core::slice::from_raw_parts(start, data.addr() - start.addr())
        }
    }

    /// What is known of the checksum.
    pub fn checksum(&self) -> Checksum {
        // SAFETY: `self` is valid by the type invariants.
        match u32::from(unsafe { bindings::skb_ip_summed(self.as_raw()) }) {
            bindings::CHECKSUM_UNNECESSARY => Checksum::Unnecessary,
            bindings::CHECKSUM_COMPLETE => Checksum::Complete,
            bindings::CHECKSUM_PARTIAL => Checksum::Partial,
            _ => Checksum::None,
        }
    }

    /// The VLAN tag that the packet has beside its bytes, as in the header: priority and identifier.
    ///
    /// The tag of a packet that was received by the device of a VLAN is gone.
    pub fn vlan_tag(&self) -> Option<u16> {
        // SAFETY: `self` is valid by the type invariants.
        unsafe {
            bindings::skb_vlan_tag_present(self.as_raw())
                .then(|| bindings::skb_vlan_tag_get(self.as_raw()))
        }
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

    /// Another buffer of the same bytes, which are not copied. Any context; allocates.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn try_clone(&self) -> Result<Self> {
        // SAFETY: By the type invariants.
        let clone = unsafe { bindings::skb_clone(self.as_raw()) };
        // INVARIANT: The clone has one reference, which is ours. It refers to no more than the original.
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

    /// Cuts the packet down to its first `len` bytes; does nothing if it is not longer. Any context;
    /// may allocate.
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

/// A packet in the making.
///
/// There is room in front for headers, which are written last, and behind for the payload.
///
/// # Examples
///
/// ```
/// use net_ext::skb::NewSkBuff;
///
/// let mut packet = NewSkBuff::new(64, 5)?;
/// packet.append(b"hello")?;
/// packet.prepend(&5u32.to_be_bytes())?;
/// assert_eq!(packet.linear(), b"\0\0\0\x05hello");
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// The buffer is valid; it and its bytes belong to us alone, and it has no pages. Each of its bytes was
/// written.
#[repr(transparent)]
pub struct NewSkBuff(OwnedSkBuff);

impl NewSkBuff {
    /// Allocates room for `headroom` bytes in front and `capacity` behind. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, of which nothing is said in the log.
    pub fn new(headroom: usize, capacity: usize) -> Result<Self> {
        let size = headroom
            .checked_add(capacity)
            .and_then(|size| u32::try_from(size).ok())
            .filter(|size| *size <= 1 << 20)
            .ok_or(ENOMEM)?;
        // SAFETY: The function has no preconditions.
        let skb = NonNull::new(unsafe { bindings::alloc_skb(size) }).ok_or(ENOMEM)?;
        // SAFETY: The buffer is empty, and was allocated with as much room.
        unsafe { bindings::skb_reserve(skb.as_ptr(), headroom as c_int) };
        // INVARIANT: A new buffer belongs to its maker, is in one piece, and has no bytes.
        //
        // SAFETY: It has just been allocated, with one reference, which is given up here; it has no socket,
        // no route and no device.
        Ok(NewSkBuff(unsafe { OwnedSkBuff::from_raw(skb) }))
    }

    /// The room that is left in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        // SAFETY: By the type invariants, the buffer is valid.
        unsafe { bindings::skb_headroom(self.as_raw()) as usize }
    }

    /// The room that is left behind the bytes.
    #[inline]
    fn tailroom(&self) -> usize {
        // SAFETY: By the type invariants, the buffer is valid.
        usize::try_from(unsafe { bindings::skb_tailroom(self.as_raw()) }).unwrap_or(0)
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room for as many; none is added then.
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.append_with(bytes.len(), |to| to.append(bytes))
    }

    /// Adds up to `len` bytes at the end: those that `fill` appends.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room for as many. An error of `fill`; then none was added.
    #[inline]
    pub fn append_with<E: From<Error>>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut Appender<'_>) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        if len > self.tailroom() {
            return Err(ENOSPC.into());
        }
        let skb = self.as_raw();
        // SAFETY: By the type invariants, the buffer is valid and has no pages, so all its bytes are from `data`
        // on, and behind them is the room that was just asked for. It is ours alone, and lent together with
        // `self`. Bytes that nobody has written are `MaybeUninit`.
        let room = unsafe {
            let tail = (*skb).data.add((*skb).len as usize);
            core::slice::from_raw_parts_mut(tail.cast(), len)
        };
        // INVARIANT: Of no bytes, each was written.
        let mut appender = Appender { room, filled: 0 };
        fill(&mut appender)?;
        let filled = appender.filled;
        // INVARIANT: By the invariants of `Appender`, these bytes were written.
        //
        // SAFETY: By the type invariants, the buffer is valid, and there is room for `len` bytes, of which
        // these are some.
        unsafe { bindings::skb_put(self.as_raw(), filled as u32) };
        Ok(())
    }

    /// Adds bytes in front.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room for as many; none is added then.
    #[inline]
    pub fn prepend(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > self.headroom() {
            return Err(ENOSPC);
        }
        // INVARIANT: The bytes that are added are written at once.
        //
        // SAFETY: By the type invariants, the buffer is valid, and belongs to us alone, so that it overlaps
        // with nothing that is borrowed. There is room for as many bytes in front, which begin where the
        // function says.
        unsafe {
            let to = bindings::skb_push(self.as_raw(), bytes.len() as u32).cast::<u8>();
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(())
    }
}

/// Bytes that are being added to a packet ([`NewSkBuff::append_with`]).
///
/// # Invariants
///
/// The first `filled` bytes of `room` were written. There are as many at least.
pub struct Appender<'a> {
    room: &'a mut [MaybeUninit<u8>],
    filled: usize,
}

impl Appender<'_> {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room for as many; none is added then.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.append_by(bytes.len(), |to| {
            // SAFETY: Both have so many bytes, for `append_by` lends as many. Nobody else has a reference to
            // those at `to`, so they do not overlap. They are written before they are lent as bytes.
            Ok::<_, Error>(unsafe {
                let at = to.as_mut_ptr().cast::<u8>();
                at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                core::slice::from_raw_parts_mut(at, bytes.len())
            })
        })
    }

    /// Adds the `len` bytes that `fill` writes, and answers as bytes: what has a reference to bytes was
    /// written.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room for as many, `EINVAL` if `fill` answers other bytes; an error of `fill`.
    /// None is added then.
    #[inline]
    pub fn append_by<E: From<Error>>(
        &mut self,
        len: usize,
        fill: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> core::result::Result<&'b mut [u8], E>,
    ) -> core::result::Result<(), E> {
        let end = self.filled.checked_add(len).ok_or(ENOSPC)?;
        let room = self.room.get_mut(self.filled..end).ok_or(ENOSPC)?;
        let begin = room.as_ptr().cast::<u8>();
        let written = fill(room)?;
        if written.as_ptr() != begin || written.len() != len {
            return Err(EINVAL.into());
        }
        // INVARIANT: A reference to these bytes as bytes exists, which there may not be before they were
        // written. There are `end` of them, as `get_mut` has found.
        self.filled = end;
        Ok(())
    }

    /// The bytes that were added so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariants, so many bytes are there and were written; they are borrowed with
        // `self`.
        unsafe { core::slice::from_raw_parts(self.room.as_ptr().cast(), self.filled) }
    }
}

impl Deref for NewSkBuff {
    type Target = SkBuff;

    #[inline]
    fn deref(&self) -> &SkBuff {
        &self.0
    }
}

impl From<NewSkBuff> for OwnedSkBuff {
    fn from(skb: NewSkBuff) -> Self {
        skb.0
    }
}

/// Packets of one flow and one size, but for the last, that take the way out as one.
///
/// Each is whole, with headers of its own. The stack looks at the first one's; filters and queueing
/// disciplines see one packet, and where a device does not take it as such, it is cut into what it was
/// made of, which the device's driver then gets in one go, with one doorbell.
///
/// When it is cut, the lengths in the headers are set to what they were, and the checksums of IPv4 are
/// made anew; in front, each packet gets the link header of the first. They have one size because who
/// meets a list that was changed on its way copies all payload together and cuts that by size.
///
/// What was sent counts as on its way ([`Charged::queued`](crate::account::Charged::queued)) until the first
/// packet is gone, so up to a list for each queue of the device may be on its way without being counted.
///
/// # Invariants
///
/// `head` and what hangs behind it belong to us alone. `last` is the last of them. Each begins, or began,
/// with an IP header of `ip_len` bytes and a UDP header, in one piece, and has more; in front of that it
/// has room for [`PacketList::HEADROOM`] bytes.
pub struct PacketList {
    head: OwnedSkBuff,
    last: NonNull<bindings::sk_buff>,
    ip_len: usize,
    /// The bytes of the first one, with its headers, and of all, in which headers count once.
    size: usize,
    total: usize,
    count: usize,
}

impl PacketList {
    /// As many as GRO puts together, and so what every device has met.
    pub const MOST: usize = 64;

    /// The room that each packet has to have in front. When a list is cut, the link header, with tags or
    /// a tunnel's headers if some have got into it on the way, is copied there from the first packet's,
    /// and nobody looks whether there is room: lists of GRO have it. It is what drivers leave in front
    /// of what they receive (`NET_SKB_PAD`), and more.
    pub const HEADROOM: usize = 128;

    /// A list of one packet, which begins with an IP header, without options or extensions, and a UDP
    /// header.
    ///
    /// # Errors
    ///
    /// The packet, if it does not, has no more than its headers, or too little room in front.
    pub fn new(packet: NewSkBuff) -> Result<Self, NewSkBuff> {
        let size = packet.len();
        let Some(ip_len) = Self::fit(&packet) else {
            return Err(packet);
        };
        let last = OwnedSkBuff::from(packet).into_raw();
        // SAFETY: The only reference to it has just been given up. Nobody has given it a socket, a route or a
        // device, as it was a `NewSkBuff` until now.
        let head = unsafe { OwnedSkBuff::from_raw(last) };
        // INVARIANT: The packet was ours alone, and in one piece. `fit` has found its headers, something behind
        // them, and the room in front.
        Ok(PacketList {
            last,
            head,
            ip_len,
            size,
            total: size,
            count: 1,
        })
    }

    /// The length of a packet's IP header, if the packet may be in a list: it has that header, without options
    /// or extensions, a UDP header and more, and the room in front.
    #[inline]
    fn fit(packet: &NewSkBuff) -> Option<usize> {
        let ip_len = ip::udp_header_at(packet.linear())?;
        let is_fit = packet.len() > ip_len + UDP_LEN && packet.headroom() >= Self::HEADROOM;
        is_fit.then_some(ip_len)
    }

    /// Adds a packet of the same flow.
    ///
    /// # Errors
    ///
    /// The packet, if it is longer than the first one, has other headers, no more than these or too little
    /// room in front, comes behind one that is shorter, or makes too many: more than [`MOST`](Self::MOST), or
    /// more bytes than the length of an IP packet can tell.
    #[inline]
    pub fn push(&mut self, packet: NewSkBuff) -> Result<(), NewSkBuff> {
        let headers = self.ip_len + UDP_LEN;
        let size = packet.len();
        if Self::fit(&packet) != Some(self.ip_len) || size > self.size || self.is_full() {
            return Err(packet);
        }
        let skb = OwnedSkBuff::from(packet).into_raw();
        // INVARIANT: The packet was ours alone, and is the list's now. `fit` has found its headers, something
        // behind them, and the room in front.
        //
        // SAFETY: All are ours alone and valid, by the type invariants. `last` is the last of the list
        // that begins with `head`, and the packet has more than the headers, in one piece, as `NewSkBuff`
        // has all of it.
        unsafe {
            bindings::skb_list_add(
                self.head.as_raw(),
                self.last.as_ptr(),
                skb.as_ptr(),
                self.ip_len as u32,
            );
        }
        self.last = skb;
        self.total += size - headers;
        self.count += 1;
        Ok(())
    }

    /// Whether no other packet may follow.
    #[inline]
    pub fn is_full(&self) -> bool {
        let payload = self.size - self.ip_len - UDP_LEN;
        let is_even = self.total == self.size + (self.count - 1) * payload;
        !is_even || self.count == Self::MOST || self.total + payload > usize::from(u16::MAX)
    }

    /// How many packets there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first packet, behind which the others hang.
    pub(crate) fn into_head(self) -> OwnedSkBuff {
        self.head
    }
}

/// A queue of packets, first in, first out, for any number of hands on both ends.
///
/// It allocates nothing: packets are linked to each other.
///
/// # Invariants
///
/// `head` is an initialised queue of packets that are ours.
#[pin_data(PinnedDrop)]
pub struct Queue {
    #[pin]
    head: Opaque<bindings::sk_buff_head>,
}

// SAFETY: Packets belong to no thread.
unsafe impl Send for Queue {}

// SAFETY: The queue has a lock of its own.
unsafe impl Sync for Queue {}

impl Queue {
    /// An empty queue.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writing and stays in place.
            head <- Opaque::ffi_init(|slot| unsafe { bindings::skb_queue_head_init(slot) }),
        })
    }

    /// Adds a packet at the end, unless there are `limit` packets; then it is given back. Where
    /// several callers add at once, a few more may get in. Any context.
    #[inline]
    pub fn push(&self, skb: OwnedSkBuff, limit: usize) -> Result<(), OwnedSkBuff> {
        if self.len() >= limit {
            return Err(skb);
        }
        // SAFETY: The queue is initialised, and takes the packet over.
        unsafe { bindings::skb_queue_tail(self.head.get(), skb.into_raw().as_ptr()) };
        Ok(())
    }

    /// Takes the packet at the front. Any context.
    #[inline]
    pub fn pop(&self) -> Option<OwnedSkBuff> {
        if self.len() == 0 {
            return None;
        }
        // SAFETY: The queue is initialised.
        let skb = NonNull::new(unsafe { bindings::skb_dequeue(self.head.get()) })?;
        // SAFETY: By the type invariants, the packet was ours, and nobody else has taken it.
        Some(unsafe { OwnedSkBuff::from_raw(skb) })
    }

    /// How many there are at the moment. Any context.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "both would be stale at once")]
    pub fn len(&self) -> usize {
        // SAFETY: The queue is initialised; the length is loaded whole.
        unsafe { bindings::skb_queue_len_lockless(self.head.get()) as usize }
    }
}

#[pinned_drop]
impl PinnedDrop for Queue {
    fn drop(self: Pin<&mut Self>) {
        while self.pop().is_some() {}
    }
}
