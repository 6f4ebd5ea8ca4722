# SPDX-License-Identifier: GPL-2.0
"""The table at the end, and the results as a file, from which a later call can make one table of several runs."""

import json
from dataclasses import asdict
from pathlib import Path

from .counting import Result

HEAD = ("suite", "kernel", "passed", "failed", "skipped", "time", "processor", "reasons of the skips")


def reasons(result: Result) -> str:
    """The reasons of the skips, each once."""
    return "; ".join(reason if count == 1 else f"{reason} ({count})" for reason, count in result.reasons.items())


def totals(results: list[Result]) -> str:
    """The last line."""
    passed, failed, skipped = (sum(getattr(result, key) for result in results)
                               for key in ("passed", "failed", "skipped"))
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def times(result: Result) -> str:
    """How long a suite took, and of that on processors, in words."""
    return f"{result.seconds:.0f} s, {result.processor:.0f} s of processor time"


def draw(results: list[Result]) -> str:
    """The table and the last line."""
    rows = [HEAD]
    for result in results:
        processor = f"{result.processor:.0f} s" if result.processor else ""
        rows.append((result.suite, result.kernel, str(result.passed), str(result.failed), str(result.skipped),
                     f"{result.seconds:.0f} s", processor, reasons(result)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    lines = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) if column < 2 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
        if number == 0:
            lines.append("-" * sum(widths, 2 * len(widths) + len(HEAD[-1])))
    return "\n".join([*lines, "", totals(results)])


def save(path: Path, results: list[Result]) -> None:
    """Write the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def load(path: Path) -> list[Result]:
    """The results of an earlier run."""
    return [Result(**content) for content in json.loads(path.read_text())]
