// SPDX-License-Identifier: GPL-2.0

//! A device of the function, as the verbs know it.

use core::convert::Infallible;

use ferrule_engine::{
    Modify,
    Mtu,
    QpType,
    State, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use net_ext::{
    Namespace,
    NetDevice, //
};
use rdma::{
    device::is_taken,
    pma::PortCounters,
    stats::Counter,
    Gid, //
};

use super::{
    address::{
        Destination,
        NO_ADDRESS, //
    },
    attributes,
    command,
    function::Function,
    interface::{
        self,
        qp_mask,
        CreateAh,
        ModifyQp,
        Multicast,
        SetGid, //
    }, //
};
use crate::{
    backend::{
        object::{
            AddressVector,
            Limits, //
        },
        Backend, //
    },
    verbs::Ferrule, //
};

/// The data of the `ib_device`.
pub(crate) struct Nic {
    pub(super) function: Arc<Function>,
    /// The address of the network device that the function belongs to.
    pub(super) mac: [u8; 6],
}

/// The counters, by the names of [`interface::COUNTERS`].
const COUNTERS: &[Counter; interface::COUNTERS.len()] = &{
    let mut counters = [const { Counter::new(c"") }; interface::COUNTERS.len()];
    let mut place = 0;
    while place < counters.len() {
        counters[place] = Counter::new(interface::COUNTERS[place]);
        place += 1;
    }
    counters
};

fn multicast(qpn: u32, group: &Gid) -> Multicast {
    Multicast {
        number: qpn.into(),
        reserved: 0.into(),
        gid: group.0,
    }
}

impl Nic {
    /// Tells what the port has sent and received; nothing of a function that has been taken away.
    /// Process context.
    fn port_counters(&self) -> PortCounters {
        let Ok(now) = self.function.execute::<command::QueryCounters>(&()) else {
            return PortCounters::default();
        };
        let count = |name: &CStr| {
            let mut named = interface::COUNTERS.iter().zip(&now);
            let found = named.find(|(other, _)| **other == name);
            found.map_or(0, |(_, count)| count.get())
        };
        let [.., multicast_sent, multicast_received] = now;
        let malformed = count(c"malformed_short")
            .wrapping_add(count(c"malformed_version"))
            .wrapping_add(count(c"malformed_opcode"))
            .wrapping_add(count(c"malformed_length"));
        let local = (count(c"local_bytes"), count(c"local_pkts"));
        PortCounters {
            xmit_data: count(c"sent_bytes").wrapping_add(local.0) / 4,
            rcv_data: count(c"rcvd_bytes").wrapping_add(local.0) / 4,
            xmit_packets: count(c"sent_pkts").wrapping_add(local.1),
            rcv_packets: count(c"rcvd_pkts").wrapping_add(local.1),
            multicast_xmit_packets: multicast_sent.get(),
            multicast_rcv_packets: multicast_received.get(),
            rcv_errors: malformed.wrapping_add(count(c"icrc_errors")),
            // The switch counts the frames that it drops, for all of its ports.
            xmit_discards: 0,
        }
    }
}

impl Backend for Nic {
    const COUNTERS: &'static [Counter] = COUNTERS;
    const PORT_COUNTERS: Option<fn(&Self) -> PortCounters> = Some(Nic::port_counters);
    const MAX_FAST_REG_PAGES: u32 = interface::MAX_EXTENTS;

    type Commands = Arc<Function>;
    type Destination = Destination;
    type Flow = Infallible;

    fn commands(&self) -> Arc<Function> {
        self.function.clone()
    }

    fn limits(&self) -> Limits {
        let info = &self.function.info;
        Limits {
            max_qp: info.max_qp.get(),
            max_cq: info.max_cq.get(),
            max_srq: info.max_srq.get(),
            max_pd: info.max_pd.get(),
            max_mr: info.max_mr.get(),
            max_mw: info.max_mw.get(),
            max_ah: info.max_ah.get(),
            max_mcast_grp: info.max_mcast_grp.get(),
            max_mcast_qp_attach: info.max_mcast_qp_attach.get(),
            max_rd_atomic: u8::try_from(info.max_rd_atomic.get()).unwrap_or(u8::MAX),
            max_mr_size: u64::from(info.max_mr_pages.get()) * interface::PAGE_SIZE as u64,
        }
    }

    fn read_counters(&self, values: &mut [u64]) {
        let Ok(now) = self.function.execute::<command::QueryCounters>(&()) else {
            return;
        };
        for (value, now) in values.iter_mut().zip(now) {
            *value = now.get();
        }
    }

    fn wants_netdev(&self, netdev: &NetDevice) -> bool {
        if netdev.address() != self.mac
            || !netdev.is_ethernet()
            || netdev.is_vlan()
            || (netdev.namespace()).is_none_or(|net| *net != *Namespace::init())
        {
            return false;
        }
        if is_taken::<Ferrule<Nic>>(netdev) {
            dev_err!(
                self.function.device(),
                "{}: has a ferrule device already\n",
                netdev.name()
            );
            return false;
        }
        true
    }

    fn find_netdev(&self) -> Option<ARef<NetDevice>> {
        NetDevice::by_address(Namespace::init(), self.mac)
    }

    fn set_port_mtu(&self, mtu: Mtu) {
        // A function that has been taken away has no port.
        let _ = self
            .function
            .execute::<command::SetMtu>(&u32::from(mtu as u8).into());
    }

    fn set_gid(&self, index: u16, gid: Option<&Gid>) -> Result {
        self.function.execute::<command::ChangeGid>(&SetGid {
            index: u32::from(index).into(),
            valid: u32::from(gid.is_some()).into(),
            gid: gid.map_or([0; 16], |gid| gid.0),
        })?;
        Ok(())
    }

    fn add_ah(&self, pd: u32, to: &AddressVector<'_>) -> Result<u32> {
        let added = self.function.execute::<command::AddAh>(&CreateAh {
            pd: pd.into(),
            reserved: 0.into(),
            to: to.into(),
        })?;
        Ok(added.number.get())
    }

    /// The device resolves it when it takes the request.
    fn destination(&self, to: &AddressVector<'_>) -> Result<Destination> {
        Ok(Destination(to.into()))
    }

    fn modify_qp(
        &self,
        qpn: u32,
        _qp_type: QpType,
        change: &Modify,
        to: Option<&AddressVector<'_>>,
    ) -> Result {
        let mut attributes = attributes::change(change);
        if to.is_some() {
            attributes.mask = (attributes.mask.get() | qp_mask::AV).into();
        }
        let done = self.function.execute::<command::ChangeQp>(&ModifyQp {
            number: qpn.into(),
            reserved: 0.into(),
            attributes,
            to: to.map_or(NO_ADDRESS, interface::AddressVector::from),
        });
        // Polling ends the work of a function that is gone, and kernel users wait for that end.
        match change.state {
            Some(State::Err) if done.is_err() && self.function.is_gone() => {
                self.function.tell_last_wqe(qpn);
                Ok(())
            }
            Some(State::Reset) if done.is_err() && self.function.is_gone() => Ok(()),
            _ => done,
        }
    }

    /// Packets do not come by the network device.
    fn attach_mcast(&self, qpn: u32, group: &Gid) -> Result {
        self.function
            .execute::<command::AttachMcast>(&multicast(qpn, group))?;
        Ok(())
    }

    fn detach_mcast(&self, qpn: u32, group: &Gid) -> Result {
        let done = self
            .function
            .execute::<command::DetachMcast>(&multicast(qpn, group));
        // A function that is gone has no groups. The core would keep the queue pair for an error.
        if done.is_err() && self.function.is_gone() {
            return Ok(());
        }
        done
    }
}
