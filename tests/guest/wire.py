#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Unmodified programs between two guests, or two network namespaces of one: ping-pong, perftest and rdma_cm over RoCEv2.

usage: wire.py guests DEVICE PEER_DEVICE [--all] [PATTERN…]    node 2 runs node.py
       wire.py namespaces TYPE [--all] [PATTERN…]              in this guest, with the module loaded

With --all, everything runs with each kind of address and each MTU. A pattern, such as '*READ*', chooses cases by their names.
"""

import contextlib
import fnmatch
import json
import os
import re
import subprocess
import sys
import threading
import time

import node
from guestlib import SLOW, Tap, check, must, rounds, wait_for
from node import PORT, Node

NETNS = ("left", "right")

_port = 19000


def between(server, client, command, options=lambda here: (), seconds=20):
    """Run a program as server and as client; `options` gives those that differ from node to node."""
    global _port
    _port += 1
    serving = server.start(*command, "-p", _port, *options(server), seconds=seconds)
    try:
        server.call("await_listener", _port)
        asking = client.start(*command, "-p", _port, *options(client), server.link, seconds=seconds)
        asked, answered = asking.wait(), serving.wait()
        check(asked[0] == 0 and answered[0] == 0, f"{asking.told(*asked)}\n{serving.told(*answered)}")
        return asked[1], answered[1]
    finally:
        serving.kill()


def pingpong(server, client, family, program, size, count, *more):
    count = rounds(count)
    texts = between(server, client, (program, "-s", size, "-n", count, *more),
                    lambda here: ("-d", here.device, "-g", here.call("gid", here.device, family)))
    for text in texts:
        check(re.search(rf"{2 * size * count} bytes in ", text), f"not all bytes were counted:\n{text}")
        check("invalid data" not in text, text)


def perftest(server, client, family, program, size, count, *more):
    # Either side asks for as many reads at a time as the other side's device can answer, and its own may not.
    if "read" in program or "atomic" in program:
        more = (*more, "-o", 16)
    # A virtual processor may have to wait for the host longer than the default timeout allows.
    text, _ = between(server, client, (program, "-s", size, "-n", rounds(count), "-F", "-u", 18, *more),
                      lambda here: ("-d", here.device, "-x", here.call("gid", here.device, family)))
    row = re.search(rf"^\s*{size}\s+\d+\s+(.*)$", text, re.MULTILINE)
    check(row and any(float(number) > 0 for number in row[1].split()), f"no row of results:\n{text}")


class Cases:
    """What is to be run, as far as patterns choose it."""

    def __init__(self, tap, everything, patterns):
        self.tap, self.everything, self.patterns = tap, everything, patterns

    def case(self, name, function, *arguments):
        if not self.patterns or any(fnmatch.fnmatch(name, pattern) for pattern in self.patterns):
            self.tap.case(name, function, *arguments)

    def programs(self, server, client, family, about, programs):
        for program, size, count, more in programs:
            self.case(" ".join((f"{about}, {family}: {program}, {size} bytes", *more)),
                      pingpong if "pingpong" in program else perftest,
                      server, client, family, program, size, count, *more)


# Every operation of RC, UC and UD, in packets of one path MTU and of many. Ping-pong does not poll: its timeout is short,
# and rdma_rxe answers by a thread, which polling may keep waiting. Nor can its timeout be chosen, and within it a slow guest
# does not get 64 packets acknowledged.
ALL = (("ibv_rc_pingpong", 1, 200, ("-c", "-e")), ("ibv_rc_pingpong", 5000, 200, ("-c", "-e")),
       ("ibv_rc_pingpong", 65536 // SLOW, 50, ("-c", "-e")), ("ib_send_lat", 2, 200, ()), ("ib_send_lat", 10000, 100, ("-e",)),
       ("ib_write_lat", 2, 200, ()), ("ib_read_lat", 2, 200, ()), ("ib_read_lat", 10000, 100, ("-e",)),
       ("ib_atomic_lat", 8, 200, ("-A", "FETCH_AND_ADD")), ("ib_atomic_lat", 8, 200, ("-A", "CMP_AND_SWAP")),
       ("ib_send_bw", 65536, 200, ()), ("ib_send_bw", 4096, 300, ("-e",)), ("ib_send_bw", 16384, 100, ("-b",)),
       ("ib_write_bw", 65536, 200, ()), ("ib_write_bw", 8, 2000, ()), ("ib_write_bw", 16384, 100, ("-b",)),
       ("ib_write_bw", 16384, 100, ("-q", "4")), ("ib_read_bw", 65536, 200, ()), ("ib_read_bw", 8, 2000, ()),
       ("ib_read_bw", 16384, 100, ("-b",)), ("ib_atomic_bw", 8, 1000, ("-A", "FETCH_AND_ADD")),
       ("ib_atomic_bw", 8, 1000, ("-A", "CMP_AND_SWAP")),
       ("ibv_uc_pingpong", 5000, 200, ("-e",)), ("ibv_ud_pingpong", 1000, 200, ("-e",)),
       ("ib_send_lat", 10000, 100, ("-c", "UC")), ("ib_write_lat", 2, 200, ("-c", "UC")),
       ("ib_send_bw", 4096, 300, ("-c", "UC")), ("ib_write_bw", 16384, 100, ("-c", "UC")),
       ("ib_send_lat", 1000, 200, ("-c", "UD")), ("ib_send_lat", 64, 200, ("-c", "UD", "-e")),
       ("ib_send_bw", 1000, 300, ("-c", "UD")))

# What differs with other addresses and with smaller packets.
SOME = (("ibv_rc_pingpong", 5000, 100, ("-c", "-e")), ("ib_send_lat", 2, 100, ()), ("ib_write_bw", 65536, 100, ()),
        ("ib_read_bw", 16384, 100, ("-b",)), ("ib_atomic_bw", 8, 500, ("-A", "FETCH_AND_ADD")),
        ("ib_send_lat", 10000, 100, ("-c", "UC")), ("ibv_ud_pingpong", 1000, 100, ("-e",)))

# And where packets are lost. Not ping-pong, where the last to receive leaves at once: if its last acknowledgement is
# lost, there is nobody to answer its peer's retries. perftest's programs wait for each other.
LOSSY = (("ib_send_lat", 65536, 50, ("-e",)), ("ib_send_bw", 65536, 100, ()), ("ib_write_bw", 65536, 100, ()),
         ("ib_write_bw", 64, 1000, ()), ("ib_read_bw", 65536, 50, ()), ("ib_atomic_bw", 8, 500, ("-A", "FETCH_AND_ADD")))


# Programs that find each other by rdma_cm, which kernel users of the device carry: options of the server, the client, both.
MANAGED = (("rping", ("-s", "-a"), ("-c", "-a"), ("-C", 10, "-V")),
           ("rping", ("-s", "-a"), ("-c", "-a"), ("-C", 5, "-S", 60000, "-V")),
           ("ucmatose", ("-b",), ("-s",), ("-C", 10, "-c", 5)), ("udaddy", ("-b",), ("-s",), ("-C", 10, "-c", 2)))


def managed(server, client, program, serve, ask, both):
    serving = server.start(program, *serve, server.link, *both, seconds=30)
    try:
        wait_for(lambda: "LISTEN" in server.must("rdma", "resource", "show", "cm_id"), f"{program} listens")
        asking = client.start(program, *ask, server.link, *both, seconds=30)
        asked, answered = asking.wait(), serving.wait()
        check(asked[0] == 0 and answered[0] == 0, f"{asking.told(*asked)}\n{serving.told(*answered)}")
    finally:
        serving.kill()


def set_mtu(nodes, netdevs, mtu):
    for one, netdev in zip(nodes, netdevs):
        one.must("ip", "link", "set", netdev, "mtu", mtu)


def run(cases, nodes, netdevs):
    one, other = nodes
    for mtu, family, programs in ((9000, "ipv4", ALL), (9000, "ipv6", SOME), (1500, "ipv4", SOME), (1500, "ipv6", SOME)):
        set_mtu(nodes, netdevs, mtu)
        cases.programs(one, other, family, f"MTU {mtu}", ALL if cases.everything else programs)
    set_mtu(nodes, netdevs, 9000)
    two_drivers = one.device[:3] != other.device[:3]
    for program, *options in MANAGED:
        about = " ".join(("rdma_cm:", program, *map(str, options[-1])))
        cases.case(about, managed, one, other, program, *options)
        if two_drivers:
            cases.case(f"{about}, the other way round", managed, other, one, program, *options)
    if two_drivers:
        cases.programs(other, one, "ipv4", "the other way round, MTU 9000", ALL)
    with lossy(nodes, netdevs, "1%"):
        cases.programs(one, other, "ipv4", "1 % loss", LOSSY)
        if two_drivers:
            cases.programs(other, one, "ipv4", "1 % loss, the other way round", LOSSY)


def start_pair(server, client, family, seconds):
    """Start a program on both sides that writes for so many seconds."""
    global _port
    _port += 1
    running = []
    for one, more in ((server, ()), (client, (server.link,))):
        running.append(one.start("ib_write_bw", "-s", 4096, "-D", seconds, "-F", "-u", 18, "-p", _port, "-d", one.device,
                                 "-x", one.call("gid", one.device, family), *more))
        if one is server:
            server.call("await_listener", _port)
    return running


def packets(one):
    return json.loads(one.must("rdma", "-j", "statistic", "show", "link", f"{one.device}/1"))[0]["rcvd_pkts"]


def await_traffic(one):
    before = packets(one)
    wait_for(lambda: packets(one) > before + 100, f"{one.name} receives packets")


def groups(one, other):
    """Datagrams to groups: a program that has both devices, which namespaces do not hide."""
    must("env", f"PEER_DEVICE={other.device}", "/ferrule/build/tests/groups", "--type", "ferrule", one.device, seconds=60)


def address_comes_back(server, client, netdev):
    """A connection outlives the absence of its address."""
    running = start_pair(server, client, "ipv6", 4)
    await_traffic(server)
    address = ("fd78::1/64", "dev", netdev)
    server.must("ip", "address", "delete", *address)
    time.sleep(0.5)
    server.must("ip", "address", "add", *address, "nodad")
    for program in running:
        status, output = program.wait()
        check(status == 0, program.told(status, output))


def netdev_goes(server, client, netdev):
    """A program whose network device goes ends, and the devices go at both ends of the veth."""
    waiting, writing = start_pair(server, client, "ipv4", 60)
    await_traffic(server)
    client.must("ip", "link", "delete", netdev)
    status, output = writing.wait()
    check(status not in (0, -9), writing.told(status, output))
    # The server waits for word by TCP, which does not come any more.
    for one in (server, client):
        wait_for(lambda: not os.path.exists(f"/sys/class/infiniband/{one.device}"), f"{one.device} goes")
    waiting.kill()


@contextlib.contextmanager
def lossy(nodes, netdevs, part):
    """That part of what each node sends is lost."""
    for one, netdev in zip(nodes, netdevs):
        one.must("modprobe", "sch_netem")
        one.must("tc", "qdisc", "add", "dev", netdev, "root", "netem", "loss", part, "limit", 10000)
    try:
        yield
    finally:
        for one, netdev in zip(nodes, netdevs):
            one.must("tc", "qdisc", "delete", "dev", netdev, "root")


@contextlib.contextmanager
def guests(device, peer_device):
    """This guest and node 2, which runs node.py."""
    threading.Thread(target=node.serve, args=(PORT,), daemon=True).start()
    yield (Node("node 1", "127.0.0.1", device, "10.77.0.1"), Node("node 2", "10.77.0.2", peer_device, "10.77.0.2")), \
        ("eth0", "eth0")


@contextlib.contextmanager
def namespaces(driver):
    """Two namespaces of this guest, joined by veth. Their devices are visible in all namespaces."""
    agents = []
    nodes = []
    must("modprobe", "veth")
    for name in NETNS:
        must("ip", "netns", "add", name)
    must("ip", "link", "add", "veth0", "netns", NETNS[0], "type", "veth", "peer", "name", "veth0", "netns", NETNS[1])
    try:
        for number, name in enumerate(NETNS, 1):
            inside = ("ip", "netns", "exec", name)
            must(*inside, "ip", "link", "set", "lo", "up")
            must(*inside, "ip", "link", "set", "veth0", "addrgenmode", "eui64", "up")
            must(*inside, "ip", "address", "add", f"10.78.0.{number}/24", "dev", "veth0")
            must(*inside, "ip", "address", "add", f"fd78::{number}/64", "dev", "veth0", "nodad")
            must(*inside, "rdma", "link", "add", f"{driver}_{name}", "type", driver, "netdev", "veth0")
            agents.append(subprocess.Popen([*inside, sys.executable, node.__file__, str(PORT)]))
            nodes.append(Namespace(name, f"{driver}_{name}", f"10.78.0.{number}"))
        yield nodes, ("veth0", "veth0")
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        for name in NETNS:
            must("ip", "netns", "delete", name)


class Namespace(Node):
    """A node that is a namespace of this guest."""

    def __init__(self, name, device, link):
        super().__init__(name, "127.0.0.1", device, link)

    def ask(self, request):
        with inside(self.name):
            return super().ask(request)


@contextlib.contextmanager
def inside(name):
    """This thread is in a network namespace."""
    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{name}") as there:
        os.setns(there.fileno(), os.CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(before.fileno(), os.CLONE_NEWNET)


def main():
    where, *rest = sys.argv[1:]
    scene, patterns = (guests(*rest[:2]), rest[2:]) if where == "guests" else (namespaces(rest[0]), rest[1:])
    tap = Tap()
    everything = patterns[:1] == ["--all"]
    cases = Cases(tap, everything, patterns[everything:])
    with scene as (nodes, netdevs):
        run(cases, nodes, netdevs)
        if where == "namespaces":
            cases.case("groups", groups, *nodes)
            cases.case("an address goes and comes back", address_comes_back, *nodes, netdevs[0])
            cases.case("the network device goes", netdev_goes, *nodes, netdevs[0])
    tap.end()


if __name__ == "__main__":
    main()
