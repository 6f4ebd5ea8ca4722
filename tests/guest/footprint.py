# SPDX-License-Identifier: GPL-2.0
"""The remains of a test's rounds in the kernel: memory, charges to their programs, lines in the log.

Figures that tell most are exact: the rounds run in a control group of their own, and what it is still charged for when
all its programs have ended is what their verbs objects have left behind.
"""

import os
import re
import time

from guestlib import check, must, note, read

# By how many kilobytes each figure may grow, in all rounds together. The slab's unreclaimable part and vmalloc vary by
# what other parts of the kernel hold at the moment (about 300 kB and 16 kB were seen with rdma_rxe); what is charged
# to the control group varies by up to 8 kB, and 12 rounds that lose a page each come to 48. The rest is exact.
TOLERANCE = {"SUnreclaim": 600, "VmallocUsed": 64, "Percpu": 0, "pinned": 0, "charged": 32}

PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024

# Caches in which a debug kernel keeps what it knows of objects. Those of kmemleak grow by megabytes while all other caches
# stay as they are, since its entries lie scattered over slabs.
DEBUG_CACHES = ("kmemleak_object", "kmemleak_scan_area", "debug_objects_cache")


class Group:
    """A control group for the programs of the rounds, where the kernel has those for memory."""

    def __init__(self, name):
        self.path = f"/sys/fs/cgroup/{name}"
        self.there = "memory" in read("/sys/fs/cgroup/cgroup.controllers").split()
        if not self.there:
            note("this kernel has no control groups for memory: what the programs leave is not counted")
            return
        write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
        os.mkdir(self.path)

    def run(self, function):
        """Run a function in a process of the group."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                if self.there:
                    write(f"{self.path}/cgroup.procs", os.getpid())
                function()
                status = 0
            except Exception as failure:
                note(str(failure))
            finally:
                os._exit(status)
        check(os.waitpid(pid, 0)[1] == 0, "the round failed")

    def settle(self):
        """Have the group account for what was given back to it.

        What an interrupt gives back while the processor's stock of the group is in use is kept aside, and comes off the
        account only when a stock takes the group up anew (nr_charged_bytes in mm/memcontrol.c). A limit that is
        exceeded drains the stocks, and a process takes the group up again.
        """
        if self.there:
            write(f"{self.path}/memory.high", 0)
            write(f"{self.path}/memory.high", "max")
            self.run(lambda: None)

    def charged(self):
        """Kilobytes of kernel memory that the group is charged for."""
        charged = dict(line.split() for line in read(f"{self.path}/memory.stat").splitlines())
        return int(charged["kernel"]) // 1024


def write(path, value):
    with open(path, "w") as file:
        file.write(f"{value}\n")


def memory(group):
    """The figures in kilobytes, each at its lowest of several looks: what is deferred takes its time."""
    looks = []
    group.settle()
    for _ in range(10):
        time.sleep(0.4)
        looks.append(look(group))
    return {key: min(figures[key] for figures in looks) for key in looks[0]}


def debug_caches():
    """Kilobytes of their slabs."""
    total = 0
    for line in read("/proc/slabinfo").splitlines():
        words = line.split()
        if words[0] in DEBUG_CACHES:
            # name active objects size objects_a_slab pages_a_slab : … : slabdata active_slabs slabs …
            total += int(words[5]) * int(words[14]) * PAGE_KB
    return total


def look(group):
    write("/proc/sys/vm/drop_caches", 3)
    for cache in os.listdir("/sys/kernel/slab"):
        write(f"/sys/kernel/slab/{cache}/shrink", 1)
    figures = {}
    for line in read("/proc/meminfo").splitlines():
        key, value = line.split()[:2]
        if key.rstrip(":") in TOLERANCE:
            figures[key.rstrip(":")] = int(value)
    figures["SUnreclaim"] -= debug_caches()
    counts = dict(line.split() for line in read("/proc/vmstat").splitlines())
    figures["pinned"] = 4 * (int(counts["nr_foll_pin_acquired"]) - int(counts["nr_foll_pin_released"]))
    if group.there:
        figures["charged"] = group.charged()
    return figures


def compare(before, after):
    grown = []
    for key in before:
        allowed = TOLERANCE[key]
        more = after[key] - before[key]
        note(f"{key}: {before[key]} kB before, {after[key]} kB after, {allowed} kB allowed")
        if more > allowed:
            grown.append(f"{key} has grown by {more} kB")
    check(not grown, "; ".join(grown))


# Reports that do not count, each by its first and its last line: of a process that was ended since its control group had
# no memory left, and of a data race, of which the lab knows whose it is.
RULE = "=" * 20
LEFT_OUT = {"invoked oom-killer": "out of memory: Killed process", "BUG: KCSAN: ": RULE}

# A line of the driver's own, of whatever level; what is in front of it is its time.
OWN_LINE = re.compile(r"^(\[[^]]*\] *)*ferrule\b")


class Log:
    """The kernel's log since this was made."""

    def __init__(self, *expected):
        self.expected = expected
        self.before = set(must("dmesg").splitlines())

    def check(self):
        """There are no warnings, without those that do not count."""
        lines = []
        end = None
        for line in must("dmesg", "--level=emerg,alert,crit,err,warn").splitlines():
            end = end or next((last for first, last in LEFT_OUT.items() if first in line), None)
            if not end and line not in self.before and not any(text in line for text in (RULE, *self.expected)):
                lines.append(line)
            if end and end in line:
                end = None
        check(not lines, "the kernel's log has warnings:\n" + "\n".join(lines[:30]))

    def check_driver(self):
        """The driver has written nothing."""
        own = [line for line in must("dmesg").splitlines() if OWN_LINE.match(line) and line not in self.before]
        check(not own, "the driver has written to the kernel's log:\n" + "\n".join(own[:30]))
