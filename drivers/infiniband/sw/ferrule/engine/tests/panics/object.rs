// SPDX-License-Identifier: GPL-2.0

//! The engine with a host of which nothing is known, as machine code: `tests/panics.rs`
//! compiles this and looks what in it can panic.

#![no_std]

extern crate alloc;

use alloc::boxed::Box;

use ferrule_engine::{
    abi, Ah, Block, Budget, Carried, Chunk, CompletionRing, Config, ContextId, Cq, CqEvent, CqInfo,
    CqInit, CqResize, Doorbells, Engine, Error, Fault, Gid, Group, Host, Job, JobPlace, Moderation,
    Modify, Mr, MrChange, MrInit, Mtu, Mw, MwType, Outcome, Outgoing, PacketBytes, Qp, QpEvent,
    QpId, QpInfo, QpInit, Queue, Refused, Region, Reorder, RxPacket, SharedBytes, Sink, Sleep, Srq,
    SrqEvent, SrqInfo, SrqInit, SrqResize, Trace, Unsent, UserContext, Vport,
};

/// The compiler does not know the answer of a method of the host.
#[inline(never)]
fn unknown(value: u64) -> u64 {
    core::hint::black_box(value)
}

/// A host, and all that is behind its traits.
#[derive(Default)]
pub struct Opaque {
    job: JobPlace<Self>,
}

/// Bytes of its memory that a copy job refers to.
pub struct OpaqueBytes;

macro_rules! fault_unless {
    ($value:expr) => {
        if unknown($value) == 0 {
            Err(Fault)
        } else {
            Ok(())
        }
    };
}

impl SharedBytes for OpaqueBytes {
    fn copy(_: &Self, from: u64, _: &Self, to: u64, length: usize) {
        unknown(from ^ to ^ length as u64);
    }
}

impl Region for Opaque {
    type Shared = OpaqueBytes;

    fn share(&self, write: bool) -> Option<OpaqueBytes> {
        (unknown(write.into()) == 0).then_some(OpaqueBytes)
    }

    fn write(&self, offset: u64, _: &[u8]) -> Result<(), Fault> {
        fault_unless!(offset)
    }

    fn copy(_: &Self, from: u64, _: &Self, to: u64, length: usize) -> Result<(), Fault> {
        fault_unless!(from ^ to ^ length as u64)
    }

    fn compare_swap(&self, offset: u64, _: u64, swap: u64) -> Result<u64, Fault> {
        fault_unless!(offset).map(|()| unknown(swap))
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        fault_unless!(offset).map(|()| unknown(add))
    }

    fn store_word(&self, offset: u64, value: u64) -> Result<(), Fault> {
        fault_unless!(offset ^ value)
    }
}

impl Sink<Opaque> for Opaque {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        fault_unless!(bytes.len() as u64)
    }

    fn put_memory(&mut self, _: &Opaque, offset: u64, length: usize) -> Result<(), Fault> {
        fault_unless!(offset ^ length as u64)
    }

    fn bytes(&self) -> &[u8] {
        let length = unknown(64) as usize;
        [0; 64].get(..length).unwrap_or(&[])
    }
}

impl Queue for Opaque {
    fn size(&self) -> usize {
        unknown(1) as usize
    }

    fn read(&self, offset: u32, to: &mut [u8]) {
        to.fill_with(|| unknown(offset.into()) as u8);
    }

    fn load(&self, offset: u32) -> u32 {
        unknown(offset.into()) as u32
    }

    fn store(&self, offset: u32, value: u32) {
        unknown(u64::from(offset ^ value));
    }
}

impl CompletionRing for Opaque {
    fn write(&self, slot: u32, cqe: &abi::Cqe) {
        unknown(u64::from(slot) ^ cqe.wr_id.get());
    }

    fn publish(&self, slot: u32, phase: u32) {
        unknown(u64::from(slot ^ phase));
    }

    fn consumer(&self) -> u32 {
        unknown(2) as u32
    }

    fn arm(&self) -> u32 {
        unknown(3) as u32
    }
}

/// A reorder buffer of which nothing is known.
#[derive(Default)]
pub struct OpaqueReorder;

impl Reorder<Opaque> for OpaqueReorder {
    fn insert(&mut self, number: u32, _: &Opaque) {
        unknown(number.into());
    }

    fn remove(&mut self, number: u32) -> Option<Opaque> {
        (unknown(number.into()) == 0).then(Opaque::default)
    }

    fn first_from(&self, number: u32) -> Option<u32> {
        Some(unknown(number.into()) as u32)
    }

    fn count(&self) -> u32 {
        unknown(8) as u32
    }

    fn clear(&mut self) {
        unknown(9);
    }
}

impl PacketBytes<Opaque> for Opaque {
    fn headers(&self) -> &[u8] {
        static BYTES: [u8; 64] = [0; 64];

        BYTES.get(..unknown(10) as usize).unwrap_or(&[])
    }

    fn length(&self) -> usize {
        unknown(11) as usize
    }

    fn crc32(&self, crc: u32, _: usize, _: usize) -> Result<u32, Fault> {
        Ok(unknown(crc.into()) as u32)
    }

    fn copy(&self, _: usize, _: &Opaque, _: u64, _: usize) -> Result<(), Fault> {
        fault_unless!(6)
    }
}

impl Doorbells for Opaque {
    fn rung(&self) -> abi::Rung {
        abi::Rung::from_word(unknown(4))
    }

    fn top(&self, word: usize) -> u64 {
        unknown(word as u64)
    }

    fn leaf(&self, word: usize) -> u64 {
        unknown(word as u64)
    }

    fn ack_top(&self, word: usize) -> u64 {
        unknown(word as u64)
    }

    fn ack_leaf(&self, word: usize) -> u64 {
        unknown(word as u64)
    }

    fn set_ack_top(&self, _: usize, value: u64) {
        unknown(value);
    }

    fn set_ack_leaf(&self, _: usize, value: u64) {
        unknown(value);
    }

    fn set_taken(&self, count: u32) {
        unknown(count.into());
    }

    fn set_sleeping(&self, sleeping: bool) {
        unknown(sleeping.into());
    }

    fn set_dead(&self) {}
}

impl Host for Opaque {
    type Box<T> = Box<T>;
    type Region = Opaque;
    type Queue = Opaque;
    type CompletionRing = Opaque;
    type Doorbells = Opaque;
    type Packet = Opaque;
    type Reorder = OpaqueReorder;
    type Route = ();
    type CqHandle = ();
    type QpHandle = ();
    type SrqHandle = ();

    fn boxed<T>(_: impl FnOnce() -> T) -> Option<Box<T>> {
        None
    }

    fn boxed_array<T, const N: usize>(_: impl FnMut(usize) -> T) -> Option<Box<[T; N]>> {
        None
    }

    fn index_nospec(index: usize, size: usize) -> usize {
        index & size.wrapping_sub(1)
    }

    fn fence() {}

    fn now(&self) -> u64 {
        unknown(5)
    }

    fn transmit<'a>(
        &mut self,
        (): &mut (),
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent> {
        if unknown(packet.length() as u64) == 0 {
            return Err(Unsent::Busy);
        }
        let sent = packet.write(&[0; 40], &[0; 8], &mut Opaque::default());
        sent.map_err(|_| Unsent::Fault)
    }

    fn completion_event(&mut self, (): &()) {}

    fn cq_event(&mut self, (): &(), _: CqEvent) {}

    fn qp_event(&mut self, (): &(), _: QpEvent) {}

    fn srq_event(&mut self, (): &(), _: SrqEvent) {}

    fn job_place(&mut self) -> Option<&mut JobPlace<Self>> {
        (unknown(6) == 0).then_some(&mut self.job)
    }

    fn trace(&mut self, _: &Trace) {}
}

type Handed<T> = Refused<Box<T>>;

/// Every method of the engine, by which all of its code is made.
macro_rules! methods {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)+) => {$(
        #[allow(missing_docs)]
        pub fn $name(engine: &mut Engine<Opaque>, $($arg: $type),*) -> $result {
            engine.$name($($arg),*)
        }
    )+};
}

methods! {
    add_chunk(chunk: Chunk<Opaque>) -> Option<Chunk<Opaque>>;
    merge(other: &mut Engine<Opaque>, each: &mut dyn FnMut(Block)) -> Result<(), Error>;
    give_block(chunk: &mut Chunk<Opaque>) -> Option<Block>;
    add_context(context: Box<UserContext<Opaque>>) -> Result<ContextId, Handed<UserContext<Opaque>>>;
    remove_context(id: ContextId) -> Result<Box<UserContext<Opaque>>, Error>;
    add_mr(mr: Box<Mr<Opaque>>) -> Result<u32, Handed<Mr<Opaque>>>;
    remove_mr(key: u32) -> Result<Box<Mr<Opaque>>, Error>;
    rereg_mr(key: u32, change: &mut MrChange<Opaque>) -> Result<(), Error>;
    add_mw(mw: Box<Mw>) -> Result<u32, Handed<Mw>>;
    remove_mw(key: u32) -> Result<Box<Mw>, Error>;
    add_cq(cq: Box<Cq<Opaque>>) -> Result<u32, Handed<Cq<Opaque>>>;
    remove_cq(cqn: u32) -> Result<Box<Cq<Opaque>>, Error>;
    resize_cq(cqn: u32, resize: &mut CqResize<Opaque>) -> Result<u32, Error>;
    moderate_cq(host: &mut Opaque, cqn: u32, moderation: Moderation) -> Result<(), Error>;
    query_cq(cqn: u32) -> Result<CqInfo, Error>;
    add_srq(srq: Box<Srq<Opaque>>) -> Result<u32, Handed<Srq<Opaque>>>;
    remove_srq(number: u32) -> Result<Box<Srq<Opaque>>, Error>;
    set_srq_limit(host: &mut Opaque, number: u32, limit: u32) -> Result<(), Error>;
    resize_srq(host: &mut Opaque, number: u32, resize: &mut SrqResize<Opaque>) -> Result<(), Error>;
    query_srq(number: u32) -> Result<SrqInfo, Error>;
    add_qp(qp: Box<Qp<Opaque>>) -> Result<QpId, Handed<Qp<Opaque>>>;
    remove_qp(qpn: u32) -> Result<Box<Qp<Opaque>>, Error>;
    modify_qp(host: &mut Opaque, qpn: u32, modify: &Modify, route: &mut Option<()>)
        -> Result<(), Error>;
    query_qp(qpn: u32) -> Result<QpInfo, Error>;
    set_port_mtu(vport: Vport, mtu: Mtu) -> ();
    add_ah(ah: Box<Ah<Opaque>>) -> Result<u32, Handed<Ah<Opaque>>>;
    remove_ah(number: u32) -> Result<Box<Ah<Opaque>>, Error>;
    attach_mcast(qpn: u32, gid: &Gid, memory: Box<Group>)
        -> Result<Option<Box<Group>>, Handed<Group>>;
    detach_mcast(qpn: u32, gid: &Gid) -> Result<Option<Box<Group>>, Error>;
    find_qp(from: u32) -> (Option<u32>, Option<u32>);
    fail_context(host: &mut Opaque, id: ContextId, from: u32) -> Option<u32>;
    set_context_dead(id: ContextId) -> ();
    claim_context(id: ContextId) -> Result<(), Error>;
    carried(host: &mut Opaque, carried: Carried<Job<Opaque>>) -> bool;
    ring_qp(qpn: u32) -> ();
    has_work() -> bool;
    deadline() -> Option<u64>;
    wake() -> ();
    kicked(context: ContextId) -> ();
    kicked_by_message(context: ContextId) -> ();
    try_sleep(looks: u32) -> Sleep;
    receive(host: &mut Opaque, rx: &RxPacket<'_, Opaque>) -> ();
    run(host: &mut Opaque, budget: Budget, first: Option<ContextId>) -> Outcome;
}

/// Makes an engine.
pub fn new(config: Config) -> Option<Box<Engine<Opaque>>> {
    Engine::<Opaque>::new(config)
}

/// Makes a context.
pub fn context() -> UserContext<Opaque> {
    UserContext::new(Opaque::default())
}

/// Makes a memory region.
pub fn mr(init: MrInit<Opaque>) -> Mr<Opaque> {
    Mr::new(init)
}

/// Tells how a memory region stands.
pub fn query_mr(engine: &Engine<Opaque>, key: u32) -> Result<&Mr<Opaque>, Error> {
    engine.query_mr(key)
}

/// Makes a memory window.
pub fn mw(pd: u32, mw_type: MwType) -> Mw {
    Mw::new(pd, mw_type)
}

/// Makes a completion queue.
pub fn cq(init: CqInit<Opaque>) -> Result<Cq<Opaque>, Error> {
    Cq::new(init)
}

/// Makes a shared receive queue.
pub fn srq(init: SrqInit<Opaque>) -> Result<Srq<Opaque>, Error> {
    Srq::new(init)
}

/// Makes a queue pair.
pub fn qp(init: QpInit<Opaque>) -> Result<Box<Qp<Opaque>>, Error> {
    Qp::new(init)
}
