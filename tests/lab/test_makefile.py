# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the Makefile: the words that it hands on to kbuild, and to programs in the build tree."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def make(*words: str) -> list[str]:
    """The lines that make prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "FERRULE_TESTS")}
    return subprocess.run(["make", "--no-print-directory", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True,
                          env=environment).stdout.splitlines()


class OwnKernel(unittest.TestCase):
    """With KDIR=, which is for users: a Makefile that prints its targets is in the place of the kernel's."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.kdir = directory.name
        Path(self.kdir, "Makefile").write_text("modules modules_install:\n\t@echo $@ $(FERRULE_TESTS)\n")

    def test_modules_of_tests_are_neither_built_nor_installed(self):
        self.assertEqual(make("--silent", f"KDIR={self.kdir}", "all", "modules_install"), ["modules n", "modules_install n"])

    def test_they_are_built_on_demand(self):
        self.assertEqual(make("--silent", f"KDIR={self.kdir}", "FERRULE_TESTS=y"), ["modules y"])


class Fuzz(unittest.TestCase):
    def test_inputs_are_kept_on_demand(self):
        for target in ("fuzz", "fuzz-nic"):
            with self.subTest(target):
                self.assertIn(" KEEP=1 ", make("--dry-run", target, "KEEP=1")[0])


if __name__ == "__main__":
    unittest.main()
