#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The device of a PCI function as tools show it: an adapter beside its network device (`rdma link`, and the files of sysfs that
ibdev2netdev reads, which Debian has not).

usage: nic_adapter.py DEVICE
"""

import json
import os
import sys

from guestlib import Tap, check, must, pci_function, read, run, set_namespace_mode, wait_for, within


class Adapter:
    """A device and its function."""

    def __init__(self, device):
        self.device, self.path = device, f"/sys/class/infiniband/{device}"
        self.port = f"{self.path}/ports/1"
        self.function = pci_function()

    def link(self):
        links = json.loads(must("rdma", "-j", "link", "show", f"{self.device}/1"))
        check(len(links) == 1, f"links: {links}")
        return links[0]

    def netdevs(self):
        """The network devices of the GIDs that there are."""
        found = set()
        for index in os.listdir(f"{self.port}/gid_attrs/ndevs"):
            try:
                found.add(read(f"{self.port}/gid_attrs/ndevs/{index}"))
            except OSError:
                check(read(f"{self.port}/gids/{index}").strip("0:") == "", f"GID {index} has no network device")
        return found


def pci_adapter(adapter):
    parent = os.path.realpath(f"{adapter.path}/device")
    check(os.path.basename(parent) == adapter.function, f"the parent is {parent}")
    for link, end in (("subsystem", "/bus/pci"), ("driver", "/bus/pci/drivers/ferrule")):
        target = os.path.realpath(f"{parent}/{link}")
        check(target.endswith(end), f"{link}: {target}")
    check(read(f"{parent}/class") == "0x020700", "the class is not InfiniBand's")
    children = os.listdir(f"{parent}/infiniband")
    check(children == [adapter.device], f"its RDMA devices: {children}")
    check(not os.path.exists(f"{parent}/net"), "the function has a network device itself")
    [verbs] = os.listdir(f"{parent}/infiniband_verbs")
    check(read(f"/sys/class/infiniband_verbs/{verbs}/ibdev") == adapter.device, f"{verbs} is another device's")


def beside_its_network_device(adapter):
    name = adapter.link()["netdev"]
    check(adapter.netdevs() == {name}, f"the GIDs are of {adapter.netdevs()}, and the link of {name}")
    # EUI-64 of the address, as GUIDs of RoCE devices are.
    mac = bytes.fromhex(read(f"/sys/class/net/{name}/address").replace(":", ""))
    guid = bytes.fromhex(read(f"{adapter.path}/node_guid").replace(":", ""))
    check(guid == bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:], f"GUID {guid.hex()}, address {mac.hex()}")
    check(read(f"{adapter.port}/link_layer") == "Ethernet", "link layer")


def another_is_not_its_own(adapter):
    """One with another address, which came later, is beside nothing."""
    must("ip", "link", "add", "other0", "type", "dummy")
    try:
        must("ip", "link", "set", "other0", "up")
        check(adapter.link()["netdev"] != "other0" and "other0" not in adapter.netdevs(), f"{adapter.link()}")
    finally:
        must("ip", "link", "delete", "other0")


def renamed(adapter):
    before = adapter.link()["netdev"]
    must("ip", "link", "set", before, "name", "lan0")
    try:
        check(adapter.link()["netdev"] == "lan0" and adapter.netdevs() == {"lan0"}, f"{adapter.link()}, {adapter.netdevs()}")
    finally:
        must("ip", "link", "set", "lan0", "name", before)


def down_and_up(adapter):
    name = adapter.link()["netdev"]
    must("ip", "link", "set", name, "down")
    try:
        wait_for(lambda: adapter.link()["state"] == "DOWN", "the port is down")
        check(adapter.link().get("netdev") == name, f"{adapter.link()}")
        check(read(f"{adapter.port}/state") == "1: DOWN", "the port's state in sysfs")
    finally:
        must("ip", "link", "set", name, "up")
    wait_for(lambda: adapter.link()["state"] == "ACTIVE", "the port is active")
    check(read(f"{adapter.port}/state") == "4: ACTIVE", "the port's state in sysfs")


def found_after_a_move(adapter):
    """A device that has got another network namespace looks for its network device itself: it was told of none meanwhile. Nor
    is it told of one that gets the address while it is up."""
    name = adapter.link()["netdev"]
    address = read(f"/sys/class/net/{name}/address")
    set_namespace_mode("exclusive")
    must("ip", "netns", "attach", "first", 1)
    must("ip", "netns", "add", "far")
    try:
        must("ip", "link", "set", name, "netns", "far")
        must("ip", "link", "add", "other0", "up", "type", "dummy")
        must("ip", "link", "set", "other0", "address", address)
        check("netdev" not in adapter.link(), f"{adapter.link()}")
        must("rdma", "dev", "set", adapter.device, "netns", "far")
        must(*within("far"), "rdma", "dev", "set", adapter.device, "netns", "first")
        check(adapter.link().get("netdev") == "other0" and adapter.netdevs() == {"other0"}, f"{adapter.link()}")
    finally:
        run("ip", "link", "delete", "other0")
        must("ip", "-n", "far", "link", "set", name, "netns", "first")
        must("ip", "netns", "delete", "first")
        must("ip", "netns", "delete", "far")
        set_namespace_mode("shared")
    check(adapter.link().get("netdev") == name, f"{adapter.link()}")


def main():
    tap = Tap()
    adapter = Adapter(sys.argv[1])
    for case in (pci_adapter, beside_its_network_device, another_is_not_its_own, renamed, down_and_up, found_after_a_move):
        tap.case(case.__name__, case, adapter)
    tap.end()


main()
