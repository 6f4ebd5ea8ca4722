// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::error`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_error)]
mod tests {
    use kernel_ext::error::code::*;

    #[test]
    fn codes_are_those_of_user_space() {
        // The numbers of include/uapi/asm-generic/errno.h, which never change.
        assert_eq!(EOPNOTSUPP.to_errno(), -95);
        assert_eq!(EADDRINUSE.to_errno(), -98);
        assert_eq!(EHOSTUNREACH.to_errno(), -113);
    }
}
