// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use ferrule_engine::{
    Capabilities,
    Modify,
    QpType,
    State,
    NO_CQ, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    mmap::{
        Entry,
        Protection, //
    },
    qp,
    wr::{
        RecvRequests,
        SendRequests, //
    },
    AhAttr,
    Gid,
    UserCall, //
};

use crate::{
    backend::{
        destination::Destination,
        object::{
            NewQp,
            QpInit, //
        },
        polling::{
            Listed,
            Polling, //
        },
        posting::Posting,
        ring::{
            new_area,
            QpRings, //
        },
        Backend,
        Commands, //
    },
    verbs::{
        abi::CreateQpResp,
        address::address_vector,
        doorbells::{
            doorbells,
            Doorbells, //
        },
        layout::Layout,
        mtu::{
            engine_mtu,
            port_mtu,
            verbs_mtu, //
        },
        Ferrule, //
    },
};

/// A queue pair. Dropping it takes the rings from the engine.
pub(crate) struct Qp<B: Backend> {
    commands: B::Commands,
    qpn: u32,
    doorbell: u32,
    producer: Producer<B>,
}

/// The side that fills the rings.
enum Producer<B: Backend> {
    Program {
        /// The buffer that it has mapped.
        buffer: Entry,
        /// The doorbells that ring it.
        _doorbells: Arc<Doorbells<B>>,
    },
    Kernel(Listed<B::Destination>),
    /// A target of XRC has no rings.
    None,
}

/// For whom a queue pair is being made.
enum Side<'a, B: Backend> {
    Program(UserCall<'a, Ferrule<B>>, Arc<Doorbells<B>>, Entry),
    Kernel(
        Arc<Posting<B::Destination>>,
        [Arc<Polling<B::Destination>>; 2],
    ),
}

impl<B: Backend> Qp<B> {
    /// The number by which the engine knows the queue pair.
    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The command channel of its device.
    pub(super) fn commands(&self) -> &B::Commands {
        &self.commands
    }

    /// Makes a target of XRC, which has no queue, and belongs to no program.
    fn create_target(new: &mut qp::New<'_, Ferrule<B>>) -> Result<Self> {
        let xrcd = new.xrcd().ok_or(EINVAL)?.id();
        let Layout { rings, size } = Layout::new(&qp::Cap::default(), false, None)?;
        let commands = new.device().commands();
        let NewQp { id, doorbell } = commands.add_qp(QpInit {
            context: None,
            pd: xrcd,
            qp_type: QpType::XrcTgt,
            gsi: false,
            send_cq: NO_CQ,
            recv_cq: NO_CQ,
            srq: None,
            sq_sig_all: false,
            rings: QpRings {
                cap: Capabilities::default(),
                ..rings
            },
            area: new_area(size)?,
            posting: None,
            notifier: new.notifier(),
        })?;
        new.set_qp_num(id.number);
        new.set_cap(qp::Cap::default());
        Ok(Qp {
            commands,
            qpn: id.number,
            doorbell,
            producer: Producer::None,
        })
    }

    /// The rings of a kernel user.
    fn posting(&self) -> Result<&Posting<B::Destination>> {
        match &self.producer {
            Producer::Kernel(listed) => Ok(&listed.posting),
            Producer::Program { .. } | Producer::None => Err(EOPNOTSUPP),
        }
    }
}

#[vtable]
impl<B: Backend> qp::Operations for Qp<B> {
    type Driver = Ferrule<B>;

    fn create(
        new: &mut qp::New<'_, Ferrule<B>>,
        attr: &qp::InitAttr,
        user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result<Self> {
        let gsi = attr.qp_type == qp::Type::Gsi;
        let qp_type = engine_type(attr.qp_type)?;
        if gsi && user.is_some() || attr.create_flags != 0 {
            return Err(EOPNOTSUPP);
        }
        match qp_type {
            QpType::XrcTgt => return Self::create_target(new),
            // No kernel user names a shared receive queue, or sends frames.
            QpType::XrcIni | QpType::RawPacket if user.is_none() => return Err(EOPNOTSUPP),
            QpType::XrcIni | QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => (),
        }
        let has_receives = qp_type != QpType::XrcIni;
        let domain = new.pd().ok_or(EINVAL)?;
        let pd = domain.id();
        let send_cq = new.send_cq().ok_or(EINVAL)?;
        let recv_cq = match has_receives {
            true => Some(new.recv_cq().ok_or(EINVAL)?),
            false => None,
        };
        let srq = new.srq().map(|srq| srq.number());

        let has_destinations = user.is_none() && qp_type == QpType::Ud;
        let destination = has_destinations.then_some(B::Destination::SIZE);
        let has_ring = has_receives && srq.is_none();
        let Layout { rings, size } = Layout::new(&attr.cap, has_ring, destination)?;
        let buffer = new_area(size)?;
        let commands = new.device().commands();
        let notifier = new.notifier();
        let side = match user {
            Some(user) => {
                let doorbells = doorbells(&user)?;
                if let Some(threads) = domain.threads() {
                    // Of the objects of other engines, these queue pairs need regions alone.
                    let is_apart = matches!(qp_type, QpType::Rc | QpType::Uc);
                    threads.add_queue(doorbells.id(), is_apart.then_some(pd))?;
                }
                let entry = user.ucontext().map(buffer.clone(), Protection::ReadWrite)?;
                Side::Program(user, doorbells, entry)
            }
            None => {
                let posting = Posting::new(buffer.clone(), rings, notifier.clone())?;
                let recv_cq = recv_cq.ok_or(EINVAL)?;
                let polling = [send_cq.polling()?.clone(), recv_cq.polling()?.clone()];
                Side::Kernel(posting, polling)
            }
        };
        let (context, posting) = match &side {
            Side::Program(_, doorbells, _) => (Some(doorbells.id()), None),
            Side::Kernel(posting, _) => (None, Some(posting.clone())),
        };
        let NewQp { id, doorbell } = commands.add_qp(QpInit {
            context,
            pd,
            qp_type,
            gsi,
            send_cq: send_cq.cqn(),
            recv_cq: recv_cq.map_or(NO_CQ, |cq| cq.cqn()),
            srq,
            sq_sig_all: attr.sq_sig_all,
            rings,
            area: buffer,
            posting,
            notifier,
        })?;
        new.set_qp_num(id.number);
        new.set_cap(qp::Cap {
            max_send_wr: rings.cap.max_send_wr,
            max_recv_wr: rings.cap.max_recv_wr,
            max_send_sge: rings.cap.max_send_sge,
            max_recv_sge: rings.cap.max_recv_sge,
            max_inline_data: rings.cap.max_inline,
        });
        let (user, producer) = match side {
            Side::Program(user, doorbells, buffer) => {
                let producer = Producer::Program {
                    buffer,
                    _doorbells: doorbells,
                };
                (Some(user), producer)
            }
            Side::Kernel(posting, polling) => {
                let listed = Listed::new(polling, id.number, id.generation, posting)
                    .inspect_err(|_| commands.remove_qp(id.number))?;
                (None, Producer::Kernel(listed))
            }
        };
        let qp = Qp {
            commands,
            qpn: id.number,
            doorbell,
            producer,
        };
        if let (Some(user), Producer::Program { buffer, .. }) = (user, &qp.producer) {
            user.respond(&CreateQpResp {
                buf_offset: buffer.offset(),
                buf_size: buffer.len() as u32,
                sq_offset: rings.sq.offset,
                sq_depth: rings.sq.depth,
                sq_stride: rings.sq.stride,
                rq_offset: rings.rq.offset,
                rq_depth: rings.rq.depth,
                rq_stride: rings.rq.stride,
                ctrl_offset: rings.ctrl,
                qp_gen: id.generation,
                ..Default::default()
            })?;
        }
        Ok(qp)
    }

    fn modify(
        qp: &rdma::Qp<Ferrule<B>>,
        attr: &qp::ModifyAttr<'_>,
        _user: Option<UserCall<'_, Ferrule<B>>>,
    ) -> Result {
        let dev = qp.device();
        let to = match &attr.av {
            Some(av) => Some(address_vector(dev, av, attr.sgid_attr)?),
            None => None,
        };
        // A path cannot carry more than the port does.
        if let (Some(mtu), Some(netdev)) = (attr.path_mtu, dev.netdev()) {
            if engine_mtu(mtu) > port_mtu(&netdev) {
                return Err(EINVAL);
            }
        }
        // QP1 (GSI) is bound to port 1; the MAD layer sets no port number.
        let port_num = match (qp.qp_type(), attr.state) {
            (qp::Type::Gsi, Some(qp::State::Init)) => Some(1),
            _ => attr.port_num,
        };
        dev.modify_qp(
            qp.qpn,
            engine_type(qp.qp_type())?,
            &Modify {
                state: attr.state.map(engine_state),
                cur_state: attr.cur_state.map(engine_state),
                en_sqd_async_notify: attr.en_sqd_async_notify,
                access: attr.access.map(|a| ferrule_engine::Access(a.bits())),
                pkey_index: attr.pkey_index,
                port: port_num.map(u32::from),
                qkey: attr.qkey,
                path: None,
                path_mtu: attr.path_mtu.map(engine_mtu),
                timeout: attr.timeout,
                retry_cnt: attr.retry_cnt,
                rnr_retry: attr.rnr_retry,
                rq_psn: attr.rq_psn,
                max_rd_atomic: attr.max_rd_atomic,
                max_dest_rd_atomic: attr.max_dest_rd_atomic,
                min_rnr_timer: attr.min_rnr_timer,
                sq_psn: attr.sq_psn,
                dest_qpn: attr.dest_qp_num,
                alt_path: attr.alt_path,
                path_mig_state: attr.path_mig_state.is_some(),
                cap: attr.cap.is_some(),
                rate_limit: attr.rate_limit.is_some(),
            },
            to.as_ref(),
        )?;
        if let (Producer::Kernel(listed), Some(state)) = (&qp.producer, attr.state) {
            listed.moved(state);
        }
        Ok(())
    }

    fn post_send(qp: &rdma::Qp<Ferrule<B>>, requests: &mut SendRequests<'_, Ferrule<B>>) -> Result {
        let (any, result) = qp
            .posting()?
            .post_send(requests, |request| request.destination()?.ah.destination());
        if any {
            qp.commands.ring(qp.doorbell);
        }
        result
    }

    fn post_recv(qp: &rdma::Qp<Ferrule<B>>, requests: &mut RecvRequests<'_>) -> Result {
        let (wanted, result) = qp.posting()?.post_recv(requests);
        if wanted {
            qp.commands.ring(qp.doorbell);
        }
        result
    }

    fn query(qp: &rdma::Qp<Ferrule<B>>, out: &mut qp::QueryAttr) -> Result {
        let info = qp.commands.query_qp(qp.qpn)?;
        let attr = info.attr;
        *out = qp::QueryAttr {
            state: verbs_state(info.state),
            cur_state: verbs_state(info.state),
            path_mtu: verbs_mtu(attr.path_mtu),
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qpn,
            access: rdma::Access::from_bits(attr.access.0),
            cap: qp::Cap {
                max_send_wr: info.cap.max_send_wr,
                max_recv_wr: info.cap.max_recv_wr,
                max_send_sge: info.cap.max_send_sge,
                max_recv_sge: info.cap.max_recv_sge,
                max_inline_data: info.cap.max_inline,
            },
            av: attr.path.as_ref().map(|path| AhAttr {
                dgid: rdma::Gid(path.dgid),
                sgid_index: path.sgid_index,
                flow_label: path.flow_label,
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
                grh: true,
                sl: path.sl,
                static_rate: path.static_rate,
                port_num: 1,
                dmac: path.dmac,
            }),
            pkey_index: attr.pkey_index,
            sq_draining: info.sq_draining,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port as u8,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
        };
        Ok(())
    }

    fn attach_mcast(qp: &rdma::Qp<Ferrule<B>>, group: &Gid) -> Result {
        let dev = qp.device();
        dev.netdev().ok_or(ENODEV)?;
        dev.attach_mcast(qp.qpn, group)
    }

    fn detach_mcast(qp: &rdma::Qp<Ferrule<B>>, group: &Gid) -> Result {
        qp.device().detach_mcast(qp.qpn, group)
    }
}

impl<B: Backend> Drop for Qp<B> {
    fn drop(&mut self) {
        self.commands.remove_qp(self.qpn);
    }
}

/// The service of a queue pair; the one for general services has datagrams.
fn engine_type(qp_type: qp::Type) -> Result<QpType> {
    match qp_type {
        qp::Type::Rc => Ok(QpType::Rc),
        qp::Type::Uc => Ok(QpType::Uc),
        qp::Type::Ud | qp::Type::Gsi => Ok(QpType::Ud),
        qp::Type::XrcIni => Ok(QpType::XrcIni),
        qp::Type::XrcTgt => Ok(QpType::XrcTgt),
        qp::Type::RawPacket => Ok(QpType::RawPacket),
        _ => Err(EOPNOTSUPP),
    }
}

fn engine_state(state: qp::State) -> State {
    match state {
        qp::State::Reset => State::Reset,
        qp::State::Init => State::Init,
        qp::State::Rtr => State::Rtr,
        qp::State::Rts => State::Rts,
        qp::State::Sqd => State::Sqd,
        qp::State::Sqe => State::Sqe,
        qp::State::Err => State::Err,
    }
}

fn verbs_state(state: State) -> qp::State {
    match state {
        State::Reset => qp::State::Reset,
        State::Init => qp::State::Init,
        State::Rtr => qp::State::Rtr,
        State::Rts => qp::State::Rts,
        State::Sqd => qp::State::Sqd,
        State::Sqe => qp::State::Sqe,
        State::Err => qp::State::Err,
    }
}
