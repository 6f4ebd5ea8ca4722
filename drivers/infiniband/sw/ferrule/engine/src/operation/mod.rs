// SPDX-License-Identifier: GPL-2.0

//! The effects of operations, whether they come through memory or by packet, and how they end.

pub(crate) mod accept;
pub(crate) mod atomic;
pub(crate) mod atomic_write;
pub(crate) mod completion;
pub(crate) mod ending;
pub(crate) mod flush;
pub(crate) mod local_wr;
pub(crate) mod read;
pub(crate) mod request_segment;
pub(crate) mod uc_receive;
pub(crate) mod ud_receive;
pub(crate) mod unreliable;
