// SPDX-License-Identifier: GPL-2.0

//! Packets in the making.

use core::{
    mem::MaybeUninit,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::prelude::*;

use super::{
    OwnedSkBuff,
    SkBuff, //
};
use crate::bindings;

/// A packet in the making.
///
/// There is space in front for headers, which are written last, and behind for the payload.
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
/// The buffer is valid; it and its bytes belong to us alone, and it has no pages. Each of its bytes
/// was written.
#[repr(transparent)]
pub struct NewSkBuff(OwnedSkBuff);

impl NewSkBuff {
    /// Allocates space for `headroom` bytes in front and `capacity` behind. Any context.
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
        // SAFETY: The buffer is empty, and was allocated with as much space.
        unsafe { bindings::skb_reserve(skb.as_ptr(), headroom as c_int) };
        // INVARIANT: A new buffer belongs to its maker, is in one piece, and has no bytes.
        //
        // SAFETY: It has just been allocated, with one reference, which is given up here; it has no
        // socket, no route and no device.
        Ok(NewSkBuff(unsafe { OwnedSkBuff::from_raw(skb) }))
    }

    /// The space that is left in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        // SAFETY: By the type invariants, the buffer is valid.
        unsafe { bindings::skb_headroom(self.as_raw()) as usize }
    }

    /// The space that is left behind the bytes.
    #[inline]
    fn tailroom(&self) -> usize {
        // SAFETY: By the type invariants, the buffer is valid.
        usize::try_from(unsafe { bindings::skb_tailroom(self.as_raw()) }).unwrap_or(0)
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for as many; none is added then.
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.append_with(bytes.len(), |to| to.append(bytes))
    }

    /// Adds up to `len` bytes at the end: those that `fill` appends.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for as many. An error of `fill`; then none was added.
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
        // SAFETY: By the type invariants, the buffer is valid and has no pages, so all its bytes
        // are from `data` on, and behind them is the space that was just asked for. It is ours
        // alone, and lent together with `self`. Bytes that nobody has written are `MaybeUninit`.
        let spare = unsafe {
            let tail = (*skb).data.add((*skb).len as usize);
            core::slice::from_raw_parts_mut(tail.cast(), len)
        };
        // INVARIANT: Of no bytes, each was written.
        let mut appender = Appender { spare, filled: 0 };
        fill(&mut appender)?;
        let filled = appender.filled;
        // INVARIANT: By the invariants of `Appender`, these bytes were written.
        //
        // SAFETY: By the type invariants, the buffer is valid, and there is space for `len` bytes,
        // of which these are some.
        unsafe { bindings::skb_put(self.as_raw(), filled as u32) };
        Ok(())
    }

    /// Adds bytes in front.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for as many; none is added then.
    #[inline]
    pub fn prepend(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > self.headroom() {
            return Err(ENOSPC);
        }
        // INVARIANT: The bytes that are added are written at once.
        //
        // SAFETY: By the type invariants, the buffer is valid, and belongs to us alone, so that it
        // overlaps with nothing that is borrowed. There is space for as many bytes in front, which
        // begin where the function says.
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
/// The first `filled` bytes of `spare` were written. There are as many at least.
pub struct Appender<'a> {
    spare: &'a mut [MaybeUninit<u8>],
    filled: usize,
}

impl Appender<'_> {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for as many; none is added then.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.append_by(bytes.len(), |to| {
            // SAFETY: Both have so many bytes, for `append_by` lends as many. Nobody else has a
            // reference to those at `to`, so they do not overlap. They are written before they are
            // lent as bytes.
            Ok::<_, Error>(unsafe {
                let at = to.as_mut_ptr().cast::<u8>();
                at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                core::slice::from_raw_parts_mut(at, bytes.len())
            })
        })
    }

    /// Adds the `len` bytes that `fill` writes and returns as bytes: memory to which there is a
    /// reference as bytes was written.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space for as many, `EINVAL` if `fill` answers other bytes; an error
    /// of `fill`. None is added then.
    #[inline]
    pub fn append_by<E: From<Error>>(
        &mut self,
        len: usize,
        fill: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> core::result::Result<&'b mut [u8], E>,
    ) -> core::result::Result<(), E> {
        let end = self.filled.checked_add(len).ok_or(ENOSPC)?;
        let dst = self.spare.get_mut(self.filled..end).ok_or(ENOSPC)?;
        let begin = dst.as_ptr().cast::<u8>();
        let written = fill(dst)?;
        if written.as_ptr() != begin || written.len() != len {
            return Err(EINVAL.into());
        }
        // INVARIANT: A reference to these bytes as bytes exists, which there may not be before they
        // were written. There are `end` of them, as `get_mut` has found.
        self.filled = end;
        Ok(())
    }

    /// The bytes that were added so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariants, so many bytes are there and were written; they are
        // borrowed with `self`.
        unsafe { core::slice::from_raw_parts(self.spare.as_ptr().cast(), self.filled) }
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
