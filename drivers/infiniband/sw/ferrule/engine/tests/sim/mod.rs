// SPDX-License-Identifier: GPL-2.0

//! A simulated host with virtual time, and programs that post and poll as the provider does.

// Each test is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub)]

pub mod bottleneck;
pub mod memory;
pub mod network;
pub mod refused;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ferrule_engine::packet::icrc::{crc32, icrc};
use ferrule_engine::{
    abi, fast, Access, Ah, Budget, Capabilities, Config, Context, ContextId, Cq, CqEvent, CqInit,
    CqResize, Engine, Error, Fault, Host, Memory, Modify, Mr, MrInit, Mtu, Mw, MwType, Outcome,
    Outgoing, Packet, Path, PathKind, Qp, QpEvent, QpId, QpInfo, QpInit, QpType, Refused, Region,
    Reorder, RingLayout, RxPacket, Sends, Sink, Sleep, Srq, SrqEvent, SrqInfo, SrqInit, State,
    Status, Trace, Unsent,
};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use zerocopy::{FromBytes, IntoBytes};

use memory::{shared, Shared, SimDoorbells, SimQueue, SimRegion, SimRing};

/// What the engine told, by the names that the test gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Completion(u32),
    Cq(u32, CqEvent),
    Qp(u32, QpEvent),
    Srq(u32, SrqEvent),
}

/// The simulated host.
#[derive(Default)]
pub struct Sim {
    pub now: u64,
    pub events: Vec<Event>,
    pub traces: Vec<Trace>,
    /// Packets that were sent: IP and UDP header, what follows, and the invariant CRC.
    pub sent: Vec<SentPacket>,
    /// So many packets more are found no room for.
    pub busy: u32,
    /// Each queue pair has as much of this on its way as it may have.
    pub full: Option<Sends>,
    /// Where datagrams of queue pairs without a context go, whatever they say.
    pub destination: Option<Path>,
}

/// A packet in the making, with room for so many bytes.
struct SimSink {
    bytes: Vec<u8>,
    room: usize,
}

impl SimSink {
    fn new(room: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(room),
            room,
        }
    }

    /// All bytes, of which there must be as many as there was room for.
    fn into_bytes(self) -> Vec<u8> {
        assert_eq!(self.bytes.len(), self.room);
        self.bytes
    }
}

impl Sink<SimRegion> for SimSink {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        assert!(bytes.len() <= self.room - self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn put_memory(&mut self, from: &SimRegion, offset: u64, length: usize) -> Result<(), Fault> {
        self.put(&from.read(offset, length)?)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A packet on the simulated network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    pub ip: Vec<u8>,
    pub udp: Vec<u8>,
    pub transport: Vec<u8>,
    pub icrc: [u8; 4],
}

impl SentPacket {
    /// Makes the headers that a host makes, and lets the engine write the rest.
    fn new<'a>(path: &Path, packet: &mut impl Outgoing<'a, Sim>) -> Result<Self, Fault> {
        let length = packet.length() + 8;
        let ip = if path.sgid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
            ipv4(path, length as u16 + 20)
        } else {
            let class = path.traffic_class;
            let mut ip = vec![
                0x60 | class >> 4,
                class << 4,
                0,
                0,
                0,
                0,
                17,
                path.hop_limit,
            ];
            ip[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            ip.extend_from_slice(&path.sgid);
            ip.extend_from_slice(&path.dgid);
            ip
        };
        let mut udp = vec![0xc0, 0, 0x12, 0xb7];
        udp.extend_from_slice(&(length as u16).to_be_bytes());
        udp.extend_from_slice(&[0, 0]);
        let mut transport = SimSink::new(packet.length());
        packet.write(&ip, &udp, &mut transport)?;
        let mut transport = transport.into_bytes();
        let icrc = transport.split_off(transport.len() - 4);
        Ok(Self {
            ip,
            udp,
            transport,
            icrc: icrc.try_into().unwrap(),
        })
    }

    /// As a host hands it to the engine.
    pub fn rx_packet(&self) -> RxPacket<'_, Sim> {
        RxPacket {
            ip: &self.ip,
            udp: &self.udp,
            packet: self,
            icrc: self.icrc,
            sl: 0,
        }
    }

    /// Gives it the invariant CRC that it should have.
    pub fn seal(&mut self) {
        self.icrc = icrc(crc32, &self.ip, &self.udp, &self.transport).unwrap();
    }
}

/// An IPv4 header of a packet of `total` bytes, with its checksum.
fn ipv4(path: &Path, total: u16) -> Vec<u8> {
    let mut ip = vec![0x45, path.traffic_class];
    ip.extend_from_slice(&total.to_be_bytes());
    ip.extend_from_slice(&[0, 0, 0x40, 0, path.hop_limit, 17, 0, 0]);
    ip.extend_from_slice(&path.sgid[12..]);
    ip.extend_from_slice(&path.dgid[12..]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

impl Packet<SimRegion> for SentPacket {
    /// As a socket buffer has it: the headers and some payload in one piece.
    fn headers(&self) -> &[u8] {
        &self.transport[..self.transport.len().min(64)]
    }

    fn length(&self) -> usize {
        self.transport.len()
    }

    fn crc32(&self, crc: u32, offset: usize, length: usize) -> Result<u32, Fault> {
        let bytes = self
            .transport
            .get(offset..)
            .and_then(|rest| rest.get(..length));
        Ok(crc32(crc, bytes.ok_or(Fault)?))
    }

    fn copy(&self, offset: usize, to: &SimRegion, at: u64, length: usize) -> Result<(), Fault> {
        let bytes = self
            .transport
            .get(offset..)
            .and_then(|rest| rest.get(..length));
        Region::write(to, at, bytes.ok_or(Fault)?)
    }
}

thread_local! {
    /// Whether the reorder buffers of hosts take packets.
    pub static REORDERS: Cell<bool> = const { Cell::new(true) };
    /// How many packets they have.
    pub static BUFFERED: Cell<usize> = const { Cell::new(0) };
    /// How often they were asked which they have.
    pub static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// A reorder buffer.
#[derive(Default)]
pub struct SimReorder(BTreeMap<u32, SentPacket>);

impl Drop for SimReorder {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Reorder<SentPacket> for SimReorder {
    fn insert(&mut self, number: u32, packet: &SentPacket) {
        if REORDERS.get() && !self.0.contains_key(&number) {
            self.0.insert(number, packet.clone());
            BUFFERED.set(BUFFERED.get() + 1);
            assert!(self.0.len() <= 256, "more than two windows");
        }
    }

    fn remove(&mut self, number: u32) -> Option<SentPacket> {
        let packet = self.0.remove(&number)?;
        BUFFERED.set(BUFFERED.get() - 1);
        Some(packet)
    }

    fn first_from(&self, number: u32) -> Option<u32> {
        LOOKS.set(LOOKS.get() + 1);
        let first = self.0.range(number..).next().or(self.0.iter().next());
        first.map(|(&number, _)| number)
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn clear(&mut self) {
        BUFFERED.set(BUFFERED.get() - self.0.len());
        self.0.clear();
    }
}

impl Host for Sim {
    type Box<T> = Box<T>;
    type Region = SimRegion;
    type Queue = SimQueue;
    type CompletionRing = SimRing;
    type Doorbells = SimDoorbells;
    type Packet = SentPacket;
    type Reorder = SimReorder;
    type Route = Path;
    type CqHandle = u32;
    type QpHandle = u32;
    type SrqHandle = u32;

    fn boxed<T>(make: impl FnOnce() -> T) -> Option<Box<T>> {
        assert!(size_of::<T>() <= 2048);
        Some(Box::new(make()))
    }

    fn boxed_array<T, const N: usize>(make: impl FnMut(usize) -> T) -> Option<Box<[T; N]>> {
        assert!(size_of::<[T; N]>() <= 4096);
        Some(Box::new(std::array::from_fn(make)))
    }

    fn index_nospec(index: usize, size: usize) -> usize {
        assert!(index < size && size.is_power_of_two());
        index
    }

    fn fence() {}

    fn now(&mut self) -> u64 {
        self.now
    }

    fn transmit<'a>(
        &mut self,
        route: &mut Path,
        packet: &mut impl Outgoing<'a, Self>,
    ) -> Result<(), Unsent> {
        // A host may find that it has no room when the packet has been written.
        let kind = packet.kind();
        let packet = SentPacket::new(route, packet).map_err(|Fault| Unsent::Fault)?;
        if self.full == Some(kind) {
            return Err(Unsent::Full);
        }
        if self.busy != 0 {
            self.busy -= 1;
            return Err(Unsent::Busy);
        }
        self.sent.push(packet);
        Ok(())
    }

    fn destination(&mut self, _: &SimQueue, _: u32) -> Option<(Path, Option<Path>)> {
        self.destination.map(|path| (path, Some(path)))
    }

    fn completion_event(&mut self, cq: &u32) {
        self.events.push(Event::Completion(*cq));
    }

    fn cq_event(&mut self, cq: &u32, event: CqEvent) {
        self.events.push(Event::Cq(*cq, event));
    }

    fn qp_event(&mut self, qp: &u32, event: QpEvent) {
        self.events.push(Event::Qp(*qp, event));
    }

    fn srq_event(&mut self, srq: &u32, event: SrqEvent) {
        self.events.push(Event::Srq(*srq, event));
    }

    fn trace(&mut self, step: &Trace) {
        self.traces.push(*step);
    }
}

/// Hands an object in, growing tables as a host does.
pub fn add<T, R>(
    engine: &mut Engine<Sim>,
    object: T,
    add: impl Fn(&mut Engine<Sim>, Box<T>) -> Result<R, Refused<Box<T>>>,
) -> Result<R, Error> {
    let mut object = Box::new(object);
    loop {
        match add(engine, object) {
            Ok(result) => return Ok(result),
            Err(Refused {
                error: Error::NeedChunk(need),
                object: refused,
            }) => {
                object = refused;
                assert!(engine.add_chunk(need.allocate().unwrap()).is_none());
            }
            Err(refused) => return Err(refused.error),
        }
    }
}

/// How often a property is tried, with which numbers: always the same ones, unless
/// `PROPTEST_RNG_SEED` gives others. `PROPTEST_CASES` can lower the count.
pub fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let is_lowered = std::env::var_os("PROPTEST_CASES").is_some() && config.cases < cases;
    let config = ProptestConfig {
        cases: if is_lowered { config.cases } else { cases },
        failure_persistence: None,
        ..config
    };
    match config.rng_seed {
        RngSeed::Random => ProptestConfig {
            rng_seed: RngSeed::Fixed(0x0fe5_501e),
            ..config
        },
        RngSeed::Fixed(_) => config,
    }
}

/// Nanoseconds.
pub const US: u64 = 1000;
pub const MS: u64 = 1000 * US;

/// More than any test needs.
pub const PLENTY: Budget = Budget {
    requests: 1 << 20,
    bytes: 1 << 40,
};

/// Enough for all doorbells, and for no request.
pub const LOOKS_ALONE: Budget = Budget {
    requests: 1 << 20,
    bytes: 0,
};

/// An engine, its host, and one context to begin with.
pub struct World {
    pub engine: Engine<Sim>,
    pub host: Sim,
    pub context: TestContext,
    /// Names given so far.
    names: u32,
}

#[derive(Clone)]
pub struct TestContext {
    pub id: ContextId,
    pub doorbells: SimDoorbells,
}

/// A completion queue as a program has it.
#[derive(Clone)]
pub struct TestCq {
    pub cqn: u32,
    pub name: u32,
    pub depth: u32,
    pub ring: SimRing,
    /// The index of the first completion in this ring.
    base: u32,
    next: Rc<Cell<u32>>,
}

/// A memory region as a program has it.
#[derive(Clone)]
pub struct TestMr {
    pub key: u32,
    pub iova: u64,
    pub region: SimRegion,
}

/// A queue pair as a program has it.
#[derive(Clone)]
pub struct TestQp {
    pub id: QpId,
    pub name: u32,
    pub queue: SimQueue,
    pub sq: RingLayout,
    pub rq: RingLayout,
    pub ctrl: u32,
    pub doorbells: Option<SimDoorbells>,
    pub sq_producer: Rc<Cell<u32>>,
    pub rq_producer: Rc<Cell<u32>>,
}

/// A shared receive queue as a program has it.
#[derive(Clone)]
pub struct TestSrq {
    pub number: u32,
    pub name: u32,
    pub queue: SimQueue,
    pub ring: RingLayout,
    pub ctrl: u32,
    pub producer: Rc<Cell<u32>>,
}

/// How a queue pair is made.
#[derive(Clone)]
pub struct QpSpec {
    pub qp_type: QpType,
    pub gsi: bool,
    pub pd: u32,
    pub depth: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub sq_sig_all: bool,
    pub srq: Option<u32>,
}

impl Default for QpSpec {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            gsi: false,
            pd: 1,
            depth: 16,
            max_sge: 4,
            max_inline: 256,
            sq_sig_all: false,
            srq: None,
        }
    }
}

/// A send request as a program posts it.
#[derive(Clone, Debug, Default)]
pub struct Wr {
    pub wr_id: u64,
    pub opcode: u8,
    pub flags: u8,
    pub sges: Vec<(u64, u32, u32)>,
    pub inline: Option<Vec<u8>>,
    pub remote: (u64, u32),
    pub imm: [u8; 4],
    pub extra: [u8; 16],
}

impl Wr {
    pub fn send(wr_id: u64, sges: &[(u64, u32, u32)]) -> Self {
        Self {
            wr_id,
            flags: abi::wr_flags::SIGNALED,
            sges: sges.to_vec(),
            ..Self::default()
        }
    }

    pub fn write(wr_id: u64, sges: &[(u64, u32, u32)], remote: (u64, u32)) -> Self {
        Self {
            opcode: abi::wr_opcode::RDMA_WRITE,
            remote,
            ..Self::send(wr_id, sges)
        }
    }

    pub fn read(wr_id: u64, sges: &[(u64, u32, u32)], remote: (u64, u32)) -> Self {
        Self {
            opcode: abi::wr_opcode::RDMA_READ,
            remote,
            ..Self::send(wr_id, sges)
        }
    }

    pub fn compare_swap(
        wr_id: u64,
        sge: (u64, u32, u32),
        remote: (u64, u32),
        compare: u64,
        swap: u64,
    ) -> Self {
        let words = abi::AtomicWords {
            compare_add: compare.into(),
            swap: swap.into(),
        };
        Self {
            opcode: abi::wr_opcode::ATOMIC_CMP_AND_SWP,
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::read(wr_id, &[sge], remote)
        }
    }

    pub fn local_inv(wr_id: u64, key: u32) -> Self {
        Self {
            opcode: abi::wr_opcode::LOCAL_INV,
            imm: key.to_le_bytes(),
            ..Self::send(wr_id, &[])
        }
    }

    /// Binds the window of key `window` to `length` bytes of a region, with `key` from then on.
    pub fn bind(wr_id: u64, window: u32, key: u32, region: (u64, u32), length: u64) -> Self {
        let words = abi::BindWords {
            mw_rkey: window.into(),
            access: (ALL.0 & !Access::LOCAL_WRITE.0).into(),
            length: length.into(),
        };
        Self {
            opcode: abi::wr_opcode::BIND_MW,
            remote: (region.0, key),
            imm: region.1.to_le_bytes(),
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, &[])
        }
    }

    /// Registers the region of `key`, or with other lower bits, as `length` bytes at `iova`.
    pub fn register(wr_id: u64, key: u32, iova: u64, length: u64) -> Self {
        let words = abi::BindWords {
            mw_rkey: 0.into(),
            access: ALL.0.into(),
            length: length.into(),
        };
        Self {
            opcode: fast::WR_REGISTER,
            remote: (iova, key),
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, &[])
        }
    }

    /// A bind, or a registration, that gives these rights.
    pub fn with_access(mut self, access: Access) -> Self {
        self.extra[4..8].copy_from_slice(&access.0.to_le_bytes());
        self
    }

    pub fn fetch_add(wr_id: u64, sge: (u64, u32, u32), remote: (u64, u32), add: u64) -> Self {
        Self {
            opcode: abi::wr_opcode::ATOMIC_FETCH_AND_ADD,
            ..Self::compare_swap(wr_id, sge, remote, add, 0)
        }
    }

    /// A datagram.
    pub fn datagram(wr_id: u64, sges: &[(u64, u32, u32)], to: (u32, u32), qkey: u32) -> Self {
        let words = abi::Destination {
            ah: to.0.into(),
            remote_qpn: to.1.into(),
            remote_qkey: qkey.into(),
            reserved: 0.into(),
        };
        Self {
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, sges)
        }
    }

    pub fn with_opcode(self, opcode: u8) -> Self {
        Self { opcode, ..self }
    }

    pub fn with_imm(self, imm: [u8; 4]) -> Self {
        Self { imm, ..self }
    }

    pub fn with_flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    pub fn inline(self, bytes: &[u8]) -> Self {
        Self {
            inline: Some(bytes.to_vec()),
            flags: self.flags | abi::wr_flags::INLINE,
            sges: Vec::new(),
            ..self
        }
    }
}

fn put_sges(slot: &mut Vec<u8>, sges: &[(u64, u32, u32)]) {
    for &(addr, length, lkey) in sges {
        let sge = abi::Sge {
            addr: addr.into(),
            length: length.into(),
            lkey: lkey.into(),
        };
        slot.extend_from_slice(sge.as_bytes());
    }
}

/// Writes a slot of a receive queue, or of a shared one.
fn fill_recv(
    queue: &SimQueue,
    ring: &RingLayout,
    index: u32,
    wr_id: u64,
    sges: &[(u64, u32, u32)],
) {
    let head = abi::RecvWqe {
        wr_id: wr_id.into(),
        num_sge: (sges.len() as u16).into(),
        reserved: [0; 6],
    };
    let mut slot = head.as_bytes().to_vec();
    put_sges(&mut slot, sges);
    let offset = ring.offset + index % ring.depth * ring.stride;
    queue.write(offset as usize, &slot);
}

impl TestSrq {
    /// Posts as the provider does: answers whether there was a free slot.
    pub fn post(&self, wr_id: u64, sges: &[(u64, u32, u32)]) -> bool {
        let index = self.producer.get();
        if index.wrapping_sub(self.consumer()) >= self.ring.depth {
            return false;
        }
        fill_recv(&self.queue, &self.ring, index, wr_id, sges);
        self.set_producer(index.wrapping_add(1));
        true
    }

    pub fn set_producer(&self, index: u32) {
        self.producer.set(index);
        self.queue.set_word(self.ctrl as usize, index);
    }

    /// What the engine says is free.
    pub fn consumer(&self) -> u32 {
        self.queue.word(self.ctrl as usize + 64)
    }
}

impl TestQp {
    /// Writes a slot of the send queue without telling anybody.
    pub fn fill_send(&self, index: u32, wr: &Wr) {
        let head = abi::SendWqe {
            wr_id: wr.wr_id.into(),
            opcode: wr.opcode,
            flags: wr.flags,
            num_sge: (wr.sges.len() as u16).into(),
            inline_len: (wr.inline.as_ref().map_or(0, Vec::len) as u32).into(),
            remote_addr: wr.remote.0.into(),
            rkey: wr.remote.1.into(),
            imm_or_inv: wr.imm,
            extra: wr.extra,
        };
        let mut slot = head.as_bytes().to_vec();
        put_sges(&mut slot, &wr.sges);
        slot.extend_from_slice(wr.inline.as_deref().unwrap_or(&[]));
        assert!(slot.len() <= self.sq.stride as usize);
        let offset = self.sq.offset + index % self.sq.depth * self.sq.stride;
        self.queue.write(offset as usize, &slot);
    }

    /// Posts without ringing.
    pub fn put_send(&self, wr: &Wr) {
        let index = self.sq_producer.get();
        self.fill_send(index, wr);
        self.sq_producer.set(index.wrapping_add(1));
        self.queue
            .set_word(self.ctrl as usize, index.wrapping_add(1));
    }

    /// Rings the doorbell; answers whether a kick is due.
    pub fn ring(&self) -> bool {
        let doorbell = self.id.number & abi::DB_INDEX_MASK;
        self.doorbells.as_ref().unwrap().ring(doorbell)
    }

    pub fn post_send(&self, wr: &Wr) {
        self.put_send(wr);
        self.ring();
    }

    pub fn post_recv(&self, wr_id: u64, sges: &[(u64, u32, u32)]) {
        let index = self.rq_producer.get();
        fill_recv(&self.queue, &self.rq, index, wr_id, sges);
        self.rq_producer.set(index.wrapping_add(1));
        self.queue
            .set_word(self.ctrl as usize + 64, index.wrapping_add(1));
        if self.queue.word(self.ctrl as usize + 68) != 0 {
            self.ring();
        }
    }

    /// What the provider does after a change to RESET.
    pub fn rewind(&self) {
        self.sq_producer.set(0);
        self.rq_producer.set(0);
        self.queue.set_word(self.ctrl as usize, 0);
        self.queue.set_word(self.ctrl as usize + 64, 0);
    }
}

/// A completion as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u8,
    pub opcode: u8,
    pub flags: u8,
    pub byte_len: u32,
    pub imm: [u8; 4],
    pub qp_num: u32,
    pub qp_gen: u32,
    pub src_qp: u32,
    pub queue_index: u32,
    pub timestamp: u64,
}

impl TestCq {
    /// Polls as the provider does, and stores the consumer index.
    pub fn poll(&self) -> Option<Wc> {
        let wc = self.peek()?;
        self.next.set(self.next.get().wrapping_add(1));
        self.ring.0.consumer.set(self.next.get());
        Some(wc)
    }

    pub fn peek(&self) -> Option<Wc> {
        let nth = self.next.get().wrapping_sub(self.base);
        let start = (nth % self.depth) as usize * 64;
        let ring = self.ring.0.ring.borrow();
        let cqe = abi::Cqe::read_from_bytes(&ring[start..start + 64]).unwrap();
        let phase = u32::from(nth & self.depth == 0);
        if cqe.phase.get() != phase {
            return None;
        }
        assert_eq!(cqe.reserved, [0; 12]);
        Some(Wc {
            wr_id: cqe.wr_id.get(),
            status: cqe.status,
            opcode: cqe.opcode,
            flags: cqe.flags,
            byte_len: cqe.byte_len.get(),
            imm: cqe.imm_or_inv,
            qp_num: cqe.qp_num.get(),
            qp_gen: cqe.qp_gen.get(),
            src_qp: cqe.src_qp.get(),
            queue_index: cqe.queue_index.get(),
            timestamp: cqe.timestamp.get(),
        })
    }

    pub fn drain(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// Goes on as if so many completions had been polled; the ring is made to fit.
    pub fn set_next(&self, index: u32) {
        self.next.set(index);
        self.ring.0.consumer.set(index);
        for slot in 0..self.depth {
            // What was written last, of this lap or the one before, has another phase than what
            // is written next.
            let lap = if slot < index % self.depth {
                index
            } else {
                index.wrapping_sub(self.depth)
            };
            let phase = u32::from(lap & self.depth == 0);
            let start = slot as usize * 64 + 60;
            self.ring.0.ring.borrow_mut()[start..start + 4].copy_from_slice(&phase.to_le_bytes());
        }
    }

    /// The next completion has to be this one.
    #[track_caller]
    pub fn expect(&self, wr_id: u64, status: Status) -> Wc {
        let wc = self.poll().expect("no completion");
        assert_eq!((wc.wr_id, wc.status), (wr_id, status as u8), "{wc:?}");
        wc
    }

    #[track_caller]
    pub fn expect_none(&self) {
        assert_eq!(self.poll(), None);
    }

    /// Arms for the event after the `taken`-th.
    pub fn arm(&self, taken: u32, solicited: bool) {
        let number = taken.wrapping_add(1);
        self.ring.0.arm.set((number << 1) | u32::from(solicited));
    }
}

impl TestMr {
    pub fn sge(&self, offset: u64, length: u32) -> (u64, u32, u32) {
        (self.iova + offset, length, self.key)
    }

    pub fn remote(&self, offset: u64) -> (u64, u32) {
        (self.iova + offset, self.key)
    }

    pub fn fill(&self, seed: u8) {
        let range = self.region.start..self.region.start + self.region.length;
        for (i, byte) in self.region.memory.borrow_mut()[range]
            .iter_mut()
            .enumerate()
        {
            *byte = (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed;
        }
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let start = self.region.start + offset;
        self.region.memory.borrow()[start..start + length].to_vec()
    }
}

/// All rights of a region, but that to bind windows.
pub const ALL: Access = Access(0xf);
/// All rights of a region.
pub const BINDABLE: Access = Access(0x1f);

/// What the host has of a path: the path.
fn route(path: Option<Path>) -> Option<Path> {
    path.filter(|path| path.kind == PathKind::Remote)
}

impl World {
    pub fn new() -> Self {
        Self::with(Config {
            random: 0x5eed,
            ..Config::default()
        })
    }

    pub fn with(config: Config) -> Self {
        let mut engine = *Engine::<Sim>::new(config).unwrap();
        engine.wake();
        let doorbells = SimDoorbells::new();
        let id = add(
            &mut engine,
            Context::new(doorbells.clone()),
            Engine::add_context,
        )
        .unwrap();
        engine.set_port_mtu(Mtu::Mtu1024);
        Self {
            engine,
            host: Sim::default(),
            context: TestContext { id, doorbells },
            names: 0,
        }
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    pub fn context(&mut self) -> TestContext {
        let doorbells = SimDoorbells::new();
        let context = Context::new(doorbells.clone());
        let id = add(&mut self.engine, context, Engine::add_context).unwrap();
        TestContext { id, doorbells }
    }

    pub fn cq(&mut self, depth: u32) -> TestCq {
        let name = self.name();
        let ring = SimRing::new(depth);
        let cq = Cq::new(CqInit {
            depth,
            ring: ring.clone(),
            handle: name,
        });
        let cqn = add(&mut self.engine, cq.unwrap(), Engine::add_cq).unwrap();
        TestCq {
            cqn,
            name,
            depth,
            ring,
            base: 0,
            next: Rc::default(),
        }
    }

    /// Gives a queue another ring; answers the queue to be polled when `cq` is empty.
    pub fn resize(&mut self, cq: &TestCq, depth: u32) -> Result<TestCq, Error> {
        let ring = cq.ring.resized(depth);
        let mut resize = CqResize {
            depth,
            ring: ring.clone(),
        };
        let base = self.engine.resize_cq(cq.cqn, &mut resize)?;
        Ok(TestCq {
            depth,
            ring,
            base,
            ..cq.clone()
        })
    }

    pub fn mr(&mut self, length: usize) -> TestMr {
        self.mr_with(1, ALL, shared(length), 0, length)
    }

    pub fn mr_with(
        &mut self,
        pd: u32,
        access: Access,
        memory: Shared,
        start: usize,
        length: usize,
    ) -> TestMr {
        let region = SimRegion {
            memory,
            start,
            length,
            broken: Rc::default(),
            next: Rc::default(),
        };
        let iova = 0x7f00_0000_0000 + start as u64;
        let mr = Mr::new(MrInit {
            pd,
            access,
            memory: Memory {
                iova,
                length: length as u64,
                region: region.clone(),
            },
        });
        let key = add(&mut self.engine, mr, Engine::add_mr).unwrap();
        TestMr { key, iova, region }
    }

    /// A region for fast registration, of bytes of `memory`.
    pub fn fast_mr(&mut self, pd: u32, memory: Shared) -> TestMr {
        let region = SimRegion {
            memory,
            start: 0,
            length: 0,
            broken: Rc::default(),
            next: Rc::default(),
        };
        let mr = Mr::fast(MrInit {
            pd,
            access: Access::NONE,
            memory: Memory {
                iova: 0,
                length: 0,
                region: region.clone(),
            },
        });
        let key = add(&mut self.engine, mr, Engine::add_mr).unwrap();
        let iova = 0;
        TestMr { key, iova, region }
    }

    /// A window that is not bound, and its key.
    pub fn mw(&mut self, pd: u32, mw_type: MwType) -> u32 {
        add(&mut self.engine, Mw::new(pd, mw_type), Engine::add_mw).unwrap()
    }

    pub fn qp(&mut self, send: &TestCq, recv: &TestCq) -> TestQp {
        self.qp_with(&QpSpec::default(), send, recv)
    }

    pub fn qp_with(&mut self, spec: &QpSpec, send: &TestCq, recv: &TestCq) -> TestQp {
        let context = self.context.clone();
        self.qp_in(Some(&context), spec, send, recv)
    }

    pub fn qp_in(
        &mut self,
        context: Option<&TestContext>,
        spec: &QpSpec,
        send: &TestCq,
        recv: &TestCq,
    ) -> TestQp {
        self.try_qp_in(context, spec, send, recv).unwrap()
    }

    /// # Errors
    ///
    /// Those of [`Engine::add_qp`].
    pub fn try_qp_in(
        &mut self,
        context: Option<&TestContext>,
        spec: &QpSpec,
        send: &TestCq,
        recv: &TestCq,
    ) -> Result<TestQp, Error> {
        let name = self.name();
        let stride = |head: u32, body: u32| (head + body).next_power_of_two().max(64);
        let body = (spec.max_sge * 16).max(spec.max_inline);
        let sq = RingLayout {
            offset: 0,
            depth: spec.depth,
            stride: stride(48, body),
        };
        let rq = RingLayout {
            offset: sq.depth * sq.stride,
            depth: if spec.srq.is_some() { 0 } else { spec.depth },
            stride: stride(16, spec.max_sge * 16),
        };
        let ctrl = rq.offset + rq.depth * rq.stride;
        let queue = SimQueue::new(ctrl as usize + 128);
        let qp = Qp::<Sim>::new(QpInit {
            context: context.map(|context| context.id),
            pd: spec.pd,
            qp_type: spec.qp_type,
            gsi: spec.gsi,
            send_cq: send.cqn,
            recv_cq: recv.cqn,
            srq: spec.srq,
            cap: Capabilities {
                max_send_wr: spec.depth,
                max_recv_wr: rq.depth,
                max_send_sge: spec.max_sge,
                max_recv_sge: spec.max_sge,
                max_inline: spec.max_inline,
            },
            sq_sig_all: spec.sq_sig_all,
            sq,
            rq,
            ctrl,
            queue: queue.clone(),
            handle: name,
        });
        let id = add(&mut self.engine, *qp.unwrap(), Engine::add_qp)?;
        Ok(TestQp {
            id,
            name,
            queue,
            sq,
            rq,
            ctrl,
            doorbells: context.map(|context| context.doorbells.clone()),
            sq_producer: Rc::default(),
            rq_producer: Rc::default(),
        })
    }

    /// A shared receive queue of a protection domain.
    pub fn srq(&mut self, pd: u32, depth: u32, max_sge: u32) -> TestSrq {
        let name = self.name();
        let ring = RingLayout {
            offset: 0,
            depth,
            stride: (16 + max_sge * 16).next_power_of_two().max(64),
        };
        let ctrl = ring.depth * ring.stride;
        let queue = SimQueue::new(ctrl as usize + 128);
        let srq = Srq::new(SrqInit {
            pd,
            max_sge,
            ring,
            ctrl,
            queue: queue.clone(),
            handle: name,
        });
        let number = add(&mut self.engine, srq.unwrap(), Engine::add_srq).unwrap();
        TestSrq {
            number,
            name,
            queue,
            ring,
            ctrl,
            producer: Rc::default(),
        }
    }

    pub fn set_srq_limit(&mut self, srq: &TestSrq, limit: u32) -> Result<(), Error> {
        self.engine.set_srq_limit(&mut self.host, srq.number, limit)
    }

    pub fn query_srq(&self, srq: &TestSrq) -> SrqInfo {
        self.engine.query_srq(srq.number).unwrap()
    }

    /// An address handle of a protection domain.
    pub fn ah(&mut self, pd: u32, path: Path) -> u32 {
        add(
            &mut self.engine,
            Ah::new(pd, path, route(Some(path))),
            Engine::add_ah,
        )
        .unwrap()
    }

    /// A datagram queue pair that is ready to send, and its completion queue.
    #[track_caller]
    pub fn ud(&mut self, spec: &QpSpec, qkey: u32) -> End {
        let cq = self.cq(64);
        let spec = QpSpec {
            qp_type: QpType::Ud,
            ..spec.clone()
        };
        let qp = self.qp_with(&spec, &cq, &cq);
        self.ready_ud(&qp, qkey);
        End { qp, cq }
    }

    /// Moves a datagram queue pair from RESET to RTS.
    #[track_caller]
    pub fn ready_ud(&mut self, qp: &TestQp, qkey: u32) {
        let init = Modify {
            access: None,
            qkey: Some(qkey),
            ..init()
        };
        self.modify(qp, &init).unwrap();
        self.to(qp, State::Rtr);
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(SQ_PSN),
            ..Modify::default()
        };
        self.modify(qp, &rts).unwrap();
    }

    /// Connects unreliable connections.
    #[track_caller]
    pub fn connect_uc(&mut self, qp: &TestQp, peer: &TestQp) {
        self.modify(qp, &init()).unwrap();
        let rtr = Modify {
            max_dest_rd_atomic: None,
            min_rnr_timer: None,
            ..rtr(peer.id.number)
        };
        self.modify(qp, &rtr).unwrap();
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(SQ_PSN),
            ..Modify::default()
        };
        self.modify(qp, &rts).unwrap();
    }

    pub fn modify(&mut self, qp: &TestQp, modify: &Modify) -> Result<(), Error> {
        let mut route = route(modify.path);
        self.engine
            .modify_qp(&mut self.host, qp.id.number, modify, &mut route)
    }

    #[track_caller]
    pub fn to(&mut self, qp: &TestQp, state: State) {
        let modify = Modify {
            state: Some(state),
            ..Modify::default()
        };
        self.modify(qp, &modify).unwrap();
    }

    pub fn query(&self, qp: &TestQp) -> QpInfo {
        self.engine.query_qp(qp.id.number).unwrap()
    }

    #[track_caller]
    pub fn state(&self, qp: &TestQp, state: State) {
        assert_eq!(self.query(qp).state, state);
    }

    /// Connects `qp` to `peer`'s number, as far as RTR.
    #[track_caller]
    pub fn connect_rtr(&mut self, qp: &TestQp, peer: &TestQp) {
        self.modify(qp, &init()).unwrap();
        self.modify(qp, &rtr(peer.id.number)).unwrap();
    }

    #[track_caller]
    pub fn connect(&mut self, qp: &TestQp, peer: &TestQp) {
        self.connect_rtr(qp, peer);
        self.modify(qp, &rts()).unwrap();
    }

    /// Two connected queue pairs with a completion queue each.
    #[track_caller]
    pub fn pair(&mut self) -> (End, End) {
        self.pair_with(&QpSpec::default())
    }

    #[track_caller]
    pub fn pair_with(&mut self, spec: &QpSpec) -> (End, End) {
        let (ca, cb) = (self.cq(64), self.cq(64));
        let a = self.qp_with(spec, &ca, &ca);
        let b = self.qp_with(spec, &cb, &cb);
        self.connect(&a, &b);
        self.connect(&b, &a);
        (End { qp: a, cq: ca }, End { qp: b, cq: cb })
    }

    /// Runs until nothing is left to do at this moment.
    pub fn run(&mut self) -> Outcome {
        let mut outcome = self.engine.run(&mut self.host, PLENTY, None);
        while outcome.more {
            outcome = self.engine.run(&mut self.host, PLENTY, None);
        }
        outcome
    }

    /// Has the engine go to sleep, and answers whether it does.
    pub fn try_sleep(&mut self) -> bool {
        loop {
            match self.engine.try_sleep(PLENTY.looks()) {
                Sleep::Asleep => return true,
                Sleep::Awake => return false,
                Sleep::Step => (),
            }
        }
    }

    /// Lets time pass until nothing waits for it any more, but no longer than `limit`.
    pub fn settle(&mut self, limit: u64) {
        let end = self.host.now + limit;
        while let Some(deadline) = self.run().deadline {
            if deadline > end {
                break;
            }
            self.host.now = self.host.now.max(deadline);
        }
        self.run();
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.host.events)
    }
}

/// A queue pair and the completion queue of both its queues.
pub struct End {
    pub qp: TestQp,
    pub cq: TestCq,
}

pub const SQ_PSN: u32 = 0x00ff_fff0;

pub fn path(kind: PathKind) -> Path {
    Path {
        kind,
        sgid_index: 0,
        sgid: [1; 16],
        dgid: [2; 16],
        dmac: [3; 6],
        flow_label: 0,
        hop_limit: 64,
        traffic_class: 0,
        sl: 0,
        static_rate: 0,
    }
}

pub fn init() -> Modify {
    Modify {
        state: Some(State::Init),
        access: Some(ALL),
        pkey_index: Some(0),
        port: Some(1),
        ..Modify::default()
    }
}

pub fn rtr(peer: u32) -> Modify {
    Modify {
        state: Some(State::Rtr),
        path: Some(path(PathKind::Local)),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(peer),
        rq_psn: Some(SQ_PSN),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(12),
        ..Modify::default()
    }
}

pub fn rts() -> Modify {
    Modify {
        state: Some(State::Rts),
        sq_psn: Some(SQ_PSN),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(4),
        ..Modify::default()
    }
}
