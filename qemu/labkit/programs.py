# SPDX-License-Identifier: GPL-2.0
"""The programs of tests/ that run in guests: those in C compiled in the build tree into build/tests of the checkout, those
in Python where they are, for guests cannot keep what they compile themselves."""

from pathlib import Path

from . import cache, suite, tree
from .arch import AMD64, Arch
from .ui import Step

BUILD = tree.CHECKOUT / "build"


def products(target: Arch = AMD64) -> Path:
    """The directory of what is built for an architecture in the lab's suite, which a guest of it has at /ferrule/build."""
    return BUILD / target.directory("").removeprefix("-")


def build(target: Arch = AMD64) -> Path:
    """Compile what has changed of the test programs; returns their directory."""
    out = products(target) / "tests"
    if (tree.CHECKOUT / "tests/Makefile").exists():
        name = f"{target.directory('programs')}-{cache.digest(str(tree.CHECKOUT))}"
        with cache.lock(name), Step("building the test programs", cache.log_file(name)) as step:
            tree.compile(step, ["make", "-C", tree.CHECKOUT / "tests", f"-j{tree.jobs()}", f"O={out}",
                                f"CC={target.compiler(suite.CHOSEN.compiler)}"], root=tree.tools(target))
            tree.compile(step, ["python3", "-m", "compileall", "-q", tree.CHECKOUT / "tests/guest"])
    return out
