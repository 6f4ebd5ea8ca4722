# SPDX-License-Identifier: GPL-2.0
"""The host's part of `make bench` and `make study`: runs a scenario in a guest and keeps what it measured."""

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from scenarios import SCENARIOS

import node  # its directory is known since the scenarios were imported

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
LAB = CHECKOUT / "qemu/lab"
# As the guests have it.
TESTS = "/ferrule/tests"
# All that can be measured in turn, those of one guest first.
DRIVERS = tuple(dict.fromkeys(driver for scenario in SCENARIOS.values() for driver in scenario.drivers))
# The time that one thing may take before the guest is given up; hangs of single programs end much earlier.
SECONDS = 20


def parse(program: str, about: str, rounds: int, kinds: tuple[str, ...], argv: list[str]) -> argparse.Namespace:
    """The options that bench and study share."""
    parser = argparse.ArgumentParser(prog=f"tests/bench/{program}", description=about)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds of all drivers ({rounds})")
    if len(kinds) > 1:
        parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds, help="of runs (all)")
    parser.add_argument("--drivers", nargs="+", default=[], choices=DRIVERS,
                        help="in this order (all); of two guests, the client's is named first")
    parser.add_argument("--only", nargs="+", default=[], metavar="MEASURE",
                        help="measure this only; patterns such as 'write_*' work")
    parser.add_argument("--sizes", nargs="+", type=int, default=[], metavar="BYTES",
                        help="of the curves over sizes, measure these points only")
    parser.add_argument("--list", action="store_true", help="show the measures and measure nothing")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("at least one round")
    return options


def show_list(names: tuple[str, ...]) -> None:
    """Print the measures of the scenarios."""
    for name in names:
        scenario = SCENARIOS[name]
        print(f"{name}: {scenario.about}")
        width = max(map(len, scenario.measures))
        for measure in dict.fromkeys(way.measure for way in scenario.ways):
            if measure in scenario.measures:
                print(f"  {measure:{width}}  {scenario.measures[measure].title}")


class Missing(Exception):
    """There is no such figure."""


class Run:
    """One run of a scenario: the figures, and the guest."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.name, self.options = name, options
        self.scenario = SCENARIOS[name]
        self.measures = self.scenario.measures
        self.drivers = [driver for driver in options.drivers or self.scenario.drivers if driver in self.scenario.drivers]
        self.rows: list[tuple] = []         # round, driver, measure, series, x, value
        self.missing: list[str] = []
        self.guest = "an unknown guest"
        self.begun = time.monotonic()

    def measure(self) -> int:
        """Run the guests; returns the lab's status."""
        wanted = {name: getattr(self.options, name) for name in ("rounds", "only", "sizes")} | {"drivers": self.drivers}
        ways = len(self.scenario.chosen(self.options.only, self.options.sizes))
        limit = 300 + SECONDS * ways * self.options.rounds * len(self.drivers)
        peer = ("--nodes", 2, "--peer", f"python3 {TESTS}/guest/node.py {node.PORT}") if self.scenario.nodes > 1 else ()
        lab = [LAB, "run", "--device", "none", *peer, *self.scenario.lab, "--timeout", limit, "--",
               "python3", f"{TESTS}/bench/guest.py", self.name, json.dumps(wanted)]
        with subprocess.Popen([str(word) for word in lab], cwd=CHECKOUT, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as process:
            messages = threading.Thread(target=self.read_messages, args=(process.stderr,))
            messages.start()
            try:
                for line in process.stdout:
                    self.take(line)
            except BaseException:
                process.terminate()
                raise
            status = process.wait()
            messages.join()
        return status

    def read_messages(self, stream) -> None:
        for line in stream:
            if found := re.match(r"lab: (Linux \S+ under \w+)", line):
                self.guest = found[1]
            print(line.rstrip(), file=sys.stderr, flush=True)

    def take(self, line: str) -> None:
        """A line of the guest's."""
        try:
            told = json.loads(line)
        except ValueError:
            print(line.rstrip(), flush=True)
            return
        number, driver = told["round"], told["driver"]
        progress = (f"[{told['done']}/{told['total']}, {time.monotonic() - self.begun:.0f} s] "
                    f"{driver}, round {number}: ")
        if "reason" in told:
            what = self.label(told["measure"], told["series"], told["x"])
            reason = shortened(told["reason"])
            self.missing.append(f"{what}, {driver}, round {number}: {reason}")
            print(f"{progress}{what}: no figure: {reason}", flush=True)
        for measure, value, series, x in told.get("figures", ()):
            self.rows.append((number, driver, measure, series, x, value))
            print(f"{progress}{self.label(measure, series, x)} {value:.4g} {self.measures[measure].unit}", flush=True)

    def label(self, name: str, series: str = "", x: int | None = None) -> str:
        """Its name for a person."""
        measure = self.measures.get(name)
        if not measure:
            return name
        parts = [measure.title, series, "" if x is None else in_words(x, measure.x)]
        return ", ".join(part for part in parts if part)

    def values(self, driver: str, measure: str, series: str = "", x: int | None = None) -> list[float]:
        """All rounds' figures of one thing."""
        return [row[5] for row in self.rows if row[1:5] == (driver, measure, series, x)]

    def median(self, driver: str, measure: str, series: str = "", x: int | None = None) -> float:
        """The median of the rounds.

        Raises Missing when there is no figure.
        """
        values = self.values(driver, measure, series, x)
        if not values:
            raise Missing(f"{driver} has no figure")
        return statistics.median(values)

    def better(self, measure: str, series: str = "", x: int | None = None, driver: str = "ferrule") -> float:
        """How many times better ferrule is than rdma_rxe, or a driver of several.

        Raises Missing when a figure is missing.
        """
        ours, theirs = (self.median(one, measure, series, x) for one in (driver, "rxe"))
        if self.measures[measure].less_is_better:
            ours, theirs = theirs, ours
        if ours <= 0 or theirs <= 0:
            raise Missing("nothing to compare")
        return ours / theirs

    def write(self, path: Path) -> None:
        """Write the raw figures as CSV; a curve's has an x and says what it is, in x_name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("scenario", "round", "driver", "measure", "title", "series", "x", "x_name", "value", "unit"))
            for number, driver, measure, series, x, value in self.rows:
                what = self.measures[measure]
                writer.writerow((self.name, number, driver, measure, what.title, series, "" if x is None else x, what.x,
                                 value, what.unit))

    def tell_missing(self) -> None:
        for what in self.missing:
            print(f"no figure: {what}", file=sys.stderr)


def shortened(reason: str) -> str:
    """A reason in one line: the command, how it ended, and the first line that it said, without rules and banners."""
    lines = [" ".join(line.split()) for line in reason.splitlines()]
    return "; ".join(line for line in lines if line.strip("-") and "to implement inline feature" not in line)[:240]


def in_words(x: int, name: str) -> str:
    """A number of a curve's axis: 65536 bytes are 64 KiB."""
    if name == "n":
        return f"n = {x}"
    if name != "bytes":
        return f"{x} {name}"
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if x >= size and x % size == 0:
            return f"{x // size} {unit}"
    return f"{x} B"


def spread(values: list[float]) -> str:
    """Median and range."""
    if not values:
        return "none"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"


def columns(rows: list[tuple]) -> list[str]:
    """Lines of a table whose first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def draw(figures: Path, picture: Path, *measures: str) -> bool:
    """Draw figures with tests/bench/plot, all or those of some measures; says whether that went well."""
    command = ["cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", HERE / "plot/Cargo.toml", "--",
               figures, picture, *measures]
    print(f"drawing {picture.relative_to(CHECKOUT)}", flush=True)
    done = subprocess.run([str(word) for word in (LAB, "exec", "--", *command)], cwd=CHECKOUT,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        print(f"{picture.relative_to(CHECKOUT)} could not be drawn", file=sys.stderr)
    return done.returncode == 0
