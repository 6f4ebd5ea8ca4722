#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A change of the kernel's code does not wait for the worker, though that never sleeps while there is work.

usage: rcu_tasks.py DEVICE

Taking the function tracer off a function waits until each thread has slept or passed a quiescent state of RCU-tasks, as
unloading BPF programs and optimising kprobes do. How long that takes beside transfers is held against how long it takes
beside programs that keep as many processors busy: RCU looks again after a tenth of a second, and later, whenever a thread
runs at all. Both are measured in turn, since the machine below the guest is not the same at all times.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time

from guestlib import Failure, Tap, check, must, note, read, wait_for

DEVICE = sys.argv[1]
LOAD = "/ferrule/build/tests/load"
TRACING = "/sys/kernel/tracing"
INSTANCE = f"{TRACING}/instances/rcu_tasks"
ROUNDS = 3
SAMPLES = 3         # of a round
# More than are done while it is measured, and so many at a time that the engine always has work. Each is so short that
# no job copies it: the worker does, and stays awake.
WRITES = "write size=4096 mr=65536 window=128 count=10000000\n"


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def detach():
    """Seconds that it takes to take the tracer off."""
    write(f"{INSTANCE}/current_tracer", "function")
    begin = time.monotonic()
    write(f"{INSTANCE}/current_tracer", "nop")
    return time.monotonic() - begin


def detaches(what):
    times = [detach() for _ in range(SAMPLES)]
    note(f"{what}: {', '.join(f'{seconds:.2f}' for seconds in times)} s")
    return times


def workers():
    """The directories of the threads of the engines: that of shard 3 has the name DEVICE/3."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        # Any other process may end meanwhile.
        with contextlib.suppress(OSError):
            if read(f"/proc/{name}/comm").split("/")[0] == DEVICE:
                found.append(f"/proc/{name}")
    check(found, f"there is no thread {DEVICE}")
    return found


def run_time(threads):
    """Seconds that threads have run."""
    return sum(int(read(f"{thread}/schedstat").split()[0]) for thread in threads) / 1e9


def beside_programs():
    """Beside two: one is in the place of the program that transfers, and one in that of the worker."""
    burning = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        return detaches("without transfers")
    finally:
        for process in burning:
            process.kill()
            process.wait()


def beside_worker():
    with subprocess.Popen([LOAD, DEVICE], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as load:
        try:
            begun = run_time(workers())
            load.stdin.write(WRITES)
            load.stdin.flush()
            wait_for(lambda: run_time(workers()) > begun + 0.5, "a worker works", 30)
            threads = workers()
            before, begin = run_time(threads), time.monotonic()
            times = detaches("beside transfers")
            busy = (run_time(threads) - before) / (time.monotonic() - begin)
        finally:
            load.kill()
    note(f"the workers ran for {busy:.0%} of the time")
    check(busy > 0.5, "no worker was busy")
    return times


def beside_transfers():
    detaches("while nothing runs")
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone += beside_programs()
        beside += beside_worker()
    alone, beside = statistics.median(alone), statistics.median(beside)
    note(f"medians: {beside:.2f} s beside transfers, {alone:.2f} s without")
    check(beside <= 2 * alone, f"{beside:.2f} s beside transfers, {alone:.2f} s without")


def main():
    tap = Tap()
    if not os.path.isdir(f"{TRACING}/instances"):
        must("mount", "-t", "tracefs", "tracefs", TRACING)
    os.mkdir(INSTANCE)
    write(f"{INSTANCE}/set_ftrace_filter", "schedule")
    tap.case("beside_transfers", beside_transfers)
    os.rmdir(INSTANCE)
    tap.end()


if __name__ == "__main__":
    main()
