// SPDX-License-Identifier: GPL-2.0

//! A device: its engine, the worker, its place in the network and its files in debugfs.

use ferrule_engine::Mtu;
use kernel::{
    error::Error,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::task::Kthread;
use net_ext::NetDevice;
use rdma::{
    AhAttr,
    GidAttr, //
};

use super::{
    debugfs::Directory,
    net::{
        path::Path as Route,
        ports::Membership,
        sender::{
            Limit,
            Sender, //
        }, //
    },
    policy,
    shared::{
        errno,
        Shared, //
    },
    worker, //
};

/// A device's engine with the thread that helps it: the data of the `ib_device`.
#[pin_data]
pub(crate) struct Soft {
    shared: Shared,
    /// The limit that the queue pairs share for packets on their way.
    limit: Arc<Limit>,
    /// Ended first when the device goes: then nothing comes from the wire any more.
    wire: Membership,
    /// Stopped after that; nothing is left for it to do then.
    _worker: Kthread,
    #[pin]
    directory: Directory,
}

impl Soft {
    /// Makes the engine of the device `name`, which sends and receives by `netdev`, and whose port has
    /// this path MTU.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the port of RoCEv2 is taken, and others of [`Membership::new`]; `ENOMEM`.
    pub(crate) fn new(
        name: &CStr,
        netdev: &NetDevice,
        mtu: Mtu,
    ) -> Result<impl PinInit<Self, Error>> {
        let shared = Shared::new()?;
        shared.set_port_mtu(mtu);
        let wire = Membership::new(netdev, shared.core.clone())?;
        let worker = worker::spawn(name, shared.core.clone())?;
        let directory = Directory::new(name, shared.clone())?;

        Ok(try_pin_init!(Self {
            directory <- directory,
            limit: Limit::new(shared.core.clone())?,
            _worker: worker,
            wire,
            shared,
        }))
    }

    /// Whether peers of this device itself are to be reached by the wire, too.
    pub(crate) fn is_wire_only(&self) -> bool {
        self.directory.is_wire_only()
    }

    /// The device has another name.
    pub(crate) fn renamed(&self, name: &CStr) {
        self.directory.rename(name);
    }

    /// The way to a remote peer, along an address vector, for the queue pair `qpn` here and `peer`
    /// there, 0 where they are not known. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Route::new`].
    pub(crate) fn route(&self, av: &AhAttr, sgid: &GidAttr, qpn: u32, peer: u32) -> Result<Route> {
        let route = Route::new(self.wire.ports(), av, sgid, qpn, peer)?;
        Ok(if self.directory.has_gso() {
            route.with_gso()
        } else {
            route
        })
    }

    /// As [`Soft::route`], but the route is only found when a packet takes it. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`Route::unsought`].
    pub(crate) fn unsought_route(&self, av: &AhAttr, sgid: &GidAttr) -> Result<Route> {
        Route::unsought(self.wire.ports(), av, sgid, 0, 0)
    }

    /// Gives a queue pair an account for its packets, if it has none yet: before it gets a way to a remote
    /// peer, or is in a state in which it may send datagrams. Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::new`].
    pub(crate) fn enable_sending(&self, qpn: u32) -> Result {
        let core = &self.shared.core;
        let has_sender = policy::command(core, |engine, _| {
            engine.queue_mut(qpn).map(|queue| queue.has_sender())
        });
        if has_sender.map_err(errno)? {
            return Ok(());
        }
        let mut sender = Some(Sender::new(self.wire.ports(), self.limit.clone(), qpn)?);
        // An account that another caller has set meanwhile is dropped without the shard.
        policy::command(core, |engine, _| {
            let queue = engine.queue_mut(qpn)?;
            if let Some(new) = sender.take() {
                sender = queue.set_sender(new);
            }
            Ok(())
        })
        .map_err(errno)
    }

    /// The handle by which the verbs use the engine.
    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }
}
