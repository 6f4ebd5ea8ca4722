# SPDX-License-Identifier: GPL-2.0
"""Guests beside a ferrule-nic whose ends a test decides about: each by itself, and told by its agent what to run."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Failure, check, note  # noqa: E402
from labkit import accel, guest, kernel, module, programs, provider  # noqa: E402

BOOT_SECONDS = 120
SECONDS = 60


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
        self.start(*argv)
        return self.end()

    def start(self, *argv):
        """Begin to run a command, one at a time."""
        self.argv, self._output = argv, b""
        self.node.channel.send_json("R", {"argv": argv, "tty": False})

    def wait_for_output(self, text):
        """Wait until the command that runs has printed something."""
        while text.encode() not in self._output:
            self._take()

    def check_kernel(self):
        """Its kernel has reported nothing."""
        found = [report.title for report in self.node.reports()]
        check(not found, f"node {self.node.number}'s kernel reports {found}")

    def end(self):
        """Wait for the end of the command that runs, which has to be a success; returns what it printed."""
        while (status := self._take()) is None:
            pass
        output = self._output.decode(errors="replace")
        check(status == 0, f"{self.argv}: status {status}\n{output}")
        return output.strip()

    def _take(self):
        """Take what comes next of the command that runs; returns its status when that comes."""
        letter, content = self._next(SECONDS)
        if letter in "OE":
            self._output += content
        return json.loads(content)["status"] if letter == "X" else None

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
        """As from a fault of QEMU. Another guest's log may take the place of its own, so that is read now."""
        self.node.end()
        self.check_kernel()


class Host:
    """A ferrule-nic with two sockets, and the guests on them."""

    def __init__(self, served, stack, device="none"):
        self.directory = guest.new_directory()
        note(f"the logs are in {self.directory}")
        stock = kernel.stock()
        parts = [(CHECKOUT / "tests", "tests")]
        if device != "none":
            programs.build()
            parts += [(programs.products(), "build"), (module.build(stock), "module"), (provider.build(), "provider")]
        self.plan = guest.Plan([], device, stock, parts, mem=512, backend=served)
        self.accelerator, _ = accel.choose(served.qemu)
        self.stack = stack
        # Behind the process's end, which the stack has above this.
        stack.callback(self._look)
        self.process = None
        self.restart()

    def _look(self):
        """See that the process had no fault of its own: if so, no case tells."""
        if self.process and (fault := self.process.fault()):
            first, *rest = fault.splitlines()
            print(f"Bail out! {first}", flush=True)
            note("\n".join(rest))

    def restart(self):
        """Start the process, anew where it has ended: then its log begins anew, too."""
        self._look()
        [self.process] = self.stack.enter_context(self.plan.backend.beside(self.directory, 2))

    def guest(self, number, **changes):
        """A guest that is still booting; `changes` of the plan are its own."""
        started = Guest(number, self.directory, replace(self.plan, **changes), self.accelerator)
        self.stack.callback(started.node.end)
        return started

    def log(self):
        return self.process.log.read_text(errors="replace")

    def wait_for_log(self, pattern, count):
        end = time.monotonic() + SECONDS
        while len(re.findall(pattern, self.log())) < count:
            check(time.monotonic() < end, f"ferrule-nic does not tell {pattern!r} {count} times:\n{self.log()}")
            time.sleep(0.05)
