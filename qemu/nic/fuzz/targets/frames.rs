// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../../tests/fuzz/frames.rs"]
mod frames;
#[path = "../../tests/fuzz/write.rs"]
mod write;

libfuzzer_sys::fuzz_target!(
    init: write::write(&frames::seeds()),
    |data: &[u8]| {
        frames::run(data);
    }
);
