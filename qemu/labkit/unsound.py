# SPDX-License-Identifier: GPL-2.0
"""Safe Rust code must not be able to misuse the crates in rust/: programs that must not compile.

Each file of tests/unsound/ is a crate that stands on the same crates as a driver does. It is compiled twice: as it is,
and that must succeed; and with `--cfg unsound`, which adds what is unsound. Then the compiler must report what the file
marks: below a line `//~ E0133` an error begins that has this code, and below `//~ lifetime` one that has no code and
begins with this word. There may be others on the marked lines, but none on any other.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import cache, kernel, module, rust, tree
from .errors import LabError

DIRECTORY = Path("tests/unsound")

# A driver whose crates are all that the files may use.
PATTERN = "rdma_loop"

_MARK = re.compile(r"\s*//~ (\S+)$")


def marks(source: str) -> list[tuple[int, str]]:
    """The errors that a file wants to have: lines, and codes or first words."""
    found = ((number + 1, _MARK.match(line)) for number, line in enumerate(source.splitlines(), 1))
    return [(number, mark[1]) for number, mark in found if mark]


def errors(messages: str, file: str) -> list[tuple[int, str]]:
    """The errors in what the compiler has printed as JSON. One that is not in the file has the line 0."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("level") not in ("error", "error: internal compiler error"):
            continue
        primary = [span for span in message["spans"] if span["is_primary"]]
        # The last one of a failed run counts the others.
        if not primary and message["message"].startswith("aborting due to"):
            continue
        first = primary[0] if primary else None
        # An error in what a macro makes belongs to the line that calls the macro.
        while first and first["file_name"] != file and first["expansion"]:
            first = first["expansion"]["span"]
        here = first["line_start"] if first and first["file_name"] == file else 0
        found.append((here, message["code"]["code"] if message["code"] else message["message"].split()[0]))
    return sorted(found)


def judge(wanted: list[tuple[int, str]], sound: tuple[int, str], unsound: tuple[int, str], file: str) -> list[str]:
    """The faults of the two runs of the compiler, each a status and its messages."""
    wrong = []
    if not wanted:
        wrong.append("nothing is marked")
    if sound[0] != 0:
        wrong.append(f"without what is unsound it does not compile: {errors(sound[1], file) or sound[1][-2000:]}")
    if unsound[0] == 0:
        wrong.append("what is unsound compiles")
    else:
        found = errors(unsound[1], file)
        if not set(wanted) <= set(found) or {line for line, _ in wanted} != {line for line, _ in found}:
            wrong.append(f"marked: {wanted}; the compiler: {found or unsound[1][-2000:]}")
    return wrong


def check(target: kernel.Kernel) -> Iterator[str]:
    """Compiles all files; answers lines of the Test Anything Protocol."""
    module.build(target)
    files = sorted((tree.CHECKOUT / DIRECTORY).glob("*.rs"))
    yield f"1..{len(files)}"
    name = module.work_name(module.flavour(target))
    with cache.lock(name):
        work = cache.work(name)
        binds = [*target.binds, (work, tree.CHECKOUT)]
        words = _command(work)
        for number, path in enumerate(files, 1):
            file = str(DIRECTORY / path.name)
            runs = [_compile([*words, *cfg, file], binds) for cfg in ([], ["--cfg", "unsound"])]
            wrong = judge(marks(path.read_text()), *runs, file)
            for line in "\n".join(wrong).splitlines():
                yield f"# {line}"
            yield f"{'not ok' if wrong else 'ok'} {number} - {path.stem}"


def _command(work: Path) -> list[str]:
    """The compiler with the flags and the crates of a driver, for metadata of a file that is to follow.

    The metadata go to a file of the work directory: the compiler puts a file of its own in the place of what it
    is told to write to, and root may replace /dev/null.
    """
    crate = next((crate for crate in rust.crates(work) if crate.name == PATTERN), None)
    if crate is None:
        raise LabError(f"kbuild has not compiled {PATTERN}")
    start = next(index for index, word in enumerate(crate.words) if word.startswith("--edition"))
    kept = []
    words = iter(crate.words[start:])
    for word in words:
        if word == "--out-dir":
            next(words)
        elif not word.startswith("--emit") and word != str(crate.root):
            kept.append(word)
    return ["env", *(f"{key}={value}" for key, value in rust.ENVIRONMENT.items()), "rustc", *kept,
            "--error-format=json", "--emit=metadata=unsound.rmeta", "--crate-name=unsound", "--check-cfg=cfg(unsound)"]


def _compile(argv: list[str], binds: list[tuple]) -> tuple[int, str]:
    done = subprocess.run(tree.command(argv, binds, tree.CHECKOUT), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=tree.environment(), text=True)
    return done.returncode, done.stdout
