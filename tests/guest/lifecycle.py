#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module's whole life, again and again: load, a device, traffic, removal under traffic, unload.

usage: lifecycle.py TYPE ROUNDS

The device is one of `rdma link`, or the guest's PCI function of ferrule-nic, which comes with the module or when that
takes it.

Memory after the last round is compared with what it was after the first few, when caches had filled.
"""

import os
import subprocess
import sys
import time

from footprint import Group, Log, compare, memory
from guestlib import PCI, SLOW, Tap, check, gid_index, must, pci_function, read, server_and_client, set_driver, wait_for

TYPE, ROUNDS = sys.argv[1], int(sys.argv[2])
MODULE = {"ferrule": "/ferrule/module/ferrule.ko"}.get(TYPE)
NAME = "ferrule" if MODULE else f"rdma_{TYPE}"
TESTS = "/ferrule/build/tests"
# rdma_rxe cannot be removed under a program; there the program is killed before.
REMOVALS = ("while_polling", "while_sleeping") if MODULE else ("program_killed",)
FUNCTION = pci_function()
DEVICE = f"{NAME}0" if FUNCTION else "life0"
WARM = 3

# Lines of the kernel about any module from outside its tree, and about any device on such a netdev.
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
    gid = gid_index(DEVICE)
    perftest = ["-d", DEVICE, "-x", gid, "-n", 100, "-F", "-s"]
    programs = [["ibv_rc_pingpong", "-d", DEVICE, "-g", gid, "-s", 5000, "-n", 100, "-c"],
                ["ib_write_lat", *perftest, 5000], ["ib_read_lat", *perftest, 5000], ["ib_atomic_lat", *perftest, 8]]
    command = programs[number % len(programs)]
    server_and_client(command, command)


def is_there():
    return os.path.exists(f"/sys/class/infiniband/{DEVICE}")


def add():
    """The device, of the module that is loaded."""
    if not FUNCTION:
        must("rdma", "link", "add", DEVICE, "type", TYPE, "netdev", "dummy0")
    elif not os.path.exists(f"{PCI}/drivers/ferrule/{FUNCTION}"):
        set_driver(FUNCTION, True)
    wait_for(is_there, f"{DEVICE} is there")


def delete():
    if FUNCTION:
        set_driver(FUNCTION, False)
    else:
        must("rdma", "link", "delete", DEVICE)
    check(not is_there(), f"{DEVICE} is still there")


def life(number):
    load()
    add()
    wait_for(lambda: "0000:ffff:" in "".join(read(f"/sys/class/infiniband/{DEVICE}/ports/1/gids/{index}")
                                             for index in range(6)), f"{DEVICE} has its IPv4 GID")
    traffic(number)
    # An open device file does not hold the module: it goes, and the program keeps a file without a device.
    if MODULE:
        holder = subprocess.Popen([f"{TESTS}/holder", DEVICE], stdout=subprocess.PIPE)
        holder.stdout.readline()
        unload()
        check(holder.poll() is None, "the program died with the module")
        holder.kill()
        holder.communicate()
        load()
        add()
    delete()
    for removal in REMOVALS:
        must(f"{TESTS}/removal", "--type", TYPE, "--only", removal, DEVICE if FUNCTION else "none", seconds=60)
    # A device that nobody deleted goes with its module.
    add()
    unload()
    check(not is_there(), f"{DEVICE} is left without its module")


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
