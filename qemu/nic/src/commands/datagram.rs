// SPDX-License-Identifier: GPL-2.0

//! Commands about datagrams: address handles, and multicast groups.

use std::collections::HashSet;

use ferrule_engine::{Ah, Engine, Group};
use rustix::io::Errno;

use super::layout::{answer, errno_of, name, zero, Answer, NOTHING};
use crate::device::Quota;
use crate::guest::Guest;
use crate::host::Nic;
use crate::interface::{CreateAh, Multicast};

pub(super) fn create_ah(guest: &mut Guest, asked: &CreateAh) -> Answer {
    zero(asked.reserved.get())?;
    let pd = guest.pd(asked.pd.get())?;
    guest.ahs.check_limit()?;
    let resolved = guest
        .device
        .command(|_, host| host.resolve(guest.port, &asked.to, (0, 0)));
    let (path, route) = resolved?;
    let ah = Box::new(Ah::<Nic>::new(pd, path, route));
    let number = guest.device.add(ah, Engine::add_ah, |_| ())?;
    guest.ahs.add(number);
    Ok(answer(&name(number)))
}

pub(super) fn destroy_ah(guest: &mut Guest, number: u32) -> Answer {
    guest.ahs.own(number)?;
    let gone = guest.device.command(|engine, _| engine.remove_ah(number));
    gone.map_err(errno_of)?;
    guest.ahs.remove(number);
    NOTHING
}

pub(super) fn attach_mcast(guest: &mut Guest, asked: &Multicast) -> Answer {
    zero(asked.reserved.get())?;
    let qpn = guest.qpn(asked.number.get())?;
    let Quota {
        groups, members, ..
    } = *guest.device.quota();
    let full = |count: usize, most: u32| usize::try_from(most).is_ok_and(|most| count >= most);
    let gids: HashSet<_> = guest.groups.iter().map(|(_, gid)| gid).collect();
    let own = guest.groups.iter().filter(|(_, gid)| *gid == asked.gid);
    if full(own.count(), members) || full(gids.len(), groups) && !gids.contains(&asked.gid) {
        return Err(Errno::NOMEM);
    }
    let _unused = guest.device.add(
        Box::new(Group::new()),
        |engine, group| engine.attach_mcast(qpn, &asked.gid, group),
        |_| (),
    )?;
    guest.groups.insert((qpn, asked.gid));
    NOTHING
}

pub(super) fn detach_mcast(guest: &mut Guest, asked: &Multicast) -> Answer {
    zero(asked.reserved.get())?;
    let qpn = guest.qpn(asked.number.get())?;
    let gone = guest
        .device
        .command(|engine, _| engine.detach_mcast(qpn, &asked.gid));
    gone.map_err(errno_of)?;
    guest.groups.remove(&(qpn, asked.gid));
    NOTHING
}
