# SPDX-License-Identifier: GPL-2.0
"""A second run of suites that failed beside others, for machines that are shared.

A virtual processor that waits for the host can make a test late that is sound. What fails for that reason passes where
nothing else runs, and what is broken fails again. A guest that has gone down, and whatever the kernel reports against
itself, is broken at once; and where many suites fail it is not for want of time.
"""

from .counting import Result
from .suite import Suite

# If more suites failed than these, none has a second run.
MOST = 3


def candidates(results: list[Result], suites: list[Suite]) -> list[Suite]:
    """The suites of guests that may be run again, alone."""
    failed = {result.suite for result in results if result.failed}
    if len(failed) > MOST:
        return []
    broken = {result.suite for result in results if result.broken}
    return [suite for suite in suites
            if suite.name in failed - broken and not suite.on_host and not suite.in_each_boot]


def settle(first: Result, second: Result) -> Result:
    """The result that counts of two runs: the second if it has passed, which names the failures of the first; else both."""
    if second.failed:
        first.failures += [f"{failure} (alone)" for failure in second.failures]
        first.failed += second.failed
        first.broken = first.broken or second.broken
        return first
    second.unsteady = first.failures
    second.seconds += first.seconds
    second.processor += first.processor
    return second
