// SPDX-License-Identifier: GPL-2.0

//! A device of the function, as the verbs know it.

use ferrule_engine::{
    Modify,
    Mtu,
    QpType, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net_ext::NetDevice;
use rdma::{
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
use crate::backend::{
    object::{
        AddressVector,
        Limits, //
    },
    Backend, //
};

/// The data of the `ib_device`.
pub(crate) struct Nic {
    pub(super) function: Arc<Function>,
}

/// The counters, by the names of [`interface::COUNTERS`].
const COUNTERS: &[Counter; interface::COUNTERS.len()] = &[
    Counter::new(c"send_requests"),
    Counter::new(c"send_errors"),
    Counter::new(c"responder_errors"),
    Counter::new(c"flushed_requests"),
    Counter::new(c"rcvd_messages"),
    Counter::new(c"message_bytes"),
    Counter::new(c"completions"),
    Counter::new(c"completion_overruns"),
    Counter::new(c"receiver_not_ready"),
    Counter::new(c"sequence_errors"),
    Counter::new(c"retries"),
    Counter::new(c"unanswered"),
    Counter::new(c"probes"),
    Counter::new(c"dropped"),
    Counter::new(c"stray_doorbells"),
];

fn multicast(qpn: u32, group: &Gid) -> Multicast {
    Multicast {
        number: qpn.into(),
        reserved: 0.into(),
        gid: group.0,
    }
}

impl Backend for Nic {
    const COUNTERS: &'static [Counter] = COUNTERS;
    const MAX_FAST_REG_PAGES: u32 = interface::MAX_EXTENTS;

    type Commands = Arc<Function>;
    type Destination = Destination;

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

    /// The device has no name.
    fn renamed(&self, _name: &CStr) {}

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
        self.function.execute::<command::ChangeQp>(&ModifyQp {
            number: qpn.into(),
            reserved: 0.into(),
            attributes,
            to: to.map_or(NO_ADDRESS, interface::AddressVector::from),
        })?;
        Ok(())
    }

    /// Packets do not come by the network device.
    fn attach_mcast(&self, qpn: u32, group: &Gid, _netdev: &NetDevice) -> Result {
        self.function
            .execute::<command::AttachMcast>(&multicast(qpn, group))?;
        Ok(())
    }

    fn detach_mcast(&self, qpn: u32, group: &Gid, _netdev: Option<&NetDevice>) -> Result {
        self.function
            .execute::<command::DetachMcast>(&multicast(qpn, group))?;
        Ok(())
    }
}
