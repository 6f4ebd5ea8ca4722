// SPDX-License-Identifier: GPL-2.0

//! Records of requests that have begun and have not ended.

use crate::{
    base::{
        psn,
        status::Status, //
    },
    object::opcode::{
        Class,
        Opcode, //
    },
};

/// What is known of a request that has been taken from the ring and has not ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) wr_id: u64,
    /// The sequence number of its first packet, and how many it takes in either direction.
    pub(crate) psn: u32,
    pub(crate) packets: u32,
    pub(crate) length: u32,
    /// Bytes that have come back for it.
    pub(crate) done: u32,
    /// Which message it is, counted as the responder does (24 bits).
    pub(crate) ssn: u32,
    /// Its operation, `None` if there is no such; and its flags.
    pub(crate) opcode: Option<Opcode>,
    pub(crate) flags: u8,
    pub(crate) mark: Mark,
    /// How it ends when all before it have ended, if it must not be sent.
    pub(crate) failed: Option<Status>,
}

/// What has been done about a request that its kind does not tell.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    None,
    /// It has registered a region, before its turn to end.
    Registered,
    /// A read that was asked for in parts, or again: its responses may begin and end anywhere.
    Parted,
}

// All of a queue pair take 2 KiB, which is a kmalloc size.
const _: () = assert!(size_of::<Record>() <= 32);

impl Record {
    pub(crate) fn is_registered(&self) -> bool {
        self.mark == Mark::Registered
    }

    pub(crate) fn is_read(&self) -> bool {
        let Some(opcode) = self.opcode else {
            return false;
        };
        match opcode.facts().class {
            Class::Read => true,
            Class::Send | Class::Write | Class::Atomic(_) | Class::Key(_) => false,
        }
    }

    pub(crate) fn has_response_data(&self) -> bool {
        self.opcode.is_some_and(Opcode::has_response_data)
    }

    /// It sends no packets: a local operation, or a request that was refused when it was taken.
    pub(crate) fn is_local(&self) -> bool {
        self.packets == 0
    }

    /// The sequence number after its last.
    pub(crate) fn end(&self) -> u32 {
        psn::advance(self.psn, self.packets)
    }
}
