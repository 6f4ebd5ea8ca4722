#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module's whole life, again and again: load, a device, traffic, removal under traffic, unload.

usage: lifecycle.py TYPE ROUNDS

Memory after the last round is compared with what it was after the first few, when caches had filled.
"""

import os
import subprocess
import sys
import time

from footprint import Group, Log, compare, memory
from guestlib import SLOW, Tap, check, gid_index, must, read, server_and_client, wait_for

TYPE, ROUNDS = sys.argv[1], int(sys.argv[2])
MODULE = {"ferrule": "/ferrule/module/ferrule.ko"}.get(TYPE)
NAME = "ferrule" if MODULE else f"rdma_{TYPE}"
TESTS = "/ferrule/build/tests"
# rdma_rxe cannot be removed under a program; there the program is killed before.
REMOVALS = ("while_polling", "while_sleeping") if MODULE else ("program_killed",)
WARM = 3

# What the kernel says of any module from outside its tree, and of any device on such a netdev.
EXPECTED = ("loading out-of-tree module taints kernel", "module verification failed",
            # ib_core, of a netdev that does not tell its speed, as dummies do not.
            "speed is unknown, defaulting to")


def loaded():
    return os.path.isdir(f"/sys/module/{NAME}")


def load():
    if MODULE:
        must("/run/lab/load", MODULE)
    else:
        must("modprobe", NAME)
    check(loaded(), f"{NAME} is not loaded")


def unload():
    begin = time.monotonic()
    must("rmmod", NAME)
    check(not loaded(), f"{NAME} is still loaded")
    check(time.monotonic() - begin < 5 * SLOW, f"rmmod took {time.monotonic() - begin:.1f} s")


def traffic(number):
    """By turns a program of each kind of operation."""
    gid = gid_index("life0")
    perftest = ["-d", "life0", "-x", gid, "-n", 100, "-F", "-s"]
    programs = [["ibv_rc_pingpong", "-d", "life0", "-g", gid, "-s", 5000, "-n", 100, "-c"],
                ["ib_write_lat", *perftest, 5000], ["ib_read_lat", *perftest, 5000], ["ib_atomic_lat", *perftest, 8]]
    command = programs[number % len(programs)]
    server_and_client(command, command)


def life(number):
    load()
    must("rdma", "link", "add", "life0", "type", TYPE, "netdev", "dummy0")
    wait_for(lambda: "0000:ffff:" in "".join(read(f"/sys/class/infiniband/life0/ports/1/gids/{index}")
                                             for index in range(6)), "life0 has its IPv4 GID")
    traffic(number)
    # An open device file does not hold the module: it goes, and the program keeps a file without a device.
    if MODULE:
        holder = subprocess.Popen([f"{TESTS}/holder", "life0"], stdout=subprocess.PIPE)
        holder.stdout.readline()
        unload()
        check(holder.poll() is None, "the program died with the module")
        holder.kill()
        holder.communicate()
        load()
        must("rdma", "link", "add", "life0", "type", TYPE, "netdev", "dummy0")
    must("rdma", "link", "delete", "life0")
    for removal in REMOVALS:
        must(f"{TESTS}/removal", "--type", TYPE, "--only", removal, "none", seconds=60)
    # A device that nobody deleted goes with its module.
    must("rdma", "link", "add", "life1", "type", TYPE, "netdev", "dummy0")
    unload()
    check(not os.path.exists("/sys/class/infiniband/life1"), "life1 is left without its module")


def main():
    tap = Tap()
    must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "ib_umad")
    log = Log(*EXPECTED)
    group = Group("lifecycle")
    before = None
    for number in range(1, ROUNDS + 1):
        tap.case(f"round {number}", group.run, lambda: life(number))
        if tap.failed:
            break
        if number == min(WARM, ROUNDS - 1):
            before = memory(group)
    if before:
        tap.case("memory as before", compare, before, memory(group))
    tap.case("the kernel's log is quiet", log.check)
    tap.end()


if __name__ == "__main__":
    main()
