// SPDX-License-Identifier: GPL-2.0

//! The work of a queue pair when its turn comes or the control path changes it.

pub(crate) mod large;
pub(crate) mod modify;
pub(crate) mod outcome;
pub(crate) mod peer;
pub(crate) mod send;
pub(crate) mod ud_send;
