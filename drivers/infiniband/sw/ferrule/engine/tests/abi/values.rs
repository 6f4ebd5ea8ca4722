// SPDX-License-Identifier: GPL-2.0

//! The values that the engine and the driver have, by their names in the header.

use std::collections::BTreeMap;

use ferrule_engine::{abi, Status};

use super::command;

pub(super) fn values() -> BTreeMap<&'static str, u64> {
    use abi::flush_placement as placement;
    use abi::{dead, flush_level, wc_flags, wc_opcode, wr_flags, wr_opcode};

    BTreeMap::from([
        ("FERRULE_DRIVER_ID", command::DRIVER_ID.into()),
        ("FERRULE_ABI_VERSION", command::ABI_VERSION.into()),
        ("FERRULE_METHOD_KICK", command::METHOD_KICK.into()),
        ("FERRULE_METHOD_IMPORT", command::METHOD_IMPORT.into()),
        ("FERRULE_METHOD_UNIMPORT", command::METHOD_UNIMPORT.into()),
        (
            "FERRULE_METHOD_KICK_DOORBELLS",
            command::METHOD_KICK_DOORBELLS.into(),
        ),
        ("FERRULE_ATTR_DOORBELLS", command::ATTR_DOORBELLS.into()),
        ("FERRULE_METHOD_QUERY_DM", command::METHOD_QUERY_DM.into()),
        (
            "FERRULE_METHOD_QUERY_CLOCK",
            command::METHOD_QUERY_CLOCK.into(),
        ),
        (
            "FERRULE_METHOD_ADD_THREAD",
            command::METHOD_ADD_THREAD.into(),
        ),
        ("FERRULE_ATTR_NUMBER", command::ATTR_NUMBER.into()),
        ("FERRULE_ATTR_DM", command::ATTR_DM.into()),
        ("FERRULE_ATTR_DM_PLACE", command::ATTR_DM_PLACE.into()),
        ("FERRULE_ATTR_CLOCK", command::ATTR_CLOCK.into()),
        ("FERRULE_MAX_SGE", abi::MAX_SGE as u64),
        ("FERRULE_MAX_INLINE", abi::MAX_INLINE as u64),
        ("FERRULE_MAX_QP_DEPTH", abi::MAX_QP_DEPTH.into()),
        ("FERRULE_MAX_CQ_DEPTH", abi::MAX_CQ_DEPTH.into()),
        ("FERRULE_MAX_QP", abi::MAX_QP.into()),
        ("FERRULE_DB_INDEX_MASK", abi::DB_INDEX_MASK.into()),
        ("FERRULE_DB_TOP_WORDS", abi::DB_TOP_WORDS as u64),
        ("FERRULE_DB_LEAF_WORDS", abi::DB_LEAF_WORDS as u64),
        ("FERRULE_DB_LEAF_OFFSET", abi::DB_LEAF_OFFSET as u64),
        ("FERRULE_RUNG_DB_SHIFT", abi::RUNG_DB_SHIFT.into()),
        ("FERRULE_RUNG_COUNT_SHIFT", abi::RUNG_COUNT_SHIFT.into()),
        ("FERRULE_DB_AREA_SIZE", abi::DB_AREA_SIZE as u64),
        ("FERRULE_CQE_PHASE", abi::CQE_PHASE.into()),
        ("FERRULE_CQ_ARM_SOLICITED", abi::CQ_ARM_SOLICITED.into()),
        ("FERRULE_CQ_ARM_SN_SHIFT", abi::CQ_ARM_SN_SHIFT.into()),
        ("FERRULE_DEAD", dead::DEAD.into()),
        ("FERRULE_DEAD_UNFLUSHED", dead::DEAD_UNFLUSHED.into()),
        ("FERRULE_WR_SEND", wr_opcode::SEND.into()),
        ("FERRULE_WR_SEND_WITH_IMM", wr_opcode::SEND_WITH_IMM.into()),
        ("FERRULE_WR_RDMA_WRITE", wr_opcode::RDMA_WRITE.into()),
        (
            "FERRULE_WR_RDMA_WRITE_WITH_IMM",
            wr_opcode::RDMA_WRITE_WITH_IMM.into(),
        ),
        ("FERRULE_WR_RDMA_READ", wr_opcode::RDMA_READ.into()),
        (
            "FERRULE_WR_ATOMIC_CMP_AND_SWP",
            wr_opcode::ATOMIC_CMP_AND_SWP.into(),
        ),
        (
            "FERRULE_WR_ATOMIC_FETCH_AND_ADD",
            wr_opcode::ATOMIC_FETCH_AND_ADD.into(),
        ),
        ("FERRULE_WR_SEND_WITH_INV", wr_opcode::SEND_WITH_INV.into()),
        ("FERRULE_WR_LOCAL_INV", wr_opcode::LOCAL_INV.into()),
        ("FERRULE_WR_BIND_MW", wr_opcode::BIND_MW.into()),
        ("FERRULE_WR_FLUSH", wr_opcode::FLUSH.into()),
        ("FERRULE_WR_ATOMIC_WRITE", wr_opcode::ATOMIC_WRITE.into()),
        ("FERRULE_FLUSH_GLOBAL", placement::GLOBAL.into()),
        ("FERRULE_FLUSH_PERSISTENT", placement::PERSISTENT.into()),
        ("FERRULE_FLUSH_RANGE", flush_level::RANGE.into()),
        ("FERRULE_FLUSH_REGION", flush_level::REGION.into()),
        ("FERRULE_WR_SIGNALED", wr_flags::SIGNALED.into()),
        ("FERRULE_WR_SOLICITED", wr_flags::SOLICITED.into()),
        ("FERRULE_WR_FENCE", wr_flags::FENCE.into()),
        ("FERRULE_WR_INLINE", wr_flags::INLINE.into()),
        ("FERRULE_WC_SUCCESS", Status::Success as u64),
        ("FERRULE_WC_LOC_LEN_ERR", Status::LocalLength as u64),
        ("FERRULE_WC_LOC_QP_OP_ERR", Status::LocalOperation as u64),
        ("FERRULE_WC_LOC_PROT_ERR", Status::LocalProtection as u64),
        ("FERRULE_WC_WR_FLUSH_ERR", Status::Flushed as u64),
        ("FERRULE_WC_MW_BIND_ERR", Status::WindowBind as u64),
        ("FERRULE_WC_BAD_RESP_ERR", Status::BadResponse as u64),
        ("FERRULE_WC_LOC_ACCESS_ERR", Status::LocalAccess as u64),
        (
            "FERRULE_WC_REM_INV_REQ_ERR",
            Status::RemoteInvalidRequest as u64,
        ),
        ("FERRULE_WC_REM_ACCESS_ERR", Status::RemoteAccess as u64),
        ("FERRULE_WC_REM_OP_ERR", Status::RemoteOperation as u64),
        ("FERRULE_WC_RETRY_EXC_ERR", Status::RetryExceeded as u64),
        (
            "FERRULE_WC_RNR_RETRY_EXC_ERR",
            Status::RnrRetryExceeded as u64,
        ),
        ("FERRULE_WC_REM_ABORT_ERR", Status::RemoteAbort as u64),
        ("FERRULE_WC_FATAL_ERR", Status::Fatal as u64),
        ("FERRULE_WC_GENERAL_ERR", Status::General as u64),
        ("FERRULE_WC_SEND", wc_opcode::SEND.into()),
        ("FERRULE_WC_RDMA_WRITE", wc_opcode::RDMA_WRITE.into()),
        ("FERRULE_WC_RDMA_READ", wc_opcode::RDMA_READ.into()),
        ("FERRULE_WC_COMP_SWAP", wc_opcode::COMP_SWAP.into()),
        ("FERRULE_WC_FETCH_ADD", wc_opcode::FETCH_ADD.into()),
        ("FERRULE_WC_BIND_MW", wc_opcode::BIND_MW.into()),
        ("FERRULE_WC_LOCAL_INV", wc_opcode::LOCAL_INV.into()),
        ("FERRULE_WC_FLUSH", wc_opcode::FLUSH.into()),
        ("FERRULE_WC_ATOMIC_WRITE", wc_opcode::ATOMIC_WRITE.into()),
        ("FERRULE_WC_RECV", wc_opcode::RECV.into()),
        (
            "FERRULE_WC_RECV_RDMA_WITH_IMM",
            wc_opcode::RECV_RDMA_WITH_IMM.into(),
        ),
        ("FERRULE_WC_GRH", wc_flags::GRH.into()),
        ("FERRULE_WC_WITH_IMM", wc_flags::WITH_IMM.into()),
        ("FERRULE_WC_WITH_INV", wc_flags::WITH_INV.into()),
    ])
}
