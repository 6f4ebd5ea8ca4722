// SPDX-License-Identifier: GPL-2.0

//! The `nic` backend: the engine in a process beside the virtual machine, behind a PCI function.
//!
//! [`Nic`] is a device to the verbs ([`Backend`](crate::backend::Backend)),
//! [`Function`](function::Function) its command channel, and [`Probed`] the function under this
//! driver. Rings, control words and doorbells lie in this machine's memory, as those of the other
//! backend do; the function is given lists of their pages.

mod address;
mod area;
mod attributes;
mod check;
mod command;
mod commands;
mod device;
mod doorbell;
mod events;
mod fast;
mod function;
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the device compiles the same file"
)]
mod interface;
mod probe;
mod regions;
mod registers;
mod table;
mod watch;

use self::device::Nic;

pub(crate) use self::probe::Probed;
