#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What queue pairs send is what tshark takes for RoCEv2, without a complaint.

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
FIELDS = ("infiniband.bth.opcode", "_ws.malformed", "_ws.expert.message", "_ws.col.Info")


def captured(device, program, path):
    with subprocess.Popen(["tcpdump", "-i", "lo", "-B", "16384", "-w", path, "-c", str(PACKETS), "udp port 4791"],
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
        # What follows SEND is taken for RPC over RDMA where the bytes look like it.
        words = [word for field in FIELDS for word in ("-e", field)]
        text = must("tshark", "-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a",
                    "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "--disable-protocol", "rpcordma",
                    *words, seconds=100)
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    check(len(rows) > 1, f"{len(rows)} packets were captured")
    for opcode, malformed, expert, info in rows:
        check(opcode and not malformed and not expert, f"tshark complains: {opcode} {malformed} {expert} {info}")
        seen[int(opcode, 0)] += 1


def main():
    device, *programs = sys.argv[1:]
    tap = Tap()
    seen = collections.Counter()
    for program in programs:
        tap.case(f"tshark decodes what {program} sends", decodes, device, program, seen)
    note("opcodes: " + ", ".join(f"{opcode:#04x} {count}" for opcode, count in sorted(seen.items())))
    tap.end()


if __name__ == "__main__":
    main()
