#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""ferrule-nic dies under programs of a guest: they are told, nothing hangs, and the driver can go (TAP)."""

import time
from contextlib import ExitStack

# It says where guestlib and labkit are.
from guests import Host

from guestlib import Failure, Tap, check, note
from labkit import backend

# The driver looks each second.
FATAL_SECONDS = 5
GO_SECONDS = 5

# For a shell: the programs are at work, and what they tell is in a file.
AT_WORK = """
/ferrule/build/tests/until_gone ferrule0 >/run/told &
until grep -q work /run/told; do sleep 0.1; done
"""


def programs_are_told(_host, one):
    """IBV_EVENT_DEVICE_FATAL, flush errors for programs that poll and that sleep, EIO for posts."""
    check(one.failure is None, one.failure)
    note(f"the programs ended {one.seconds:.1f} s after the process")
    check(one.seconds < FATAL_SECONDS, "that is too late")


def device_is_gone(_host, one):
    check(one.run("ls", "/sys/class/infiniband") == "", "there is an RDMA device")
    text = one.run("dmesg")
    check(text.count("it does not answer: its device goes") == 1, f"not one line of it:\n{text[-2000:]}")


def driver_goes(_host, one):
    begin = time.monotonic()
    one.run("sh", "-c", "echo 0000:01:00.0 >/sys/bus/pci/drivers/ferrule/unbind")
    one.run("rmmod", "ferrule")
    check(time.monotonic() - begin < GO_SECONDS, f"that took {time.monotonic() - begin:.1f} s")


PINNED = """
echo 1 >/proc/sys/vm/stat_refresh
awk '/nr_foll_pin_acquired/ { pinned += $2 } /nr_foll_pin_released/ { pinned -= $2 } END { print pinned }' /proc/vmstat
"""


def memory_stays_pinned(_host, one):
    """Nobody has said that the process does not use it any more."""
    pinned = int(one.run("sh", "-c", PINNED))
    note(f"{pinned} pages stay pinned")
    check(pinned > 0, "all pages of the programs are free")


def kernel_is_well(_host, one):
    one.check_kernel()
    check(one.run("sh", "-c", "echo $((6 * 7))") == "42", "the guest is not well")


def driver_goes_at_once(_host, one):
    """The driver has not looked yet when it has to go, under programs."""
    check(one.failure is None, one.failure)


# The power of the function's slot goes off, by a write of which the slot's driver does not know (Slot Control, PCI Express
# Base Specification 7.5.3.10).
POWER_OFF = """
import os
port = os.path.dirname(os.path.realpath("/sys/class/infiniband/ferrule0/device"))
file = os.open(port + "/config", os.O_RDWR)
word = lambda at, size: int.from_bytes(os.pread(file, size, at), "little")
at = word(0x34, 1)
while word(at, 1) != 0x10:
    at = word(at + 1, 1)
# Power Indicator off, and Power Controller off.
os.pwrite(file, (word(at + 0x18, 2) & ~0x300 | 0x300 | 0x400).to_bytes(2, "little"), at + 0x18)
"""


def pulled_out(_host, one):
    """The function goes without a word under programs, as if somebody had pulled an adapter."""
    one.start("sh", "-c", AT_WORK + 'python3 -c "$1" && wait $! && cat /run/told', "sh", POWER_OFF)
    note(one.end())
    check(one.run("ls", "/sys/class/infiniband") == "", "there is an RDMA device")
    one.run("rmmod", "ferrule")


def another_guest_works(_host, one):
    one.run("/ferrule/build/tests/rc_data", "--only", "send_sizes", "ferrule0")


def guest_of(served, stack):
    host = Host(served, stack, "ferrule")
    one = host.guest(1)
    one.booted()
    return host, one


def after_a_death(tap, served, script, cases):
    """The process is killed when the script says that it is at work. The cases look at what is left."""
    with ExitStack() as stack:
        host, one = guest_of(served, stack)
        one.failure = None
        one.start("sh", "-c", script)
        one.wait_for_output("at work")
        host.process.kill()
        begin = time.monotonic()
        try:
            note(one.end())
        except Failure as failure:
            one.failure = str(failure)
        one.seconds = time.monotonic() - begin
        for case in cases:
            tap.case(case.__name__, case, host, one)


def main():
    tap = Tap()
    served = backend.Nic()
    after_a_death(tap, served, "/ferrule/build/tests/until_gone ferrule0",
                  (programs_are_told, device_is_gone, driver_goes, memory_stays_pinned, kernel_is_well))
    after_a_death(tap, served, AT_WORK + "echo at work; sleep 0.3; rmmod ferrule && wait $! && cat /run/told",
                  (driver_goes_at_once, kernel_is_well))
    with ExitStack() as stack:
        host, one = guest_of(served, stack)
        for case in (another_guest_works, pulled_out, kernel_is_well):
            tap.case(case.__name__, case, host, one)
    tap.end()


if __name__ == "__main__":
    main()
