# SPDX-License-Identifier: GPL-2.0
"""The result of a run as a file in JUnit's format, which CI services show: a case for each test that the command told by TAP,
or one for the command."""

import re
import time
from pathlib import Path
from xml.etree import ElementTree

from . import tap

# XML 1.0 has no character for these.
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NOTES = 20


class Report:
    """The results of one command, read from its output."""

    def __init__(self, path: Path, argv: list[str]):
        self.path = path
        self.name = _clean(" ".join(argv))
        self.tests: list[tuple[tap.Test, str]] = []
        self.plan: int | None = None
        self._notes: list[str] = []
        self._rest = b""
        self._begin = time.monotonic()
        # A file of the run before would be taken for this one's.
        path.unlink(missing_ok=True)

    def feed(self, content: bytes) -> None:
        """Take a piece of the command's output."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace").rstrip("\r"))

    def _line(self, line: str) -> None:
        number = tap.plan(line)
        if number is not None:
            self.plan = number
        elif found := tap.test(line):
            self.tests.append((found, "\n".join(self._notes)))
            self._notes = []
        elif line.startswith(tap.BAIL_OUT):
            self.tests.append((tap.Test(line, True), "\n".join(self._notes)))
        else:
            self._notes = [*self._notes[1 - NOTES:], line]

    def write(self, status: int, problems: list[str]) -> None:
        """Write the file: the lab ends with `status`; `problems` are what kernels reported."""
        if self._rest:
            self.feed(b"\n")
        # Other programs than tests may print a line that begins with "ok"; none of theirs is a plan.
        cases = list(self.tests) if self.plan is not None or status != 0 else []
        if self.plan is not None and self.plan != len(self.tests):
            cases.append((tap.Test("plan", True), f"{self.plan} results planned, {len(self.tests)} told"))
        failed = bool(problems) or any(test.failed for test, _ in cases)
        if not cases or status != 0 and not failed:
            words = "" if status == 0 else "\n".join([f"exit status {status}", *self._notes])
            cases.append((tap.Test("command", status != 0), words))
        cases += [(tap.Test("kernel log", True), problem) for problem in problems]
        self._save(cases)

    def _save(self, cases: list[tuple[tap.Test, str]]) -> None:
        counts = {"tests": len(cases), "failures": sum(test.failed for test, _ in cases), "errors": 0,
                  "skipped": sum(_is_skip(test) for test, _ in cases)}
        words = {"name": self.name, "time": f"{time.monotonic() - self._begin:.3f}"}
        words |= {key: str(value) for key, value in counts.items()}
        top = ElementTree.Element("testsuites")
        suite = ElementTree.SubElement(top, "testsuite", words)
        for test, notes in cases:
            case = ElementTree.SubElement(suite, "testcase", {"classname": self.name, "name": _clean(test.name) or "unnamed"})
            if test.failed:
                message = _clean(notes)
                ElementTree.SubElement(case, "failure", {"message": message.split("\n")[0]}).text = message
            elif _is_skip(test):
                ElementTree.SubElement(case, "skipped", {"message": _clean(test.skipped)})
        ElementTree.indent(top)
        ElementTree.ElementTree(top).write(self.path, encoding="utf-8", xml_declaration=True)


def _is_skip(test: tap.Test) -> bool:
    return test.skipped is not None and not test.failed


def _clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)
