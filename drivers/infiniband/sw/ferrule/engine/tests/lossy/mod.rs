// SPDX-License-Identifier: GPL-2.0

//! Unreliable services over the wire: a message arrives whole or not at all, and is not sent again.

mod host;
mod messages;
mod uc;
mod ud;

use ferrule_engine::packet::opcode::Service;
use ferrule_engine::{Gid, Mtu, Path, PathKind, Status, Vport};

use crate::sim::network::{deliver, Faults, Link};
use crate::sim::*;

const QKEY: u32 = 0x1111_1111;
const GRH: u32 = 40;
const MULTICAST: u32 = 0xff_ffff;
const UC: u8 = Service::Uc as u8;

/// Two ends of an unreliable connection, and the memory for their messages.
struct Scene {
    link: Link,
    ends: [End; 2],
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair_uc();
        let (from, to) = (link.worlds[0].mr(8192), link.worlds[1].mr(8192));
        from.fill(5);
        Self {
            link,
            ends,
            from,
            to,
        }
    }

    /// The packets of a request.
    fn packets(&mut self, wr: &Wr) -> Vec<SentPacket> {
        self.ends[0].qp.post_send(wr);
        let world = &mut self.link.worlds[0];
        world.run();
        self.ends[0].cq.expect(wr.wr_id, Status::Success);
        std::mem::take(&mut world.host.sent)
    }

    fn deliver<'a>(&mut self, packets: impl IntoIterator<Item = &'a SentPacket>) {
        for packet in packets {
            deliver(&mut self.link.worlds[1], packet);
        }
        self.link.worlds[1].run();
        assert_eq!(self.link.worlds[1].host.sent, [], "nobody answers");
    }

    fn dropped(&self) -> u64 {
        self.link.worlds[1].engine.counters().dropped
    }
}

/// Two datagram queue pairs, and the way from the first to the second.
struct Datagrams {
    link: Link,
    ends: [End; 2],
    from: TestMr,
    to: TestMr,
    way: Path,
}

impl Datagrams {
    fn new(sgid: Gid, dgid: Gid) -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = [0, 1].map(|i| {
            link.worlds[i]
                .engine
                .set_port_mtu(Vport::default(), Mtu::Mtu1024);
            link.worlds[i].ud(&QpSpec::default(), QKEY)
        });
        let (from, to) = (link.worlds[0].mr(8192), link.worlds[1].mr(8192));
        from.fill(5);
        let way = Path {
            sgid,
            dgid,
            hop_limit: 9,
            ..path(PathKind::Remote)
        };
        Self {
            link,
            ends,
            from,
            to,
            way,
        }
    }

    fn send(&mut self, length: u32, target: u32, qkey: u32) -> SentPacket {
        let ah = self.link.worlds[0].ah(1, self.way);
        let wr = Wr::datagram(1, &[self.from.sge(0, length)], (ah, target), qkey);
        self.ends[0].qp.post_send(&wr);
        let world = &mut self.link.worlds[0];
        world.run();
        let packet = world.host.sent.pop().unwrap();
        assert_eq!(world.host.sent, []);
        self.ends[0].cq.expect(1, Status::Success);
        packet
    }

    fn deliver(&mut self, packet: &SentPacket) {
        deliver(&mut self.link.worlds[1], packet);
        self.link.worlds[1].run();
        assert_eq!(self.link.worlds[1].host.sent, []);
    }

    fn target(&self) -> u32 {
        self.ends[1].qp.id.number
    }
}

fn mapped(a: u8, b: u8, c: u8, d: u8) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}
