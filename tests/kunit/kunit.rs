// SPDX-License-Identifier: GPL-2.0

//! `ferrule_kunit`: KUnit tests of the crates in `rust/`, one suite a module of theirs.
//!
//! They run when the module is loaded, in a kernel with `CONFIG_KUNIT=y`. Code that needs a
//! program, a network device or traffic is tested from user space (`tests/guest/`), on every
//! kernel.

use kernel::prelude::*;

mod crc32;
mod error;
mod gate;
mod mm;
mod net;
mod nospec;
mod qp;
mod random;
mod sync;
mod task;
mod time;
mod types;
mod unregistered;

struct Tests;

impl kernel::Module for Tests {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Tests)
    }
}

module! {
    type: Tests,
    name: "ferrule_kunit",
    authors: ["The ferrule authors"],
    description: "KUnit tests of the crates that the drivers are built on",
    license: "GPL",
}
