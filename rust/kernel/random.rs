// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: `include/linux/random.h`.

/// A random number, of the kernel's cryptographic generator. Any context.
#[inline]
pub fn random_u32() -> u32 {
    // SAFETY: The function has no preconditions.
    unsafe { crate::bindings::get_random_u32() }
}
