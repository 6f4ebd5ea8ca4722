# SPDX-License-Identifier: GPL-2.0
"""The image of a guest: a read-only root image with Debian's packages, and an initramfs that puts a writable layer on it.

The root image depends on the packages alone, and on the version of rdma-core, which is the provider's as well. The lab's own
files for the guest (qemu/guest) travel in the initramfs, and what is built from the checkout comes by a share, so neither
costs a new image.
"""

import gzip
import lzma
import shutil
import stat
from pathlib import Path

from . import cache, debian, kernel, provider, suite, tree
from .arch import AMD64, Arch
from .errors import LabError
from .ui import Step

PACKAGES_FILE = tree.CHECKOUT / "qemu/packages.txt"
STACKS_FILE = tree.CHECKOUT / "qemu/stacks.txt"
BUSYBOX = "busybox"
GUEST_FILES = tree.CHECKOUT / "qemu/guest"

# rdma-core's tests come as documentation, some of them compressed.
HOOK = """
mkdir "$1/usr/lib/rdma-core-tests" && cp -r "$1/usr/share/doc/rdma-core/tests" "$1/usr/lib/rdma-core-tests/" &&
find "$1/usr/lib/rdma-core-tests" -name '*.gz' -exec gunzip {} + &&
mkdir -p "$1/ferrule" "$1/share" && rm -f "$1/etc/hostname" "$1/etc/resolv.conf"
"""

# A package's scripts do not run here if they are another architecture's. They would have made users and groups, and the
# names of programs that have alternatives.
UNPACKED_HOOK = """
cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd" &&
cp "$1/usr/share/base-passwd/group.master" "$1/etc/group" &&
echo tcpdump:x:101:101::/nonexistent:/usr/sbin/nologin >> "$1/etc/passwd" && echo tcpdump:x:101: >> "$1/etc/group" &&
ln -s mawk "$1/usr/bin/awk" && { [ ! -e "$1/usr/bin/mpirun.openmpi" ] || ln -s mpirun.openmpi "$1/usr/bin/mpirun"; }
"""

# Where scripts do not run, apt's minimum does not come by itself.
ESSENTIAL = ["?essential", "?priority(required)"]

# Python's libraries, which the scripts would have compiled.
COMPILED = ["/usr/lib/python3", "/usr/lib/python3.13"]


def packages(file: Path) -> list[str]:
    """The packages that a file names."""
    lines = (line.split("#")[0].strip() for line in file.read_text().splitlines())
    names = sorted({line for line in lines if line})
    for name in names:
        if not name.replace("-", "").replace("+", "").replace(".", "").isalnum():
            raise LabError(f"{file}: {name!r} is not the name of a package")
    return names


def root(stacks: bool = False, target: Arch = AMD64) -> Path:
    """The guest's root image (erofs, not compressed: unpacking costs a guest under TCG more than reading).

    With `stacks`, a larger one that has stacks.txt's packages, too.
    """
    if target.crossed:
        return _unpacked(target, stacks)

    def build(directory: Path, step: Step) -> None:
        debian.bootstrap(directory / "root.tar", names, step, [HOOK])
        tree.run(step, ["mkfs.erofs", "--quiet", "--tar=f", "/entry/root.erofs", "/entry/root.tar"],
                 [(directory, "/entry")])
        (directory / "root.tar").unlink()

    names = _names(stacks)
    inputs = {"suite": debian.SUITE, "packages": names, "rdma-core": provider.version(), "hook": HOOK, "layout": 1}
    return cache.entry("guest", inputs, "making the guest image (about 1 minute)", build) / "root.erofs"


def _names(stacks: bool) -> list[str]:
    return sorted({*packages(PACKAGES_FILE), *(packages(STACKS_FILE) if stacks else []), *suite.CHOSEN.minimum})


def _unpacked(target: Arch, stacks: bool) -> Path:
    """The same for another architecture: packages that are unpacked, and whose scripts do not run. Beside it is BUSYBOX."""

    def build(directory: Path, step: Step) -> None:
        files = directory / "root"
        debian.bootstrap(files, [*ESSENTIAL, *names], step, hooks, architectures=(target.name,), scripts=False)
        shutil.copy(files / "usr/bin/busybox", directory / BUSYBOX)
        binds = [(directory, "/entry")]
        tree.run(step, ["python3", "-m", "compileall", "-q", "-s", "/entry/root", "-p", "/",
                        *(f"/entry/root{place}" for place in COMPILED)], binds)
        tree.run(step, ["mkfs.erofs", "--quiet", "--all-root", "/entry/root.erofs", "/entry/root"], binds)
        cache.remove(files)

    names, hooks = _names(stacks), [HOOK, UNPACKED_HOOK]
    inputs = {"suite": debian.SUITE, "packages": [*ESSENTIAL, *names], "rdma-core": provider.version(), "hook": hooks,
              "compiled": COMPILED, "layout": 2}
    title = f"making the guest image for {target.name} (about 1 minute)"
    return cache.entry(target.directory("guest"), inputs, title, build) / "root.erofs"


def _busybox(target: Arch) -> Path:
    return root(target=target).parent / BUSYBOX if target.crossed else tree.path() / "usr/bin/busybox"


def initramfs(modules: Path, target: Arch = AMD64) -> Path:
    """The initramfs for a kernel whose modules stand in that directory."""
    busybox = _busybox(target)

    def build(directory: Path, step: Step) -> None:
        files = {"bin/busybox": (busybox.read_bytes(), 0o755)}
        for file in sorted(GUEST_FILES.iterdir()):
            files["init" if file.name == "initramfs" else f"lab/{file.name}"] = (file.read_bytes(), 0o755)
        order = []
        for file in kernel.early_modules(modules):
            content = file.read_bytes()
            name = file.name
            if name.endswith(".xz"):
                content, name = lzma.decompress(content), name.removesuffix(".xz")
            files[f"modules/{name}"] = (content, 0o644)
            order.append(name)
        files["modules/order"] = ("".join(f"{name}\n" for name in order).encode(), 0o644)
        (directory / "initramfs").write_bytes(gzip.compress(cpio(files), 1))

    inputs = {"guest": cache.digest_files(GUEST_FILES, ["."]), "modules": modules.parent.name,
              "early": kernel.EARLY_MODULES, "tree": (busybox.parent if target.crossed else tree.path().parent).name, "layout": 1}
    return cache.entry("initramfs", inputs, "making the initramfs", build) / "initramfs"


def cpio(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A cpio archive in the "newc" format that the kernel unpacks, of regular files and the directories they need."""
    directories = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    directories |= {"dev", "proc", "sys", "root"}
    records = [(name, b"", stat.S_IFDIR | 0o755) for name in sorted(directories)]
    records += [(name, content, stat.S_IFREG | mode) for name, (content, mode) in files.items()]
    records.append(("TRAILER!!!", b"", 0))
    out = bytearray()
    for number, (name, content, mode) in enumerate(records, 1):
        words = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08x" % word for word in words) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)
