// SPDX-License-Identifier: GPL-2.0

//! A guest: its port of the device, and all objects that are its own.
//!
//! A command may name an object only if it is in these sets. They are used by the guest's own
//! thread alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ferrule_engine::{ContextId, Gid, Vport, GSI};
use rustix::io::Errno;

use crate::addresses::vport;
use crate::device::Device;
use crate::events::Source;
use crate::interface::event;
use crate::memory::Memory;
use crate::pages::Pages;
use crate::statistics::Statistics;

/// The numbers of objects of one kind, of which there may be so many.
#[derive(Debug)]
pub(crate) struct Numbers {
    numbers: HashSet<u32>,
    most: u32,
}

impl Numbers {
    fn new(most: u32) -> Self {
        Self {
            numbers: HashSet::new(),
            most,
        }
    }

    /// Refuses one more than there may be.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn check_limit(&self) -> Result<(), Errno> {
        match self.numbers.len() < usize::try_from(self.most).unwrap_or(usize::MAX) {
            true => Ok(()),
            false => Err(Errno::NOMEM),
        }
    }

    /// Takes a number.
    pub(crate) fn add(&mut self, number: u32) {
        self.numbers.insert(number);
    }

    /// Refuses a number that is not the guest's own.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    pub(crate) fn own(&self, number: u32) -> Result<u32, Errno> {
        match self.numbers.contains(&number) {
            true => Ok(number),
            false => Err(Errno::INVAL),
        }
    }

    /// Forgets a number.
    pub(crate) fn remove(&mut self, number: u32) {
        self.numbers.remove(&number);
    }

    fn take(&mut self) -> HashSet<u32> {
        std::mem::take(&mut self.numbers)
    }
}

/// Domains are told apart by their ports: the number of a port's domain begins with so many bits of
/// its own.
const PD_BITS: u32 = 16;

/// A guest, as its thread has it.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) device: Arc<Device>,
    pub(crate) port: usize,
    pub(crate) vport: Vport,
    pub(crate) memory: Arc<Memory>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) contexts: Numbers,
    pds: Numbers,
    /// Numbers of protection domains that were given back.
    free_pds: Vec<u32>,
    pub(crate) ahs: Numbers,
    pub(crate) mrs: Numbers,
    pub(crate) mws: Numbers,
    pub(crate) cqs: Numbers,
    pub(crate) srqs: Numbers,
    pub(crate) qps: Numbers,
    /// The number in the engine of the port's queue pair for general services.
    pub(crate) gsi: Option<u32>,
    /// The control words of completion queues, which stay when they are resized.
    pub(crate) cq_ctrls: HashMap<u32, Arc<Pages>>,
    /// The queue pairs and the groups that they are attached to.
    pub(crate) groups: BTreeSet<(u32, Gid)>,
}

impl Guest {
    /// The guest of a port, without anything.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    pub(crate) fn new(device: &Arc<Device>, port: usize) -> Result<Self, Errno> {
        let quota = device.quota();
        Ok(Self {
            device: Arc::clone(device),
            port,
            vport: vport(port)?,
            memory: Arc::default(),
            statistics: Arc::clone(device.statistics(port).ok_or(Errno::INVAL)?),
            contexts: Numbers::new(quota.contexts),
            pds: Numbers::new(quota.pds),
            free_pds: Vec::new(),
            ahs: Numbers::new(quota.ahs),
            mrs: Numbers::new(quota.mrs),
            mws: Numbers::new(quota.mws),
            cqs: Numbers::new(quota.cqs),
            srqs: Numbers::new(quota.srqs),
            qps: Numbers::new(quota.qps),
            gsi: None,
            cq_ctrls: HashMap::new(),
            groups: BTreeSet::new(),
        })
    }

    /// The protection domain of a number, as the engine knows it: one that no other guest can name.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not the guest's own.
    pub(crate) fn pd(&self, number: u32) -> Result<u32, Errno> {
        let port = u32::try_from(self.port).map_err(|_| Errno::INVAL)?;
        let own = self.pds.own(number)?;
        Ok(own | port.wrapping_shl(PD_BITS))
    }

    /// The XRC domain of a number, as the engine knows it: one that no other guest can name. A
    /// domain is nothing but its number, which the driver chooses.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too large.
    pub(crate) fn xrcd(&self, number: u32) -> Result<u32, Errno> {
        let port = u32::try_from(self.port).map_err(|_| Errno::INVAL)?;
        let fits = number.wrapping_shr(PD_BITS) == 0;
        let own = fits.then_some(number).ok_or(Errno::INVAL)?;
        Ok(own | port.wrapping_shl(PD_BITS))
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn alloc_pd(&mut self) -> Result<u32, Errno> {
        self.pds.check_limit()?;
        // Numbers are in use or free, from 0 on without a gap.
        let next = self.pds.numbers.len();
        let number = match self.free_pds.pop() {
            Some(number) => number,
            None => u32::try_from(next).map_err(|_| Errno::NOMEM)?,
        };
        self.pds.add(number);
        Ok(number)
    }

    /// Gives a protection domain back.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not the guest's own.
    pub(crate) fn dealloc_pd(&mut self, number: u32) -> Result<(), Errno> {
        self.pds.own(number)?;
        self.pds.remove(number);
        self.free_pds.push(number);
        Ok(())
    }

    /// The queue pair of a number, as the engine knows it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not the guest's own.
    pub(crate) fn qpn(&self, number: u32) -> Result<u32, Errno> {
        self.qps.own(number)?;
        match number {
            GSI => self.gsi.ok_or(Errno::INVAL),
            _ => Ok(number),
        }
    }

    /// Serves a context that has kicked, if it is the guest's own.
    pub(crate) fn kick(&self, context: u32) {
        if self.contexts.own(context).is_ok() {
            self.device.kick(ContextId::from_number(context));
        }
    }

    /// Counts a command, and the objects after it.
    pub(crate) fn count(&self, succeeded: bool) {
        self.statistics.commands.add(1);
        self.statistics.refused_commands.add((!succeeded).into());
        self.count_objects();
    }

    fn count_objects(&self) {
        // In the order of their names in `statistics`.
        let numbers = [
            &self.contexts,
            &self.pds,
            &self.mrs,
            &self.mws,
            &self.cqs,
            &self.srqs,
            &self.qps,
            &self.ahs,
        ];
        for (count, numbers) in self.statistics.objects.iter().zip(numbers) {
            count.set(numbers.numbers.len() as u64);
        }
    }

    /// Forgets the events of an object that is gone.
    pub(crate) fn forget(&self, kinds: &[u32], number: u32) {
        self.device.command(|_, host| {
            for &kind in kinds {
                host.forget(self.port, Source { kind, number });
            }
        });
    }

    /// Destroys all that is the guest's. Nothing of it is in use afterwards.
    pub(crate) fn reset(&mut self) {
        let device = Arc::clone(&self.device);
        // An object may go when those that use it have gone. Each step is short, for others wait.
        for (qpn, gid) in std::mem::take(&mut self.groups) {
            let _ = device.command(|engine, _| engine.detach_mcast(qpn, &gid));
        }
        let gsi = self.gsi.take();
        let qps = self.qps.take().into_iter().filter(|number| *number != GSI);
        for number in qps.chain(gsi) {
            let _gone = device.command(|engine, _| engine.remove_qp(number));
        }
        for number in self.srqs.take() {
            let _gone = device.command(|engine, _| engine.remove_srq(number));
        }
        for number in self.cqs.take() {
            let _gone = device.command(|engine, _| engine.remove_cq(number));
        }
        for key in self.mws.take() {
            let _gone = device.command(|engine, _| engine.remove_mw(key));
        }
        for key in self.mrs.take() {
            let _gone = device.command(|engine, _| engine.remove_mr(key));
        }
        for number in self.ahs.take() {
            let _gone = device.command(|engine, _| engine.remove_ah(number));
        }
        for number in self.contexts.take() {
            let id = ContextId::from_number(number);
            let _gone = device.command(|engine, _| engine.remove_context(id));
        }
        self.cq_ctrls.clear();
        self.pds.take();
        self.free_pds.clear();
        device.command(|_, host| host.reset(self.port));
        self.statistics.registered.set(0);
        self.count_objects();
    }
}

/// The kinds of a completion queue's events.
pub(crate) const CQ_EVENTS: &[u32] = &[event::COMPLETION, event::CQ];
