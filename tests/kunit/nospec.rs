// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::nospec`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_nospec)]
mod tests {
    use kernel_ext::nospec::index_nospec;

    #[test]
    fn index_below_the_size_stays() {
        for size in [1, 2, 64, 1 << 18] {
            for index in [0, size / 2, size - 1] {
                assert_eq!(index_nospec(index, size), index);
            }
        }
    }

    #[test]
    fn any_other_becomes_one() {
        for size in [1, 2, 64, 1 << 18] {
            for index in [size, size + 1, usize::MAX / 2, usize::MAX] {
                assert!(index_nospec(index, size) < size);
            }
        }
    }
}
