// SPDX-License-Identifier: GPL-2.0

//! Kernel threads and the scheduler.
//!
//! C headers: `include/linux/kthread.h`, `include/linux/sched.h`.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    cpu::CpuId,
    cpumask::CpumaskVar,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_ulong,
    prelude::*,
    str::CStr,
    types::{
        ForeignOwnable,
        NotThreadSafe, //
    },
};

use crate::bindings;

/// Whether the current processor has nothing else to run. A hint: it may change at once.
#[inline]
pub fn single_task_running() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::single_task_running() }
}

/// Whether another thread is to have the current processor, as soon as the running one may be
/// preempted and softirqs have ended. A hint: it may change at once.
#[inline]
pub fn need_resched() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::need_resched() }
}

/// Whether the process of the current thread has been killed.
pub fn is_killed() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::fatal_signal_pending() }
}

/// Whether this softirq keeps a thread of real-time priority, or with a deadline, from its
/// processor. That thread may have raised it.
///
/// Never on PREEMPT_RT, where such a thread preempts softirqs.
#[inline]
pub fn real_time_is_interrupted() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::real_time_is_interrupted() }
}

/// Whether this softirq has interrupted code that may be preempted. If not, the current thread may
/// have raised the softirq itself. To be asked without locks, and with preemption as the softirq
/// has found it.
#[inline]
pub fn preemptible_is_interrupted() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::preemptible_is_interrupted() }
}

/// Lets others run, if the scheduler wants that and does not preempt by itself. May sleep.
#[inline]
pub fn cond_resched() {
    // SAFETY: The function has no preconditions but a context that may sleep.
    unsafe { bindings::cond_resched() }
}

/// The quiescent states of a thread that runs for long without sleep.
///
/// RCU waits until each processor has passed one, and RCU-tasks, which free code under probes and
/// tracers, until each thread has. `cond_resched()` passes none where the kernel preempts by
/// itself. The tick passes one of RCU only if it finds preemption enabled, and RCU forces one only
/// after a tenth of a second.
pub struct QuiescentStates {
    /// The tick of the last one, in jiffies.
    tick: c_ulong,
}

impl QuiescentStates {
    /// For a thread that begins a long run.
    pub fn begin() -> Self {
        // SAFETY: The function has no preconditions.
        let now = unsafe { bindings::jiffies_now() };
        Self { tick: now }
    }

    /// Passes one, of RCU and of RCU-tasks, if a tick has come since the last: the scheduler checks
    /// whether somebody else should run. May sleep.
    #[inline]
    pub fn pass(&mut self) {
        // SAFETY: The function has no preconditions.
        let now = unsafe { bindings::jiffies_now() };
        if now != self.tick {
            self.tick = now;
            // SAFETY: The function has no preconditions but a context that may sleep. The task is
            // running, so it is not taken off the run queue.
            unsafe { bindings::schedule() };
        }
    }
}

/// While one lives, nobody else runs on the processor but interrupts and softirqs. Any context;
/// functions that sleep must not be called meanwhile.
pub struct NoPreempt {
    /// A fact about one processor is not true on another.
    _not_send: NotThreadSafe,
}

impl NoPreempt {
    /// Keeps the scheduler away until the value is dropped.
    #[inline]
    #[allow(clippy::new_without_default, reason = "it is not a value but an act")]
    pub fn new() -> Self {
        // SAFETY: The function has no preconditions; `drop` undoes it.
        unsafe { bindings::preempt_disable() };
        Self {
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has disabled preemption in this context.
        unsafe { bindings::preempt_enable() };
    }
}

/// The thread that a function runs in.
pub struct Current {
    /// A fact about the current thread is not true of another.
    _not_send: NotThreadSafe,
}

impl Current {
    /// Whether [`Kthread::stop`] has been called (or the [`Kthread`] been dropped).
    pub fn should_stop(&self) -> bool {
        // SAFETY: The current thread is a kthread: a `Current` is only made in one.
        unsafe { bindings::kthread_should_stop() }
    }

    /// Moves the thread to another processor, which may be any of those that it is allowed.
    ///
    /// A change by an administrator at the very same time may be lost. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` if there is no other processor.
    pub fn move_away(&self) -> Result {
        // SAFETY: The current thread is alive.
        let task = unsafe { bindings::get_current() };
        let allowed = CpumaskVar::new_zero(GFP_KERNEL)?;
        // SAFETY: The copy is ours alone, and a mask. No reference is made to that of the task,
        // which an administrator may change meanwhile.
        unsafe { bindings::copy_current_cpus(allowed.as_raw()) };
        let mut others = CpumaskVar::try_clone(&allowed)?;
        others.clear(CpuId::current());
        // SAFETY: The task is alive, and the mask is valid during the call.
        to_result(unsafe { bindings::set_cpus_allowed_ptr(task, others.as_raw()) })?;
        // SAFETY: The task is alive, and the mask is valid during the call.
        to_result(unsafe { bindings::set_cpus_allowed_ptr(task, allowed.as_raw()) })
    }
}

/// A kernel thread.
///
/// Dropping it tells the thread to stop, wakes it, and waits for its end. Process context only. The
/// function is dropped, and never runs, if the thread is told to stop before its first turn.
///
/// # Examples
///
/// ```
/// use kernel::prelude::*;
/// use kernel_ext::{new_waitqueue, sync::WaitQueue, task::Kthread};
///
/// let thread = Kthread::spawn(c"sleeper", |current| {
///     stack_pin_init!(let queue = new_waitqueue!("sleeper"));
///     queue.wait_idle(|| current.should_stop());
/// })?;
/// drop(thread);
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `task` is a kthread that was woken, and we hold a reference to it. If it ends without having
/// run, `data` is still what `discard` takes.
pub struct Kthread {
    task: NonNull<bindings::task_struct>,
    data: *mut c_void,
    discard: unsafe fn(*mut c_void),
}

// SAFETY: Any thread may stop a kthread, and may drop what it has not run, which is `Send`.
unsafe impl Send for Kthread {}

// SAFETY: Nothing can be done by a shared reference.
unsafe impl Sync for Kthread {}

/// The function of a thread in a box, which is its data pointer.
struct Body<F>(PhantomData<F>);

impl<F: FnOnce(&Current) + Send + 'static> Body<F> {
    /// # Safety
    ///
    /// To be called once, by a new kthread, with a pointer of `KBox<F>::into_foreign`.
    unsafe extern "C" fn run(data: *mut c_void) -> c_int {
        // SAFETY: By the requirements of this function, we take the box over.
        let body = unsafe { <KBox<F> as ForeignOwnable>::from_foreign(data) };
        KBox::into_inner(body)(&Current {
            _not_send: NotThreadSafe,
        });
        // The caller that stops the thread holds a reference, so the thread may end before it is
        // told to.
        RAN
    }

    /// # Safety
    ///
    /// To be called once, and instead of `run`, with a pointer of `KBox<F>::into_foreign`.
    unsafe fn discard(data: *mut c_void) {
        // SAFETY: By the requirements of this function, we take the box over.
        drop(unsafe { <KBox<F> as ForeignOwnable>::from_foreign(data) });
    }
}

/// The result of a thread that has run. One that was stopped before answers `-EINTR`.
const RAN: c_int = 0;

impl Kthread {
    /// Starts a thread that runs `body`.
    pub fn spawn<F>(name: &CStr, body: F) -> Result<Self>
    where
        F: FnOnce(&Current) + Send + 'static,
    {
        let data = KBox::new(body, GFP_KERNEL)?.into_foreign();
        // SAFETY: `run` is called once with `data`, if at all. The name is copied.
        let task = from_err_ptr(unsafe {
            bindings::kthread_create(Some(Body::<F>::run), data, name.as_char_ptr())
        })
        .inspect_err(|_| {
            // SAFETY: The thread does not exist, so the box is still ours.
            unsafe { Body::<F>::discard(data) };
        })?;
        let task = NonNull::new(task).ok_or(ENOMEM)?;
        // The reference keeps the task when it ends early.
        //
        // SAFETY: `task` is a new kthread.
        unsafe {
            bindings::get_task_struct(task.as_ptr());
            bindings::wake_up_process(task.as_ptr());
        }
        // INVARIANT: As just done.
        Ok(Kthread {
            task,
            data,
            discard: Body::<F>::discard,
        })
    }

    /// Tells the thread to stop, wakes it, and waits for its end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Kthread {
    fn drop(&mut self) {
        // SAFETY: The task is a kthread to which we hold a reference; the call gives it up.
        let answer = unsafe { bindings::kthread_stop_put(self.task.as_ptr()) };
        if answer != RAN {
            // SAFETY: The thread has ended without a call of its function, so the data are ours.
            unsafe { (self.discard)(self.data) };
        }
    }
}
