// SPDX-License-Identifier: GPL-2.0

//! Datagrams between queue pairs of one engine: those that arrive, those that are dropped, and
//! groups.

mod delivery;
mod dropped;
mod groups;

use ferrule_engine::{Error, Gid, Group, Path, PathKind, Status, Vport};

use crate::sim::*;

const QKEY: u32 = 0x1111_1111;
const GRH: u32 = 40;
const MULTICAST: u32 = 0xff_ffff;

fn mapped(a: u8, b: u8, c: u8, d: u8) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

fn local() -> Path {
    Path {
        sgid: mapped(10, 0, 0, 1),
        dgid: mapped(10, 0, 0, 2),
        traffic_class: 0x20,
        hop_limit: 64,
        sl: 3,
        ..path(PathKind::Local(Vport::default()))
    }
}

fn group(number: u8) -> Path {
    Path {
        dgid: mapped(239, 1, 2, number),
        ..local()
    }
}

struct Scene {
    w: World,
    a: End,
    b: End,
    ah: u32,
    from: TestMr,
    to: TestMr,
}

impl Scene {
    fn new() -> Self {
        let mut w = World::new();
        let a = w.ud(&QpSpec::default(), QKEY);
        let b = w.ud(&QpSpec::default(), QKEY);
        let ah = w.ah(1, local());
        let (from, to) = (w.mr(8192), w.mr(8192));
        from.fill(9);
        Self {
            w,
            a,
            b,
            ah,
            from,
            to,
        }
    }

    fn to_b(&self) -> (u32, u32) {
        (self.ah, self.b.qp.id.number)
    }

    /// Sends so many bytes to `b` and checks that the sender is content.
    #[track_caller]
    fn send(&mut self, length: u32) {
        let wr = Wr::datagram(7, &[self.from.sge(0, length)], self.to_b(), QKEY);
        self.a.qp.post_send(&wr);
        self.w.run();
        self.a.cq.expect(7, Status::Success);
    }

    fn dropped(&self) -> u64 {
        self.w.engine.counters().dropped
    }

    fn attach(&mut self, qp: &TestQp, gid: Gid) -> Result<(), Error> {
        let number = qp.id.number;
        add(&mut self.w.engine, Group::new(), |engine, memory| {
            engine.attach_mcast(number, &gid, memory)
        })
        .map(|_| ())
    }
}
