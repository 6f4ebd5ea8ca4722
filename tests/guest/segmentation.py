#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The packets of one message leave as a list, unless something on the way sees, changes or forwards packets.

usage: segmentation.py TYPE

Between two namespaces of one guest, "left" and "right", joined by veth.
"""

import contextlib
import ctypes
import json
import socket

import pyverbs.enums as e

import wire
from ends import Capture, judged, transfer, two_ends
from guestlib import Skip, Tap, check, inside, must, run
from headers import ADDRESSES, TYPE, both
from wire import namespaces, set_mtu


def probes(device):
    return json.loads(must("rdma", "-j", "statistic", "show", "link", f"{device}/1"))[0]["probes"]


def long_message(nodes, version):
    """The packets of a message of ten from the left to the right, and how many lists they left in. Where the answer comes
    late, a probe sends one of them again: then another message is sent."""
    for _ in range(5):
        before = probes(nodes[0].device)
        found = one_message(nodes, version)
        if probes(nodes[0].device) == before:
            break
    return found


def one_message(nodes, version):
    with Capture("right", "veth0") as capture:
        count = lists_of_message(nodes, version)
        return capture.packets(ADDRESSES[version][0]), count


def lists_of_message(nodes, version):
    """How many lists the packets of a message of ten have left in."""
    with two_ends("RC", *both(nodes, version)) as (one, other):
        one.connect(other, mtu=e.IBV_MTU_4096, traffic_class=0x20, flow_label=0x54321)
        other.connect(one, mtu=e.IBV_MTU_4096)
        before = wire.lists(nodes[0].device)
        transfer(one, other, 40000)
        return wire.lists(nodes[0].device) - before


@contextlib.contextmanager
def cut_lists(one):
    """A veth hands lists on whole, as virtual devices do. Here it has them cut, as others do, for captures to see."""
    one.must("ethtool", "-K", "veth0", "tx-gso-list", "off")
    try:
        yield
    finally:
        one.must("ethtool", "-K", "veth0", "tx-gso-list", "on")


@contextlib.contextmanager
def queueing(one, *words):
    """Packets that leave by the device, or come by it, meet with this queueing discipline."""
    one.must("tc", "qdisc", "add", "dev", "veth0", *words)
    try:
        yield
    finally:
        one.must("tc", "qdisc", "delete", "dev", "veth0", words[0])


@contextlib.contextmanager
def mangling(one):
    """This side's packets pass iptables' table "mangle". It is there when somebody has asked for it."""
    must("modprobe", "iptable_mangle")
    with inside(one.name), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as asker:
        # IPT_SO_GET_INFO with a struct ipt_getinfo, which begins with the name.
        info = ctypes.create_string_buffer(b"mangle", 84)
        status = ctypes.CDLL(None).getsockopt(asker.fileno(), socket.IPPROTO_IP, 64, info, ctypes.byref(ctypes.c_int(84)))
        check(status == 0, "there is no table mangle")
    try:
        yield
    finally:
        must("modprobe", "-r", "iptable_mangle")


def lists(nodes, version):
    """The packets of a message leave as a list; on the way they are the same as without, each by itself. They leave one by
    one if the switch says so, to a veth that is captured, and where a queueing discipline waits for them."""
    left = nodes[0]
    switch = f"/sys/kernel/debug/ferrule/{left.device}/gso"
    alone, count = long_message(nodes, version)
    check(count == 0, f"{count} lists to a veth that is captured")
    check([packet.length - 16 for packet in alone] == [4096] * 9 + [40000 - 9 * 4096], f"{alone}")
    with cut_lists(left):
        packets, count = long_message(nodes, version)
        check(count > 0, "no list has left")
        check(packets == alone, f"other packets than without lists: {packets}")
        try:
            must("sh", "-c", f"echo 0 > {switch}")
            check(long_message(nodes, version) == (alone, 0), "the switch is off")
        finally:
            must("sh", "-c", f"echo 1 > {switch}")
        left.must("modprobe", "sch_netem")
        with queueing(left, "root", "netem", "limit", 1000):
            check(long_message(nodes, version) == (alone, 0), "netem has met with a list")
        check(long_message(nodes, version)[1] > 0, "no list without netem")


@contextlib.contextmanager
def forwarding(one):
    """This side may hand on what comes by the device."""
    names = ("net.ipv4.conf.veth0.forwarding", "net.ipv6.conf.all.forwarding")
    one.must("sysctl", "-qw", *(f"{name}=1" for name in names))
    try:
        yield
    finally:
        one.must("sysctl", "-qw", *(f"{name}=0" for name in names))


@contextlib.contextmanager
def macvlan(one):
    """Another device takes packets that come by this one, as a bridge does with those of its members."""
    one.must("modprobe", "macvlan")
    one.must("ip", "link", "add", "macvlan0", "link", "veth0", "type", "macvlan")
    try:
        yield
    finally:
        one.must("ip", "link", "delete", "macvlan0")


def lists_through_veth(nodes, version):
    """A veth hands on the list whole, and UDP cuts it for the receiver's socket. So a list leaves only if nothing at either
    end captures packets, and the other end neither filters nor forwards them."""
    right = nodes[1]
    check(lists_of_message(nodes, version) > 0, "no list to a veth")
    for name, looks in (("a router", lambda: forwarding(right)), ("a device with a macvlan", lambda: macvlan(right)),
                        ("a capture", lambda: Capture("right", "veth0")), ("a capture here", lambda: Capture("left", "veth0"))):
        with looks():
            count = lists_of_message(nodes, version)
        check(count == 0, f"{count} lists to {name}")
        check(lists_of_message(nodes, version) > 0, f"no list after {name}")


def lists_and_filters(nodes):
    """A filter that changes a list changes its first packet, so no list goes where a filter may change it."""
    modules = ("sch_ingress", "cls_matchall", "act_pedit", "act_csum", "iptable_mangle")
    if any(run("modprobe", module)[0] for module in modules):
        raise Skip("this kernel has no modules that change packets")
    left, right = nodes
    with queueing(right, "clsact"):
        right.must("tc", "filter", "add", "dev", "veth0", "ingress", "protocol", "ip", "matchall", "action", "pedit", "ex",
                   "munge", "ip", "dsfield", "set", "0x48", "pipe", "action", "csum", "ip4h")
        check(lists_of_message(nodes, 4) == 0, "lists to a filter of tc at the other end")
    with mangling(right):
        check(lists_of_message(nodes, 4) == 0, "lists to filters of IP at the other end")
    check(lists_of_message(nodes, 4) > 0, "no list without filters at the other end")
    with cut_lists(left):
        with queueing(left, "clsact"):
            left.must("tc", "filter", "add", "dev", "veth0", "egress", "protocol", "ip", "matchall", "action", "pedit", "ex",
                      "munge", "ip", "dsfield", "set", "0x48", "pipe", "action", "csum", "ip4h")
            packets, count = long_message(nodes, 4)
            check(len(packets) == 10 and {packet.traffic_class for packet in packets} == {0x48}, f"{packets}")
            check(count == 0, f"{count} lists to a filter of tc")
        with mangling(left):
            check(long_message(nodes, 4)[1] == 0, "lists to filters of IP")
        check(long_message(nodes, 4)[1] > 0, "no list without filters")


def main():
    tap = Tap()
    with namespaces(TYPE) as (nodes, netdevs):
        set_mtu(nodes, netdevs, 9000)
        for version in ADDRESSES:
            tap.case(f"lists over IPv{version}", judged, lists, nodes, version)
            tap.case(f"lists through a veth over IPv{version}", judged, lists_through_veth, nodes, version)
        tap.case("lists and filters", judged, lists_and_filters, nodes)
    tap.end()


if __name__ == "__main__":
    main()
