# SPDX-License-Identifier: GPL-2.0
"""An architecture of guests: its names, and QEMU's machine for it.

The build tree's own is amd64. Software for another is compiled across, in a tree of its own (`tree.tools`).
"""

from dataclasses import dataclass

from . import suite


@dataclass(frozen=True)
class Arch:
    """One architecture."""

    name: str       # Debian's, in the names of kernels, too
    kbuild: str     # the kernel's
    triplet: str    # GNU's, which Debian has directories of libraries by
    qemu: str       # the program
    machine: str
    console: str
    cpu: str        # the CPU model under TCG, if it does not depend on QEMU's version

    @property
    def crossed(self) -> bool:
        """Whether software for it is compiled by another one's programs."""
        return self is not AMD64

    def compiler(self, name: str) -> str:
        """The program that Debian has for it of a compiler, e.g. gcc-14."""
        return f"{self.triplet}-{name}" if self.crossed else name

    def directory(self, name: str) -> str:
        """The name of a directory of work or an entry for it, in the lab's suite."""
        name = suite.CHOSEN.directory(name)
        return f"{name}-{self.name}" if self.crossed else name


AMD64 = Arch("amd64", "x86", "x86_64-linux-gnu", "qemu-system-x86_64", "q35", "ttyS0", "")
ARM64 = Arch("arm64", "arm64", "aarch64-linux-gnu", "qemu-system-aarch64", "virt,gic-version=3", "ttyAMA0",
             # A processor of clouds that has atomic instructions, and no signed pointers, which TCG is slow with.
             "neoverse-n1")

ALL = {arch.name: arch for arch in (AMD64, ARM64)}
