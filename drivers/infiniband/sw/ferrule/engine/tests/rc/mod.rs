// SPDX-License-Identifier: GPL-2.0

//! Reliable connections between queue pairs of one engine: what arrives, and how it is told.

mod budget;
mod data;
mod refused;
mod retry;
