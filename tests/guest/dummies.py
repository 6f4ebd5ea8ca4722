# SPDX-License-Identifier: GPL-2.0
"""Dummy netdevs ("lt…"), devices of the driver under test on them, and the views of both."""

import contextlib
import json
import os
import sys

from guestlib import check, gid_index, must, read, remove_links, run, server_and_client, wait_for

TYPE = sys.argv[1]
CLASS = "/sys/class/infiniband"
DEBUGFS = "/sys/kernel/debug"


def netdev_add(name, address=None, mtu=9000):
    must("ip", "link", "add", name, "type", "dummy")
    must("ip", "link", "set", name, "mtu", mtu, "up")
    if address:
        must("ip", "address", "add", f"{address}/24", "dev", name)


def link_add(device, netdev):
    must("rdma", "link", "add", device, "type", TYPE, "netdev", netdev)


def exists(device):
    return os.path.exists(f"{CLASS}/{device}")


def clear():
    """Remove what a case may have left."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        run("ip", "netns", "delete", name)
    remove_links("lt")


def refused(words, *texts):
    """A command that has to fail with one of the texts in a line, and to leave nothing."""
    before = sorted(os.listdir(CLASS))
    status, output = run(*words)
    check(status != 0, f"{' '.join(words)} succeeded")
    check(any(text in output for text in texts), f"{' '.join(words)} says: {output}")
    check(sorted(os.listdir(CLASS)) == before, f"{' '.join(words)} has left a device")


def await_gid(device):
    wait_for(lambda: "0000:ffff:" in read(f"{CLASS}/{device}/ports/1/gids/1"), f"{device} has its IPv4 GID")


def port_state(device):
    return read(f"{CLASS}/{device}/ports/1/state").split(": ")[1]


def active_mtu(device):
    for line in must("ibv_devinfo", "-d", device).splitlines():
        if "active_mtu" in line:
            return int(line.split()[1])
    return None


def traffic(device):
    gid = gid_index(device)
    command = ["ibv_rc_pingpong", "-d", device, "-g", gid, "-s", 1000, "-n", 50, "-c"]
    server_and_client(command, command)


@contextlib.contextmanager
def alone():
    """Without the devices that others have left, which have the port of RoCEv2 as well; they come back."""
    links = [link for link in json.loads(must("rdma", "-j", "link", "show")) if not link["ifname"].startswith("lt")]
    for link in links:
        must("rdma", "link", "delete", link["ifname"])
    try:
        yield
    finally:
        for link in links:
            must("rdma", "link", "add", link["ifname"], "type", TYPE, "netdev", link["netdev"])


def kernel_log():
    return must("dmesg")
