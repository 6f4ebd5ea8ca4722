#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The engine's golden packets as others see them: tshark decodes each of them, and scapy agrees on the invariant CRC.

usage: packets.py FILE
"""

import struct
import subprocess
import sys
import tempfile
import zlib

from guestlib import Tap, check
from scapy.all import IP, IPv6, UDP
from scapy.contrib.roce import BTH

# Opcodes that tshark 4.4 has no name for: XRC, flush, atomic write and congestion notification. It decodes their base
# transport header all the same.
NAMELESS = {0x1c, 0x1d, 0x81, *range(0xa0, 0xc0)}


def read(path):
    """The lines of the file: opcode, version of IP, bytes."""
    with open(path, encoding="ascii") as file:
        return [(int(opcode, 16), int(version), bytes.fromhex(data)) for opcode, version, data in map(str.split, file)]


def tshark(packets):
    """tshark's view of the packets: for each a list of fields."""
    fields = ("infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.invariant.crc",
              "_ws.malformed", "_ws.expert.message", "_ws.col.Info")
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        # Link type 101: each packet begins with its IP header.
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 101))
        for number, (_, _, data) in enumerate(packets):
            file.write(struct.pack("<IIII", number, 0, len(data), len(data)) + data)
        file.flush()
        argv = ["tshark", "-r", file.name, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a",
                "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "--disable-protocol", "rpcordma"]
        argv += [word for field in fields for word in ("-e", field)]
        run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(run.returncode == 0, run.stderr)
    rows = [line.split("|") for line in run.stdout.splitlines()]
    check(len(rows) == len(packets), f"{len(rows)} rows of {len(packets)} packets:\n{run.stdout}")
    return rows


def decodes(packet, row):
    opcode, version, data = packet
    told, destination, sequence, crc, malformed, expert, info = row
    check(not malformed and not expert, f"tshark complains: {malformed} {expert} {info}")
    check(int(told, 0) == opcode, f"the opcode is {told}")
    check(int(destination, 0) == 0x012345 and int(sequence, 0) == 0xfedcba, f"{destination} {sequence}")
    check(("Unknown" not in info) or opcode in NAMELESS, info)
    # The row's number has the CRC's bytes in the packet's order.
    if crc:
        check(int(crc, 0) == int.from_bytes(data[-4:], "big"), f"{crc} is not {data[-4:].hex()}")


def icrc_by_hand(packet):
    """The invariant CRC over IPv6, which scapy cannot do, from the fields that scapy parses."""
    packet = packet.copy()
    packet.tc, packet.fl, packet.hlim = 0xff, 0xfffff, 0xff
    packet[UDP].chksum = 0xffff
    packet[BTH].fecn, packet[BTH].becn, packet[BTH].resv6 = 1, 1, 0x3f
    packet[BTH].icrc = 0
    return zlib.crc32(b"\xff" * 8 + bytes(packet)[:-4]).to_bytes(4, "little")


def agrees(packet):
    _, version, data = packet
    parsed = (IP if version == 4 else IPv6)(data)
    check(BTH in parsed, "scapy sees no packet")
    if version == 6:
        check(icrc_by_hand(parsed) == data[-4:], f"{icrc_by_hand(parsed).hex()} is not {data[-4:].hex()}")
        return
    parsed[BTH].icrc = None
    made = bytes(parsed)
    check(made == data, f"scapy makes\n{made.hex()} of\n{data.hex()}")


def main():
    packets = read(sys.argv[1])
    check(len(packets) == 126, f"{len(packets)} packets")
    tap = Tap()
    for packet, row in zip(packets, tshark(packets)):
        tap.case(f"tshark decodes {packet[0]:#04x} over IPv{packet[1]}", decodes, packet, row)
    for packet in packets:
        tap.case(f"scapy agrees on {packet[0]:#04x} over IPv{packet[1]}", agrees, packet)
    tap.end()


if __name__ == "__main__":
    main()
