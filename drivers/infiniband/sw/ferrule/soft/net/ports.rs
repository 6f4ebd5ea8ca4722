// SPDX-License-Identifier: GPL-2.0

//! The port of RoCEv2, once in each network namespace that has a device of ours.
//!
//! The first device of a namespace takes the port, the last one gives it back. A namespace may end
//! before its devices do, for those are removed by a queue of the RDMA core's: then the port goes
//! with the namespace, and packets that the devices still send are lost.
//!
//! A packet is for the device whose network device has received it, or for one that is below that
//! (under a VLAN or a bond). A packet that a machine sends to itself comes by the loopback device;
//! its destination address tells the device.

use core::net::IpAddr;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        rcu,
        Arc,
        Mutex,
        UniqueArc, //
    },
};
use kernel_ext::{
    error::code::{
        EADDRINUSE,
        EAFNOSUPPORT, //
    },
    rcu::RcuArc, //
};
use net_ext::{
    pernet::{
        Lease,
        PerNet,
        Registration, //
    },
    udp::{
        Family,
        Packet,
        Port,
        Receive,
        UdpSocket, //
    },
    Namespace,
    NetDevice, //
};

use super::device::Device;

/// The port (IBA volume 1, A17.3.1.1).
pub(crate) const PORT: u16 = 4791;

/// The registration of the one [`Service`] there is.
static SERVICE: RcuArc<Registration<InNamespace>> = RcuArc::empty();

/// The ports of all namespaces, as long as the module is loaded.
pub(crate) struct Service(());

impl Service {
    /// Begins, when the module is loaded.
    ///
    /// # Errors
    ///
    /// `EBUSY` while there is one; others of [`Registration::new`].
    pub(crate) fn start() -> Result<Self> {
        // There is one registration of a kind at a time, so nothing is there that this could
        // replace.
        let registration = Arc::pin_init(Registration::new(), GFP_KERNEL)?;
        drop(SERVICE.replace(Some(registration)));
        Ok(Service(()))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // This waits for namespaces.
        drop(SERVICE.replace(None));
    }
}

/// The data of a namespace. When the namespace ends, so does the port.
struct InNamespace {
    ports: Arc<Ports>,
    lease: Lease,
}

net_ext::pernet_id!(InNamespace);

impl PerNet for InNamespace {
    fn new(lease: Lease) -> impl PinInit<Self, Error> {
        Ports::new().map(|ports| InNamespace { ports, lease })
    }
}

impl Drop for InNamespace {
    fn drop(&mut self) {
        let mut state = self.ports.state.lock();
        state.ended = true;
        drop(self.ports.sockets.replace(None));
    }
}

/// The port of a namespace, and whom it is for.
#[pin_data]
pub(crate) struct Ports {
    members: Arc<Members>,
    sockets: RcuArc<Sockets>,
    /// A caller that changes the two others holds this.
    #[pin]
    state: Mutex<State>,
}

struct State {
    /// The namespace has come to its end.
    ended: bool,
    /// Devices in the list.
    count: usize,
    /// An empty list with space for the devices but one, so that a device can always be taken away.
    spare: Option<UniqueArc<KVec<Member>>>,
}

/// The sockets of a namespace.
struct Sockets {
    v4: UdpSocket<Members>,
    /// None if the kernel does no IPv6.
    v6: Option<UdpSocket<Members>>,
    /// For routes to send by.
    lease: Lease,
}

impl Sockets {
    /// Takes the port.
    fn open(lease: Lease, members: &Arc<Members>) -> Result<Self> {
        let open = |family| UdpSocket::new(lease.clone(), family, PORT, members.clone());
        Ok(Sockets {
            v4: open(Family::V4)?,
            v6: match open(Family::V6) {
                Err(error) if error == EAFNOSUPPORT => None,
                other => Some(other?),
            },
            lease,
        })
    }
}

/// A device in a namespace.
#[derive(Clone)]
struct Member {
    netdev: ARef<NetDevice>,
    device: Arc<dyn Device>,
}

/// The devices in a namespace, to which its sockets deliver.
struct Members(RcuArc<KVec<Member>>);

impl Receive for Members {
    fn receive(&self, _port: &Port, mut packet: Packet<'_>) {
        let rcu = rcu::read_lock();
        let Some(members) = self.0.read(&rcu) else {
            return;
        };
        let of = |device: &NetDevice| {
            members
                .iter()
                .find(|member| core::ptr::eq(&*member.netdev, device))
                .or_else(|| {
                    members
                        .iter()
                        .find(|member| member.netdev.has_upper(device))
                })
        };
        let addresses = &packet.headers.addresses;
        let sibling;
        let device = if packet.device.is_loopback() {
            sibling = packet.device.sibling_with(addresses.destination());
            sibling.as_deref()
        } else {
            Some(packet.device)
        };
        let Some((device, member)) = device.and_then(|device| Some((device, of(device)?))) else {
            return;
        };
        // A packet to a group comes back to its sender, whose own queue pairs have had it already.
        // Those of another device in this namespace have not. Several devices may have one
        // link-local address, each on a link of its own.
        let comes_back = || match addresses.source() {
            IpAddr::V6(source) if source.is_unicast_link_local() => packet.device.has_ipv6(source),
            source => {
                let sender = packet.device.sibling_with(source);
                sender.is_some_and(|sender| {
                    of(&sender).is_some_and(|sender| core::ptr::eq(sender, member))
                })
            }
        };
        if addresses.destination().is_multicast() && comes_back() {
            return;
        }
        let vlan = device.vlan_of_addresses().map_or(0, |id| id + 1);
        packet.skb.set_mark(vlan.into());
        member
            .device
            .receive(packet.skb, packet.device.is_loopback());
    }
}

impl Ports {
    fn new() -> Result<Arc<Self>> {
        let members = Arc::new(Members(RcuArc::new(None)), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Ports {
                members,
                sockets: RcuArc::new(None),
                state <- new_mutex!(State { ended: false, count: 0, spare: None }, "Ports::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Calls `send` with the port for one of the two versions of IP, under RCU. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the namespace has come to its end, `EAFNOSUPPORT` if there is no IPv6; those of
    /// `send`.
    #[inline]
    pub(super) fn with_port<R, E: From<Error>>(
        &self,
        ipv6: bool,
        send: impl FnOnce(&Port) -> Result<R, E>,
    ) -> Result<R, E> {
        let rcu = rcu::read_lock();
        let sockets = self.sockets.read(&rcu).ok_or(ENODEV)?;
        if ipv6 {
            send(sockets.v6.as_ref().ok_or(EAFNOSUPPORT)?)
        } else {
            send(&sockets.v4)
        }
    }

    /// The namespace, for routes in it. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it has come to its end.
    pub(super) fn lease(&self) -> Result<Lease> {
        let rcu = rcu::read_lock();
        let sockets = self.sockets.read(&rcu).ok_or(ENODEV)?;
        Ok(sockets.lease.clone())
    }

    /// Adds a device, the first of which takes the port.
    fn join(self: &Arc<Self>, lease: &Lease, member: Member) -> Result<Membership> {
        let device = member.device.clone();
        let mut state = self.state.lock();
        if state.ended {
            return Err(ENODEV);
        }
        let mut list = UniqueArc::new(
            KVec::with_capacity(state.count + 1, GFP_KERNEL)?,
            GFP_KERNEL,
        )?;
        if state.count == 0 {
            let sockets = Arc::new(Sockets::open(lease.clone(), &self.members)?, GFP_KERNEL)?;
            self.sockets.replace(Some(sockets));
        }
        state.count += 1;
        self.fill(&mut list, |_| true);
        let _ = list.push_within_capacity(member);
        state.spare = self.publish(Some(list));
        Ok(Membership {
            ports: self.clone(),
            device,
        })
    }

    /// Takes a device away, the last of which gives the port back.
    fn leave(&self, device: &Arc<dyn Device>) {
        let mut state = self.state.lock();
        state.count -= 1;
        if state.count == 0 {
            // Nobody is delivered to any more when the sockets have gone.
            drop(self.sockets.replace(None));
            state.spare = None;
            drop(self.members.0.replace(None));
            return;
        }
        // The list that was published before has space for as many as are left.
        let mut list = state.spare.take();
        if let Some(list) = &mut list {
            list.clear();
            self.fill(list, |member| !Arc::ptr_eq(&member.device, device));
        }
        state.spare = self.publish(list);
    }

    /// Copies the devices that there are, as far as there is space.
    fn fill(&self, list: &mut KVec<Member>, keep: impl Fn(&Member) -> bool) {
        let rcu = rcu::read_lock();
        for member in self.members.0.read(&rcu).into_iter().flatten() {
            if keep(member) {
                let _ = list.push_within_capacity(member.clone());
            }
        }
    }

    /// Puts a list in the place of the last one, and returns that for another use.
    fn publish(&self, list: Option<UniqueArc<KVec<Member>>>) -> Option<UniqueArc<KVec<Member>>> {
        let old = self.members.0.replace(list.map(Arc::from))?;
        let mut old = Pin::into_inner(Arc::into_unique_or_drop(old)?);
        // References to network devices keep those from going.
        old.clear();
        Some(old)
    }
}

/// That a device sends and receives by the port of its namespace. Dropping it ends that.
pub(crate) struct Membership {
    ports: Arc<Ports>,
    device: Arc<dyn Device>,
}

impl Membership {
    /// Lets `device` send and receive by `netdev`.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE` if somebody else has the port; the log tells who, if that is rdma_rxe.
    /// - `ENODEV` if the network device or its namespace is going.
    /// - `ENOMEM`.
    pub(crate) fn new(netdev: &NetDevice, device: Arc<dyn Device>) -> Result<Self> {
        let registration = SERVICE.get().ok_or(ENODEV)?;
        let net = netdev.namespace().ok_or(ENODEV)?;
        let here = registration.get(&net).ok_or(ENODEV)?;
        let member = Member {
            netdev: netdev.hold(),
            device,
        };
        here.ports.join(&here.lease, member).inspect_err(|error| {
            if *error == EADDRINUSE {
                tell_who_has_the_port(netdev, &net);
            }
        })
    }
}

impl Membership {
    /// The port, to send from.
    pub(crate) fn ports(&self) -> &Arc<Ports> {
        &self.ports
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.ports.leave(&self.device);
    }
}

/// One line about a port that is taken: the command that adds a link gets an error number and no
/// more.
fn tell_who_has_the_port(netdev: &NetDevice, net: &Namespace) {
    match rdma::neighbours::find(net, rdma::neighbours::RXE) {
        Some(name) => pr_err!(
            "{}: UDP port {} of this network namespace is taken by rdma_rxe, for its device {}\n",
            netdev.name(),
            PORT,
            &*name
        ),
        None => pr_err!(
            "{}: UDP port {} of this network namespace is taken\n",
            netdev.name(),
            PORT
        ),
    }
}
