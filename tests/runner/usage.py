# SPDX-License-Identifier: GPL-2.0
"""Processor time of what has been started, while it runs (as /proc tells it, see proc_pid_stat(5)) and afterwards."""

import os
import resource
import subprocess
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _stat(directory: Path) -> tuple[int, int] | None:
    """A process's parent, and the ticks that it and its children that have ended took."""
    try:
        # The name before, in parentheses, may have any characters.
        words = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(words[1]), sum(int(word) for word in words[11:15])


def processor_seconds(root: int) -> float:
    """The processor time of a process and its descendants until now; of descendants whose parents have ended, none."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        if told := _stat(directory):
            pid = int(directory.name)
            children.setdefault(told[0], []).append(pid)
            ticks[pid] = told[1]
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return total / TICKS


def wait(process: subprocess.Popen) -> tuple[int, float]:
    """Wait for a child: its status as Popen.returncode has it, and the processor time that it and its descendants took."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def ended_children() -> float:
    """The processor time of this process's children that have ended, and of their descendants."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
