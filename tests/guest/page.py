#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the commands of a page of the documentation, in its order and in one shell (TAP): a case for each block of code.

usage: page.py PAGE
"""

import re
import subprocess
import sys
import textwrap

from guestlib import Tap, check

SECONDS = 240
MARK = "@@ block "


def blocks(text):
    """The blocks of code: lines that are indented by four or more, behind an empty line."""
    found, current, before = [], [], ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("    ") and (current or not before.strip()):
            current.append(line)
        elif current:
            found.append(textwrap.dedent("\n".join(current)))
            current = []
        before = line
    return found


def script(found):
    """One script that says which block begins, and ends where a command fails."""
    parts = ["set -e -o pipefail"]
    for number, block in enumerate(found):
        parts += [f"echo '{MARK}{number}'", block]
    return "\n".join([*parts, f"echo '{MARK}{len(found)}'", ""])


def outputs(text):
    """The output of each block that was begun."""
    return re.split(rf"^{MARK}\d+\n", text, flags=re.MULTILINE)[1:]


def ended(number, printed):
    """The shell goes on behind a block only if all of its commands have succeeded."""
    check(number < len(printed), "it was not reached")
    check(number + 1 < len(printed), f"a command has failed, the last one that was begun:\n{printed[number]}")


def main():
    with open(sys.argv[1]) as page:
        found = blocks(page.read())
    tap = Tap()
    try:
        done = subprocess.run(["bash", "-x", "-c", script(found)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS)
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode(errors="replace")
    printed = outputs(text)
    tap.case("there are blocks", check, bool(found), "the page has no block of code")
    for number, block in enumerate(found):
        tap.case(block.split("\n")[0].split("#")[0].strip(), ended, number, printed)
    print("".join(f"    {line}\n" for line in text.splitlines()), end="", flush=True)
    tap.end()


if __name__ == "__main__":
    main()
