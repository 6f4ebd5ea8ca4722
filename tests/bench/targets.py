# SPDX-License-Identifier: GPL-2.0
"""The targets that ferrule has to reach, and the verdict on a run."""

from dataclasses import dataclass

import real_time
import two_guests
from host import Missing, Run, in_words
from scenario import KIB, MIB


@dataclass(frozen=True)
class Target:
    """A bound for one figure."""

    measure: str
    x: int | None = None
    series: str = ""

    def asked(self, run: Run) -> str:
        """The bound, in words."""
        raise NotImplementedError

    def found(self, run: Run) -> tuple[str, bool]:
        """The figure in the bound's terms, and whether it is reached.

        Raises Missing when there is no figure.
        """
        raise NotImplementedError

    def name(self, run: Run) -> str:
        """The figure that is bounded, in words."""
        return run.label(self.measure, self.series, self.x)

    def ours(self, run: Run) -> float:
        return run.median("ferrule", self.measure, self.series, self.x)


@dataclass(frozen=True)
class TimesRxe(Target):
    """So many times better than rdma_rxe."""

    factor: float = 1

    def asked(self, run: Run) -> str:
        return f"{self.factor:g} times better than rxe"

    def found(self, run: Run) -> tuple[str, bool]:
        better = run.better(self.measure, self.series, self.x)
        return f"{better:.1f} times", better >= self.factor


@dataclass(frozen=True)
class TimesLimit(Target):
    """At most so many times what the guest itself does, or, where more is better, at least. Or so many times another
    measure of a driver's."""

    limit: str = ""
    factor: float = 1
    driver: str = "guest"

    def asked(self, run: Run) -> str:
        bound = "at most" if run.measures[self.measure].less_is_better else "at least"
        return f"{bound} {self.factor:g} × {run.measures[self.limit].title}"

    def found(self, run: Run) -> tuple[str, bool]:
        ratio = self.ours(run) / run.median(self.driver, self.limit)
        less = run.measures[self.measure].less_is_better
        return f"{ratio:.2f} ×", ratio <= self.factor if less else ratio >= self.factor


@dataclass(frozen=True)
class TimesRxeOrLimit(TimesRxe):
    """So many times better than rdma_rxe, or such a part of a limit: the smaller of both, where more is better."""

    limit: str = ""
    part: float = 1

    def asked(self, run: Run) -> str:
        return f"{super().asked(run)}, or {self.part:g} × {run.measures[self.limit].title}"

    def found(self, run: Run) -> tuple[str, bool]:
        found, reached = super().found(run)
        part = self.ours(run) / run.median("guest", self.limit)
        return f"{found}, {part:.2f} ×", reached or part >= self.part


@dataclass(frozen=True)
class NotSlower(Target):
    """With rdma_rxe at one end, not slower than with it at both."""

    driver: str = ""

    def name(self, run: Run) -> str:
        return f"{super().name(run)}, {self.driver}"

    def asked(self, run: Run) -> str:
        return "not slower than rxe"

    def found(self, run: Run) -> tuple[str, bool]:
        better = run.better(self.measure, self.series, self.x, self.driver)
        return f"{better:.2f} times", better >= 1


@dataclass(frozen=True)
class AtMost(Target):
    """Not more than so much, or less. A thousandth does not count: set-up, too, takes longer for longer runs."""

    most: float = 0
    below: bool = False

    def asked(self, run: Run) -> str:
        return f"{'below' if self.below else 'at most'} {self.most:g} {run.measures[self.measure].unit}"

    def found(self, run: Run) -> tuple[str, bool]:
        value = self.ours(run)
        return f"{value:.4g} {run.measures[self.measure].unit}", value < self.most if self.below else round(value, 3) <= self.most


@dataclass(frozen=True)
class AtLeast(Target):
    """So much or more."""

    least: float = 0

    def asked(self, run: Run) -> str:
        return f"at least {self.least:.4g} {run.measures[self.measure].unit}"

    def found(self, run: Run) -> tuple[str, bool]:
        value = self.ours(run)
        return f"{value:.4g} {run.measures[self.measure].unit}", value >= self.least


@dataclass(frozen=True)
class NotAbove(Target):
    """Not more than so many per cent above another series."""

    base: str = ""
    percent: float = 0

    def asked(self, run: Run) -> str:
        return f"as {self.base}, and {self.percent:g} % at most"

    def found(self, run: Run) -> tuple[str, bool]:
        value, base = self.ours(run), run.median("ferrule", self.measure, self.base)
        more = (value / base - 1) * 100
        return f"{value:.4g} after {base:.4g}: {more:+.1f} %", more <= self.percent


@dataclass(frozen=True)
class TimesFewer(Target):
    """At least so many times what `fewer` reach."""

    fewer: int = 1
    factor: float = 1

    def asked(self, run: Run) -> str:
        return f"{self.factor:g} × {in_words(self.fewer, run.measures[self.measure].x)}"

    def found(self, run: Run) -> tuple[str, bool]:
        ratio = self.ours(run) / run.median("ferrule", self.measure, self.series, self.fewer)
        return f"{ratio:.2f} ×", ratio >= self.factor


ONE_GUEST = (
    TimesRxe("send_lat", factor=10),
    TimesLimit("send_lat", limit="system_call", factor=12),
    TimesRxe("write_lat", factor=10),
    TimesLimit("write_lat", limit="system_call", factor=12),
    TimesRxe("read_lat", factor=5),
    TimesRxe("atomic_lat", factor=5),
    TimesRxe("write_bw", 64 * KIB, factor=5),
    TimesRxe("read_bw", 64 * KIB, factor=5),
    TimesRxe("send_bw", 64 * KIB, factor=5),
    TimesRxe("write_bw", MIB, factor=6),
    TimesLimit("write_bw", MIB, limit="tmpfs_1MiB", factor=0.6),
    TimesRxe("read_bw", MIB, factor=6),
    TimesLimit("read_bw", MIB, limit="tmpfs_1MiB", factor=0.6),
    TimesRxe("write_rate", factor=8),
    TimesRxe("write_rate_list", factor=20),
    TimesRxe("nvme_4k", factor=2),
    TimesRxe("nvme_1m", factor=2),
    AtMost("calls_write_bw", most=0.01, below=True),
    AtMost("calls_read_bw", most=0.01, below=True),
    AtMost("calls_write_rate", most=0.01, below=True),
    AtMost("calls_send_bw", most=1),
    AtMost("calls_send_lat", most=1),
    AtMost("calls_write_lat", most=1),
    AtMost("calls_read_lat", most=1),
    AtMost("calls_atomic_lat", most=1),
    # A slot more in a thousand messages is no other behaviour: the report itself enters the engine.
    NotAbove("idle_slots", series="own process", base="alone", percent=0.1),
    NotAbove("idle_slots", series="others", base="alone", percent=0.1),
    NotAbove("idle_time", series="own process", base="alone", percent=15),
    NotAbove("idle_time", series="others", base="alone", percent=15),
    AtMost("qp_memory", most=16),
)

# In MiB/s.
GIGABYTES_2 = 2e9 / MIB

BANDWIDTHS = ("write_bw", "send_bw", "read_bw")

WIRE = (
    *(TimesRxeOrLimit(measure, factor=3, limit="iperf_udp", part=0.7)
      for measure in (*BANDWIDTHS, "send_bw_near", "send_bw_events")),
    TimesLimit("send_bw_events_4", limit="send_bw_events", driver="ferrule", factor=1.2),
    TimesRxe("read_lat", factor=3),
    TimesLimit("read_lat", limit="echo", factor=1),
    *(TimesRxe(measure, factor=2)
      for measure in ("loss_write_bw", "loss_send_bw", "loss_read_bw", "loss_send_bw_events")),
    *(NotSlower(measure, driver=driver) for measure in (*BANDWIDTHS, "read_lat")
      for driver in ("ferrule-rxe", "rxe-ferrule")),
)

MANY = (
    *(TimesFewer(measure, 2, fewer=1, factor=factor)
      for measure, factor in (("many_64k", 1.6), ("many_4k", 1.2), ("many_8", 1),
                              ("many_threads_64k", 1.6), ("many_threads_4k", 1.2), ("many_threads_8", 1),
                              ("many_kernel_64k", 1.6), ("many_kernel_4k", 1.2))),
    *(TimesFewer(measure, 8, fewer=2, factor=0.9) for measure in ("many_64k", "many_4k", "many_8")),
)

REAL_TIME = (
    *(AtMost("late_doorbells", count, most=30) for count in real_time.DOORBELLS),
    AtMost("late_requests", most=30),
    *(AtMost("late_packets", size, most=150) for size in real_time.PACKETS),
    AtMost("late_contexts", most=30),
    *(AtMost("late_kernel_users", size, most=30) for size in real_time.KERNEL_USERS),
)

NIC_ONE_GUEST = (
    TimesRxe("write_bw", factor=20),
    TimesLimit("write_bw", limit="memcpy_1MiB", factor=1),
)

NIC_TWO_GUESTS = (
    *(bound for measure in ("write_bw", "send_bw", "read_bw")
      for bound in (TimesRxe(measure, factor=30), AtLeast(measure, least=GIGABYTES_2))),
    *(bound for measure in ("write_lat", "send_lat", "read_lat")
      for bound in (TimesRxe(measure, factor=5), AtMost(measure, most=245, below=True))),
)

# By the kind of run.
TARGETS = {"one-guest": ONE_GUEST, "many": MANY, **dict.fromkeys(two_guests.SCENARIOS, WIRE), "nic-1": NIC_ONE_GUEST,
           "nic-2": NIC_TWO_GUESTS, "real-time": REAL_TIME}


def judged(run: Run) -> list[tuple]:
    """The targets of what was to be measured, as rows of a table with a head."""
    rows = [("what has to be reached", "target", "is", "")]
    # Some ways of measuring tell several measures.
    wanted = {way.measure for way in run.scenario.chosen(run.options.only, run.options.sizes)}
    told = {row[2] for row in run.rows}
    for target in TARGETS[run.name]:
        if target.measure not in wanted | told:
            continue
        if run.options.sizes and target.x and target.x not in run.options.sizes:
            continue
        try:
            found, reached = target.found(run)
            verdict = "reached" if reached else "NOT reached"
        except Missing as missing:
            found, verdict = "no figure", f"not measured: {missing}"
        rows.append((target.name(run), target.asked(run), found, verdict))
    return rows
