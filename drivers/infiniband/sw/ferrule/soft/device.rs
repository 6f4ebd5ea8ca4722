// SPDX-License-Identifier: GPL-2.0

//! A device: its engine, the worker, its place in the network and its files in debugfs.

use ferrule_engine::{
    abi,
    packet::ip::is_multicast,
    steering::rule::Rule,
    Ah,
    Block,
    Engine,
    Group,
    Modify,
    Mtu,
    Path,
    PathKind,
    QpType,
    State,
    Vport,
    MAX_AH,
    MAX_CQ,
    MAX_MCAST_GRP,
    MAX_MCAST_QP_ATTACH,
    MAX_MR,
    MAX_MW,
    MAX_PD,
    MAX_RD_ATOMIC,
    MAX_SRQ, //
};
use kernel::{
    error::Error,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::boxed::boxed;
use net_ext::NetDevice;
use rdma::{
    device::{
        OnDemand,
        OnDemandOperations, //
    },
    pma::PortCounters,
    stats::Counter,
    Gid, //
};

use super::{
    debugfs::Directory,
    destination::Destination,
    net::{
        frames::{
            Flow,
            Frames, //
        },
        lower::Lower,
        multicast,
        path::UdpPath,
        ports::Membership,
        sender::{
            Limit,
            Sender, //
        }, //
    },
    shared::{
        errno,
        Shared, //
    },
    statistics,
    worker::Workers, //
};
use crate::backend::{
    object::{
        AddressVector,
        Limits, //
    },
    Backend,
    Commands,
    Linked, //
};

/// Both sides of a SEND.
const MESSAGES: OnDemandOperations = OnDemandOperations::SEND
    .or(OnDemandOperations::RECV)
    .or(OnDemandOperations::SRQ_RECV);

/// All of XRC.
const XRC: OnDemandOperations = MESSAGES
    .or(OnDemandOperations::WRITE)
    .or(OnDemandOperations::READ)
    .or(OnDemandOperations::ATOMIC);

/// The workers of a device, which stop when this is dropped.
struct StopWorkers(Arc<Workers>);

impl Drop for StopWorkers {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A device's engines with the threads that help them: the data of the `ib_device`.
#[pin_data]
pub(crate) struct Soft {
    shared: Shared,
    /// The limit that the queue pairs share for packets on their way.
    limit: Arc<Limit>,
    lower: Arc<Lower>,
    /// The network device's, for raw packet queue pairs.
    frames: Arc<Frames>,
    /// Dropped before the worker: then nothing comes from the wire any more.
    wire: Membership,
    /// Stopped when nothing is left for them to do.
    _workers: StopWorkers,
    #[pin]
    directory: Directory,
}

impl Soft {
    /// Where an address vector leads: to this device itself if the GID is its own, or out to the
    /// network by the route that `route` finds.
    fn resolve(
        &self,
        to: &AddressVector<'_>,
        route: impl FnOnce() -> Result<UdpPath>,
    ) -> Result<Destination> {
        let (kind, route) = if to.is_own && !self.directory.is_wire_only() {
            (PathKind::Local(Vport::default()), None)
        } else {
            (PathKind::Remote, Some(route()?))
        };
        let AddressVector { attr, sgid, .. } = to;
        let path = Path {
            kind,
            sgid_index: attr.sgid_index,
            sgid: sgid.gid().0,
            dgid: attr.dgid.0,
            dmac: attr.dmac,
            flow_label: attr.flow_label,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
            sl: attr.sl,
            static_rate: attr.static_rate,
        };
        Ok(Destination::new(path, route))
    }

    /// The way to a remote peer, for the queue pair `qpn` here and `peer` there, 0 where they are
    /// not known. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`UdpPath::new`].
    fn route(&self, to: &AddressVector<'_>, qpn: u32, peer: u32) -> Result<UdpPath> {
        let route = UdpPath::new(self.wire.ports(), to.attr, to.sgid, qpn, peer)?;
        Ok(if self.directory.has_gso() {
            route.with_gso()
        } else {
            route
        })
    }

    /// Gives a queue pair an account for its packets, if it has none yet: before it gets a way to a
    /// remote peer, or is in a state in which it may send datagrams. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::new`].
    fn enable_sending(&self, qpn: u32, qp_type: QpType) -> Result {
        let (shards, block) = (&self.shared.shards, Block::of_qp(qpn));
        let has_sender = shards.command(block, |engine, _| {
            engine.queue_mut(qpn).map(|queue| queue.has_sender())
        });
        if has_sender.map_err(errno)? {
            return Ok(());
        }
        let frames = (qp_type == QpType::RawPacket).then(|| self.frames.clone());
        let limit = self.limit.clone();
        let mut sender = Some(Sender::new(self.wire.ports(), limit, qpn, frames)?);
        // An account that another caller has set meanwhile is dropped without the shard.
        shards
            .command(block, |engine, _| {
                let queue = engine.queue_mut(qpn)?;
                if let Some(new) = sender.take() {
                    sender = queue.set_sender(new);
                }
                Ok(())
            })
            .map_err(errno)
    }

    /// A queue pair has been connected to one of this device. They are to be in one shard as soon
    /// as either of them may send to the other one: over a reliable connection when both are
    /// connected to each other.
    fn meet(&self, qpn: u32, qp_type: QpType, peer: u32) {
        let shards = &self.shared.shards;
        let (own_block, block) = (Block::of_qp(qpn), Block::of_qp(peer));
        if shards.of(own_block).index == shards.of(block).index {
            return;
        }
        // Whoever is connected last finds the other one so.
        let info = shards.command(block, |engine, _| engine.query_qp(peer));
        let is_peer = info.is_ok_and(|info| {
            info.qp_type == qp_type && (qp_type == QpType::Uc || info.attr.dest_qpn == qpn)
        });
        if is_peer {
            shards.join(own_block, block);
        }
    }

    /// Puts a queue pair into a multicast group.
    fn enter_mcast(&self, qpn: u32, group: &Gid) -> Result {
        self.shared.shards.join_main(Block::of_qp(qpn));
        let memory = boxed(Group::new, GFP_KERNEL_ACCOUNT)?;
        // The memory is dropped here if the group is there already.
        let _unused = self.shared.add_boxed(None, memory, |engine, memory| {
            engine.attach_mcast(qpn, &group.0, memory)
        })?;
        Ok(())
    }

    /// Takes a queue pair out of a multicast group.
    fn leave_mcast(&self, qpn: u32, group: &Gid) -> Result {
        // The memory of a group that was left by its last member is dropped without the shard.
        let _group = self
            .shared
            .shards
            .command_for(None, |engine, _| engine.detach_mcast(qpn, &group.0))
            .map_err(errno)?;
        Ok(())
    }
}

impl Backend for Soft {
    const COUNTERS: &'static [Counter] = statistics::COUNTERS;
    const PORT_COUNTERS: Option<fn(&Self) -> PortCounters> =
        Some(|soft| soft.shared.port_counters());
    /// Requests to block devices have no more as a rule.
    const MAX_FAST_REG_PAGES: u32 = 512;
    const HAS_QP_COUNTERS: bool = true;
    const HAS_ENGINES: bool = true;
    const HAS_FRAMES: bool = true;
    /// All that programs can ask for. A datagram that comes by the wire when the memory for it is
    /// absent is dropped.
    const ON_DEMAND: OnDemand = OnDemand {
        implicit: true,
        rc: XRC
            .or(OnDemandOperations::FLUSH)
            .or(OnDemandOperations::ATOMIC_WRITE),
        uc: MESSAGES.or(OnDemandOperations::WRITE),
        // A datagram for memory that is absent is dropped.
        ud: OnDemandOperations::SEND,
        xrc: XRC,
    };

    type Commands = Shared;
    type Destination = Destination;
    type Flow = Flow;

    fn commands(&self) -> Shared {
        self.shared.clone()
    }

    fn limits(&self) -> Limits {
        Limits {
            // The numbers 0 and 1 are those of the port's own queue pairs.
            max_qp: abi::MAX_QP - 2,
            max_cq: MAX_CQ,
            max_srq: MAX_SRQ,
            max_pd: MAX_PD,
            // No key and no handle has the index 0.
            max_mr: MAX_MR - 1,
            max_mw: MAX_MW,
            max_ah: MAX_AH - 1,
            max_mcast_grp: MAX_MCAST_GRP,
            max_mcast_qp_attach: MAX_MCAST_QP_ATTACH as u32,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_mr_size: u64::MAX,
        }
    }

    fn read_counters(&self, values: &mut [u64]) {
        self.shared.read_statistics(values);
    }

    fn indexed(&self, index: u32) {
        self.shared.shards.set_dev_index(index);
    }

    fn named(&self, name: Option<&CStr>) {
        self.directory.set_name(name);
    }

    fn netdev_lost(&self) {
        self.lower.lose();
    }

    fn set_port_mtu(&self, mtu: Mtu) {
        self.shared.shards.set_port_mtu(mtu);
    }

    /// Does nothing: each address vector has the GID of its source.
    fn set_gid(&self, _index: u16, _gid: Option<&Gid>) -> Result {
        Ok(())
    }

    fn add_ah(&self, pd: u32, to: &AddressVector<'_>) -> Result<u32> {
        let (path, route) = self.resolve(to, || self.route(to, 0, 0))?.into_parts();
        if path.kind != PathKind::Remote || is_multicast(&path.dgid) {
            self.shared.shards.let_datagrams_meet();
        }
        self.shared
            .add(Block::of_pd(pd), Ah::new(pd, path, route), Engine::add_ah)
    }

    fn destination(&self, to: &AddressVector<'_>) -> Result<Destination> {
        self.resolve(to, || {
            UdpPath::without_route(self.wire.ports(), to.attr, to.sgid, 0, 0)
        })
    }

    fn modify_qp(
        &self,
        qpn: u32,
        qp_type: QpType,
        change: &Modify,
        to: Option<&AddressVector<'_>>,
    ) -> Result {
        let (path, mut route) = match to {
            Some(to) => {
                let destination = self.resolve(to, || {
                    let route = self.route(to, qpn, change.dest_qpn.unwrap_or(0))?;
                    Ok(match qp_type {
                        QpType::Rc | QpType::XrcIni | QpType::XrcTgt => route.with_ecn(),
                        QpType::Uc | QpType::Ud | QpType::RawPacket => route,
                    })
                })?;
                let (path, route) = destination.into_parts();
                (Some(path), route)
            }
            None => (None, None),
        };
        // A queue pair for datagrams gets its account in INIT, because each datagram brings its own
        // route; so does one for frames, which have none. A connection gets it with its route.
        let is_for_all = match qp_type {
            QpType::Ud | QpType::RawPacket => change.state == Some(State::Init),
            QpType::Rc | QpType::XrcIni | QpType::XrcTgt | QpType::Uc => false,
        };
        if route.is_some() || is_for_all {
            self.enable_sending(qpn, qp_type)?;
        }
        // Afterwards `route` is the old one, dropped after the shard is left.
        let shards = &self.shared.shards;
        shards
            .patient_command(Some(Block::of_qp(qpn)), |engine, host| {
                engine.modify_qp(host, qpn, &Modify { path, ..*change }, &mut route)
            })
            .map_err(errno)?;
        if path.is_some_and(|path| matches!(path.kind, PathKind::Local(_))) {
            // In SQD the peer keeps its number.
            let peer = match change.dest_qpn {
                None => self.shared.query_qp(qpn)?.attr.dest_qpn,
                Some(peer) => peer,
            };
            self.meet(qpn, qp_type, peer);
        }
        Ok(())
    }

    fn attach_mcast(&self, qpn: u32, group: &Gid) -> Result {
        self.enter_mcast(qpn, group)?;
        multicast::join(&self.lower, group).inspect_err(|_| {
            let _ = self.leave_mcast(qpn, group);
        })
    }

    fn steer(&self, rule: Rule, qpn: u32) -> Result<Flow> {
        self.frames.steer(rule, qpn)
    }

    fn detach_mcast(&self, qpn: u32, group: &Gid) -> Result {
        self.leave_mcast(qpn, group)?;
        multicast::leave(&self.lower, group);
        Ok(())
    }
}

impl Linked for Soft {
    /// # Errors
    ///
    /// `EADDRINUSE` if the port of RoCEv2 is taken, and others of [`Membership::new`]; `ENOMEM`.
    fn new(name: &CStr, netdev: &NetDevice, mtu: Mtu) -> Result<impl PinInit<Self, Error>> {
        let shared = Shared::new(name)?;
        shared.shards.set_port_mtu(mtu);
        let wire = Membership::new(netdev, shared.shards.clone())?;
        let lower = Arc::new(Lower::new(netdev), GFP_KERNEL)?;
        let frames = Frames::new(lower.clone(), shared.shards.clone())?;
        let directory = Directory::new(shared.clone())?;

        Ok(try_pin_init!(Self {
            directory <- directory,
            limit: Limit::new(shared.shards.clone())?,
            lower,
            frames,
            _workers: StopWorkers(shared.workers.clone()),
            wire,
            shared,
        }))
    }
}
