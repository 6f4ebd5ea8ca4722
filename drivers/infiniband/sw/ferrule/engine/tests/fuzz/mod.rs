// SPDX-License-Identifier: GPL-2.0

//! A string of bytes tells what a program does to its rings and doorbells, and a peer by its
//! packets.
//!
//! Each target makes an engine, reads the bytes as a list of things to do, and checks what has to
//! hold whatever they are. `tests/corpus.rs` runs them with the corpus and with random bytes;
//! `fuzz/` lets a fuzzer look for bytes that reach further.

#![allow(dead_code, unreachable_pub)]

pub mod packets;
pub mod queues;
pub mod requests;

/// Writes what a target begins with to the directory that a fuzzer names by `SEEDS`.
pub fn write_seeds(seeds: Vec<Vec<u8>>) {
    let Some(directory) = std::env::var_os("SEEDS") else {
        return;
    };
    for (number, seed) in seeds.iter().enumerate() {
        let file = std::path::Path::new(&directory).join(format!("{number:03}"));
        std::fs::write(file, seed).expect("cannot write a seed");
    }
}

/// Bytes that are read from the front; zeroes follow the last one.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// The next byte, if there is one.
    pub fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let length = N.min(self.0.len());
        let (head, rest) = self.0.split_at(length);
        array[..length].copy_from_slice(head);
        self.0 = rest;
        array
    }

    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// Reads at most `limit` things to do, each a byte that says what and as many others as `step`
/// takes.
pub fn each(data: &[u8], limit: usize, mut step: impl FnMut(u8, &mut Input<'_>)) {
    let mut input = Input(data);
    for _ in 0..limit {
        let Some(what) = input.next() else {
            break;
        };
        step(what, &mut input);
    }
}
