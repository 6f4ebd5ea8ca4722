// SPDX-License-Identifier: GPL-2.0

//! Indices that stay in range where a processor guesses.
//!
//! C header: `include/linux/nospec.h`.

use core::arch::asm;

/// Returns `index` if it is below `size`, which is a power of two; else some other index that is.
///
/// To be used behind a check that `index` is below `size`. A processor which guesses that the check
/// passes, and reads by the index ahead of it, stays below `size` as well: `array_index_nospec()`.
///
/// # Examples
///
/// ```
/// use kernel_ext::nospec::index_nospec;
///
/// fn look_up(table: &[u64; 16], index: usize) -> Option<u64> {
///     if index >= table.len() {
///         return None;
///     }
///     table.get(index_nospec(index, table.len())).copied()
/// }
/// assert_eq!(look_up(&[7; 16], 3), Some(7));
/// ```
#[inline(always)]
pub fn index_nospec(index: usize, size: usize) -> usize {
    let mut index = index;
    // Without this the compiler would see that an index which has passed the check needs no mask,
    // and leave it out: `OPTIMIZER_HIDE_VAR()`.
    // SAFETY: There is no instruction; the register keeps its value.
    unsafe { asm!("/* {0} */", inout(reg) index, options(pure, nomem, nostack, preserves_flags)) };
    index & (size.wrapping_sub(1))
}
