// SPDX-License-Identifier: GPL-2.0

//! Protection domains: a number that keys, queues and address handles have in common.
//!
//! A host with several engines finds by it the one that has them. A host with one engine may number
//! its domains as it likes.

use crate::base::table::{
    tops,
    Table, //
};

/// How many protection domains there can be.
pub const MAX_PD: u32 = 65536;

/// A protection domain.
#[derive(Debug, Default)]
pub struct Pd(());

/// All protection domains.
pub(crate) type PdTable<H> = Table<H, Pd, (), { tops(MAX_PD) }>;
