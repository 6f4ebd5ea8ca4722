// SPDX-License-Identifier: GPL-2.0

//! `net_ext`.

use kernel::prelude::*;

#[kunit_tests(net_ext)]
mod tests {
    use net_ext::eui64_from_mac;

    #[test]
    fn eui64_has_the_local_bit_inverted() {
        // RFC 4291, appendix A.
        let eui = eui64_from_mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(eui, 0x3656_78ff_fe9a_bcde);
        assert_eq!(eui64_from_mac([0x02, 0, 0, 0, 0, 1]), 0x0000_00ff_fe00_0001);
    }
}
