#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Hostile packets, and their remains.

usage: hostile_wire.py ROUNDS DEVICE

The packets, as many as ROUNDS, are hostile_wire.c's. Memory after them is compared with what it was after a few, when
caches had filled and the engine's tables had grown to what all of them need.
"""

import json
import os
import re
import subprocess
import sys

from footprint import Group, Log, compare, memory
from guestlib import Tap, check, must, note, read, wait_for

ROUNDS, DEVICE = int(sys.argv[1]), sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = "/ferrule/build/tests"
WARM = min(4000, ROUNDS // 4)
# The hostile machine's, which is not far away; hostile_wire.c has them, too.
ADDRESSES = ("10.77.0.66/32", "fd77::66/128")

# Reasons to drop packets. A filled inbox is not among them: the sender carries out the packets that it has sent.
REASONS = ("not_rocev2", "malformed_short", "malformed_version", "malformed_opcode", "malformed_length", "icrc_errors",
           "pkey_errors", "unknown_queue_pairs", "misdirected", "duplicate_request", "sequence_errors", "dropped",
           "rcvd_ecn_marked")


def attack(rounds):
    command = [f"{HERE}/wire_only.sh", DEVICE, "", f"{TESTS}/hostile_wire", "--rounds", str(rounds), DEVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        lines = process.stdout.read().splitlines()
    note("\n".join(line.lstrip("# ") for line in lines[-12:]))
    check(process.returncode == 0, f"hostile_wire ended with {process.returncode}")


def statistics():
    return json.loads(must("rdma", "-j", "statistic", "show", "link", f"{DEVICE}/1"))[0]


def objects():
    """How many objects of each kind the engine holds."""
    found = re.search(r"^Objects \{.*?^\}", read(f"/sys/kernel/debug/ferrule/{DEVICE}/engine"), re.MULTILINE | re.DOTALL)
    check(found, "the report has no objects")
    return found[0]


def counted(before, after, rounds):
    more = {name: after[name] - before[name] for name in after if isinstance(after[name], int)}
    note(", ".join(f"{name} {value}" for name, value in more.items() if value))
    # Packets that the device has sent itself come back by the loopback device, less those to the hostile machine. Of
    # its packets, some have a length in their UDP header that the network drops them for.
    hostile = more["rcvd_pkts"] - more["sent_pkts"]
    check(hostile >= rounds * 3 // 4, f"{hostile} packets of {rounds} have come")
    never = [name for name in REASONS if not more[name]]
    check(not never, f"nothing was counted as {', '.join(never)}")


def nothing_is_left(before):
    wait_for(lambda: objects() == before, f"the engine's objects are {before} again")


def main():
    tap = Tap()
    log = Log()
    group = Group("hostile_wire")
    for address in ADDRESSES:
        must("ip", "address", "add", address, "dev", "lo")
    try:
        held = objects()
        tap.case("first packets", group.run, lambda: attack(WARM))
        footprint, figures = memory(group), statistics()
        tap.case(f"{ROUNDS} packets", group.run, lambda: attack(ROUNDS))
        tap.case("each kind is counted", counted, figures, statistics(), ROUNDS)
        tap.case("no object is left", nothing_is_left, held)
        tap.case("memory as before", compare, footprint, memory(group))
        tap.case("the kernel's log is quiet", log.check)
        tap.case("the driver has written nothing to it", log.check_driver)
    finally:
        for address in ADDRESSES:
            must("ip", "address", "delete", address, "dev", "lo")
    tap.end()


if __name__ == "__main__":
    main()
