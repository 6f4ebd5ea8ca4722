# SPDX-License-Identifier: GPL-2.0
"""Lines of the Test Anything Protocol: 1..N, ok N - name, not ok N - name, # SKIP reason."""

import re
from dataclasses import dataclass

BAIL_OUT = "Bail out!"
# Begins a comment that the user of a run sees, too, such as a line of a table.
SHOWN = "#|"

_PLAN = re.compile(r"1\.\.(\d+)\b")
_TEST = re.compile(r"(not )?ok\b\s*\d*\s*(?:-\s*)?([^#]*)(?:#\s*(.*))?$")


@dataclass
class Test:
    """One test; `skipped` is the reason of a skip, which may be empty."""

    name: str
    failed: bool
    skipped: str | None = None


def plan(line: str) -> int | None:
    """The number of tests, in the line that tells it."""
    found = _PLAN.match(line)
    return int(found[1]) if found else None


def test(line: str) -> Test | None:
    """The test whose result is in this line."""
    found = _TEST.match(line)
    if not found:
        return None
    more = found[3] or ""
    skipped = more[4:].lstrip(":").strip() if more.upper().startswith("SKIP") else None
    return Test(found[2].strip(), bool(found[1]), skipped)
