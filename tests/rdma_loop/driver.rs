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
    mm::SharedArea, //
};
use net_ext::{
    eui64_from_mac,
    NetDevice, //
};
use rdma::{
    mmap::{
        Entry,
        Protection, //
    },
    umem::Umem,
    *, //
};

/// Slots of each ring, and bytes of each slot.
const DEPTH: u32 = 64;
const SLOT: usize = 32;
const RING: usize = DEPTH as usize * SLOT;

/// A queue pair's memory: the producer indices, then the send ring, then the receive ring.
const SQ_PRODUCER: usize = 0;
const RQ_PRODUCER: usize = 64;
const SQ: usize = 4096;
const RQ: usize = SQ + RING;

/// `enum ibv_wc_status` and `enum ibv_wc_opcode`.
const SUCCESS: u32 = 0;
const PROTECTION_ERROR: u32 = 4;
const SEND: u32 = 0;
const RECV: u32 = 128;

/// The place of the slot `index` in a ring.
fn slot(index: u32) -> usize {
    (index % DEPTH) as usize * SLOT
}

/// A request in a ring: `u64 wr_id, addr; u32 length, lkey`.
struct Request {
    wr_id: u64,
    addr: u64,
    length: u32,
    lkey: u32,
}

impl Request {
    fn read(area: &SharedArea, at: usize) -> Result<Self> {
        Ok(Request {
            wr_id: area.load_u64(at)?,
            addr: area.load_u64(at + 8)?,
            length: area.load_u32(at + 16)?,
            lkey: area.load_u32(at + 20)?,
        })
    }
}

/// A memory region as requests name it.
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
    fn write(&self, qp_num: u32, wr_id: u64, length: u32, status: u32, opcode: u32) -> Result {
        let mut producer = self.producer.lock();
        let at = slot(*producer);
        *producer = producer.wrapping_add(1);
        self.area.store_u64(at, wr_id)?;
        self.area.store_u32(at + 8, qp_num)?;
        self.area.store_u32(at + 12, length)?;
        self.area.store_u32(at + 16, status)?;
        self.area.store_u32(at + 20, opcode)?;
        self.area.store_u32_release(at + 28, *producer)?;
        drop(producer);
        self.notifier.complete();
        Ok(())
    }
}

/// A queue pair as its context serves it.
#[pin_data]
struct Queue {
    qp_num: u32,
    area: Arc<SharedArea>,
    send_cq: Arc<Completions>,
    recv_cq: Arc<Completions>,
    /// The state and the next request. Each send takes one receive, so one index does for both.
    #[pin]
    state: Mutex<(qp::State, u32)>,
}

type Queues = Arc<Mutex<KVec<Arc<Queue>>>>;

impl Queue {
    /// Does what is posted, at most one ring of it.
    fn serve(&self, table: &Table) -> Result {
        let mut guard = self.state.lock();
        let (state, next) = &mut *guard;
        for _ in 0..DEPTH {
            if *state != qp::State::Rts
                || *next == self.area.load_u32_acquire(SQ_PRODUCER)?
                || *next == self.area.load_u32_acquire(RQ_PRODUCER)?
            {
                break;
            }
            let send = Request::read(&self.area, SQ + slot(*next))?;
            let recv = Request::read(&self.area, RQ + slot(*next))?;
            *next = next.wrapping_add(1);
            let status = match table.copy(&send, &recv) {
                Ok(()) => SUCCESS,
                Err(_) => PROTECTION_ERROR,
            };
            (self.recv_cq).write(self.qp_num, recv.wr_id, send.length, status, RECV)?;
            (self.send_cq).write(self.qp_num, send.wr_id, send.length, status, SEND)?;
        }
        Ok(())
    }
}

/// The driver.
pub(super) struct Loop;

#[vtable]
impl Driver for Loop {
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

    fn query_device(_dev: &Device<Self>) -> Result<device::Attr> {
        Ok(device::Attr {
            max_qp: 1024,
            max_qp_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_cqe: DEPTH,
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
pub(super) struct Context(Queues);

#[vtable]
impl ucontext::Operations for Context {
    type Driver = Loop;

    fn alloc(_new: &ucontext::New<'_, Loop>, _udata: Udata<'_>) -> Result<Self> {
        let queues = new_mutex!(KVec::new(), "Context");
        Ok(Context(Arc::pin_init(queues, GFP_KERNEL)?))
    }

    fn kick(ctx: &rdma::Ucontext<Loop>) -> Result {
        let queues = ctx.0.lock();
        let mut queues = queues.iter();
        queues.try_for_each(|queue| queue.serve(ctx.device()))
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

/// A memory region. Dropping it takes it from the table, and waits for a copy that is under way.
pub(super) struct Mr(Arc<Table>, u32);

#[vtable]
impl mr::Operations for Mr {
    type Driver = Loop;

    fn reg_user(
        new: &mut mr::New<'_, Loop>,
        region: &mr::UserRegion,
        _user: UserCall<'_, Loop>,
    ) -> Result<Self> {
        let table = Arc::clone(new.device());
        let key = table.number();
        let umem = Umem::pin(new.device(), region.start, region.length, region.access)?;
        let iova = region.iova;
        (table.regions.lock()).push(Region { key, iova, umem }, GFP_KERNEL)?;
        new.set_keys(key, key);
        Ok(Mr(table, key))
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let Mr(table, key) = self;
        table.regions.lock().retain(|region| region.key != *key);
    }
}

/// A completion queue.
pub(super) struct Cq(Arc<Completions>, #[expect(dead_code)] Entry);

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
        let area = Arc::new(SharedArea::new(RING)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(area.clone(), Protection::ReadOnly)?;
        let notifier = new.notifier();
        let completions = pin_init!(Completions {
            area,
            notifier,
            producer <- new_mutex!(0, "Completions::producer"),
        });
        new.set_cqe(DEPTH);
        user.respond(&entry.offset())?;
        Ok(Cq(Arc::pin_init(completions, GFP_KERNEL)?, entry))
    }
}

/// A queue pair. Dropping it takes it from its context's list.
pub(super) struct Qp {
    queue: Arc<Queue>,
    queues: Queues,
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
        if attr.qp_type != qp::Type::Rc {
            return Err(EOPNOTSUPP);
        }
        let cap = qp::Cap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let area = Arc::new(SharedArea::new(RQ + RING)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(area.clone(), Protection::ReadWrite)?;
        user.respond(&entry.offset())?;
        let qp_num = new.device().number();
        let send_cq = new.send_cq().ok_or(EINVAL)?.0.clone();
        let recv_cq = new.recv_cq().ok_or(EINVAL)?.0.clone();
        let queue = pin_init!(Queue {
            qp_num,
            area,
            send_cq,
            recv_cq,
            state <- new_mutex!((qp::State::Reset, 0), "Queue::state"),
        });
        let queue = Arc::pin_init(queue, GFP_KERNEL)?;
        let queues = user.ucontext().0.clone();
        queues.lock().push(queue.clone(), GFP_KERNEL)?;
        new.set_qp_num(qp_num);
        new.set_cap(cap);
        Ok(Qp {
            queue,
            queues,
            _entry: entry,
        })
    }

    fn modify(
        qp: &rdma::Qp<Loop>,
        attr: &qp::ModifyAttr<'_>,
        _user: Option<UserCall<'_, Loop>>,
    ) -> Result {
        let mut guard = qp.queue.state.lock();
        let next = attr.state.unwrap_or(guard.0);
        if !qp::modify_is_ok(guard.0, next, qp.qp_type(), attr.mask()) {
            return Err(EINVAL);
        }
        guard.0 = next;
        Ok(())
    }

    fn query(qp: &rdma::Qp<Loop>, out: &mut qp::QueryAttr) -> Result {
        out.state = qp.queue.state.lock().0;
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.qp_num != self.queue.qp_num);
    }
}
