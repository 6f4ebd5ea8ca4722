# SPDX-License-Identifier: GPL-2.0
"""A bundle: the lab with all that a guest needs, made elsewhere (bundle.py). Nothing is fetched or built in it.

Its QEMU runs with the libraries that lie beside it, on whatever system this is, so neither namespaces nor root are needed.
A checkout is no bundle.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from .errors import LabError

TOP = Path(__file__).resolve().parents[2]

# Entries of the cache by their kinds, each as it was made.
ENTRIES = TOP / "frozen"

# Sizes and hashes of all files below ENTRIES. It comes last in the archive.
MANIFEST = TOP / "manifest.json"

# Guests have this directory at /ferrule.
PARTS = "parts"

# Below the root of QEMU's tree.
LIBRARIES, DATA, LOADER = "lib", "share", "ld-linux-x86-64.so.2"

# Entries of these kinds depend on the machine, so each makes its own.
OWN = ("kvm", "intact")

_ENTER = 'cd "$1" && shift && exec "$@"'


def here() -> bool:
    """Whether this lab is a bundle's."""
    return MANIFEST.exists()


def entry(kind: str) -> Path | None:
    """The entry of this kind that came with the bundle; None for one of OWN."""
    if kind in OWN:
        return None
    made = ENTRIES / kind
    if not made.is_dir():
        raise LabError(f"a bundle has no {kind}: this needs a checkout of ferrule, and `qemu/lab` in it")
    return made


def command(argv: list, binds: list[tuple], above: Path) -> list[str]:
    """The words that run a program of QEMU's tree in a new directory below `above`, in which each (here, there) of `binds`
    has a link. A later one hides an earlier one, as a mount does."""
    above.mkdir(parents=True, exist_ok=True)
    view = Path(tempfile.mkdtemp(dir=above))
    atexit.register(shutil.rmtree, view, ignore_errors=True)
    for real, there in binds:
        link = view / there.strip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.abspath(real))
    root = ENTRIES / "tree/root"
    name, *words = map(str, argv)
    return ["sh", "-c", _ENTER, "enter", str(view), str(root / LIBRARIES / LOADER), "--inhibit-cache", "--library-path",
            str(root / LIBRARIES), "--argv0", name, str(root / "usr/bin" / name), "-L", str(root / DATA), *words]
