// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::crc32`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_crc32)]
mod tests {
    use kernel_ext::crc32;

    #[test]
    fn is_that_of_ethernet() {
        // The check value by which catalogues of CRCs tell this one.
        assert_eq!(!crc32::le(!0, b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32::le(crc32::le(!0, b"1234"), b"56789"), !0xcbf4_3926);
        assert_eq!(crc32::le(7, b""), 7);
    }
}
