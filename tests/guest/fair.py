#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A sender by a slow network device holds up nobody else.

usage: fair.py TYPE measure      what others make beside a full queue: for a guest whose clock counts instructions
       fair.py TYPE write_space  senders that wait for write space go on, and hold up no link and no module

Two devices are in this namespace, and their peers in another one, each by a veth of its own. What the first one sends to
one of its peer's addresses is shaped to next to nothing. A program that has sent as much there as it may waits for events,
so that it takes no processor time from others. By the second network device programs find each other.
"""

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time

import node
from guestlib import (PREEMPT_RT, SLOW, Failure, Tap, call_within, check, check_perftest, must, note, remove_links, run,
                      wait_for, within)

TYPE, WHAT = sys.argv[1:]
MODULE = {"ferrule": "/ferrule/module/ferrule.ko"}.get(TYPE)
NAME = "ferrule" if MODULE else f"rdma_{TYPE}"
PEER = "ltpeer"
# Netdevs and devices here and there, and addresses there.
SLOW_LINK, SLOW_PEER, STUCK, FREE = ("lta", "ltdeva"), ("ltpa", "ltpeera"), "10.81.0.2", "10.81.0.3"
OTHER_LINK, OTHER_PEER, OTHER = ("ltb", "ltdevb"), ("ltpb", "ltpeerb"), "10.82.0.2"
CLOSED, OPEN = "16kbit", "10gbit"
ROUNDS = 3
# A measure beside a full queue has to reach so much of what it is alone.
SHARE = 0.8
SECONDS = 1
SIZE = 65536
# The memory of a packet of 4 KiB and its headers, at least.
MEMORY = 8192

_port = 19500


def load():
    must(*(("/run/lab/load", MODULE) if MODULE else ("modprobe", NAME)))


def make():
    """The netdevs and the devices."""
    must("modprobe", "-a", "veth", "sch_prio", "sch_tbf", "cls_u32", "ib_uverbs")
    must("ip", "netns", "add", PEER)
    must("ip", "-n", PEER, "link", "set", "lo", "up")
    for number, (here, there) in enumerate(((SLOW_LINK, SLOW_PEER), (OTHER_LINK, OTHER_PEER)), 81):
        must("ip", "link", "add", here[0], "type", "veth", "peer", "name", there[0], "netns", PEER)
        must("ip", "address", "add", f"10.{number}.0.1/24", "dev", here[0])
        must("ip", "-n", PEER, "address", "add", f"10.{number}.0.2/24", "dev", there[0])
        for words, name in ((("ip",), here[0]), (("ip", "-n", PEER), there[0])):
            must(*words, "link", "set", name, "mtu", 4500, "up")
    must("ip", "-n", PEER, "address", "add", f"{FREE}/24", "dev", SLOW_PEER[0])
    add_devices()


def add_devices():
    for (netdev, device), namespace in ((SLOW_LINK, None), (SLOW_PEER, PEER), (OTHER_LINK, None), (OTHER_PEER, PEER)):
        if not os.path.exists(f"/sys/class/infiniband/{device}"):
            must(*within(namespace), "rdma", "link", "add", device, "type", TYPE, "netdev", netdev)


def clear():
    remove_links("lt")
    run("ip", "netns", "delete", PEER)


def gid_of(device, address):
    """The index of the GID that is an address."""
    wanted = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))

    def found():
        return next((index for index, gid in node.roce_gids(device) if gid == wanted), None)

    wait_for(lambda: found() is not None, f"{device} has the address {address}")
    return found()


@contextlib.contextmanager
def shaped():
    """Packets to one address by the slow device wait in a queue with much space."""
    netdev = SLOW_LINK[0]
    must("tc", "qdisc", "add", "dev", netdev, "root", "handle", "1:", "prio")
    must("tc", "qdisc", "add", "dev", netdev, "parent", "1:3", "handle", "30:", *tbf(CLOSED))
    must("tc", "filter", "add", "dev", netdev, "parent", "1:", "protocol", "ip", "u32",
         "match", "ip", "dst", STUCK, "flowid", "1:3")
    try:
        yield
    finally:
        run("tc", "qdisc", "delete", "dev", netdev, "root")


def tbf(rate):
    return "tbf", "rate", rate, "burst", "64k", "limit", 128 << 20


def backlog():
    """Bytes in the queue, and packets."""
    for queue in json.loads(must("tc", "-j", "-s", "qdisc", "show", "dev", SLOW_LINK[0])):
        if queue["kind"] == "tbf":
            return queue["backlog"], queue["qlen"]
    return 0, 0


def counter(name, device=SLOW_LINK[1]):
    return json.loads(must("rdma", "-j", "statistic", "show", "link", f"{device}/1"))[0].get(name, 0)


class Pair:
    """A server and its client, which find each other by the device that is not slow."""

    def __init__(self, program, client, server, *more):
        """`client`: device and address; `server`: namespace, device and address."""
        global _port
        _port += 1
        namespace, device, address = server
        words = [str(word) for word in (*program, "-F", "-p", _port, *more)]
        there = call_within(namespace, gid_of, device, address)
        here = gid_of(*client)
        self.processes = []
        self.start((*within(namespace), *words, "-d", device, "-x", str(there)))
        self.await_listener(namespace, _port)
        self.start((*words, "-d", client[0], "-x", str(here), OTHER if namespace else "127.0.0.1"))

    def start(self, words):
        self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT, text=True))

    def await_listener(self, namespace, port):
        try:
            call_within(namespace, node.await_listener, port)
        except Failure:
            self.kill()
            raise Failure(f"{' '.join(self.processes[0].args)} does not listen:\n{self.said[0]}") from None

    def wait(self, seconds=60):
        """Wait for both, and answer what the client printed."""
        server, client = self.processes
        try:
            text, _ = client.communicate(timeout=seconds * SLOW)
            heard, _ = server.communicate(timeout=20 * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            check(False, f"{' '.join(client.args)}: not done within {seconds * SLOW} s")
        check(client.returncode == 0 and server.returncode == 0, f"{' '.join(client.args)}:\n{text}\n{heard}")
        return text

    def kill(self):
        for process in self.processes:
            process.kill()
        self.said = [process.communicate()[0] for process in self.processes]


def writes(client, server):
    """The output of WRITEs for some seconds."""
    return Pair(("ib_write_bw",), client, server, "-s", SIZE, "-D", SECONDS, "-f", 0, "-u", 18).wait(20)


def measure(client, server):
    """MiB/s of them; 0 if nothing came of it."""
    try:
        text = writes(client, server)
    except Failure as failure:
        note(str(failure))
        return 0.0
    row = re.search(rf"^\s*{SIZE}\s+\d+\s+\S+\s+(\S+)", text, re.MULTILINE)
    check(row, f"no row of results:\n{text}")
    return float(row[1])


HERE = (SLOW_LINK[1], "10.81.0.1")
SAME_DEVICE = "another queue pair of the same device"
MEASURES = {
    "another device of the namespace": ((OTHER_LINK[1], "10.82.0.1"), (PEER, OTHER_PEER[1], OTHER)),
    "local peers of the same device": (HERE, (None, *HERE)),
    SAME_DEVICE: (HERE, (PEER, SLOW_PEER[1], FREE)),
}


@contextlib.contextmanager
def filling(*more, least=1 << 20):
    """A program that has sent as much as it may to where nothing leaves, and sleeps."""
    pair = Pair(("ib_send_bw", "-e"), HERE, (PEER, SLOW_PEER[1], STUCK), "-s", 65536, "-t", 64, "-u", 21, *more)
    try:
        sizes = []

        def is_full():
            sizes.append(backlog())
            return len(sizes) > 4 and sizes[-1][0] > least and sizes[-1] == sizes[-4]

        for _ in range(100):
            if is_full():
                break
            time.sleep(0.1 * SLOW)
        check(sizes[-1][0] > least, f"the queue is not full: bytes and packets {sizes[-1]}")
        yield pair
    finally:
        pair.kill()


@contextlib.contextmanager
def datagrams_queued():
    """The queue has as much of plain datagrams, whose sockets are full."""
    with contextlib.ExitStack() as sockets:
        for _ in range(16):
            one = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with contextlib.suppress(BlockingIOError):
                for _ in range(1000):
                    one.sendto(bytes(4096), socket.MSG_DONTWAIT, (STUCK, 9))
        check(backlog()[0] > 1 << 20, f"the queue is not full: bytes and packets {backlog()}")
        yield


def typical(figures):
    """The median. With PREEMPT_RT, the best: there packets may come to wait for ksoftirqd, which then shares the processor
    with programs that poll, for as long as the measure lasts. That is so with an empty queue as well."""
    return max(figures) if PREEMPT_RT else statistics.median(figures)


def none_is_held_up(tap):
    alone = {name: [] for name in MEASURES}
    beside = {name: [] for name in MEASURES}

    def rounds():
        for _ in range(ROUNDS):
            for name, ends in MEASURES.items():
                # A queue that is full and has to wait costs every sender through the same discipline: it looks at the
                # clock for each packet. The owner of the packets in it makes no difference.
                with shaped(), datagrams_queued() if name == SAME_DEVICE else contextlib.nullcontext():
                    alone[name].append(measure(*ends))
            with shaped(), filling("-q", 16, "-n", 100000):
                note(f"queued: bytes and packets {backlog()}")
                for name, ends in MEASURES.items():
                    beside[name].append(measure(*ends))

    tap.case("measured alone and beside a full queue, by turns", rounds)

    def compare(name):
        check(len(beside[name]) == ROUNDS, "it was not measured")
        usual, then = typical(alone[name]), typical(beside[name])
        check(usual > 0, "alone, nothing came of it")
        note(f"alone {usual:.2f} MiB/s of {sorted(alone[name])}, beside {then:.2f} of {sorted(beside[name])}")
        check(then >= SHARE * usual, f"{then:.2f} MiB/s beside a full queue, {usual:.2f} alone")

    for name in MEASURES:
        tap.case(f"{name} is not held up", compare, name)


def limits():
    """A queue pair has 1 MiB of memory on its way, and those of a device 4 MiB, but for 256 KiB of each. An unreliable
    connection has no window below that."""
    for queue_pairs, most in ((1, 1 << 20), (16, (4 << 20) + 16 * (256 << 10))):
        with shaped(), filling("-c", "UC", "-q", queue_pairs, "-n", 100000, least=most // 4):
            queued, packets = backlog()
            note(f"{queue_pairs} queue pairs: {queued} bytes and {packets} packets")
            check(packets * MEMORY <= most, f"{packets} packets of {queue_pairs} queue pairs are on their way")


def goes_on():
    """A sender that waits is counted, sleeps meanwhile, and goes on when there is space."""
    before = counter("send_waits")
    # A connection that hears nothing has some 40 packets in flight, so it takes several to fill a device's limit. perftest
    # sends no fewer messages than its queue is long.
    with shaped(), filling("-n", 125 if SLOW == 1 else 64, "-q", 16) as pair:
        # On a loaded machine the queue stands still before the limit is reached.
        wait_for(lambda: counter("send_waits") > before, "a sender waits")
        waits = counter("send_waits") - before
        # It is rung, and asks seldom by itself: each queue pair ten times a second.
        time.sleep(1)
        more = counter("send_waits") - before - waits
        check(more < 400 * SLOW, f"{more} waits were counted in a second")
        must("tc", "qdisc", "change", "dev", SLOW_LINK[0], "parent", "1:3", "handle", "30:", *tbf(OPEN))
        pair.wait(60)
    wait_for(lambda: backlog()[1] == 0, "nothing is queued any more")


def goes_at_once(what, words):
    with shaped(), filling("-q", 16, "-n", 100000):
        begin = time.monotonic()
        must(*words)
        took = time.monotonic() - begin
        check(took < 5 * SLOW, f"{what} took {took:.1f} s")
        check(backlog()[1] > 100, f"nothing is queued any more: {backlog()}")
    # The queued packets are freed only now.


def works_again():
    add_devices()
    check_perftest(SIZE, writes(*MEASURES[SAME_DEVICE]))


def link_goes():
    goes_at_once("rdma link delete", ("rdma", "link", "delete", SLOW_LINK[1]))
    works_again()


def module_goes():
    goes_at_once("rmmod", ("rmmod", NAME))
    load()
    works_again()


def main():
    tap = Tap()
    if not os.path.isdir(f"/sys/module/{NAME}"):
        load()
    try:
        make()
        if WHAT == "measure":
            none_is_held_up(tap)
        else:
            tap.case("queue pairs have so much on their way at most", limits)
            tap.case("a sender that waits goes on when there is write space", goes_on)
            tap.case("a link is deleted at once", link_goes)
            tap.case("the module goes at once", module_goes)
    finally:
        clear()
    tap.end()


if __name__ == "__main__":
    main()
