#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Loads the kernel user of tests/kernel_user, which tests a device and tells its TAP in the kernel's log.

usage: kernel_user.py DEVICE
"""

import re
import sys

from guestlib import must, note, run

MODULE = "ferrule_user"


def told():
    return re.findall(rf"{MODULE}: (.*)", must("dmesg"))


def main():
    before = len(told())
    status, output = run("/run/lab/load", f"/ferrule/module/{MODULE}.ko", f"device={sys.argv[1]}", seconds=120)
    print("\n".join(told()[before:]), flush=True)
    if status == 0:
        must("rmmod", MODULE)
    else:
        note(output)
    sys.exit(status)


if __name__ == "__main__":
    main()
