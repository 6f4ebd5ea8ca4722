#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Making, finding and removing devices: `rdma link`, the netdev's fortunes, sysfs.

usage: link.py TYPE

Works on dummy netdevs of its own and leaves other devices alone.
"""

import json
import os
import socket
import statistics
import subprocess
import time

from dummies import (CLASS, DEBUGFS, TYPE, active_mtu, alone, await_gid, clear, exists, kernel_log, link_add,
                     netdev_add, port_state, refused, traffic)
from guestlib import (ROCE_PORT, SLOW, Skip, Tap, check, gid_index, must, port_is_free, read, rounds, server_and_client,
                      some, sockets_of_port, wait_for)


def add_and_delete():
    netdev_add("lt0", "10.79.0.1")
    for _ in range(rounds(10, least=3)):
        link_add("ltdev0", "lt0")
        check(exists("ltdev0"), "there is no ltdev0")
        check(not os.path.exists(f"{DEBUGFS}/ltdev0"), "a directory of the device is in the root of debugfs")
        check(TYPE != "ferrule" or os.path.exists(f"{DEBUGFS}/ferrule/ltdev0/engine"), "the report is not in debugfs")
        link = json.loads(must("rdma", "-j", "link", "show", "ltdev0/1"))[0]
        check(link["netdev"] == "lt0" and link["state"] == "ACTIVE", str(link))
        must("rdma", "link", "delete", "ltdev0")
        check(not exists("ltdev0"), "ltdev0 is still there")
        check(not os.path.exists(f"{DEBUGFS}/ferrule/ltdev0"), "its directory in debugfs is still there")


def wrong_netdev():
    refused(["rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "ltnone"],
            "No such device", "Cannot find device", "ltnone")


def wrong_type():
    netdev_add("lt0")
    refused(["rdma", "link", "add", "ltdev0", "type", "nosuchtype", "netdev", "lt0"], "")


def name_in_use():
    netdev_add("lt0")
    netdev_add("lt1")
    link_add("ltdev0", "lt0")
    refused(["rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "lt1"], "File exists")
    # The netdev is free for another name.
    link_add("ltdev1", "lt1")


def netdev_in_use():
    netdev_add("lt0")
    link_add("ltdev0", "lt0")
    refused(["rdma", "link", "add", "ltdev1", "type", TYPE, "netdev", "lt0"], "File exists", "Device or resource busy")


def added_twice_at_once():
    """Two links to one netdev, asked for at the same time: one of them is made. A deletion right after that succeeds at once."""
    netdev_add("lt0")
    took = []
    for number in range(rounds(20, least=5)):
        adding = [subprocess.Popen(["rdma", "link", "add", name, "type", TYPE, "netdev", "lt0"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for name in ("ltdev0", "ltdev1")]
        made = sum(process.wait() == 0 for process in adding)
        check(made == 1, f"round {number}: {made} of two links to lt0 were made")
        begin = time.monotonic()
        if number % 2:
            must("rdma", "link", "delete", "ltdev0" if exists("ltdev0") else "ltdev1")
        else:
            must("ip", "link", "delete", "lt0")
            netdev_add("lt0")
        took.append(time.monotonic() - begin)
        check(not exists("ltdev0") and not exists("ltdev1"), f"round {number}: a device is left")
    usual = statistics.median(took)
    check(usual < SLOW, f"the device took {usual:.1f} s to go")


def delete_twice():
    netdev_add("lt0")
    link_add("ltdev0", "lt0")
    must("rdma", "link", "delete", "ltdev0")
    refused(["rdma", "link", "delete", "ltdev0"], "")


def several():
    count = 6
    for number in range(count):
        netdev_add(f"lt{number}", f"10.79.{number}.1")
        link_add(f"ltdev{number}", f"lt{number}")
    guids = {read(f"{CLASS}/ltdev{number}/node_guid") for number in range(count)}
    check(len(guids) == count, f"node GUIDs are not distinct: {guids}")
    listed = must("ibv_devices")
    for number in range(count):
        check(f"ltdev{number} " in listed, listed)
    await_gid("ltdev5")
    traffic("ltdev5")
    for number in (3, 0, 5, 1, 4, 2):
        must("rdma", "link", "delete", f"ltdev{number}")
    check(not any(exists(f"ltdev{number}") for number in range(count)), "a device is left")


def guid_is_the_netdevs():
    netdev_add("lt0")
    link_add("ltdev0", "lt0")
    first = read(f"{CLASS}/ltdev0/node_guid")
    must("rdma", "link", "delete", "ltdev0")
    link_add("ltdev1", "lt0")
    check(read(f"{CLASS}/ltdev1/node_guid") == first, "the same netdev gave another node GUID")
    check(first != "0000:0000:0000:0000", "the node GUID is zero")
    mac = read("/sys/class/net/lt0/address").split(":")
    check(first.replace(":", "")[6:].startswith("fffe") or mac[-1] in first, f"node GUID {first}, MAC address {mac}")


def sysfs():
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    check(read(f"{CLASS}/ltdev0/fw_ver"), "fw_ver is empty")
    check(read(f"{CLASS}/ltdev0/node_type") == "1: CA", read(f"{CLASS}/ltdev0/node_type"))
    port = f"{CLASS}/ltdev0/ports/1"
    check(read(f"{port}/link_layer") == "Ethernet", read(f"{port}/link_layer"))
    check(port_state("ltdev0") == "ACTIVE", port_state("ltdev0"))
    check(read(f"{port}/phys_state") == "5: LinkUp", read(f"{port}/phys_state"))
    check(read(f"{port}/pkeys/0") == "0xffff", read(f"{port}/pkeys/0"))
    check(read(f"{port}/rate"), "rate is empty")
    # By these files tools find the network device of a port.
    names = (f"{port}/gid_attrs/ndevs/0", f"{CLASS}/ltdev0/parent")
    for name in ("lt0", "lt1"):
        must("ip", "link", "set", "lt0", "name", name)
        check([read(path) for path in names] == [name] * 2, f"{name}: {[read(path) for path in names]}")
    must("ip", "link", "set", "lt1", "name", "lt0")
    uverbs = [name for name in os.listdir("/sys/class/infiniband_verbs") if name.startswith("uverbs")
              and read(f"/sys/class/infiniband_verbs/{name}/ibdev") == "ltdev0"]
    check(len(uverbs) == 1, f"uverbs devices of ltdev0: {uverbs}")
    check(int(read(f"/sys/class/infiniband_verbs/{uverbs[0]}/abi_version")) > 0, "abi_version")


def speed():
    """The rate is that of the network device. One that does not know its own counts as 100 Gb/s, and the log says nothing
    of it. (rdma_rxe takes the slowest rate for those.)"""
    def rate():
        return read(f"{CLASS}/ltdev0/ports/1/rate")

    unknown = "2.5 Gb/sec (1X SDR)" if TYPE == "rxe" else "100 Gb/sec (4X EDR)"
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    before = kernel_log()
    check(rate() == unknown, f"of a device that has no speed: {rate()}")
    check(TYPE == "rxe" or kernel_log() == before, kernel_log()[len(before):])
    must("rdma", "link", "delete", "ltdev0")
    must("ip", "link", "delete", "lt0")
    must("modprobe", "tun")
    must("ip", "tuntap", "add", "lt0", "mode", "tap")
    link_add("ltdev0", "lt0")
    for megabits, wanted in ((1000, "2.5 Gb/sec (1X SDR)"), (10000, "10 Gb/sec (1X FDR10)"), (100000, "100 Gb/sec (4X EDR)")):
        must("ethtool", "-s", "lt0", "speed", megabits)
        check(rate() == wanted, f"at {megabits} Mb/s: {rate()}")


def gids_follow_addresses():
    netdev_add("lt0")
    link_add("ltdev0", "lt0")
    gids = f"{CLASS}/ltdev0/ports/1/gids"

    def known():
        return {read(f"{gids}/{name}") for name in os.listdir(gids)}

    wanted = "0000:0000:0000:0000:0000:ffff:0a4f:0709"
    check(wanted not in known(), "the GID is there before the address")
    must("ip", "address", "add", "10.79.7.9/24", "dev", "lt0")
    wait_for(lambda: wanted in known(), "the address has become a GID")
    must("ip", "address", "delete", "10.79.7.9/24", "dev", "lt0")
    wait_for(lambda: wanted not in known(), "the GID has gone with the address")


def netdev_down_and_up():
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    must("ip", "link", "set", "lt0", "down")
    wait_for(lambda: port_state("ltdev0") == "DOWN", "the port is down")
    must("ip", "link", "set", "lt0", "up")
    wait_for(lambda: port_state("ltdev0") == "ACTIVE", "the port is active")
    await_gid("ltdev0")
    traffic("ltdev0")


def netdev_mtu():
    netdev_add("lt0", mtu=1500)
    link_add("ltdev0", "lt0")
    check(active_mtu("ltdev0") == 1024, f"active_mtu {active_mtu('ltdev0')} at MTU 1500")
    for mtu, expected in ((9000, 4096), (2200, 2048), (700, 512), (4200, 4096)):
        must("ip", "link", "set", "lt0", "mtu", mtu)
        wait_for(lambda want=expected: active_mtu("ltdev0") == want, f"active_mtu {expected} at MTU {mtu}")


def netdev_mtu_meanwhile():
    """The MTU changes while the device is being made: datagrams that have the new size are sent all the same."""
    for attempt in range(rounds(30, least=10)):
        netdev_add("lt0", "10.79.0.1", mtu=1500)
        both = [["rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "lt0"], ["ip", "link", "set", "lt0", "mtu", "9000"]]
        running = [subprocess.Popen(words) for words in both[::1 if attempt % 3 else -1]]
        check(all(one.wait() == 0 for one in running), "a command has failed")
        await_gid("ltdev0")
        words = ["ibv_ud_pingpong", "-d", "ltdev0", "-g", gid_index("ltdev0"), "-s", 2000, "-n", 5]
        server_and_client(words, words)
        must("ip", "link", "delete", "lt0")
        wait_for(lambda: not exists("ltdev0"), "the device has gone")


def netdev_renamed():
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    must("ip", "link", "set", "lt0", "name", "ltnew")
    link = json.loads(must("rdma", "-j", "link", "show", "ltdev0/1"))[0]
    check(link["netdev"] == "ltnew", str(link))
    await_gid("ltdev0")
    traffic("ltdev0")


def netdev_deleted():
    with alone():
        for _ in range(rounds(5, least=2)):
            netdev_add("lt0", "10.79.0.1")
            link_add("ltdev0", "lt0")
            check(not port_is_free(), "the device has no port")
            must("ip", "link", "delete", "lt0")
            wait_for(lambda: not exists("ltdev0"), "the device has gone with its netdev")
            wait_for(port_is_free, "the port was given back")


# The words that make a network device of a kind, "lt0", beyond its name; those that are stacked lie on "lt1".
KINDS = {"dummy": (), "veth": ("peer", "name", "lt2"), "bridge": (), "bond": (), "ifb": (), "macvlan": ("mode", "bridge"),
         "macsec": (), "vxlan": ("id", 7, "dstport", 4789, "local", "10.79.9.1"),
         "gretap": ("local", "10.79.9.1", "remote", "10.79.9.2")}
STACKED = ("macvlan", "macsec")


def kind_of_netdev(kind):
    """A link on it carries data, is known by the addresses of the network device, and goes with either."""
    below = ()
    if kind in STACKED:
        netdev_add("lt1")
        below = ("link", "lt1")
    if kind == "tap":
        must("modprobe", "tun")
    for end in (("rdma", "link", "delete", "ltdev0"), ("ip", "link", "delete", "lt0")):
        if kind == "tap":
            must("ip", "tuntap", "add", "lt0", "mode", "tap")
        else:
            must("ip", "link", "add", *below, "name", "lt0", "type", kind, *KINDS[kind])
        must("ip", "address", "add", "10.79.0.1/24", "dev", "lt0")
        must("ip", "link", "set", "lt0", "up")
        link_add("ltdev0", "lt0")
        await_gid("ltdev0")
        traffic("ltdev0")
        must(*end)
        wait_for(lambda: not exists("ltdev0"), "the device has gone")
        if end[0] == "rdma":
            must("ip", "link", "delete", "lt0")


def unfit_netdevs():
    """A network device without Ethernet addresses is refused, as is that of a VLAN, and the log says why."""
    if TYPE == "rxe":
        raise Skip("rdma_rxe takes a tun device, and says otherwise what it does not take")
    must("modprobe", "-a", "tun", "8021q")
    must("ip", "tuntap", "add", "lttun", "mode", "tun")
    netdev_add("lt0")
    must("ip", "link", "add", "link", "lt0", "name", "lt0.7", "type", "vlan", "id", 7)
    for netdev, why in (("lttun", "Ethernet"), ("lo", "Ethernet"), ("lt0.7", "VLAN")):
        before = kernel_log()
        refused(["rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", netdev], "Invalid argument")
        told = kernel_log()[len(before):].strip().splitlines()
        check(len(told) == 1 and why in told[0] and netdev in told[0], f"the log says: {told}")


def each_version_of_ip():
    """The port is taken by IPv4 and by IPv6, each by itself, and by neither when the last device has gone."""
    must("ip", "netns", "add", "ltns")
    check(not sockets_of_port("ltns"), "somebody has the port")
    for number in range(2):
        must("ip", "-n", "ltns", "link", "add", f"lt{number}", "type", "dummy")
        must("ip", "-n", "ltns", "link", "set", f"lt{number}", "up")
        must("ip", "netns", "exec", "ltns", "rdma", "link", "add", f"ltdev{number}", "type", TYPE, "netdev", f"lt{number}")
        check(sockets_of_port("ltns") == {4, 6}, f"versions {sockets_of_port('ltns')}")
    for number, left in ((1, {4, 6}), (0, set())):
        must("rdma", "link", "delete", f"ltdev{number}")
        check(sockets_of_port("ltns") == left, f"versions {sockets_of_port('ltns')}")


def device_renamed():
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    must("rdma", "dev", "set", "ltdev0", "name", "ltother")
    check(exists("ltother") and not exists("ltdev0"), "the name has not changed")
    if TYPE == "ferrule":
        check(read(f"{DEBUGFS}/ferrule/ltother/engine") and not os.path.exists(f"{DEBUGFS}/ferrule/ltdev0"),
              "its directory in debugfs has another name")
        # Settings stay, and the name is free for another device.
        with open(f"{DEBUGFS}/ferrule/ltother/wire_only", "w") as switch:
            switch.write("1")
        must("rdma", "dev", "set", "ltother", "name", "ltthird")
        check(read(f"{DEBUGFS}/ferrule/ltthird/wire_only") == "1", "a switch has changed with the name")
        must("rdma", "dev", "set", "ltthird", "name", "ltother")
        netdev_add("lt1")
        link_add("ltdev0", "lt1")
        check(read(f"{DEBUGFS}/ferrule/ltdev0/wire_only") == "0", "the other device has no switch of its own")
    await_gid("ltother")
    traffic("ltother")


def port_shared():
    """The devices of a namespace share its port, and the last one gives it back."""
    with alone():
        check(port_is_free(), "UDP port 4791 is taken though there is no device")
        for number in range(3):
            netdev_add(f"lt{number}")
            link_add(f"ltdev{number}", f"lt{number}")
            check(not port_is_free(), "UDP port 4791 is free though there is a device")
        for number in (1, 0):
            must("rdma", "link", "delete", f"ltdev{number}")
            check(not port_is_free(), "UDP port 4791 is free though there is a device")
        must("ip", "link", "delete", "lt2")
        wait_for(port_is_free, "UDP port 4791 is free again")


def port_taken():
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with alone(), socket.socket(family, socket.SOCK_DGRAM) as program:
            if family == socket.AF_INET6:
                program.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            program.bind((address, ROCE_PORT))
            netdev_add("lt0")
            before = kernel_log()
            refused(["rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "lt0"], "Address already in use")
            told = kernel_log()[len(before):].strip().splitlines()
            check(len(told) == 1 and "4791" in told[0] and "lt0" in told[0], f"the log says: {told}")
        link_add("ltdev0", "lt0")
        must("rdma", "link", "delete", "ltdev0")
        must("ip", "link", "delete", "lt0")


def port_taken_by_rxe():
    """rdma_rxe has the port of the namespace: the log names its device, and elsewhere nothing is amiss."""
    if TYPE == "rxe":
        raise Skip("this is rdma_rxe")
    must("modprobe", "rdma_rxe")
    with alone():
        netdev_add("lt0")
        netdev_add("lt1")
        must("rdma", "link", "add", "ltrxe", "type", "rxe", "netdev", "lt0")
        before = kernel_log()
        refused(["rdma", "link", "add", "ltdev1", "type", TYPE, "netdev", "lt1"], "Address already in use")
        told = [line for line in kernel_log()[len(before):].splitlines() if "4791" in line]
        check(len(told) == 1 and "rdma_rxe" in told[0] and "ltrxe" in told[0], f"the log says: {told}")
        must("ip", "netns", "add", "ltns")
        must("ip", "link", "set", "lt1", "netns", "ltns")
        must("ip", "netns", "exec", "ltns", "rdma", "link", "add", "ltdev1", "type", TYPE, "netdev", "lt1")
        check(not port_is_free("ltns"), "the device in the other namespace has no port")
        must("rdma", "link", "delete", "ltrxe")
        must("rmmod", "rdma_rxe")


def namespaces():
    """A device in each of several namespaces, which end under it."""
    for _ in range(rounds(2, least=1)):
        for number in range(3):
            must("ip", "netns", "add", f"ltns{number}")
            must("ip", "-n", f"ltns{number}", "link", "add", "lt0", "type", "dummy")
            must("ip", "-n", f"ltns{number}", "link", "set", "lt0", "up")
            must("ip", "netns", "exec", f"ltns{number}", "rdma", "link", "add", f"ltdev{number}", "type", TYPE,
                 "netdev", "lt0")
            check(not port_is_free(f"ltns{number}"), "the device has no port")
        # One device goes by itself, the others with their namespaces.
        must("rdma", "link", "delete", "ltdev1")
        wait_for(lambda: port_is_free("ltns1"), "the port is free again")
        for number in range(3):
            must("ip", "netns", "delete", f"ltns{number}")
        wait_for(lambda: not exists("ltdev0") and not exists("ltdev2"), "the devices have gone with their namespaces")


def statistic():
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    await_gid("ltdev0")

    def counters():
        return json.loads(must("rdma", "-j", "statistic", "show", "link", "ltdev0/1"))[0]

    before = counters()
    names = os.listdir(f"{CLASS}/ltdev0/ports/1/hw_counters")
    missing = [name for name in names if name not in before and name != "lifespan"]
    check(not missing and len(names) > 5, f"rdma statistic lacks {missing} of {len(names)} counters")
    traffic("ltdev0")
    if TYPE == "rxe":
        return
    # The driver answers with the same figures for 10 ms.
    wait_for(lambda: counters()["send_requests"] >= before["send_requests"] + 100, "the requests were counted")
    after = counters()
    check(after["message_bytes"] >= before["message_bytes"] + 100 * 1000, f"{after}")
    check(after["send_errors"] == 0, f"{after}")
    # Packets from the wire are counted, and other datagrams do no harm.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        for size in (0, 1, 12, 16, 64, 1400):
            program.sendto(os.urandom(size), ("10.79.0.1", ROCE_PORT))
    wait_for(lambda: counters()["rcvd_pkts"] == before["rcvd_pkts"] + 6, "the packets were counted")


def sent_and_received():
    """A device receives all that it sends to itself by packets, packet for packet."""
    if TYPE == "rxe":
        raise Skip("rdma_rxe counts bytes, elsewhere")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    await_gid("ltdev0")
    with open("/sys/kernel/debug/ferrule/ltdev0/wire_only", "w") as switch:
        switch.write("1")
    traffic("ltdev0")
    counters = {}

    def settled():
        before, counters["now"] = counters.get("now"), json.loads(must("rdma", "-j", "statistic", "show", "link", "ltdev0/1"))[0]
        return before == counters["now"]

    wait_for(settled, "all packets have come")
    sent, received = (counters["now"][name] for name in ("sent_pkts", "rcvd_pkts"))
    # Each of 50 messages in either direction, and the acknowledgements.
    check(sent == received and sent >= 100, f"{sent} packets were sent, {received} received")


def uppers():
    """Packets by a VLAN, a bond and a bridge over the network device are for its RDMA device, too."""
    must("modprobe", "-a", "veth", "8021q", "bonding", "bridge")
    must("ip", "netns", "add", "ltns")
    must("ip", "link", "add", "lt0", "type", "veth", "peer", "name", "lt1", "netns", "ltns")
    link_add("ltdev0", "lt0")

    def received():
        return json.loads(must("rdma", "-j", "statistic", "show", "link", "ltdev0/1"))[0]["rcvd_pkts"]

    def counted(address):
        before = received()
        program = f"""import socket
for _ in range(10):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("{address}", {ROCE_PORT}))
"""
        must("ip", "netns", "exec", "ltns", "python3", "-c", program)
        wait_for(lambda: received() == before + 10, f"the packets to {address} were counted")

    def address(device, number, below):
        must("ip", "address", "add", f"10.78.{number}.1/24", "dev", device)
        must("ip", "link", "set", device, "up")
        must("ip", "-n", "ltns", "address", "add", f"10.78.{number}.2/24", "dev", below)
        must("ip", "-n", "ltns", "link", "set", below, "up")
        counted(f"10.78.{number}.1")

    address("lt0", 0, "lt1")
    must("ip", "link", "add", "link", "lt0", "name", "lt0.7", "type", "vlan", "id", 7)
    must("ip", "-n", "ltns", "link", "add", "link", "lt1", "name", "lt1.7", "type", "vlan", "id", 7)
    address("lt0.7", 7, "lt1.7")
    must("ip", "link", "delete", "lt0.7")
    for number, kind in ((8, "bond"), (9, "bridge")):
        must("ip", "link", "add", "ltup", "type", kind)
        # A bond takes only what is down.
        must("ip", "link", "set", "lt0", "down")
        must("ip", "link", "set", "lt0", "master", "ltup")
        must("ip", "link", "set", "lt0", "up")
        address("ltup", number, "lt1")
        must("ip", "link", "delete", "ltup")


def main():
    tap = Tap()
    for case in (add_and_delete, wrong_netdev, wrong_type, name_in_use, netdev_in_use, added_twice_at_once, delete_twice,
                 several, guid_is_the_netdevs, sysfs, speed, gids_follow_addresses, netdev_down_and_up, netdev_mtu,
                 netdev_mtu_meanwhile, netdev_renamed, netdev_deleted, device_renamed, unfit_netdevs, port_shared,
                 each_version_of_ip, port_taken, port_taken_by_rxe, namespaces, statistic, sent_and_received, uppers):
        clear()
        tap.case(case.__name__, case)
    # In short runs a slow guest has those that containers are made of.
    for kind in some((*KINDS, "tap"), 3):
        clear()
        tap.case(f"kind_of_netdev: {kind}", kind_of_netdev, kind)
    clear()
    tap.end()


if __name__ == "__main__":
    main()
