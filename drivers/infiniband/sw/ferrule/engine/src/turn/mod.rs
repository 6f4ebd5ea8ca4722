// SPDX-License-Identifier: GPL-2.0

//! What a queue pair does when it is its turn or the control path changes it.

pub(crate) mod modify;
pub(crate) mod send;
pub(crate) mod ud_send;
