// SPDX-License-Identifier: GPL-2.0

//! A timer whose function uses what was borrowed, which goes while the timer is armed.

#![forbid(unsafe_code)]

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use kernel_ext::time::{
    monotonic_ns,
    TimerCallback,
    WithTimer, //
};

/// The counter lives as long as the module.
#[cfg(not(unsound))]
struct Ticker(&'static Atomic<u64>);

#[cfg(not(unsound))]
impl TimerCallback for Ticker {
    fn expired(this: &WithTimer<Self>) {
        this.0.fetch_add(1, Relaxed);
    }
}

#[cfg(not(unsound))]
pub fn count() -> Result {
    static COUNT: Atomic<u64> = Atomic::new(0);

    let timer = KBox::pin_init(WithTimer::new(Ticker(&COUNT)), GFP_KERNEL)?;
    timer.arm_at(monotonic_ns() + 100_000_000);
    core::mem::forget(timer);
    Ok(())
}

#[cfg(unsound)]
struct Ticker<'a>(&'a Atomic<u64>);

#[cfg(unsound)]
//~ E0478
impl TimerCallback for Ticker<'_> {
    //~ E0477
    fn expired(this: &WithTimer<Self>) {
        //~ lifetime
        this.0.fetch_add(1, Relaxed);
    }
}

#[cfg(unsound)]
pub fn count() -> Result {
    let local = KBox::new(Atomic::new(0u64), GFP_KERNEL)?;
    //~ E0597
    let timer = KBox::pin_init(WithTimer::new(Ticker(&local)), GFP_KERNEL)?;
    timer.arm_at(monotonic_ns() + 100_000_000);
    core::mem::forget(timer);
    //~ E0505
    drop(local);
    Ok(())
}
