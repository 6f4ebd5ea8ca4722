# SPDX-License-Identifier: GPL-2.0
"""Suites that run on this machine."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from .counting import READERS, Result
from .suite import Suite
from .usage import ended_children

CHECKOUT = Path(__file__).resolve().parents[2]


def run(suite: Suite, kernel: str, long: bool, driver: str, log, show) -> Result:
    """Run a suite; `log` takes its whole output, `show` the lines for a person."""
    reader = READERS[suite.format](suite.name, "host")
    seconds = suite.seconds(kernel, long)
    begin = time.monotonic()
    used = ended_children()
    late = threading.Event()
    with subprocess.Popen(["sh", "-c", suite.command_line(kernel, long, driver)], cwd=CHECKOUT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:

        def too_late() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        limit = threading.Timer(seconds, too_late)
        limit.start()
        output = []
        try:
            for line in process.stdout:
                line = line.rstrip("\n")
                log(line)
                output.append(line)
                for shown in reader.line(line):
                    show(shown)
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            limit.cancel()
    if late.is_set():
        status = 124
    elif status < 0:
        status = 128 - status
    result = reader.end(status)
    if result.failed and suite.format == "exit":
        for line in output[-40:]:
            show(line)
    result.seconds = time.monotonic() - begin
    result.processor = ended_children() - used
    return result
