# SPDX-License-Identifier: GPL-2.0
"""A kernel's reports against itself, found in its console's log."""

import re
from dataclasses import dataclass

# A report's first line, after the time stamp. Each is the wording of one place in the kernel's source, and the first
# kind that fits is the one that is told.
KINDS = {
    "panic": r"Kernel panic - not syncing",
    "oops": r"Oops[ :]|general protection fault|invalid opcode: |stack segment: |double fault: |Unable to handle "
            r"|unchecked MSR access error|BUG: unable to handle |BUG: kernel NULL pointer dereference|kernel BUG at "
            r"|sysrq: Trigger a crash|Internal error: |SError Interrupt on CPU|Insufficient stack space to handle exception",
    "KASAN": r"(BUG: )?KASAN: ",
    "KCSAN": r"BUG: KCSAN: ",
    "soft lockup": r"(watchdog: )?BUG: soft lockup|watchdog: CPU\d+: Watchdog detected hard LOCKUP",
    "workqueue lockup": r"BUG: workqueue lockup",
    "BUG": r"BUG: |BUG \S+ \(",
    "hung task": r"INFO: task \S.* blocked (for more than|in I/O wait for more than) \d+ seconds",
    "RCU stall": r"rcu: INFO: .*\bstall|INFO: rcu_.*\bstall",
    "refcount": r"refcount_t: ",
    "lockdep": r"WARNING: (possible |inconsistent lock|bad unlock|held lock freed|lock held|suspicious RCU|[Nn]ested lock"
               r"|\S+ -> \S+ lock order|bad contention)|INFO: (possible |trying to register non-static key|suspicious RCU)"
               r"|DEBUG_LOCKS_WARN_ON|\[ BUG: ",
    "UBSAN": r"UBSAN: ",
    "kmemleak": r"kmemleak: \d+ new suspected memory leaks|kmemleak: unreferenced object|unreferenced object 0x",
    "debug object": r"ODEBUG: ",
    # Not the line of a tracker that had no memory itself, as in suites in which allocations fail on purpose.
    "lost reference": r"unregister_netdevice: waiting for |ref_tracker: (\S+@|reference already released)",
    "list corruption": r"list_(add|del)( corruption| double add)",
    "WARNING": r"WARNING: ",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}

# [   12.345678], and where the kernel tells the caller also [  T123] or [    C0].
_STAMP = re.compile(r"\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? ?")
_CUT_HERE = re.compile(r"-+\[ cut here \]-+")
_END = re.compile(r"---\[ end |={20}=*$")

# A function of one of the checkout's modules, as reports name it.
_OURS = re.compile(r"\[(ferrule(_\w+)?|rdma_loop|net_echo)\]")

# A report is printed in one go: lines so many seconds later are something else.
PAUSE = 0.5
MAX_LINES = 120


@dataclass
class Report:
    """One report: its kind, the line that told it, and all of its lines."""

    kind: str
    title: str
    lines: list[str]


def kind_of(text: str) -> str | None:
    """The kind of report that a line without its time stamp begins, if it does."""
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.match(text)), None)


def scan(log: str) -> list[Report]:
    """The reports in a console's log, in order, without the data races of accesses that only Linux's own functions make.

    Lines that could begin a report of their own belong to the one that is being printed, until that ends: by its
    end mark, by the beginning of another, by a pause, or by its length.
    """
    reports: list[Report] = []
    current: Report | None = None
    lead: list[str] = []
    last = 0.0
    for line in log.replace("\r", "").split("\n"):
        stamp = _STAMP.match(line)
        text = line[stamp.end():] if stamp else line
        time = float(stamp[1]) if stamp else last
        if _CUT_HERE.match(text):
            current, lead = None, [line]
        elif current and (time - last > PAUSE or len(current.lines) >= MAX_LINES):
            current = None
        if current:
            current.lines.append(line)
            if _END.match(text) and len(current.lines) > 3:
                current = None
        elif kind := kind_of(text):
            current = Report(kind, text.strip(), [*lead, line])
            reports.append(current)
            lead = []
        elif lead and len(lead) < 4:
            if line not in lead:
                lead.append(line)
        else:
            lead = []
        last = time
    return [report for report in reports if report.kind != "KCSAN" or _OURS.search(report.title)]


def show(report: Report) -> str:
    """A report as it is printed for a person."""
    return "\n".join(f"  | {line}" for line in report.lines)
