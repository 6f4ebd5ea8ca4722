#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Unmodified programs over a device: ibv_rc_pingpong and perftest, with polling and with events.

usage: programs.py DEVICE
"""

import re
import sys

import guestlib
from guestlib import (Tap, check, check_perftest, check_pingpong, gid_index, is_function, must, server_and_client,
                      some)

# Two programs that poll share two processors with the thread of ferrule-nic.
FEWER = 6 if is_function(sys.argv[1]) else 1


def rounds(count, least=20):
    return guestlib.rounds(count, least, FEWER)


def devinfo(device):
    text = must("ibv_devinfo", "-v", "-d", device)
    for pattern in (r"fw_ver:\s+\S", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet", r"GID\[",
                    r"node_guid:\s+(?!0000:0000:0000:0000)"):
        check(re.search(pattern, text), f"ibv_devinfo tells no {pattern}:\n{text}")


def pingpong(program, device, gid, size, count, *more):
    count = rounds(count)
    command = [program, "-d", device, "-g", gid, "-s", size, "-n", count, *more]
    for text in server_and_client(command, command, seconds=60):
        check_pingpong(program, size, count, text)


def perftest(device, gid, program, size, count, *more):
    command = [program, "-d", device, "-x", gid, "-s", size, "-n", rounds(count), "-F", *more]
    _, text = server_and_client(command, command, seconds=60)
    check_perftest(size, text)


def repeated(times, *words):
    """Two programs that kick each other's work: one that leaves some must not rely on one that does the same."""
    for _ in range(rounds(times, 3)):
        perftest(*words)


# Other demands of perftest's options on a device. perftest refuses a number of messages that lists of 16 do not divide,
# and these are divided on the debug kernel, too. Datagrams are fewer than a receive queue holds, for one that finds no
# receive request is lost.
VARIANTS = (("ib_send_bw, lists of 16", "ib_send_bw", 64, 960, "-l", 16),
            ("ib_read_bw, 4 connections", "ib_read_bw", 16384, 300, "-q", 4),
            ("ib_write_bw, lists of 16", "ib_write_bw", 4096, 960, "-l", 16),
            ("ib_read_bw, lists of 16", "ib_read_bw", 4096, 960, "-l", 16),
            ("ib_send_bw over UD, lists of 16", "ib_send_bw", 1024, 288, "-c", "UD", "-l", 16),
            ("ib_read_lat with events", "ib_read_lat", 64, 500, "-e"),
            ("ib_read_bw with events", "ib_read_bw", 4096, 500, "-e"),
            ("ib_atomic_lat with events", "ib_atomic_lat", 8, 500, "-A", "FETCH_AND_ADD", "-e"),
            ("ib_atomic_bw, 4 connections", "ib_atomic_bw", 8, 300, "-A", "FETCH_AND_ADD", "-q", 4),
            ("ib_send_bw over UD, 4 queue pairs", "ib_send_bw", 1024, 300, "-c", "UD", "-q", 4),
            ("ib_atomic_bw, both ways", "ib_atomic_bw", 8, 500, "-A", "FETCH_AND_ADD", "-b"))


def main():
    device = sys.argv[1]
    gid = gid_index(device)
    tap = Tap()
    tap.case("ibv_devinfo", devinfo, device)
    for size, count in some(((1, 500), (65536, 200), (64, 1000), (4096, 1000), (1 << 20, 20)), 2):
        tap.case(f"ibv_rc_pingpong, {size} bytes", pingpong, "ibv_rc_pingpong", device, gid, size, count, "-c")
        tap.case(f"ibv_rc_pingpong with events, {size} bytes", pingpong, "ibv_rc_pingpong", device, gid, size, count,
                 "-c", "-e")
    tap.case("ibv_rc_pingpong, receive depth 1", pingpong, "ibv_rc_pingpong", device, gid, 256, 500, "-c", "-r", 1)
    for size, count in some(((4096, 1000), (64, 1000), (65536, 200)), 1):
        tap.case(f"ibv_srq_pingpong, {size} bytes", pingpong, "ibv_srq_pingpong", device, gid, size, count)
    tap.case("ibv_srq_pingpong with events", pingpong, "ibv_srq_pingpong", device, gid, 1024, 500, "-e")
    for program, size, count in (("ib_send_lat", 2, 500), ("ib_write_lat", 2, 500), ("ib_send_lat", 4096, 500),
                                 ("ib_write_lat", 4096, 500), ("ib_send_bw", 65536, 500), ("ib_write_bw", 65536, 500),
                                 ("ib_write_bw", 8, 5000), ("ib_send_bw", 8, 5000), ("ib_write_bw", 1 << 20, 50),
                                 ("ib_read_lat", 2, 500), ("ib_read_lat", 4096, 500), ("ib_read_bw", 8, 5000),
                                 ("ib_read_bw", 65536, 500), ("ib_read_bw", 1 << 20, 50)):
        tap.case(f"{program}, {size} bytes", perftest, device, gid, program, size, count)
    tap.case("ib_send_lat with events", perftest, device, gid, "ib_send_lat", 64, 500, "-e")
    tap.case("ib_send_bw with events", perftest, device, gid, "ib_send_bw", 4096, 500, "-e")
    tap.case("ib_send_bw, both ways", perftest, device, gid, "ib_send_bw", 16384, 300, "-b")
    tap.case("ib_send_bw, both ways, again and again", repeated, 20, device, gid, "ib_send_bw", 16384, 300, "-b")
    tap.case("ib_write_bw, both ways", perftest, device, gid, "ib_write_bw", 16384, 300, "-b")
    tap.case("ib_read_bw, both ways", perftest, device, gid, "ib_read_bw", 16384, 300, "-b")
    for operation in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
        for program in ("ib_atomic_lat", "ib_atomic_bw"):
            tap.case(f"{program}, {operation}", perftest, device, gid, program, 8, 1000, "-A", operation)
    tap.case("ib_write_bw, 4 connections", perftest, device, gid, "ib_write_bw", 16384, 300, "-q", 4)
    tap.case("ib_send_bw, 4 connections", perftest, device, gid, "ib_send_bw", 16384, 300, "-q", 4)
    tap.case("ib_send_bw, a shared receive queue", perftest, device, gid, "ib_send_bw", 16384, 300, "-q", 4,
             "--use-srq")
    tap.case("ib_send_lat, a shared receive queue", perftest, device, gid, "ib_send_lat", 64, 500, "--use-srq")
    for size, count in some(((1024, 1000), (1, 500), (64, 1000)), 1):
        tap.case(f"ibv_ud_pingpong, {size} bytes", pingpong, "ibv_ud_pingpong", device, gid, size, count)
    tap.case("ibv_ud_pingpong with events", pingpong, "ibv_ud_pingpong", device, gid, 256, 500, "-e")
    for size, count in some(((65536, 200), (64, 1000), (4096, 1000)), 1):
        tap.case(f"ibv_uc_pingpong, {size} bytes", pingpong, "ibv_uc_pingpong", device, gid, size, count)
    tap.case("ibv_uc_pingpong with events", pingpong, "ibv_uc_pingpong", device, gid, 1024, 500, "-e")
    for service, size in (("UD", 1024), ("UC", 4096)):
        for program in ("ib_send_lat", "ib_send_bw"):
            tap.case(f"{program} over {service}", perftest, device, gid, program, size, 500, "-c", service)
        tap.case(f"ib_send_lat over {service} with events", perftest, device, gid, "ib_send_lat", 64, 500, "-c", service,
                 "-e")
        tap.case(f"ib_send_bw over {service}, both ways", perftest, device, gid, "ib_send_bw", size, 300, "-c", service,
                 "-b")
    for program, size in (("ib_write_lat", 64), ("ib_write_bw", 65536)):
        tap.case(f"{program} over UC", perftest, device, gid, program, size, 500, "-c", "UC")
    tap.case("ibv_xsrq_pingpong", pingpong, "ibv_xsrq_pingpong", device, gid, 4096, 500)
    tap.case("ibv_xsrq_pingpong with events", pingpong, "ibv_xsrq_pingpong", device, gid, 4096, 200, "-e")
    for program, size in (("ib_send_lat", 64), ("ib_send_bw", 16384), ("ib_write_bw", 65536), ("ib_read_bw", 16384)):
        tap.case(f"{program} over XRC", perftest, device, gid, program, size, 500, "-c", "XRC")
    tap.case("ib_write_bw, inline", perftest, device, gid, "ib_write_bw", 64, 2000, "-I", 64)
    for about, *words in some(VARIANTS, 2):
        tap.case(about, perftest, device, gid, *words)
    tap.end()


if __name__ == "__main__":
    main()
