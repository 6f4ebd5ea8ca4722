// SPDX-License-Identifier: GPL-2.0

//! Reliable connections between queue pairs of one engine: data and their completions.

mod budget;
mod data;
mod refused;
mod retry;
