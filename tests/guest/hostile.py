#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Hostile programs, and their remains.

usage: hostile.py TYPE ROUNDS DEVICE

The rounds themselves are hostile.c's. Memory after the last is compared with what it was after the first few, when
caches had filled and the engines' tables had grown to what all attacks together need.
"""

import os
import subprocess
import sys

from footprint import Group, Log, compare, memory
from guestlib import Tap, check, must, note

TYPE, ROUNDS, DEVICE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
TESTS = "/ferrule/build/tests"
# One of each attack, twice, or as often as they come afterwards.
WARM = min(48, ROUNDS)

# The core's line, once, about a program that has changed its user and goes on with commands of the old kind.
EXPECTED = ("changed security contexts",)


def attack(rounds):
    command = [f"{TESTS}/hostile", "--type", TYPE, "--rounds", str(rounds), DEVICE]
    # One that has overwritten its own tables of symbols would end with an error of the loader's.
    environment = dict(os.environ, LD_BIND_NOW="1")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        lines = process.stdout.read().splitlines()
    # The last lines tell the round that failed, and how.
    note("\n".join(line.lstrip("# ") for line in lines[-12:]))
    check(process.returncode == 0, f"hostile ended with {process.returncode}")


def main():
    tap = Tap()
    log = Log(*EXPECTED)
    group = Group("hostile")
    tables = [f"{TESTS}/shards", "--only", "one_of_each_in_all", DEVICE]
    tap.case("each table grows", group.run, lambda: must(*tables))
    tap.case("first rounds", group.run, lambda: attack(WARM))
    before = memory(group)
    tap.case(f"{ROUNDS} rounds", group.run, lambda: attack(ROUNDS))
    tap.case("memory as before", compare, before, memory(group))
    tap.case("the kernel's log is quiet", log.check)
    tap.case("the driver has written nothing to it", log.check_driver)
    tap.end()


if __name__ == "__main__":
    main()
