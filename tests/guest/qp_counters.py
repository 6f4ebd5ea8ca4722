#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Counters that queue pairs are bound to (`rdma statistic qp`), by hand and by type.

usage: qp_counters.py DEVICE
"""

import contextlib
import json
import sys
import tempfile
import types

import pyverbs.enums as e
from pyverbs.qp import QP, QPCap, QPInitAttr

import counters
from ends import transfer, two_ends
from guestlib import Tap, check, must, run, wait_for

ADDRESS = "10.77.0.1"
# The most sets of counters of a device.
SETS = 256


def bound(device):
    """The counters, each with the numbers of its queue pairs."""
    return json.loads(must("rdma", "-j", "statistic", "qp", "show", "link", f"{device}/1") or "[]")


def numbers(counter):
    """Those of its queue pairs, which `rdma` has a list for, or one."""
    found = counter.get("lqpn", counter.get("LQPN", []))
    return [int(number) for number in (found if isinstance(found, list) else [found])]


def of(device, end):
    """The counter of an end."""
    found = [counter for counter in bound(device) if end.qp.qp_num in numbers(counter)]
    check(len(found) == 1, f"queue pair {end.qp.qp_num}: {bound(device)}")
    return found[0]


def bind(device, end, *counter):
    """Its status and its output."""
    return run("rdma", "statistic", "qp", "bind", "link", f"{device}/1", "lqpn", end.qp.qp_num, *counter)


def must_bind(device, end, *counter):
    status, output = bind(device, end, *counter)
    check(status == 0, f"bind: {output}")


def unbind(device, end):
    must("rdma", "statistic", "qp", "unbind", "link", f"{device}/1", "cntn", of(device, end)["cntn"], "lqpn",
         end.qp.qp_num)


@contextlib.contextmanager
def connected(device, service="RC"):
    with two_ends(service, (device, ADDRESS), (device, ADDRESS)) as (one, other):
        one.connect(other)
        other.connect(one)
        yield one, other


@contextlib.contextmanager
def automatic(device):
    must("rdma", "statistic", "qp", "set", "link", f"{device}/1", "auto", "type", "on")
    try:
        yield
    finally:
        must("rdma", "statistic", "qp", "set", "link", f"{device}/1", "auto", "off")


def by_hand(device):
    """An end counts in its set, and once at the port."""
    with connected(device) as (one, other):
        transfer(one, other)
        before = counters.statistic(device)
        must_bind(device, one)
        for _ in range(3):
            transfer(one, other, 1000)
        transfer(other, one, 500)
        own = of(device, one)
        check(own["send_requests"] == 3 and own["rcvd_messages"] == 1 and own["message_bytes"] == 500, f"{own}")
        # Those of the sends, and the one receive.
        check(own["completions"] == 4 and own["send_errors"] == 0, f"{own}")
        after = counters.statistic(device)
        grown = {name: after[name] - before[name] for name in ("send_requests", "rcvd_messages", "message_bytes")}
        check(grown == {"send_requests": 4, "rcvd_messages": 4, "message_bytes": 3500}, f"{grown}")
        unbind(device, one)
        check(bound(device) == [], f"{bound(device)}")
        # The counts of a set that is gone stay the port's, and it counts nothing more.
        transfer(one, other, 1000)
        last = counters.statistic(device)
        check(last["send_requests"] - before["send_requests"] == 5, f"{last}")


def two_of_one(device):
    """Two queue pairs share a set, which is there until the last has gone."""
    with connected(device) as (one, other):
        must_bind(device, one)
        must_bind(device, other, "cntn", of(device, one)["cntn"])
        check(bind(device, other)[0] != 0, "it was bound twice")
        transfer(one, other, 300)
        transfer(other, one, 300)
        own = of(device, one)
        check(own["send_requests"] == own["rcvd_messages"] == 2 and own["message_bytes"] == 600, f"{own}")
        unbind(device, one)
        check(of(device, other)["send_requests"] == 2, f"{bound(device)}")
        # The other one is bound still when it is destroyed.
    check(bound(device) == [], f"{bound(device)}")


def by_type(device):
    """Each queue pair is bound as it comes to INIT, to the set of its type."""
    with automatic(device), connected(device) as (one, other), connected(device, "UD") as (near, far):
        check(of(device, one)["cntn"] == of(device, other)["cntn"] != of(device, near)["cntn"], f"{bound(device)}")
        transfer(one, other, 100)
        transfer(near, far, 100)
        transfer(near, far, 100)
        sent = of(device, one)["send_requests"], of(device, near)["send_requests"]
        check(sent == (1, 2), f"{sent}")
    check(bound(device) == [], f"{bound(device)}")
    with connected(device) as (one, _):
        check(bound(device) == [], f"{bound(device)}")


def agent(device):
    """The port's performance management agent counts what is bound as well as what is not."""
    def work():
        for _ in range(4):
            transfer(one, other, 4000)

    with connected(device) as (one, other):
        must_bind(device, one)
        grown = counters.growth(device, work)
        # Four packets of the path MTU each.
        check(grown["port_xmit_packets"] == grown["port_rcv_packets"] == 16, f"{grown}")
        must_bind(device, other)
        grown = counters.growth(device, work)
        check(grown["port_xmit_data"] == grown["port_rcv_data"] == 4000, f"{grown}")
        unbind(device, other)
        # Nothing has been lost with it.
        check(counters.growth(device, lambda: None)["port_xmit_data"] == 0, "counted once more")


def packets(device):
    """Packets count with the queue pair that they are of, acknowledgements among them."""
    switch = f"/sys/kernel/debug/ferrule/{device}/wire_only"
    with open(switch, "w") as file:
        file.write("1")
    try:
        with connected(device) as (one, other):
            must_bind(device, one)
            must_bind(device, other)
            before = counters.statistic(device)
            transfer(one, other, 3000)

            def is_quiet():
                now = counters.statistic(device)
                return now["sent_pkts"] - before["sent_pkts"] == now["rcvd_pkts"] - before["rcvd_pkts"]

            # The last acknowledgement may be under way as yet.
            wait_for(is_quiet, "each packet that was sent has come")
            after = counters.statistic(device)
            a, b = of(device, one), of(device, other)
            check(a["sent_pkts"] >= 3 and b["sent_pkts"] >= 1 and a["sent_bytes"] > 3000, f"{a}, {b}")
            for name in ("sent_pkts", "sent_bytes", "rcvd_pkts", "rcvd_bytes"):
                check(a[name] + b[name] == after[name] - before[name], f"{name}: {a}, {b}, {before}, {after}")
    finally:
        with open(switch, "w") as file:
            file.write("0")


def limit(device):
    """As many sets as there may be, and not one more; then they can be had again."""
    with two_ends("RC", (device, ADDRESS), (device, ADDRESS)) as (end, _):
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=end.cq, rcq=end.cq, cap=QPCap(max_send_wr=1, max_recv_wr=1))
        more = [types.SimpleNamespace(qp=QP(end.pd, init)) for _ in range(SETS + 1)]
        # By one process: it takes longer to start than to bind.
        with tempfile.NamedTemporaryFile("w", suffix=".batch") as batch:
            batch.writelines(f"statistic qp bind link {device}/1 lqpn {one.qp.qp_num}\n" for one in more[:SETS])
            batch.flush()
            must("rdma", "-b", batch.name, seconds=60)
        check(bind(device, more[SETS])[0] != 0, "one more")
        unbind(device, more[7])
        must_bind(device, more[SETS])
        for one in more:
            one.qp.close()
    check(bound(device) == [], f"{bound(device)}")


CASES = (by_hand, two_of_one, by_type, agent, packets, limit)


def main(device):
    tap = Tap()
    for case in CASES:
        tap.case(case.__name__, case, device)
    tap.end()


if __name__ == "__main__":
    main(sys.argv[1])
