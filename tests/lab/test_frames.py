# SPDX-License-Identifier: GPL-2.0
"""Tests of what reads stack frames from a module's code (qemu/labkit/frames.py)."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import frames
from labkit.errors import LabError

SMALL = """
0000000000000010 <ferrule_helper_one>:
  10:\tpush   %rbp
  11:\tsub    $0x88,%rsp
  18:\tcall   30 <__x86_return_thunk>
"""
LARGE = """
0000000000000040 <<ferrule_engine[fa66ffe45fa23591]::engine::Engine<ferrule[d51df0c69e45abcd]::Kernel>>::work>:
  40:\tpush   %rbp
  41:\tpush   %r15
  43:\tsub    $0x3f1,%rsp
"""
SETUP = """
0000000000000080 <kernel_ext[de0f951f81c8680e]::boxed::fill::<u64, ferrule[d51df0c69e45abcd]::new::{closure#0}>>:
  80:\tsub    $0x7f8,%rsp
"""
ARM64 = """
0000000000000010 <ferrule_helper_one>:
  10:\tpaciasp
  14:\tstp\tx29, x30, [sp, #-48]!
  18:\tstp\tx19, x20, [sp, #16]
  1c:\tsub\tsp, sp, #0x20
  20:\tsub\tx0, x1, #0x20
"""


class Frames(unittest.TestCase):
    def test_pushes_and_subtractions_count(self):
        self.assertEqual(frames.measure(SMALL), {"ferrule_helper_one": 0x90})

    def test_names_have_no_hashes(self):
        self.assertEqual(list(frames.measure(LARGE)), ["<ferrule_engine::engine::Engine<ferrule::Kernel>>::work"])

    def test_steps_add_up(self):
        self.assertEqual(frames.measure(SETUP + "  87:\tsub    $0x1000,%rsp\n")
                         .popitem()[1], 0x7f8 + 0x1000)

    def test_arm64(self):
        self.assertEqual(frames.measure(ARM64), {"ferrule_helper_one": 48 + 32})
        shifted = ARM64 + "  24:\tsub\tsp, sp, #0x1, lsl #12\n"
        self.assertEqual(frames.measure(shifted)["ferrule_helper_one"], 48 + 32 + 4096)
        self.assertEqual(len(frames.excesses(frames.measure(ARM64 + "  24:\tsub\tsp, sp, x0\n"))), 1)

    def test_the_data_path_has_a_kibibyte(self):
        self.assertEqual(frames.excesses(frames.measure(SMALL)), [])
        [line] = frames.excesses(frames.measure(LARGE))
        self.assertIn("1025 bytes", line)
        self.assertIn("engine::Engine", line)

    def test_setup_has_two(self):
        self.assertEqual(frames.excesses(frames.measure(SETUP)), [])
        self.assertEqual(len(frames.excesses(frames.measure(SETUP.replace("0x7f8", "0x801")))), 1)

    def test_a_size_that_varies_is_too_much(self):
        self.assertEqual(len(frames.excesses(frames.measure(SMALL + "  1d:\tsub    %rax,%rsp\n"))), 1)

    def test_all_functions_that_are_too_large_are_named(self):
        with self.assertRaisesRegex(LabError, "(?s)too large.*::work"):
            frames.check("building", SMALL + LARGE)

    def test_nothing_found_is_an_error(self):
        with self.assertRaises(LabError):
            frames.check("building", "")


if __name__ == "__main__":
    unittest.main()
