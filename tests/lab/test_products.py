# SPDX-License-Identifier: GPL-2.0
"""Tests of programs on the host: each runs what was just built, in the directory of the lab's suite."""

import contextlib
import importlib.util
import sys
import unittest
import unittest.mock
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/nic")]

import guests
from labkit import cli

MADE = Path("/made/for/forky")


def kernels():
    """tests/kernels, whose name has no ending."""
    loader = SourceFileLoader("kernels", str(CHECKOUT / "tests/kernels"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernels", loader))
    sys.modules["kernels"] = module
    loader.exec_module(module)
    return module


class Directory(unittest.TestCase):
    def setUp(self):
        self.patch(cli.programs, "products", lambda *_: MADE)

    def patch(self, module, name, value):
        patch = unittest.mock.patch.object(module, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def test_of_programs_in_the_build_tree(self):
        self.patch(cli.tree, "command", lambda *_: ["sh", "-c", 'test "$FERRULE_BUILD" = /made/for/forky'])
        self.assertEqual(cli.execute(SimpleNamespace(argv=[], kernel="none")), 0)

    def test_of_guests_beside_a_ferrule_nic(self):
        for module, name in ((guests.programs, "build"), (guests.module, "build"), (guests.provider, "build"),
                             (guests.kernel, "stock"), (guests.guest, "new_directory"), (guests.Host, "restart")):
            self.patch(module, name, lambda *_: None)
        self.patch(guests.accel, "choose", lambda _qemu: (None, None))
        self.patch(guests, "note", lambda _text: None)
        host = guests.Host(SimpleNamespace(qemu=None), contextlib.ExitStack(), "ferrule")
        self.assertIn((MADE, "build"), host.plan.parts)

    def test_of_all_guests_beside_a_ferrule_nic(self):
        """None of these scripts has a directory of builds but the one of the lab's suite."""
        for file in sorted((CHECKOUT / "tests/nic").glob("*.py")):
            lines = [line for line in file.read_text().splitlines() if '"build"' in line]
            self.assertEqual([line for line in lines if 'programs.products(), "build"' not in line], [], file.name)


class Kernels(unittest.TestCase):
    def test_programs_that_do_not_compile_are_the_result(self):
        module = kernels()
        ran = []

        def lab(_first, *words):
            ran.append(words[0])
            return (1 if words[-1] == "tests" else 0), ""

        with unittest.mock.patch.object(module, "lab", lab):
            row = module.attempt("7.3 amd64")
        self.assertEqual((row.builds, row.passes, ran), ("yes", "no: the test programs do not compile", ["build", "build"]))


if __name__ == "__main__":
    unittest.main()
