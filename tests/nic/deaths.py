#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What is left of the others when a guest of ferrule-nic or the process itself dies (TAP).

This runs on the host, because nobody in a guest can kill QEMU and the process. It starts guests as the lab does, but each
by itself, and tells their agents what to run.
"""

import json
import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Failure, Tap, check, note  # noqa: E402
from labkit import accel, backend, guest, kernel  # noqa: E402

PROGRAM = "/ferrule/tests/guest/pcifunction.py"
MAGIC = "0x4c555246"
BOOT_SECONDS = 120
SECONDS = 60


class Unshared(backend.Nic):
    """Guests whose memory the process cannot see."""

    def machine(self, mem):
        return [word.replace("share=on", "share=off") for word in super().machine(mem)]


class Guest:
    """A guest, from its boot on."""

    def __init__(self, number, directory, plan, accelerator):
        self.node = guest.Node(number, directory)
        self.node.start(plan, accelerator, None)
        self._frames = []

    def booted(self):
        letter, content = self._next(BOOT_SECONDS)
        check((letter, json.loads(content)) == ("H", ""), f"the guest did not come up: {content}")

    def run(self, *argv):
        """Run a command that has to succeed; returns what it printed."""
        self.node.channel.send_json("R", {"argv": argv, "tty": False})
        output = b""
        while True:
            letter, content = self._next(SECONDS)
            if letter in "OE":
                output += content
            elif letter == "X":
                status = json.loads(content)["status"]
                check(status == 0, f"{argv}: status {status}\n{output.decode(errors='replace')}")
                return output.decode().strip()

    def function(self, *words):
        return self.run("python3", PROGRAM, *words)

    def _next(self, seconds):
        self.node.channel.socket.settimeout(seconds)
        while not self._frames:
            try:
                frames = self.node.channel.receive()
            except TimeoutError:
                raise Failure(f"node {self.node.number} is silent for {seconds} s") from None
            check(frames is not None, f"node {self.node.number} is gone")
            self._frames += frames
        return self._frames.pop(0)

    def die(self):
        """As from a fault of QEMU."""
        self.node.end()


class Host:
    """A ferrule-nic with two sockets, and the guests on them."""

    def __init__(self, served, stack):
        self.directory = guest.new_directory()
        note(f"the logs are in {self.directory}")
        stock = kernel.stock()
        self.plan = guest.Plan([], "none", stock, [(CHECKOUT / "tests", "tests")], mem=512, backend=served)
        self.accelerator, _ = accel.choose(served.qemu)
        self.process = stack.enter_context(served.beside(self.directory, 2))
        self.stack = stack

    def guest(self, number):
        """A guest that is still booting."""
        started = Guest(number, self.directory, self.plan, self.accelerator)
        self.stack.callback(started.node.end)
        return started

    def log(self):
        return self.process.log.read_text(errors="replace")

    def wait_for_log(self, pattern, count):
        end = time.monotonic() + SECONDS
        while len(re.findall(pattern, self.log())) < count:
            check(time.monotonic() < end, f"ferrule-nic does not tell {pattern!r} {count} times:\n{self.log()}")
            time.sleep(0.05)


def two_on_one_process(host, guests):
    guests += [host.guest(1), host.guest(2)]
    for one in guests:
        one.booted()
    for value, one in zip(("0x100", "0x200"), guests):
        one.function("store", value)
    for value, one in zip(("0x100", "0x200"), guests):
        check(one.function("load") == value, "a guest has not its own registers")
        check(one.function("peek", "0") == MAGIC, "MAGIC")
        check(one.function("memory") == "1 True", "the memory is not shared")


def one_guest_dies(host, guests):
    guests[1].die()
    host.wait_for_log(r"node2\.sock: .*(gone|closed)", 1)
    check(host.process.alive(), "the process is gone")
    check(guests[0].function("load") == "0x100", "the other guest's registers have changed")
    check(guests[0].function("memory") == "1 True", "the other guest's function is broken")


def another_takes_its_place(host, guests):
    guests[1] = host.guest(2)
    guests[1].booted()
    check(guests[1].function("load") == "0x0", "it finds what the dead guest has left")
    check(guests[1].function("memory") == "1 True", "its memory is not shared")
    check(guests[0].function("load") == "0x100", "the other guest's registers have changed")


def the_process_dies(host, guests):
    host.process.kill()
    for one in guests:
        check(one.function("peek", "0") == "0xffffffff", "a register of a dead function is not all ones")
        check(one.function("peek", "8") == "0xffffffff", "a register of a dead function is not all ones")
        check(one.run("sh", "-c", "echo $((6 * 7))") == "42", "the guest is not well")


def no_kernel_complains(_host, guests):
    for one in guests:
        found = [report.title for report in one.node.reports()]
        check(not found, f"node {one.node.number}'s kernel reports {found}")


def memory_that_is_not_shared():
    with ExitStack() as stack:
        host = Host(Unshared(), stack)
        one = host.guest(1)
        one.booted()
        check(one.function("memory") == "2 False", "the memory check has not seen it")
        check("share=on" in host.log(), f"the log does not name the remedy:\n{host.log()}")
        check(one.function("peek", "0") == MAGIC, "MAGIC")


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
