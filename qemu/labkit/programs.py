# SPDX-License-Identifier: GPL-2.0
"""The programs of tests/ that run in guests: those in C compiled in the build tree into build/tests of the checkout, those
in Python where they are, for guests cannot keep what they compile themselves."""

from pathlib import Path

from . import cache, tree
from .ui import Step

BUILD = tree.CHECKOUT / "build"


def build() -> Path:
    """Compile what has changed of the test programs; returns their directory."""
    out = BUILD / "tests"
    if (tree.CHECKOUT / "tests/Makefile").exists():
        name = f"programs-{cache.digest(str(tree.CHECKOUT))}"
        with cache.lock(name), Step("building the test programs", cache.log_file(name)) as step:
            tree.compile(step, ["make", "-C", tree.CHECKOUT / "tests", f"-j{tree.jobs()}", f"O={out}", "CC=gcc-14"])
            tree.compile(step, ["python3", "-m", "compileall", "-q", tree.CHECKOUT / "tests/guest"])
    return out
