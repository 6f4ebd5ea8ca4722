// SPDX-License-Identifier: GPL-2.0

//! The kernel as the engine's host: pinned pages, shared areas, the clock and the way up.
//!
//! The engine knows the world by the traits of `ferrule_engine::host`; here the kernel's objects
//! put them on. Nothing in this file decides anything.

use core::{
    convert::Infallible,
    mem::MaybeUninit, //
};

use ferrule_engine::{
    abi,
    host::{
        CompletionRing,
        Doorbells,
        Fault,
        Host,
        Queue,
        Region,
        Sink, //
    },
    CqEvent,
    Outgoing,
    QpEvent,
    SrqEvent,
    Trace,
    Unsent, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    boxed::boxed,
    crc32,
    error::code::ENOBUFS,
    mm::SharedArea,
    nospec::index_nospec,
    sync::smp_mb,
    time::monotonic_raw_ns, //
};
use net_ext::{
    skb::{
        Appender,
        SkBuff, //
    },
    Batch, //
};
use rdma::{
    cq,
    qp,
    srq,
    umem::Umem,
    Memory, //
};
use zerocopy::IntoBytes;

use crate::{
    soft::{
        net::{
            early::Early,
            gso::Pending,
            path::Path,
            received::Received,
            sender::Sender, //
        },
        posting::Posting, //
    },
    trace, //
};

/// How many packets are sent in one go: the softirq work that they lead to is put off meanwhile.
const BURST: u32 = 64;

/// The services of one call into the engine.
///
/// What is sent goes out in bursts, the last of which ends when this is dropped: after the shard has
/// been left, so that what comes back at once, from a virtual device, finds it free.
#[derive(Default)]
pub(crate) struct Kernel {
    /// What waits leaves before the burst ends.
    pending: Pending,
    burst: Option<Batch>,
    sent: u32,
    /// Packets that were lost on the way to the network device: there was no route, or a filter.
    lost: u32,
}

impl Kernel {
    /// Lets all that was sent leave, and answers how many packets were lost on the way to the network
    /// device, and how many lists of them have left.
    #[inline]
    pub(super) fn finish(mut self) -> (u32, u32) {
        self.pending.flush();
        let lost = self.lost.wrapping_add(self.pending.lost());
        (lost, self.pending.lists())
    }
}

/// Why a packet was not sent.
enum Failed {
    /// The payload could not be read.
    Fault,
    /// The network says so.
    Network(Error),
}

impl From<Fault> for Failed {
    fn from(_: Fault) -> Self {
        Failed::Fault
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Network(error)
    }
}

impl Host for Kernel {
    type Box<T> = KBox<T>;
    type Region = Registered;
    type Queue = Buffer;
    type CompletionRing = Ring;
    type Doorbells = Areas;
    type CqHandle = Arc<cq::Notifier>;
    type QpHandle = Arc<qp::Notifier>;
    type SrqHandle = Arc<srq::Notifier>;
    type Route = Path;
    type Packet = Received;
    type Early = Early;

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<KBox<T>> {
        boxed(make, GFP_KERNEL_ACCOUNT).ok()
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<KBox<[T; N]>> {
        let made = pin_init::init_array_from_fn::<_, N, T, Infallible>(make);
        KBox::init(made, GFP_KERNEL_ACCOUNT).ok()
    }

    #[inline(always)]
    fn index_nospec(index: usize, size: usize) -> usize {
        index_nospec(index, size)
    }

    #[inline]
    fn fence() {
        smp_mb();
    }

    #[inline]
    fn crc32(crc: u32, bytes: &[u8]) -> u32 {
        crc32::le(crc, bytes)
    }

    /// `CLOCK_MONOTONIC_RAW`, which is the clock of completions' timestamps.
    #[inline]
    fn now(&mut self) -> u64 {
        monotonic_raw_ns()
    }

    /// The one copy of the payload is from registered memory into the socket buffer. Softirqs wait
    /// for the end of the burst, so nothing that sending leads to runs in here.
    fn transmit(&mut self, path: &mut Path, packet: &mut Outgoing<'_, Self>) -> Result<(), Unsent> {
        // Whoever has a way has an account.
        let Some(sender) = &packet.queue().sender else {
            self.lost = self.lost.wrapping_add(1);
            return Ok(());
        };
        if !sender.has_room(packet.kind()) {
            return Err(Unsent::Full);
        }
        if self.sent % BURST == 0 {
            self.pending.flush();
            self.burst = None;
            self.burst = Some(Batch::new());
        }
        self.sent = self.sent.wrapping_add(1);
        let length = packet.length();
        let sent = path.send(&mut self.pending, sender, length, |ip, udp, to| {
            packet
                .write(ip, udp, &mut Body::new(to))
                .map_err(Failed::from)
        });
        match sent {
            Ok(()) => Ok(()),
            Err(Failed::Fault) => Err(Unsent::Fault),
            Err(Failed::Network(ENOBUFS | ENOMEM)) => Err(Unsent::Busy),
            Err(Failed::Network(_)) => {
                self.lost = self.lost.wrapping_add(1);
                Ok(())
            }
        }
    }

    fn destination(
        &mut self,
        queue: &Buffer,
        index: u32,
    ) -> Option<(ferrule_engine::Path, Option<Path>)> {
        let destination = queue.posting.as_ref()?.destination(index)?;
        Some(destination.into_parts())
    }

    fn completion_event(&mut self, cq: &Arc<cq::Notifier>) {
        cq.complete();
    }

    fn cq_event(&mut self, cq: &Arc<cq::Notifier>, event: CqEvent) {
        match event {
            CqEvent::Error => cq.error(),
        }
    }

    fn qp_event(&mut self, qp: &Arc<qp::Notifier>, event: QpEvent) {
        qp.event(match event {
            QpEvent::Fatal => qp::Event::Fatal,
            QpEvent::RequestError => qp::Event::RequestError,
            QpEvent::AccessError => qp::Event::AccessError,
            QpEvent::CommunicationEstablished => qp::Event::CommEstablished,
            QpEvent::SendQueueDrained => qp::Event::SqDrained,
            QpEvent::LastRequestReached => qp::Event::LastWqeReached,
        });
    }

    fn srq_event(&mut self, srq: &Arc<srq::Notifier>, event: SrqEvent) {
        srq.event(match event {
            SrqEvent::LimitReached => srq::Event::LimitReached,
            SrqEvent::Error => srq::Event::Error,
        });
    }

    #[inline]
    fn trace(&mut self, step: &Trace) {
        trace::step(step);
    }
}

/// What follows the UDP header of a packet that is being made.
struct Body<'a, 'b> {
    packet: &'a mut Appender<'b>,
    /// The bytes in front of it.
    front: usize,
}

impl<'a, 'b> Body<'a, 'b> {
    /// Begins where the packet ends.
    #[inline]
    fn new(packet: &'a mut Appender<'b>) -> Self {
        let front = packet.bytes().len();
        Body { packet, front }
    }
}

impl Sink<Registered> for Body<'_, '_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.packet.append(bytes).map_err(|_| Fault)
    }

    #[inline]
    fn put_memory(&mut self, from: &Registered, offset: u64, length: usize) -> Result<(), Fault> {
        let copied = self.packet.append_by(length, |to| from.read_to(offset, to));
        copied.map_err(|_: Error| Fault)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.packet.bytes().get(self.front..).unwrap_or(&[])
    }
}

/// The memory of a region: pinned pages of a program, or memory of a kernel user.
///
/// # Invariants
///
/// If the memory is a kernel user's, only the engine reaches it, by what a valid key names
/// ([`Registered::of_user`]).
pub(crate) struct Registered(Memory);

impl From<Umem> for Registered {
    fn from(umem: Umem) -> Self {
        // INVARIANT: It is a program's.
        Registered(umem.into())
    }
}

impl Registered {
    /// That of a kernel user, where the engine's checks of keys are all that keeps it from reaching
    /// what is not meant for it. The engine is safe code, and so is the trait by which it reaches the
    /// memory; but with such memory a fault in its checks (`key.rs`, `window.rs`, and those who name
    /// offsets after them: `sgl.rs`, `responder.rs`) is a fault in what keeps the kernel's memory safe.
    ///
    /// # Safety
    ///
    /// The region is handed to an engine, and to nobody else. Its range and its rights there are those
    /// by which the user knows it: no other address stands for the start of the memory than its own,
    /// and nothing is open before the user has registered it.
    pub(super) unsafe fn of_user(memory: Memory) -> Self {
        // INVARIANT: By the requirements of this function. The engine reaches the memory of its regions
        // when it carries out a request, of the queue pair or of its peer, with what the check of the
        // key that the request names has answered: that the key is valid there and then, and gives the
        // right to each byte.
        Registered(memory)
    }

    /// The address in the process whose pages were pinned.
    pub(super) fn start(&self) -> u64 {
        self.0.start()
    }

    /// Whether the memory may be written to.
    pub(super) fn writable(&self) -> bool {
        self.0.writable()
    }

    /// Reads bytes from `offset` on into memory that need not be initialised, and answers it: now it is.
    #[inline]
    fn read_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8]> {
        // SAFETY: By the type invariants, what is named was opened by the user.
        unsafe { self.0.read_to(offset, to) }
    }

    /// Writes `length` bytes of a received packet at `offset`.
    #[inline]
    pub(super) fn write_packet(
        &self,
        offset: u64,
        packet: &SkBuff,
        from: usize,
        length: usize,
    ) -> Result<(), Fault> {
        // SAFETY: By the type invariants, what is named was opened by the user, to whom the packet is.
        unsafe { self.0.write_packet(offset, packet, from, length) }.map_err(|_| Fault)
    }
}

impl Region for Registered {
    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: By the type invariants, what is named was opened by the user for writing.
        unsafe { self.0.write(offset, from) }.map_err(|_| Fault)
    }

    #[inline(always)]
    fn copy(
        from: &Self,
        from_offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<(), Fault> {
        // SAFETY: By the type invariants, what is named was opened by the users, at `to` for writing.
        unsafe { Memory::copy(&to.0, to_offset, &from.0, from_offset, length as u64) }
            .map_err(|_| Fault)
    }

    #[inline]
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        // SAFETY: By the type invariants, what is named was opened by the user for writing.
        unsafe { self.0.cmpxchg_u64(offset, compare, swap) }.map_err(|_| Fault)
    }

    #[inline]
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        // SAFETY: By the type invariants, what is named was opened by the user for writing.
        unsafe { self.0.fetch_add_u64(offset, add) }.map_err(|_| Fault)
    }

    #[inline]
    fn renew(&mut self) -> Option<u64> {
        self.0.renew()
    }
}

/// The buffer of a queue pair or a shared receive queue: the rings and the indices.
pub(crate) struct Buffer {
    area: Arc<SharedArea>,
    /// Who fills the rings of a kernel user.
    posting: Option<Arc<Posting>>,
    /// What its packets are charged to, once it sends any.
    sender: Option<Sender>,
}

impl Buffer {
    /// One whose requests tell all themselves.
    pub(crate) fn new(area: Arc<SharedArea>) -> Self {
        Buffer {
            area,
            posting: None,
            sender: None,
        }
    }

    /// That of a kernel user's queue pair.
    pub(crate) fn of_kernel(posting: Arc<Posting>) -> Self {
        Buffer {
            area: posting.area(),
            posting: Some(posting),
            sender: None,
        }
    }

    /// Whether there is something that packets are charged to.
    pub(super) fn has_sender(&self) -> bool {
        self.sender.is_some()
    }

    /// Packets are charged to this from now on. Answers what was there.
    pub(super) fn set_sender(&mut self, sender: Sender) -> Option<Sender> {
        self.sender.replace(sender)
    }
}

impl Queue for Buffer {
    #[inline]
    fn size(&self) -> usize {
        self.area.len()
    }

    #[inline]
    fn read(&self, offset: u32, to: &mut [u8]) {
        if self.area.read_bytes(offset as usize, to).is_err() {
            to.fill(0);
        }
    }

    #[inline]
    fn load(&self, offset: u32) -> u32 {
        self.area.load_u32_acquire(offset as usize).unwrap_or(0)
    }

    #[inline]
    fn store(&self, offset: u32, value: u32) {
        let _ = self.area.store_u32_release(offset as usize, value);
    }
}

/// A completion queue: the slots, which user space can only read, and its control words.
pub(crate) struct Ring {
    pub(crate) slots: Arc<SharedArea>,
    pub(crate) ctrl: Arc<SharedArea>,
}

pub(super) const CQE_SIZE: usize = size_of::<abi::Cqe>();

impl Ring {
    /// An empty one of `depth` slots, a power of two.
    pub(crate) fn new(depth: u32) -> Result<Self> {
        Ok(Ring {
            slots: Self::slots(depth)?,
            ctrl: Self::ctrl()?,
        })
    }

    /// So many empty slots, a power of two.
    pub(crate) fn slots(depth: u32) -> Result<Arc<SharedArea>> {
        let size = depth as usize * CQE_SIZE;
        Ok(Arc::new(SharedArea::new(size)?, GFP_KERNEL_ACCOUNT)?)
    }

    /// Control words.
    pub(crate) fn ctrl() -> Result<Arc<SharedArea>> {
        let size = size_of::<abi::CqCtrl>();
        Ok(Arc::new(SharedArea::new(size)?, GFP_KERNEL_ACCOUNT)?)
    }
}

/// The last word of 64 bits: the phase is its upper half, and below it is what is reserved.
const CQE_LAST: usize = CQE_SIZE - size_of::<u64>();
const _: () = assert!(core::mem::offset_of!(abi::Cqe, phase) == CQE_LAST + size_of::<u32>());

impl CompletionRing for Ring {
    #[inline]
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        if let Some(body) = cqe.as_bytes().get(..CQE_LAST) {
            let _ = self.slots.write_bytes(slot as usize * CQE_SIZE, body);
        }
    }

    #[inline]
    fn publish(&self, slot: u32, phase: u32) {
        let _ = self
            .slots
            .store_u64_release(slot as usize * CQE_SIZE + CQE_LAST, u64::from(phase) << 32);
    }

    #[inline]
    fn consumer(&self) -> u32 {
        self.ctrl
            .load_u32_acquire(core::mem::offset_of!(abi::CqCtrl, consumer))
            .unwrap_or(0)
    }

    #[inline]
    fn arm(&self) -> u32 {
        self.ctrl
            .load_u32(core::mem::offset_of!(abi::CqCtrl, arm))
            .unwrap_or(0)
    }
}

/// A user context's doorbell area, which it writes, and its status area, which we write.
pub(crate) struct Areas {
    pub(crate) doorbell: Arc<SharedArea>,
    pub(crate) status: Arc<SharedArea>,
}

const TOP: usize = core::mem::offset_of!(abi::Db, top);
const LEAF: usize = abi::DB_LEAF_OFFSET;

impl Doorbells for Areas {
    #[inline]
    fn seq(&self) -> u32 {
        self.doorbell
            .load_u32_acquire(core::mem::offset_of!(abi::Db, seq))
            .unwrap_or(0)
    }

    #[inline]
    fn top(&self, word: usize) -> u64 {
        self.doorbell.load_u64(TOP + word * 8).unwrap_or(0)
    }

    #[inline]
    fn leaf(&self, word: usize) -> u64 {
        self.doorbell.load_u64(LEAF + word * 8).unwrap_or(0)
    }

    #[inline]
    fn ack_top(&self, word: usize) -> u64 {
        self.status.load_u64(TOP + word * 8).unwrap_or(0)
    }

    #[inline]
    fn ack_leaf(&self, word: usize) -> u64 {
        self.status.load_u64(LEAF + word * 8).unwrap_or(0)
    }

    #[inline]
    fn set_ack_top(&self, word: usize, value: u64) {
        let _ = self.status.store_u64(TOP + word * 8, value);
    }

    #[inline]
    fn set_ack_leaf(&self, word: usize, value: u64) {
        let _ = self.status.store_u64(LEAF + word * 8, value);
    }

    fn set_sleeping(&self, sleeping: bool) {
        let _ = self.status.store_u32(
            core::mem::offset_of!(abi::Status, sleeping),
            sleeping.into(),
        );
    }

    fn set_dead(&self) {
        let _ = self
            .status
            .store_u32(core::mem::offset_of!(abi::Status, dead), 1);
    }
}
