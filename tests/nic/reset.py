#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""QEMU resets a guest under programs, and refuses to unplug its function (TAP)."""

import json
import socket
from contextlib import ExitStack

# It says where guestlib and labkit are.
from guests import BOOT_SECONDS, Host

from guestlib import Tap, check, note
from labkit import backend, nic

UNTIL_GONE = ("/ferrule/build/tests/until_gone", "ferrule0")


class Monitored(backend.Nic):
    """Guests whose QEMU takes commands at a socket, and has the function in a port without hotplug: QEMU 11.1.3 ends itself
    when it frees a function that was unplugged."""

    def machine(self, mem, arch):
        return [*super().machine(mem, arch), "-qmp", f"unix:{nic.RUN}/qmp,server=on,wait=off"]

    def function(self, node):
        return [word.replace("pcie-root-port,", "pcie-root-port,hotplug=off,") for word in super().function(node)]


class Monitor:
    """QEMU's monitor (QMP)."""

    def __init__(self, host):
        monitor = socket.socket(socket.AF_UNIX)
        monitor.settimeout(BOOT_SECONDS)
        monitor.connect(str(host.directory / "qmp"))
        self._lines = monitor.makefile("rw", encoding="utf-8")
        self._next()
        self.execute("qmp_capabilities")

    def _next(self):
        line = self._lines.readline()
        check(line, "QEMU is gone")
        return json.loads(line)

    def ask(self, command, **arguments):
        """The answer to a command, be it an error."""
        self._lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._lines.flush()
        while not {"return", "error"} & (answer := self._next()).keys():
            pass
        return answer

    def execute(self, command, **arguments):
        answer = self.ask(command, **arguments)
        check("return" in answer, f"{command}: {answer}")


def works(one):
    one.run("/ferrule/build/tests/rc_data", "--only", "send_sizes", "ferrule0")


def unplugging_is_refused(_host, one, monitor):
    answer = monitor.ask("device_del", id=nic.FUNCTION)
    check("error" in answer, f"device_del: {answer}")
    note(answer["error"]["desc"])
    works(one)


def reset_under_programs(host, one, monitor):
    """The guest does not know of it. The lab's guests end where they boot again, unless QEMU is told otherwise."""
    monitor.execute("set-action", reboot="reset")
    for _ in range(2):
        one.start(*UNTIL_GONE)
        one.wait_for_output("at work")
        monitor.execute("system_reset")
        one.booted()
        works(one)
    check(host.process.alive(), "the process is gone")


def kernel_is_well(_host, one, _monitor):
    one.check_kernel()


def memory_was_not_refused(host, _one, _monitor):
    """QEMU takes memory away and gives it again at each boot, without a wait for replies."""
    refused = [line for line in host.log().splitlines() if "refused" in line]
    check(not refused, f"ferrule-nic: {refused}")


def main():
    tap = Tap()
    with ExitStack() as stack:
        host = Host(Monitored(), stack, "ferrule")
        one = host.guest(1)
        one.booted()
        monitor = Monitor(host)
        for case in (unplugging_is_refused, reset_under_programs, kernel_is_well, memory_was_not_refused):
            tap.case(case.__name__, case, host, one, monitor)
    tap.end()


if __name__ == "__main__":
    main()
