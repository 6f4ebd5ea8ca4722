// SPDX-License-Identifier: GPL-2.0

//! Large values in memory of their own.

use core::mem::MaybeUninit;

use kernel::{
    alloc::Flags,
    prelude::*, //
};

/// Allocates memory, and has `make` make a value in it; without memory, it is not called.
///
/// For values that are too large for the stack, where [`KBox::new`] has them once or twice. `make` should
/// call a function that is not inlined and returns the value: that one is handed the memory to write to.
/// The language does not promise it, so the lab's build of the module checks the frames.
///
/// # Errors
///
/// `ENOMEM`.
pub fn boxed<T>(make: impl FnOnce() -> T, flags: Flags) -> Result<KBox<T>> {
    let mut memory = KBox::<T>::new_uninit(flags)?;
    fill(&mut memory, make);
    // SAFETY: The value has just been written.
    Ok(unsafe { memory.assume_init() })
}

/// Writes what `make` makes. By itself, since of a parameter that is a reference the compiler knows that it
/// is memory for a whole value, and no one else's; so it hands it on to `make`.
#[inline(never)]
fn fill<T>(place: &mut MaybeUninit<T>, make: impl FnOnce() -> T) {
    // SAFETY: The place is valid for a value.
    unsafe { place.as_mut_ptr().write(make()) };
}
