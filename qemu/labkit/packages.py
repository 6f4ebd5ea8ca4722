# SPDX-License-Identifier: GPL-2.0
"""Debian packages of the module, of the provider, and of what goes with them (qemu/packaging has their description).

The module and the provider are built as ever; dpkg-buildpackage puts them into packages, in a tree that has its tools.
"""

import re
import shutil
from pathlib import Path

from . import cache, kernel, module, provider, suite, tree
from .errors import LabError
from .ui import Step

PACKAGING = tree.CHECKOUT / "qemu/packaging"
DRIVER = tree.CHECKOUT / "drivers/infiniband/sw/ferrule/ferrule.rs"
HEADER = tree.CHECKOUT / "include/uapi/rdma/ferrule-abi.h"
INSIDE = "/build"

# The parts of the description.
PARTS = ["debian", "limits", "man", "systemd"]

# Where the sources are on this machine, which is nobody else's business. Build IDs are made of debug information, too, which
# also names the directory where the compiler was.
PLACES = [f"{tree.CHECKOUT}{part}".encode() for part in ("/drivers/", "/include/", "/rust/", "/userspace-provider/", "\0")]


def driver_version(source: str) -> str:
    """The version of the driver as its source has it: three parts of one number."""
    found = re.search(r"^const VERSION: u64 = (0x[0-9a-fA-F_]+);", source, re.MULTILINE)
    if not found:
        raise LabError(f"{DRIVER} has no VERSION")
    number = int(found[1], 16)
    return f"{number >> 32}.{number >> 16 & 0xffff}.{number & 0xffff}"


def abi(header: str) -> str:
    """The version of the interface between module and provider, by which packages that do not fit refuse each other."""
    found = re.search(r"^#define FERRULE_ABI_VERSION\s+(\d+)$", header, re.MULTILINE)
    if not found:
        raise LabError(f"{HEADER} has no FERRULE_ABI_VERSION")
    return found[1]


def changelog(text: str, version: str, other: str | None = None) -> str:
    """The changelog for packages of a version, which its newest entry has to be about; with the version `other` in its
    place, if there is one."""
    newest = re.match(r"ferrule \(([^)]+)\)", text)
    if not newest or newest[1] != version:
        raise LabError(f"the driver's version is {version}, but the newest entry of qemu/packaging/debian/changelog is "
                       f"about {newest[1] if newest else 'nothing'}")
    return text if other is None else text.replace(f"({version})", f"({other})", 1)


def bounds(version: str) -> str:
    """The libibverbs that a provider fits which was built for this version of rdma-core: the interface between them is
    private to a version, and Debian's symbols file tells only the number that a provider's file name has."""
    return f"libibverbs1 (>= {version}), libibverbs1 (<< {int(version.split('.')[0]) + 1})"


def suite_version(version: str) -> str:
    """The version of packages for the lab's suite. A machine whose suite is upgraded has to take those of the new one."""
    return version if suite.CHOSEN is suite.TRIXIE else f"{version}+{suite.NAME}"


def targets_of_suite() -> tuple[kernel.Kernel, ...]:
    """The kernels that packages are made for: the stock one, that of the series before, and those of clouds and with
    PREEMPT_RT. A suite that is not released has one series, and not always the other kinds."""
    if not suite.CHOSEN.backports:
        return (kernel.stock(),)
    return (kernel.stock(), kernel.previous(), kernel.cloud(), kernel.rt())


def build(version: str | None = None) -> Path:
    """The directory with the packages for some kernels (`targets_of_suite`); lintian has found no fault in them.

    With `version`, as if that were the driver's, and without lintian: what an upgrade begins with.
    """
    own = driver_version(DRIVER.read_text())
    entries = changelog((PACKAGING / "debian/changelog").read_text(), own, suite_version(version or own))
    targets = targets_of_suite()
    kernels = {target.release: target for target in targets}
    modules = {release: module.build(target) for release, target in kernels.items()}
    library = provider.build()
    needs = bounds(provider.version())
    interface = abi(HEADER.read_text())
    tools = tree.packaging()

    def build(directory: Path, step: Step) -> None:
        source = directory / "source"
        source.mkdir()
        for part in PARTS:
            shutil.copytree(PACKAGING / part, source / part)
        shutil.copytree(library, source / "provider", ignore=shutil.ignore_patterns(".*"))
        for file in [*library.glob("*.so"), *(made / "ferrule.ko" for made in modules.values())]:
            name_no_place(step, file)
        debian = source / "debian"
        (debian / "changelog").write_text(entries)
        control = debian / "control"
        control.write_text(filled(control, {"LIBIBVERBS": needs, "DEBIAN": suite.CHOSEN.title, "ABI": interface}))
        for release, made in modules.items():
            (source / "modules" / release).mkdir(parents=True)
            shutil.copy(made / "ferrule.ko", source / "modules" / release)
            _describe_module(debian, kernels[release])
        for target in newest(targets):
            _add(debian, "newest.control", target)
        make(step, directory, tools, judge=version is None)

    inputs = {"packaging": cache.digest_files(PACKAGING, PARTS), "changelog": entries,
              "modules": [(release, kernels[release].version, made.name) for release, made in modules.items()],
              "provider": library.name, "needs": needs, "abi": interface, "tree": tools.parent.name, "layout": 2}
    return cache.entry("packages", inputs, "making the packages", build, keep=10)


def newest(kernels: tuple[kernel.Kernel, ...]) -> list[kernel.Kernel]:
    """Of each flavour, the newest kernel."""
    ordered = sorted(kernels, key=kernel.Kernel.order)
    return list({target.flavour: target for target in ordered}.values())


def make(step: Step, directory: Path, tools: Path, judge: bool = True) -> None:
    """Make the packages that the files in `directory`/source describe. They name no place on this machine, and lintian finds
    no fault in them, if it is to `judge` them."""
    source = directory / "source"
    binds = [(directory, INSIDE)]
    # Nothing is compiled here, so the compilers that dpkg asks for may be absent.
    words = ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps"]
    tree.run(step, words, binds, f"{INSIDE}/source", root=tools)
    for file in source.glob("debian/*/usr/**/*"):
        if file.is_file():
            name_no_place(step, file)
    if judge:
        changes = next(directory.glob("*.changes"))
        words = ["lintian", "--allow-root", "--fail-on=error,warning", "--tag-display-limit=0", changes.name]
        tree.run(step, words, binds, INSIDE, root=tools)
    for rest in (*directory.glob("*.changes"), *directory.glob("*.buildinfo"), source):
        cache.remove(rest)


def name_no_place(step: Step, file: Path) -> None:
    """Fail if a file names a place on this machine."""
    if any(place in file.read_bytes() for place in PLACES):
        raise step.failed(f"{file} names directories of this machine")


def filled(template: Path, values: dict[str, str]) -> str:
    """The text of a file, with values in the place of their names."""
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def values_of(target: kernel.Kernel) -> dict[str, str]:
    """The names of a kernel that templates have."""
    return {"RELEASE": target.release, "KERNEL_VERSION": target.version, "FLAVOUR": target.flavour,
            "ABI": abi(HEADER.read_text())}


def _describe_module(debian: Path, target: kernel.Kernel) -> None:
    """Add the package for a kernel to the description, whose modules.* are the same for every kernel."""
    _add(debian, "modules.control", target)
    for part in ("install", "postinst", "postrm"):
        text = filled(debian / f"modules.{part}", values_of(target))
        (debian / f"ferrule-modules-{target.release}.{part}").write_text(text)


def _add(debian: Path, template: str, target: kernel.Kernel) -> None:
    """Add a package to the control file."""
    with (debian / "control").open("a") as control:
        control.write(filled(debian / template, values_of(target)))
