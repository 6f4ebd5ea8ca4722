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

from guestlib import Tap, check, note, read

FILE = "/sys/kernel/debug/kmemleak"
PRINTK = "/proc/sys/kernel/printk"
# Younger memory is not reported: its address may still be on the way to where it will be kept.
AGE = 5
FIND = sys.argv[1:] == ["find"]
SHOWN = 20 if FIND else 400

# Memory that Linux itself loses: the program, a function of the stack, and how.
KNOWN = (
    # Linux 7.2 and 7.3, UVERBS_HANDLER(UVERBS_METHOD_GET_CONTEXT): where the driver or the control group refuses a context, that
    # is freed without rdma_restrack_put, and with it a reference to the task. The driver refuses a program that is killed while
    # the worker of its shard starts (EINTR of kthread_create).
    ("fail_nth", "copy_process", "of a task that could not open a device"),
    ("isolation", "copy_process", "of a task that could not open a device"),
    ("storms", "copy_process", "of a task that could not open a device"),
    # Linux 7.2, uverbs_alloc_api: where memory ends in the middle of radix_tree_insert, nodes without items are left, and
    # uverbs_destroy_api removes items.
    ("fail_nth", "radix_tree_insert", "of a description of verbs that was given up"),
)


def write(path, value):
    with open(path, "w") as file:
        # Fails with EPERM where kmemleak has given up.
        file.write(f"{value}\n")


def look():
    time.sleep(AGE + 1)
    # An object that changed since the last scan is given another one.
    write(FILE, "scan")
    write(FILE, "scan")
    lost = re.split(r"^(?=unreferenced object)", read(FILE), flags=re.MULTILINE)[1:]
    for program, function, whose in KNOWN:
        known = [one for one in lost if f'comm "{program}"' in one and f" {function}+0x" in one]
        if known:
            note(f"not counted: {len(known)} objects {whose}")
        lost = [one for one in lost if one not in known]
    note("\n".join("".join(lost).splitlines()[:SHOWN]))
    if FIND:
        check(lost, "what was lost was not found")
    else:
        check(not lost, f"{len(lost)} objects are lost")


def main():
    tap = Tap()
    if not FIND:
        # look() judges the records. The kernel's own line that there are some, of level 6, stays out of the console.
        write(PRINTK, 6)
    tap.case("lost memory is found" if FIND else "no memory is lost", look)
    tap.end()


if __name__ == "__main__":
    main()
