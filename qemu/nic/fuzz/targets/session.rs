// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../../tests/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(
    init: fuzz::write_seeds(),
    |data: &[u8]| {
        fuzz::run(data);
    }
);
