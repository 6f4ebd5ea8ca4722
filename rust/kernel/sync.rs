// SPDX-License-Identifier: GPL-2.0

//! Locks and wait queues that `kernel::sync` does not have.
//!
//! C headers: `include/linux/spinlock.h`, `include/linux/wait.h`.

use core::pin::Pin;

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        lock,
        LockClassKey, //
    },
    types::Opaque, //
};

use crate::bindings;

/// A full memory barrier between processors, and towards programs. Any context.
///
/// It orders as the kernel's `smp_mb()` does, and is an instruction where that is a call.
#[inline(always)]
pub fn smp_mb() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
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

/// A spinlock whose holder runs with interrupts off, so that it may be taken in any context.
///
/// # Examples
///
/// ```
/// use kernel::{prelude::*, sync::Arc};
/// use kernel_ext::{new_spinlock_irq, sync::SpinLockIrq};
///
/// let counter = Arc::pin_init(new_spinlock_irq!(0u32, "counter"), GFP_KERNEL)?;
/// *counter.lock() += 1;
/// # Ok::<(), Error>(())
/// ```
pub type SpinLockIrq<T> = lock::Lock<T, SpinLockIrqBackend>;

/// The backend of [`SpinLockIrq`]: `spin_lock_irqsave()`.
pub struct SpinLockIrqBackend;

// SAFETY: The underlying kernel `spinlock_t` object ensures mutual exclusion. The flags that lock()
// saved are kept in the guard, which cannot leave its processor's context and gives them back once.
unsafe impl lock::Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The caller ensures that `ptr` is valid for writes and that the others are valid
        // for ever.
        unsafe { bindings::spin_lock_init_irq(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> c_ulong {
        // SAFETY: The caller ensures that `ptr` is an initialised lock.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &c_ulong) {
        // SAFETY: The caller ensures that it holds the lock, and `flags` are those of `lock`.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<c_ulong> {
        let mut flags = 0;
        // SAFETY: The caller ensures that `ptr` is an initialised lock.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller ensures that `ptr` is an initialised lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
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
/// Conditions are closures. They may be called several times, and must not sleep. Who makes a
/// condition true calls [`WaitQueue::wake_up`] afterwards, with a full barrier between the two if
/// it looked with [`WaitQueue::has_sleeper`] (which has one).
#[pin_data]
pub struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A wait queue has a lock of its own.
unsafe impl Send for WaitQueue {}

// SAFETY: As above.
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

    /// Wakes whoever waits, to look at its condition. Any context.
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
