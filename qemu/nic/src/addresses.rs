// SPDX-License-Identifier: GPL-2.0

//! The addresses of all ports, and where an address vector leads.
//!
//! A source address is the one that the guest has set for its port, never one that it tells with a
//! request.

use std::collections::{HashMap, HashSet};

use ferrule_engine::packet::ip::is_multicast;
use ferrule_engine::{Gid, Path, PathKind, Vport};
use rustix::io::Errno;

use crate::interface::AddressVector;

/// Addresses of a port: an address vector names one by 8 bits.
pub(crate) const MAX_GIDS: usize = 256;

/// The addresses of all ports.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Of each port, by their indices.
    tables: Vec<Vec<Option<Gid>>>,
    /// The port of each address, and how often it is in its table.
    owners: HashMap<Gid, (usize, usize)>,
}

impl Addresses {
    /// So many ports, without addresses.
    pub(crate) fn new(ports: usize) -> Self {
        Self {
            tables: vec![vec![None; MAX_GIDS]; ports],
            owners: HashMap::new(),
        }
    }

    /// Sets or removes an address of a port.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an index that is too large, or an address that is none of a port; `EADDRINUSE`
    /// if another port has it.
    pub(crate) fn set(&mut self, port: usize, index: usize, gid: Option<Gid>) -> Result<(), Errno> {
        if let Some(gid) = gid {
            if gid == [0; 16] || is_multicast(&gid) {
                return Err(Errno::INVAL);
            }
            if self.owner(&gid).is_some_and(|owner| owner != port) {
                return Err(Errno::ADDRINUSE);
            }
        }
        let table = self.tables.get_mut(port).ok_or(Errno::INVAL)?;
        let entry = table.get_mut(index).ok_or(Errno::INVAL)?;
        let before = std::mem::replace(entry, gid);
        if let Some(gid) = gid {
            let (_, count) = self.owners.entry(gid).or_insert((port, 0));
            *count = count.saturating_add(1);
        }
        if let Some(before) = before {
            self.release(&before);
        }
        Ok(())
    }

    fn release(&mut self, gid: &Gid) {
        if let Some((_, count)) = self.owners.get_mut(gid) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.owners.remove(gid);
            }
        }
    }

    /// Removes all addresses of a port.
    pub(crate) fn clear(&mut self, port: usize) {
        if let Some(table) = self.tables.get_mut(port) {
            table.fill(None);
        }
        self.owners.retain(|_, (owner, _)| *owner != port);
    }

    /// The addresses of a port.
    pub(crate) fn of(&self, port: usize) -> HashSet<Gid> {
        let table = self.tables.get(port);
        table.into_iter().flatten().flatten().copied().collect()
    }

    /// The port that has an address.
    pub(crate) fn owner(&self, gid: &Gid) -> Option<usize> {
        self.owners.get(gid).map(|(port, _)| *port)
    }

    /// Where an address vector of a port leads. `out`: there is a way to others than the guests of
    /// this process.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the vector is not valid, or the port has no such source address; `ENETUNREACH`
    /// if nobody here has the address that it names, and there is no way out.
    pub(crate) fn resolve(
        &self,
        port: usize,
        to: &AddressVector,
        out: bool,
    ) -> Result<Path, Errno> {
        let sgid = self
            .tables
            .get(port)
            .and_then(|table| table.get(usize::from(to.sgid_index)).copied().flatten());
        let sgid = sgid.ok_or(Errno::INVAL)?;
        if to.valid != 1 || to.flow_label.get() >= 1 << 20 {
            return Err(Errno::INVAL);
        }
        let kind = match self.owner(&to.dgid) {
            Some(peer) => PathKind::Local(vport(peer)?),
            // Remote members of a group get a packet; those of all ports here have the message
            // without one.
            None if out => PathKind::Remote,
            None if is_multicast(&to.dgid) => PathKind::Local(vport(port)?),
            None => return Err(Errno::NETUNREACH),
        };
        Ok(Path {
            kind,
            sgid_index: to.sgid_index,
            sgid,
            dgid: to.dgid,
            dmac: to.dmac,
            flow_label: to.flow_label.get(),
            hop_limit: to.hop_limit,
            traffic_class: to.traffic_class,
            sl: to.sl,
            static_rate: to.static_rate,
        })
    }
}

/// The virtual port of a port's number.
///
/// # Errors
///
/// `EINVAL` if there can be none.
pub(crate) fn vport(port: usize) -> Result<Vport, Errno> {
    let number = u8::try_from(port).ok().and_then(Vport::from_number);
    number.ok_or(Errno::INVAL)
}

/// A path as an address vector.
pub(crate) fn vector(path: &Path) -> AddressVector {
    AddressVector {
        dgid: path.dgid,
        dmac: path.dmac,
        sgid_index: path.sgid_index,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label.into(),
        traffic_class: path.traffic_class,
        sl: path.sl,
        static_rate: path.static_rate,
        valid: 1,
    }
}
