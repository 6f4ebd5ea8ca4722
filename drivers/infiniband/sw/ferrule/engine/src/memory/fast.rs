// SPDX-License-Identifier: GPL-2.0

//! Fast registration: regions of kernel users that open to other memory with each request
//! that registers them, and to none after one that invalidates them (IBA volume 1, 10.6.3.2 and
//! 10.8.3.1; base memory management extensions).
//!
//! The bytes are named by the host ([`Region::renew`]) and not by the request: no ring holds
//! addresses that only the kernel may choose. A queue pair of a program cannot ask for it at all
//! ([`QpUser`](crate::QpUser)).

use crate::{
    base::{
        abi,
        attr::Access,
        budget::Budget,
        host::{
            Host,
            Region, //
        },
    },
    memory::{
        bind::BindError,
        key::Keys, //
    },
};

/// `abi::wr_opcode` of a request that registers: only privileged queue pairs have it.
/// [`abi::SendWqe::rkey`] is the key that the region is to have, of which the lower 8 bits are the
/// user's to choose, and `remote_addr` the address of the first byte; [`abi::BindWords`] has rights
/// and length.
pub const WR_REGISTER: u8 = 128;

/// `abi::wc_opcode` of its completion.
pub const WC_REGISTER: u8 = 64;

/// `abi::wr_opcode` of a READ that invalidates a key of its own side when its data have come, which
/// [`abi::SendWqe::imm_or_inv`] names: only privileged queue pairs have it.
pub const WR_READ_WITH_INV: u8 = 129;

/// A request to register a region.
pub(crate) struct Register {
    /// The key that the region is to have.
    key: u32,
    /// The address by which requests are to name the first byte.
    iova: u64,
    /// The length in bytes, which is that of the memory as the host has it.
    length: u64,
    access: Access,
}

impl From<&abi::SendWqe> for Register {
    fn from(head: &abi::SendWqe) -> Self {
        let words: abi::BindWords = zerocopy::transmute!(head.extra);
        Self {
            key: head.rkey.get(),
            iova: head.remote_addr.get(),
            length: words.length.get(),
            access: Access(words.access.get()),
        }
    }
}

impl<H: Host> Keys<H> {
    /// Registers a region that opens nothing at present, and takes the pieces of its memory off the
    /// allowance, since they may be many.
    pub(crate) fn register(
        &mut self,
        pd: u32,
        wanted: &Register,
        allowance: &mut Budget,
    ) -> Result<(), BindError> {
        // Windows cannot be bound to it: their regions must not change.
        const GIVEN: Access = Access::LOCAL_WRITE.or(Access::REMOTE);

        let mr = self.fast_mut(wanted.key).ok_or(BindError)?;
        if mr.opens() || mr.init().pd != pd || !GIVEN.allows(wanted.access) {
            return Err(BindError);
        }
        // It opens nothing yet, nor later if a value that is set here is wrong.
        let init = mr.init_mut();
        let renewed = init.memory.region.renew();
        let pieces = init.memory.region.pieces();
        allowance.take_bytes(pieces.saturating_mul(Budget::PACKET));
        let length = renewed.ok_or(BindError)?;
        init.memory.iova = wanted.iova;
        init.memory.length = length;
        init.access = wanted.access;
        if length != wanted.length || !init.memory.is_addressable() {
            return Err(BindError);
        }
        mr.open(wanted.key);
        Ok(())
    }

    /// Lets a region open nothing until it is registered again.
    pub(crate) fn invalidate_region(&mut self, pd: u32, key: u32) -> Result<(), BindError> {
        let mr = self.fast_mut(key).ok_or(BindError)?;
        if mr.key() != key || mr.init().pd != pd {
            return Err(BindError);
        }
        mr.close();
        Ok(())
    }
}
