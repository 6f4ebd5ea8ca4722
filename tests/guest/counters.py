#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The port's counters in sysfs, as the performance management agent tells them.

usage: counters.py local DEVICE
       counters.py packets DEVICE      run by wire_only.sh
"""

import json
import os
import socket
import subprocess
import sys
import time

from guestlib import Skip, Tap, check, gid_index, is_function, must, server_and_client, wait_for

ROCE_PORT = 4791
MTU = 1024
# Of a packet over IPv4: IP, UDP, base transport header, invariant CRC; and of an acknowledgement besides.
HEADERS = 20 + 8 + 12 + 4
AETH = 4
# Counters that the port has no reason for: it has no cable of its own, no credits and no virtual lane 15.
NEVER = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_remote_physical_errors",
         "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
         "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped", "port_xmit_wait")


def counters(device):
    directory = f"/sys/class/infiniband/{device}/ports/1/counters"
    values = {}
    for name in os.listdir(directory):
        with open(f"{directory}/{name}") as file:
            values[name] = int(file.read())
    return values


def statistic(device):
    # The driver answers with the same figures for 10 ms.
    time.sleep(0.05)
    return json.loads(must("rdma", "-j", "statistic", "show", "link", f"{device}/1"))[0]


def growth(device, work, read=counters):
    before = read(device)
    work()
    after = read(device)
    return {name: after[name] - before[name] for name in after if isinstance(after[name], int)}


def pingpong(device, size, count):
    words = ("ibv_rc_pingpong", "-d", device, "-g", gid_index(device), "-m", MTU, "-s", size, "-n", count)
    server_and_client(words, words, seconds=60)


def local(device, size):
    """A message counts as its packets of the path MTU and the bytes copied, in both directions at once."""
    count = 50
    packets, data = 2 * count * max(1, -(-size // MTU)), 2 * count * size // 4
    grown = growth(device, lambda: pingpong(device, size, count))
    for way in ("xmit", "rcv"):
        check(grown[f"port_{way}_packets"] == packets, f"{packets} packets: {grown}")
        check(grown[f"port_{way}_data"] == data, f"{data} words: {grown}")
        check(grown[f"unicast_{way}_packets"] == packets and not grown[f"multicast_{way}_packets"], f"{grown}")
    check(not any(grown[name] for name in (*NEVER, "port_rcv_errors", "port_xmit_discards")), f"{grown}")


def by_packet(device, size):
    """By packet, headers and acknowledgements are there and count."""
    count = 50
    packets = 2 * count * -(-size // MTU)
    for _ in range(10):
        told = {}

        def work():
            told.update(growth(device, lambda: pingpong(device, size, count), statistic))

        grown = growth(device, work)
        # A slow guest may send packets twice; then once more.
        again = told["probes"] or told["retries"] or told["sequence_errors"]
        if not again:
            break
    acknowledgements = grown["port_xmit_packets"] - packets
    check(acknowledgements > 0, f"no acknowledgement beside {packets} packets: {grown}")
    data = (packets * HEADERS + 2 * count * size + acknowledgements * (HEADERS + AETH)) // 4
    for way, name in (("xmit", "sent"), ("rcv", "rcvd")):
        check(grown[f"port_{way}_packets"] == told[f"{name}_pkts"], f"{grown}, {told}")
        check(grown[f"port_{way}_data"] == told[f"{name}_bytes"] // 4, f"{grown}, {told}")
        if again:
            # One of the packets may have come once more, beside them, and be longer than an acknowledgement.
            check(grown[f"port_{way}_data"] >= data, f"at least {data} words: {grown}, {told}")
        else:
            check(grown[f"port_{way}_data"] == data, f"{data} words: {grown}, {told}")
    check(grown["port_xmit_packets"] == grown["port_rcv_packets"], f"{grown}")
    check(told["local_pkts"] == 0, f"{told}")


def selftest(device):
    """The check of Linux's rxe_sent_rcvd_bytes.sh: after rping on one device, as much was sent as received."""
    words = ("rping", "-a", "10.77.0.1", "-C", "3")

    def work():
        server = subprocess.Popen((*words, "-s"))
        try:
            wait_for(lambda: "LISTEN" in must("rdma", "resource", "show", "cm_id"), "rping listens")
            must(*words, "-c", "-V")
        finally:
            server.kill()
            server.wait()

    grown = growth(device, work)
    check(grown["port_xmit_data"] == grown["port_rcv_data"] > 0, f"{grown}")


def errors(device):
    """Packets that are none of RoCEv2 are errors of the port that receives them."""
    if is_function(device):
        raise Skip("what a guest sends to itself does not come to its PCI function")
    sizes = (0, 1, 12, 16, 64, 1400)

    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
            for size in sizes:
                program.sendto(bytes([0xff]) * size, ("10.77.0.1", ROCE_PORT))
        time.sleep(1)

    grown = growth(device, work)
    check(grown["port_rcv_errors"] == grown["port_rcv_packets"] == len(sizes), f"{grown}")
    check(grown["port_xmit_packets"] == 0, f"{grown}")


def main():
    way, device = sys.argv[1:]
    tap = Tap()
    for size in (4, 1024, 4100) if way == "local" else (4, 4100):
        tap.case(f"{way}, {size} bytes", local if way == "local" else by_packet, device, size)
    if way == "local":
        tap.case("rxe_sent_rcvd_bytes.sh", selftest, device)
        tap.case("errors", errors, device)
    tap.end()


if __name__ == "__main__":
    main()
