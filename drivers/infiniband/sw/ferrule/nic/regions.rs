// SPDX-License-Identifier: GPL-2.0

//! Memory regions of programs, as commands have them.

use ferrule_engine::Access;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::dma::{
    DmaArea,
    DMA_PAGE, //
};
use rdma::{
    mr::UserRegion,
    umem::Umem, //
};

use super::{
    area::{
        self,
        Listed, //
    },
    command,
    function::{
        Function,
        Region, //
    },
    interface::{
        mr_flag,
        rereg,
        RegMr,
        ReregMr, //
    }, //
};
use crate::backend::{
    object::{
        MrChange,
        MrInfo, //
    },
    replication::Replication, //
};

/// The device has one engine.
impl Replication for Arc<Function> {}

/// Pages of a program, that begin at `iova` for it, as a command has them; and the list of the
/// pages, which the command names.
pub(super) fn region(
    function: &Function,
    pd: u32,
    access: Access,
    iova: u64,
    pages: &Umem,
) -> Result<(RegMr, Listed)> {
    let list = Listed::new(function.device(), pages.dma_pages()?)?;
    let flags = if pages.writable() {
        mr_flag::WRITABLE
    } else {
        0
    };
    let operands = RegMr {
        pd: pd.into(),
        access: access.0.into(),
        iova: iova.into(),
        length: pages.len().into(),
        offset: pages.page_offset().into(),
        flags: flags.into(),
        memory: list.operand(),
    };
    Ok((operands, list))
}

/// Bytes of an area, which begin at address 0 for the program, and the list of their pages; no
/// bytes have none.
pub(super) fn of_area(
    function: &Function,
    pd: u32,
    access: Access,
    memory: &DmaArea,
    offset: u64,
    length: u64,
) -> Result<(RegMr, Option<Listed>)> {
    const PAGE: u64 = DMA_PAGE as u64;

    let first = match length {
        0 => 0,
        _ => offset % PAGE,
    };
    let pages = memory
        .pages()
        .skip(usize::try_from(offset / PAGE)?)
        .take(usize::try_from((first + length).div_ceil(PAGE))?);
    let list = match length {
        0 => None,
        _ => Some(Listed::new(function.device(), pages)?),
    };
    let operands = RegMr {
        pd: pd.into(),
        access: access.0.into(),
        iova: 0.into(),
        length: length.into(),
        offset: (first as u32).into(),
        flags: mr_flag::WRITABLE.into(),
        memory: list.as_ref().map_or_else(area::no_pages, Listed::operand),
    };
    Ok((operands, list))
}

/// Changes a region, and keeps what it has from then on.
pub(super) fn change(function: &Function, key: u32, change: MrChange) -> Result {
    let mut mask = 0;
    if change.pd.is_some() {
        mask |= rereg::PD;
    }
    if change.access.is_some() {
        mask |= rereg::ACCESS;
    }
    let (pd, access) = (
        change.pd.unwrap_or(0),
        change.access.unwrap_or(Access::NONE),
    );
    let mut operands = ReregMr {
        key: key.into(),
        mask: mask.into(),
        change: RegMr {
            pd: pd.into(),
            access: access.0.into(),
            iova: 0.into(),
            length: 0.into(),
            offset: 0.into(),
            flags: 0.into(),
            memory: area::no_pages(),
        },
    };
    let Some((iova, pages)) = change.memory else {
        function.execute::<command::ChangeMr>(&operands)?;
        return Ok(());
    };
    let (memory, list) = region(function, pd, access, iova, &pages)?;
    operands.mask = (mask | rereg::MEMORY).into();
    operands.change = memory;
    let ((), pages) = function.hand_over::<command::ChangeMr, _>(&operands, pages, list)?;
    let memory = Region::Pinned(pages.into());
    let _before = function.regions.swap(key, memory, |region| region);
    Ok(())
}

/// The attributes of a region: the device's, and those that only the driver knows.
pub(super) fn query(function: &Function, key: u32) -> Result<MrInfo> {
    let info = function.execute::<command::QueryMr>(&key.into())?;
    let (start, is_of_process) = function
        .regions
        .with(key, |region| match region {
            Region::Pinned(memory) => (memory.start(), memory.is_of_process()),
            Region::Fast(_) | Region::Area(_) => (0, false),
        })
        .unwrap_or((0, false));
    Ok(MrInfo {
        region: UserRegion {
            start,
            length: info.length.get(),
            iova: info.iova.get(),
            access: rdma::Access::from_bits(info.access.get()),
        },
        writable: info.flags.get() & mr_flag::WRITABLE != 0,
        is_of_process,
        has_windows: info.has_windows.get() != 0,
        extents: info.extents.get(),
    })
}
