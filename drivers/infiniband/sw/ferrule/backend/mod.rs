// SPDX-License-Identifier: GPL-2.0

//! The interface between the verbs and a backend, and what all backends share.
//!
//! To the verbs a backend is the hardware. They know it by two traits alone: [`Backend`] is a
//! device with its place in the network, [`Commands`] is its command channel, a handle that each
//! object keeps, with [`Replication`] for the threads of a program. `soft` implements both with the
//! engine in the kernel, `nic` by commands of a PCI function. The data channel needs no trait:
//! requests and completions travel in the rings of `include/uapi/rdma/ferrule-abi.h`, which
//! [`posting`], [`srq_posting`] and [`polling`] fill and read for users in the kernel as the
//! provider does for programs.
//!
//! The driver's README tells what a backend owes beyond the signatures.

pub(crate) mod destination;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod polling;
pub(crate) mod posting;
pub(crate) mod replication;
pub(crate) mod ring;
pub(crate) mod srq_posting;

use core::num::NonZeroU32;

use ferrule_engine::{
    steering::rule::Rule,
    Access,
    ContextId,
    CqInfo,
    Moderation,
    Modify,
    Mtu,
    MwType,
    QpInfo,
    QpType,
    SrqInfo, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::SharedArea,
    time::monotonic_raw_ns, //
};
use net_ext::NetDevice;
use rdma::{
    cq,
    device::OnDemand,
    mr::UserRegion,
    paging::{
        self,
        Purpose, //
    },
    pma::PortCounters,
    stats::Counter,
    umem::Umem,
    Gid,
    Memory, //
};

use self::{
    destination::Destination,
    numbers::Numbers,
    object::{
        AddressVector,
        Limits,
        MrChange,
        MrInfo,
        NewQp,
        QpInit,
        SrqInit,
        SrqResize, //
    },
    replication::Replication,
    ring::{
        CqRing,
        Doorbells, //
    }, //
};

/// A device, as the verbs know it: the data of the `ib_device`.
///
/// Methods may sleep, unless they say that any context may call them.
pub(crate) trait Backend: Send + Sync + Sized + 'static {
    /// The counters of a port, in the order of [`Backend::read_counters`].
    const COUNTERS: &'static [Counter];

    /// Tells what the port has sent and received; `None` if nobody can tell it of this device
    /// alone. The bytes on the wire are those from the IP header to the invariant CRC, and local
    /// traffic counts the bytes that were copied.
    const PORT_COUNTERS: Option<fn(&Self) -> PortCounters> = None;

    /// The pages that a kernel user may register at once by a request; 0 if there is no fast
    /// registration.
    const MAX_FAST_REG_PAGES: u32;

    /// Whether queue pairs can be bound to sets of counters. [`Backend::read_counters`] leaves
    /// those out.
    const HAS_QP_COUNTERS: bool = false;
    /// Whether contexts may have engines of their own.
    const HAS_ENGINES: bool = false;
    /// Whether there are raw packet queue pairs, to which frames of the network device are steered.
    const HAS_FRAMES: bool = false;
    /// The operations that reach memory which is paged on demand. Without any,
    /// [`Commands::page_on_demand`] and [`Commands::on_demand`] are not called.
    const ON_DEMAND: OnDemand = OnDemand::NONE;

    /// Its command channel.
    type Commands: Commands<Destination = Self::Destination>;

    /// The way of a kernel user's datagrams to their receiver.
    type Destination: Destination;

    /// A rule by which frames are steered, as long as there is this.
    type Flow: Send + Sync + 'static;

    /// The handle for objects.
    fn commands(&self) -> Self::Commands;

    /// How much there is of everything.
    fn limits(&self) -> Limits;

    /// Tells the values of the counters.
    fn read_counters(&self, values: &mut [u64]);

    /// The device has this index among RDMA devices (`rdma dev`), and nobody uses it yet.
    fn indexed(&self, _index: u32) {}

    /// The device has this name from now on, which no other one has in any network namespace; or
    /// none, while it gets another namespace, when it goes, and without memory. Only told to
    /// devices of `rdma link`.
    fn named(&self, _name: Option<&CStr>) {}

    /// Whether a network device is to be that of the port, which has none. The RTNL is held.
    fn wants_netdev(&self, _netdev: &NetDevice) -> bool {
        false
    }

    /// The network device that is to be that of the port, which has none, if there is such a one.
    /// The RTNL is held.
    fn find_netdev(&self) -> Option<ARef<NetDevice>> {
        None
    }

    /// The network device goes, or leaves its network namespace. The RTNL is held.
    fn netdev_lost(&self) {}

    /// The path MTU of the port has changed. The RTNL is held.
    fn set_port_mtu(&self, mtu: Mtu);

    /// The entry `index` of the port's GID table is about to have this GID, or none.
    ///
    /// # Errors
    ///
    /// With any error an entry that was to be filled stays empty, and one that was to be emptied is
    /// empty.
    fn set_gid(&self, index: u16, gid: Option<&Gid>) -> Result;

    /// Makes an address handle for datagram queue pairs of a protection domain, and returns the
    /// number by which requests of programs name it; never 0.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` and others if the address cannot be reached from the GID.
    fn add_ah(&self, pd: u32, to: &AddressVector<'_>) -> Result<u32>;

    /// The same for a kernel user, whose requests carry it. Any context.
    ///
    /// # Errors
    ///
    /// As [`Backend::add_ah`].
    fn destination(&self, to: &AddressVector<'_>) -> Result<Self::Destination>;

    /// Changes attributes of a queue pair, and with `to` the way to its peer. The engine judges the
    /// transition and the attributes (IBA volume 1, 11.2.5.2).
    ///
    /// # Errors
    ///
    /// `EINVAL` for what the state or the service does not allow, `EOPNOTSUPP` for path migration,
    /// and those of [`Backend::add_ah`].
    fn modify_qp(
        &self,
        qpn: u32,
        qp_type: QpType,
        change: &Modify,
        to: Option<&AddressVector<'_>>,
    ) -> Result;

    /// Steers frames of the network device to a raw packet queue pair.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many rules; `EOPNOTSUPP` if there are none at all; the network
    /// device's own.
    fn steer(&self, _rule: Rule, _qpn: u32) -> Result<Self::Flow> {
        Err(EOPNOTSUPP)
    }

    /// Attaches a datagram queue pair to a multicast group, of which the network device becomes a
    /// member if packets come by it.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many; `EINVAL`; those of joining.
    fn attach_mcast(&self, qpn: u32, group: &Gid) -> Result;

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not attached.
    fn detach_mcast(&self, qpn: u32, group: &Gid) -> Result;
}

/// A backend of devices that users make for network devices.
pub(crate) trait Linked: Backend {
    /// Makes the device `name`, which sends and receives by `netdev`, and whose port has this path
    /// MTU.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the backend's own.
    fn new(name: &CStr, netdev: &NetDevice, mtu: Mtu) -> Result<impl PinInit<Self, Error>>;
}

/// The command channel of a device: a handle that objects keep, and that works as long as there is
/// one.
///
/// `add_…` makes an object and returns its number, `remove_…` takes it back when nothing uses it
/// any more. A removal returns when the engine holds nothing of the object: no copy from or to its
/// pages is under way, and no completion of it is written. It may wait for that, but not for a
/// program or a peer.
///
/// Methods may sleep, unless they say that any context may call them. Each `add_…` fails with
/// `ENOMEM` without memory, or when there are as many as [`Limits`] says.
pub(crate) trait Commands: Replication + Clone + Send + Sync + 'static {
    /// The [`Backend::Destination`] of its device.
    type Destination: Destination;

    /// Opens a user context with such doorbells. One `beside` another one is for a program that has
    /// imported that, and uses its objects.
    fn add_context(&self, doorbells: Doorbells, beside: Option<ContextId>) -> Result<ContextId>;

    /// Ends the work of a context's queue pairs with flush errors, then refuses more of it.
    fn quiesce_context(&self, id: ContextId);

    /// Closes a user context, which has no queue pairs any more.
    fn remove_context(&self, id: ContextId);

    /// Whether the device is gone without having ended its users' work, which polling does then.
    /// Any context.
    fn is_gone(&self) -> bool {
        false
    }

    /// Serves a context that has rung while the engine was asleep, and returns after a bounded
    /// time.
    fn kick(&self, id: ContextId) -> Result;

    /// The time in nanoseconds by the clock of completions' timestamps, which never goes back: that
    /// of the machine with the engine.
    ///
    /// # Errors
    ///
    /// `EIO` of a device that is gone.
    fn clock(&self) -> Result<u64> {
        Ok(monotonic_raw_ns())
    }

    /// Takes a number for a protection domain: for objects of a user context, or with none of a
    /// user in the kernel.
    fn add_pd(&self, context: Option<ContextId>) -> Result<u32>;

    /// Gives the number of a protection domain back.
    fn remove_pd(&self, id: u32);

    /// The numbers of XRC domains.
    fn xrcds(&self) -> &Numbers;

    /// Destroys an address handle of [`Backend::add_ah`].
    fn remove_ah(&self, number: u32);

    /// Registers pinned pages, which begin at `iova` for their user, and returns the key, which is
    /// the local and the remote one.
    fn add_mr(&self, pd: u32, access: Access, iova: u64, pages: Umem) -> Result<u32>;

    /// Memory of the calling process that is paged on demand, for [`Commands::add_mr`] with a
    /// protection domain of this context.
    ///
    /// # Errors
    ///
    /// Those of [`Umem::on_demand`].
    fn page_on_demand(&self, _context: ContextId, _region: &UserRegion) -> Result<Umem> {
        Err(EOPNOTSUPP)
    }

    /// The memory of an on-demand region of the protection domain, and the offset of `addr` in it.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there is no such region, if it may not be written to but `purpose` is that, or
    /// if `length` bytes at `addr` are not all inside; `EINVAL` if it is not paged on demand.
    fn on_demand(
        &self,
        _pd: u32,
        _key: u32,
        _addr: u64,
        _length: u64,
        _purpose: Purpose,
    ) -> Result<(Arc<paging::OnDemand>, u64)> {
        Err(EOPNOTSUPP)
    }

    /// Registers bytes of device memory, which begin at address 0 for their user: `length` of them,
    /// which may be 0, at `offset` of the area. All are inside.
    fn add_dm_mr(
        &self,
        pd: u32,
        access: Access,
        area: Arc<SharedArea>,
        offset: u64,
        length: u64,
    ) -> Result<u32>;

    /// Registers all memory for a kernel user, by its own addresses.
    fn add_dma_mr(&self, pd: u32, access: Access, memory: Memory) -> Result<u32>;

    /// Makes a region for fast registration: a kernel user maps memory to it, up to `max_pages`
    /// pages, and its requests register that. Returns the first of its keys. Not called if
    /// [`Backend::MAX_FAST_REG_PAGES`] is 0.
    fn add_fast_mr(&self, pd: u32, memory: Memory, max_pages: u32) -> Result<u32>;

    /// A kernel user has mapped memory to a region of [`Commands::add_fast_mr`], by DMA addresses
    /// of the device's parent: of each extent the address and the length. Any context. Not called
    /// if there is no parent.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more extents than pages that the region may have.
    fn map_fast_mr(&self, key: u32, extents: impl Iterator<Item = (u64, u64)>) -> Result;

    /// The attributes of a memory region.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such key.
    fn query_mr(&self, key: u32) -> Result<MrInfo>;

    /// Changes a memory region, whose keys stay. Pages that it had before are free afterwards.
    ///
    /// # Errors
    ///
    /// `EBUSY` while memory windows are bound to it; `EINVAL`.
    fn rereg_mr(&self, key: u32, change: MrChange) -> Result;

    /// Takes a key back and unpins the pages.
    fn remove_mr(&self, key: u32);

    /// Makes a memory window, which is not bound, and returns its key.
    fn add_mw(&self, pd: u32, kind: MwType) -> Result<u32>;

    /// Takes a memory window back; afterwards it opens nothing.
    fn remove_mw(&self, key: u32);

    /// Makes a completion queue of `depth` slots, a power of two, of a user context, or with none
    /// of a user in the kernel. Its events go by `notifier`, on the completion vector `vector`.
    fn add_cq(
        &self,
        context: Option<ContextId>,
        depth: u32,
        ring: CqRing,
        vector: u32,
        notifier: Arc<cq::Notifier>,
    ) -> Result<u32>;

    /// Lets a completion queue go on with another ring, whose control words are those that it has,
    /// and returns the index of the first completion there.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more completions are unread than the ring has slots.
    fn resize_cq(&self, cqn: u32, depth: u32, ring: CqRing) -> Result<u32>;

    /// The size and the indices of a completion queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such queue.
    fn query_cq(&self, cqn: u32) -> Result<CqInfo>;

    /// Sets how long the events of a completion queue wait for more completions.
    fn moderate_cq(&self, cqn: u32, moderation: Moderation) -> Result;

    /// Destroys a completion queue, which no queue pair uses any more.
    fn remove_cq(&self, cqn: u32);

    /// Makes a shared receive queue, and returns its number, of 24 bits.
    fn add_srq(&self, init: SrqInit) -> Result<u32>;

    /// Sets the number of requests below which a shared receive queue tells, once.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no space for so many.
    fn set_srq_limit(&self, number: u32, limit: u32) -> Result;

    /// Lets a shared receive queue go on with another ring, whose slots are as large as those that
    /// it has.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more requests wait than the ring has slots, or the limit is larger. Nothing has
    /// changed then.
    fn resize_srq(&self, number: u32, resize: SrqResize) -> Result;

    /// The sizes and the limit of a shared receive queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such queue.
    fn query_srq(&self, number: u32) -> Result<SrqInfo>;

    /// Destroys a shared receive queue, which no queue pair uses any more.
    fn remove_srq(&self, number: u32);

    /// Makes a queue pair in state RESET.
    fn add_qp(&self, init: QpInit<Self::Destination>) -> Result<NewQp>;

    /// The attributes of a queue pair.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such queue pair.
    fn query_qp(&self, qpn: u32) -> Result<QpInfo>;

    /// Makes a set of counters, and returns its number. Not called if there is no
    /// [`Backend::HAS_QP_COUNTERS`], as the other methods about sets.
    fn add_counter_set(&self) -> Result<NonZeroU32> {
        Err(EOPNOTSUPP)
    }

    /// Takes back a set of counters to which no queue pair is bound. Its counts stay in those of
    /// the port's performance management agent.
    fn remove_counter_set(&self, _set: NonZeroU32) {}

    /// Lets a queue pair count in a set instead of at the port; with none at the port again.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such queue pair, or no such set.
    fn bind_counters(&self, _qpn: u32, _set: Option<NonZeroU32>) -> Result {
        Err(EOPNOTSUPP)
    }

    /// Tells what a set has counted, in the order of [`Backend::COUNTERS`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such set.
    fn read_counter_set(&self, _set: NonZeroU32, _values: &mut [u64]) -> Result {
        Err(EOPNOTSUPP)
    }

    /// The queue pair of a kernel user that has this doorbell has new requests. Any context; the
    /// engine runs later, never in this call.
    fn ring(&self, doorbell: u32);

    /// Destroys a queue pair.
    fn remove_qp(&self, qpn: u32);
}
