#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The guest's part of the benchmark: each driver in turn, with the other unloaded.

usage: guest.py ROUNDS DRIVER...

Prints a line for each figure: "= round driver measure value", or "! round driver measure reason" where there is none.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "guest"))

from guestlib import Failure, gid_index, must, read, server_and_client, wait_for  # noqa: E402
from measures import MEASURES  # noqa: E402

TRIES = 3


def load(driver):
    if driver == "ferrule":
        must("insmod", "/ferrule/module/ferrule.ko")
    else:
        must("modprobe", f"rdma_{driver}")
    must("rdma", "link", "add", f"{driver}0", "type", driver, "netdev", "dummy0")
    gids = f"/sys/class/infiniband/{driver}0/ports/1/gids"
    wait_for(lambda: any("0000:ffff:" in read(f"{gids}/{index}") for index in range(6)), f"{driver}0 has an IPv4 GID")


def unload(driver):
    must("rdma", "link", "delete", f"{driver}0")
    must("rmmod", "ferrule" if driver == "ferrule" else f"rdma_{driver}")


def measure(driver, one):
    """One figure; perftest hangs at times, so that it may try again."""
    command = [one.program, "-d", f"{driver}0", "-x", gid_index(f"{driver}0"), "-s", one.size, "-n", one.count, "-F"]
    for attempt in range(TRIES):
        try:
            _, text = server_and_client(command, command, seconds=40)
            for line in text.splitlines():
                words = line.split()
                if words[:1] == [str(one.size)] and len(words) > 4:
                    return one.figure(words)
            raise Failure(f"no row of results:\n{text}")
        except Failure as failure:
            if attempt == TRIES - 1:
                raise
            print(f"{one.name} with {driver}, try {attempt + 1}: {str(failure).splitlines()[0]}", file=sys.stderr,
                  flush=True)
            subprocess.run(["pkill", "-9", one.program], check=False)
            time.sleep(1)
    return None


def main():
    rounds, drivers = int(sys.argv[1]), sys.argv[2:]
    must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "ib_umad")
    for line in must("/ferrule/build/tests/limits", seconds=60).splitlines():
        name, value, unit = line.split()
        print(f"= 0 limits {name} {value} {unit}", flush=True)
    for number in range(1, rounds + 1):
        for driver in drivers:
            load(driver)
            for index, one in enumerate(MEASURES):
                try:
                    print(f"= {number} {driver} {index} {measure(driver, one)}", flush=True)
                except Failure as failure:
                    print(f"! {number} {driver} {index} {' '.join(str(failure).split())[:300]}", flush=True)
            unload(driver)


if __name__ == "__main__":
    main()
