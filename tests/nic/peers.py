#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Two guests of one ferrule-nic with RDMA traffic between them: one is killed and replaced, then the process is (TAP)."""

import time
from contextlib import ExitStack

# It says where guestlib and labkit are.
from guests import Host

from guestlib import Tap, check, note
from labkit import backend

TALK = ("env", "PEER=10.77.0.2", "/ferrule/build/tests/two_guests", "--only")
UNTIL_GONE = ("/ferrule/build/tests/until_gone", "ferrule0")


class Networked(backend.Nic):
    """Guests whose network devices are at the process's switch, as in runs of two nodes."""

    def ethernet(self, node, _cable):
        return super().ethernet(node, True)


def boot(host):
    guests = [host.guest(1), host.guest(2)]
    for one in guests:
        one.booted()
    return guests


def serve(one):
    one.start(*TALK, "serve", "ferrule0")
    one.wait_for_output("listens")


def talk(guests):
    """The first writes and reads memory of the second, compares, and leaves."""
    serve(guests[1])
    note(guests[0].run(*TALK, "ask", "ferrule0"))
    guests[1].end()


def one_is_killed(_host, guests):
    """The other's connection ends by retries, within those; its other connection goes on."""
    serve(guests[1])
    guests[0].start(*TALK, "ask_until_it_dies", "ferrule0")
    guests[0].wait_for_output("at work")
    guests[1].die()
    begin = time.monotonic()
    note(guests[0].end())
    note(f"the program ended {time.monotonic() - begin:.1f} s after the guest")


def another_takes_its_place(host, guests):
    guests[1] = host.guest(2)
    guests[1].booted()
    talk(guests)


def process_is_killed(host, guests):
    """Programs in both are told: IBV_EVENT_DEVICE_FATAL, flush errors, EIO."""
    for one in guests:
        one.start(*UNTIL_GONE)
    for one in guests:
        one.wait_for_output("at work")
    host.process.kill()
    for one in guests:
        note(one.end())
        check(one.run("ls", "/sys/class/infiniband") == "", "there is an RDMA device")


def kernels_are_well(_host, guests):
    for one in guests:
        one.check_kernel()


def another_process(host, guests):
    """At the sockets that the dead one has left."""
    for one in guests:
        one.die()
    host.restart()
    guests[:] = boot(host)
    talk(guests)


def main():
    tap = Tap()
    with ExitStack() as stack:
        host = Host(Networked(), stack, "ferrule")
        guests = boot(host)
        tap.case(talk.__name__, talk, guests)
        for case in (one_is_killed, another_takes_its_place, process_is_killed, kernels_are_well, another_process,
                     kernels_are_well):
            tap.case(case.__name__, case, host, guests)
    tap.end()


if __name__ == "__main__":
    main()
