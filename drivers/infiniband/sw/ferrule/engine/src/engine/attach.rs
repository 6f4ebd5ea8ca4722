// SPDX-License-Identifier: GPL-2.0

//! Queue pairs come to multicast groups, and go.

use crate::{
    base::{
        attr::{
            Gid,
            QpType, //
        },
        error::{
            Error,
            Refused, //
        },
        host::Host, //
    },
    engine::Engine,
    object::multicast::{
        Attached,
        Group, //
    },
};

impl<H: Host> Engine<H> {
    /// Attaches a datagram queue pair to a multicast group: it gets all datagrams to the group,
    /// also its own. `memory` is for a group that has no members yet; it comes back otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the address is not a group's, the queue pair has another transport
    /// service, or is attached already; [`Error::NotFound`] if there is none;
    /// [`Error::NeedChunk`]; [`Error::Full`] with as many groups, or queue pairs of this one, as
    /// there can be.
    pub fn attach_mcast(
        &mut self,
        qpn: u32,
        gid: &Gid,
        memory: H::Box<Group>,
    ) -> Attached<H::Box<Group>> {
        let error = match self.qps.get(qpn) {
            Some(qp) if qp.core.init.qp_type == QpType::Ud => None,
            Some(_) => Some(Error::Invalid),
            None => Some(Error::NotFound),
        };
        if let Some(error) = error {
            return Err(Refused {
                error,
                object: memory,
            });
        }
        let left = self.port.groups.attach(gid, qpn, memory)?;
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.core.groups = qp.core.groups.wrapping_add(1);
        }
        Ok(left)
    }

    /// Detaches a queue pair from a multicast group, and returns the group's memory if it was the
    /// last.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if it is not attached.
    pub fn detach_mcast(&mut self, qpn: u32, gid: &Gid) -> Result<Option<H::Box<Group>>, Error> {
        let left = self.port.groups.detach(gid, qpn)?;
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.core.groups = qp.core.groups.wrapping_sub(1);
        }
        Ok(left)
    }
}
