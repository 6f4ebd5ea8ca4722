// SPDX-License-Identifier: GPL-2.0

//! Work requests: copied out of the ring once, and judged by the copy.

use zerocopy::{
    FromBytes,
    FromZeros,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::{
    base::{
        abi::{
            self,
            flush_level,
            flush_placement,
            wr_flags, //
        },
        attr::{
            Access,
            QpType, //
        },
        host::{
            Host,
            Queue, //
        },
        psn,
        ring::RingLayout,
        status::Status, //
    },
    memory::sgl::{
        PrivateBytes,
        Sgl,
        Side, //
    },
    object::{
        opcodes::Opcodes,
        qp_init::QpInit,
        wr_opcode::{
            Class,
            WrOpcode,
            WORD, //
        },
    },
};

/// The longest message in bytes (IBA volume 1, C9-8).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The rights to the peer's memory that a FLUSH with these placement types needs; none if there are
/// none of them, or others.
pub(crate) fn flush_rights(placement: u8) -> Option<Access> {
    match placement {
        flush_placement::GLOBAL => Some(Access::FLUSH_GLOBAL),
        flush_placement::PERSISTENT => Some(Access::FLUSH_PERSISTENT),
        BOTH => Some(Access::FLUSH),
        _ => None,
    }
}

/// The shared receive queue that a request over XRC is for. The words of an atomic operation are
/// all taken, so its number is in the place of immediate data.
pub(crate) fn remote_srq(head: &abi::SendWqe, opcode: WrOpcode) -> u32 {
    if opcode.is_atomic() {
        return u32::from_le_bytes(head.imm_or_inv);
    }
    let words: abi::XrcWords = zerocopy::transmute!(head.extra);
    words.remote_srq.get()
}

/// Puts that number where [`remote_srq`] finds it.
pub(crate) fn set_remote_srq(head: &mut abi::SendWqe, opcode: WrOpcode, srq: u32) {
    if opcode.is_atomic() {
        head.imm_or_inv = srq.to_le_bytes();
    } else {
        head.extra = zerocopy::transmute!(abi::XrcWords {
            remote_srq: srq.into(),
            reserved: [0; 12],
        });
    }
}

/// Both placement types.
const BOTH: u8 = flush_placement::GLOBAL | flush_placement::PERSISTENT;

/// The bytes of the start of a slot, which every slot has ([`RingLayout`]). They are copied in one
/// go: most requests have no others.
const START: usize = 64;

/// The private copy of a slot: its head, and what follows, scatter/gather entries or inline data.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RequestSlot<Head> {
    pub(crate) head: Head,
    entries: [abi::Sge; abi::MAX_SGE],
}

impl<Head> RequestSlot<Head>
where
    Self: FromBytes + IntoBytes,
{
    const FIRST_ENTRIES: usize = START.wrapping_sub(size_of::<Head>()) / size_of::<abi::Sge>();

    /// Copies the start of the slot at `offset`.
    #[inline(always)]
    fn read_start(&mut self, queue: &impl Queue, offset: u32) {
        if let Some(start) = self.as_mut_bytes().first_chunk_mut::<START>() {
            queue.read(offset, start);
        }
    }

    /// Copies those of `count` scatter/gather entries that are not in the start.
    #[inline(always)]
    fn read_entries(&mut self, queue: &impl Queue, offset: u32, count: usize) {
        if count > Self::FIRST_ENTRIES {
            self.read_other_entries(queue, offset, count);
        }
    }

    /// They are few as a rule, so each is copied by itself, as something whose size is known.
    #[inline(never)]
    fn read_other_entries(&mut self, queue: &impl Queue, offset: u32, count: usize) {
        let rest = self.entries.get_mut(Self::FIRST_ENTRIES..count);
        let rest = rest.unwrap_or_default();
        let mut offset = offset.wrapping_add(START as u32);
        for entry in rest {
            queue.read(offset, entry.as_mut_bytes());
            offset = offset.wrapping_add(size_of::<abi::Sge>() as u32);
        }
    }

    /// Copies the part of `length` bytes of inline data that is not in the start.
    #[inline(never)]
    fn read_inline(&mut self, queue: &impl Queue, offset: u32, length: usize) {
        let end = size_of::<Head>().wrapping_add(length);
        match self.as_mut_bytes().get_mut(START..end) {
            Some([]) | None => (),
            Some(rest) => queue.read(offset.wrapping_add(START as u32), rest),
        }
    }

    /// The first `count` entries.
    #[inline]
    fn entries(&self, count: usize) -> &[abi::Sge] {
        let count = count.min(self.entries.len());
        self.entries.get(..count).unwrap_or(&[])
    }

    /// The first `length` bytes of inline data.
    #[inline]
    fn inline(&self, length: usize) -> &[u8] {
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
    pub(crate) opcode: WrOpcode,
    /// The length of the message in bytes.
    pub(crate) length: u32,
    pub(crate) slot: RequestSlot<abi::SendWqe>,
}

impl SendRequest {
    pub(crate) fn new() -> Self {
        Self {
            index: 0,
            opcode: WrOpcode::Send,
            length: 0,
            slot: RequestSlot::new_zeroed(),
        }
    }

    /// Copies the head alone: enough to say which request it was.
    pub(crate) fn read_head(&mut self, queue: &impl Queue, ring: &RingLayout, index: u32) {
        self.index = index;
        self.length = 0;
        queue.read(ring.slot(index), self.slot.head.as_mut_bytes());
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
    pub(crate) fn read<H: Host>(
        &mut self,
        init: &QpInit<H>,
        opcodes: Opcodes,
        index: u32,
    ) -> Result<(), Status> {
        const KNOWN: u8 =
            wr_flags::SIGNALED | wr_flags::SOLICITED | wr_flags::FENCE | wr_flags::INLINE;

        let (queue, cap, offset) = (&init.queue, &init.cap, init.sq_ring.slot(index));
        self.index = index;
        self.length = 0;
        self.slot.read_start(queue, offset);
        let head = &self.slot.head;
        self.opcode = opcodes.parse(head.opcode).ok_or(Status::LocalOperation)?;
        // The words that only some have: values to compare and add, memory to bind or to register,
        // where a datagram goes, a shared receive queue.
        let has_extra = match init.qp_type {
            QpType::Rc | QpType::Uc | QpType::RawPacket => self.opcode.facts().has_words,
            QpType::Ud | QpType::XrcIni | QpType::XrcTgt => self.judge_addressee(init.qp_type)?,
        };
        if head.flags & !KNOWN != 0 || (head.extra != [0; 16] && !has_extra) {
            return Err(Status::LocalOperation);
        }
        let count = head.num_sge.get();
        let inline = head.inline_len.get();
        if !self.opcode.has_list() && (self.is_inline() || count != 0) {
            return Err(Status::LocalOperation);
        }
        if self.is_inline() {
            if count != 0 || self.opcode.has_response_data() {
                return Err(Status::LocalOperation);
            }
            if inline > cap.max_inline {
                return Err(Status::LocalLength);
            }
            self.slot.read_inline(queue, offset, inline as usize);
            self.length = inline;
        } else {
            if inline != 0 || u32::from(count) > cap.max_send_sge {
                return Err(Status::LocalOperation);
            }
            self.slot.read_entries(queue, offset, usize::from(count));
            self.length = total_length(self.entries()).ok_or(Status::LocalLength)?;
            if self.opcode.is_atomic() {
                // The old value comes back whole; bytes beyond it are left alone.
                if self.length < WORD {
                    return Err(Status::LocalLength);
                }
                self.length = WORD;
            }
        }
        match self.opcode.facts().class {
            Class::AtomicWrite => self.judge_atomic_write(),
            Class::Flush => self.judge_flush(),
            Class::Send | Class::Write | Class::Read | Class::Atomic(_) | Class::Key(_) => Ok(()),
        }
    }

    /// A request over XRC that goes to the peer names a shared receive queue there, by 24 bits, as
    /// a datagram names its receiver. Returns whether it has words.
    #[inline(never)]
    fn judge_addressee(&self, qp_type: QpType) -> Result<bool, Status> {
        if qp_type == QpType::Ud {
            return Ok(true);
        }
        if self.opcode.is_local() {
            return Ok(self.opcode.facts().has_words);
        }
        let words: abi::XrcWords = zerocopy::transmute!(self.slot.head.extra);
        let is_reserved_zero = self.opcode.is_atomic() || words.reserved == [0; 12];
        if remote_srq(&self.slot.head, self.opcode) > psn::MASK || !is_reserved_zero {
            return Err(Status::LocalOperation);
        }
        Ok(true)
    }

    /// The 8 bytes of an ATOMIC WRITE are in the head, and nothing else is.
    fn judge_atomic_write(&mut self) -> Result<(), Status> {
        let words: abi::AtomicWriteWords = zerocopy::transmute!(self.slot.head.extra);
        if words.reserved != [0; 8] {
            return Err(Status::LocalOperation);
        }
        self.length = WORD;
        Ok(())
    }

    /// A FLUSH names at least one placement type and a selectivity level, of those that there are.
    fn judge_flush(&self) -> Result<(), Status> {
        let words: abi::FlushWords = zerocopy::transmute!(self.slot.head.extra);
        let is_level = matches!(words.level, flush_level::RANGE | flush_level::REGION);
        if flush_rights(words.placement).is_none() || !is_level || words.reserved != [0; 10] {
            return Err(Status::LocalOperation);
        }
        Ok(())
    }

    fn has(&self, flag: u8) -> bool {
        self.slot.head.flags & flag != 0
    }

    /// The data stand in the request.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.has(wr_flags::INLINE)
    }

    /// The side of a copy that the request names, from `offset` on.
    #[inline(always)]
    pub(crate) fn side<H: Host>(&self, pd: u32, offset: u32) -> Side<'_, H> {
        if self.is_inline() {
            let bytes = self.slot.inline(self.length as usize);
            Side::Private(PrivateBytes(bytes.get(offset as usize..).unwrap_or(&[])))
        } else {
            let need = self.opcode.local_need();
            Side::List(Sgl::at(pd, need, self.entries(), offset))
        }
    }

    /// The scatter/gather list; empty for inline data.
    #[inline]
    pub(crate) fn entries(&self) -> &[abi::Sge] {
        self.slot.entries(usize::from(self.slot.head.num_sge.get()))
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
    /// The number in its completion: the index after its slot's, or over XRC that of the shared
    /// receive queue.
    pub(crate) queue_index: u32,
    pub(crate) slot: RequestSlot<abi::RecvWqe>,
}

impl ReceiveRequest {
    pub(crate) fn new() -> Self {
        Self {
            queue_index: 0,
            slot: RequestSlot::new_zeroed(),
        }
    }

    /// Copies the head alone: enough to say which request it was.
    pub(crate) fn read_head(&mut self, queue: &impl Queue, ring: &RingLayout, index: u32) {
        self.queue_index = index.wrapping_add(1);
        queue.read(ring.slot(index), self.slot.head.as_mut_bytes());
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
        let offset = ring.slot(index);
        self.queue_index = index.wrapping_add(1);
        self.slot.read_start(queue, offset);
        let head = &self.slot.head;
        let count = head.num_sge.get();
        if u32::from(count) > max_sge || head.reserved != [0; 6] {
            return Err(Status::LocalOperation);
        }
        self.slot.read_entries(queue, offset, usize::from(count));
        Ok(())
    }

    /// The scatter/gather list.
    #[inline]
    pub(crate) fn entries(&self) -> &[abi::Sge] {
        self.slot.entries(usize::from(self.slot.head.num_sge.get()))
    }
}
