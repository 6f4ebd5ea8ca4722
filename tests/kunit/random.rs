// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::random`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_random)]
mod tests {
    use kernel_ext::random::random_u32;

    #[test]
    fn every_bit_varies() {
        let (mut ones, mut zeroes) = (0, 0);
        // That a bit is the same 64 times happens once in 2^58 runs.
        for _ in 0..64 {
            let number = random_u32();
            ones |= number;
            zeroes |= !number;
        }
        assert_eq!(ones & zeroes, u32::MAX);
    }
}
