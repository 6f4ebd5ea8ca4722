// SPDX-License-Identifier: GPL-2.0

//! Work requests of any bytes, on two connected queue pairs, and over XRC to a shared receive
//! queue.

use ferrule_engine::{abi, Access, QpType, State, XrcSrq};
use zerocopy::IntoBytes;

use super::each;
use crate::sim::memory::{shared, Shared};
use crate::sim::{End, QpSpec, TestMr, TestQp, TestSrq, Wc, World, Wr, ALL, MS};

/// Bytes of a send slot that come from the input: the head and four entries, or 64 bytes inline.
pub const SEND_BYTES: usize = size_of::<abi::SendWqe>() + 4 * size_of::<abi::Sge>();
/// Bytes of a receive slot that come from the input.
pub const RECV_BYTES: usize = size_of::<abi::RecvWqe>() + 4 * size_of::<abi::Sge>();

/// The memory of which parts are registered; the rest must never change.
const ARENA: usize = 32 << 10;
const OWN: std::ops::Range<usize> = 4096..12288;
const READ_ONLY: std::ops::Range<usize> = 16384..20480;
const FOREIGN: std::ops::Range<usize> = 24576..28672;

const DEPTH: u32 = 16;
/// The sides of XRC among the four.
const INITIATOR: usize = 2;
const TARGET: usize = 3;
const DOMAIN: u32 = 9;
/// Things to do; the rest of the input is left.
const LIMIT: usize = 100;

/// One end with what was posted since its last reset.
struct Side {
    end: End,
    /// Of a target of XRC, the queue that its receive requests are posted to.
    srq: Option<TestSrq>,
    /// The names of the requests that were posted, by index.
    sends: Vec<u64>,
    receives: Vec<u64>,
    /// Receive requests that have completed, and send requests known to be.
    received: usize,
    sent: usize,
}

impl Side {
    fn new(end: End, srq: Option<TestSrq>) -> Self {
        Self {
            end,
            srq,
            sends: Vec::new(),
            receives: Vec::new(),
            received: 0,
            sent: 0,
        }
    }

    fn qp(&self) -> &TestQp {
        &self.end.qp
    }

    /// Whether there is a ring for such requests.
    fn has_ring(&self, receive: bool) -> bool {
        let qp = &self.end.qp;
        let ring = if receive { qp.rq } else { qp.sq };
        ring.depth != 0 || (receive && self.srq.is_some())
    }

    /// Whether a ring has no free slot.
    fn is_full(&self) -> bool {
        let full = |posted: usize, done: usize| posted - done >= DEPTH as usize;
        full(self.sends.len(), self.sent) || full(self.receives.len(), self.received)
    }

    /// Puts bytes into the next slot of a ring, as the program does that owns it.
    fn post(&mut self, receive: bool, bytes: &[u8]) {
        let qp = &self.end.qp;
        let (queue, ring, producer, word, posted) = match &self.srq {
            Some(srq) => {
                let posted = &mut self.receives;
                (&srq.queue, &srq.ring, &srq.producer, srq.ctrl, posted)
            }
            None if receive => {
                let posted = &mut self.receives;
                (&qp.queue, &qp.rq, &qp.rq_producer, qp.ctrl + 64, posted)
            }
            None => {
                let posted = &mut self.sends;
                (&qp.queue, &qp.sq, &qp.sq_producer, qp.ctrl, posted)
            }
        };
        let index = producer.get();
        queue.write(ring.slot(index) as usize, bytes);
        producer.set(index + 1);
        queue.set_word(word as usize, index + 1);
        qp.ring();
        posted.push(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
    }

    /// Takes the completions, which have to be of what was posted, in order and once.
    fn complete(&mut self) {
        for wc in self.end.cq.drain() {
            self.check(&wc);
        }
    }

    fn check(&mut self, wc: &Wc) {
        let qp = &self.end.qp;
        assert_eq!((wc.qp_num, wc.qp_gen), (qp.id.number, qp.id.generation));
        assert!([0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 21].contains(&wc.status));
        assert_eq!(wc.srq, self.srq.as_ref().map(|srq| srq.number));
        let index = match wc.srq {
            // The number of the queue is in the index's place. Nobody else takes of it.
            Some(_) => self.received + 1,
            None => wc.queue_index as usize,
        };
        if wc.opcode & abi::wc_opcode::RECV != 0 {
            assert_eq!(
                index,
                self.received + 1,
                "receive requests complete once, in order"
            );
            assert_eq!(wc.wr_id, self.receives[index - 1]);
            self.received = index;
        } else {
            assert!(self.sent < index && index <= self.sends.len(), "{wc:?}");
            assert_eq!(wc.wr_id, self.sends[index - 1]);
            self.sent = index;
        }
    }

    /// In error, all that was posted has ended. Requests of a shared queue are for other targets.
    fn is_flushed(&self, world: &World) -> bool {
        if self.srq.is_some() {
            return true;
        }
        let info = world.query(&self.end.qp);
        info.sq_consumer as usize == self.sends.len()
            && info.rq_consumer as usize == self.receives.len()
            && self.received == self.receives.len()
            && self.sent == self.sends.len()
    }
}

struct Scene {
    world: World,
    sides: [Side; 4],
    paged: TestMr,
    arena: Shared,
    before: Vec<u8>,
}

fn pattern() -> Vec<u8> {
    (0..ARENA).map(|i| ((i * 131) >> 3) as u8).collect()
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new();
        let arena = shared(ARENA);
        arena.borrow_mut().copy_from_slice(&pattern());
        let [_, _, _, paged] = Self::register(&mut world, &arena);
        let spec = QpSpec {
            depth: DEPTH,
            max_inline: 64,
            sq_sig_all: true,
            ..QpSpec::default()
        };
        let (a, b) = world.pair_with(&spec);
        let [ini, tgt] = [(QpType::XrcIni, 1), (QpType::XrcTgt, DOMAIN)].map(|(qp_type, pd)| {
            let spec = QpSpec {
                qp_type,
                pd,
                ..spec.clone()
            };
            let cq = world.cq(64);
            let qp = world.qp_with(&spec, &cq, &cq);
            End { qp, cq }
        });
        world.connect_xrc(&ini.qp, &tgt.qp);
        let srq = Self::shared_queue(&mut world, tgt.cq.cqn);
        Self {
            world,
            sides: [
                Side::new(a, None),
                Side::new(b, None),
                Side::new(ini, None),
                Side::new(tgt, Some(srq)),
            ],
            paged,
            arena,
            before: pattern(),
        }
    }

    /// The queue in the target's domain.
    fn shared_queue(world: &mut World, cq: u32) -> TestSrq {
        let xrc = XrcSrq { domain: DOMAIN, cq };
        world.try_srq(1, DEPTH, 4, Some(xrc)).unwrap()
    }

    /// One region that anybody may write, one that nobody may, one of somebody else, and the first
    /// again, whose bytes may have to be brought in.
    fn register(world: &mut World, arena: &Shared) -> [TestMr; 4] {
        [
            (1, ALL, OWN),
            (1, Access::NONE, READ_ONLY),
            (2, ALL, FOREIGN),
            (1, ALL.or(Access::ON_DEMAND), OWN),
        ]
        .map(|(pd, access, range)| {
            world.mr_with(pd, access, arena.clone(), range.start, range.len())
        })
    }

    /// Lets the engine work, and looks at what it did.
    fn work(&mut self) {
        self.world.settle(10 * MS);
        for side in &mut self.sides {
            side.complete();
            let shared = side.srq.as_ref().map(|srq| &srq.queue);
            for queue in [Some(&side.qp().queue), shared].into_iter().flatten() {
                let reads = queue.reads.borrow();
                assert!(reads.iter().all(|&reads| reads <= 1), "a slot is read once");
            }
        }
        if self
            .sides
            .iter()
            .any(|side| self.world.query(side.qp()).state != State::Rts)
        {
            self.start_anew();
        }
        self.world.host.traces.clear();
        let arena = self.arena.borrow();
        assert_eq!(arena[..OWN.start], self.before[..OWN.start]);
        assert_eq!(arena[OWN.end..], self.before[OWN.end..]);
    }

    /// Both sides through error and reset.
    fn start_anew(&mut self) {
        let Self { world, sides, .. } = self;
        for side in sides.iter() {
            world.to(side.qp(), State::Err);
        }
        world.settle(10 * MS);
        for side in sides.iter_mut() {
            side.complete();
            assert!(side.is_flushed(world));
            world.to(side.qp(), State::Reset);
            side.qp().rewind();
            (side.sends, side.sent) = (Vec::new(), 0);
            if side.srq.is_none() {
                (side.receives, side.received) = (Vec::new(), 0);
            }
        }
        world.connect(sides[0].qp(), sides[1].qp());
        world.connect(sides[1].qp(), sides[0].qp());
        world.connect_xrc(sides[INITIATOR].qp(), sides[TARGET].qp());
    }

    fn post(&mut self, side: usize, receive: bool, bytes: &[u8]) {
        if !self.sides[side].has_ring(receive) {
            return;
        }
        if self.sides[side].is_full() {
            self.work();
        }
        if self.sides[side].is_full() {
            self.start_anew();
        }
        // Requests in a shared queue stay.
        if !self.sides[side].is_full() {
            self.sides[side].post(receive, bytes);
        }
    }

    /// Bytes of the region are away, and may not come back.
    fn page_out(&mut self, what: u8) {
        let region = &self.paged.region;
        region.absent.set(u32::from(what >> 2 & 3));
        region
            .absent_from
            .set(if what & 0x10 == 0 { 0 } else { 4096 });
        region.broken.set(what & 0x20 != 0);
        region.askers.take();
    }
}

/// Does what the bytes say.
pub fn run(data: &[u8]) {
    let mut scene = Scene::new();
    each(data, LIMIT, |what, input| {
        let side = usize::from(what >> 4 & 3);
        match what & 3 {
            0 => scene.post(side, true, &input.array::<RECV_BYTES>()),
            1 | 2 => scene.post(side, false, &input.array::<SEND_BYTES>()),
            _ if what & 0x40 != 0 => scene.page_out(what),
            _ => scene.work(),
        }
        if what & 0x80 != 0 {
            scene.work();
        }
    });
    scene.work();
    scene.start_anew();
}

/// Inputs to begin with: each opcode, with what it needs to succeed.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut world = World::new();
    let [own, read_only, foreign, paged] = Scene::register(&mut world, &shared(ARENA));
    let cq = world.cq(1).cqn;
    let srq = Scene::shared_queue(&mut world, cq);
    let entries = |list: &[(u64, u32, u32)]| -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(addr, length, lkey) in list {
            let sge = abi::Sge {
                addr: addr.into(),
                length: length.into(),
                lkey: lkey.into(),
            };
            bytes.extend_from_slice(sge.as_bytes());
        }
        bytes.resize(64, 0);
        bytes
    };
    let receive = |list: &[(u64, u32, u32)]| -> Vec<u8> {
        let head = abi::RecvWqe {
            wr_id: 7.into(),
            num_sge: (list.len() as u16).into(),
            reserved: [0; 6],
        };
        [&[0x10], head.as_bytes(), &entries(list)].concat()
    };
    let send = |opcode: u8, flags: u8, list: &[(u64, u32, u32)], to: &TestMr| -> Vec<u8> {
        let inline = flags & abi::wr_flags::INLINE != 0;
        // A flush has its placement type where others have zero.
        let mut extra = [0; 16];
        let is_bare = matches!(opcode, abi::wr_opcode::FLUSH | abi::wr_opcode::ATOMIC_WRITE);
        if opcode == abi::wr_opcode::FLUSH {
            extra[..5].copy_from_slice(&[100, 0, 0, 0, abi::flush_placement::GLOBAL]);
        }
        let head = abi::SendWqe {
            wr_id: 9.into(),
            opcode,
            flags,
            num_sge: if inline || is_bare {
                0
            } else {
                list.len() as u16
            }
            .into(),
            inline_len: if inline { 48 } else { 0 }.into(),
            remote_addr: to.iova.into(),
            rkey: to.key.into(),
            extra,
            ..abi::SendWqe::default()
        };
        [&[0x81], head.as_bytes(), &entries(list)].concat()
    };
    let list = [own.sge(0, 1000), own.sge(5000, 0), read_only.sge(10, 2000)];
    let mut seeds = Vec::new();
    for opcode in 0..12 {
        for flags in [0, abi::wr_flags::INLINE, abi::wr_flags::FENCE] {
            let length = if (5..7).contains(&opcode) { 8 } else { 1000 };
            let from = [own.sge(64, length)];
            seeds.push(
                [
                    receive(&[own.sge(4000, 4000)]),
                    send(opcode, flags, &from, &own),
                ]
                .concat(),
            );
        }
    }
    for opcode in 0..12 {
        let length = if (5..7).contains(&opcode) { 8 } else { 1000 };
        // Over XRC, to a request of the shared queue, and to none.
        let mut over_xrc = send(opcode, 0, &[own.sge(64, length)], &own);
        over_xrc[0] = 0xa1;
        let words = Wr::send(9, &[]).with_opcode(opcode).to_srq(srq.number);
        over_xrc[29..33].copy_from_slice(&words.imm);
        over_xrc[33..49].copy_from_slice(&words.extra);
        let mut to_shared = receive(&[own.sge(4000, 4000)]);
        to_shared[0] = 0x30;
        seeds.push([to_shared, over_xrc.clone()].concat());
        seeds.push(over_xrc);
        // Memory of both ends that has to be brought in, and then is gone.
        let mut both = receive(&[paged.sge(4000, 4000)]);
        both.extend(send(opcode, 0, &[paged.sge(64, length)], &paged));
        for out in [0x4f, 0x6f] {
            seeds.push([&[out], &both[..], &[3, 3]].concat());
        }
    }
    seeds.push(
        [
            send(0, 1, &list, &own),
            receive(&[own.sge(0, 100), own.sge(4096, 4096)]),
        ]
        .concat(),
    );
    seeds.push([receive(&[read_only.sge(0, 4096)]), send(0, 0, &list, &own)].concat());
    seeds.push([receive(&[foreign.sge(0, 4096)]), send(0, 0, &list, &own)].concat());
    seeds.push(send(2, 0, &list, &foreign));
    seeds.push(send(2, 0, &[foreign.sge(0, 64)], &own));
    seeds
}
