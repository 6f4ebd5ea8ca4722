#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The packets that address vectors and network devices make, as seen on the way; and the fate of connections when the
network devices change under them.

usage: headers.py TYPE

Between two namespaces of one guest, "left" and "right", joined by veth; a veth hands on what it is given, headers and tags.
"""

import json
import subprocess
import sys
import tempfile
import time

import pyverbs.enums as e
from pyverbs.pyverbs_error import PyverbsRDMAError

import node
from ends import SERVICES, Capture, gid_index, judged, transfer, two_ends
from guestlib import SLOW, Tap, check, must, read, wait_for
from wire import NETNS, namespaces, set_mtu

TYPE = sys.argv[1]
ADDRESSES = {4: ("10.78.0.1", "10.78.0.2"), 6: ("fd78::1", "fd78::2")}
# The hop limits of both sides' routes. The RDMA core puts them in the place of those that address vectors ask for.
HOPS = (37, 9)


def both(nodes, version):
    """The arguments of `two_ends` for the first addresses of both sides."""
    return [(one.device, address) for one, address in zip(nodes, ADDRESSES[version])]


def source_port(flow_label, qpn=0, peer=0):
    """The port that a flow label stands for; without one, the numbers of the queue pairs make it up (as rdma_core's
    rdma_flow_label_to_udp_sport() and rdma_calc_flow_label() have it)."""
    if not flow_label:
        product = qpn * peer
        product ^= product >> 20
        product ^= product >> 40
        flow_label = product & 0xfffff
    return (flow_label & 0x3fff) ^ (flow_label >> 14) | 0xc000


def in_namespaces(*words):
    for name in NETNS:
        must("ip", "-n", name, *words)


# ---- Headers ----

def traffic_class(service, vector):
    """Of the vector's traffic class, RC has the six bits of DSCP, and ECT(0) behind them: its packets may be marked."""
    return vector & 0xfc | 2 if service == "RC" else vector


def vectors(nodes, service, version):
    """Each side's packets have what its own address vector says, those that acknowledge, too."""
    vectors = ({"traffic_class": 0x6a, "flow_label": 0x12345, "hop_limit": 200},
               {"traffic_class": 0xb8, "flow_label": 0xfedcb, "hop_limit": 0})
    with two_ends(service, *both(nodes, version)) as ends, Capture("right", "veth0") as capture:
        for end, peer, vector in zip(ends, reversed(ends), vectors):
            end.connect(peer, **vector)
        transfer(*ends, length=900)
        packets = capture.packets()
        for address, vector, hops in zip(ADDRESSES[version], vectors, HOPS):
            own = [packet for packet in packets if packet.source == address]
            if address == ADDRESSES[version][0] or service == "RC":
                check(own, f"no packets of {address}")
            for packet in own:
                check(packet.version == version and packet.vlan is None and packet.checksum == 0, str(packet))
                check(packet.traffic_class == traffic_class(service, vector["traffic_class"]), str(packet))
                check(packet.hop_limit == hops, str(packet))
                check(packet.flow_label == (vector["flow_label"] if version == 6 else 0), str(packet))
                check(packet.source_port == source_port(vector["flow_label"]), str(packet))


def defaults(nodes, version):
    """Without a flow label, both sides have the same port, which differs from connection to connection."""
    ports = set()
    with Capture("right", "veth0") as capture:
        for _ in range(8):
            with two_ends("RC", *both(nodes, version)) as (one, other):
                one.connect(other)
                other.connect(one)
                capture.packets()
                transfer(one, other)
                numbers = one.qp.qp_num, other.qp.qp_num
                packets = capture.packets()
                check({packet.source for packet in packets} == set(ADDRESSES[version]), f"{packets}")
                for packet in packets:
                    check((packet.traffic_class, packet.flow_label) == (traffic_class("RC", 0), 0), str(packet))
                    check(packet.source_port == source_port(0, *numbers), f"{packet} between {numbers}")
                    ports.add(packet.source_port)
    check(len(ports) > 4, f"eight connections have the ports {ports}")


def cut_messages(nodes):
    """Packets of one message have the same headers, and the path MTU cuts it."""
    with two_ends("RC", *both(nodes, 4)) as (one, other), Capture("right", "veth0") as capture:
        one.connect(other, mtu=e.IBV_MTU_4096, traffic_class=0x20, flow_label=0x54321)
        other.connect(one, mtu=e.IBV_MTU_4096)
        transfer(one, other, 10000)
        packets = capture.packets(ADDRESSES[4][0])
        # A base transport header and the invariant CRC make 16 bytes.
        check([packet.length - 16 for packet in packets] == [4096, 4096, 10000 - 2 * 4096], f"{packets}")
        same = {(packet.traffic_class, packet.hop_limit, packet.source_port) for packet in packets}
        check(same == {(traffic_class("RC", 0x20), HOPS[0], source_port(0x54321))}, f"{same}")


def vlan(nodes):
    """A GID of a VLAN's device gives its packets the tag. The service level is the packet's priority, of which the egress
    map of the VLAN's device makes that in the tag; what is not in the map is 0. A level above 7 is none of Ethernet: it
    comes from a datagram's completion, and asks for no priority."""
    must("modprobe", "8021q")
    try:
        in_namespaces("link", "add", "link", "veth0", "name", "veth0.5", "type", "vlan", "id", 5, "egress-qos-map",
                      "0:1", "3:6", "10:5")
        for name, address in zip(NETNS, ("10.78.5.1", "10.78.5.2")):
            must("ip", "-n", name, "address", "add", f"{address}/24", "dev", "veth0.5")
            must("ip", "-n", name, "link", "set", "veth0.5", "up")
        sides = [(one.device, address) for one, address in zip(nodes, ("10.78.5.1", "10.78.5.2"))]
        for service in SERVICES:
            for level, priority in ((0, 1), (3, 6), (7, 0), (10, 1)):
                with two_ends(service, *sides) as (one, other), Capture("right", "veth0") as capture:
                    one.connect(other, sl=level)
                    other.connect(one, sl=3)
                    transfer(one, other)
                    packets = capture.packets()
                    for packet in packets:
                        wanted = (5, priority) if packet.source == "10.78.5.1" else (5, 6)
                        check(packet.vlan == wanted, f"service level {level}: {packet}")
                    check(any(packet.source == "10.78.5.1" for packet in packets), "no packets")
        # The addresses of the device below have none.
        with two_ends("RC", *both(nodes, 4)) as (one, other), Capture("right", "veth0") as capture:
            one.connect(other, sl=3)
            other.connect(one)
            transfer(one, other)
            check({packet.vlan for packet in capture.packets()} == {None}, "a tag without a VLAN")
    finally:
        in_namespaces("link", "delete", "veth0.5")


def bond(_nodes):
    """A connection by the address of a bond goes by whichever of its members is active, though the RDMA device is that of
    the first."""
    must("modprobe", "bonding")
    devices = [f"{TYPE}_bond_{name}" for name in NETNS]
    addresses = ("10.78.6.1", "10.78.6.2")
    try:
        for number in range(2):
            must("ip", "link", "add", f"slave{number}", "netns", NETNS[0], "type", "veth", "peer", "name", f"slave{number}",
                 "netns", NETNS[1])
        in_namespaces("link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", 20)
        for name, device, address in zip(NETNS, devices, addresses):
            must("ip", "netns", "exec", name, "rdma", "link", "add", device, "type", TYPE, "netdev", "slave0")
            for number in range(2):
                must("ip", "-n", name, "link", "set", f"slave{number}", "master", "bond0")
            must("ip", "-n", name, "address", "add", f"{address}/24", "dev", "bond0")
            must("ip", "-n", name, "link", "set", "bond0", "up")
        with two_ends("RC", *zip(devices, addresses)) as ends:
            ends[0].connect(ends[1])
            ends[1].connect(ends[0])
            for active in (0, 1):
                with Capture("right", "slave0") as first, Capture("right", "slave1") as second:
                    transfer(*ends)
                    transfer(*reversed(ends))
                    seen = [bool(capture.packets()) for capture in (first, second)]
                    check(seen == [active == 0, active == 1], f"packets by the first and the second member: {seen}")
                if active == 0:
                    must("ip", "-n", "left", "link", "set", "slave0", "down")
                    for name in NETNS:
                        wait_for(lambda here=name: active_member(here) == "slave1", f"the bond of {name} goes by the other")
    finally:
        for device in devices:
            must("rdma", "link", "delete", device)
        in_namespaces("link", "delete", "bond0")
        for number in range(2):
            must("ip", "-n", "left", "link", "delete", f"slave{number}")


def active_member(name):
    shown = json.loads(must("ip", "-n", name, "-j", "-d", "link", "show", "bond0"))[0]
    return shown["linkinfo"]["info_data"].get("active_slave")


# ---- Changes of the network device ----

def statistic(one, name):
    return json.loads(one.must("rdma", "-j", "statistic", "show", "link", f"{one.device}/1"))[0][name]


def active_mtu(end):
    return end.context.query_port(1).active_mtu


def fails(one, length=100):
    one.send(length)
    status, _ = one.completion()
    check(status == e.IBV_WC_RETRY_EXC_ERR, f"the status is {status}")


def mtu_shrinks(nodes):
    """Packets that no longer fit are lost and counted. A connection survives that as long as its retries last; datagrams
    and new connections go by the MTU that there is."""
    left = nodes[0]
    try:
        with two_ends("RC", *both(nodes, 4)) as (one, other):
            # Its retries last for half a minute.
            one.connect(other, mtu=e.IBV_MTU_4096, timeout=20)
            other.connect(one, mtu=e.IBV_MTU_4096)
            transfer(one, other, 16384)
            check(active_mtu(one) == e.IBV_MTU_4096, f"active_mtu is {active_mtu(one)}")
            lost = statistic(left, "lost_before_device")
            left.must("ip", "link", "set", "veth0", "mtu", 1500)
            wait_for(lambda: active_mtu(one) == e.IBV_MTU_1024, "active_mtu follows")
            other.receive()
            one.send(16384)
            wait_for(lambda: statistic(left, "lost_before_device") > lost, "packets are lost for their length")
            left.must("ip", "link", "set", "veth0", "mtu", 9000)
            for end in (one, other):
                status, _ = end.completion()
                check(status == e.IBV_WC_SUCCESS, f"the status is {status}")
            wait_for(lambda: active_mtu(one) == e.IBV_MTU_4096, "active_mtu follows")
        with two_ends("RC", *both(nodes, 4)) as (one, other):
            one.connect(other, mtu=e.IBV_MTU_4096, timeout=14)
            other.connect(one, mtu=e.IBV_MTU_4096)
            # Small ones pass whatever the path MTU.
            left.must("ip", "link", "set", "veth0", "mtu", 1500)
            transfer(one, other, 1000)
            fails(one, 16384)
        with two_ends("RC", *both(nodes, 4)) as (one, other):
            try:
                one.connect(other, mtu=e.IBV_MTU_2048)
            except PyverbsRDMAError as error:
                check("Invalid argument" in str(error), str(error))
            else:
                check(False, "a path MTU of 2048 where 1024 is possible")
        with two_ends("RC", *both(nodes, 4)) as (one, other):
            one.connect(other)
            other.connect(one)
            transfer(one, other, 16384)
        with two_ends("UD", *both(nodes, 4)) as (one, other):
            one.connect(other)
            other.connect(one)
            transfer(one, other, 1024)
            one.send(1025)
            status, _ = one.completion()
            check(status == e.IBV_WC_LOC_LEN_ERR, f"the status is {status}")
    finally:
        set_mtu(nodes, ("veth0", "veth0"), 9000)


def address_goes(nodes, version):
    """With its address a GID goes. Nothing is sent from it any more, so what is asked for fails when the retries are used
    up. When the address is back, so is the GID, and new connections can be made."""
    left = nodes[0]
    address = ADDRESSES[version][0]
    change = (f"{address}/{24 if version == 4 else 64}", "dev", "veth0", *(("nodad",) if version == 6 else ()))
    if version == 6:
        # So that the prefix keeps its route: it is not for want of one that nothing is sent.
        left.must("ip", "address", "replace", "fd78::11/64", "dev", "veth0", "nodad")
    for side in (0, 1):
        with two_ends("RC", *both(nodes, version)) as ends, Capture("right", "veth0") as capture:
            one, other = ends[side], ends[1 - side]
            one.connect(other, timeout=14)
            other.connect(one, timeout=14)
            transfer(one, other)
            left.must("ip", "address", "delete", *change[:3])
            try:
                wait_for(lambda: not any(gid.endswith(address_tail(version)) for _, gid in node.roce_gids(left.device)),
                         "the GID goes")
                capture.packets()
                other.receive()
                fails(one)
                check(not capture.packets(address), "packets from an address that has gone")
            finally:
                left.must("ip", "address", "add", *change)
        gid_index(left.device, address)
        with two_ends("RC", *both(nodes, version)) as (one, other):
            one.connect(other)
            other.connect(one)
            transfer(one, other)


def address_tail(version):
    """How the left side's address ends as a GID."""
    return ":ffff:0a4e:0001" if version == 4 else "fd78:0000:0000:0000:0000:0000:0000:0001"


def events(nodes):
    """The port says when it goes down and when it is active again, and the table of GIDs when it changes. Another MTU
    raises no event: a program has to query the port."""
    left = nodes[0]
    heard = tempfile.NamedTemporaryFile()
    watch = subprocess.Popen(["stdbuf", "-oL", "ibv_asyncwatch", "-d", left.device], stdout=heard)
    before = 0

    def hears(event):
        nonlocal before
        wait_for(lambda: event in read(heard.name)[before:], f"{event} is told")
        before = len(read(heard.name))

    try:
        hears("FD")
        left.must("ip", "link", "set", "veth0", "mtu", 1500)
        left.must("ip", "link", "set", "veth0", "mtu", 9000)
        time.sleep(0.2 * SLOW)
        left.must("ip", "address", "add", "10.78.7.1/24", "dev", "veth0")
        hears("GID_CHANGE")
        left.must("ip", "address", "delete", "10.78.7.1/24", "dev", "veth0")
        hears("GID_CHANGE")
        left.must("ip", "link", "set", "veth0", "down")
        hears("PORT_ERR")
        left.must("ip", "link", "set", "veth0", "up")
        hears("PORT_ACTIVE")
        # Set down, it has lost its addresses of IPv6.
        left.must("ip", "address", "add", "fd78::1/64", "dev", "veth0", "nodad")
    finally:
        watch.kill()
        watch.wait()
        heard.close()


def main():
    tap = Tap()

    def case(name, function, *arguments):
        tap.case(name, judged, function, *arguments)

    with namespaces(TYPE) as (nodes, netdevs):
        set_mtu(nodes, netdevs, 9000)
        for name, source, hops in zip(NETNS, ADDRESSES[4], HOPS):
            route = ("dev", "veth0", "proto", "kernel", "hoplimit", hops)
            must("ip", "-n", name, "route", "replace", "10.78.0.0/24", "scope", "link", "src", source, *route)
            must("ip", "-n", name, "-6", "route", "replace", "fd78::/64", "metric", 256, *route)
        for version in ADDRESSES:
            for service in SERVICES:
                case(f"address vectors: {service} over IPv{version}", vectors, nodes, service, version)
            case(f"defaults over IPv{version}", defaults, nodes, version)
        case("cut messages", cut_messages, nodes)
        case("VLAN", vlan, nodes)
        case("bond", bond, nodes)
        case("the MTU shrinks", mtu_shrinks, nodes)
        for version in ADDRESSES:
            case(f"an address of IPv{version} goes", address_goes, nodes, version)
        case("events", events, nodes)
    tap.end()


if __name__ == "__main__":
    main()
