# SPDX-License-Identifier: GPL-2.0
"""Results out of what a program prints.

Each format is a reader: it is fed lines, tells for each whether a person should see it at once, and in the end makes
a Result with the program's exit status. A program that dies, prints no result, or whose status does not fit what it
printed has failed.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import tap  # noqa: E402  (the lab writes what a command tells into a file for CI services)


@dataclass
class Result:
    """The result of a suite on a kernel."""

    suite: str
    kernel: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    # Seconds of processor time on this machine, of all processors together.
    processor: float = 0.0
    # A skip's reason, and how often it was given.
    reasons: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    # Some failure is no matter of time: the kernel has reported something, or the guest went down.
    broken: bool = False
    # Suites that failed beside others, where all passed alone afterwards.
    unsteady: list[str] = field(default_factory=list)

    def skip(self, reason: str) -> None:
        self.skipped += 1
        reason = reason.strip() or "no reason given"
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def fail(self, what: str, broken: bool = False) -> None:
        self.failed += 1
        self.failures.append(what)
        self.broken = self.broken or broken

    def add(self, other: "Result") -> None:
        """Count the result of another run of the suite in."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds += other.seconds
        self.processor += other.processor
        self.failures += other.failures
        self.broken = self.broken or other.broken
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count


class Reader:
    """The reader of programs that tell by their exit status alone."""

    def __init__(self, suite: str, kernel: str):
        self.result = Result(suite, kernel)

    def line(self, line: str) -> list[str]:
        """Takes a line of output; returns the lines to show at once."""
        return []

    def end(self, status: int) -> Result:
        """The program has ended: a status above 0, or 124 by `timeout`."""
        if status == 0:
            self.result.passed += 1
        else:
            self.result.fail(ended(status))
        return self.result


def ended(status: int) -> str:
    """A status in words."""
    if status in (124, 137):
        return "not done within its time"
    if status > 128:
        return f"ended by signal {status - 128}"
    return f"ended with status {status}"


class Tap(Reader):
    """The Test Anything Protocol: ok N - name, not ok, # SKIP reason, 1..N."""

    def __init__(self, suite: str, kernel: str):
        super().__init__(suite, kernel)
        self.plan: int | None = None
        self.told = 0
        self.notes: list[str] = []

    def line(self, line: str) -> list[str]:
        plan = tap.plan(line)
        if plan is not None:
            self.plan = plan
            return []
        if line.startswith(tap.BAIL_OUT):
            self.result.fail(line)
            return [line]
        if line.startswith(tap.SHOWN):
            return [line.removeprefix(tap.SHOWN)]
        test = tap.test(line)
        if not test:
            if line.startswith("#"):
                self.notes = [*self.notes[-20:], line]
            return []
        notes, self.notes = self.notes, []
        self.told += 1
        if test.failed:
            self.result.fail(test.name)
            return [*notes, line]
        if test.skipped is not None:
            self.result.skip(test.skipped)
        else:
            self.result.passed += 1
        return []

    def end(self, status: int) -> Result:
        if self.plan is None:
            self.result.fail(f"{ended(status)}, before its plan")
        elif self.plan != self.told:
            self.result.fail(f"{self.plan} results planned, {self.told} told")
        elif self.told == 0:
            self.result.fail("ran nothing")
        elif status and not self.result.failed:
            self.result.fail(ended(status))
        return self.result


class Unittest(Reader):
    """Python's unittest with -v; names and doc strings may take several lines."""

    _SUMMARY = re.compile(r"(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
    _RAN = re.compile(r"Ran (\d+) tests? in ")
    _SKIPPED = re.compile(r"""\.\.\. skipped (['"])(.*)\1$""")
    _FAILED = re.compile(r"(FAIL|ERROR): (.*)")

    def __init__(self, suite: str, kernel: str):
        super().__init__(suite, kernel)
        self.ran: int | None = None
        self.summary: dict[str, int] | None = None
        self.reasons: list[str] = []
        self.names: list[str] = []

    def line(self, line: str) -> list[str]:
        if ran := self._RAN.match(line):
            self.ran = int(ran[1])
        elif skipped := self._SKIPPED.search(line):
            self.reasons.append(skipped[2])
        elif failed := self._FAILED.match(line):
            self.names.append(failed[2])
            return [line]
        elif summary := self._SUMMARY.match(line):
            counts = re.findall(r"([a-z ]+)=(\d+)", summary[2] or "")
            self.summary = {name.strip(): int(count) for name, count in counts}
        return []

    def end(self, status: int) -> Result:
        result = self.result
        if self.ran is None or self.summary is None:
            result.fail(f"{ended(status)}, before its summary")
            return result
        failed = sum(self.summary.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
        skipped = self.summary.get("skipped", 0)
        result.passed = self.ran - failed - skipped
        for number in range(failed):
            result.fail(self.names[number] if number < len(self.names) else "a test")
        for number in range(skipped):
            result.skip(self.reasons[number] if number < len(self.reasons) else "")
        if self.ran == 0:
            result.fail("ran nothing")
        elif status and not failed:
            result.fail(ended(status))
        return result


class Cargo(Reader):
    """cargo test: one summary for each test program, and one for the documentation's examples."""

    _SUMMARY = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
    _TEST = re.compile(r"test (.*) \.\.\. (FAILED|ignored)(?:, (.*))?$")

    def __init__(self, suite: str, kernel: str):
        super().__init__(suite, kernel)
        self.told = False

    def line(self, line: str) -> list[str]:
        if summary := self._SUMMARY.match(line):
            self.told = True
            self.result.passed += int(summary[1])
        elif test := self._TEST.match(line):
            if test[2] == "FAILED":
                self.result.fail(test[1])
                return [line]
            self.result.skip(test[3] or "ignored without a reason")
        elif line.startswith(("error", "warning: ", "thread '")):
            return [line]
        return []

    def end(self, status: int) -> Result:
        result = self.result
        if not self.told:
            result.fail(f"{ended(status)}, before a summary")
        elif status and not result.failed:
            result.fail(ended(status))
        elif not result.passed and not result.failed:
            result.fail("ran nothing")
        return result


READERS = {"tap": Tap, "unittest": Unittest, "cargo": Cargo, "exit": Reader}
