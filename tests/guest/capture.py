#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tshark takes the packets of queue pairs for RoCEv2, without a complaint.

usage: capture.py DEVICE 'PROGRAM [OPTION…]'…

These programs of build/tests run with packets (wire_only.sh), by the loopback device; their packets are captured.
"""

import collections
import os
import subprocess
import sys
import tempfile
import time

from guestlib import SLOW, Tap, check, must, note

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = "/ferrule/build/tests"
# As many of a program's packets are looked at. tshark takes about a millisecond for each in a guest under TCG.
PACKETS = 4000
# Packets that programs send, as far as they are known here, by the operation codes of IBA volume 1, 9.2.
ACKNOWLEDGE = {0x11}
SEND, SEND_IMMEDIATE, SEND_INVALIDATE = {0x00, 0x01, 0x02, 0x04}, {0x00, 0x01, 0x03, 0x05}, {0x17}
WRITE, WRITE_IMMEDIATE = {0x06, 0x07, 0x08, 0x0a}, {0x06, 0x07, 0x09, 0x0b}
READ, ATOMIC = {0x0c, 0x0d, 0x0e, 0x0f, 0x10}, {0x12, 0x13, 0x14}
SENT = {
    "rc_atomic": ATOMIC,
    "rc_window": SEND_INVALIDATE | ACKNOWLEDGE,
    "rc_errors": ACKNOWLEDGE,
    "rc_data --only send_sizes": SEND | ACKNOWLEDGE,
    "rc_data --only send_imm_sizes": SEND_IMMEDIATE | ACKNOWLEDGE,
    "rc_data --only write_sizes": WRITE | ACKNOWLEDGE,
    "rc_data --only write_imm_sizes": WRITE_IMMEDIATE | ACKNOWLEDGE,
    "rc_read --only read_sizes": READ,
    "uc --only immediate": {0x25, 0x2b},
    "ud --only traffic": {0x64},
    "ud --only immediate_and_inline": {0x65},
}
FIELDS = ("infiniband.bth.opcode", "_ws.malformed", "_ws.expert.message", "_ws.col.Info")


def captured(device, program, path):
    # Else the kernel may keep a few packets back for a second, and they are lost when tcpdump ends by then.
    with subprocess.Popen(["tcpdump", "--immediate-mode", "-i", "lo", "-B", "16384", "-w", path, "-c", str(PACKETS),
                           "udp port 4791"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tcpdump:
        try:
            # It says when it listens.
            tcpdump.stderr.readline()
            name, *options = program.split()
            must(f"{HERE}/wire_only.sh", device, "", f"{TESTS}/{name}", "--type", "ferrule", *options, device, seconds=100)
            time.sleep(SLOW)
        finally:
            tcpdump.terminate()
            tcpdump.stderr.read()


def decodes(device, program, seen):
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/pcap"
        captured(device, program, path)
        # Bytes behind a SEND are taken for RPC over RDMA where they look like it.
        words = [word for field in FIELDS for word in ("-e", field)]
        text = must("tshark", "-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a",
                    "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "--disable-protocol", "rpcordma",
                    *words, seconds=100)
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    check(rows, "no packets were captured")
    for opcode, malformed, expert, info in rows:
        check(opcode and not malformed and not expert, f"tshark complains: {opcode} {malformed} {expert} {info}")
        seen[int(opcode, 0)] += 1


def all_seen(seen):
    """Each program has sent what it is for: the packets that were looked at are not just some of them."""
    known = {program: SENT[program] for program in seen if program in SENT}
    check(known, "of none of these programs it is known what it sends")
    for program, opcodes in known.items():
        missing = ", ".join(f"{opcode:#04x}" for opcode in sorted(opcodes - seen[program].keys()))
        check(not missing, f"{program}: no packet of {missing}")


def main():
    device, *programs = sys.argv[1:]
    tap = Tap()
    seen = {program: collections.Counter() for program in programs}
    for program in programs:
        tap.case(f"tshark decodes what {program} sends", decodes, device, program, seen[program])
    total = sum(seen.values(), collections.Counter())
    note("opcodes: " + ", ".join(f"{opcode:#04x} {count}" for opcode, count in sorted(total.items())))
    tap.case("each operation was seen", all_seen, seen)
    tap.end()


if __name__ == "__main__":
    main()
