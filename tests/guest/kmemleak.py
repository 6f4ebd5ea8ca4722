#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Looks for memory that nobody can find any more, with kmemleak; what it finds is printed with its stack.

usage: kmemleak.py [find]

Memory that is lost is a failure; with `find`, that there is none is one.

A few objects may hide: SLUB's lists of free objects go on to name what they gave last, until they give more.
"""

import re
import sys
import time

from guestlib import Tap, check, note

FILE = "/sys/kernel/debug/kmemleak"
# Younger memory is not reported: its address may still be on the way to where it will be kept.
AGE = 5
FIND = sys.argv[1:] == ["find"]
SHOWN = 20 if FIND else 400


def scan():
    with open(FILE, "w") as file:
        # Fails with EPERM where kmemleak has given up.
        file.write("scan\n")


def look():
    time.sleep(AGE + 1)
    # An object that changed since the last scan is given another one.
    scan()
    scan()
    with open(FILE) as file:
        found = file.read()
    count = len(re.findall(r"^unreferenced object", found, re.MULTILINE))
    note("\n".join(found.splitlines()[:SHOWN]))
    if FIND:
        check(count, "what was lost was not found")
    else:
        check(not count, f"{count} objects are lost")


def main():
    tap = Tap()
    tap.case("lost memory is found" if FIND else "no memory is lost", look)
    tap.end()


if __name__ == "__main__":
    main()
