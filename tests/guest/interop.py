#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The cases of build/tests/interop: two drivers, each with a device in a network namespace of its own.

usage: interop.py TYPE ROUNDS [PATTERN…]

The one is of this type, the other rdma_rxe. Cases of reliable connections that end well run once more, where packets are lost;
an error whose answer is lost would come out as another one. A pattern, such as '*sizes*', chooses cases by their names.
"""

import fnmatch
import sys

from guestlib import Failure, Tap, must, run
from wire import namespaces, netem, set_mtu

PROGRAM = "/ferrule/build/tests/interop"
BEAR_LOSS = ("sizes", "immediate", "inline_data", "lists", "unsignalled", "compare_and_swap", "fetch_and_add", "pipelined",
             "invalidate", "rnr_waits", "shared_queue", "on_demand")


def counted(node):
    """The device's counters, but those that are zero: they tell who waits for whom."""
    words = must("rdma", "statistic", "show", "link", f"{node.device}/1").split()
    return " ".join(f"{name} {value}" for name, value in zip(words[2::2], words[3::2]) if value != "0")


def case(nodes, name, count):
    one, other = nodes
    status, output = run("env", f"PEER_DEVICE={other.device}", PROGRAM, "--rounds", count, "--only", name, one.device,
                         seconds=60)
    if status:
        raise Failure("\n".join([output, *(f"{node.device}: {counted(node)}" for node in nodes)]))


def main():
    driver, count, *patterns = sys.argv[1:]
    tap = Tap()

    def chosen(names, about, nodes):
        for name in names:
            title = f"{about}{name}"
            if not patterns or any(fnmatch.fnmatch(title, pattern) for pattern in patterns):
                tap.case(title, case, nodes, name, count)

    names = must(PROGRAM, "--list").split()
    must("modprobe", "rdma_rxe")
    with namespaces(driver, "rxe") as (nodes, netdevs):
        set_mtu(nodes, netdevs, 9000)
        for node in nodes:
            node.call("gid", node.device, "ipv4")
        chosen(names, "", nodes)
        with netem(nodes, netdevs, "loss", "1%"):
            chosen((name for name in names if name.startswith(BEAR_LOSS)), "1 % loss: ", nodes)
        nodes[1].must("rdma", "link", "delete", nodes[1].device)
    tap.end()


if __name__ == "__main__":
    main()
