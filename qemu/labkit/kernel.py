# SPDX-License-Identifier: GPL-2.0
"""The kernel that a guest boots and a module is built for: Debian's stock kernel, its image, modules, source and KDIR.

Inside the build tree a kernel stands at /kernel: its source at /kernel/src and its build directory, which is KDIR,
at /kernel/obj. Build directories are full of absolute paths; these fixed ones keep them valid in any cache.
"""

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import archive, cache, tree
from .arch import AMD64, Arch
from .archive import Package
from .errors import LabError, UsageError
from .ui import Step

SERIES = "7.3"
PREVIOUS_SERIES = "7.2"
CLOUD = "cloud-amd64"
RT = "rt-amd64"
SOURCE = "/kernel/src"
KDIR = "/kernel/obj"

# In the initramfs, with what they depend on; a kernel may have some of them built in.
EARLY_MODULES = ["virtio_pci", "virtio_blk", "virtio_console", "erofs", "overlay", "9pnet_virtio", "9p", "virtio_net",
                 "dummy"]


@dataclass(frozen=True)
class Kernel:
    """One kernel of the archive, named as its image package names it, e.g. 7.3.4+deb13-amd64, 7.3.4+deb13+1-amd64 when
    Debian has changed it, or 7.4-amd64 for candidates of 7.4."""

    release: str
    version: str
    name: str = "stock"
    arch: Arch = AMD64

    @property
    def upstream(self) -> str:
        return re.match(r"[\d.]+", self.release)[0]

    @property
    def series(self) -> str:
        return ".".join(self.upstream.split(".")[:2])

    def order(self) -> list[list[int]]:
        """The order of kernels: by the upstream version, then by the part of the name that is Debian's, then by the version."""
        return [[int(part) for part in re.findall(r"\d+", text)]
                for text in (self.upstream, self.local.partition("-")[0], self.version)]

    @property
    def local(self) -> str:
        return self.release.removeprefix(self.upstream)

    @property
    def flavour(self) -> str:
        """The part that Debian's metapackages of a kernel have in their names, e.g. amd64 or cloud-amd64."""
        return self.local.partition("-")[2]

    @cached_property
    def image(self) -> Path:
        """A directory with vmlinuz, config, modules/ (its modules, with depmod's indexes) and modules.erofs."""

        def build(directory: Path, step: Step) -> None:
            names = [f"linux-{part}-{self.release}" for part in ("image", "binary", "modules")]
            have = {package.name for package in archive.packages("linux-", self.arch) if package.version == self.version}
            _unpack(step, [Package(name, self.version) for name in names if name in have], directory, self.arch)
            finish_image(step, directory, self.release)

        return cache.entry("kernel", {"release": self.release, "version": self.version, "layout": 1},
                           f"fetching Linux {self.release}", build)

    @cached_property
    def source(self) -> Path:
        """The directory of its source, with Debian's patches."""
        return source(self.series, self.version) / "src"

    @cached_property
    def kdir(self) -> Path:
        """Its build directory as `make modules_prepare` leaves it, with the Rust metadata that Debian does not ship."""

        def build(directory: Path, step: Step) -> None:
            unpacked = directory / "unpacked"
            _unpack(step, [Package(f"linux-headers-{self.release}", self.version)], unpacked, self.arch)
            headers = unpacked / "usr/src" / f"linux-headers-{self.release}"
            config = (headers / ".config").read_text()
            if "\nCONFIG_RUST=y\n" not in config:
                raise LabError(f"Linux {self.release} is built without Rust (CONFIG_RUST); "
                               "name another with FERRULE_KERNEL")
            obj = directory / "obj"
            obj.mkdir()
            (obj / ".config").write_text(config)
            make = ["make", "-C", SOURCE, f"O={KDIR}", *compiler_words(config, self.arch), f"LOCALVERSION={self.local}",
                    f"-j{tree.jobs()}"]
            # A candidate has the name of what it is to become.
            if "~rc" in self.version:
                make.append(f"KERNELVERSION={self.upstream}")
            binds = [(self.source, SOURCE), (obj, KDIR)]
            for target in ("olddefconfig", "prepare", "modules_prepare"):
                tree.run(step, [*make, target], binds, root=tools)
            for name in ("Module.symvers", "vmlinux"):
                if (headers / name).exists():
                    (headers / name).rename(obj / name)
            cache.remove(unpacked)

        tools = tree.tools(self.arch)
        inputs = {"release": self.release, "version": self.version, "tree": tools.parent.name, "layout": 1}
        return cache.entry("kdir", inputs, f"preparing KDIR of Linux {self.release} (about 2 minutes)", build) / "obj"

    @property
    def binds(self) -> list[tuple]:
        """The directories that have to be visible in the build tree to build modules for this kernel."""
        return [(self.source, SOURCE), (self.kdir, KDIR)]

    @property
    def is_debian(self) -> bool:
        """Whether it is configured and compiled as Debian's is."""
        return True

    @property
    def boot_words(self) -> list[str]:
        """Words that its command line has to have besides the lab's own."""
        return []

    def processors(self, count: int) -> str:
        """QEMU's words for so many processors."""
        return str(count)

    @property
    def make_words(self) -> list[str]:
        """Words for kbuild besides M=."""
        return compiler_words((self.kdir / ".config").read_text(), self.arch)

    @property
    def rust_flags(self) -> list[str]:
        """Flags for the Rust code of modules besides the kernel's own."""
        return []


def compiler_of(config: str) -> str:
    """The compiler that a configuration was made for, e.g. gcc-14."""
    found = re.search(r'CONFIG_CC_VERSION_TEXT="(?:[\w-]*-)?(gcc-\d+)', config)
    return found[1] if found else "gcc"


def compiler_words(config: str, target: Arch) -> list[str]:
    """The words for kbuild that name the compiler of a configuration and, if it compiles across, the architecture."""
    words = [f"CC={target.compiler(compiler_of(config))}"]
    return [f"ARCH={target.kbuild}", f"CROSS_COMPILE={target.triplet}-", *words] if target.crossed else words


def source(series: str, version: str) -> Path:
    """The directory that holds src/, the source of linux-source-`series` in this version."""

    def build(directory: Path, step: Step) -> None:
        _unpack(step, [Package(f"linux-source-{series}", version)], directory)
        tarball = next((directory / "usr/src").glob("linux-source-*.tar.xz"))
        (directory / "src").mkdir()
        step.run(["tar", "-x", "-f", tarball, "-C", directory / "src", "--strip-components=1", "--no-same-owner"])
        cache.remove(directory / "usr")

    return cache.entry("source", {"series": series, "version": version, "layout": 1},
                       f"unpacking the source of Linux {version} (1.7 GB)", build)


def _unpack(step: Step, packages: list[Package], directory: Path, target: Arch = AMD64) -> None:
    directory.mkdir(exist_ok=True)
    downloads = directory / "download"
    downloads.mkdir()
    archive.fetch(step, packages, downloads, target)
    for file in sorted(downloads.glob("*.deb")):
        tree.run(step, ["dpkg-deb", "-x", f"/entry/download/{file.name}", "/entry"], [(directory, "/entry")])
    cache.remove(downloads)


def finish_image(step: Step, directory: Path, release: str) -> None:
    """Bring usr/lib/modules/RELEASE of a kernel into the layout of `Kernel.image`."""
    modules = directory / "usr/lib/modules" / release
    for place in (modules / "vmlinuz", directory / "boot" / f"vmlinuz-{release}"):
        if place.exists():
            place.rename(directory / "vmlinuz")
    for link in ("build", "source"):
        (modules / link).unlink(missing_ok=True)
    binds = [(directory, "/entry")]
    tree.run(step, ["depmod", "-b", "/entry/usr", release], binds)
    modules.rename(directory / "modules")
    tree.run(step, ["mkfs.erofs", "--quiet", "--all-root", "/entry/modules.erofs", "/entry/modules"], binds)
    for rest in ("usr", "boot", "lib", "etc"):
        cache.remove(directory / rest)


def stock(target: Arch = AMD64) -> Kernel:
    """The newest 7.3.y whose image, headers and source are all in the archive, else the newest of any series that has
    them; $FERRULE_KERNEL chooses another, by series (7.2) or version (7.3.2)."""
    return _choose("stock", SERIES, os.environ.get("FERRULE_KERNEL", ""), target=target)


def previous() -> Kernel:
    """The newest 7.2.y, for which the module is compiled but which no suite boots."""
    return _choose("previous", PREVIOUS_SERIES, "", boots=False)


def cloud() -> Kernel:
    """Debian's kernel of the stock series for virtual machines of clouds: without most drivers, rdma_rxe, and 9P, by which
    the lab's own guest gets its files. $FERRULE_KERNEL chooses another."""
    return _choose("cloud", SERIES, os.environ.get("FERRULE_KERNEL", ""), flavour=CLOUD)


def rt() -> Kernel:
    """Debian's kernel of the stock series with PREEMPT_RT. $FERRULE_KERNEL chooses another."""
    return _choose("rt", SERIES, os.environ.get("FERRULE_KERNEL", ""), flavour=RT)


def _choose(name: str, series: str, wanted: str, boots: bool = True, flavour: str = "", target: Arch = AMD64) -> Kernel:
    if wanted and not re.fullmatch(r"\d+\.\d+(\.\d+)?", wanted):
        raise UsageError(f"FERRULE_KERNEL={wanted}: a series such as 7.2 or a version such as 7.3.2 is needed")
    flavour = flavour or target.name

    def build(directory: Path, step: Step) -> None:
        parts = ("image", "headers", "source") if boots else ("headers", "source")
        found = complete(archive.packages("linux-", target), parts, flavour)
        fitting = [kernel for kernel in found if (kernel.upstream + ".").startswith((wanted or series) + ".")]
        if boots and not wanted:
            fitting = fitting or found
        if not fitting:
            raise LabError(f"the archive has no {' and '.join(parts)} together of Linux {wanted or series}; it has "
                           + (", ".join(kernel.upstream for kernel in found) or "none at all"))
        best = max(fitting, key=Kernel.order)
        (directory / "kernel.json").write_text(json.dumps([best.release, best.version]))

    inputs = {"wanted": wanted, "series": series, "boots": boots, "flavour": flavour, "indexes": archive.stamp(target)}
    choice = cache.entry("choice", inputs, "choosing the kernel", build) / "kernel.json"
    return Kernel(*json.loads(choice.read_text()), name, target)


def complete(packages: list[Package], parts: tuple[str, ...], flavour: str = AMD64.name) -> list[Kernel]:
    """The kernels of a flavour of which these parts (image, headers, source) are there in one version."""
    have = {(package.name, package.version) for package in packages}
    found = []
    for name, version in have:
        if match := re.fullmatch(rf"linux-headers-((\d+\.\d+)(?:[\d.]*\+deb\d+(?:\+\d+)?)?-{flavour})", name):
            names = {"image": match[1], "headers": match[1], "source": match[2]}
            if all((f"linux-{part}-{names[part]}", version) in have for part in parts):
                found.append(Kernel(match[1], version))
    return sorted(found, key=Kernel.order)


def early_modules(modules: Path) -> list[Path]:
    """The files of EARLY_MODULES and what they depend on, in the order in which to load them."""
    depends, by_name = {}, {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, needed = line.partition(":")
        depends[file] = needed.split()
        by_name[re.sub(r"\.ko.*$", "", file.rsplit("/", 1)[-1]).replace("-", "_")] = file
    order: list[str] = []
    for name in EARLY_MODULES:
        file = by_name.get(name)
        if file:
            # modules.dep lists a module's needs with the first to load last.
            order += [*reversed(depends[file]), file]
    return [modules / file for file in dict.fromkeys(order)]
