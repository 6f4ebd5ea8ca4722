# SPDX-License-Identifier: GPL-2.0
"""Entries outside the checkout, each named by its kind and a hash of all that went into it.

An entry is built under a temporary name and renamed when it is complete, so what stands under its final
name is whole: an interrupt or a full disk leaves nothing half made. A lock file for each entry keeps two
labs from building the same thing; the kernel drops the lock when its holder dies, so none is ever stale.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

from . import frozen
from .errors import BUILD_FAILED, LabError
from .ui import Step, say

INPUTS = ".inputs.json"


def root() -> Path:
    """The cache's directory: $FERRULE_CACHE, or `ferrule` in the user's cache directory."""
    if own := os.environ.get("FERRULE_CACHE"):
        return Path(own).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / "ferrule"


def digest(inputs: object) -> str:
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_files(base: Path, names: list[str]) -> str:
    """A hash of the names, modes and contents of files and directories below `base`; absent ones count as absent."""
    total = hashlib.sha256()
    for name in names:
        top = base / name
        files = [top] if top.is_file() else sorted(f for f in top.rglob("*") if f.is_file())
        for file in files:
            content = file.read_bytes()
            mode = file.stat().st_mode & stat.S_IXUSR
            total.update(f"{file.relative_to(base)}\0{mode}\0{len(content)}\0".encode())
            total.update(content)
    return total.hexdigest()[:16]


def check_unchanged(digest: str, base: Path, names: list[str]) -> None:
    """See that files are still those of an entry's inputs: an editor may have saved one while the lab waited or compiled."""
    if digest_files(base, names) != digest:
        raise LabError("a source has changed under the build: run it again", BUILD_FAILED)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold the lock of that name; says so once when another lab has it."""
    directory = root() / "locks"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LabError(f"cannot write to the cache {root()}: {error.strerror}; set FERRULE_CACHE to another directory")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab that works on {name}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a directory tree, whatever the modes of its directories."""

    def retry(function, name, _info):
        os.chmod(os.path.dirname(name), stat.S_IRWXU)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, stat.S_IRWXU)
            if function is not os.rmdir:
                shutil.rmtree(name, onerror=retry)
                return
        function(name)

    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path, onerror=retry)


def entry(kind: str, inputs: object, title: str, build: Callable[[Path, Step], None], keep: int | None = None) -> Path:
    """The entry of this kind made from these inputs, built first where it does not stand yet.

    `build` gets the directory to fill, which is not the entry's final name, and the step to report to. With `keep`,
    a new entry drives out the oldest ones of its kind beyond so many. In a bundle, it is the one that came along.
    """
    if frozen.here() and (made := frozen.entry(kind)):
        return made
    name = f"{kind}-{digest(inputs)}"
    final = root() / "entries" / name
    if _hold(final):
        return final
    with lock(name):
        if _hold(final):
            return final
        partial = root() / "tmp" / name
        remove(partial)
        try:
            partial.mkdir(parents=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            with Step(title, log_file(name)) as step:
                build(partial, step)
                (partial / INPUTS).write_text(json.dumps(inputs, indent=1, sort_keys=True, default=str) + "\n")
                partial.rename(final)
        except BaseException as error:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            full = full or shutil.disk_usage(root()).free < 16 << 20
            remove(partial)
            if full:
                raise LabError(f"{title}: the disk of {root()} is full; drop old entries (`qemu/lab clean`) "
                               "or set FERRULE_CACHE to a directory on another disk") from None
            raise
        _hold(final)
    if keep is not None:
        for old in _by_age(root() / "entries", f"{kind}-{'?' * len(digest(None))}")[:-keep]:
            _drop(old)
    return final


_held: list[int] = []


def _hold(path: Path) -> bool:
    """Keep an entry from being cleaned away until this process ends; False where there is no such entry."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not path.is_dir():
        os.close(descriptor)
        return False
    os.utime(path)
    _held.append(descriptor)
    return True


def work(name: str) -> Path:
    """A directory for incremental builds: it may be wiped at any time and is only touched under the lock `name`."""
    path = root() / "work" / name
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)
    return path


def log_file(name: str) -> Path:
    return root() / "logs" / f"{name}.log"


def _by_age(directory: Path, pattern: str) -> list[Path]:
    """The entries of a directory that fit the pattern, the least recently used first."""
    return sorted(directory.glob(pattern), key=lambda path: path.stat().st_mtime)


def _drop(path: Path) -> bool:
    """Remove an entry that no lab is using at this moment; returns whether it is gone.

    It first loses its name, so that no half of it is taken for an entry where this is interrupted.
    """
    with lock(path.name):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            doomed = root() / "tmp" / path.name
            doomed.parent.mkdir(exist_ok=True)
            remove(doomed)
            path.rename(doomed)
            remove(doomed)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)


def clean(unused_days: float) -> int:
    """Remove what was not used for so many days, and all that was left half made; returns the number of entries.

    What another lab is using at this moment stays.
    """
    limit = time.time() - unused_days * 86400
    count = 0
    for part in ("entries", "work", "runs"):
        for path in _by_age(root() / part, "*"):
            if path.stat().st_mtime <= limit:
                if _drop(path):
                    count += 1
                else:
                    say(f"{path.name} is in use and stays")
    for path in (root() / "tmp").glob("*"):
        with lock(path.name):
            remove(path)
    return count
