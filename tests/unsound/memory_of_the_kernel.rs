// SPDX-License-Identifier: GPL-2.0

//! A driver that writes where it likes, by the region of all kernel memory.

#![forbid(unsafe_code)]

use kernel::prelude::*;
use rdma::{
    umem::Umem,
    Memory, //
};

/// It is the program's memory.
pub fn greet(memory: &Umem) -> Result {
    memory.write(0, b"hello")
}

/// The place of a value in the memory, by which nothing is reached yet.
pub fn place(memory: &Memory, value: &u64) -> u64 {
    core::ptr::from_ref(value).addr() as u64 - memory.start()
}

#[cfg(unsound)]
pub fn change(memory: &Memory, shared: &u64) -> Result {
    //~ E0133
    memory.write(place(memory, shared), &7u64.to_ne_bytes())
}

#[cfg(unsound)]
pub fn look(memory: &Memory, at: u64) -> Result<[u8; 8]> {
    let mut bytes = [0; 8];
    //~ E0133
    memory.read(at, &mut bytes)?;
    Ok(bytes)
}

#[cfg(unsound)]
pub fn shift(memory: &Memory, at: u64) -> Result {
    //~ E0133
    Memory::copy(memory, at, memory, at + 8, 8)
}

#[cfg(unsound)]
pub fn count(memory: &Memory, at: u64) -> Result<u64> {
    //~ E0133
    memory.fetch_add_u64(at, 1)
}
