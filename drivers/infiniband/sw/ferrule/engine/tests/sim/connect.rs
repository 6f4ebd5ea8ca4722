// SPDX-License-Identifier: GPL-2.0

//! Queue pairs from state to state, and two of them connected.

use ferrule_engine::{Error, Modify, Mtu, Path, PathKind, QpInfo, QpType, State, Vport};

use super::program::{TestCq, TestQp, ALL};
use super::world::{QpSpec, World};

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
        path: Some(path(PathKind::Local(Vport::default()))),
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

/// Leaves those attributes that a side of XRC has: the initiator, which `sends`, or the target.
pub fn of_xrc_side(modify: &mut Modify, sends: bool) {
    if sends {
        modify.max_dest_rd_atomic = None;
        modify.min_rnr_timer = None;
    } else {
        modify.retry_cnt = None;
        modify.rnr_retry = None;
        modify.max_rd_atomic = None;
    }
}

/// The host's route along a path: the path itself.
pub(super) fn route(path: Option<Path>) -> Option<Path> {
    path.filter(|path| path.kind == PathKind::Remote)
}

impl World {
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

    /// A queue pair for frames, ready to send, and its completion queue.
    #[track_caller]
    pub fn raw(&mut self, spec: &QpSpec) -> End {
        let cq = self.cq(64);
        let spec = QpSpec {
            qp_type: QpType::RawPacket,
            ..spec.clone()
        };
        let qp = self.qp_with(&spec, &cq, &cq);
        self.ready_raw(&qp);
        End { qp, cq }
    }

    /// Moves a queue pair for frames from RESET to RTS.
    #[track_caller]
    pub fn ready_raw(&mut self, qp: &TestQp) {
        let init = Modify {
            state: Some(State::Init),
            port: Some(1),
            ..Modify::default()
        };
        self.modify(qp, &init).unwrap();
        self.to(qp, State::Rtr);
        self.to(qp, State::Rts);
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

    /// Connects an initiator of XRC to a target.
    #[track_caller]
    pub fn connect_xrc(&mut self, initiator: &TestQp, target: &TestQp) {
        for (qp, peer, sends) in [(initiator, target, true), (target, initiator, false)] {
            for mut modify in [init(), rtr(peer.id.number), rts()] {
                of_xrc_side(&mut modify, sends);
                self.modify(qp, &modify).unwrap();
            }
        }
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
}
