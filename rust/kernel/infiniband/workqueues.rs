// SPDX-License-Identifier: GPL-2.0

//! The work queues of a module: for page faults of on-demand memory, and for completions.
//!
//! C header: `include/linux/workqueue.h`.

use kernel::{
    ffi::c_uint,
    prelude::*,
    workqueue::Queue, //
};

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

/// The queue of page faults. `None` in a module that has not started the queues.
///
/// # Safety
///
/// It is not used any more when the last device of the module has gone.
pub(crate) unsafe fn paging() -> Option<&'static Queue> {
    // SAFETY: By the requirements of this function.
    unsafe { get(bindings::WORKQUEUE_PAGING) }
}

/// The queue of events of completion queues. `None` in a module that has not started the queues.
///
/// # Safety
///
/// As for [`paging`].
pub(crate) unsafe fn completions() -> Option<&'static Queue> {
    // SAFETY: By the requirements of this function.
    unsafe { get(bindings::WORKQUEUE_CQ) }
}

/// # Safety
///
/// As for [`paging`], with the number of a queue.
unsafe fn get(which: c_uint) -> Option<&'static Queue> {
    // SAFETY: By the requirements of this function, it is the number of a queue.
    let queue = unsafe { bindings::workqueue(which) };
    // SAFETY: A queue that was started stays until the last device has gone, and is not used later.
    (!queue.is_null()).then(|| unsafe { Queue::from_raw(queue) })
}
