// SPDX-License-Identifier: GPL-2.0

//! Locks and wait queues that `kernel::sync` does not have.
//!
//! C headers: `include/linux/spinlock.h`, `include/linux/wait.h`.

use core::{
    cell::UnsafeCell,
    pin::Pin, //
};

use kernel::{
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    types::Opaque, //
};

use crate::bindings;

/// A full memory barrier between processors, and towards programs: `smp_mb()` of Linux's memory
/// model. Any context.
///
/// [`kernel::sync::barrier`] has it as well, but from Linux 7.3 on by another signature.
#[inline(always)]
pub fn smp_mb() {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::smp_mb() };
}

/// A full memory barrier towards a device that is a program on another processor: `virt_mb()`. In a
/// kernel without `CONFIG_SMP` it is still one, unlike [`smp_mb`]. Any context.
#[inline(always)]
pub fn virt_mb() {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::virt_mb() };
}

/// Keeps loads before this ahead of those after it, and stores likewise: `smp_rmb()` and
/// `smp_wmb()` of Linux's memory model, for volatile accesses and calls of C. Any context.
///
/// The compiler leaves those in their order, and an x86 processor does so with loads and with
/// stores. There it is nothing.
#[inline(always)]
pub fn smp_rmb_wmb() {
    if cfg!(target_arch = "x86_64") {
        return;
    }
    // SAFETY: The functions have no preconditions.
    unsafe {
        bindings::smp_rmb();
        bindings::smp_wmb();
    }
}

/// Creates a [`SpinLockIrq`] initialiser with the given name and a lock class of its own.
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr, $name:literal) => {
        $crate::sync::SpinLockIrq::new(
            $inner,
            $crate::kernel::c_str!($name),
            $crate::kernel::static_lock_class!(),
        )
    };
}

/// A spinlock whose holder runs with interrupts off, so that it may be taken in any context. On
/// PREEMPT_RT it is a mutex with priority inheritance, as each spinlock there: interrupts stay on,
/// and handlers of interrupts are threads.
///
/// It lends what it protects to a closure, instead of handing out a guard. Each lock restores the
/// interrupts as it found them, so locks have to be released in the reverse of the order in which
/// they were taken: if the outer one of two were released first, interrupts would be on under the
/// inner one, and off after both. Guards can be dropped in any order, and closures end in that
/// order alone.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::Arc};
/// use kernel_ext::{new_spinlock_irq, sync::SpinLockIrq};
///
/// let counter = Arc::pin_init(new_spinlock_irq!(0u32, "counter"), GFP_KERNEL)?;
/// counter.with(|counter| *counter += 1);
/// # Ok::<(), Error>(())
/// ```
#[pin_data]
pub struct SpinLockIrq<T> {
    #[pin]
    raw: Opaque<bindings::spinlock_t>,
    data: UnsafeCell<T>,
}

// SAFETY: A lock that nobody holds belongs to no thread, and `T` may go to another one.
unsafe impl<T: Send> Send for SpinLockIrq<T> {}

// SAFETY: One holder at a time has a reference to the value, and a value that is `Send` may have
// holders in different threads one after the other.
unsafe impl<T: Send> Sync for SpinLockIrq<T> {}

impl<T> SpinLockIrq<T> {
    /// A lock that nobody holds; see [`new_spinlock_irq!`](crate::new_spinlock_irq).
    pub fn new(
        data: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes and pinned; name and key live for ever.
            raw <- Opaque::ffi_init(|slot| unsafe {
                bindings::spin_lock_init_irq(slot, name.as_char_ptr(), key.as_ptr())
            }),
            data: UnsafeCell::new(data),
        })
    }

    /// Takes the lock, and lends what it protects to `f`. Any context.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: The lock was initialised when this was made.
        let flags = unsafe { bindings::spin_lock_irqsave(self.raw.get()) };
        // SAFETY: The lock was just taken, which has saved `flags`.
        unsafe { self.lend(flags, f) }
    }

    /// As [`with`](Self::with), if nobody holds the lock.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut flags = 0;
        // SAFETY: The lock was initialised when this was made.
        if !unsafe { bindings::spin_trylock_irqsave(self.raw.get(), &mut flags) } {
            return None;
        }
        // SAFETY: The lock was just taken, which has saved `flags`.
        Some(unsafe { self.lend(flags, f) })
    }

    /// Lends what the lock protects to `f`, and releases the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and `flags` are what taking it has saved.
    #[inline]
    unsafe fn lend<R>(&self, flags: c_ulong, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: The caller holds the lock, so there is no other reference to the value.
        let result = f(unsafe { &mut *self.data.get() });
        // SAFETY: The caller holds the lock. `f` has released the locks that it took, so the
        // interrupts are as they were when `flags` were saved.
        unsafe { bindings::spin_unlock_irqrestore(self.raw.get(), flags) };
        result
    }
}

/// Creates a [`WaitQueue`] initialiser with the given name and a lock class of its own.
#[macro_export]
macro_rules! new_waitqueue {
    ($name:literal) => {
        $crate::sync::WaitQueue::new(
            $crate::kernel::c_str!($name),
            $crate::kernel::static_lock_class!(),
        )
    };
}

/// A queue of threads that wait for a condition: `struct wait_queue_head`.
///
/// Conditions are closures. They may be called several times, and must not sleep. A caller that
/// makes a condition true calls [`WaitQueue::wake_up`] afterwards, with a full barrier between the
/// two if it has called [`WaitQueue::has_sleeper`] (which has one).
#[pin_data]
pub struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A wait queue has a lock of its own.
unsafe impl Send for WaitQueue {}

// SAFETY: All that can be done by a shared reference is done under that lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// A queue that nobody waits on; see [`new_waitqueue!`](crate::new_waitqueue).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes and pinned; name and key live for ever.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    fn wait_in(&self, state: u32, mut cond: impl FnMut() -> bool) {
        if cond() {
            return;
        }
        let mut entry = core::mem::MaybeUninit::<bindings::wait_queue_entry>::uninit();
        let entry = entry.as_mut_ptr();
        // SAFETY: `entry` is valid for writes, and stays on this stack until `finish_wait`.
        unsafe { bindings::init_wait_entry(entry, 0) };
        loop {
            // SAFETY: Head and entry are initialised. The states given here take no signals, so
            // the call cannot fail.
            unsafe { bindings::prepare_to_wait_event(self.head.get(), entry, state as c_int) };
            if cond() {
                break;
            }
            // SAFETY: The waiting methods are for process context.
            unsafe { bindings::schedule() };
        }
        // SAFETY: Head and entry are initialised.
        unsafe { bindings::finish_wait(self.head.get(), entry) };
    }

    /// Waits until `cond` holds, whatever signals come. Process context.
    pub fn wait(&self, cond: impl FnMut() -> bool) {
        self.wait_in(bindings::TASK_UNINTERRUPTIBLE, cond);
    }

    /// Waits as a thread that is idle: it counts neither as load nor as hung. Process context.
    pub fn wait_idle(&self, cond: impl FnMut() -> bool) {
        self.wait_in(bindings::TASK_IDLE, cond);
    }

    /// Wakes the waiters, which check their conditions. Any context.
    pub fn wake_up(&self) {
        // SAFETY: The head is initialised.
        unsafe {
            bindings::__wake_up(
                self.head.get(),
                bindings::TASK_NORMAL,
                0,
                core::ptr::null_mut(),
            )
        };
    }

    /// Whether somebody waits, after a full barrier. Any context.
    pub fn has_sleeper(&self) -> bool {
        // SAFETY: The head is initialised.
        unsafe { bindings::wq_has_sleeper(self.head.get()) }
    }
}
