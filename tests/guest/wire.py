#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Unmodified programs between two guests, or two network namespaces of one: ping-pong, perftest and rdma_cm over RoCEv2.

usage: wire.py guests DEVICE PEER_DEVICE [--all] [PATTERN…]    node 2 runs node.py
       wire.py namespaces TYPE [--all] [PATTERN…]              in this guest, with the module loaded

With --all, everything runs with each kind of address and each MTU. A pattern, such as '*READ*', chooses cases by their names.
"""

import contextlib
import fnmatch
import functools
import json
import os
import re
import sys
import threading
import time

import node
from guestlib import (SLOW, Skip, Tap, calling_within, check, check_perftest, check_pingpong, inside, must, read, rounds,
                      some, wait_for, within)
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
        check_pingpong(program, size, count, text)


def perftest(server, client, family, program, size, count, *more):
    # Either side asks for as many reads at a time as the other side's device can answer, and its own may not.
    if "read" in program or "atomic" in program:
        more = (*more, "-o", 16)
    # A virtual processor may have to wait for the host longer than the default timeout allows.
    text, _ = between(server, client, (program, "-s", size, "-n", rounds(count), "-F", "-u", 18, *more),
                      lambda here: ("-d", here.device, "-x", here.call("gid", here.device, family)))
    check_perftest(size, text)


class Cases:
    """The programs to run, as far as patterns choose them."""

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

# Lists of requests, so several packets for one doorbell; the debug kernel has one by programs.py alone. perftest refuses a
# number of messages that the length of the lists does not divide.
LISTS = (("ib_send_bw", 64, 960, ("-l", "16")), ("ib_write_bw", 8, 960, ("-l", "16")), ("ib_read_bw", 4096, 480, ("-l", "16")),
         ("ib_send_bw", 1000, 288, ("-c", "UD", "-l", "16")))

# Programs that differ with other addresses and with smaller packets.
SOME = (("ibv_rc_pingpong", 5000, 100, ("-c", "-e")), ("ib_send_lat", 2, 100, ()), ("ib_write_bw", 65536, 100, ()),
        ("ib_read_bw", 16384, 100, ("-b",)), ("ib_atomic_bw", 8, 500, ("-A", "FETCH_AND_ADD")),
        ("ib_send_lat", 10000, 100, ("-c", "UC")), ("ibv_ud_pingpong", 1000, 100, ("-e",)))

# Extended reliable connections, which rdma_rxe has not.
XRC = (("ibv_xsrq_pingpong", 5000, 200, ("-e",)), ("ib_send_lat", 10000, 100, ("-c", "XRC")),
       ("ib_send_bw", 65536, 100, ("-c", "XRC")), ("ib_write_bw", 65536, 100, ("-c", "XRC")),
       ("ib_read_bw", 16384, 100, ("-c", "XRC")), ("ib_atomic_bw", 8, 200, ("-A", "FETCH_AND_ADD", "-c", "XRC")))

# And where packets are lost. Not ping-pong, where the last to receive leaves at once: if its last acknowledgement is
# lost, there is nobody to answer its peer's retries. perftest's programs wait for each other.
LOSSY = (("ib_send_lat", 65536, 50, ("-e",)), ("ib_send_bw", 65536, 100, ()), ("ib_write_bw", 65536, 100, ()),
         ("ib_write_bw", 64, 1000, ()), ("ib_read_bw", 65536, 50, ()), ("ib_atomic_bw", 8, 500, ("-A", "FETCH_AND_ADD")))

# And where packets overtake each other: a gap looks like a loss to the receiver, until the missing packet comes after
# all.
REORDERED = (("ib_send_bw", 65536, 50, ()), ("ib_write_bw", 64, 500, ()), ("ib_read_bw", 65536, 50, ()),
             ("ib_atomic_bw", 8, 200, ("-A", "FETCH_AND_ADD")))

# Programs that find each other by rdma_cm, which kernel users of the device carry: the server, the client, options of both.
MANAGED = (("rping -s -a {address}", "rping -c -a {address}", "-C 10 -V"),
           ("rping -s -a {address}", "rping -c -a {address}", "-C 5 -S 60000 -V"),
           ("ucmatose -b {address}", "ucmatose -s {address}", "-C 10 -c 5"),
           ("udaddy -b {address}", "udaddy -s {address}", "-C 10 -c 2"),
           ("rstream -b {address}", "rstream -s {address}", "-S 65536 -C 10 -I 2 -T block -T verify"),
           ("ib_send_bw -d {device}", "ib_send_bw -d {device} {address}", "-R -F -u 18 -s 65536 -n 100"),
           ("ib_write_lat -d {device}", "ib_write_lat -d {device} {address}", "-R -F -u 18 -s 64 -n 200"),
           ("cmtime -b {address}", "cmtime -s {address}", "-c 20"),
           ("rdma_server -s {address}", "rdma_client -s {address}", ""))
MANAGED_IF_SLOW = 6
CMTIME_PORT = 7471


# A client of perftest that comes too early. Its two sides tell each other to go on, and only then does the server listen, in
# create_rdma_cm_connection(); the client that was rejected would try again, and crashes.
TOO_EARLY = "RDMA_CM_EVENT_REJECTED; error: 8"


def managed(server, client, serve, ask, both):
    def start(here, words):
        return here.start(*f"{words} {both}".format(address=server.link, device=here.device).split(), seconds=30)

    def listens():
        return "LISTEN" in server.must("rdma", "resource", "show", "cm_id")

    for _ in range(4):
        serving = start(server, serve)
        try:
            wait_for(listens, f"{serve} listens")
            if serve.startswith("cmtime"):
                # Its two sides tell each other by TCP how far they are.
                server.call("await_listener", CMTIME_PORT)
            asking = start(client, ask)
            asked = asking.wait()
            if TOO_EARLY in asked[1]:
                serving.kill()
                wait_for(lambda: not listens(), f"{serve} has gone")
                continue
            answered = serving.wait()
            check(asked[0] == 0 and answered[0] == 0, f"{asking.told(*asked)}\n{serving.told(*answered)}")
            return
        finally:
            serving.kill()
    check(False, f"{ask} came too early four times:\n{asked[1]}")


GROUP = "239.77.0.1"


def mckey(receiver, sender, netdev):
    """Datagrams to a group that both have joined by rdma_cm. The sender posts many more than the receiver waits for, since
    it ends without waiting until they are sent."""
    words = ("mckey", "-m", GROUP, "-b")
    receiving = receiver.start(*words, receiver.link, "-C", 10, seconds=60)
    try:
        wait_for(lambda: GROUP in receiver.must("ip", "maddress", "show", "dev", netdev), "the receiver joins the group")
        # Its queue pair is attached a little later, and an earlier sender sends to nobody.
        for _ in range(12):
            sending = sender.start(*words, sender.link, "-s", "-C", 100, seconds=30)
            sent = sending.wait()
            check(sent[0] == 0, sending.told(*sent))
            if receiving.has_ended():
                break
        received = receiving.wait()
        check(received[0] == 0, f"{receiving.told(*received)}\n{sending.told(*sent)}")
    finally:
        receiving.kill()


def set_mtu(nodes, netdevs, mtu):
    for one, netdev in zip(nodes, netdevs):
        one.must("ip", "link", "set", netdev, "mtu", mtu)


def run(cases, nodes, netdevs):
    one, other = nodes
    functions = [node.call("is_function", node.device) for node in nodes]
    every, by_cm = ALL + some(LISTS, 0), some(MANAGED, MANAGED_IF_SLOW)
    rows = ((9000, "ipv4", every), (9000, "ipv6", SOME), (1500, "ipv4", SOME), (1500, "ipv6", SOME))
    brief = any(functions) and "TEST_LONG" not in os.environ
    if brief:
        every, by_cm, rows = SOME, MANAGED[:3], ((9000, "ipv4", SOME), (1500, "ipv6", SOME))
        cases.case("the other programs", only_long)
    for mtu, family, programs in rows:
        set_mtu(nodes, netdevs, mtu)
        cases.programs(one, other, family, f"MTU {mtu}", every if cases.everything else programs)
    set_mtu(nodes, netdevs, 9000)
    is_ferrules = one.device[:3] == other.device[:3]
    if is_ferrules:
        cases.programs(one, other, "ipv4", "MTU 9000", XRC)
    two_drivers = not is_ferrules or len(set(functions)) == 2
    for serve, ask, both in by_cm:
        about = f"rdma_cm: {ask.split()[0]} {both}".strip()
        cases.case(about, managed, one, other, serve, ask, both)
        if two_drivers:
            cases.case(f"{about}, the other way round", managed, other, one, serve, ask, both)
    cases.case("rdma_cm: mckey", mckey, one, other, netdevs[0])
    if two_drivers:
        cases.case("rdma_cm: mckey, the other way round", mckey, other, one, netdevs[1])
        cases.programs(other, one, "ipv4", "the other way round, MTU 9000", every)
    if brief:
        return
    for about, programs, *words in (("1 % loss", LOSSY, "loss", "1%"),
                                    ("reordered", some(REORDERED, 1), "delay", "1ms", "reorder", "25%", "50%")):
        if all(functions):
            cases.case(about, unharmed)
            continue
        with netem(nodes, netdevs, *words):
            cases.programs(one, other, "ipv4", about, programs)
            if is_ferrules:
                cases.programs(one, other, "ipv4", about, XRC[2:3])
            if two_drivers:
                cases.programs(other, one, "ipv4", f"{about}, the other way round", programs)


def only_long():
    raise Skip("only in long runs: soft has them in short ones, and four pairs of devices take too long")


def unharmed():
    """A function's packets pass no network device of the guest's."""
    raise Skip("the packets of two functions of ferrule-nic go by no network device; qemu/nic/tests/wire loses some of them")


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


def groups(one, other, netdev):
    """Datagrams to groups: a program that has both devices, which namespaces do not hide."""
    must("env", f"PEER_DEVICE={other.device}", f"PEER_NETNS={other.name}", f"PEER_NETDEV={netdev}",
         "/ferrule/build/tests/groups", "--type", "ferrule", one.device, seconds=60)


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


def lists(device, read_there=read):
    """In how many lists packets have left a device of ferrule's."""
    report = read_there(f"/sys/kernel/debug/ferrule/{device}/engine")
    return int(next(line.split()[1] for line in report.splitlines() if line.startswith("lists ")))


def left_in_lists(one):
    """Some of the packets of the programs before have, since the network device is no virtual one."""
    check(lists(one.device, functools.partial(one.call, "read")) > 0, "no packets have left in lists")


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
def netem(nodes, netdevs, *words):
    """Packets of each node meet with these words (see tc-netem(8))."""
    for one, netdev in zip(nodes, netdevs):
        one.must("modprobe", "sch_netem")
        one.must("tc", "qdisc", "add", "dev", netdev, "root", "netem", *words, "limit", 10000)
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
def namespaces(driver, other_driver=None):
    """Two namespaces of this guest, joined by veth. Their devices are visible in all namespaces."""
    nodes = []
    must("modprobe", "veth")
    for name in NETNS:
        must("ip", "netns", "add", name)
    must("ip", "link", "add", "veth0", "netns", NETNS[0], "type", "veth", "peer", "name", "veth0", "netns", NETNS[1])
    with contextlib.ExitStack() as at_end:
        for name in NETNS:
            at_end.callback(must, "ip", "netns", "delete", name)
        for number, (name, of) in enumerate(zip(NETNS, (driver, other_driver or driver)), 1):
            words = within(name)
            must(*words, "ip", "link", "set", "lo", "up")
            must(*words, "ip", "link", "set", "veth0", "addrgenmode", "eui64", "up")
            must(*words, "ip", "address", "add", f"10.78.0.{number}/24", "dev", "veth0")
            must(*words, "ip", "address", "add", f"fd78::{number}/64", "dev", "veth0", "nodad")
            must(*words, "rdma", "link", "add", f"{of}_{name}", "type", of, "netdev", "veth0")
            at_end.enter_context(calling_within(name, node.serve, PORT))
            nodes.append(Namespace(name, f"{of}_{name}", f"10.78.0.{number}"))
        yield nodes, ("veth0", "veth0")


class Namespace(Node):
    """A node that is a namespace of this guest."""

    def __init__(self, name, device, link):
        super().__init__(name, "127.0.0.1", device, link)

    def ask(self, request):
        with inside(self.name):
            return super().ask(request)


def main():
    where, *rest = sys.argv[1:]
    scene, patterns = (guests(*rest[:2]), rest[2:]) if where == "guests" else (namespaces(rest[0]), rest[1:])
    tap = Tap()
    everything = patterns[:1] == ["--all"]
    cases = Cases(tap, everything, patterns[everything:])
    with scene as (nodes, netdevs):
        run(cases, nodes, netdevs)
        if where == "guests":
            for one in nodes:
                if one.device.startswith("ferrule") and not one.call("is_function", one.device):
                    cases.case(f"{one.name}: packets left in lists", left_in_lists, one)
        if where == "namespaces":
            cases.case("groups", groups, *nodes, netdevs[1])
            cases.case("an address goes and comes back", address_comes_back, *nodes, netdevs[0])
            cases.case("the network device goes", netdev_goes, *nodes, netdevs[0])
    tap.end()


if __name__ == "__main__":
    main()
