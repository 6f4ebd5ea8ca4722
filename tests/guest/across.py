#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Two guests, each as the one that asks the other: bytes that were written and read back, and words that both change.

usage: across.py DEVICE    node 2 runs node.py
"""

import sys

from guestlib import Tap, check
from wire import guests

PROGRAM = ("/ferrule/build/tests/two_guests", "--type", "ferrule")
PORT = 7700
CASES = {"ask": "serve", "ask_words": "serve_words"}


def talk(server, client, asks, serves):
    """One case at each node: both have to pass."""
    serving = server.start(*PROGRAM, "--only", serves, server.device, seconds=120)
    try:
        server.call("await_listener", PORT)
        asking = client.start("env", f"PEER={server.link}", *PROGRAM, "--only", asks, client.device, seconds=120)
        asked, served = asking.wait(), serving.wait()
        check(asked[0] == 0 and served[0] == 0, f"{asking.told(*asked)}\n{serving.told(*served)}")
    finally:
        serving.kill()


def main():
    device, = sys.argv[1:]
    tap = Tap()
    with guests(device, device) as (nodes, _):
        machines = [node.must("uname", "-m").strip() for node in nodes]
        for one in nodes:
            one.call("gid", one.device, "ipv4")
        for number in (0, 1):
            for asks, serves in CASES.items():
                tap.case(f"{asks}: {machines[number]} of {machines[1 - number]}", talk, nodes[1 - number], nodes[number], asks,
                         serves)
    tap.end()


main()
