// SPDX-License-Identifier: GPL-2.0

//! Commands: read from the guest's memory, judged as a copy, executed, answered.
//!
//! Each group of objects has a file. Here is which command goes where.

mod datagram;
mod layout;
mod memory;
mod pair;
mod port;
mod queue;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use self::layout::{answer, name, none, number, read, Answer};
use crate::guest::Guest;
use crate::interface::{opcode, CommandHeader, ResponseHeader, COMMAND_AREA_SIZE, RESPONSE_OFFSET};
use crate::memory::Access;

/// The version of the layouts.
const VERSION: u16 = 1;

/// Executes the command in the command area at `address`, which the tag names. Returns whether
/// there is a response: not where the area cannot be reached.
///
/// `refused` is why the function executes nothing at present.
pub(crate) fn execute(guest: &mut Guest, address: u64, tag: u32, refused: Option<Errno>) -> bool {
    const SIZE: u64 = COMMAND_AREA_SIZE as u64;
    // A function that was reset has none: a driver that does not know of the reset must not find
    // its memory written.
    if address == 0 || address % SIZE != 0 {
        return false;
    }
    let Ok(area) = guest.memory.pin(address, SIZE, Access::Write) else {
        return false;
    };
    let mut command = [0; RESPONSE_OFFSET];
    if !area.read(0, &mut command) {
        return false;
    }
    let answer = match refused {
        Some(errno) => Err(errno),
        None => perform(guest, &command, tag),
    };
    guest.count(answer.is_ok());
    let (status, body) = match answer {
        Ok(body) => (0, body),
        Err(errno) => (errno.raw_os_error().unsigned_abs(), Vec::new()),
    };
    let header = ResponseHeader {
        tag: tag.into(),
        status: status.into(),
        length: u32::try_from(body.len()).unwrap_or(0).into(),
        reserved: 0.into(),
    };
    let response = [header.as_bytes(), &body].concat();
    area.write(RESPONSE_OFFSET as u64, &response)
}

fn perform(guest: &mut Guest, command: &[u8], tag: u32) -> Answer {
    let (header, operands) = CommandHeader::read_from_prefix(command).map_err(|_| Errno::INVAL)?;
    if header.tag.get() != tag || header.reserved.get() != 0 || header.version.get() != VERSION {
        return Err(Errno::INVAL);
    }
    let length = usize::try_from(header.length.get()).map_err(|_| Errno::INVAL)?;
    let operands = operands.get(..length).ok_or(Errno::INVAL)?;
    match header.opcode.get() {
        opcode::QUERY_DEVICE => none(operands).and_then(|()| port::query_device(guest)),
        opcode::QUERY_COUNTERS => none(operands).and_then(|()| port::query_counters(guest)),
        opcode::CREATE_EQ => port::create_eq(guest, &read(operands)?),
        opcode::DESTROY_EQ => port::destroy_eq(guest, number(operands)?),
        opcode::SET_GID => port::set_gid(guest, &read(operands)?),
        opcode::SET_MTU => port::set_mtu(guest, number(operands)?),
        opcode::OPEN_CONTEXT => port::open_context(guest, &read(operands)?),
        opcode::QUIESCE_CONTEXT => port::quiesce_context(guest, number(operands)?),
        opcode::CLOSE_CONTEXT => port::close_context(guest, number(operands)?),
        opcode::ALLOC_PD => none(operands).and_then(|()| Ok(answer(&name(guest.alloc_pd()?)))),
        opcode::DEALLOC_PD => guest.dealloc_pd(number(operands)?).map(|()| Vec::new()),
        opcode::CREATE_AH => datagram::create_ah(guest, &read(operands)?),
        opcode::DESTROY_AH => datagram::destroy_ah(guest, number(operands)?),
        opcode::REG_MR => memory::reg_mr(guest, &read(operands)?),
        opcode::REREG_MR => memory::rereg_mr(guest, &read(operands)?),
        opcode::QUERY_MR => memory::query_mr(guest, number(operands)?),
        opcode::DEREG_MR => memory::dereg_mr(guest, number(operands)?),
        opcode::ALLOC_MW => memory::alloc_mw(guest, &read(operands)?),
        opcode::DEALLOC_MW => memory::dealloc_mw(guest, number(operands)?),
        opcode::CREATE_CQ => queue::create_cq(guest, &read(operands)?),
        opcode::RESIZE_CQ => queue::resize_cq(guest, &read(operands)?),
        opcode::QUERY_CQ => queue::query_cq(guest, number(operands)?),
        opcode::MODERATE_CQ => queue::moderate_cq(guest, &read(operands)?),
        opcode::DESTROY_CQ => queue::destroy_cq(guest, number(operands)?),
        opcode::CREATE_SRQ => queue::create_srq(guest, &read(operands)?, None),
        opcode::CREATE_XRC_SRQ => queue::create_xrc_srq(guest, &read(operands)?),
        opcode::SET_SRQ_LIMIT => queue::set_srq_limit(guest, &read(operands)?),
        opcode::RESIZE_SRQ => queue::resize_srq(guest, &read(operands)?),
        opcode::QUERY_SRQ => queue::query_srq(guest, number(operands)?),
        opcode::DESTROY_SRQ => queue::destroy_srq(guest, number(operands)?),
        opcode::CREATE_QP => pair::create_qp(guest, &read(operands)?),
        opcode::MODIFY_QP => pair::modify_qp(guest, &read(operands)?),
        opcode::QUERY_QP => pair::query_qp(guest, number(operands)?),
        opcode::DESTROY_QP => pair::destroy_qp(guest, number(operands)?),
        opcode::ATTACH_MCAST => datagram::attach_mcast(guest, &read(operands)?),
        opcode::DETACH_MCAST => datagram::detach_mcast(guest, &read(operands)?),
        _ => Err(Errno::OPNOTSUPP),
    }
}
