// SPDX-License-Identifier: GPL-2.0

//! The module.

use kernel::types::Opaque;

use crate::bindings;

/// The module that this crate is linked into, which is the driver's.
pub(crate) fn this_module() -> *mut bindings::module {
    #[allow(improper_ctypes, reason = "only its address is used")]
    extern "C" {
        static __this_module: Opaque<bindings::module>;
    }
    // SAFETY: Every module has it.
    unsafe { __this_module.get() }
}
