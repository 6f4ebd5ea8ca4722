// SPDX-License-Identifier: GPL-2.0

//! The bytes of an input are steps, one after the other.

use ferrule_engine::packet::{
    self, opcode, Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Header, Headers, Reth, XrcEth, U24,
};
use ferrule_engine::{QpType, Status};
use zerocopy::IntoBytes;

use super::super::Input;
use super::{Scene, DEPTH, GROUP, HOSTILE, MULTICAST, PEER, QKEY};
use crate::sim::network::GIDS;
use crate::sim::{Wr, MS, SQ_PSN, US};

impl Scene {
    /// A packet that is right but for changes by the input.
    fn packet(&mut self, input: &mut Input<'_>) {
        let opcode = input.byte();
        let whom = input.byte();
        let how = input.byte();
        let delta = i32::from(input.byte() as i8);
        let target = &self.targets[usize::from(whom) % self.targets.len()];
        let info = self.link.worlds[0].query(&target.qp);
        let is_answer = opcode::info(opcode)
            .is_some_and(|info| info.has(Header::Aeth) || info.kind == opcode::Kind::ReadResponse);
        // Numbers near to those that the engine expects: of requests the next one, of answers those
        // of what it has sent.
        let expected = if is_answer { SQ_PSN } else { info.attr.rq_psn };
        let mut bth = Bth {
            opcode,
            flags: Bth::MIGRATED | how & Bth::SOLICITED,
            dest_qp: U24::new(match whom >> 4 {
                0 => MULTICAST,
                1 => self.a.qp.id.number,
                2 => input.u32(),
                _ => target.qp.id.number,
            }),
            psn: U24::new(expected.wrapping_add_signed(delta)),
            acknowledge: input.byte(),
            ..Bth::default()
        };
        bth.pkey.set(if how & 1 != 0 { 0x7fff } else { 0xffff });
        let length = usize::from(input.u16()) % 1100;
        // Most of the lengths are such that the opcode may have them.
        let length = match opcode::info(opcode).map(|info| info.payload) {
            Some(payload) if how & 2 == 0 => match payload {
                opcode::Payload::None => 0,
                opcode::Payload::Full => 256,
                opcode::Payload::Exactly(bytes) => bytes.into(),
                _ => length % 257,
            },
            _ => length,
        };
        let pad = packet::pad(length as u32);
        bth.flags |= Bth::pad_flags(if how & 4 != 0 { how >> 3 } else { pad });
        let mut headers = Headers::new(&bth);
        let key = if how & 8 != 0 {
            input.u32()
        } else {
            self.open.key
        };
        let addr = self
            .open
            .iova
            .wrapping_add_signed(i16::from_le_bytes(input.array()).into());
        let claimed = if how & 16 != 0 {
            input.u32()
        } else {
            input.byte().into()
        };
        for header in Header::ALL {
            if !opcode::info(opcode).is_some_and(|info| info.has(header)) {
                continue;
            }
            match header {
                Header::Deth => headers.push(&Deth {
                    qkey: if how & 32 != 0 { 5 } else { QKEY }.into(),
                    src_qp: U24::new(PEER),
                    ..Deth::default()
                }),
                Header::Reth => headers.push(&Reth {
                    addr: addr.into(),
                    rkey: key.into(),
                    length: claimed.into(),
                }),
                Header::Atomic => headers.push(&AtomicEth {
                    addr: (addr & !7).into(),
                    rkey: key.into(),
                    swap_or_add: 1.into(),
                    compare: 2.into(),
                }),
                Header::Aeth => headers.push(&Aeth {
                    syndrome: input.byte(),
                    msn: U24::new(input.byte().into()),
                }),
                Header::Xrceth => headers.push(&XrcEth {
                    reserved: 0,
                    srq: U24::new(if how & 64 != 0 {
                        input.u32()
                    } else {
                        self.srq.number
                    }),
                }),
                Header::AtomicAck => headers.push(&AtomicAckEth { original: 3.into() }),
                _ => headers.push(&input.array::<4>()),
            }
        }
        let mut transport = headers.as_bytes().to_vec();
        transport.resize(transport.len() + length + usize::from(pad), 0xa5);
        let to = if whom >> 4 == 0 { GROUP } else { GIDS[0] };
        self.receive(&to, transport, true);
    }

    /// A packet that the engine has sent comes back, with a few bytes changed.
    fn reflect(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte());
        let Some(packet) = self.seen.values().nth(which % self.seen.len().max(1)) else {
            return;
        };
        let mut packet = packet.clone();
        packet.ip[8..24].copy_from_slice(&HOSTILE);
        packet.ip[24..40].copy_from_slice(&GIDS[0]);
        let target = &self.targets[which / 16 % self.targets.len()];
        packet.transport[5..8].copy_from_slice(&target.qp.id.number.to_be_bytes()[1..]);
        for _ in 0..input.byte() % 4 {
            let place = usize::from(input.byte()) % packet.transport.len();
            packet.transport[place] ^= input.byte();
        }
        packet.seal();
        self.receive_packet(&packet);
    }

    fn post_send(&mut self, target: usize, input: &mut Input<'_>) {
        let kind = input.byte();
        let length = u32::from(input.u16()) % 2000;
        let (open, ah) = (self.open.clone(), self.ah);
        let target = &mut self.targets[target];
        let is_full = target.posted[0] - target.completed[0] == DEPTH;
        if is_full || target.qp_type == QpType::XrcTgt {
            return;
        }
        let number = target.posted[0].into();
        let sges = [open.sge(2048, length)];
        let remote = (0x1000, 0x55);
        let word = [open.sge(0, 8)];
        let wr = match (target.qp_type, kind % 7) {
            (QpType::Ud, _) => Wr::datagram(number, &[open.sge(0, length % 257)], (ah, 7), QKEY),
            (QpType::Rc | QpType::XrcIni, 1) => Wr::read(number, &sges, remote),
            (QpType::Rc | QpType::XrcIni, 2) => Wr::fetch_add(number, word[0], remote, 5),
            (QpType::Rc, 5) => Wr::atomic_write(number, remote, number),
            (QpType::Rc, 6) => Wr::flush(number, remote, length),
            (_, 3) => Wr::write(number, &sges, remote),
            _ => Wr::send(number, &sges),
        };
        let wr = match target.qp_type {
            QpType::XrcIni => wr.to_srq(0x77),
            _ => wr,
        };
        target.posted[0] += 1;
        target.qp.post_send(&wr);
    }

    pub(super) fn post_receive(&mut self, target: usize, length: u32) {
        let open = self.open.clone();
        let target = &mut self.targets[target];
        if target.posted[1] - target.completed[1] < DEPTH {
            let number = target.posted[1].into();
            let sges = [open.sge(4096, length % 4096)];
            match target.qp_type {
                QpType::XrcIni => return,
                // Some may have been dropped without a completion, and the queue is full.
                QpType::XrcTgt if !self.srq.post(number, &sges) => return,
                QpType::XrcTgt => (),
                _ => target.qp.post_recv(number, &sges),
            }
            target.posted[1] += 1;
        }
    }

    /// The neighbour moves bytes, whatever else is going on.
    pub(super) fn transfer(&mut self, length: u32) {
        let id = self.transfers;
        let length = 1 + length % 1024;
        self.transfers += 1;
        let [from, to] = &self.memory;
        from.fill(id as u8);
        let sent = from.bytes(0, length as usize);
        self.b.qp.post_recv(id, &[to.sge(0, length)]);
        self.a.qp.post_send(&Wr::send(id, &[from.sge(0, length)]));
        self.advance(self.link.now + MS);
        self.a.cq.expect(id, Status::Success);
        self.b.cq.expect(id, Status::Success);
        assert_eq!(self.memory[1].bytes(0, length as usize), sent);
    }

    pub(super) fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let target = usize::from(what >> 4) % self.targets.len();
        match what & 15 {
            0..=4 => self.packet(input),
            5 => self.reflect(input),
            6 => {
                // Bytes of the input, as they are.
                let mut bytes = input.array::<64>().to_vec();
                bytes.truncate(usize::from(what >> 4) * 4 + 4);
                self.receive(&GIDS[0], bytes, input.byte() & 1 != 0);
            }
            7 => {
                // A sound header before bytes of the input, sealed or not.
                let number = self.targets[target].qp.id.number;
                let mut bth = Bth {
                    opcode: input.byte(),
                    dest_qp: U24::new(number),
                    ..Bth::default()
                };
                bth.pkey.set(0xffff);
                let mut bytes = bth.as_bytes().to_vec();
                bytes.extend(input.array::<32>());
                self.receive(&GIDS[0], bytes, what & 0x80 == 0);
            }
            8 => self.post_send(target, input),
            9 => {
                let length = input.u16();
                self.post_receive(target, length.into());
            }
            10 => self.advance(self.link.now + u64::from(input.u16()) * US),
            11 => self.reset(target),
            12 => self.transfer(input.u16().into()),
            13 => self.world().host.busy = u32::from(input.byte()) % 8,
            _ => self.run(),
        }
        self.collect();
    }
}

/// Inputs to begin with: a packet of each opcode to each kind of queue pair, with requests of the
/// program's own under way.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for opcode in (0..=255u8).filter(|&opcode| opcode::info(opcode).is_some()) {
        let target = match opcode >> 5 {
            0 => 0,
            1 => 1,
            5 if opcode::info(opcode).is_some_and(|info| info.kind.is_request()) => 4,
            5 => 5,
            _ => 2,
        };
        let send = |kind, length| [8 | target << 4, kind, length, 1];
        let packet = |delta| {
            [
                0,
                opcode,
                0x30 | target,
                0,
                delta,
                0x80,
                40,
                0,
                8,
                0,
                40,
                0,
                0,
            ]
        };
        let mut seed = Vec::new();
        seed.extend([9 | target << 4, 0, 2, 9 | target << 4, 0, 1]);
        seed.extend(send(opcode % 7, 100));
        seed.extend(send(opcode % 3, 0));
        seed.extend([14]);
        seed.extend(packet(0));
        seed.extend([14]);
        seed.extend(packet(1));
        seed.extend([14]);
        seed.extend(packet(0));
        seed.extend([14, 12, 0, 2, 10, 0, 4]);
        seed.extend([5, target * 16, 0, 5, target * 16 + 1, 1, 9, 3, 14]);
        seeds.push(seed);
    }
    for what in 0..=255 {
        seeds.push(vec![
            what, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 14, 12, 0, 1,
        ]);
    }
    seeds
}
