// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use ferrule_engine::{
    Modify,
    QpInit,
    QpType,
    State, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea, //
};
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
    soft::{
        areas::Buffer,
        net::multicast,
        polling::{
            Listed,
            Polling, //
        },
        posting::Posting,
        Shared, //
    },
    verbs::{
        abi::CreateQpResp,
        layout::Layout,
        mtu::{
            engine_mtu,
            port_mtu,
            verbs_mtu, //
        },
        path::path,
        Ferrule, //
    },
};

/// A queue pair. Dropping it takes the rings from the engine.
pub(crate) struct Qp {
    soft: Shared,
    qpn: u32,
    producer: Producer,
}

/// The side that fills the rings.
enum Producer {
    Program {
        /// The buffer that it has mapped.
        buffer: Entry,
    },
    Kernel(Listed),
}

/// For whom a queue pair is being made.
enum Side<'a> {
    Program(UserCall<'a, Ferrule>, Entry),
    Kernel(Arc<Posting>, [Arc<Polling>; 2]),
}

impl Qp {
    /// The rings of a kernel user.
    fn posting(&self) -> Result<&Posting> {
        match &self.producer {
            Producer::Kernel(listed) => Ok(&listed.posting),
            Producer::Program { .. } => Err(EOPNOTSUPP),
        }
    }
}

#[vtable]
impl qp::Operations for Qp {
    type Driver = Ferrule;

    fn create(
        new: &mut qp::New<'_, Ferrule>,
        attr: &qp::InitAttr,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        let gsi = attr.qp_type == qp::Type::Gsi;
        let qp_type = match attr.qp_type {
            qp::Type::Gsi if user.is_none() => QpType::Ud,
            qp::Type::Rc => QpType::Rc,
            qp::Type::Uc => QpType::Uc,
            qp::Type::Ud => QpType::Ud,
            _ => return Err(EOPNOTSUPP),
        };
        if attr.create_flags != 0 {
            return Err(EOPNOTSUPP);
        }
        let pd = new.pd().ok_or(EINVAL)?.id();
        let cqs = [new.send_cq().ok_or(EINVAL)?, new.recv_cq().ok_or(EINVAL)?];
        let [send_cq, recv_cq] = cqs.map(|cq| cq.cqn());
        let srq = new.srq().map(|srq| srq.number());

        let Layout { rings, size } = Layout::new(&attr.cap, srq.is_some())?;
        let buffer = Arc::new(SharedArea::new(size)?, GFP_KERNEL_ACCOUNT)?;
        let soft = new.device().shared();
        let handle = new.notifier();
        let side = match user {
            Some(user) => {
                let entry = user.ucontext().map(buffer.clone(), Protection::ReadWrite)?;
                Side::Program(user, entry)
            }
            None => {
                let is_datagram = qp_type == QpType::Ud;
                let posting = Posting::new(buffer.clone(), rings, handle.clone(), is_datagram)?;
                let [send, recv] = cqs.map(|cq| cq.polling().cloned());
                Side::Kernel(posting, [send?, recv?])
            }
        };
        let (context, queue) = match &side {
            Side::Program(user, _) => (Some(user.ucontext().id()), Buffer::new(buffer)),
            Side::Kernel(posting, _) => (None, Buffer::of_kernel(posting.clone())),
        };
        let id = soft.add_qp(QpInit {
            context,
            pd,
            qp_type,
            gsi,
            send_cq,
            recv_cq,
            srq,
            cap: rings.cap,
            sq_sig_all: attr.sq_sig_all,
            sq: rings.sq,
            rq: rings.rq,
            ctrl: rings.ctrl,
            queue,
            handle,
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
            Side::Program(user, buffer) => (Some(user), Producer::Program { buffer }),
            Side::Kernel(posting, polling) => {
                let listed = Listed::new(polling, id.number, id.generation, posting)
                    .inspect_err(|_| soft.remove_qp(id.number))?;
                (None, Producer::Kernel(listed))
            }
        };
        let qp = Qp {
            soft,
            qpn: id.number,
            producer,
        };
        if let (Some(user), Producer::Program { buffer }) = (user, &qp.producer) {
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
        qp: &rdma::Qp<Ferrule>,
        attr: &qp::ModifyAttr<'_>,
        _user: Option<UserCall<'_, Ferrule>>,
    ) -> Result {
        let peer = attr.dest_qp_num.unwrap_or(0);
        let (path, route) = match &attr.av {
            Some(av) => {
                let dev = qp.device();
                let (path, route) = path(dev, av, attr.sgid_attr, |sgid| {
                    let route = dev.route(av, sgid, qp.qpn, peer)?;
                    Ok(match qp.qp_type() {
                        qp::Type::Rc => route.with_ecn(),
                        _ => route,
                    })
                })?;
                (Some(path), route)
            }
            None => (None, None),
        };
        // Datagrams have a way of their own each.
        let is_datagram = matches!(qp.qp_type(), qp::Type::Ud | qp::Type::Gsi);
        if route.is_some() || is_datagram && attr.state == Some(qp::State::Init) {
            qp.device().enable_sending(qp.qpn)?;
        }
        // A path cannot carry more than the port does.
        if let (Some(mtu), Some(netdev)) = (attr.path_mtu, qp.device().netdev()) {
            if engine_mtu(mtu) > port_mtu(&netdev) {
                return Err(EINVAL);
            }
        }
        // The queue pair for general services belongs to its port from the start.
        let port_num = match (qp.qp_type(), attr.state) {
            (qp::Type::Gsi, Some(qp::State::Init)) => Some(1),
            _ => attr.port_num,
        };
        qp.soft.modify_qp(
            qp.qpn,
            &Modify {
                state: attr.state.map(engine_state),
                cur_state: attr.cur_state.map(engine_state),
                en_sqd_async_notify: attr.en_sqd_async_notify,
                access: attr.access.map(|a| ferrule_engine::Access(a.bits())),
                pkey_index: attr.pkey_index,
                port: port_num.map(u32::from),
                qkey: attr.qkey,
                path,
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
            route,
        )?;
        if let (Producer::Kernel(listed), Some(state)) = (&qp.producer, attr.state) {
            listed.posting.moved(state);
        }
        Ok(())
    }

    fn post_send(qp: &rdma::Qp<Ferrule>, requests: &mut SendRequests<'_, Ferrule>) -> Result {
        let (any, result) = qp
            .posting()?
            .post_send(requests, |request| request.destination()?.ah.destination());
        if any {
            qp.soft.ring(qp.qpn);
        }
        result
    }

    fn post_recv(qp: &rdma::Qp<Ferrule>, requests: &mut RecvRequests<'_>) -> Result {
        let (wanted, result) = qp.posting()?.post_recv(requests);
        if wanted {
            qp.soft.ring(qp.qpn);
        }
        result
    }

    fn query(qp: &rdma::Qp<Ferrule>, out: &mut qp::QueryAttr) -> Result {
        let info = qp.soft.query_qp(qp.qpn)?;
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

    fn attach_mcast(qp: &rdma::Qp<Ferrule>, group: &Gid) -> Result {
        qp.soft.attach_mcast(qp.qpn, &group.0)?;
        let netdev = qp.device().netdev().ok_or(ENODEV);
        netdev
            .and_then(|netdev| multicast::join(&netdev, group))
            .inspect_err(|_| {
                let _ = qp.soft.detach_mcast(qp.qpn, &group.0);
            })
    }

    fn detach_mcast(qp: &rdma::Qp<Ferrule>, group: &Gid) -> Result {
        qp.soft.detach_mcast(qp.qpn, &group.0)?;
        // A network device that has gone has taken its memberships along.
        if let Some(netdev) = qp.device().netdev() {
            multicast::leave(&netdev, group);
        }
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.soft.remove_qp(self.qpn);
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
