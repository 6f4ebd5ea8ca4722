// SPDX-License-Identifier: GPL-2.0

//! Proof that Rust and C have the same idea of the structures that both use.
//!
//! `layout.c` tells what the C compiler thinks; see there. Nothing of this is left in the object.

macro_rules! size {
    ($type:ident, $size:literal, $align:literal) => {
        const _: () = assert!(
            size_of::<crate::$type>() == $size && align_of::<crate::$type>() == $align,
            concat!("Rust and C differ in the size of ", stringify!($type)),
        );
    };
}

macro_rules! field {
    ($type:ident, $($field:ident).+, $offset:literal, $size:literal) => {
        const _: () = {
            assert!(
                core::mem::offset_of!(crate::$type, $($field).+) == $offset,
                concat!("Rust and C differ in the place of ", stringify!($type.$($field).+)),
            );
            assert!(
                field_size(|object: *const crate::$type| {
                    // SAFETY: The object is not accessed.
                    unsafe { &raw const (*object).$($field).+ }
                }) == $size,
                concat!("Rust and C differ in the size of ", stringify!($type.$($field).+)),
            );
        };
    };
}

/// The size of what a projection leads to.
const fn field_size<T, F>(_project: fn(*const T) -> *const F) -> usize {
    size_of::<F>()
}

include!(concat!(env!("BINDINGS_EXT"), "/layout_generated.rs"));
