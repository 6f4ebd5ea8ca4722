# SPDX-License-Identifier: GPL-2.0
"""The bundle: an archive with this lab and all that a guest needs, for machines without a checkout (frozen.py runs it).

QEMU comes along with its libraries. A distribution's own may be absent, too old or without the parts that a guest needs,
and this is the one that the suites run with.
"""

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path

from . import accel, cache, frozen, image, kernel, module, packages, provider, tree
from .arch import AMD64
from .errors import LabError, UsageError
from .ui import Step

NAME = "./ferrule-lab"

USAGE = f"""\
NAME
    ferrule-lab - run programs on Ferrule, an RDMA adapter in software, in virtual machines

SYNOPSIS
    {NAME} run   [OPTION…] -- CMD [ARG…]   run a program in a guest
    {NAME} shell [OPTION…]                 a shell in a guest, on this terminal
    {NAME} COMMAND --help                  the options of a command

DESCRIPTION
    A guest is a Debian 13 with rdma-core, perftest and their like, and with the RDMA device ferrule0. /share in it is the
    directory of --share. This needs x86-64 Linux and Python 3.11, and no root; with /dev/kvm it is faster.

EXIT STATUS
    the command's own (128 and the signal's number where a signal ended it); and
    124  the timeout was reached
    125  a guest's kernel log has a report of a fault, even where the command succeeded; the report is printed
    126  ferrule-lab itself failed
    2    a wrong command line

ENVIRONMENT
    FERRULE_CACHE    directory for logs (default: ferrule in $XDG_CACHE_HOME or ~/.cache)
    FERRULE_ACCEL    kvm or tcg: do not try which one works; icount: tcg with a clock that counts instructions
    PYTHON           the Python to use (default: python3)

FILES
    CACHE/runs/      the last runs: each guest's kernel log, and QEMU's messages
"""

COMMANDS = ("run", "shell")

# The directory in the archive, and the archive's name.
DIRECTORY = "ferrule-lab"

FILES = packages.PACKAGING / "bundle"
LAB_FILES = ("lab", "labkit", "guest", "packages.txt", "stacks.txt")

# QEMU reads these for a machine without a display: the BIOS, and the programs by which that boots a kernel.
FIRMWARE = ("seabios/bios-256k.bin", "qemu/kvmvapic.bin", "qemu/linuxboot_dma.bin")

# At this level xz takes as long as gzip, and the root image is a sixth smaller; -3 takes seven times as long for 5 %.
COMPRESS = "xz --threads=0 -0"


def build() -> Path:
    """The directory with the archive and its checksum."""
    stock = kernel.stock()
    library, made = provider.build(), module.build(stock)
    root, early = image.root(), image.initramfs(stock.image / "modules")
    cpu = accel.tcg_cpu(tree.path())

    def build(directory: Path, step: Step) -> None:
        top = directory / DIRECTORY
        entries = top / frozen.ENTRIES.name
        _copy_lab(top)
        _write(entries / "choice/kernel.json", json.dumps([stock.release, stock.version]))
        _write(entries / "cpu/cpu", cpu)
        for part in ("vmlinuz", "modules.erofs"):
            _copy(stock.image / part, entries / "kernel")
        _copy(root, entries / "guest")
        _copy(early, entries / "initramfs")
        for part in ("tests", "build", "module"):
            (entries / frozen.PARTS / part).mkdir(parents=True)
        shutil.copytree(library, entries / frozen.PARTS / "provider", ignore=shutil.ignore_patterns(".*"))
        _copy(made / "ferrule.ko", entries / frozen.PARTS / "module")
        binds = [(directory, "/bundle")]
        parts = f"/bundle/{DIRECTORY}/{frozen.ENTRIES.name}/{frozen.PARTS}"
        tree.run(step, ["sh", "-c", f"strip --strip-debug {parts}/module/*.ko {parts}/provider/*.so"], binds)
        _copy_qemu(entries / "tree/root")
        _write(top / frozen.MANIFEST.name, json.dumps(manifest(entries), indent=1) + "\n")
        # The same content makes the same archive, wherever it is made.
        order = [f"{DIRECTORY}/{part}" for part in (*sorted(set(os.listdir(top)) - {frozen.MANIFEST.name}), frozen.MANIFEST.name)]
        tree.run(step, ["tar", "--create", f"--file={DIRECTORY}.tar.xz", f"--use-compress-program={COMPRESS}", "--sort=name",
                        "--owner=0", "--group=0", "--numeric-owner", "--mtime=2026-01-01 00:00Z", "--mode=u+w,go=rX", *order],
                 binds, "/bundle")
        tree.run(step, ["sh", "-c", f"sha256sum {DIRECTORY}.tar.xz > {DIRECTORY}.tar.xz.sha256"], binds, "/bundle")
        cache.remove(top)

    inputs = {"lab": cache.digest_files(tree.CHECKOUT / "qemu", [*LAB_FILES, "packaging/bundle"]), "kernel": stock.image.name,
              "parts": [library.name, made.name, root.parent.name, early.parent.name], "tree": tree.path().parent.name,
              "cpu": cpu, "compress": COMPRESS, "layout": 1}
    return cache.entry("bundle", inputs, "making the bundle (about 2 minutes)", build, keep=2)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _copy(file: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, directory)


def _copy_lab(top: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FILES, top)
    for part in LAB_FILES:
        origin = tree.CHECKOUT / "qemu" / part
        if origin.is_dir():
            shutil.copytree(origin, top / "qemu" / part, ignore=ignored)
        else:
            _copy(origin, top / "qemu")


def _copy_qemu(there: Path) -> None:
    """QEMU of the build tree, with its libraries, their loader and its firmware."""
    root, program = tree.path(), "usr/bin/qemu-system-x86_64"
    _copy(root / program, there / "usr/bin")
    for line in tree.output(["ldd", f"/{program}"]).splitlines():
        # NAME => FILE (ADDRESS); the loader has no name, and the kernel's own object no file.
        name, _, file = line.split(" (")[0].strip().rpartition(" => ")
        if file.startswith("/"):
            (there / frozen.LIBRARIES).mkdir(exist_ok=True)
            shutil.copy(root / file.lstrip("/"), there / frozen.LIBRARIES / (name or frozen.LOADER))
    for file in FIRMWARE:
        _copy(root / "usr/share" / file, there / frozen.DATA)


def manifest(entries: Path) -> dict[str, list]:
    """The size and the SHA-256 of each file below a directory."""
    files = (file for file in sorted(entries.rglob("*")) if file.is_file())
    return {str(file.relative_to(entries)): [file.stat().st_size, _hash(file)] for file in files}


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def check_options(options: argparse.Namespace) -> None:
    """Refuse what needs a checkout."""
    if options.command and options.command not in COMMANDS:
        raise UsageError(f"{options.command} needs a checkout of ferrule, and `qemu/lab` in it; a bundle has "
                         + " and ".join(COMMANDS))
    if not options.command:
        return
    others = {"--backend": options.backend != "soft", "--kernel": options.kernel != "stock",
              "--arch": (options.arch, options.peer_arch) != (AMD64.name, None), "--stacks": options.stacks,
              "--system": options.system, "FERRULE_KERNEL": "FERRULE_KERNEL" in os.environ}
    for name, given in others.items():
        if given:
            raise UsageError(f"{name} needs a checkout of ferrule, and `qemu/lab` in it; a bundle has one kernel, one guest "
                             "image and the driver's own engine")


def check_files(entries: Path = frozen.ENTRIES, listing: Path = frozen.MANIFEST) -> None:
    """See that a bundle's files are whole: their sizes at each run, their content at the first one and after a change."""
    try:
        expected = json.loads(listing.read_text())
        found = {name: (entries / name).stat() for name in expected}
    except FileNotFoundError as error:
        raise _damaged(error.filename, "is not there") from None
    except ValueError:
        raise _damaged(listing, "cannot be read") from None
    for name, (size, _) in expected.items():
        if found[name].st_size != size:
            raise _damaged(entries / name, f"has {found[name].st_size} bytes and not {size}")

    def build(_directory: Path, _step: Step) -> None:
        for name, (_, digest) in expected.items():
            if _hash(entries / name) != digest:
                raise _damaged(entries / name, "has another content than it should have")

    inputs = {"place": str(entries), "listing": hashlib.sha256(listing.read_bytes()).hexdigest(),
              "files": [(name, stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()]}
    cache.entry("intact", inputs, "checking the bundle's files (a few seconds, once)", build, keep=3)


def _damaged(file: Path | str, how: str) -> LabError:
    return LabError(f"the bundle is damaged ({file} {how}): compare its archive with the .sha256 beside it, and unpack it again")
