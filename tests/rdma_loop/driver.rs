// SPDX-License-Identifier: GPL-2.0

//! The driver: a context with a list of its queue pairs, which a kick serves.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea,
    net::{
        eui64_from_mac,
        NetDevice, //
    },
};
use rdma::{
    cq,
    device,
    mmap::{
        Entry,
        Protection, //
    },
    mr,
    pd,
    port,
    qp,
    ucontext,
    umem::Umem,
    Device,
    Ucontext,
    Udata,
    UnregisteredDevice,
    Unsupported,
    UserCall, //
};
use zerocopy_derive::{
    Immutable,
    IntoBytes, //
};

/// Slots of each ring, and bytes of each slot.
const DEPTH: u32 = 64;
const SLOT: usize = 32;

/// A queue pair's memory: the producer indices, then the send ring, then the receive ring.
const SQ_PRODUCER: usize = 0;
const RQ_PRODUCER: usize = 64;
const SQ: usize = 4096;
const RQ: usize = SQ + DEPTH as usize * SLOT;
const QP_SIZE: usize = RQ + DEPTH as usize * SLOT;

/// `enum ibv_wc_status`: success, and a key that does not cover the memory.
const SUCCESS: u32 = 0;
const PROTECTION_ERROR: u32 = 4;

/// `enum ibv_wc_opcode`.
const SEND: u32 = 0;
const RECV: u32 = 128;

/// Where to map something: the driver's answer to the creation of a queue pair or completion queue.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct MapResponse {
    offset: u64,
    length: u64,
}

/// A request in a ring: `u64 wr_id, addr; u32 length, lkey`.
struct Request {
    wr_id: u64,
    addr: u64,
    length: u32,
    lkey: u32,
}

impl Request {
    fn read(area: &SharedArea, ring: usize, index: u32) -> Result<Self> {
        let at = ring + (index % DEPTH) as usize * SLOT;
        Ok(Request {
            wr_id: area.load_u64(at)?,
            addr: area.load_u64(at + 8)?,
            length: area.load_u32(at + 16)?,
            lkey: area.load_u32(at + 20)?,
        })
    }
}

/// A completion queue's ring: `u64 wr_id; u32 qp_num, byte_len, status, opcode, 0, number`, where
/// the number, written last, is that of the completion, from 1.
#[pin_data]
struct Completions {
    area: Arc<SharedArea>,
    notifier: Arc<cq::Notifier>,
    #[pin]
    producer: Mutex<u32>,
}

impl Completions {
    fn write(&self, qp_num: u32, request: &Request, status: u32, opcode: u32) -> Result {
        let mut producer = self.producer.lock();
        let at = (*producer % DEPTH) as usize * SLOT;
        *producer = producer.wrapping_add(1);
        self.area.store_u64(at, request.wr_id)?;
        self.area.store_u32(at + 8, qp_num)?;
        self.area.store_u32(at + 12, request.length)?;
        self.area.store_u32(at + 16, status)?;
        self.area.store_u32(at + 20, opcode)?;
        self.area.store_u32_release(at + 28, *producer)?;
        drop(producer);
        self.notifier.complete();
        Ok(())
    }
}

/// A memory region, as requests find it.
struct Region {
    key: u32,
    iova: u64,
    umem: Umem,
}

/// The data of the device: memory regions, and the next number for anything.
#[pin_data]
pub(super) struct Table {
    #[pin]
    regions: Mutex<KVec<Region>>,
    next: Atomic<u32>,
}

impl Table {
    fn number(&self) -> u32 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Copies what `send` names to where `recv` wants it. The lock is held meanwhile, so that a
    /// region stays registered while it is used.
    fn copy(&self, send: &Request, recv: &Request) -> Result {
        let regions = self.regions.lock();
        let find = |request: &Request| {
            let region = regions.iter().find(|region| region.key == request.lkey)?;
            Some((&region.umem, request.addr.checked_sub(region.iova)?))
        };
        let (src, from) = find(send).ok_or(EACCES)?;
        let (dst, to) = find(recv).ok_or(EACCES)?;
        if send.length > recv.length {
            return Err(EINVAL);
        }
        Umem::copy(dst, to, src, from, send.length.into())
    }
}

/// A queue pair as its context serves it.
#[pin_data]
struct Queue {
    qp_num: u32,
    area: Arc<SharedArea>,
    send_cq: Arc<Completions>,
    recv_cq: Arc<Completions>,
    #[pin]
    state: Mutex<State>,
}

struct State {
    state: qp::State,
    sq_consumer: u32,
    rq_consumer: u32,
}

impl Queue {
    /// Does what is posted, at most one ring of it.
    fn serve(&self, table: &Table) -> Result {
        let mut state = self.state.lock();
        if state.state != qp::State::Rts {
            return Ok(());
        }
        for _ in 0..DEPTH {
            if state.sq_consumer == self.area.load_u32_acquire(SQ_PRODUCER)?
                || state.rq_consumer == self.area.load_u32_acquire(RQ_PRODUCER)?
            {
                break;
            }
            let send = Request::read(&self.area, SQ, state.sq_consumer)?;
            let mut recv = Request::read(&self.area, RQ, state.rq_consumer)?;
            state.sq_consumer = state.sq_consumer.wrapping_add(1);
            state.rq_consumer = state.rq_consumer.wrapping_add(1);

            let status = match table.copy(&send, &recv) {
                Ok(()) => SUCCESS,
                Err(_) => PROTECTION_ERROR,
            };
            recv.length = send.length;
            self.recv_cq.write(self.qp_num, &recv, status, RECV)?;
            self.send_cq.write(self.qp_num, &send, status, SEND)?;
        }
        Ok(())
    }
}

/// The driver.
pub(super) struct Loop;

#[vtable]
impl rdma::Driver for Loop {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    const ID: u32 = 0x4c4f_4f50; // "LOOP"
    const NAME: &'static CStr = c"loop";
    const ABI_VERSION: u32 = 1;
    const KICK_METHOD: Option<u16> = Some(1 << 12);

    type Data = Arc<Table>;
    type Ucontext = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Cq = Cq;
    type Qp = Qp;
    type Ah = Unsupported<Self>;
    type Srq = Unsupported<Self>;
    type Mw = Unsupported<Self>;

    fn query_device(dev: &Device<Self>) -> Result<device::Attr> {
        Ok(device::Attr {
            sys_image_guid: dev.node_guid(),
            max_mr_size: u64::MAX,
            max_qp: 1024,
            max_qp_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_cq: 1024,
            max_cqe: DEPTH,
            max_mr: 1024,
            max_pd: 1024,
            ..Default::default()
        })
    }

    fn query_port(_dev: &Device<Self>, _netdev: &NetDevice, attr: &mut port::Attr) -> Result {
        attr.gid_tbl_len = 16;
        attr.max_msg_sz = 1 << 20;
        Ok(())
    }

    fn new_link(name: &CStr, netdev: &NetDevice) -> Result {
        let info = device::Info {
            node_guid: eui64_from_mac(netdev.address()),
            num_comp_vectors: 1,
        };
        let table = Arc::pin_init(
            pin_init!(Table {
                regions <- new_mutex!(KVec::new(), "Table::regions"),
                next: Atomic::new(2), // queue pairs 0 and 1 are special
            }),
            GFP_KERNEL,
        )?;
        let mut dev = UnregisteredDevice::<Self>::new(info, table)?;
        dev.set_netdev(netdev)?;
        dev.register(name)
    }
}

/// A user context, with the queue pairs that its kick serves.
pub(super) struct Context {
    queues: Arc<Mutex<KVec<Arc<Queue>>>>,
}

#[vtable]
impl ucontext::Operations for Context {
    type Driver = Loop;

    fn alloc(_new: &ucontext::New<'_, Loop>, _udata: Udata<'_>) -> Result<Self> {
        let queues = Arc::pin_init(new_mutex!(KVec::new(), "Context::queues"), GFP_KERNEL)?;
        Ok(Context { queues })
    }

    fn kick(ctx: &Ucontext<Loop>) -> Result {
        let queues = ctx.queues.lock();
        queues.iter().try_for_each(|queue| queue.serve(ctx.device()))
    }
}

/// A protection domain. This driver keeps none apart.
pub(super) struct Pd;

#[vtable]
impl pd::Operations for Pd {
    type Driver = Loop;

    fn alloc(_new: &pd::New<'_, Loop>, _user: Option<UserCall<'_, Loop>>) -> Result<Self> {
        Ok(Pd)
    }
}

/// A memory region. Dropping it takes it from the table; a kick that copies finishes first, since
/// the table's last reference is gone only then.
pub(super) struct Mr {
    table: Arc<Table>,
    key: u32,
}

#[vtable]
impl mr::Operations for Mr {
    type Driver = Loop;

    fn reg_user(
        new: &mut mr::New<'_, Loop>,
        region: &mr::UserRegion,
        _user: UserCall<'_, Loop>,
    ) -> Result<Self> {
        let table: Arc<Table> = (**new.device()).clone();
        let key = table.number();
        let region = Region {
            key,
            iova: region.iova,
            umem: Umem::pin(new.device(), region.start, region.length, region.access)?,
        };
        table.regions.lock().push(region, GFP_KERNEL)?;
        new.set_keys(key, key);
        Ok(Mr { table, key })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.table.regions.lock().retain(|region| region.key != self.key);
    }
}

/// A completion queue.
pub(super) struct Cq {
    completions: Arc<Completions>,
    _entry: Entry,
}

#[vtable]
impl cq::Operations for Cq {
    type Driver = Loop;

    fn create(
        new: &mut cq::New<'_, Loop>,
        attr: &cq::InitAttr,
        user: Option<UserCall<'_, Loop>>,
    ) -> Result<Self> {
        let user = user.ok_or(EOPNOTSUPP)?;
        if attr.cqe > DEPTH {
            return Err(EINVAL);
        }
        let area = Arc::new(SharedArea::new(DEPTH as usize * SLOT)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(area.clone(), Protection::ReadOnly)?;
        let notifier = new.notifier()?;
        let completions = Arc::pin_init(
            pin_init!(Completions {
                area,
                notifier,
                producer <- new_mutex!(0, "Completions::producer"),
            }),
            GFP_KERNEL,
        )?;
        new.set_cqe(DEPTH);
        user.respond(&MapResponse {
            offset: entry.offset(),
            length: entry.len() as u64,
        })?;
        Ok(Cq {
            completions,
            _entry: entry,
        })
    }
}

/// A queue pair. Dropping it takes it from its context's list.
pub(super) struct Qp {
    queue: Arc<Queue>,
    siblings: Arc<Mutex<KVec<Arc<Queue>>>>,
    _entry: Entry,
}

#[vtable]
impl qp::Operations for Qp {
    type Driver = Loop;

    fn create(
        new: &mut qp::New<'_, Loop>,
        attr: &qp::InitAttr,
        user: Option<UserCall<'_, Loop>>,
    ) -> Result<Self> {
        let user = user.ok_or(EOPNOTSUPP)?;
        let cap = qp::Cap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        if attr.qp_type != qp::Type::Rc {
            return Err(EOPNOTSUPP);
        }
        if attr.cap.max_send_wr > cap.max_send_wr || attr.cap.max_recv_wr > cap.max_recv_wr {
            return Err(EINVAL);
        }
        let area = Arc::new(SharedArea::new(QP_SIZE)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(area.clone(), Protection::ReadWrite)?;
        let qp_num = new.device().number();
        let send_cq = new.send_cq().ok_or(EINVAL)?.completions.clone();
        let recv_cq = new.recv_cq().ok_or(EINVAL)?.completions.clone();
        let queue = Arc::pin_init(
            pin_init!(Queue {
                qp_num,
                area,
                send_cq,
                recv_cq,
                state <- new_mutex!(
                    State {
                        state: qp::State::Reset,
                        sq_consumer: 0,
                        rq_consumer: 0,
                    },
                    "Queue::state"
                ),
            }),
            GFP_KERNEL,
        )?;
        let siblings = user.ucontext().queues.clone();
        siblings.lock().push(queue.clone(), GFP_KERNEL)?;
        let qp = Qp {
            queue,
            siblings,
            _entry: entry,
        };
        new.set_qp_num(qp_num);
        new.set_cap(cap);
        user.respond(&MapResponse {
            offset: qp._entry.offset(),
            length: qp._entry.len() as u64,
        })?;
        Ok(qp)
    }

    fn modify(
        qp: &rdma::Qp<Loop>,
        attr: &qp::ModifyAttr<'_>,
        _user: Option<UserCall<'_, Loop>>,
    ) -> Result {
        let mut state = qp.queue.state.lock();
        let next = attr.state.unwrap_or(state.state);
        if !qp::modify_is_ok(state.state, next, qp.qp_type(), attr.mask()) {
            return Err(EINVAL);
        }
        state.state = next;
        Ok(())
    }

    fn query(qp: &rdma::Qp<Loop>, out: &mut qp::QueryAttr) -> Result {
        out.state = qp.queue.state.lock().state;
        out.cur_state = out.state;
        out.dest_qp_num = qp.queue.qp_num;
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let mut siblings = self.siblings.lock();
        siblings.retain(|queue| queue.qp_num != self.queue.qp_num);
    }
}
