#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Captures of ferrule-nic, which sends packets in place of copies: tshark and scapy take them without a complaint.

usage: nic_capture.py DEVICE FILE

`tests/nic/capture.py` starts the process with this file.
"""

import collections
import os
import struct
import sys
import tempfile
import time

from capture import SENT, TESTS
from guestlib import Tap, check, must, note
from packets import agrees

PROGRAMS = [program for program in SENT if "errors" not in program]
# tshark takes about a millisecond for a packet in a guest under TCG, scapy ten: they look at the first frames of the file,
# and at some packets of each operation.
FIRST, EACH, FOR_SCAPY = 2000, 500, 10
FIELDS = ("frame.interface_name", "_ws.malformed", "_ws.expert.message", "_ws.col.Info")
ENHANCED_PACKET = 6
ETHERNET = 1


def runs(device, program):
    name, *options = program.split()
    must(f"{TESTS}/{name}", "--type", "ferrule", *options, device, seconds=100)


def settled(path):
    """The process writes what has come as soon as nothing else comes."""
    size = -1
    while size != os.path.getsize(path):
        size = os.path.getsize(path)
        time.sleep(1)


def frames(path):
    """The frames of a pcapng file that this machine has written."""
    with open(path, "rb") as file:
        while len(head := file.read(8)) == 8:
            kind, length = struct.unpack("=II", head)
            body = file.read(length - 8)
            if kind == ENHANCED_PACKET and len(body) == length - 8:
                yield body[20:20 + struct.unpack_from("=I", body, 12)[0]]


def packet(frame):
    """Operation code and version of IP, if the frame is a packet of RoCEv2."""
    if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7":
        return frame[42], 4
    if frame[12:14] == b"\x86\xdd" and frame[20] == 17 and frame[56:58] == b"\x12\xb7":
        return frame[62], 6
    return None


def sort(path, packets):
    """Some packets of each operation, and how many there are."""
    counts = collections.Counter()
    for frame in frames(path):
        if found := packet(frame):
            counts[found] += 1
            if counts[found] <= EACH:
                packets.append((*found, frame))
    check(packets, "there are no packets")
    note("packets: " + ", ".join(f"{opcode:#04x} IPv{ip} {count}" for (opcode, ip), count in sorted(counts.items())))


def tshark(path, *more):
    words = [word for field in FIELDS for word in ("-e", field)]
    text = must("tshark", "-r", path, *more, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a",
                "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "--disable-protocol", "rpcordma",
                # RoCEv2 has its own; RFC 6935 allows that over IPv6.
                "-o", "udp.ignore_ipv6_zero_checksum:TRUE", *words, seconds=200)
    rows = [line.split("|", 3) for line in text.splitlines() if "|" in line]
    check(rows, f"tshark shows nothing:\n{text}")
    for _, malformed, expert, info in rows:
        check(not malformed and not expert, f"tshark complains: {malformed} {expert} {info}")
    return rows


def reads_the_file(path):
    for interface, *_ in tshark(path, "-c", str(FIRST)):
        check(interface.endswith("node1.sock"), f"the interface is {interface}")


def decodes(packets):
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, ETHERNET))
        for number, (_, _, frame) in enumerate(packets):
            file.write(struct.pack("=IIII", number, 0, len(frame), len(frame)) + frame)
        file.flush()
        rows = tshark(file.name)
    check(len(rows) == len(packets), f"{len(rows)} rows of {len(packets)} packets")


def all_seen(packets):
    seen = {opcode for opcode, _, _ in packets}
    for program in PROGRAMS:
        missing = ", ".join(f"{opcode:#04x}" for opcode in sorted(SENT[program] - seen))
        check(not missing, f"{program}: no packet of {missing}")


def invariant_crc(packets):
    """scapy makes the same packet of what it takes the packet for, invariant CRC included."""
    looked = collections.Counter()
    for opcode, version, frame in packets:
        looked[opcode, version] += 1
        if looked[opcode, version] <= FOR_SCAPY:
            agrees((opcode, version, frame[14:]))


def main():
    device, path = sys.argv[1:]
    tap = Tap()
    packets = []
    for program in PROGRAMS:
        tap.case(f"{program} with packets", runs, device, program)
    settled(path)
    tap.case("the file has packets", sort, path, packets)
    tap.case("tshark reads the file", reads_the_file, path)
    tap.case("tshark decodes each operation", decodes, packets)
    tap.case("each operation was seen", all_seen, packets)
    tap.case("scapy agrees on the invariant CRC", invariant_crc, packets)
    tap.end()


if __name__ == "__main__":
    main()
