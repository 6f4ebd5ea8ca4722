#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The guest's part of `make bench` and `make study`: each driver in turn, with the others unloaded.

With two guests it runs on node 1, and has node.py do what there is to do on node 2.

usage: guest.py SCENARIO OPTIONS (JSON: rounds, drivers, only, sizes)

Prints a line of JSON for each thing measured: {"done": 3, "total": 80, "round": 1, "driver": "rxe", "measure": …} and
the "figures", each [measure, value, series, x], or the "reason" why there are none.
"""

import json
import subprocess
import sys
import threading
import time

from scenarios import SCENARIOS
from ways import Failure, Late
from wire_ways import NETDEV, drivers_of, nodes

import node  # its directory is known since ways was imported

TRIES = 2


class Machines:
    """The guests of a scenario, which all have the device of the same turn."""

    def __init__(self, count):
        self.count = count
        self.netdev = NETDEV if count > 1 else "dummy0"
        threading.Thread(target=node.serve, args=(node.PORT,), daemon=True).start()
        for machine, _ in self.with_drivers("none"):
            machine.must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "ib_umad")

    def with_drivers(self, driver):
        return list(zip(nodes(driver), drivers_of(driver)))[:self.count]

    def load(self, driver):
        for machine, name in self.with_drivers(driver):
            if name == "ferrule":
                machine.must("/run/lab/load", "/ferrule/module/ferrule.ko")
            else:
                machine.must("modprobe", f"rdma_{name}")
            # That of a PCI function is there with its driver.
            if not machine.call("is_function", machine.device):
                machine.must("rdma", "link", "add", machine.device, "type", name, "netdev", self.netdev)
            machine.call("gid", machine.device, "ipv4")

    def unload(self, driver):
        for machine, name in self.with_drivers(driver):
            if not machine.call("is_function", machine.device):
                machine.must("rdma", "link", "delete", machine.device)
            machine.must("rmmod", "ferrule" if name == "ferrule" else f"rdma_{name}")


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
    scenario = SCENARIOS[sys.argv[1]]
    ways = scenario.chosen(options["only"], options["sizes"])
    turns = [(number, driver, way)
             for number in range(1, options["rounds"] + 1)
             for driver in ["guest", *options["drivers"]]
             for way in ways
             if driver in way.drivers and number <= way.rounds]
    machines = Machines(scenario.nodes)
    loaded = None
    # A program that has failed will fail again.
    failed = set()
    for done, (number, driver, way) in enumerate(turns, 1):
        if driver != loaded:
            if loaded:
                machines.unload(loaded)
            loaded = None if driver == "guest" else driver
            if loaded:
                machines.load(loaded)
        if (way, driver) in failed:
            continue
        result = measure(way, driver)
        if "reason" in result:
            failed.add((way, driver))
        print(json.dumps({"done": done, "total": len(turns), "round": number, "driver": driver,
                          "measure": way.measure, "series": way.series, "x": way.x, **result}), flush=True)
    if loaded:
        machines.unload(loaded)


if __name__ == "__main__":
    main()
