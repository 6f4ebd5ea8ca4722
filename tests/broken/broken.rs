// SPDX-License-Identifier: GPL-2.0

//! `ferrule_broken`: does what must not be done, to see that the debug kernel reports it.
//!
//! Each fault is one that a driver written with these crates could have. `tests/suites/watch.toml`
//! loads the module once for each, and knows the report that has to come. Not to be loaded anywhere
//! else: the faults are real.

use core::{
    mem::MaybeUninit,
    pin::Pin, //
};

use kernel::prelude::*;
use kernel_ext::{
    new_spinlock_irq,
    time::{
        monotonic_ns,
        TimerCallback,
        WithTimer, //
    },
};

/// Takes a lock twice: two locks of one class, since one lock alone would stop the machine.
fn lock_twice() -> Result {
    let make = || KBox::pin_init(new_spinlock_irq!(0u32, "ferrule_broken"), GFP_KERNEL);
    let (outer, inner) = (make()?, make()?);
    outer.with(|_| inner.with(|_| ()));
    Ok(())
}

/// Allocates under a spinlock with what may sleep.
fn sleep_under_lock() -> Result {
    let lock = KBox::pin_init(new_spinlock_irq!(0u32, "ferrule_broken"), GFP_KERNEL)?;
    lock.with(|value| -> Result {
        *value = *KBox::new(1, GFP_KERNEL)?;
        Ok(())
    })
}

/// A timer that nobody waits for.
struct Idle;

impl TimerCallback for Idle {
    fn expired(_this: &WithTimer<Self>) {}
}

/// Frees a timer that is armed.
fn free_armed_timer() -> Result {
    const HOUR: u64 = 3_600_000_000_000;

    let timer = KBox::pin_init(WithTimer::new(Idle), GFP_KERNEL)?;
    timer.arm_at(monotonic_ns() + HOUR);
    // SAFETY: There is none, which is the point: a pinned value is freed, and not dropped.
    let timer = KBox::into_raw(unsafe { Pin::into_inner_unchecked(timer) });
    // SAFETY: The memory comes from a box of this size.
    drop(unsafe { KBox::from_raw(timer.cast::<MaybeUninit<WithTimer<Idle>>>()) });
    Ok(())
}

/// Forgets objects. Many, since the allocator's own lists go on to name what they gave last, until it
/// gives more.
fn leak() -> Result {
    for number in 0..2000u64 {
        core::mem::forget(KBox::new([number; 32], GFP_KERNEL)?);
    }
    Ok(())
}

/// Reads what was freed.
fn use_after_free() -> Result {
    let value = KBox::into_raw(KBox::new([0u64; 8], GFP_KERNEL)?);
    // SAFETY: The pointer comes from a box.
    drop(unsafe { KBox::from_raw(value) });
    // SAFETY: There is none, which is the point.
    let _ = unsafe { value.read_volatile() };
    Ok(())
}

/// The value of a parameter, which is a reference before Linux 7.3.
fn number(value: impl core::borrow::Borrow<u32>) -> u32 {
    *value.borrow()
}

struct Broken;

impl kernel::Module for Broken {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        match number(module_parameters::fault.value()) {
            1 => lock_twice(),
            2 => sleep_under_lock(),
            3 => free_armed_timer(),
            4 => leak(),
            5 => use_after_free(),
            _ => Err(EINVAL),
        }?;
        Ok(Broken)
    }
}

module! {
    type: Broken,
    name: "ferrule_broken",
    authors: ["The ferrule authors"],
    description: "Faults that a debug kernel has to report",
    license: "GPL",
    params: {
        fault: u32 {
            default: 0,
            description: "1: lock taken twice, 2: sleep under a lock, 3: armed timer freed, 4: leak, 5: use after free",
        },
    },
}
