// SPDX-License-Identifier: GPL-2.0

//! The CRC of Ethernet, as fast as the processor can.
//!
//! C header: `include/linux/crc32.h`.

/// Goes on with a CRC-32 (bits reflected, nothing inverted) that stands at `crc`, over `bytes`: the
/// kernel's `crc32_le`. Any context.
///
/// # Examples
///
/// ```
/// assert_eq!(!kernel_ext::crc32::le(!0, b"123456789"), 0xcbf4_3926);
/// ```
#[inline]
pub fn le(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: The slice may be read.
    unsafe { crate::bindings::crc32_le(crc, bytes.as_ptr().cast(), bytes.len()) }
}
