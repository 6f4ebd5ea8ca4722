// SPDX-License-Identifier: GPL-2.0

//! XRC by a network that loses, repeats and reorders packets.

use super::*;
use crate::sim::network::BAD;

/// Every message arrives once, in order, byte for byte, at the queue that it is for.
#[test]
fn over_a_bad_network() {
    const COUNT: u64 = 400;

    let mut s = Scene::remote(BAD);
    let receivers = [0, 1].map(|i| s.receiver(PD + i, DOMAIN));
    let mut posted = [0u64; 2];
    let mut taken = [Vec::new(), Vec::new()];
    let (mut sent, mut ended) = (0, 0);
    loop {
        for (i, (srq, cq, mr)) in receivers.iter().enumerate() {
            for wc in cq.drain() {
                assert_eq!(wc.status, Status::Success as u8);
                let number = u64::from(u32::from_be_bytes(wc.imm));
                let length = number * 37 % 5000;
                assert_eq!(u64::from(wc.byte_len), length);
                let slot = (wc.wr_id % 8) * 8192;
                if wc.opcode == wc_opcode::RECV {
                    let expected = s.from.bytes(number as usize, length as usize);
                    assert_eq!(mr.bytes(slot as usize, length as usize), expected);
                }
                taken[i].push(number);
            }
            while posted[i] - (taken[i].len() as u64) < 8 {
                let slot = (posted[i] % 8) * 8192;
                assert!(srq.post(posted[i], &[mr.sge(slot, 8192)]));
                posted[i] += 1;
            }
        }
        for wc in s.a.cq.drain() {
            assert_eq!((wc.wr_id, wc.status), (ended, Status::Success as u8));
            ended += 1;
        }
        while sent < COUNT && sent - ended < 4 {
            let (srq, _, mr) = &receivers[(sent / 3 % 2) as usize];
            let sge = s.from.sge(sent, (sent * 37 % 5000) as u32);
            let wr = match sent % 4 {
                0 => Wr::write(sent, &[sge], mr.remote(65536))
                    .with_opcode(wr_opcode::RDMA_WRITE_WITH_IMM),
                1 => Wr::read(sent, &[s.from.sge(98304, 3000)], mr.remote(0)),
                2 => Wr::fetch_add(sent, s.from.sge(110_000, 8), mr.remote(131_064), 1),
                _ => Wr::send(sent, &[sge]).with_opcode(wr_opcode::SEND_WITH_IMM),
            };
            let wr = wr.with_imm((sent as u32).to_be_bytes());
            s.post(wr, srq);
            sent += 1;
        }
        if !s.link.step() {
            break;
        }
    }
    assert_eq!((sent, ended), (COUNT, COUNT));
    let mut all = taken.concat();
    assert!(taken.iter().all(|numbers| numbers.is_sorted()));
    all.sort_unstable();
    let expected: Vec<u64> = (0..COUNT).filter(|n| matches!(n % 4, 0 | 3)).collect();
    assert_eq!(all, expected);
    let added: u64 = receivers
        .iter()
        .map(|(_, _, mr)| u64::from_ne_bytes(mr.bytes(131_064, 8).try_into().unwrap()))
        .sum();
    assert_eq!(added, COUNT / 4);
    let [a, b] = s.ends().map(TestQp::clone);
    s.link.worlds[0].state(&a, State::Rts);
    s.link.worlds[1].state(&b, State::Rts);
}
