#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A guest on a ferrule-nic that captures all packets; the guest's tshark looks at them (TAP)."""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "qemu"))

from labkit import backend, guest, kernel, module, nic, programs, provider  # noqa: E402

FILE = "all.pcapng"


class Capturing(backend.Nic):
    """ferrule-nic with a capture, in the directory of the run, which the guest has as /share."""

    def __init__(self):
        super().__init__()
        self._itself = self.program
        self.plan = None

    def beside(self, directory, nodes):
        wrapper = directory / "capturing"
        options = f"--wire-only --capture={nic.RUN}/{FILE}"
        wrapper.write_text(f'#!/bin/sh\nexec {self._itself} {options} "$@"\n', encoding="ascii")
        wrapper.chmod(0o755)
        self.program = Path(nic.RUN, wrapper.name)
        self.plan.share = directory
        return super().beside(directory, nodes)


def main():
    stock = kernel.stock()
    served = Capturing()
    programs.build()
    parts = [(CHECKOUT / "tests", "tests"), (programs.products(), "build")]
    parts += [(module.build(stock), "module"), (provider.build(), "provider")]
    argv = ["python3", "/ferrule/tests/guest/nic_capture.py", "ferrule0", f"/share/{FILE}"]
    served.plan = guest.Plan(argv, "ferrule", stock, parts, timeout=800, backend=served)
    return guest.run(served.plan)


if __name__ == "__main__":
    sys.exit(main())
