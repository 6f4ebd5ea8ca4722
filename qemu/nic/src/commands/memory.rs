// SPDX-License-Identifier: GPL-2.0

//! Commands about memory regions and memory windows.

use ferrule_engine::{Access as Rights, Engine, Memory, Mr, MrChange, MrInit, Mw, MwType};
use rustix::io::Errno;

use super::layout::{answer, errno_of, name, Answer, NOTHING};
use super::port::MAX_MR_PAGES;
use crate::fast::Fast;
use crate::guest::Guest;
use crate::host::Nic;
use crate::interface::{mr_flag, rereg, AllocMw, MrInfo, PageList, RegMr, ReregMr};
use crate::memory::Access;
use crate::pages::Pages;
use crate::region::Region;

/// The memory that a guest names.
fn pinned(guest: &Guest, asked: &RegMr) -> Result<Memory<Nic>, Errno> {
    let flags = asked.flags.get();
    let writable = flags & mr_flag::WRITABLE != 0;
    if flags & !(mr_flag::ALL | mr_flag::WRITABLE) != 0 {
        return Err(Errno::INVAL);
    }
    if flags & mr_flag::ALL != 0 {
        let (iova, length) = (asked.iova.get(), asked.length.get());
        if (iova, length, asked.offset.get()) != (0, u64::MAX, 0) || !is_none(&asked.memory) {
            return Err(Errno::INVAL);
        }
        let region = Region::all(&guest.memory, writable);
        return Ok(Memory {
            iova,
            length,
            region,
        });
    }
    if asked.memory.pages.get() > MAX_MR_PAGES {
        return Err(Errno::INVAL);
    }
    let access = match writable {
        true => Access::Write,
        false => Access::Read,
    };
    let length = asked.length.get();
    let part = (asked.offset.get().into(), length);
    let pages = match part {
        (0, 0) if is_none(&asked.memory) => Pages::none(),
        _ => Pages::new(&guest.memory, &asked.memory, part, access)?,
    };
    Ok(Memory {
        iova: asked.iova.get(),
        length,
        region: Region::pages(pages, writable),
    })
}

/// The bytes of memory that a command has registered: none if the region is all that the guest has,
/// or is for requests to register.
fn length(memory: &Memory<Nic>) -> u64 {
    match memory.region.flags() & (mr_flag::ALL | mr_flag::FAST) {
        0 => memory.length,
        _ => 0,
    }
}

/// The memory of a region that requests register: as long as none has, there are no bytes.
fn nothing_yet(guest: &Guest, asked: &RegMr) -> Result<Memory<Nic>, Errno> {
    let (iova, access) = (asked.iova.get(), asked.access.get());
    if (asked.flags.get(), iova, asked.offset.get(), access) != (mr_flag::FAST, 0, 0, 0) {
        return Err(Errno::INVAL);
    }
    let fast = Fast::new(&guest.memory, &asked.memory, asked.length.get())?;
    Ok(Memory {
        iova,
        length: 0,
        region: Region::fast(fast),
    })
}

fn is_none(list: &PageList) -> bool {
    list.list.get() == 0 && list.pages.get() == 0 && list.reserved.get() == 0
}

pub(super) fn reg_mr(guest: &mut Guest, asked: &RegMr) -> Answer {
    guest.mrs.check_limit()?;
    let is_fast = asked.flags.get() & mr_flag::FAST != 0;
    let init = MrInit {
        pd: guest.pd(asked.pd.get())?,
        access: Rights(asked.access.get()),
        memory: match is_fast {
            true => nothing_yet(guest, asked)?,
            false => pinned(guest, asked)?,
        },
    };
    let length = length(&init.memory);
    let mr = match is_fast {
        true => Mr::fast(init),
        false => Mr::new(init),
    };
    let key = guest.device.add(Box::new(mr), Engine::add_mr, |_| ())?;
    guest.mrs.add(key);
    guest.statistics.registered.add(length);
    Ok(answer(&name(key)))
}

pub(super) fn rereg_mr(guest: &Guest, asked: &ReregMr) -> Answer {
    let key = guest.mrs.own(asked.key.get())?;
    let (mask, to) = (asked.mask.get(), &asked.change);
    if mask & !(rereg::PD | rereg::ACCESS | rereg::MEMORY) != 0 {
        return Err(Errno::INVAL);
    }
    let has = |bit| mask & bit != 0;
    let pd = has(rereg::PD).then(|| guest.pd(to.pd.get())).transpose()?;
    let memory = has(rereg::MEMORY).then(|| pinned(guest, to)).transpose()?;
    let new = memory.as_ref().map_or(0, length);
    let mut change = MrChange {
        pd,
        access: has(rereg::ACCESS).then(|| Rights(to.access.get())),
        memory,
    };
    // The old memory is dropped after the engine was left.
    let done = guest
        .device
        .command(|engine, _| engine.rereg_mr(key, &mut change));
    done.map_err(errno_of)?;
    let old = change.memory.as_ref().map_or(0, length);
    guest.statistics.registered.add(new);
    guest.statistics.registered.sub(old);
    NOTHING
}

pub(super) fn query_mr(guest: &Guest, key: u32) -> Answer {
    let key = guest.mrs.own(key)?;
    let info = guest.device.command(|engine, _| {
        let mr = engine.query_mr(key)?;
        let Memory {
            iova,
            length,
            region,
        } = &mr.init().memory;
        Ok(MrInfo {
            iova: (*iova).into(),
            length: (*length).into(),
            access: mr.init().access.0.into(),
            flags: region.flags().into(),
            has_windows: u32::from(mr.has_windows()).into(),
            extents: region.extents().into(),
        })
    });
    Ok(answer(&info.map_err(errno_of)?))
}

pub(super) fn dereg_mr(guest: &mut Guest, key: u32) -> Answer {
    guest.mrs.own(key)?;
    let gone = guest.device.command(|engine, _| engine.remove_mr(key));
    let gone = gone.map_err(errno_of)?;
    guest.statistics.registered.sub(length(&gone.init().memory));
    guest.mrs.remove(key);
    NOTHING
}

pub(super) fn alloc_mw(guest: &mut Guest, asked: &AllocMw) -> Answer {
    guest.mws.check_limit()?;
    let kind = match asked.kind.get() {
        1 => MwType::Type1,
        2 => MwType::Type2,
        _ => return Err(Errno::INVAL),
    };
    let mw = Mw::new(guest.pd(asked.pd.get())?, kind);
    let key = guest.device.add(Box::new(mw), Engine::add_mw, |_| ())?;
    guest.mws.add(window(key));
    Ok(answer(&name(key)))
}

pub(super) fn dealloc_mw(guest: &mut Guest, key: u32) -> Answer {
    guest.mws.own(window(key))?;
    let gone = guest.device.command(|engine, _| engine.remove_mw(key));
    gone.map_err(errno_of)?;
    guest.mws.remove(window(key));
    NOTHING
}

/// A window by any of its keys, of which requests choose the lower 8 bits.
fn window(key: u32) -> u32 {
    key & !0xff
}
