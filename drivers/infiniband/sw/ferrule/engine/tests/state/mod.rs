// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair: transitions and their attributes, flush, drain, reset.

mod flush;
mod life;
mod numbers;
mod transitions;
