// SPDX-License-Identifier: GPL-2.0

//! The requests and replies of the command channel, as `ferrule-abi.h` and
//! `ferrule_user_ioctl_cmds.h` define them.
//!
//! They travel through uverbs, which has them in host order. The mapped layouts are the engine's
//! (`ferrule_engine::abi`).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// `FERRULE_DRIVER_ID`.
pub(crate) const DRIVER_ID: u32 = 0x4645_5252;

/// `FERRULE_ABI_VERSION`.
pub(crate) const ABI_VERSION: u32 = 2;

/// `FERRULE_METHOD_KICK`.
pub(crate) const METHOD_KICK: u16 = 1 << 12;

/// `FERRULE_METHOD_IMPORT`.
pub(crate) const METHOD_IMPORT: u16 = METHOD_KICK + 1;

/// `FERRULE_METHOD_UNIMPORT`.
pub(crate) const METHOD_UNIMPORT: u16 = METHOD_KICK + 2;

/// `FERRULE_METHOD_KICK_DOORBELLS`.
pub(crate) const METHOD_KICK_DOORBELLS: u16 = METHOD_KICK + 3;

/// `FERRULE_METHOD_QUERY_DM`.
pub(crate) const METHOD_QUERY_DM: u16 = METHOD_KICK + 4;

/// `FERRULE_METHOD_QUERY_CLOCK`.
pub(crate) const METHOD_QUERY_CLOCK: u16 = METHOD_KICK + 5;

/// `FERRULE_METHOD_ADD_THREAD`.
pub(crate) const METHOD_ADD_THREAD: u16 = METHOD_KICK + 6;

/// `FERRULE_ATTR_DOORBELLS`.
pub(crate) const ATTR_DOORBELLS: u16 = 1 << 12;

/// `FERRULE_ATTR_NUMBER`.
pub(crate) const ATTR_NUMBER: u16 = ATTR_DOORBELLS + 1;

/// `FERRULE_ATTR_DM`.
pub(crate) const ATTR_DM: u16 = ATTR_DOORBELLS + 2;

/// `FERRULE_ATTR_DM_PLACE`.
pub(crate) const ATTR_DM_PLACE: u16 = ATTR_DOORBELLS + 3;

/// `FERRULE_ATTR_CLOCK`.
pub(crate) const ATTR_CLOCK: u16 = ATTR_DOORBELLS + 4;

/// `struct ferrule_alloc_ucontext_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct AllocUcontextResp {
    pub(crate) db_offset: u64,
    pub(crate) status_offset: u64,
    pub(crate) max_inline: u32,
    pub(crate) number: u32,
}

/// `struct ferrule_create_cq_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct CreateCqResp {
    pub(crate) ring_offset: u64,
    pub(crate) ctrl_offset: u64,
    pub(crate) ring_size: u32,
    pub(crate) ctrl_size: u32,
    pub(crate) depth: u32,
    pub(crate) cqn: u32,
}

/// `struct ferrule_resize_cq_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct ResizeCqResp {
    pub(crate) ring_offset: u64,
    pub(crate) ring_size: u32,
    pub(crate) depth: u32,
    pub(crate) base: u32,
    pub(crate) reserved: u32,
}

/// `struct ferrule_create_cmd`.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct CreateCmd {
    pub(crate) doorbells: u32,
    pub(crate) reserved: u32,
}

/// `struct ferrule_create_qp_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct CreateQpResp {
    pub(crate) buf_offset: u64,
    pub(crate) buf_size: u32,
    pub(crate) sq_offset: u32,
    pub(crate) sq_depth: u32,
    pub(crate) sq_stride: u32,
    pub(crate) rq_offset: u32,
    pub(crate) rq_depth: u32,
    pub(crate) rq_stride: u32,
    pub(crate) ctrl_offset: u32,
    pub(crate) qp_gen: u32,
    pub(crate) reserved: u32,
}

/// `struct ferrule_create_srq_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct CreateSrqResp {
    pub(crate) buf_offset: u64,
    pub(crate) buf_size: u32,
    pub(crate) ring_offset: u32,
    pub(crate) depth: u32,
    pub(crate) stride: u32,
    pub(crate) ctrl_offset: u32,
    pub(crate) reserved: u32,
}

/// `struct ferrule_modify_srq_cmd`.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct ModifySrqCmd {
    pub(crate) resp: u64,
}

/// `struct ferrule_resize_srq_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct ResizeSrqResp {
    pub(crate) buf_offset: u64,
    pub(crate) buf_size: u32,
    pub(crate) ring_offset: u32,
    pub(crate) depth: u32,
    pub(crate) ctrl_offset: u32,
}

/// `struct ferrule_create_ah_resp`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct CreateAhResp {
    pub(crate) ah: u32,
    pub(crate) reserved: u32,
}

/// `struct ferrule_dm_place`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct DmPlace {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}
