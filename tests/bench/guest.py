#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The guest's part of `make bench` and `make study`: each driver in turn, with the other unloaded.

usage: guest.py SCENARIO OPTIONS (JSON: rounds, drivers, only, sizes)

Prints a line of JSON for each thing measured: {"done": 3, "total": 80, "round": 1, "driver": "rxe", "measure": …} and
the "figures", each [measure, value, series, x], or the "reason" why there are none.
"""

import json
import subprocess
import sys
import time

from scenarios import SCENARIOS
from ways import Failure, Late

from guestlib import must, read, wait_for  # its directory is known since ways was imported

TRIES = 2


def load(driver):
    if driver == "ferrule":
        must("/run/lab/load", "/ferrule/module/ferrule.ko")
    else:
        must("modprobe", f"rdma_{driver}")
    must("rdma", "link", "add", f"{driver}0", "type", driver, "netdev", "dummy0")
    gids = f"/sys/class/infiniband/{driver}0/ports/1/gids"
    wait_for(lambda: any("0000:ffff:" in read(f"{gids}/{index}") for index in range(6)), f"{driver}0 has an IPv4 GID")


def unload(driver):
    must("rdma", "link", "delete", f"{driver}0")
    must("rmmod", "ferrule" if driver == "ferrule" else f"rdma_{driver}")


def measure(way, driver):
    """The figures of one way of measuring, or the reason why there are none."""
    for attempt in range(TRIES):
        try:
            return {"figures": list(way.run(driver))}
        except Late as late:
            reason = str(late)
            time.sleep(1)
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            reason = str(failure)
            break
    return {"reason": reason}


def main():
    options = json.loads(sys.argv[2])
    ways = SCENARIOS[sys.argv[1]].chosen(options["only"], options["sizes"])
    turns = [(number, driver, way)
             for number in range(1, options["rounds"] + 1)
             for driver in ["guest", *options["drivers"]]
             for way in ways
             if driver in way.drivers and number <= way.rounds]
    must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "ib_umad")
    loaded = None
    # What has failed will fail again.
    failed = set()
    for done, (number, driver, way) in enumerate(turns, 1):
        if driver != loaded:
            if loaded:
                unload(loaded)
            loaded = None if driver == "guest" else driver
            if loaded:
                load(loaded)
        if (way, driver) in failed:
            continue
        result = measure(way, driver)
        if "reason" in result:
            failed.add((way, driver))
        print(json.dumps({"done": done, "total": len(turns), "round": number, "driver": driver,
                          "measure": way.measure, "series": way.series, "x": way.x, **result}), flush=True)
    if loaded:
        unload(loaded)


if __name__ == "__main__":
    main()
