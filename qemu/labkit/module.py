# SPDX-License-Identifier: GPL-2.0
"""The modules that the checkout's Kbuild makes, for one kernel.

They are built from a copy of the sources which is mounted over the checkout's own path: messages name the files that a
person edits, the checkout stays free of objects, and each kernel has its own objects, so that only what changed is
compiled again.
"""

import os
import shutil
from pathlib import Path

from . import cache, frames, kernel, tree
from .errors import LabError
from .ui import Step

PARTS = ["Kbuild", "rust", "drivers", "include", "tests/broken", "tests/kernel_user", "tests/kunit", "tests/net_echo",
         "tests/rdma_loop", "tests/unsound"]

# Products that a build in the checkout itself may have left there; and the engine's crate is built by cargo as well.
PRODUCTS = ["*.o", "*.ko", "*.a", "*.d", "*.mod", "*.mod.c", "*.rmeta", "*.symvers", "*.order",
            "generated.rs", "layout_generated.rs", "layout.s"]
OTHERS = ["target", "__pycache__"]


def sources() -> list[Path]:
    """The files that a module may be made of, relative to the checkout."""
    found = []
    for part in PARTS:
        top = tree.CHECKOUT / part
        if top.is_file():
            found.append(top)
        for directory, below, files in os.walk(top):
            below[:] = [name for name in below if name not in OTHERS and not name.startswith(".")]
            found += [Path(directory, name) for name in files if not name.startswith(".")]
    names = (file.relative_to(tree.CHECKOUT) for file in sorted(found))
    return [name for name in names if not any(name.match(product) for product in PRODUCTS)]


def build(target: kernel.Kernel, clippy: bool = False) -> Path:
    """The directory with the modules for this kernel; compiles what has changed."""
    if not (tree.CHECKOUT / "Kbuild").exists():
        raise LabError(f"{tree.CHECKOUT} has no Kbuild: there is no module to build")
    files = sources()
    names = [str(file) for file in files]
    kind = flavour(target, clippy)
    tools = tree.tools(target.arch)
    name = work_name(kind)
    inputs = {"kdir": target.kdir.parent.name, "checkout": str(tree.CHECKOUT), "make": make_words(target),
              "frames": [frames.LIMIT, frames.SETUP_LIMIT, frames.SETUP],
              "sources": cache.digest_files(tree.CHECKOUT, names), "layout": 2}

    def build(directory: Path, step: Step) -> None:
        with cache.lock(name):
            work = for_kernel(target, name)
            snapshot(files, work)
            cache.check_unchanged(inputs["sources"], tree.CHECKOUT, names)
            words = [*make_words(target), f"-j{tree.jobs()}", *(["CLIPPY=1"] if clippy else []), "modules"]
            try:
                tree.compile(step, words, [*target.binds, (work, tree.CHECKOUT)], root=tools)
            except LabError:
                # A file that was compiled with a warning would be silent about it the next time.
                cache.remove(work)
                raise
            for module in work.rglob("*.ko"):
                shutil.copy(module, directory)
            # Instrumented code has larger frames, and a debug kernel larger stacks for them.
            if not clippy and target.is_debian:
                words = [target.arch.compiler("objdump"), "--disassemble", "--demangle", "--no-show-raw-insn",
                         "/module/ferrule.ko"]
                frames.check(step.title, tree.output(words, [(directory, "/module")], root=tools))

    what = "clippy on the module" if clippy else "building the module"
    return cache.entry(kind, inputs, f"{what} for Linux {target.release}", build, keep=10)


def install(target: kernel.Kernel, root: Path) -> Path:
    """Install ferrule.ko for this kernel below `root`, where depmod then finds it; returns its path."""
    made = build(target)
    modules = root / "lib/modules" / target.release
    (modules / "updates").mkdir(parents=True, exist_ok=True)
    shutil.copy(made / "ferrule.ko", modules / "updates")
    # Where the kernel itself is not installed there is nothing to index.
    if (modules / "modules.order").exists():
        with Step(f"depmod {target.release}", cache.log_file("depmod")) as step:
            tree.run(step, ["depmod", "-b", "/mnt", target.release], [(modules, f"/mnt/lib/modules/{target.release}")])
    return modules / "updates/ferrule.ko"


def flavour(target: kernel.Kernel, clippy: bool = False) -> str:
    """The kind of the entry of a kernel's modules, with the architecture and the suite if it is not the usual one."""
    return target.arch.directory(f"module-{target.name}") + ("-clippy" if clippy else "")


def work_name(kind: str) -> str:
    """The name of the directory, and of its lock, where this checkout's modules of a kind are compiled."""
    return f"{kind}-{cache.digest(str(tree.CHECKOUT))}"


def for_kernel(target: kernel.Kernel, name: str) -> Path:
    """That directory, without what was compiled for another build of the kernel: make goes by the age of files, and an
    older kernel's headers may lay out its structures otherwise."""
    work, kdir = cache.work(name), target.kdir.parent.name
    mark = work / ".kdir"
    if not mark.exists() or mark.read_text() != kdir:
        cache.remove(work)
        work = cache.work(name)
        mark.write_text(kdir)
    return work


def make_words(target: kernel.Kernel) -> list:
    """kbuild's command for the checkout's modules, in the build tree."""
    # A module that panics tells where, and that is a place in the source rather than on this machine. Nor does its build ID
    # depend on that.
    flags = [f"--remap-path-prefix={tree.CHECKOUT}/=", *target.rust_flags]
    return ["make", "-C", kernel.KDIR, f"M={tree.CHECKOUT}", f"KRUSTFLAGS={' '.join(flags)}",
            f"KCFLAGS=-ffile-prefix-map={tree.CHECKOUT}=.", *target.make_words]


def snapshot(files: list[Path], work: Path) -> None:
    """Make the sources in `work` the same as the checkout's; what kbuild made beside them stays."""
    listing = work / ".sources"
    before = set(listing.read_text().splitlines()) if listing.exists() else set()
    for gone in before - {str(file) for file in files}:
        (work / gone).unlink(missing_ok=True)
    for file in files:
        here, there = tree.CHECKOUT / file, work / file
        if there.exists() and there.read_bytes() == here.read_bytes():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here, there)
    listing.write_text("".join(f"{file}\n" for file in files))
