#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The state of the others after a guest of ferrule-nic or the process itself dies (TAP).

This runs on the host, because nobody in a guest can kill QEMU and the process. It starts guests as the lab does, but each
by itself, and tells their agents what to run.
"""

from contextlib import ExitStack

# It says where guestlib and labkit are.
from guests import Host

from guestlib import Tap, check
from labkit import backend

PROGRAM = "/ferrule/tests/guest/pcifunction.py"
MAGIC = "0x4c555246"


def function(one, *words):
    return one.run("python3", PROGRAM, *words)


class Unshared(backend.Nic):
    """Guests whose memory the process cannot see."""

    def machine(self, mem, arch):
        return [word.replace("share=on", "share=off") for word in super().machine(mem, arch)]


def two_on_one_process(host, guests):
    guests += [host.guest(1), host.guest(2)]
    for one in guests:
        one.booted()
    for value, one in zip(("0x100", "0x200"), guests):
        function(one, "store", value)
    for value, one in zip(("0x100", "0x200"), guests):
        check(function(one, "load") == value, "a guest has not its own registers")
        check(function(one, "peek", "0") == MAGIC, "MAGIC")
        check(function(one, "memory") == "1 True", "the memory is not shared")


def one_guest_dies(host, guests):
    guests[1].die()
    host.wait_for_log(r"node2\.sock: .*(gone|closed)", 1)
    check(host.process.alive(), "the process is gone")
    check(function(guests[0], "load") == "0x100", "the other guest's registers have changed")
    check(function(guests[0], "memory") == "1 True", "the other guest's function is broken")


def another_takes_its_place(host, guests):
    guests[1] = host.guest(2)
    guests[1].booted()
    check(function(guests[1], "load") == "0x0", "it finds what the dead guest has left")
    check(function(guests[1], "memory") == "1 True", "its memory is not shared")
    check(function(guests[0], "load") == "0x100", "the other guest's registers have changed")


def the_process_dies(host, guests):
    host.process.kill()
    for one in guests:
        check(function(one, "peek", "0") == "0xffffffff", "a register of a dead function is not all ones")
        check(function(one, "peek", "8") == "0xffffffff", "a register of a dead function is not all ones")
        check(one.run("sh", "-c", "echo $((6 * 7))") == "42", "the guest is not well")


def no_kernel_complains(_host, guests):
    for one in guests:
        one.check_kernel()


def memory_that_is_not_shared():
    with ExitStack() as stack:
        host = Host(Unshared(), stack)
        one = host.guest(1)
        one.booted()
        check(function(one, "memory") == "2 False", "the memory check has not seen it")
        check("share=on" in host.log(), f"the log does not name the remedy:\n{host.log()}")
        check(function(one, "peek", "0") == MAGIC, "MAGIC")


def main():
    tap = Tap()
    guests = []
    with ExitStack() as stack:
        host = Host(backend.Nic(), stack)
        for case in (two_on_one_process, one_guest_dies, another_takes_its_place, the_process_dies, no_kernel_complains):
            tap.case(case.__name__, case, host, guests)
    tap.case(memory_that_is_not_shared.__name__, memory_that_is_not_shared)
    tap.end()


if __name__ == "__main__":
    main()
