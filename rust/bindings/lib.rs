// SPDX-License-Identifier: GPL-2.0

//! Bindings that the kernel's own lack: the RDMA core, and some helpers.
//!
//! `bindgen` makes them in the build from `bindings_helper.h`. Types that the kernel's bindings do
//! have are theirs, so that both can be mixed. Only `kernel_ext`, `net_ext` and `rdma` use this
//! crate; a driver uses those.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
#![allow(
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks
)]

mod layout;

mod generated {
    pub use kernel::bindings::*;

    use kernel::ffi;
    use pin_init::{
        MaybeZeroable,
        Zeroable, //
    };

    // SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
    unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

    include!(concat!(env!("BINDINGS_EXT"), "/generated.rs"));
}

pub use generated::*;
