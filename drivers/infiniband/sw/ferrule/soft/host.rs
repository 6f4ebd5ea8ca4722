// SPDX-License-Identifier: GPL-2.0

//! The kernel as the engine's host: the services that a call into the engine needs.
//!
//! The engine knows the world by the traits of `ferrule_engine::host`. They are implemented here,
//! in [`memory`](super::memory), in [`areas`](super::areas) and in [`net`](super::net). Nothing in
//! this file decides anything.

use core::convert::Infallible;

use ferrule_engine::{
    host::{
        Fault,
        Host,
        JobPlace,
        Sink, //
    },
    CqEvent,
    Outgoing,
    QpEvent,
    Sends,
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
    nospec::index_nospec,
    sync::smp_mb,
    task::need_resched,
    time::monotonic_raw_ns, //
};
use net_ext::{
    backlog_len,
    skb::Appender,
    Batch, //
};
use rdma::{
    cq,
    qp,
    srq, //
};

use super::{
    areas::Buffer,
    memory::Registered,
    net::{
        gso::Pending,
        path::UdpPath,
        received::Received,
        reorder::ReorderBuffer,
        sender::Sender, //
    },
};
use crate::{
    backend::ring::{
        CqRing,
        Doorbells, //
    },
    trace, //
};

/// How many packets are sent in one go: the softirq work that they lead to is put off meanwhile.
const BURST: u32 = 64;

/// The same for packets by the loopback device. All of them come back in one softirq, which takes 2
/// us for each and is not preempted.
const LOOPBACK_BURST: u32 = 4;

/// So many packets by the loopback device may wait behind a softirq that sends them: those of a
/// turn.
const LOOPBACK_BACKLOG: u32 = 16;

/// The kind of a caller of the engine.
#[derive(Clone, Copy, Default)]
pub(super) enum Caller {
    /// A thread. It can wait for the shard to hand a job back, so the bytes of large messages are
    /// copied outside. It leaves the shard when another thread is to have the processor.
    Thread,
    /// A softirq that leaves the rest to another one when a thread is to have the processor. The
    /// engine copies at once.
    #[default]
    Softirq,
    /// A softirq that does not leave it: that of a packet from another machine.
    PromptSoftirq,
}

impl Caller {
    /// Whether it may wait for the shard.
    #[inline]
    pub(super) fn may_wait(self) -> bool {
        matches!(self, Caller::Thread)
    }

    /// Whether it gives way now, to a thread that is to have the processor.
    #[inline]
    pub(super) fn gives_way(self) -> bool {
        !matches!(self, Caller::PromptSoftirq) && need_resched()
    }
}

/// The services of one call into the engine.
///
/// Packets go out in bursts. The last burst ends when this is dropped.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Packets that wait leave before the burst ends.
    pending: Pending,
    burst: Option<Batch>,
    /// How much of [`BURST`] has been sent.
    sent: u32,
    /// Packets that were lost on the way to the network device: there was no route, or a filter.
    lost: u32,
    caller: Caller,
    /// For tracepoints.
    dev_index: u32,
    /// Others wait for the shard.
    pub(super) contended: bool,
    job: JobPlace<Kernel>,
    /// The caller is a softirq, and [`LOOPBACK_BACKLOG`] packets wait behind it.
    is_backlogged: bool,
}

impl Kernel {
    /// The services of a call by such a caller into an engine of the device with this index.
    #[inline]
    pub(super) fn new(dev_index: u32, caller: Caller) -> Self {
        Kernel {
            dev_index,
            caller,
            ..Kernel::default()
        }
    }

    /// Whether the caller may wait: [`Caller::may_wait`].
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        self.caller.may_wait()
    }

    /// The copy job that the call has led to.
    #[inline]
    pub(super) fn take_job(&mut self) -> JobPlace<Kernel> {
        self.job.take()
    }

    /// A packet of such a queue pair is about to be sent, in this burst or a new one. It takes
    /// `part` of the burst.
    ///
    /// # Errors
    ///
    /// [`Unsent::Full`] without write space, [`Unsent::Busy`] if it would overtake packets before
    /// it.
    #[inline]
    fn begin_one(&mut self, sender: &Sender, kind: Sends, part: u32) -> Result<(), Unsent> {
        if !sender.has_write_space(kind) {
            return Err(Unsent::Full);
        }
        if self.burst.is_none() {
            self.burst = Some(Batch::new());
            self.sent = 0;
        }
        self.sent = self.sent.wrapping_add(part);
        if !sender.keeps_order() {
            return Err(Unsent::Busy);
        }
        Ok(())
    }

    /// The engine's answer for a packet that was sent, or was not. It may be the last one of its
    /// burst: softirqs then take their time before the engine looks whether to give way.
    #[inline]
    fn end_one(&mut self, sent: Result<(), Failed>) -> Result<(), Unsent> {
        if self.sent >= BURST {
            self.pending.flush();
            self.burst = None;
        }
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

    /// Lets all that was sent leave, and returns how many packets were lost on the way to the
    /// network device, and how many lists of them have left.
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
    type CompletionRing = CqRing;
    type Doorbells = Doorbells;
    type CqHandle = Arc<cq::Notifier>;
    type QpHandle = Arc<qp::Notifier>;
    type SrqHandle = Arc<srq::Notifier>;
    type Route = UdpPath;
    type Packet = Received;
    type Reorder = ReorderBuffer;

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
    fn now(&self) -> u64 {
        monotonic_raw_ns()
    }

    /// The one copy of the payload is from registered memory into the socket buffer. Softirqs wait
    /// for the end of the burst, so no packet is delivered in here.
    fn transmit<'a>(
        &mut self,
        path: &mut UdpPath,
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent> {
        // A queue pair that has a way has an account.
        let Some(sender) = &packet.queue().sender else {
            self.lost = self.lost.wrapping_add(1);
            return Ok(());
        };
        let is_loopback = path.is_loopback();
        let part = if is_loopback {
            BURST / LOOPBACK_BURST
        } else {
            1
        };
        self.begin_one(sender, packet.kind(), part)?;
        let length = packet.length();
        let sent = path.send(&mut self.pending, sender, length, |ip, udp, to| {
            packet
                .write(ip, udp, &mut Body::new(to))
                .map_err(Failed::from)
        });
        self.is_backlogged = is_loopback && !self.may_wait() && backlog_len() >= LOOPBACK_BACKLOG;
        self.end_one(sent)
    }

    fn frame_limit(&mut self, queue: &Buffer) -> u32 {
        let frames = queue.sender.as_ref().and_then(Sender::frames);
        frames.map_or(0, |frames| frames.limit())
    }

    /// As [`Host::transmit`].
    fn transmit_frame<'a>(&mut self, frame: &mut impl Outgoing<'a, Self>) -> Result<(), Unsent> {
        let sender = frame.queue().sender.as_ref();
        let Some((sender, frames)) = sender.and_then(|sender| Some((sender, sender.frames()?)))
        else {
            self.lost = self.lost.wrapping_add(1);
            return Ok(());
        };
        self.begin_one(sender, frame.kind(), 1)?;
        let sent = frames.send(sender.charged(), frame.length(), |to| {
            frame
                .write(&[], &[], &mut Body::new(to))
                .map_err(Failed::from)
        });
        sender.sent();
        self.end_one(sent)
    }

    fn destination(
        &mut self,
        queue: &Buffer,
        index: u32,
    ) -> Option<(ferrule_engine::Path, Option<UdpPath>)> {
        let posting = queue.posting.as_ref()?;
        let destination = posting.destination(index, |slots, slot| {
            slots.get(slot as usize)?.as_ref().cloned()
        })?;
        Some(destination.into_parts())
    }

    fn completion_event(&mut self, cq: &Arc<cq::Notifier>) {
        cq.complete_or_queue();
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
    fn job_place(&mut self) -> Option<&mut JobPlace<Kernel>> {
        self.may_wait().then_some(&mut self.job)
    }

    #[inline]
    fn need_resched(&mut self) -> bool {
        self.is_backlogged || self.caller.gives_way()
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.contended
    }

    #[inline(always)]
    fn trace(&mut self, step: &Trace) {
        trace::step(self.dev_index, step);
    }
}

/// The bytes behind the UDP header of a packet that is being made.
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
