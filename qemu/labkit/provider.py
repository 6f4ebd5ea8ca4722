# SPDX-License-Identifier: GPL-2.0
"""libferrule, built inside an rdma-core source tree of the guest's version.

The interface between libibverbs and its providers is private to a version of rdma-core, and no package has its headers.
"""

import re
import shutil
from pathlib import Path

from . import archive, cache, frozen, suite, tree
from .arch import AMD64, Arch
from .errors import LabError
from .ui import Step

PROVIDER = tree.CHECKOUT / "userspace-provider"
SOURCES = ["userspace-provider", "include/uapi"]
INSIDE = "/rdma-core"


def source() -> Path:
    """rdma-core's source, with ferrule in the place of its providers."""

    def build(directory: Path, step: Step) -> None:
        tarball = archive.fetch_source(step, "rdma-core", ".orig.tar.gz", directory)
        src = directory / "src"
        src.mkdir()
        step.run(["tar", "-x", "-f", tarball, "-C", src, "--strip-components=1", "--no-same-owner"])
        tarball.unlink()
        # Configuring and checking the other providers would take most of the time.
        lists = src / "CMakeLists.txt"
        text, count = re.subn(r"^add_subdirectory\(providers/.*\n", "", lists.read_text(), flags=re.MULTILINE)
        if not count:
            raise step.failed("rdma-core's CMakeLists.txt names no providers")
        lists.write_text(text.replace("add_subdirectory(libibverbs)", "add_subdirectory(libibverbs)\n"
                                      "add_subdirectory(providers/ferrule)", 1))

    inputs = {"indexes": archive.stamp(), "layout": 1}
    return cache.entry("rdma-core", inputs, "fetching the source of rdma-core", build) / "src"


def version() -> str:
    """The version of rdma-core that the provider is for."""
    if frozen.here():
        return "a bundle's own"
    return re.search(r'^set\(PACKAGE_VERSION "([\d.]+)"\)', (source() / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def build(target: Arch = AMD64) -> Path:
    """The directory with libferrule-rdmavN.so and ferrule.driver; compiles what has changed."""
    return _build(target.directory("provider"), "building the provider", r"lib/libferrule-rdmav\d+\.so",
                  {"ferrule.driver": "driver ferrule\n"}, target)


def build_test() -> Path:
    """The directory with ferrule_provider_test, the provider's test that needs no kernel; compiles what has changed."""
    return _build("provider-test", "building the provider's test", r"bin/ferrule_provider_test", {})


def _build(kind: str, title: str, target: str, more: dict[str, str], arch: Arch = AMD64) -> Path:
    """An entry with the file that is ninja's one target of a pattern, and more files of given content."""
    if not (PROVIDER / "CMakeLists.txt").exists():
        raise LabError(f"{PROVIDER} has no CMakeLists.txt: there is no provider to build")
    origin = source()
    name = f"{arch.directory('libferrule')}-{cache.digest([str(tree.CHECKOUT), str(origin)])}"
    tools = tree.tools(arch)
    inputs = {"origin": str(origin), "tree": tools.parent.name, "checkout": str(tree.CHECKOUT),
              "sources": cache.digest_files(tree.CHECKOUT, SOURCES), "layout": 2}

    def build(directory: Path, step: Step) -> None:
        with cache.lock(name):
            work = cache.work(name)
            if not (work / "src").exists():
                cache.remove(work / "src.new")
                shutil.copytree(origin, work / "src.new", symlinks=True)
                (work / "src.new").rename(work / "src")
            link = work / "src/providers/ferrule"
            if not link.is_symlink():
                link.symlink_to(PROVIDER)
            try:
                made = _compile(step, work, target, arch)
            except LabError:
                # A file that was compiled with a warning would be silent about it the next time.
                cache.remove(work / "build/providers")
                raise
            cache.check_unchanged(inputs["sources"], tree.CHECKOUT, SOURCES)
            shutil.copy(made, directory)
            for file, content in more.items():
                (directory / file).write_text(content)

    return cache.entry(kind, inputs, title, build, keep=10)


def _compile(step: Step, work: Path, target: str, arch: Arch) -> Path:
    binds, root = [(work, INSIDE)], tree.tools(arch)
    out = f"{INSIDE}/build"
    tree.run(step, ["cmake", "-S", f"{INSIDE}/src", "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    "-DNO_PYVERBS=1", "-DNO_MAN_PAGES=1", "-DENABLE_RESOLVE_NEIGH=0", "-DENABLE_VALGRIND=0",
                    # Its build ID depends on no place of this machine.
                    f"-DCMAKE_C_FLAGS=-ffile-prefix-map={tree.CHECKOUT}/=", *_across(arch)], binds, env=_libraries(arch), root=root)
    targets = tree.output(["ninja", "-C", out, "-t", "targets", "all"], binds, root)
    found = re.search(f"^({target}): ", targets, re.MULTILINE)
    if not found:
        raise step.failed(f"userspace-provider/CMakeLists.txt makes no {target}")
    tree.compile(step, ["ninja", "-C", out, "-j", tree.jobs(), found[1]], binds, root=root)
    return work / "build" / found[1]


def _across(arch: Arch) -> list[str]:
    """cmake's words for an architecture that it compiles across for."""
    if not arch.crossed:
        return []
    return ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={arch.triplet.partition('-')[0]}",
            f"-DCMAKE_LIBRARY_ARCHITECTURE={arch.triplet}", f"-DCMAKE_C_COMPILER={arch.compiler(suite.CHOSEN.compiler)}"]


def _libraries(arch: Arch) -> dict[str, str]:
    """The environment by which pkg-config finds libraries of that architecture alone."""
    return {"PKG_CONFIG_LIBDIR": f"/usr/lib/{arch.triplet}/pkgconfig:/usr/share/pkgconfig"} if arch.crossed else {}
