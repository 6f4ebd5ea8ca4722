// SPDX-License-Identifier: GPL-2.0

//! Large values in memory of their own.

use core::mem::MaybeUninit;

use kernel::{
    alloc::Flags,
    prelude::*, //
};

/// Allocates memory, and has `make` make a value in it; without memory, it is not called.
///
/// For large values. They lie on the stack once, in the frame of `fill`, below which nothing but
/// `make` runs and which has gone when this returns. [`KBox::new`] has them in the caller's own
/// frame, once or twice, below all that the caller does next. Of its parts `make` should call
/// functions that are not inlined and return them: those write to that frame. The language promises
/// nothing of this, so the lab's build of the module checks the frames.
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

/// Writes the value of `make`. Not inlined, so that its frame ends with it.
#[inline(never)]
fn fill<T>(place: &mut MaybeUninit<T>, make: impl FnOnce() -> T) {
    // SAFETY: The place is valid for a value.
    unsafe { place.as_mut_ptr().write(make()) };
}
