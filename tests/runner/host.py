# SPDX-License-Identifier: GPL-2.0
"""Suites that run on this machine."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from .counting import READERS, Result
from .lanes import Lanes
from .suite import Suite
from .usage import wait

CHECKOUT = Path(__file__).resolve().parents[2]

# So long a suite has to remove its files and to end what it has started, when it is told to end.
END_SECONDS = 30


def run(suite: Suite, kernel: str, long: bool, driver: str, lanes: Lanes, log, show) -> Result:
    """Run a suite; `log` takes its whole output, `show` the lines for a person."""
    reader = READERS[suite.format](suite.name, "host")
    seconds = suite.seconds(kernel, long)
    begin = time.monotonic()
    late, ended = threading.Event(), threading.Event()
    with subprocess.Popen(["sh", "-c", suite.command_line(kernel, long, driver)], cwd=CHECKOUT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:

        def send(number: int) -> None:
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    os.killpg(process.pid, number)

        kill = threading.Timer(END_SECONDS, send, [signal.SIGKILL])

        def end() -> None:
            if not ended.is_set():
                ended.set()
                send(signal.SIGINT)
                kill.start()

        def too_late() -> None:
            late.set()
            end()

        lanes.on_interrupt(end)
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
            if ended.is_set():
                # Some may not have listened, while the first of them has its number still.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                send(signal.SIGKILL)
            status, used = wait(process)
        finally:
            limit.cancel()
            kill.cancel()
    if late.is_set():
        status = 124
    elif status < 0:
        status = 128 - status
    result = reader.end(status)
    if result.failed and suite.format == "exit":
        for line in output[-40:]:
            show(line)
    result.seconds = time.monotonic() - begin
    result.processor = used
    return result
