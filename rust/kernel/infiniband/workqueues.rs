// SPDX-License-Identifier: GPL-2.0

//! The work queues of a module: for completions, and for each program that pages on demand, for its
//! page faults.
//!
//! C header: `include/linux/workqueue.h`.

use core::ptr::NonNull;

use kernel::{
    ffi::c_uint,
    mm::Mm,
    prelude::*,
    workqueue::Queue, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::bindings;

/// That the work queues are there. Dropping it waits for what is under way.
pub struct Workqueues(());

impl Workqueues {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// They are started once, before all devices of the module, and dropped after them.
    pub unsafe fn start() -> Result<Self> {
        // SAFETY: By the requirements of this function nobody else starts them.
        if unsafe { bindings::workqueues_start() } {
            Ok(Workqueues(()))
        } else {
            Err(ENOMEM)
        }
    }
}

impl Drop for Workqueues {
    fn drop(&mut self) {
        // SAFETY: They were started, and nobody enqueues any more, for all users belong to devices.
        unsafe { bindings::workqueues_stop() };
    }
}

/// A use of the work queue for the page faults of one address space. Few of them wait at a time,
/// and those of other address spaces do not wait for these.
///
/// # Invariants
///
/// It is a use that the helper has given, and the module has started its queues.
pub(crate) struct FaultQueue(NonNull<bindings::fault_queue>);

// SAFETY: A use may be given back by any thread.
unsafe impl Send for FaultQueue {}

// SAFETY: A shared reference answers the queue alone, which any thread may use.
unsafe impl Sync for FaultQueue {}

impl FaultQueue {
    /// That of `mm`, for one more region. Process context.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` in a module that has not started the queues; `ENOMEM`, also if there are too
    /// many.
    ///
    /// # Safety
    ///
    /// It is for memory that belongs to a device of the module.
    pub(crate) unsafe fn new(mm: &Mm) -> Result<Self> {
        // SAFETY: It is not used here.
        if unsafe { get(bindings::WORKQUEUE_ENDS) }.is_none() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The queues have been started, and are stopped after the last device has gone. By
        // the requirements of this function, so has this by then, or it is about to go in a work of
        // its queue, which is waited for. The helper only compares the pointer with others.
        let faults = unsafe { bindings::fault_queue_get(mm.as_raw()) };
        // INVARIANT: The helper has given a use.
        NonNull::new(faults).map(Self).ok_or(ENOMEM)
    }

    /// The queue.
    pub(crate) fn queue(&self) -> &Queue {
        // SAFETY: By the type invariants, the queue is there as long as this use.
        unsafe { Queue::from_raw(bindings::fault_queue_workqueue(self.0.as_ptr())) }
    }
}

impl Drop for FaultQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, there is a use to give back. Memory that is paged on
        // demand is dropped in process context.
        unsafe { bindings::fault_queue_put(self.0.as_ptr()) };
    }
}

/// The queue of events of completion queues. `None` in a module that has not started the queues.
///
/// # Safety
///
/// It is not used any more when the last device of the module has gone.
pub(crate) unsafe fn completions() -> Option<&'static Queue> {
    // SAFETY: By the requirements of this function.
    unsafe { get(bindings::WORKQUEUE_CQ) }
}

/// # Safety
///
/// As for [`completions`], with the number of a queue.
unsafe fn get(which: c_uint) -> Option<&'static Queue> {
    // SAFETY: By the requirements of this function, it is the number of a queue.
    let queue = unsafe { bindings::workqueue(which) };
    // SAFETY: A queue that was started stays until the last device has gone, and is not used later.
    (!queue.is_null()).then(|| unsafe { Queue::from_raw(queue) })
}
