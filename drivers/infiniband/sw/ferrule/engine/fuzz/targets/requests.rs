// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../../tests/fuzz/mod.rs"]
mod fuzz;
#[path = "../../tests/sim/mod.rs"]
mod sim;

libfuzzer_sys::fuzz_target!(
    init: fuzz::write_seeds(fuzz::requests::seeds()),
    |data: &[u8]| fuzz::requests::run(data)
);
