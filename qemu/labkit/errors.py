# SPDX-License-Identifier: GPL-2.0
"""The errors that a person may meet, each with the exit status it ends in."""

BUILD_FAILED = 1
USAGE = 2
TIMEOUT = 124
REPORT = 125
LAB_FAILED = 126


class LabError(Exception):
    """Something the user can act on: shown as one line, without a stack trace."""

    def __init__(self, message: str, status: int = LAB_FAILED):
        super().__init__(message)
        self.status = status


class Stopped(KeyboardInterrupt):
    """A signal asks the lab to end; the status is a shell's for that signal."""

    def __init__(self, number: int):
        super().__init__()
        self.status = 128 + number


class UsageError(LabError):
    """A wrong command line."""

    def __init__(self, message: str):
        super().__init__(message, USAGE)
