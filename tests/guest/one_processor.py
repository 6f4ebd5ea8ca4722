#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Two programs that poll, on one processor: a message does not wait for the end of a time slice.

usage: one_processor.py DEVICE

A thread that polls in vain yields. Where the user forbids it, each message waits until the scheduler takes
the processor from the one that polls.
"""

import re
import sys

from guestlib import Tap, check, gid_index, note, rounds, server_and_client

# So many times faster than without yielding; ten times and more are usual.
FASTER = 4
# A pause of the whole machine spoils an average of few messages.
ATTEMPTS = 3


def latency(text):
    """Half of the round trip in microseconds, on average."""
    # perftest: size, iterations, t_min, t_max, t_typical, t_avg, …
    if row := re.search(r"^\s*64\s+\d+\s+\S+\s+\S+\s+\S+\s+(\S+)", text, re.MULTILINE):
        return float(row[1])
    row = re.search(r"iters in \S+ seconds = (\S+) usec/iter", text)
    check(row, f"no row of results:\n{text}")
    return float(row[1]) / 2


def compare(device, program, *options):
    gid = ("-x" if program.startswith("ib_") else "-g", gid_index(device))
    command = ("taskset", "-c", 0, program, "-d", device, "-s", 64, *gid, *options)

    def measure(count, *environment):
        words = ("env", *environment, *command, "-n", rounds(count))
        return latency(server_and_client(words, words)[1])

    for _ in range(ATTEMPTS):
        yielding = measure(1000)
        spinning = measure(200, "FERRULE_YIELD_CQ_POLL=0")
        note(f"{program} {' '.join(options)}: {yielding:.1f} us a message, without yielding {spinning:.1f} us")
        if yielding * FASTER <= spinning:
            return
    check(False, f"{yielding} us a message, and without yielding {spinning} us, in {ATTEMPTS} attempts")


def main():
    device = sys.argv[1]
    tap = Tap()
    for service in "RC", "UC", "UD":
        tap.case(f"ib_send_lat over {service}", compare, device, "ib_send_lat", "-c", service)
    tap.case("ibv_rc_pingpong", compare, device, "ibv_rc_pingpong")
    tap.case("ibv_rc_pingpong, by the extended interface for polling", compare, device, "ibv_rc_pingpong", "-t")
    tap.end()


if __name__ == "__main__":
    main()
