// SPDX-License-Identifier: GPL-2.0

//! Where a fuzzer begins.

/// Writes what the fuzzer begins with to the directory that it names by `SEEDS`.
#[allow(dead_code)]
pub fn write<'a>(seeds: impl IntoIterator<Item = &'a Vec<u8>>) {
    let Some(directory) = std::env::var_os("SEEDS") else {
        return;
    };
    let directory = std::path::Path::new(&directory);
    for (number, seed) in seeds.into_iter().enumerate() {
        std::fs::write(directory.join(format!("{number:03}")), seed).unwrap();
    }
}
