// SPDX-License-Identifier: GPL-2.0

//! The operations that the requests of a queue pair may ask for.

use crate::{
    base::attr::QpType,
    object::wr_opcode::{
        service,
        WrOpcode, //
    },
};

/// The operation that each byte of a ring names. A request looks it up, with no jump to a place for
/// each operation.
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // At compile time.
static BY_BYTE: [Option<WrOpcode>; 256] = {
    let mut table = [None; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = WrOpcode::of(byte as u8);
        byte += 1;
    }
    table
};

/// The operations of a queue pair, by its service and its user.
#[derive(Clone, Copy)]
pub(crate) struct Opcodes(u32);

impl Opcodes {
    /// The operations of the service `qp_type`: those of programs, or of privileged users, too.
    pub(crate) fn new(qp_type: QpType, is_privileged: bool) -> Self {
        let mut bits = 0;
        for opcode in BY_BYTE.into_iter().flatten() {
            let facts = opcode.facts();
            if facts.services & service(qp_type) != 0 && (is_privileged || !facts.is_privileged) {
                bits |= Self::bit(opcode);
            }
        }
        Self(bits)
    }

    #[inline(always)]
    fn bit(opcode: WrOpcode) -> u32 {
        1u32.wrapping_shl(opcode as u32)
    }

    /// The operation that a byte of the ring names, if it is one of these.
    #[inline(always)]
    pub(crate) fn parse(self, byte: u8) -> Option<WrOpcode> {
        let opcode = (*BY_BYTE.get(usize::from(byte))?)?;
        (self.0 & Self::bit(opcode) != 0).then_some(opcode)
    }
}
