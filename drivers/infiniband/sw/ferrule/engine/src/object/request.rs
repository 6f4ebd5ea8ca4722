// SPDX-License-Identifier: GPL-2.0

//! Work requests: copied out of the ring once, and judged by the copy.

use zerocopy::IntoBytes;

use crate::{
    base::{
        abi::{
            self,
            wr_flags, //
        },
        attr::QpType,
        host::{
            Host,
            Queue, //
        },
        ring::RingLayout,
        status::Status, //
    },
    memory::sgl::{
        Cursor,
        PrivateBytes,
        Sgl,
        Side, //
    },
    object::{
        opcode::Opcode,
        qp_init::QpInit, //
    },
};

/// The longest message in bytes (IBA volume 1, C9-8).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The bytes that an atomic operation works on.
pub(crate) const WORD: u32 = 8;

/// The private copy of what follows the head of a slot: scatter/gather entries or inline data.
pub(crate) struct Payload {
    entries: [abi::Sge; abi::MAX_SGE],
}

impl Payload {
    pub(crate) fn new() -> Self {
        Self {
            entries: [abi::Sge::default(); abi::MAX_SGE],
        }
    }

    /// Copies `count` scatter/gather entries from `offset`. They are few as a rule, so each is copied
    /// by itself, as something whose size is known.
    #[inline(always)]
    fn read_entries(&mut self, queue: &impl Queue, offset: u32, count: usize) {
        let mut offset = offset;
        for entry in self.entries.iter_mut().take(count) {
            queue.read(offset, entry.as_mut_bytes());
            offset = offset.wrapping_add(size_of::<abi::Sge>() as u32);
        }
    }

    /// Copies `length` bytes of inline data from `offset`.
    fn read_inline(&mut self, queue: &impl Queue, offset: u32, length: usize) {
        match self.entries.as_mut_bytes().get_mut(..length) {
            Some([]) | None => (),
            Some(bytes) => queue.read(offset, bytes),
        }
    }

    /// The first `count` entries.
    #[inline]
    pub(crate) fn entries(&self, count: usize) -> &[abi::Sge] {
        self.entries.get(..count).unwrap_or(&[])
    }

    /// The first `length` bytes of inline data.
    #[inline]
    pub(crate) fn inline(&self, length: usize) -> &[u8] {
        self.entries.as_bytes().get(..length).unwrap_or(&[])
    }
}

/// The length of all entries together; `None` if no message can be that long.
#[inline]
pub(crate) fn total_length(entries: &[abi::Sge]) -> Option<u32> {
    let mut total = 0u32;
    for entry in entries {
        total = total.checked_add(entry.length.get())?;
    }
    (total <= MAX_MESSAGE).then_some(total)
}

/// The private copy of a send request.
pub(crate) struct SendRequest {
    /// The index of its slot.
    pub(crate) index: u32,
    pub(crate) head: abi::SendWqe,
    pub(crate) opcode: Opcode,
    /// The length of the message in bytes.
    pub(crate) length: u32,
    pub(crate) payload: Payload,
}

impl SendRequest {
    pub(crate) fn new() -> Self {
        Self {
            index: 0,
            head: abi::SendWqe::default(),
            opcode: Opcode::Send,
            length: 0,
            payload: Payload::new(),
        }
    }

    /// Copies the head alone: enough to say which request it was.
    pub(crate) fn read_head(&mut self, queue: &impl Queue, ring: &RingLayout, index: u32) {
        self.index = index;
        self.length = 0;
        queue.read(ring.slot(index), self.head.as_mut_bytes());
    }

    /// The operation of the request of `index`, as the byte that the ring has at present.
    pub(crate) fn peek(queue: &impl Queue, ring: &RingLayout, index: u32) -> u8 {
        const OPCODE: u32 = core::mem::offset_of!(abi::SendWqe, opcode) as u32;

        let mut byte = [0];
        queue.read(ring.slot(index).wrapping_add(OPCODE), &mut byte);
        let [opcode] = byte;
        opcode
    }

    /// Copies the request of `index` and judges the copy.
    ///
    /// # Errors
    ///
    /// The status with which the request ends at once. The head has been copied all the same.
    #[inline(always)]
    pub(crate) fn read<H: Host>(&mut self, init: &QpInit<H>, index: u32) -> Result<(), Status> {
        const KNOWN: u8 =
            wr_flags::SIGNALED | wr_flags::SOLICITED | wr_flags::FENCE | wr_flags::INLINE;

        let (queue, ring, cap) = (&init.queue, &init.sq, &init.cap);
        self.read_head(queue, ring, index);
        let head = &self.head;
        self.opcode = Opcode::parse(head.opcode, init.qp_type, init.user.is_privileged())
            .ok_or(Status::LocalOperation)?;
        // The words that only some have: what to compare and add, what to bind or to register, where a
        // datagram goes.
        let has_extra = self.opcode.facts().has_words || init.qp_type == QpType::Ud;
        if head.flags & !KNOWN != 0 || (head.extra != [0; 16] && !has_extra) {
            return Err(Status::LocalOperation);
        }
        let count = head.num_sge.get();
        let inline = head.inline_len.get();
        if self.opcode.is_local() && (self.is_inline() || count != 0) {
            return Err(Status::LocalOperation);
        }
        let body = ring
            .slot(index)
            .wrapping_add(size_of::<abi::SendWqe>() as u32);
        if self.is_inline() {
            if count != 0 || self.opcode.has_response_data() {
                return Err(Status::LocalOperation);
            }
            if inline > cap.max_inline {
                return Err(Status::LocalLength);
            }
            self.payload.read_inline(queue, body, inline as usize);
            self.length = inline;
        } else {
            if inline != 0 || u32::from(count) > cap.max_send_sge {
                return Err(Status::LocalOperation);
            }
            self.payload.read_entries(queue, body, usize::from(count));
            self.length = total_length(self.entries()).ok_or(Status::LocalLength)?;
        }
        if self.opcode.is_atomic() {
            // The old value comes back whole; bytes beyond it are left alone.
            if self.length < WORD {
                return Err(Status::LocalLength);
            }
            self.length = WORD;
        }
        Ok(())
    }

    fn has(&self, flag: u8) -> bool {
        self.head.flags & flag != 0
    }

    /// The data stand in the request.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.has(wr_flags::INLINE)
    }

    /// Completes with a completion, even on success.
    #[inline]
    pub(crate) fn is_signaled(&self) -> bool {
        self.has(wr_flags::SIGNALED)
    }

    /// The side of a copy that the request names, from `offset` on, where `cursor` stands.
    #[inline(always)]
    pub(crate) fn side<'a, H: Host>(
        &'a self,
        pd: u32,
        offset: u32,
        cursor: &'a mut Cursor,
    ) -> Side<'a, H> {
        if self.is_inline() {
            let bytes = self.payload.inline(self.length as usize);
            Side::Private(PrivateBytes(bytes.get(offset as usize..).unwrap_or(&[])))
        } else {
            Side::List(Sgl {
                pd,
                need: self.opcode.local_need(),
                entries: self.entries(),
                cursor,
            })
        }
    }

    /// The scatter/gather list; empty for inline data.
    #[inline]
    pub(crate) fn entries(&self) -> &[abi::Sge] {
        self.payload.entries(usize::from(self.head.num_sge.get()))
    }
}

/// Why a receive request could not be had.
pub(crate) enum NoReceive {
    /// None is posted.
    Empty,
    /// It is malformed.
    Malformed(Status),
    /// The ring is broken.
    Jump,
}

/// The private copy of a receive request.
pub(crate) struct ReceiveRequest {
    /// The index of its slot.
    pub(crate) index: u32,
    pub(crate) head: abi::RecvWqe,
    pub(crate) payload: Payload,
}

impl ReceiveRequest {
    pub(crate) fn new() -> Self {
        Self {
            index: 0,
            head: abi::RecvWqe::default(),
            payload: Payload::new(),
        }
    }

    /// Copies the head alone: enough to say which request it was.
    pub(crate) fn read_head(&mut self, queue: &impl Queue, ring: &RingLayout, index: u32) {
        self.index = index;
        queue.read(ring.slot(index), self.head.as_mut_bytes());
    }

    /// Copies the request of `index` and judges the copy.
    ///
    /// # Errors
    ///
    /// The status with which the request ends at once. The head has been copied all the same.
    pub(crate) fn read(
        &mut self,
        queue: &impl Queue,
        ring: &RingLayout,
        index: u32,
        max_sge: u32,
    ) -> Result<(), Status> {
        self.read_head(queue, ring, index);
        let count = self.head.num_sge.get();
        if u32::from(count) > max_sge || self.head.reserved != [0; 6] {
            return Err(Status::LocalOperation);
        }
        let body = ring
            .slot(index)
            .wrapping_add(size_of::<abi::RecvWqe>() as u32);
        self.payload.read_entries(queue, body, usize::from(count));
        Ok(())
    }

    /// The scatter/gather list.
    #[inline]
    pub(crate) fn entries(&self) -> &[abi::Sge] {
        self.payload.entries(usize::from(self.head.num_sge.get()))
    }
}
