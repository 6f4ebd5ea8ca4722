// SPDX-License-Identifier: GPL-2.0

//! Memory that programs have registered: keys, memory windows, and copies by scatter/gather lists.

pub(crate) mod bind;
pub(crate) mod copy;
pub mod fast;
pub(crate) mod key;
pub(crate) mod key_use;
pub(crate) mod memory_region;
pub(crate) mod memory_window;
pub(crate) mod outside;
pub(crate) mod replica;
pub(crate) mod sgl;
