#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures how often ib_write_bw in a guest traps into ferrule-nic: accesses to BAR0 for each message (TAP).

The figure depends on the processors that others leave (performance.md), so it has no bound here; qemu/nic/tests/footprint.rs
has one.
"""

import re
import socket
import sys
import threading
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Tap, check, note  # noqa: E402
from labkit import backend, guest, kernel, module, nic, programs, provider  # noqa: E402

SECONDS = 10
# So many messages a second are those of the run, and not of its beginning or end.
BUSY = 500
SCRIPT = f"""
ib_write_bw -d ferrule0 -x 1 -s $1 -D {SECONDS} > /dev/null 2>&1 &
sleep 3
ib_write_bw -d ferrule0 -x 1 -s $1 -D {SECONDS} 127.0.0.1 | grep -A 1 MsgRate
wait
"""


class Counted(backend.Nic):
    """ferrule-nic with a control socket in the directory of the run."""

    def __init__(self):
        super().__init__()
        self._itself = self.program
        self.control = None

    def beside(self, directory, nodes):
        wrapper = directory / "counted"
        wrapper.write_text(f'#!/bin/sh\nexec {self._itself} --control={nic.RUN}/control "$@"\n', encoding="ascii")
        wrapper.chmod(0o755)
        self.program, self.control = Path(nic.RUN, wrapper.name), directory / "control"
        return super().beside(directory, nodes)


class Samples(threading.Thread):
    """Accesses and messages of each second in which many messages arrived."""

    def __init__(self, served):
        super().__init__(daemon=True)
        self.served, self.ends, self.seconds = served, threading.Event(), []

    def _counters(self):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.served.control))
            control.shutdown(socket.SHUT_WR)
            text = b"".join(iter(lambda: control.recv(65536), b"")).decode()
        return [int(re.search(rf"^ferrule_{name}_total{{.*}} (\d+)$", text, re.M)[1]) for name in ("accesses", "messages")]

    def run(self):
        before = None
        while not self.ends.wait(1):
            try:
                now = self._counters()
            except (OSError, TypeError):
                continue
            if before and now[1] - before[1] >= BUSY:
                self.seconds.append((now[0] - before[0], now[1] - before[1]))
            before = now


def traps(size, parts, stock):
    served = Counted()
    samples = Samples(served)
    samples.start()
    argv = ["sh", "-c", SCRIPT, "sh", str(size)]
    status = guest.run(guest.Plan(argv, "ferrule", stock, parts, timeout=300, backend=served))
    samples.ends.set()
    samples.join()
    check(status == 0, f"the run has ended with {status}")
    accesses, messages = map(sum, zip((0, 0), *samples.seconds))
    check(len(samples.seconds) >= SECONDS / 2, "the counters show no such run")
    ratios = [accesses / messages for accesses, messages in samples.seconds]
    note(f"{size} bytes: {accesses} accesses to BAR0 for {messages} messages in {len(ratios)} s: {accesses / messages:.5f} for "
         f"each ({min(ratios):.5f} to {max(ratios):.5f} by seconds)")


def main():
    stock = kernel.stock()
    programs.build()
    parts = [(CHECKOUT / "tests", "tests"), (programs.products(), "build")]
    parts += [(module.build(stock), "module"), (provider.build(), "provider")]
    tap = Tap()
    for size in (65536, 1 << 20):
        tap.case(f"ib_write_bw with messages of {size} bytes", traps, size, parts, stock)
    tap.end()


if __name__ == "__main__":
    main()
