#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The abstractions of rust/kernel/net as the module net_echo uses them: two namespaces joined by a veth pair.

usage: net_echo.py

The asking side is a program with ordinary sockets; the answering side is the module, in the namespace `ec`. The head
comment of tests/net_echo/echo.rs has the questions.
"""

import contextlib
import errno
import os
import random
import socket
import struct
import time
import zlib

from asker import (FACTS, FAMILIES, IPV6_FLOWINFO, IPV6_FLOWINFO_SEND, IPV6_FLOWLABEL_MGR, NAMES, PORT, V4, V6, Asker,
                   connect, ip, join, part, traffic)
from guestlib import SLOW, Failure, Tap, check, inside, must, rounds, run, wait_for

MODULE = "/ferrule/module/net_echo.ko"
SOL_PACKET, PACKET_AUXDATA = 263, 8


def loaded():
    return os.path.isdir("/sys/module/net_echo")


def port_taken():
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.socket(family, socket.SOCK_DGRAM) as holder:
            if family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            holder.bind((address, PORT))
            status, output = run("/run/lab/load", MODULE)
            check(status != 0, "the module was loaded though its port is taken")
            check("in use" in output, output)
            check(not loaded(), "the module is there all the same")


def load():
    must("/run/lab/load", MODULE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("0.0.0.0", PORT))
            check(False, "the port of a loaded module is free")
        except OSError as error:
            check(error.errno == errno.EADDRINUSE, str(error))


def sizes():
    for family in FAMILIES:
        most = 9000 - 8 - (20 if family == socket.AF_INET else 40)
        with Asker(family) as asker:
            for size in (1, 2, 3, 63, 64, 65, 1000, 1472, 1500, 4095, 4096, 4097, 8191, 8192, most - 1, most,
                         *(random.randrange(1, most) for _ in range(40))):
                question = b"e" + random.randbytes(size - 1)
                check(asker.ask(question) == question, f"{size} bytes came back otherwise")


def pages():
    """A packet whose payload is in pages of a file: read where it is, summed up where it is."""
    for family in FAMILIES:
        with Asker(family) as asker, open("/tmp/net_echo", "w+b") as file:
            content = b"i" + random.randbytes(6999)
            file.write(content)
            file.flush()
            asker.socket.connect(asker.to)
            check(os.sendfile(asker.socket.fileno(), file.fileno(), 0, len(content)) == len(content), "sendfile")
            facts = dict(zip(NAMES, FACTS.unpack(asker.hear())))
            check(facts["length"] == len(content), f"{facts['length']} bytes")
            check(facts["crc"] == zlib.crc32(content), "the checksum of the packet's bytes is wrong")
            check(facts["linear"] < len(content), "the packet was in one piece: this tests nothing")


def headers():
    with Asker(socket.AF_INET) as asker:
        asker.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xb9)
        asker.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)
        facts = asker.facts()
        # The kernel lets no program set ECN's bits but in part.
        check(facts["traffic_class"] & 0xfc == 0xb8, f"traffic class {facts['traffic_class']:#x}")
        check(facts["hop_limit"] == 33, f"TTL {facts['hop_limit']}")
        check(asker.header(socket.IPPROTO_IP, socket.IP_TOS)[0] == facts["traffic_class"], "the answer's TOS")
        check(asker.header(socket.IPPROTO_IP, socket.IP_TTL)[:1] == b"\x4d", "the answer's TTL")
    with Asker(socket.AF_INET6) as asker:
        # A label has to be taken before it is sent: struct in6_flowlabel_req.
        label = 0xabcde
        request = struct.pack("=16sIBBHHH4x", socket.inet_pton(socket.AF_INET6, V6["ec"]), socket.htonl(label), 0, 1, 1,
                              0, 0)
        asker.socket.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, request)
        asker.socket.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)
        asker.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x48)
        asker.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 44)
        asker.to = (*asker.to, label, 0)
        asker.socket.sendto(b"i", asker.to)
        asker.to = asker.to[:2]
        facts = dict(zip(NAMES, FACTS.unpack(asker.hear())))
        check(facts["traffic_class"] == 0x48, f"traffic class {facts['traffic_class']:#x}")
        check(facts["hop_limit"] == 44, f"hop limit {facts['hop_limit']}")
        check(facts["flow_label"] == label, f"flow label {facts['flow_label']:#x}")
        flow = asker.header(socket.IPPROTO_IPV6, IPV6_FLOWINFO)
        check(flow and int.from_bytes(flow, "big") & 0xfffff == label, f"the answer's flow label: {flow}")
        tclass = asker.header(socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
        check(int.from_bytes(tclass, "little") == 0x48, "the answer's traffic class")
        hops = asker.header(socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)
        check(int.from_bytes(hops, "little") == 77, "the answer's hop limit")


def batches():
    for family in FAMILIES:
        with Asker(family) as asker:
            question = b"b\x40" + random.randbytes(500)
            asker.socket.sendto(question, asker.to)
            for number in range(0x40):
                check(asker.hear() == question, f"answer {number} of a batch")


def cuts_lists(cuts):
    """Has the module's device cut lists of packets, or hand them on whole, as a veth does."""
    must("ip", "netns", "exec", "ec", "ethtool", "-K", "ve", "tx-gso-list", "off" if cuts else "on")


def frames_of_module(tap):
    """The IP packets of the module that a packet socket has received."""
    found = []
    tap.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, address = tap.recvfrom(1 << 17)
            ip = frame[14:]
            head = 20 if ip[0] >> 4 == 4 else 40
            if address[2] != socket.PACKET_OUTGOING and ip[head:head + 2] == struct.pack(">H", PORT):
                found.append(ip)
    return found


def check_headers(ip):
    """A packet is by itself what its headers say: lengths, checksum, no identification."""
    if ip[0] >> 4 == 4:
        words = struct.unpack(">10H", ip[:20])
        check(sum(words) % 0xffff == 0, f"the checksum of {ip[:20].hex()}")
        check(words[1] == len(ip) and words[2:4] == (0, 0x4000) and ip[8] == 77, f"an IPv4 header {ip[:20].hex()}")
        udp = ip[20:]
    else:
        check(int.from_bytes(ip[4:6], "big") == len(ip) - 40 and ip[7] == 77, f"an IPv6 header {ip[:40].hex()}")
        udp = ip[40:]
    check(struct.unpack(">HH", udp[4:8]) == (len(udp), 0), f"a UDP header {udp[:8].hex()}")


# How many packets, of which length, that of the last, and how many there are in each list. A list ends behind a shorter
# packet, before a longer one, with 64 of them, and before it is longer than an IP packet may be.
LISTS = ((1, 1000, 1000, [1]), (2, 1000, 1000, [2]), (5, 3000, 5, [5]), (3, 1000, 1001, [2, 1]), (64, 100, 100, [64]),
         (65, 100, 100, [64, 1]), (130, 6, 5, [64, 64, 2]), (10, 8900, 8900, [7, 3]), (16, 4100, 4100, [15, 1]))


def lists():
    """Packets that leave as a list arrive one by one, with headers of their own, whether the sending stack or the
    receiving one cuts the list."""
    with inside("as"):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    tap.bind(("va", 3))
    try:
        for cut in (True, False):
            cuts_lists(cut)
            for family in FAMILIES:
                head = 28 if family == socket.AF_INET else 48
                with Asker(family) as asker:
                    check(asker.facts()["takes_lists"] == cut, f"takes_lists is not {cut}")
                    for count, size, last, wanted in LISTS:
                        frames_of_module(tap)
                        question = b"g" + struct.pack(">BH", count, last) + random.randbytes(size - 4)
                        asker.socket.sendto(question, asker.to)
                        for number in range(count):
                            try:
                                answer = asker.hear()
                            except TimeoutError:
                                raise Failure(f"no answer {number} of {count} of {size} bytes; cut: {cut}; {asker.facts()}") from None
                            length = last if number == count - 1 else size
                            text = (question + bytes((number,)) * length)[:length]
                            check(answer == text[:1] + bytes((number,)) + text[2:], f"answer {number} of {count}")
                        frames = frames_of_module(tap)
                        for frame in frames if cut else frames[:0]:
                            check_headers(frame)
                        number = count if cut else len(wanted)
                        check(len(frames) == number, f"{len(frames)} frames of {count} packets of {size}, not {number}")
                        if not cut:
                            # As one packet, a list has the headers of the first.
                            sizes = iter([size] * (count - 1) + [last])
                            lengths = [head + sum(next(sizes) for _ in range(packets)) for packets in wanted]
                            there = [len(frame) for frame in frames]
                            check(there == lengths, f"lists of {there} bytes, not of {lengths}")
    finally:
        cuts_lists(False)
        tap.close()
    with Asker(socket.AF_INET) as asker:
        check(asker.facts()["takes_lists"], "no list may go to a veth that nobody captures")


def route_kept():
    with Asker(socket.AF_INET) as asker:
        before = asker.facts()["routes"]
        for _ in range(50):
            asker.ask(b"e")
        check(asker.facts()["routes"] - before <= 1, "a route was looked for although there was one")
        ip("ec", "route", "add", "10.99.0.0/16", "via", V4["as"])
        asker.ask(b"e")
        check(asker.facts()["routes"] > before, "a changed route was not looked for")


def neighbour():
    mac = bytes.fromhex(ip("as", "-br", "link", "show", "va").split()[2].replace(":", ""))
    for family in FAMILIES:
        with Asker(family) as asker:
            asker.ask(b"e")
            facts = asker.facts()
            check(facts["resolved"] == 0, f"the neighbour's address: error {facts['resolved'] - (1 << 32)}")
            check(facts["mac"] == mac, f"the neighbour is {facts['mac'].hex()}, not {mac.hex()}")


def mtu():
    for family in FAMILIES:
        head = 28 if family == socket.AF_INET else 48
        with Asker(family) as asker:
            check(asker.facts()["mtu"] == 9000, f"path MTU {asker.facts()['mtu']}")
            most = 9000 - head - 5
            check(len(asker.ask(b"l" + struct.pack(">H", most))) == 9000 - head, "the longest packet")
            before = asker.facts()["unanswered"]
            asker.silence(b"l" + struct.pack(">H", most + 1))
            facts = asker.facts()
            check(facts["unanswered"] == before + 1, f"{facts['unanswered'] - before} questions unanswered")
            check(facts["last_error"] == (1 << 32) - errno.EMSGSIZE, f"error {facts['last_error'] - (1 << 32)}")
            ip("ec", "link", "set", "ve", "mtu", 1500)
            wait_for(lambda: asker.facts()["mtu"] == 1500, "the path MTU is the device's")
            asker.silence(b"l" + struct.pack(">H", 1500 - head - 4))
            check(len(asker.ask(b"l" + struct.pack(">H", 1500 - head - 5))) == 1500 - head, "the longest packet")
            ip("ec", "link", "set", "ve", "mtu", 9000)
            wait_for(lambda: asker.facts()["mtu"] == 9000, "the path MTU is the device's")


def vlan():
    for name, device in (("as", "va"), ("ec", "ve")):
        ip(name, "link", "add", "link", device, "name", f"{device}.7", "type", "vlan", "id", 7, "egress-qos-map",
           *(f"{priority}:{priority}" for priority in range(8)))
        ip(name, "link", "set", f"{device}.7", "mtu", 8900, "up")
    for family, addresses in ((socket.AF_INET, {"as": "10.82.0.1", "ec": "10.82.0.2"}),
                              (socket.AF_INET6, {"as": "fd82::1", "ec": "fd82::2"})):
        for name, device in (("as", "va.7"), ("ec", "ve.7")):
            length, more = (24, []) if family == socket.AF_INET else (64, ["nodad"])
            ip(name, "address", "add", f"{addresses[name]}/{length}", "dev", device, *more)
        with Asker(family, where=addresses["ec"]) as asker, inside("as"), \
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
            tap.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            tap.bind(("va", 3))
            tap.settimeout(2 * SLOW)
            if asker.v6:
                asker.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 5 << 5)
            else:
                asker.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 5 << 5)
            facts = asker.facts()
            check(facts["vlan"] == 7, f"VLAN {facts['vlan']}")
            index = int(ip("ec", "-o", "link", "show", "ve.7").split(":")[0])
            check(facts["interface"] == index, f"received by the device {facts['interface']}, not {index}")
            # The answer as it was on the wire: its tag is beside it (struct tpacket_auxdata) or in it.
            tags = []
            source = struct.pack(">H", PORT)
            while not tags:
                frame, ancillary, _, address = tap.recvmsg(9100, 512)
                if source not in frame[34:70] or address[2] == socket.PACKET_OUTGOING:
                    continue
                tags += [struct.unpack("=IIIHHHH", data[:20])[5] for level, kind, data in ancillary
                         if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and data[0] & 0x10]
                if frame[12:14] == b"\x81\x00":
                    tags.append(int.from_bytes(frame[14:16], "big"))
            check(tags[0] == 5 << 13 | 7, f"the answer's tag is {tags[0]:#x}")
    for name, device in (("as", "va.7"), ("ec", "ve.7")):
        ip(name, "link", "delete", device)


def addresses_removed():
    times = rounds(5, least=2)
    for family in FAMILIES:
        length, more = (24, []) if family == socket.AF_INET else (64, ["nodad"])
        address = (V4 if family == socket.AF_INET else V6)["ec"]
        with Asker(family) as asker:
            asker.lives()
            before = asker.facts()
            with traffic():
                for _ in range(times):
                    ip("ec", "address", "delete", f"{address}/{length}", "dev", "ve")
                    asker.silence(b"e")
                    ip("ec", "address", "add", f"{address}/{length}", "dev", "ve", *more)
            asker.lives()
            after = asker.facts()
            check(after["removed"] >= before["removed"] + times and after["added"] >= before["added"] + times,
                  f"removals {before['removed']} to {after['removed']}, additions {before['added']} to {after['added']}")


def down_and_up():
    times = rounds(5, least=2)
    with Asker(socket.AF_INET) as asker:
        before = asker.facts()["up"]
        with traffic():
            for _ in range(times):
                ip("ec", "link", "set", "ve", "down")
                asker.silence(b"e", 0.1)
                ip("ec", "link", "set", "ve", "up")
        asker.lives()
        check(asker.facts()["up"] >= before + times, "the notifier has not told of a device that is up")
    # Setting a device down takes its IPv6 addresses away.
    ip("ec", "address", "add", f"{V6['ec']}/64", "dev", "ve", "nodad")


def device_removed():
    times = rounds(5, least=2)
    with Asker(socket.AF_INET) as asker:
        before = asker.facts()["unregistered"]
    for _ in range(times):
        with traffic():
            time.sleep(0.1)
            ip("ec", "link", "delete", "ve")
        connect()
    with Asker(socket.AF_INET) as asker:
        asker.lives()
        check(asker.facts()["unregistered"] >= before + 2 * times, "the notifier has not told of devices that went")


def namespace_removed():
    for _ in range(rounds(10, least=2)):
        with traffic():
            time.sleep(0.1)
            must("ip", "netns", "delete", "ec")
        part()
        # The end of a namespace comes later, and with it that of its devices.
        wait_for(lambda: "va" not in must("ip", "-br", "link"), "the pair has gone")
        join()
    with Asker(socket.AF_INET) as asker:
        asker.lives()


def many_namespaces():
    names = [f"ns{number}" for number in range(rounds(40, least=8))]
    for name in names:
        must("ip", "netns", "add", name)
        ip(name, "link", "set", "lo", "up")
    for name in names:
        for family, where in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with Asker(family, name, where) as asker:
                check(asker.ask(b"e" + name.encode()) == b"e" + name.encode(), f"no answer in {name}")
    for name in names:
        must("ip", "netns", "delete", name)


def nonsense():
    """A packet that is no question leaves no trace but a count; the log stays quiet, as every case checks."""
    for family in FAMILIES:
        with Asker(family) as asker:
            before = asker.facts()["unanswered"]
            for _ in range(500):
                asker.socket.sendto(b"\0" + random.randbytes(random.randrange(300)), asker.to)
            asker.socket.sendto(b"", asker.to)
            wait_for(lambda: asker.facts()["unanswered"] == before + 501, "all were counted")


def unload_amid_receiving():
    """The port goes while the module makes an answer: each of these questions takes it long before it sends."""
    for number in range(rounds(20, least=5)):
        if number:
            load()
        with traffic(b"i" + bytes(60000)):
            time.sleep(0.1)
            must("rmmod", "net_echo")
    load()


def unload():
    with traffic():
        time.sleep(0.2)
        must("rmmod", "net_echo")
    check(not loaded(), "the module is still there")
    with Asker(socket.AF_INET) as asker:
        asker.silence(b"e")
    for _ in range(rounds(5, least=2)):
        load()
        with Asker(socket.AF_INET) as asker:
            asker.lives()
        must("rmmod", "net_echo")


def main():
    must("modprobe", "-a", "veth", "8021q")
    tap = Tap()
    tap.case("port_taken", port_taken)
    tap.case("load", load)
    join()
    for case in (sizes, pages, headers, batches, lists, route_kept, neighbour, mtu, vlan, addresses_removed, down_and_up,
                 device_removed, namespace_removed, many_namespaces, nonsense,
                 unload_amid_receiving, unload):
        tap.case(case.__name__, case)
    part()
    tap.end()


if __name__ == "__main__":
    main()
