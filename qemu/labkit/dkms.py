# SPDX-License-Identifier: GPL-2.0
"""Debian packages for dkms, which compiles the module on its user's machine: the source of the module, and for each kernel
what rustc has to know of the kernel's crates, which Debian's headers lack (qemu/packaging/dkms and rust).
"""

import re
import shutil
from pathlib import Path

from . import cache, kernel, module, packages, suite, tree
from .errors import LabError
from .ui import Step

DKMS = packages.PACKAGING / "dkms"
RUST = packages.PACKAGING / "rust"

# The files of a kernel's build directory that the compilation of a module reads, and none of Debian's packages has. kbuild's
# Makefile in rust/ comes from the source.
METADATA = ["scripts/target.json", "rust/*.rmeta", "rust/*.so", "rust/kernel/generated_*.rs"]
RUST_MAKEFILE = "rust/Makefile"


def build(version: str | None = None) -> list[Path]:
    """The directories with the packages; lintian has found no fault in them. `version` as in `packages.build`."""
    targets = packages.targets_of_suite()
    return [_source(targets, version), *map(_metadata, targets)]


def module_sources() -> list[Path]:
    """The files that the module alone is compiled from, relative to the checkout."""
    engine = Path("drivers/infiniband/sw/ferrule/engine")
    return [file for file in module.sources()
            if file.parts[0] != "tests" and file.suffix != ".md" and file.name not in ("Cargo.toml", "Cargo.lock")
            and (engine not in file.parents or engine / "src" in file.parents)]


def rustc_version(configs: list[str]) -> tuple[int, int]:
    """The rustc by which kernels with these configurations were compiled, which is one."""
    found = {match[1] for config in configs if (match := re.search(r"^CONFIG_RUSTC_VERSION=(\d+)$", config, re.MULTILINE))}
    if len(found) != 1:
        raise LabError(f"the kernels are for {' and '.join(sorted(found)) or 'no'} versions of rustc, and not for one")
    number = int(found.pop())
    return number // 100000, number // 100 % 1000


def rustc_bounds(configs: list[str]) -> str:
    """The rustc that can use the metadata of such kernels: the one that has written it."""
    major, minor = rustc_version(configs)
    return f"rustc (>= {major}.{minor}), rustc (<< {major}.{minor + 1})"


def _config(target: kernel.Kernel) -> str:
    return (target.kdir / ".config").read_text()


def _source(targets: tuple[kernel.Kernel, ...], version: str | None) -> Path:
    """The directory with ferrule-dkms."""
    own = packages.driver_version(packages.DRIVER.read_text())
    version_of_suite = packages.suite_version(version or own)
    entries = packages.changelog((packages.PACKAGING / "debian/changelog").read_text(), own, version_of_suite)
    entries = entries.replace("ferrule (", "ferrule-dkms (")
    values = {"RUSTC": rustc_bounds([_config(target) for target in targets]), "VERSION": version_of_suite,
              "ABI": packages.abi(packages.HEADER.read_text())}
    files = module_sources()
    names = [str(file) for file in files]
    tools = tree.packaging()
    inputs = {"packaging": cache.digest_files(packages.PACKAGING, ["debian", "dkms"]), "changelog": entries, "values": values,
              "sources": cache.digest_files(tree.CHECKOUT, names), "tree": tools.parent.name, "layout": 1}

    def build(directory: Path, step: Step) -> None:
        source = _describe(DKMS, directory, values, entries)
        for file in files:
            (source / "module" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree.CHECKOUT / file, source / "module" / file)
        cache.check_unchanged(inputs["sources"], tree.CHECKOUT, names)
        shutil.copy(DKMS / "dkms-build", source)
        packages.make(step, directory, tools, judge=version is None)

    return cache.entry(suite.CHOSEN.directory("packages-dkms"), inputs, "making the package for dkms", build, keep=10)


def _metadata(target: kernel.Kernel) -> Path:
    """The directory with ferrule-rust-RELEASE. Its version is that of the kernel, as its content is."""
    pocket = suite.CHOSEN.pockets[-1]
    entries = f"ferrule-rust ({packages.suite_version(target.version)}) {pocket}; urgency=medium\n\n  * Of Linux {target.release}.\n\n"
    entries += next(line for line in (packages.PACKAGING / "debian/changelog").read_text().splitlines() if line.startswith(" -- "))
    major, minor = rustc_version([_config(target)])
    values = packages.values_of(target) | {"RUSTC": f"{major}.{minor}"}
    tools = tree.packaging()

    def build(directory: Path, step: Step) -> None:
        source = _describe(RUST, directory, values, entries + "\n")
        (source / "debian/install").rename(source / f"debian/ferrule-rust-{target.release}.install")
        for pattern in METADATA:
            found = list(target.kdir.glob(pattern))
            if not found:
                raise step.failed(f"the build directory of Linux {target.release} has no {pattern}")
            for file in found:
                _copy(file, source / "metadata" / file.relative_to(target.kdir))
        _copy(target.source / RUST_MAKEFILE, source / "metadata" / RUST_MAKEFILE)
        packages.make(step, directory, tools)

    inputs = {"packaging": cache.digest_files(packages.PACKAGING, ["rust"]), "changelog": entries, "values": values,
              "kdir": target.kdir.parent.name, "tree": tools.parent.name, "layout": 1}
    kind = target.arch.directory(f"packages-rust-{target.name}")
    return cache.entry(kind, inputs, f"packing Rust metadata of Linux {target.release} (about 1 minute)", build, keep=3)


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def _describe(description: Path, directory: Path, values: dict[str, str], entries: str) -> Path:
    """Put a description into `directory`/source, with the parts that all have; returns that."""
    source = directory / "source"
    shutil.copytree(packages.PACKAGING / "debian/source", source / "debian/source")
    shutil.copy(packages.PACKAGING / "debian/copyright", source / "debian")
    shutil.copytree(description / "debian", source / "debian", dirs_exist_ok=True)
    (source / "debian/changelog").write_text(entries)
    for file in (source / "debian").iterdir():
        if file.is_file():
            file.write_text(packages.filled(file, values))
    return source
