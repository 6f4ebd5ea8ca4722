// SPDX-License-Identifier: GPL-2.0

//! Queues as programs use them: posting, ringing, polling.

use std::mem::offset_of;
use std::sync::atomic::{fence, Ordering};

use ferrule_engine::abi::{self, wr_flags, wr_opcode};
use ferrule_nic::interface::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{eventually, Area, Context, Guest, IOVA};

/// Slots of each queue, and of completion queues.
pub const DEPTH: u32 = 256;
const STRIDE: u32 = 64;

/// A completion queue.
pub struct Cq {
    pub number: u32,
    pub ring: Area,
    pub ctrl: Area,
    depth: u32,
    base: u32,
    consumer: u32,
}

impl Guest {
    pub fn cq(&mut self, depth: u32, eq: u32) -> Cq {
        let ring = self.memory.alloc(u64::from(depth) * 64);
        let ctrl = self.memory.alloc(128);
        let create = CreateCq {
            depth: depth.into(),
            eq: eq.into(),
            ring: self.memory.list(&ring),
            ctrl: self.memory.list(&ctrl),
        };
        Cq {
            number: self.create(opcode::CREATE_CQ, &create).unwrap(),
            ring,
            ctrl,
            depth,
            base: 0,
            consumer: 0,
        }
    }

    pub fn resize(&mut self, cq: &mut Cq, depth: u32) -> Result<(), u32> {
        let ring = self.memory.alloc(u64::from(depth) * 64);
        let resize = ResizeCq {
            cqn: cq.number.into(),
            depth: depth.into(),
            ring: self.memory.list(&ring),
        };
        let base = self.create(opcode::RESIZE_CQ, &resize)?;
        assert_eq!(cq.consumer, base, "tests resize what is empty");
        (cq.ring, cq.depth, cq.base) = (ring, depth, base);
        Ok(())
    }
}

impl Cq {
    pub fn poll(&mut self) -> Option<abi::Cqe> {
        let index = self.consumer.wrapping_sub(self.base);
        let at = u64::from(index & (self.depth - 1)) * 64;
        let phase = u32::from(index & self.depth == 0);
        if self.ring.load(at + 60) != phase {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        let mut cqe = abi::Cqe::new_zeroed();
        self.ring.read_to(at, cqe.as_mut_bytes());
        self.ctrl.store(0, self.consumer);
        Some(cqe)
    }

    /// The next completion, which comes.
    pub fn wait(&mut self) -> abi::Cqe {
        eventually("a completion", || self.poll())
    }

    /// The next completion, which tells of success.
    pub fn done(&mut self) -> abi::Cqe {
        let cqe = self.wait();
        assert_eq!(cqe.status, 0, "of request {}", cqe.wr_id.get());
        cqe
    }

    /// So many completions, all of success.
    pub fn all(&mut self, count: usize) {
        (0..count).for_each(|_| {
            self.done();
        });
    }

    /// Asks for an event, by a number that was not used.
    pub fn arm(&self, number: u32) {
        self.ctrl.store(64, number << abi::CQ_ARM_SN_SHIFT);
        fence(Ordering::SeqCst);
    }
}

/// A queue pair.
pub struct Qp {
    pub number: u32,
    pub doorbell: u32,
    pub area: Area,
    pub context: Context,
    ctrl: u64,
    destinations: u64,
    sq_producer: u32,
    rq_producer: u32,
}

/// The command's operands to make a queue pair of a type, with rings in `area`.
pub fn create_qp(
    guest: &Guest,
    kind: u32,
    context: u32,
    pd: u32,
    cq: u32,
    area: &Area,
) -> CreateQp {
    let ring = |offset: u32| Ring {
        offset: offset.into(),
        depth: DEPTH.into(),
        stride: STRIDE.into(),
        reserved: 0.into(),
    };
    CreateQp {
        context: context.into(),
        pd: pd.into(),
        qp_type: kind.into(),
        flags: 0.into(),
        send_cq: cq.into(),
        recv_cq: cq.into(),
        srq: NONE.into(),
        cap: Capabilities {
            max_send_wr: DEPTH.into(),
            max_recv_wr: DEPTH.into(),
            max_send_sge: 1.into(),
            max_recv_sge: 1.into(),
            max_inline: 16.into(),
        },
        sq: ring(0),
        rq: ring(DEPTH * STRIDE),
        ctrl: (2 * DEPTH * STRIDE).into(),
        destinations: NONE.into(),
        area: guest.memory.list(area),
        reserved: [0; 16],
    }
}

/// Bytes of the buffer of a queue pair: rings, control words, addresses.
pub const QP_BYTES: u64 = (2 * DEPTH * STRIDE) as u64 + 128 + DEPTH as u64 * 32;

impl Guest {
    pub fn qp(&mut self, kind: u32, context: &Context, pd: u32, cq: &Cq) -> Qp {
        self.qp_with(kind, context, pd, cq, |_| ()).unwrap()
    }

    /// As [`Guest::qp`], with changes.
    pub fn qp_with(
        &mut self,
        kind: u32,
        context: &Context,
        pd: u32,
        cq: &Cq,
        change: impl FnOnce(&mut CreateQp),
    ) -> Result<Qp, u32> {
        let area = self.memory.alloc(QP_BYTES);
        let mut create = create_qp(self, kind, context.number, pd, cq.number, &area);
        change(&mut create);
        let body = self.command(opcode::CREATE_QP, &create)?;
        let created = QpCreated::read_from_bytes(&body).unwrap();
        Ok(Qp {
            number: created.number.get(),
            doorbell: created.doorbell.get(),
            area,
            context: context.clone(),
            ctrl: create.ctrl.get().into(),
            destinations: create.destinations.get().into(),
            sq_producer: 0,
            rq_producer: 0,
        })
    }

    pub fn modify(&mut self, qp: u32, mask: u32, f: impl FnOnce(&mut ModifyQp)) -> Result<(), u32> {
        let mut modify = ModifyQp::new_zeroed();
        modify.number = qp.into();
        modify.attributes.mask = mask.into();
        f(&mut modify);
        self.command(opcode::MODIFY_QP, &modify).map(|body| {
            assert!(body.is_empty());
        })
    }

    /// Brings a queue pair to RTS, with a peer that has this number and address.
    pub fn connect(&mut self, qp: &Qp, peer: u32, gid: [u8; 16]) -> Result<(), u32> {
        self.connect_to(qp, peer, vector(gid))
    }

    /// As [`Guest::connect`], by an address vector.
    pub fn connect_to(&mut self, qp: &Qp, peer: u32, to: AddressVector) -> Result<(), u32> {
        self.connect_as(qp, [true, true], peer, to)
    }

    /// As [`Guest::connect_to`], for a side that answers requests, or sends them, or both.
    pub fn connect_as(
        &mut self,
        qp: &Qp,
        [answers, sends]: [bool; 2],
        peer: u32,
        to: AddressVector,
    ) -> Result<(), u32> {
        let of = |does, bits: &[u32]| if does { mask(bits) } else { 0 };
        self.modify(qp.number, 0x39, |m| {
            let a = &mut m.attributes;
            (a.state, a.port, a.access) = (1.into(), 1.into(), 0xf.into());
        })?;
        // STATE, AV, PATH_MTU, RQ_PSN, DEST_QPN; MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC.
        let to_rtr = mask(&[0, 7, 8, 12, 20]) | of(answers, &[15, 17]);
        self.modify(qp.number, to_rtr, |m| {
            m.to = to;
            let a = &mut m.attributes;
            (a.state, a.path_mtu, a.dest_qpn) = (2.into(), 5.into(), peer.into());
            (a.max_dest_rd_atomic, a.min_rnr_timer) = (16.into(), 1.into());
        })?;
        // STATE, TIMEOUT, SQ_PSN; RETRY_CNT, RNR_RETRY, MAX_QP_RD_ATOMIC.
        let to_rts = mask(&[0, 9, 16]) | of(sends, &[10, 11, 13]);
        self.modify(qp.number, to_rts, |m| {
            let a = &mut m.attributes;
            (a.state, a.timeout, a.retry_cnt) = (3.into(), 14.into(), 7.into());
            (a.rnr_retry, a.max_rd_atomic) = (7.into(), 16.into());
        })
    }

    /// Brings a datagram queue pair to RTS.
    pub fn datagrams(&mut self, qp: &Qp, qkey: u32) {
        self.modify(qp.number, mask(&[0, 4, 5, 6]), |m| {
            let a = &mut m.attributes;
            (a.state, a.port, a.qkey) = (1.into(), 1.into(), qkey.into());
        })
        .unwrap();
        self.modify(qp.number, 1, |m| m.attributes.state = 2.into())
            .unwrap();
        self.modify(qp.number, mask(&[0, 16]), |m| m.attributes.state = 3.into())
            .unwrap();
    }

    /// Rings the doorbell of a queue pair, and kicks if that has to be and nobody has since the
    /// device sleeps.
    pub fn ring(&mut self, qp: &Qp) {
        if qp.context.ring(qp.doorbell) {
            qp.context.status.store(0, 0);
            self.write(register::KICK, qp.context.number);
        }
    }

    /// Posts a send request and rings.
    pub fn send(&mut self, qp: &mut Qp, wqe: &Wqe) {
        qp.post(wqe);
        self.ring(qp);
    }
}

/// A mask of attributes, by the numbers of the bits of `enum ib_qp_attr_mask`.
pub fn mask(bits: &[u32]) -> u32 {
    bits.iter().fold(0, |mask, bit| mask | (1 << bit))
}

/// An address vector to an address.
pub fn vector(gid: [u8; 16]) -> AddressVector {
    AddressVector {
        dgid: gid,
        dmac: [0; 6],
        sgid_index: 0,
        hop_limit: 64,
        flow_label: 0.into(),
        traffic_class: 0,
        sl: 0,
        static_rate: 0,
        valid: 1,
    }
}

/// The two levels of doorbells, in either area.
const LEAVES: u64 = abi::DB_LEAF_OFFSET as u64;
const TOPS: u64 = offset_of!(abi::Db, top) as u64;

impl Context {
    /// Rings as the head of `ferrule-abi.h` has it; returns whether a kick is needed.
    pub fn ring(&self, doorbell: u32) -> bool {
        if !self.count_ring(doorbell) && self.toggle(LEAVES, doorbell, false) {
            self.count_ring(doorbell);
        }
        self.status.load(0) != 0
    }

    /// Stores the word `rung`, and toggles bits if they are at rest. Returns whether they were.
    fn count_ring(&self, doorbell: u32) -> bool {
        let toggled = self.toggle(LEAVES, doorbell, true);
        if toggled {
            fence(Ordering::SeqCst);
            self.toggle(TOPS, doorbell / 64, true);
        }
        let rung = abi::Rung::from_word(self.doorbell.load64(0)).then(doorbell);
        self.doorbell.store64(0, rung.to_word());
        fence(Ordering::SeqCst);
        toggled
    }

    /// Whether a bit of these words is at rest. Toggles it in that case, if told.
    fn toggle(&self, words: u64, position: u32, toggle: bool) -> bool {
        let (at, bit) = (words + u64::from(position / 64) * 8, 1 << (position % 64));
        let rung = self.doorbell.load64(at);
        let at_rest = (rung ^ self.status.load64(at)) & bit == 0;
        if at_rest && toggle {
            self.doorbell.store64(at, rung ^ bit);
        }
        at_rest
    }
}

/// A send request with at most one entry.
#[derive(Clone, Copy, Default)]
pub struct Wqe {
    pub id: u64,
    pub opcode: u8,
    /// Offset in the region, length, and key.
    pub local: Option<(u64, u32, u32)>,
    /// The data themselves, in the place of an entry.
    pub inline: Option<u64>,
    /// Offset in the peer's region, and key.
    pub remote: (u64, u32),
    pub extra: [u64; 2],
    pub imm: u32,
}

impl Wqe {
    pub fn new(id: u64, opcode: u8) -> Self {
        Self {
            id,
            opcode,
            ..Self::default()
        }
    }

    pub fn local(mut self, offset: u64, length: u32, key: u32) -> Self {
        self.local = Some((offset, length, key));
        self
    }

    pub fn inline(mut self, data: u64) -> Self {
        self.inline = Some(data);
        self
    }

    pub fn remote(mut self, offset: u64, key: u32) -> Self {
        self.remote = (offset, key);
        self
    }

    /// A datagram by an address handle.
    pub fn to(mut self, ah: u32, qpn: u32, qkey: u32) -> Self {
        self.extra = [u64::from(ah) | (u64::from(qpn) << 32), u64::from(qkey)];
        self
    }
}

fn sge((offset, length, key): (u64, u32, u32)) -> abi::Sge {
    abi::Sge {
        addr: (IOVA + offset).into(),
        length: length.into(),
        lkey: key.into(),
    }
}

impl Qp {
    /// Posts a send request, without ringing.
    pub fn post(&mut self, wqe: &Wqe) {
        let mut extra = [0; 16];
        extra[..8].copy_from_slice(&wqe.extra[0].to_le_bytes());
        extra[8..].copy_from_slice(&wqe.extra[1].to_le_bytes());
        let remote = !matches!(wqe.opcode, wr_opcode::SEND | wr_opcode::SEND_WITH_IMM);
        let head = abi::SendWqe {
            wr_id: wqe.id.into(),
            opcode: wqe.opcode,
            flags: match wqe.inline {
                Some(_) => wr_flags::SIGNALED | wr_flags::INLINE,
                None => wr_flags::SIGNALED,
            },
            num_sge: u16::from(wqe.local.is_some()).into(),
            inline_len: wqe.inline.map_or(0, |_| 8).into(),
            remote_addr: if remote {
                IOVA.wrapping_add(wqe.remote.0)
            } else {
                0
            }
            .into(),
            rkey: wqe.remote.1.into(),
            imm_or_inv: wqe.imm.to_le_bytes(),
            extra,
        };
        let at = u64::from(self.sq_producer % DEPTH) * u64::from(STRIDE);
        let mut slot = [0; STRIDE as usize];
        slot[..48].copy_from_slice(head.as_bytes());
        if let Some(local) = wqe.local {
            slot[48..].copy_from_slice(sge(local).as_bytes());
        }
        if let Some(data) = wqe.inline {
            slot[48..56].copy_from_slice(&data.to_le_bytes());
        }
        self.area.write(at, &slot);
        self.sq_producer = self.sq_producer.wrapping_add(1);
        self.area.store(self.ctrl, self.sq_producer);
    }

    /// Where the next send request goes, if the queue has addresses of its own.
    pub fn destination(&self, to: &AddressVector) {
        let at = self.destinations + u64::from(self.sq_producer % DEPTH) * 32;
        self.area.write(at, to.as_bytes());
    }

    /// Posts a receive request for bytes of a region.
    pub fn receive(&mut self, id: u64, offset: u64, length: u32, key: u32) {
        let at = u64::from(DEPTH + self.rq_producer % DEPTH) * u64::from(STRIDE);
        receive_request(&self.area, at, id, (offset, length, key));
        self.rq_producer = self.rq_producer.wrapping_add(1);
        self.area.store(self.ctrl + 64, self.rq_producer);
    }
}

/// Writes a receive request.
pub fn receive_request(area: &Area, at: u64, id: u64, local: (u64, u32, u32)) {
    let head = abi::RecvWqe {
        wr_id: id.into(),
        num_sge: 1.into(),
        reserved: [0; 6],
    };
    area.write(at, head.as_bytes());
    area.write(at + 16, sge(local).as_bytes());
}

/// A counter as the guest's driver reads it.
pub fn counter(guest: &mut Guest, name: &str) -> u64 {
    let place = COUNTERS
        .iter()
        .position(|other| other.to_str() == Ok(name))
        .unwrap();
    let bytes = guest.command(opcode::QUERY_COUNTERS, &[0u8; 0]).unwrap();
    u64::from_le_bytes(bytes[8 * place..][..8].try_into().unwrap())
}
