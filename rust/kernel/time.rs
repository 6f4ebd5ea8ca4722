// SPDX-License-Identifier: GPL-2.0

//! Clocks in nanoseconds, and calls in softirq context: by a timer that is armed again and again,
//! or at once.
//!
//! C headers: `include/linux/ktime.h`, `include/linux/hrtimer.h`, `include/linux/irq_poll.h`.

use core::{
    ffi::c_int,
    ops::Deref, //
};

use kernel::{
    container_of,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    sync::smp_mb, //
};

/// Nanoseconds of `CLOCK_MONOTONIC`. Any context.
#[inline]
pub fn monotonic_ns() -> u64 {
    // SAFETY: The function has no preconditions. The clock is never negative.
    unsafe { bindings::ktime_get() as u64 }
}

/// Nanoseconds of `CLOCK_MONOTONIC_RAW`. Any context.
#[inline]
pub fn monotonic_raw_ns() -> u64 {
    // SAFETY: The function has no preconditions. The clock is never negative.
    unsafe { bindings::ktime_get_raw() as u64 }
}

/// The functions of a [`WithTimer`].
///
/// The value is `'static`: nothing but its drop cancels the timer, and safe code may forget a
/// value, so that the functions run when all that was borrowed has gone.
pub trait TimerCallback: Send + Sync + Sized + 'static {
    /// The time has come. Softirq context. May arm the timer again.
    fn expired(this: &WithTimer<Self>);

    /// [`WithTimer::call`] has asked for this. Softirq context, on several processors at once if it
    /// is asked for again meanwhile. May arm the timer.
    fn called(_this: &WithTimer<Self>) {}
}

/// A value with a one-shot timer of nanosecond resolution, which may be armed again at any time,
/// and which can be called in softirq context at once.
///
/// It stands beside [`kernel::time::hrtimer`], which does not serve a timer of which many hands,
/// the timer's own function among them, say when it is to fire (as of Linux 7.3):
///
/// - Each start returns a handle whose drop cancels the timer and waits for its function. So there
///   is no place to put it: dropped where the timer was armed, it disarms it; dropped in the
///   function, it waits for itself for ever; forgotten, it keeps a reference to the value, one for
///   each start.
/// - The function may repeat itself after an interval (`HrTimerCallbackContext::forward()`), but
///   cannot name a time. It must not repeat itself where another processor arms the timer
///   meanwhile: C warns of a timer that is forwarded while it is queued.
/// - A time is an `Instant`, which can be had by reading the clock alone. A time in nanoseconds
///   would have to be turned into a distance from another reading, and into a time again.
///
/// Here the timer belongs to the value, and arming it anew just moves it.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::Arc};
/// use kernel_ext::time::{monotonic_ns, TimerCallback, WithTimer};
///
/// struct Beeper;
///
/// impl TimerCallback for Beeper {
///     fn expired(this: &WithTimer<Self>) {
///         this.arm_at(monotonic_ns() + 1_000_000);
///     }
/// }
///
/// let beeper = Arc::pin_init(WithTimer::new(Beeper), GFP_KERNEL)?;
/// beeper.arm_at(monotonic_ns() + 1_000_000);
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `timer` is initialised, with `Self::run` as its function, and so is `poll` with `Self::poll`.
/// Neither is queued or running once `value` begins to be dropped.
#[pin_data(PinnedDrop)]
pub struct WithTimer<T: TimerCallback> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    #[pin]
    poll: Opaque<bindings::irq_poll>,
    /// How many processors are in [`TimerCallback::called`], or about to be.
    calls: Atomic<u32>,
    #[pin]
    value: T,
}

// SAFETY: A timer may be cancelled by any thread, polling disabled, and `T` is `Send`.
unsafe impl<T: TimerCallback> Send for WithTimer<T> {}

// SAFETY: Timers are started and cancelled under their own lock, polling is asked for by atomic
// bits, and `T` is `Sync`.
unsafe impl<T: TimerCallback> Sync for WithTimer<T> {}

impl<T: TimerCallback> WithTimer<T> {
    /// Puts a timer, not armed, beside `value`. No call is asked for.
    pub fn new<E>(value: impl PinInit<T, E>) -> impl PinInit<Self, E>
    where
        E: From<core::convert::Infallible>,
    {
        try_pin_init!(Self {
            value <- value,
            // INVARIANT: The timer is set up with `run`. It comes after `value`, which `run` uses.
            timer <- Opaque::ffi_init(|slot: *mut bindings::hrtimer| {
                // SAFETY: `slot` is valid for writes, and stays where it is, for it is pinned.
                unsafe {
                    bindings::hrtimer_setup(
                        slot,
                        Some(Self::run),
                        bindings::CLOCK_MONOTONIC as i32,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
                    )
                }
            }),
            // INVARIANT: It is set up with `poll`, and comes after `value`, too.
            poll <- Opaque::ffi_init(|slot: *mut bindings::irq_poll| {
                // SAFETY: `slot` is valid for writes, and stays where it is, for it is pinned.
                unsafe { bindings::irq_poll_init(slot, 1, Some(Self::poll)) }
            }),
            calls: Atomic::new(0),
        }? E)
    }

    /// # Safety
    ///
    /// To be called by the timer core only, with the `timer` of a `Self`.
    unsafe extern "C" fn run(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let timer: *mut Opaque<bindings::hrtimer> = timer.cast();
        // SAFETY: By the requirements of this function, `timer` is that of a `Self`. It is pinned,
        // so its memory is not used for anything else before its drop, which cancels the timer
        // first and waits for us; and its value borrows nothing that could go before.
        let this = unsafe { &*container_of!(timer, Self, timer) };
        T::expired(this);
        // The type is an integer before Linux 7.3, and a structure around one from then on.
        //
        // SAFETY: 0 is `HRTIMER_NORESTART` in both.
        unsafe { core::mem::zeroed() }
    }

    /// # Safety
    ///
    /// To be called by the softirq of `irq_poll` only, with the `poll` of a `Self`.
    unsafe extern "C" fn poll(poll: *mut bindings::irq_poll, _weight: c_int) -> c_int {
        let opaque: *mut Opaque<bindings::irq_poll> = poll.cast();
        // SAFETY: By the requirements of this function, `poll` is that of a `Self`. It is pinned,
        // so its memory is not used for anything else before its drop, which waits until polling is
        // complete, and then until no call is counted; and its value borrows nothing that could go
        // before.
        let this = unsafe { &*container_of!(opaque, Self, poll) };
        this.calls.fetch_add(1, Full);
        // A caller that asks from here on has one more call, on another processor even before this
        // one has ended.
        //
        // SAFETY: It is initialised by the type invariants, and this is its turn.
        unsafe { bindings::irq_poll_complete(poll) };
        // A caller that has asked before has written before what this call is to see.
        smp_mb();
        T::called(this);
        // This is the last use of `this`.
        this.calls.fetch_sub(1, Full);
        0
    }

    /// Has [`TimerCallback::called`] run in softirq context on this processor: before this returns
    /// if softirqs may run here, and else as soon as they may. One call is for all that have asked
    /// before it begins. Any context.
    ///
    /// Returns whether it will run. It will not if interrupts are off, and on PREEMPT_RT.
    #[must_use]
    pub fn call(&self) -> bool {
        // SAFETY: It is initialised by the type invariants.
        unsafe { bindings::irq_poll_now(self.poll.get()) }
    }

    /// Arms the timer, or moves it, to the time `ns` of [`monotonic_ns`]. Any context.
    pub fn arm_at(&self, ns: u64) {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        // SAFETY: The timer is initialised by the type invariants.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                ns,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
            )
        };
    }

    /// Disarms the timer and waits for its function to end. Process context; not from the function.
    pub fn cancel(&self) {
        // SAFETY: The timer is initialised by the type invariants.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }
}

#[pinned_drop]
impl<T: TimerCallback> PinnedDrop for WithTimer<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is initialised by the type invariants.
        unsafe { bindings::irq_poll_disable(self.poll.get()) };
        // A call that has begun may arm the timer.
        while self.calls.load(Acquire) != 0 {
            fsleep(Delta::from_micros(10));
        }
        self.cancel();
    }
}

impl<T: TimerCallback> Deref for WithTimer<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}
