# SPDX-License-Identifier: GPL-2.0
"""Single packages of the archive: its list, and fetching them, by the build tree's apt."""

import time
from dataclasses import dataclass
from pathlib import Path

from . import cache, debian, frozen, tree
from .arch import AMD64, Arch
from .ui import Step

STAMP = "stamp"


@dataclass(frozen=True)
class Package:
    name: str
    version: str


def _place(target: Arch) -> str:
    """The name of the directory, and of its lock, of what apt knows of an architecture's packages."""
    return target.directory("apt")


def _binds(target: Arch = AMD64) -> list[tuple]:
    directory = cache.work(_place(target))
    (directory / "lists").mkdir(exist_ok=True)
    lines = [*debian.apt_options(), 'APT::Sandbox::User "root";', 'Acquire::Retries "3";']
    if target.crossed:
        lines.append(f'APT::Architecture "{target.name}"; APT::Architectures {{ "{target.name}"; }};')
    _write(directory / "sources.list", "\n".join(debian.sources()) + "\n")
    _write(directory / "lab.conf", "\n".join(lines) + "\n")
    return [(directory / "lists", "/var/lib/apt/lists"), (directory / "sources.list", "/etc/apt/sources.list"),
            (directory / "lab.conf", "/etc/apt/apt.conf.d/zz-lab")]


def _write(path: Path, text: str) -> None:
    """Write a file that another lab may be reading: only when it changes."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def refresh(target: Arch = AMD64) -> None:
    """Read the archive's indexes anew."""
    tree.path()
    name = _place(target)
    with cache.lock(name), Step("reading the archive's indexes", cache.log_file(name)) as step:
        tree.run(step, ["apt-get", "update", "-q"], _binds(target))
        (cache.work(name) / STAMP).write_text(f"{time.time()}\n")


def stamp(target: Arch = AMD64) -> str:
    """When the indexes were read; they are read first where they never were."""
    if frozen.here():
        return "a bundle needs none"
    path = cache.work(_place(target)) / STAMP
    if not path.exists():
        refresh(target)
    return path.read_text().strip()


def is_known(target: Arch) -> bool:
    """Whether the indexes of an architecture were ever read."""
    return (cache.work(_place(target)) / STAMP).exists()


def packages(prefix: str, target: Arch = AMD64) -> list[Package]:
    """Every version of every package whose name begins so."""
    stamp(target)
    names = tree.output(["apt-cache", "pkgnames", prefix], _binds(target)).split()
    if not names:
        return []
    found = []
    name = ""
    for line in tree.output(["apt-cache", "show", "--all-versions", *names], _binds(target)).splitlines():
        field, _, value = line.partition(": ")
        if field == "Package":
            name = value
        elif field == "Version":
            found.append(Package(name, value))
    return found


def fetch(step: Step, wanted: list[Package], directory: Path, target: Arch = AMD64) -> None:
    """Download packages into a directory; apt checks their hashes."""
    names = [f"{package.name}={package.version}" for package in wanted]
    tree.run(step, ["apt-get", "download", "-q", *names], [*_binds(target), (directory, "/download")], cwd="/download")


def fetch_source(step: Step, name: str, suffix: str, directory: Path) -> Path:
    """Download the one file of a source package whose name ends in `suffix`; apt checks its hash.

    The rest of the source package is left alone: mirrors that prune may lack its .dsc.
    """
    for line in tree.output(["apt-get", "source", "--print-uris", "-qq", name], _binds()).splitlines():
        uri, file, _size, checksum = line.split()
        if file.endswith(suffix):
            tree.run(step, ["/usr/lib/apt/apt-helper", "download-file", uri.strip("'"), f"/download/{file}", checksum],
                     [*_binds(), (directory, "/download")])
            return directory / file
    raise step.failed(f"the archive has no {suffix} of {name}")
