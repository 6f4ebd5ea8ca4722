# SPDX-License-Identifier: GPL-2.0
"""Unit tests of Kbuild: kernels that the module cannot be for are refused in one line that says why. An external module
has no Kconfig that anybody reads, so these are the dependencies in the driver's Kconfig. And files that a build leaves in a
checkout are none of its sources."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import module

CHECKOUT = Path(__file__).resolve().parents[2]
KBUILD = CHECKOUT / "Kbuild"
KCONFIG = CHECKOUT / "drivers/infiniband/sw/ferrule/Kconfig"
FIT = {"SRCARCH": "x86", "CONFIG_MODULES": "y", "CONFIG_RUST": "y", "CONFIG_INFINIBAND_USER_ACCESS": "m",
       "CONFIG_INFINIBAND_VIRT_DMA": "y", "CONFIG_INFINIBAND_ON_DEMAND_PAGING": "y", "CONFIG_PCI_MSI": "y"}


def read(config: dict[str, str]) -> subprocess.CompletedProcess:
    """The output of make for a kernel's configuration, which it gets as kbuild does: as variables."""
    words = [f"{name}={value}" for name, value in config.items()]
    return subprocess.run(["make", "--dry-run", "--file", "Kbuild", "obj=.", "src=.", *words, "clean-files"], cwd=CHECKOUT,
                          capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})


class Refused(unittest.TestCase):
    def refused(self, config: dict[str, str], why: str) -> None:
        lines = read(config).stderr.splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], rf"^Kbuild:\d+: \*\*\* This kernel .*{why}.*  Stop\.$")

    def test_each_dependency_of_kconfig(self):
        dependencies = re.findall(r"^\tdepends on (!?)(\w+)$", KCONFIG.read_text(), re.MULTILINE)
        # One more is that of the architecture.
        self.assertEqual(len(dependencies) + 1, KCONFIG.read_text().count("depends on"))
        for absent, name in dependencies:
            with self.subTest(name):
                self.refused({**FIT, f"CONFIG_{name}": "y" if absent else ""}, f"CONFIG_{name}")

    def test_architectures(self):
        self.assertIn("\tdepends on (X86_64 && !UML) || ARM64\n", KCONFIG.read_text())
        for arch in ("arm", "powerpc", "riscv", "s390", "um"):
            with self.subTest(arch):
                self.refused({**FIT, "SRCARCH": arch}, arch)

    def test_others_are_not(self):
        for arch in ("x86", "arm64"):
            with self.subTest(arch):
                self.assertNotIn("This kernel", read({**FIT, "SRCARCH": arch}).stderr)


class Made(unittest.TestCase):
    def test_what_is_made_in_a_checkout_is_no_source(self):
        made = re.findall(r"\$\(fe-bindings\)/(\S+)", "".join(re.findall(r"^targets \+= .*\n", KBUILD.read_text(), re.MULTILINE)))
        self.assertIn("generated.rs", made)
        ignored = (CHECKOUT / ".gitignore").read_text().splitlines()
        for name in made:
            with self.subTest(name):
                self.assertTrue(any(Path("rust/bindings", name).match(product) for product in module.PRODUCTS))
                self.assertIn(f"/rust/bindings/{name}", ignored)


if __name__ == "__main__":
    unittest.main()
