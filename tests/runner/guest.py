# SPDX-License-Identifier: GPL-2.0
"""Suites that run in a virtual machine, several in one boot where that is safe.

The guest runs one shell script, which prints a line before and after each suite and writes the first also to the
kernel's log. So when the kernel reports something, or goes down, it is known under which suite; those that had no
turn yet get it in another boot.
"""

import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

from .counting import READERS, Result, ended
from .host import CHECKOUT
from .lanes import Lanes
from .suite import CROSSED, SLOW, Suite, known_on
from .usage import processor_seconds

sys.path.insert(0, str(CHECKOUT / "qemu"))

from labkit import kernlog  # noqa: E402  (the lab knows what a kernel's report looks like)
from labkit.errors import REPORT  # noqa: E402

BEGIN = "@@ begin "
END = "@@ end "
BOOT_SECONDS = 180
# For so many suites another boot takes more time than it saves.
FEW = 4
_FAULT = re.compile(r"lab: (ferrule-nic has (?:ended with status|panicked).*)")
_LOG = re.compile(r"its whole log is (.+)")


def boots(suites: list[Suite], jobs: int = 1, kernel: str = "stock", long: bool = False) -> list[list[Suite]]:
    """The suites, each list of them for one boot, with those for each boot at its end. Suites that could share a boot are
    shared out to as many as run at a time; of the others those that may take longest come first, lest one runs alone at
    the end."""
    shared: dict[tuple, list[Suite]] = {}
    alone = []
    last = [suite for suite in suites if suite.in_each_boot]
    for suite in sorted(suites, key=lambda suite: -suite.seconds(kernel, long) if suite.own_boot else 0):
        if suite.in_each_boot:
            continue
        if suite.own_boot:
            alone.append([suite, *last] if suite.watches_leaks(long) and not suite.reports else [suite])
        else:
            shared.setdefault((suite.device, suite.backend, suite.lab), []).append(suite)
    parts = []
    for together in shared.values():
        count = min(jobs, -(-len(together) // FEW))
        parts += [[*together[first::count], *last] for first in range(count)]
    return [*parts, *alone] or [last]


def merge(results: list[Result]) -> list[Result]:
    """The results with those of one suite in several boots as one."""
    merged: dict[str, Result] = {}
    for result in results:
        if result.suite in merged:
            merged[result.suite].add(result)
        else:
            merged[result.suite] = result
    return list(merged.values())


class Boot:
    """One boot and the suites that are to run in it."""

    def __init__(self, suites: list[Suite], kernel: str, long: bool, driver: str, log, show, done):
        self.waiting = list(suites)
        self.kernel, self.long, self.driver = kernel, long, driver
        self.log, self.show, self.done = log, show, done
        self.results: list[Result] = []
        self.suite: Suite | None = None
        self.reader = None
        self.since = 0.0
        self.used = 0.0
        self.consoles: list[Path] = []
        self.faults: list[str] = []
        self.process: subprocess.Popen | None = None
        self.expected: tuple[str, ...] = ()
        self.known: dict[str, str] = {}

    def run(self) -> tuple[list[Result], list[Suite]]:
        """Boot and run; returns the results, and the suites that had no turn."""
        first = self.waiting[0]
        self.expected, self.known = first.reports, {**first.known, **known_on(self.kernel)}
        device = first.device if first.device == "none" else self.driver
        words = [] if first.watches_leaks(self.long) else ["--append", "kmemleak=off"]
        seconds = BOOT_SECONDS * SLOW[self.kernel] + sum(self.seconds(suite) + 15 for suite in self.waiting)
        lab = [CHECKOUT / "qemu/lab", "run", "--device", device, "--backend", first.backend,
               *CROSSED.get(self.kernel, ("--kernel", self.kernel)),
               "--timeout", seconds, *words, *self.lab_words(first.lab), "--", "sh", "-c", self.script()]
        with subprocess.Popen([str(word) for word in lab], cwd=CHECKOUT, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as process:
            self.process = process
            messages = threading.Thread(target=self.read_messages, args=(process.stderr,))
            messages.start()
            for line in process.stdout:
                self.take(line.rstrip("\r\n"))
            status = process.wait()
            messages.join()
        if self.suite:
            self.end_suite(f"the guest ended under it: the lab {ended(status)}")
        elif not self.results:
            # Nothing had a turn, and another boot would fare no better.
            for suite in self.waiting:
                result = Result(suite.name, self.kernel)
                result.fail(f"the guest did not come up: the lab {ended(status)}")
                self.results.append(result)
            self.waiting = []
            for result in self.results:
                self.done(result)
        self.attribute_reports(status)
        # With nothing left to look after, another boot would be for nothing.
        if all(suite.in_each_boot for suite in self.waiting):
            self.waiting = []
        return self.results, self.waiting

    def stop(self) -> None:
        """End its guest, from another thread."""
        if self.process:
            self.process.terminate()

    def seconds(self, suite: Suite) -> int:
        return suite.seconds(self.kernel, self.long)

    def exports(self) -> str:
        """The variables by which tests know of the run, on either node."""
        return f"export TEST_SLOW={SLOW[self.kernel]}" + (" TEST_LONG=1" if self.long else "")

    def lab_words(self, words: tuple[str, ...]) -> list[str]:
        """The suite's words for the lab. The other node's command learns the same as this one's."""
        return [f"{self.exports()}; {word}" if before == "--peer" else word for before, word in zip(("", *words), words)]

    def script(self) -> str:
        lines = [self.exports(), "cd /tmp"]
        for suite in self.waiting:
            command = suite.command_line(self.kernel, self.long, self.driver)
            lines += [f"echo 'ferrule-suite: begin {suite.name}' >/dev/kmsg",
                      f"echo; echo '{BEGIN}{suite.name}'",
                      f"timeout -k 10 {self.seconds(suite)} sh -c {shlex.quote(command)} </dev/null 2>&1",
                      f"status=$?; echo; echo '{END}{suite.name}' $status"]
        return "\n".join([*lines, "exit 0"])

    def take(self, line: str) -> None:
        if line.startswith(BEGIN):
            name = line[len(BEGIN):]
            self.suite = next(suite for suite in self.waiting if suite.name == name)
            self.waiting.remove(self.suite)
            self.reader = READERS[self.suite.format](name, self.kernel)
            self.since = time.monotonic()
            self.used = processor_seconds(self.process.pid)
            self.show(f"{name} …")
        elif line.startswith(END) and self.suite:
            self.end_suite(None, int(line.split()[-1]))
        elif self.suite:
            self.log(self.suite.name, line)
            for shown in self.reader.line(line):
                self.show(f"  {shown}")

    def end_suite(self, failure: str | None, status: int = 1) -> None:
        if failure:
            result = self.reader.result
            result.fail(failure, broken=True)
        else:
            result = self.reader.end(status)
        result.seconds = time.monotonic() - self.since
        # A guest that has ended tells nothing any more.
        result.processor = max(0.0, processor_seconds(self.process.pid) - self.used)
        self.results.append(result)
        self.suite = None
        if not self.expected:
            self.done(result)

    def read_messages(self, stream) -> None:
        for line in stream:
            line = line.rstrip("\r\n")
            if found := _LOG.search(line):
                self.consoles.append(Path(found[1]))
            if found := _FAULT.match(line):
                self.faults.append(found[1])
            if line.startswith(("lab: ", "  |")) and "running under" not in line and not self.expected:
                self.show(line)

    def attribute_reports(self, status: int) -> None:
        """Each report of the kernel is a failure of the suite that ran, but where it is expected: there it has to come. A fault
        of a process beside the guest is one of the last suite, since nobody knows under which it was."""
        for fault in self.faults if self.results else []:
            self.lay(fault, self.results[-1])
        if self.expected and self.results:
            self.compare_reports(self.results[0], status)
            return
        for console in self.consoles if self.results else []:
            parts = re.split(r"ferrule-suite: begin (\S+)", console.read_text(errors="replace"))
            names = [self.results[0].suite, *parts[1::2]]
            for name, text in zip(names, parts[0::2]):
                result = next(result for result in self.results if result.suite == name)
                for report in kernlog.scan(text):
                    self.attribute(report, result)

    def attribute(self, report: kernlog.Report, result: Result) -> None:
        """Lay a report to a suite, but if it tells of a function that is known for it: then it is only named."""
        what = f"the kernel reported ({report.kind}): {report.title}"
        for function, why in self.known.items():
            if any(re.search(rf"\b{function}\+0x", line) for line in report.lines):
                self.show(f"known   {result.suite} ({self.kernel}): {what}: {why}")
                return
        self.lay(what, result)

    def lay(self, what: str, result: Result) -> None:
        result.fail(what, broken=True)
        self.show(f"FAILED  {result.suite} ({self.kernel}): {result.failures[-1]}")

    def compare_reports(self, result: Result, status: int) -> None:
        """Each expected report is a case, which passes if it has come in its turn; no others may have."""
        found = [report for console in self.consoles for report in kernlog.scan(console.read_text(errors="replace"))]
        kinds = [report.kind for report in found]
        for kind in self.expected:
            if kind in kinds:
                del kinds[: kinds.index(kind) + 1]
                result.passed += 1
            else:
                result.fail(f"the kernel did not report ({kind})")
        for report in found:
            if report.kind not in self.expected:
                result.fail(f"the kernel reported ({report.kind}): {report.title}", broken=True)
        if status != REPORT:
            result.fail(f"the lab {ended(status)}, and not with {REPORT}")
        for failure in result.failures:
            self.show(f"  {failure}")
        self.done(result)


def build(suites: list[Suite], kernel: str, done) -> list[Result]:
    """Compile the test programs. If they do not compile, that is the result of each suite."""
    arches = CROSSED.get(kernel, ("--arch", "amd64"))[1::2]
    if not any(subprocess.run([CHECKOUT / "qemu/lab", "build", "--arch", arch, "tests"], cwd=CHECKOUT,
                              stdin=subprocess.DEVNULL).returncode for arch in arches):
        return []
    results = []
    for suite in suites:
        results.append(Result(suite.name, kernel))
        results[-1].fail("the test programs do not compile")
        done(results[-1])
    return results


def run(waiting: list[Suite], kernel: str, long: bool, driver: str, lanes: Lanes, log, show, done) -> list[Result]:
    """Run suites of one boot, and in further boots those that had no turn."""
    results = []
    while waiting and not lanes.interrupted:
        boot = Boot(waiting, kernel, long, driver, log, show, done)
        lanes.on_interrupt(boot.stop)
        told, waiting = boot.run()
        results += told
        if waiting:
            show("another boot for the suites that had no turn")
    return results
