#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Loads a module of KUnit tests and tells the results of its cases as TAP.

usage: kunit.py MODULE.ko

KUnit writes a file of results for each suite (Linux, Documentation/dev-tools/ktap.rst): its cases are indented, after a
plan, and what is printed before a case's line is about that case.
"""

import os
import re
import sys

from guestlib import must, note, read

RESULTS = "/sys/kernel/debug/kunit"
MODULE = sys.argv[1]


def main():
    must("/run/lab/load", MODULE, seconds=60)
    count = failed = 0
    for suite in sorted(os.listdir(RESULTS)):
        planned = told = 0
        about = []
        for line in read(f"{RESULTS}/{suite}/results").splitlines():
            if plan := re.match(r"    1\.\.(\d+)", line):
                planned = int(plan[1])
                continue
            case = re.match(r"    (not )?ok \d+ (\S+)(.*)", line)
            if not case:
                about.append(line)
                continue
            told += 1
            count += 1
            if case[1]:
                failed += 1
                note("\n".join(about))
            about = []
            print(f"{case[1] or ''}ok {count} - {suite}.{case[2]}{case[3]}", flush=True)
        if told != planned or not planned:
            count += 1
            failed += 1
            print(f"not ok {count} - {suite}: {planned} cases planned, {told} told", flush=True)
    must("rmmod", os.path.basename(MODULE).removesuffix(".ko"))
    print(f"1..{count}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
