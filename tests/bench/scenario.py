# SPDX-License-Identifier: GPL-2.0
"""The parts of a run of the benchmarks."""

from dataclasses import dataclass
from fnmatch import fnmatch

from ways import Limits, Way

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Measure:
    """The meaning of the figures of one name."""

    title: str
    unit: str
    x: str = ""                     # what they are drawn over, where they make a curve
    less_is_better: bool = True


# The limits of a guest, as limits.c prints them.
LIMITS = {
    "system_call": Measure("system call", "us"),
    "core_to_core": Measure("core to core and back", "us"),
    "memcpy_64KiB": Measure("memcpy, 64 KiB", "MiB/s", "", False),
    "memcpy_1MiB": Measure("memcpy, 1 MiB", "MiB/s", "", False),
    "tmpfs_64KiB": Measure("tmpfs file read, 64 KiB", "MiB/s", "", False),
    "tmpfs_1MiB": Measure("tmpfs file read, 1 MiB", "MiB/s", "", False),
}


@dataclass(frozen=True)
class Scenario:
    """A kind of run: guests, the measurements there, and their names."""

    about: str
    lab: tuple[str, ...]            # options of `qemu/lab run`
    ways: tuple[Way, ...]
    measures: dict[str, Measure]
    drawn: tuple[str, ...] = ()     # the measures of its picture, where not all
    nodes: int = 1                  # guests; of two, the second runs what the first one tells it
    drivers: tuple[str, ...] = ("ferrule", "rxe")   # in turn; of two guests, "ferrule-rxe" names the client's first

    def has(self, patterns: list[str]) -> bool:
        """Whether there is a way whose measure matches one of the patterns; empty: there is."""
        return not patterns or any(fnmatch(way.measure, pattern) for way in self.ways for pattern in patterns)

    def chosen(self, patterns: list[str], sizes: list[int]) -> list[Way]:
        """The ways whose measures match one of the patterns, and for curves over bytes only these sizes; empty: all.

        The limits are always there: other figures are held against them.
        """
        return [way for way in self.ways
                if isinstance(way, Limits)
                or (not patterns or any(fnmatch(way.measure, pattern) for pattern in patterns))
                and (not sizes or self.measures[way.measure].x != "bytes" or way.x in sizes)]
