// SPDX-License-Identifier: GPL-2.0

//! Error codes that `kernel::error::code` does not list.
//!
//! C header: `include/uapi/asm-generic/errno.h`.

/// Error codes.
pub mod code {
    use core::num::NonZeroI32;

    use kernel::error::Error;

    /// The error of the positive number `errno`, which the kernel crate has no `const` function
    /// for.
    const fn from_number(errno: u32) -> Error {
        assert!(0 < errno && errno <= crate::bindings::MAX_ERRNO);
        let Some(value) = NonZeroI32::new(-(errno as i32)) else {
            panic!("zero is no error code");
        };
        // SAFETY: `Error` has a `NonZeroI32` as its only field, and no space for anything else, for
        // the compiler refuses types of different sizes here. Its invariant is what was asserted.
        unsafe { core::mem::transmute::<NonZeroI32, Error>(value) }
    }

    macro_rules! declare_errno {
        ($($name:ident: $doc:literal;)*) => {$(
            #[doc = $doc]
            pub const $name: Error = from_number(crate::bindings::$name);
        )*};
    }

    declare_errno! {
        EOPNOTSUPP: "Operation not supported.";
        EAFNOSUPPORT: "Address family not supported by protocol.";
        EADDRINUSE: "Address already in use.";
        ENETUNREACH: "Network is unreachable.";
        EHOSTUNREACH: "No route to host.";
        ENOBUFS: "No buffer space available.";
        ESTALE: "Stale file handle.";
    }
}
