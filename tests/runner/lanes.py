# SPDX-License-Identifier: GPL-2.0
"""Several pieces of work at a time, and an end to them if the run is interrupted."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .counting import Result

Work = Callable[[], list[Result]]


class Lanes:
    """Runs work in so many threads. An interruption ends the programs that they have started, since the threads would go on
    waiting for them."""

    def __init__(self, count: int):
        self.count = count
        self.interrupted = False
        self._ends: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def on_interrupt(self, end: Callable[[], None]) -> None:
        """Call `end` if the run is interrupted; at once, if it has been."""
        with self._lock:
            self._ends.append(end)
            interrupted = self.interrupted
        if interrupted:
            end()

    def run(self, work: list[Work]) -> list[Result]:
        """The results of all work, in its order. Begins in that order, too."""
        with ThreadPoolExecutor(self.count) as pool:
            try:
                return [result for results in pool.map(self._unless_interrupted, work) for result in results]
            except BaseException:
                with self._lock:
                    self.interrupted = True
                for end in self._ends:
                    end()
                raise

    def _unless_interrupted(self, work: Work) -> list[Result]:
        return [] if self.interrupted else work()
