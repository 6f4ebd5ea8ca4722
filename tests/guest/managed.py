#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Programs of rdma_cm on a device that goes away under them, comes back, or belongs to a network namespace.

usage: managed.py TYPE ROUNDS

The device is one of `rdma link`, or the guest's PCI function of ferrule-nic.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

from guestlib import (PCI, SLOW, Skip, Tap, check, must, pci_function, run, set_driver, set_namespace_mode, wait_for,
                      within)

TYPE, ROUNDS = sys.argv[1], int(sys.argv[2])
MODULE = {"ferrule": "/ferrule/module/ferrule.ko"}.get(TYPE)
NAME = "ferrule" if MODULE else f"rdma_{TYPE}"
FUNCTION = pci_function()
DEVICE, ADDRESS = (f"{NAME}0", "10.77.0.1") if FUNCTION else ("cm_dev", "10.79.0.1")
NETNS = ("left", "right")


def load():
    if not os.path.isdir(f"/sys/module/{NAME}"):
        must(*(("/run/lab/load", MODULE) if MODULE else ("modprobe", NAME)))


def is_there(device):
    return os.path.exists(f"/sys/class/infiniband/{device}")


def has_address(device, *inside, gid=""):
    """Whether a device has its IPv4 GID. Namespaces have a sysfs of their own."""
    return f"0000:ffff:{gid}" in run(*inside, "sh", "-c", f"cat /sys/class/infiniband/{device}/ports/1/gids/*")[1]


@contextlib.contextmanager
def netdev():
    """The network device of the device; that of a function is there since the guest's boot."""
    if FUNCTION:
        yield
        return
    must("ip", "link", "add", "cm0", "type", "dummy")
    try:
        must("ip", "link", "set", "cm0", "mtu", 9000, "up")
        must("ip", "address", "add", f"{ADDRESS}/24", "dev", "cm0")
        yield
    finally:
        run("ip", "link", "delete", "cm0")


def add_link():
    load()
    if not FUNCTION:
        must("rdma", "link", "add", DEVICE, "type", TYPE, "netdev", "cm0")
    elif not os.path.exists(f"{PCI}/drivers/ferrule/{FUNCTION}"):
        set_driver(FUNCTION, True)
    wait_for(lambda: has_address(DEVICE), f"{DEVICE} has its IPv4 GID")


def delete_link():
    if FUNCTION:
        set_driver(FUNCTION, False)
    else:
        must("rdma", "link", "delete", DEVICE)


def delete_netdev():
    if FUNCTION:
        raise Skip("a PCI function is not its netdev's, and stays")
    must("ip", "link", "delete", "cm0")


def unload():
    must("rmmod", NAME)


class Programs:
    """Programs in the background, killed at the end."""

    def __init__(self):
        self.started = []

    def __enter__(self):
        return self

    def start(self, *words):
        process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        self.started.append(process)
        return process

    def again(self, *words):
        """The same, and again when it has ended."""
        return self.start("sh", "-c", f"while :; do {' '.join(map(str, words))}; sleep 0.02; done")

    def __exit__(self, *_):
        for process in self.started:
            # One that somebody has waited for is no process any more.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def cm_ids(state, *inside):
    return run(*inside, "rdma", "resource", "show", "cm_id")[1].count(state)


def busy(programs):
    """Servers and their clients, connected, and at work until they are stopped."""
    programs.start("rping", "-s", "-P", "-a", ADDRESS)
    programs.start("rping", "-s", "-p", 7175, "-a", ADDRESS)
    programs.again("ucmatose", "-b", ADDRESS, "-p", 7176, "-C", 100, "-c", 10)
    programs.again("udaddy", "-b", ADDRESS, "-C", 100, "-c", 4)
    wait_for(lambda: cm_ids("LISTEN") >= 4, "four servers listen")
    for _ in range(3):
        programs.start("rping", "-c", "-a", ADDRESS, "-C", 100000000)
    programs.start("rping", "-c", "-p", 7175, "-S", 60000, "-a", ADDRESS, "-C", 100000000)
    programs.again("ucmatose", "-s", ADDRESS, "-p", 7176, "-C", 100, "-c", 10)
    programs.again("udaddy", "-s", ADDRESS, "-C", 100, "-c", 4)
    wait_for(lambda: cm_ids("CONNECT") >= 2 * 4, "they are connected")


def rping(count=10, server=(), client=(), address=ADDRESS):
    with Programs() as programs:
        listening = cm_ids("LISTEN", *server)
        programs.start(*server, "rping", "-s", "-a", address, "-C", count)
        wait_for(lambda: cm_ids("LISTEN", *server) > listening, "rping listens")
        must(*client, "rping", "-c", "-a", address, "-C", count, "-V")


def goes(remove):
    """The device goes, at once, whatever programs do."""
    begin = time.monotonic()
    remove()
    check(time.monotonic() - begin < 5 * SLOW, f"{remove.__name__} took {time.monotonic() - begin:.1f} s")
    wait_for(lambda: not is_there(DEVICE), f"{DEVICE} is gone")


def under_programs(remove):
    for number in range(ROUNDS):
        with netdev():
            add_link()
            with Programs() as programs:
                busy(programs)
                time.sleep(0.05 * (number % 5))
                goes(remove)
                # Some end by themselves when they hear of it. None of them waits in the kernel for an event that does
                # not come.
                time.sleep(0.2)
            wait_for(lambda: not cm_ids(DEVICE), "nothing is left of the connections")


def listener_stays():
    """A program that listens at all addresses listens at a device that comes later, too, and comes again."""
    with netdev(), Programs() as programs:
        add_link()
        programs.start("rping", "-s", "-P", "-a", "0.0.0.0")
        for _ in range(2):
            wait_for(lambda: cm_ids("LISTEN"), "rping listens")
            must("rping", "-c", "-a", ADDRESS, "-C", 10, "-V")
            delete_link()
            add_link()
        delete_link()


GROUP = "239.77.0.2"


def group():
    """A program gets the datagrams that another one on the same device sends to a group, when both have joined it. The
    sender ends without waiting until they are sent, so it posts many."""
    words = ("mckey", "-m", GROUP, "-b", ADDRESS)
    with netdev(), Programs() as programs:
        add_link()
        receiver = programs.start(*words, "-C", 10)
        wait_for(lambda: GROUP in must("ip", "maddress", "show"), "the receiver joins the group")
        # Its queue pair is attached a little later.
        for _ in range(4):
            must(*words, "-s", "-C", 100)
            if receiver.poll() is not None:
                break
        status = receiver.wait(20 * SLOW)
        check(status == 0, f"the receiver: status {status}")
        wait_for(lambda: GROUP not in must("ip", "maddress", "show"), "both have left the group")
        delete_link()


@contextlib.contextmanager
def namespaces():
    must("modprobe", "veth")
    for name in NETNS:
        must("ip", "netns", "add", name)
    try:
        must("ip", "link", "add", "veth0", "netns", NETNS[0], "type", "veth",
             "peer", "name", "veth0", "netns", NETNS[1])
        for number, name in enumerate(NETNS, 1):
            must(*within(name), "ip", "link", "set", "lo", "up")
            must(*within(name), "ip", "link", "set", "veth0", "up")
            must(*within(name), "ip", "address", "add", f"10.80.0.{number}/24", "dev", "veth0")
        yield
    finally:
        for name in NETNS:
            must("ip", "netns", "delete", name)


@contextlib.contextmanager
def exclusive():
    """Each device belongs to one namespace. The mode is only changed where there is no namespace but the first."""
    set_namespace_mode("exclusive")
    try:
        yield
    finally:
        set_namespace_mode("shared")


def devices(*inside_words):
    return must(*inside_words, "rdma", "dev")


@contextlib.contextmanager
def two_devices():
    """One in each of the namespaces, to which it belongs."""
    if FUNCTION:
        raise Skip("a guest has one function")
    load()
    with exclusive(), namespaces():
        for name in NETNS:
            must(*within(name), "rdma", "link", "add", f"of_{name}", "type", TYPE, "netdev", "veth0")
        yield


def exclusive_namespaces():
    """A device belongs to the namespace of its network device, and programs of others do not see it."""
    with two_devices():
        for name, other in (NETNS, NETNS[::-1]):
            check(f"of_{name}" in devices(*within(name)) and f"of_{other}" not in devices(*within(name)),
                  f"{name} sees other devices than its own: {devices(*within(name))}")
            wait_for(lambda: has_address(f"of_{name}", *within(name)), f"of_{name} has its IPv4 GID")
        check("of_" not in devices(), f"the first namespace sees devices of others: {devices()}")
        rping(server=within("left"), client=within("right"), address="10.80.0.1")
        rping(server=within("right"), client=within("left"), address="10.80.0.2")
        must(*within("left"), "rdma", "link", "delete", "of_left")


def vlans():
    """Connections to an address of a VLAN, and of a device that is stacked on one: from another device and from the same."""
    must("modprobe", "-a", "8021q", "macvlan")
    with two_devices():
        for number, name in enumerate(NETNS, 1):
            ip = (*within(name), "ip")
            must(*ip, "link", "add", "link", "veth0", "name", "veth0.5", "type", "vlan", "id", 5)
            must(*ip, "link", "add", "link", "veth0.5", "name", "above", "type", "macvlan")
            for netdev, net in ("veth0.5", 5), ("above", 6):
                must(*ip, "link", "set", netdev, "up")
                must(*ip, "address", "add", f"10.80.{net}.{number}/24", "dev", netdev)
        for net in 5, 6:
            for number, name in enumerate(NETNS, 1):
                gid = f"0a50:{net:02x}{number:02x}"
                wait_for(lambda: has_address(f"of_{name}", *within(name), gid=gid), f"of_{name} has the GID of {gid}")
            for client in NETNS:
                rping(server=within("left"), client=within(client), address=f"10.80.{net}.1")


def moved():
    """A device is moved to another namespace under programs, and back; and it comes back when its namespace ends."""
    load()
    with exclusive(), netdev():
        with namespaces():
            must("ip", "netns", "attach", "first", os.getpid())
            add_link()
            with Programs() as programs:
                busy(programs)
                must("rdma", "dev", "set", DEVICE, "netns", "left")
                check(DEVICE in devices(*within("left")), f"{DEVICE} is not where it was moved to")
                check(DEVICE not in devices(), f"{DEVICE} is seen from where it was")
            must(*within("left"), "rdma", "dev", "set", DEVICE, "netns", "first")
            must("ip", "netns", "delete", "first")
            wait_for(lambda: has_address(DEVICE), f"{DEVICE} has its IPv4 GID again")
            rping()
            must("rdma", "dev", "set", DEVICE, "netns", "right")
        wait_for(lambda: has_address(DEVICE), f"{DEVICE} comes back from a namespace that ends")
        rping()


def main():
    tap = Tap()
    must("modprobe", "-a", "ib_uverbs", "rdma_ucm", "dummy")
    tap.case("the device goes under programs", under_programs, delete_link)
    tap.case("the network device goes under programs", under_programs, delete_netdev)
    tap.case("the module goes under programs", under_programs, unload)
    tap.case("a listener stays", listener_stays)
    tap.case("a group of one device", group)
    tap.case("exclusive namespaces", exclusive_namespaces)
    tap.case("addresses of VLANs", vlans)
    tap.case("a device is moved between namespaces", moved)
    tap.end()


if __name__ == "__main__":
    main()
