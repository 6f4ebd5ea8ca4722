// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of the tracepoints, which Rust calls through rust_do_trace_*.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "ferrule_trace.h"
