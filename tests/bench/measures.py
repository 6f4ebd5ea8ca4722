# SPDX-License-Identifier: GPL-2.0
"""What is measured: each measure's command, its figure, and what ferrule has to reach against rxe."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A perftest program with its options."""

    name: str           # in the table
    program: str
    size: int           # bytes
    count: int          # iterations
    unit: str           # "us", "MiB/s" or "k/s"; of "us" less is better
    target: float = 0   # how many times better than rxe; 0: no target

    @property
    def less_is_better(self) -> bool:
        return self.unit == "us"

    def figure(self, words: list[str]) -> float:
        """The figure in a row of perftest's results."""
        # Latency: size, iterations, t_min, t_max, t_typical, …; half the round trip.
        # Bandwidth: size, iterations, peak, average in MiB/s, and millions of messages a second.
        if self.unit == "us":
            return float(words[4])
        return float(words[3]) if self.unit == "MiB/s" else float(words[4]) * 1000


MEASURES = (
    Measure("SEND latency, 10 B", "ib_send_lat", 10, 3000, "us", 6),
    Measure("WRITE latency, 8 B", "ib_write_lat", 8, 3000, "us", 6),
    Measure("WRITE bandwidth, 64 KiB", "ib_write_bw", 65536, 3000, "MiB/s", 4),
    Measure("SEND bandwidth, 64 KiB", "ib_send_bw", 65536, 3000, "MiB/s"),
    Measure("WRITE rate, 8 B", "ib_write_bw", 8, 50000, "k/s"),
)

# Of tests/bench/limits.c, in words.
LIMITS = {
    "system_call": "system call",
    "core_to_core": "core to core and back",
    "memcpy_64KiB": "memcpy, 64 KiB",
    "memcpy_1MiB": "memcpy, 1 MiB",
}
