# SPDX-License-Identifier: GPL-2.0
"""The suite of Debian's that the lab's software comes from: trixie, or the one that $FERRULE_SUITE names.

A suite's compilers fit its kernels, and its rdma-core its provider, so a lab has all of them from one suite. Nothing that
was made for one is taken for another: the suite is in the keys of the cache's entries, and here in the names of directories.
"""

import os
from dataclasses import dataclass

from .errors import UsageError


@dataclass(frozen=True)
class Suite:
    """One suite."""

    name: str
    title: str          # for a person
    compiler: str       # what its kernels are compiled with, and what the lab compiles C with
    backports: bool     # a released one has some
    minimum: tuple[str, ...] = ()   # what a guest needs that is no part of a minimal system any more
    base: str = ""      # the suite that has all packages that this one has not

    def newest(self, package: str) -> str:
        """apt's word for the newest version of a package, which may be in the backports."""
        return f"{package}/{self.name}-backports" if self.backports else package

    def directory(self, name: str) -> str:
        """The name of a directory of work or an entry for it."""
        return name if self is TRIXIE else f"{name}-{self.name}"

    @property
    def pockets(self) -> list[str]:
        """The parts of the archive that packages come from."""
        if self.base:
            return [self.base, self.name]
        return [self.name, f"{self.name}-backports"] if self.backports else [self.name]


# Packages of trixie's minimal system that the later ones leave out.
MINIMUM = ("bsdutils", "mount", "passwd")

TRIXIE = Suite("trixie", "Debian 13", "gcc-14", True)
FORKY = Suite("forky", "Debian 14", "gcc-16", False, MINIMUM)
SID = Suite("sid", "Debian unstable", "gcc-16", False, MINIMUM)
# Candidates of kernels. apt takes nothing from there unless it is told the version.
EXPERIMENTAL = Suite("experimental", "Debian experimental", "gcc-16", False, MINIMUM, SID.name)

ALL = {suite.name: suite for suite in (TRIXIE, FORKY, SID, EXPERIMENTAL)}

NAME = os.environ.get("FERRULE_SUITE") or TRIXIE.name
CHOSEN = ALL.get(NAME, TRIXIE)


def check() -> None:
    """See that the environment names a suite that the lab knows."""
    if NAME not in ALL:
        raise UsageError(f"FERRULE_SUITE={NAME}: the lab knows {', '.join(ALL)}")


def need_trixie(words: str) -> None:
    """Refuse words of a command line that the lab has for trixie alone."""
    if CHOSEN is not TRIXIE:
        raise UsageError(f"{words} is for {TRIXIE.name}, and FERRULE_SUITE is {NAME}")
