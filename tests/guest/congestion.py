#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connections that share a narrow link with each other and with TCP: two network namespaces, joined by a shaped veth.

usage: congestion.py TYPE
"""

import contextlib
import json
import re
import sys

import wire
from guestlib import Tap, check, note

RATE = "200mbit"
SECONDS = 8
PAIRS = 2


@contextlib.contextmanager
def narrow(one, *queue):
    """Packets by the veth of `one` wait in this queue, which is served at one rate, one by one."""
    one.must("modprobe", "sch_htb")
    one.must("ethtool", "-K", "veth0", "tso", "off", "gso", "off", "tx-gso-list", "off")
    one.must("tc", "qdisc", "add", "dev", "veth0", "root", "handle", "1:", "htb", "default", "1")
    try:
        one.must("tc", "class", "add", "dev", "veth0", "parent", "1:", "classid", "1:1", "htb", "rate", RATE, "burst", "20k",
                 "cburst", "20k", "quantum", "9100")
        one.must("tc", "qdisc", "add", "dev", "veth0", "parent", "1:1", *queue)
        yield
        note(one.must("tc", "-s", "qdisc", "show", "dev", "veth0"))
    finally:
        one.must("tc", "qdisc", "delete", "dev", "veth0", "root")


def start(server, client, port, program="ib_write_bw"):
    """Start a program on both sides, of which the client transfers for some seconds."""
    running = []
    for one, more in ((server, ()), (client, (server.link,))):
        # Each message is counted as it ends: perftest counts completions, of which it else has one for 100.
        running.append(one.start(program, "-s", 65536, "-D", SECONDS, "-Q", 1, "-t", 16, "-F", "-u", 18, "-p", port,
                                 "-d", one.device, "-x", one.call("gid", one.device, "ipv4"), *more,
                                 seconds=SECONDS + 30))
        if one is server:
            server.call("await_listener", port)
    return running


def megabytes(running):
    """The rate of such a pair of programs, in megabytes a second."""
    ends = [program.wait() for program in running]
    for program, end in zip(running, ends):
        check(end[0] == 0, program.told(*end))
    line = re.search(r"^ *65536 +\d+ +[\d.]+ +([\d.]+)", ends[1][1], re.MULTILINE)
    check(line, f"no figure:\n{ends[1][1]}")
    return float(line[1]) * 1.048576


def shares(server, client, factor, *queue):
    """Two connections and one of TCP get a third each, more or less by this factor, and nothing breaks."""
    with narrow(client, *queue):
        iperf = server.start("iperf3", "-s", "-1", "-p", 18700, seconds=60)
        server.call("await_listener", 18700)
        pairs = [start(server, client, 18710 + number) for number in range(PAIRS)]
        asking = client.start("iperf3", "-c", server.link, "-p", 18700, "-t", SECONDS, "-J", seconds=60)
        status, text = asking.wait()
        check(status == 0, asking.told(status, text))
        rates = [megabytes(pair) for pair in pairs]
        iperf.wait()
        rates.append(json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8e6)
    told = ", ".join(f"{rate:.1f}" for rate in rates)
    note(f"{told} MB/s, the last one by TCP")
    fair = sum(rates) / len(rates)
    check(all(fair / factor <= rate <= fair * factor for rate in rates), f"{told} MB/s: not by a factor of {factor}")


def statistics(one):
    return json.loads(one.must("rdma", "-j", "statistic", "show", "link", f"{one.device}/1"))[0]


def more(one, before):
    return {name: value - before[name] for name, value in statistics(one).items() if isinstance(value, int)}


def marks(server, client):
    """Requests that are marked on their way are answered with notifications, which the requester heeds."""
    before = [statistics(one) for one in (server, client)]
    with narrow(client, "fq_codel", "limit", "1000", "ce_threshold", "300us"):
        note(f"{megabytes(start(server, client, 18720)):.1f} MB/s")
    there, here = (more(one, old) for one, old in zip((server, client), before))
    told = {name: (there[name], here[name]) for name in there if "cnp" in name or "ecn" in name}
    note(f"there and here: {told}")
    check(there["rcvd_ecn_marked"] > 0, "nothing was marked")
    check(0 < there["sent_cnps"] <= there["rcvd_ecn_marked"], "marks and notifications")
    check(0 < here["handled_cnps"] <= there["sent_cnps"], "notifications that were sent and heeded")


def marked_data(server, client):
    """Marks on the data of reads need no notification."""
    before = [statistics(one) for one in (server, client)]
    with narrow(server, "fq_codel", "limit", "1000", "ce_threshold", "300us"):
        note(f"{megabytes(start(server, client, 18730, 'ib_read_bw')):.1f} MB/s")
    there, here = (more(one, old) for one, old in zip((server, client), before))
    check(here["rcvd_ecn_marked"] > 0, "nothing was marked")
    check(here["sent_cnps"] == 0 and there["handled_cnps"] == 0, "a notification of data that was asked for")


def main():
    tap = Tap()
    with wire.namespaces(sys.argv[1]) as ((server, client), netdevs):
        wire.set_mtu((server, client), netdevs, 9000)
        tap.case("two connections and TCP, fq_codel", shares, server, client, 2, "fq_codel")
        tap.case("two connections and TCP, a FIFO of 100 packets", shares, server, client, 3, "pfifo", "limit", "100")
        tap.case("marks on requests", marks, server, client)
        tap.case("marks on data of reads", marked_data, server, client)
    tap.end()


if __name__ == "__main__":
    main()
