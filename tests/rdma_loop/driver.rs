// SPDX-License-Identifier: GPL-2.0

//! The driver: a context with a list of its queue pairs, which a kick serves.

use kernel::{
    fmt, new_mutex,
    prelude::*,
    sync::{
        atomic::Relaxed,
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
    method::{
        Attr,
        Attrs,
        Definition,
        Method, //
    },
    mmap::{
        Entry,
        Protection, //
    },
    umem::Umem,
    *, //
};

use super::queue::{
    Completions,
    Queue,
    Region,
    Table,
    DEPTH,
    QUEUES,
    RING, //
};

/// The driver.
pub(super) struct Loop;

#[vtable]
impl Driver for Loop {
    const ID: u32 = 0x4c4f_4f50; // "LOOP"
    const NAME: &'static CStr = c"loop";
    const ABI_VERSION: u32 = 1;
    const METHODS: &'static [&'static Definition<Self>] =
        &[&Definition::of::<Kick>(), &Definition::of::<Scale>()];

    type Data = Arc<Table>;
    type Ucontext = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Cq = Cq;
    type Qp = Qp;
    type Ah = Unsupported<Self>;
    type Srq = Unsupported<Self>;
    type Mw = Unsupported<Self>;
    type Dm = Unsupported<Self>;
    type Xrcd = Unsupported<Self>;
    type Flow = Unsupported<Self>;

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

    fn query_port(_dev: &Device<Self>, attr: &mut port::Attr) -> Result {
        attr.gid_tbl_len = 16;
        attr.max_msg_sz = 1 << 20;
        Ok(())
    }

    /// There is no firmware: this is for the test of the MTU.
    fn fw_version(dev: &Device<Self>, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{}", dev.mtu.load(Relaxed))
    }

    fn netdev_mtu_changed(dev: &Device<Self>, netdev: &NetDevice) {
        dev.mtu.store(netdev.mtu(), Relaxed);
    }
}

#[vtable]
impl Link for Loop {
    fn new_link(offered: &Offered<'_, Self>, name: &CStr, netdev: &NetDevice) -> Result {
        if device::is_taken::<Self>(netdev) {
            return Err(EEXIST);
        }
        let net = netdev.namespace().ok_or(ENODEV)?;
        let info = device::Info {
            node_guid: eui64_from_mac(netdev.address()),
            num_comp_vectors: 1,
        };
        let mut dev = UnregisteredDevice::<Self>::new(net, info, Table::new(None)?)?;
        dev.set_netdev(netdev)?;
        dev.register(offered, name)
    }
}

type Queues = Arc<Mutex<KVec<Arc<Queue>>>>;

/// A user context, with the queue pairs that its kick serves.
pub(super) struct Context(Queues);

#[vtable]
impl ucontext::Operations for Context {
    type Driver = Loop;

    fn alloc(_new: &ucontext::New<'_, Loop>, _udata: Udata<'_>) -> Result<Self> {
        let queues = new_mutex!(KVec::new(), "Context");
        Ok(Context(Arc::pin_init(queues, GFP_KERNEL)?))
    }
}

/// A method without attributes: serves the context's queue pairs.
struct Kick;

impl Method for Kick {
    type Driver = Loop;

    const ID: u16 = 1 << 12;

    fn call(ctx: &rdma::Ucontext<Loop>, _attrs: &Attrs<'_, Loop>) -> Result {
        let queues = ctx.0.lock();
        let mut queues = queues.iter();
        queues.try_for_each(|queue| queue.serve(ctx.device()))
    }
}

/// A method with attributes: some bytes, each of them times a factor, which is 2 if there is none.
struct Scale;

impl Scale {
    const FACTOR: Attr = Attr::input::<u8>(Attr::DRIVER);
    const FROM: Attr = Attr::input::<[u8; 16]>(Attr::DRIVER + 1);
    const TO: Attr = Attr::output::<[u8; 16]>(Attr::DRIVER + 30);
}

impl Method for Scale {
    type Driver = Loop;

    const ID: u16 = (1 << 12) + 1;
    const ATTRS: &'static [&'static Attr] = &[&Self::FACTOR, &Self::FROM, &Self::TO];

    fn call(_ctx: &rdma::Ucontext<Loop>, attrs: &Attrs<'_, Loop>) -> Result {
        let factor = match attrs.read::<u8>(&Self::FACTOR) {
            Err(ENOENT) => 2,
            factor => factor?,
        };
        let from: [u8; 16] = attrs.read(&Self::FROM)?;
        attrs.write(&Self::TO, &from.map(|byte| byte.wrapping_mul(factor)))
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
        new.set_cqe(DEPTH);
        user.respond(&entry.offset())?;
        Ok(Cq(Completions::new(area, new.notifier())?, entry))
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
        let area = Arc::new(SharedArea::new(QUEUES)?, GFP_KERNEL)?;
        let entry = user.ucontext().map(area.clone(), Protection::ReadWrite)?;
        user.respond(&entry.offset())?;
        let qp_num = new.device().number();
        let send_cq = new.send_cq().ok_or(EINVAL)?.0.clone();
        let recv_cq = new.recv_cq().ok_or(EINVAL)?.0.clone();
        let queue = Queue::new(qp_num, area, send_cq, recv_cq)?;
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
