# SPDX-License-Identifier: GPL-2.0
"""Tests of the suite that the lab's software comes from (qemu/labkit/suite.py)."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
ASK = """
import json
from labkit import arch, debian, nic, packages, programs, suite, tree
print(json.dumps([debian.SUITE, debian.apt_options(), arch.AMD64.directory("apt"), tree.PACKAGES, nic.PACKAGES,
                  packages.suite_version("1.2"), str(programs.products())]))
"""


def lab(name, *words):
    """A process whose environment names a suite."""
    environment = os.environ | {"FERRULE_SUITE": name, "PYTHONPATH": str(CHECKOUT / "qemu")}
    return subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(name):
    """The settings of the lab's parts in an environment that names a suite."""
    return json.loads(lab(name, sys.executable, "-c", ASK).stdout)


class Suites(unittest.TestCase):
    def test_trixie_is_the_default_and_names_nothing(self):
        name, options, directory, names, _qemu, version, products = told("")
        self.assertEqual((name, directory, version), ("trixie", "apt", "1.2"))
        self.assertEqual(Path(products), CHECKOUT / "build")
        self.assertIn("gcc-14", names)
        self.assertFalse(any("Valid-Until" in option for option in options))

    def test_another_one_shares_no_name_with_it(self):
        name, options, directory, names, qemu, version, products = told("forky")
        self.assertEqual((name, directory, version), ("forky", "apt-forky", "1.2+forky"))
        self.assertEqual(Path(products), CHECKOUT / "build/forky")
        self.assertIn("gcc-16", names)
        self.assertNotIn("gcc-14", names)
        self.assertFalse([package for package in qemu if "backports" in package])
        self.assertTrue(any("Valid-Until" in option for option in options))

    def test_one_that_the_lab_does_not_know(self):
        done = lab("woody", CHECKOUT / "qemu/lab", "build")
        known = "trixie, forky, sid, experimental"
        self.assertEqual((done.returncode, done.stderr), (2, f"lab: FERRULE_SUITE=woody: the lab knows {known}\n"))

    def test_experimental_is_sid_and_more(self):
        name, options, directory, _names, qemu, *_ = told("experimental")
        self.assertEqual((name, directory), ("experimental", "apt-experimental"))
        self.assertFalse([package for package in qemu if "/" in package])
        done = lab("experimental", sys.executable, "-c", "from labkit import debian; print(*debian.sources(), sep='\\n')")
        self.assertEqual([line.split()[::2] for line in done.stdout.splitlines()],
                         [["deb", "sid"], ["deb", "experimental"], ["deb-src", "sid"]])

    def test_for_trixie_alone(self):
        for words in (("build", "--arch", "arm64"), ("run", "--arch", "arm64", "--", "true"), ("bundle",)):
            with self.subTest(words=words):
                done = lab("forky", CHECKOUT / "qemu/lab", *words)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"^lab: .* is for trixie, and FERRULE_SUITE is forky\n$")


if __name__ == "__main__":
    unittest.main()
