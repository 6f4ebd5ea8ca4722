// SPDX-License-Identifier: GPL-2.0

//! A program's advice about memory.

use core::ptr::NonNull;

use kernel::{
    error::from_err_ptr,
    prelude::*, //
};
use kernel_ext::task;

use crate::{
    bindings,
    page_requests::Purpose, //
};

/// A program's advice about memory: `ibv_advise_mr()`.
///
/// # Invariants
///
/// `file` is valid, and of a device whose `disassociate_srcu` is held.
pub struct Advice<'a> {
    /// For what the memory is going to be used.
    pub purpose: Purpose,
    /// The memory is to be there when the call returns.
    pub now: bool,
    pub(crate) ranges: &'a [bindings::ib_sge],
    pub(crate) file: NonNull<bindings::ib_uverbs_file>,
}

impl Advice<'_> {
    /// The memory: of each range the local key, the address, and the length in bytes.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let of = |sge: &bindings::ib_sge| (sge.lkey, sge.addr, sge.length.into());
        self.ranges.iter().map(of)
    }

    /// Whether to go on with it.
    ///
    /// # Errors
    ///
    /// `EINTR` if the program has been killed; `EIO` if the device goes.
    pub(crate) fn check_wanted(&self) -> Result {
        if task::is_killed() {
            return Err(EINTR);
        }
        // SAFETY: By the type invariants.
        from_err_ptr(unsafe { bindings::ib_uverbs_get_ucontext_file(self.file.as_ptr()) })?;
        Ok(())
    }
}
