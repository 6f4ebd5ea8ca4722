// SPDX-License-Identifier: GPL-2.0

//! Captures: files that have each frame which the switch has got, as pcapng.
//!
//! - `pcapng`: the blocks of such a file
//! - `recorder`: the frames' way into the file

pub mod pcapng;
pub mod recorder;
