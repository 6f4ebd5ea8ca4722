# SPDX-License-Identifier: GPL-2.0
"""The lines on standard error that say what takes long, and the log files behind them.

On a terminal a step's line shows its running time and is then replaced by the result; elsewhere
a step prints one line when it begins and one when it ends, so that a CI log tells where it hangs.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

from .errors import LabError

TAIL_LINES = 20


def say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


def seconds(duration: float) -> str:
    if duration < 100:
        return f"{duration:.0f} s"
    return f"{duration // 60:.0f} min {duration % 60:.0f} s"


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file, for an error message."""
    try:
        text = path.read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text.split("\n")[-lines:])


class Step:
    """One long piece of work: `with Step("building the build tree", log) as step: step.run([...])`.

    What the commands print goes to the log file. When one fails, the error names the log and shows its end.
    """

    def __init__(self, title: str, log: Path):
        self.title = title
        self.log = log
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> "Step":
        self._start = time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        if sys.stderr.isatty():
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        else:
            say(f"{self.title} ...")
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._ended.set()
        duration = seconds(time.monotonic() - self._start)
        if self._ticker:
            self._ticker.join()
            sys.stderr.write("\r\x1b[K")
        if kind is None:
            say(f"{self.title}: {duration}")
        elif issubclass(kind, Exception):
            say(f"{self.title}: FAILED after {duration}")

    def _tick(self) -> None:
        while not self._ended.wait(1):
            sys.stderr.write(f"\r\x1b[Klab: {self.title} ... {seconds(time.monotonic() - self._start)}")
            sys.stderr.flush()

    def note(self, text: str) -> None:
        """Add a line to the log."""
        with self.log.open("a") as out:
            out.write(text + "\n")

    def run(self, argv: list, **kwargs) -> None:
        """Run a command with its output in the log.

        Raises LabError when the command fails.
        """
        self.note("+ " + " ".join(map(str, argv)))
        with self.log.open("ab") as out:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **kwargs)
        if done.returncode != 0:
            raise self.failed(f"{Path(argv[0]).name} ended with status {done.returncode}")

    def failed(self, why: str) -> LabError:
        """The error to raise when this step cannot go on."""
        return LabError(f"{self.title}: {why}; the whole log is {self.log}\n{tail(self.log)}")
