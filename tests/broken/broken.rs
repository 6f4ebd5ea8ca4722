// SPDX-License-Identifier: GPL-2.0

//! `ferrule_broken`: does what must not be done, to see that the debug kernel reports it.
//!
//! Each fault is one that a driver written with these crates could have. `watch`, `races` and
//! `barriers` of `tests/suites/` load the module once for each, and know the report that has to
//! come. Not to be loaded anywhere else: the faults are real.

use core::{
    cell::UnsafeCell,
    hint::black_box,
    mem::MaybeUninit,
    pin::Pin, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use kernel_ext::{
    new_spinlock_irq,
    task::Kthread,
    time::{
        monotonic_ns,
        TimerCallback,
        WithTimer, //
    },
};

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

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
    let timer = KBox::pin_init(WithTimer::new(Idle), GFP_KERNEL)?;
    timer.arm_at(monotonic_ns() + 3600 * SECOND);
    // SAFETY: There is none, which is the point: a pinned value is freed, and not dropped.
    let timer = KBox::into_raw(unsafe { Pin::into_inner_unchecked(timer) });
    // SAFETY: The memory comes from a box of this size.
    drop(unsafe { KBox::from_raw(timer.cast::<MaybeUninit<WithTimer<Idle>>>()) });
    Ok(())
}

/// Forgets objects. Many, since the allocator's own lists go on to name what they gave last, until
/// it gives more.
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

/// A number that its owner and its timer change at the same time.
struct Racy(UnsafeCell<u64>);

// SAFETY: There is none, which is the point.
unsafe impl Sync for Racy {}

impl Racy {
    const PERIOD: u64 = 100_000;

    fn change(&self) {
        // SAFETY: There is none, which is the point.
        unsafe { *self.0.get() += 1 };
    }
}

impl TimerCallback for Racy {
    fn expired(this: &WithTimer<Self>) {
        this.change();
        this.arm_at(monotonic_ns() + Self::PERIOD);
    }
}

/// Changes a value from two contexts without a lock, for a second.
fn race() -> Result {
    let racy = KBox::pin_init(WithTimer::new(Racy(UnsafeCell::new(0))), GFP_KERNEL)?;
    let end = monotonic_ns() + SECOND;
    racy.arm_at(monotonic_ns());
    while monotonic_ns() < end {
        racy.change();
    }
    Ok(())
}

/// A message from one thread to another: the word tells whose turn it is.
struct Message {
    value: UnsafeCell<u64>,
    is_full: Atomic<u32>,
}

// SAFETY: `value` belongs to the thread whose turn it is. That would do if each turn were handed
// over in order.
unsafe impl Sync for Message {}

impl Message {
    /// Changes the value if it is turn `turn`, and returns whether it was. It does so many times:
    /// KCSAN looks at one access in a thousand.
    #[inline(always)]
    fn change(&self, turn: u32) -> bool {
        let is_turn = self.is_full.load(Acquire) == turn;
        if is_turn {
            for _ in 0..1000 {
                let value = black_box(self.value.get());
                // SAFETY: There is none where the other thread has handed over without a barrier,
                // which is the point.
                unsafe { *value += 1 };
            }
        }
        is_turn
    }
}

/// Tells another thread that a value is there, and lets the value come later.
fn publish_without_barrier() -> Result {
    const TURNS: u32 = 1000;

    let message = Arc::new(
        Message {
            value: UnsafeCell::new(0),
            is_full: Atomic::new(0),
        },
        GFP_KERNEL,
    )?;
    let receiver = message.clone();
    let _thread = Kthread::spawn(c"ferrule_broken", move |current| {
        while !current.should_stop() {
            if receiver.change(1) {
                receiver.is_full.store(0, Release);
            }
        }
    })?;
    // A barrier, such as a read of the clock, would put the value in its place.
    for _ in 0..TURNS {
        while !message.change(0) {}
        message.is_full.store(1, Relaxed);
    }
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
            6 => race(),
            7 => publish_without_barrier(),
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
            description: "1: lock taken twice, 2: sleep under a lock, 3: armed timer freed, 4: leak, 5: use after free, 6: data race, 7: no barrier",
        },
    },
}
