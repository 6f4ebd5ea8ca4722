# SPDX-License-Identifier: GPL-2.0
"""The debug kernels: the stock kernel's source with lockdep, KASAN and their like (qemu/debug.config), the same with
PREEMPT_RT (qemu/rt.config), and with KCSAN in their place (qemu/kcsan.config)."""

import re
from functools import cached_property
from pathlib import Path

from . import cache, kernel, tree
from .ui import Step

# The settings of each, those of debug.config first.
FRAGMENTS = {"debug": ["debug.config"], "rt-debug": ["debug.config", "rt.config"], "kcsan": ["debug.config", "kcsan.config"]}

# Linux 7.3 has KCSAN watch C alone. This is what scripts/Makefile.kcsan has for it, in rustc's words; -Zsanitizer=thread is
# not for the kernel's target.
KCSAN_FLAGS = ["-Cpasses=tsan", *("-Cllvm-args=" + word for word in (
    "-force-attribute=sanitize_thread", "-tsan-compound-read-before-write=1", "-tsan-distinguish-volatile=1"))]
MAKE = ["make", "-C", kernel.SOURCE, f"O={kernel.KDIR}", "LLVM=1"]


class DebugKernel(kernel.Kernel):
    """A kernel of our own configuration, from the stock kernel's source."""

    @property
    def series(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def fragment(self) -> str:
        """Its settings."""
        return "".join((tree.CHECKOUT / "qemu" / name).read_text() for name in FRAGMENTS[self.name])

    @cached_property
    def image(self) -> Path:
        """As `Kernel.image`, and with its build directory in obj/."""
        source, fragment = self.source, self.fragment

        def build(directory: Path, step: Step) -> None:
            obj = directory / "obj"
            obj.mkdir()
            binds = [(source, kernel.SOURCE), (obj, kernel.KDIR), (directory, "/entry")]
            tree.run(step, [*MAKE, "tinyconfig"], binds)
            config = obj / ".config"
            config.write_text(merge(config.read_text(), fragment))
            tree.run(step, [*MAKE, "olddefconfig"], binds)
            if missing := lost(config.read_text(), fragment):
                raise step.failed("the configuration lost " + ", ".join(missing))
            tree.run(step, ["nice", *MAKE, f"-j{tree.jobs()}", "bzImage", "modules"], binds)
            tree.run(step, [*MAKE, "modules_install", "INSTALL_MOD_PATH=/entry/usr", "DEPMOD=true"], binds)
            release = (obj / "include/config/kernel.release").read_text().strip()
            (directory / "vmlinuz").write_bytes((obj / "arch/x86/boot/bzImage").read_bytes())
            (directory / "usr/lib/modules" / release / "config").write_text(config.read_text())
            kernel.finish_image(step, directory, release)
            _slim(obj)

        inputs = {"version": self.version, "fragment": fragment, "tree": tree.path().parent.name, "layout": 1}
        return cache.entry("debug", inputs, f"building the {self.name} kernel from Linux {self.version} (25 CPU minutes)", build)

    @cached_property
    def kdir(self) -> Path:
        return self.image / "obj"

    @property
    def is_debian(self) -> bool:
        return False

    @property
    def boot_words(self) -> list[str]:
        # KASAN tells a stray address by the width of addresses, which it takes from the boot processor's features. While
        # these are identified anew, with interrupts on, they are cleared for a moment, and an interrupt then gets a
        # report for a good address, if there are five levels of page tables.
        # It has no ACPI to tell where the timer is that the clock is measured by: q35 has it there. Processors of several
        # sockets are taken to count time each for itself; QEMU's all have the host's count, and reading another clock
        # takes five times as long.
        return ["no5lvl", "pmtmr=0x608", "tsc=reliable"]

    def processors(self, count: int) -> str:
        # Without ACPI it goes by the BIOS's older table, which has one processor of each socket.
        return f"{count},sockets={count}"

    @property
    def make_words(self) -> list[str]:
        return ["LLVM=1"]

    @property
    def rust_flags(self) -> list[str]:
        return KCSAN_FLAGS if settings(self.fragment).get("CONFIG_KCSAN") == "y" else []


def _slim(obj: Path) -> None:
    """Drop the kernel's own objects, which no module needs, from a build directory."""
    for part in ("vmlinux.o", "vmlinux.a", "vmlinux.unstripped"):
        (obj / part).unlink(missing_ok=True)
    for file in [*obj.rglob("*.o"), *obj.rglob("*.a"), *obj.rglob("*.ko")]:
        if file.relative_to(obj).parts[0] not in ("scripts", "tools", "rust"):
            file.unlink()


def settings(text: str) -> dict[str, str]:
    """The settings of a configuration; one that it clears, in either way of writing it, is `n`."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"(CONFIG_\w+)=(.*)", line.strip()):
            found[match[1]] = match[2]
        elif match := re.fullmatch(r"# (CONFIG_\w+) is not set", line.strip()):
            found[match[1]] = "n"
    return found


def merge(base: str, fragment: str) -> str:
    """A configuration with the settings of a fragment in the place of its own."""
    merged = settings(base) | settings(fragment)
    return "".join(f"{name}={value}\n" for name, value in merged.items())


def lost(config: str, fragment: str) -> list[str]:
    """The settings of a fragment that a configuration does not hold."""
    have = settings(config)
    return [f"{name}={value}" for name, value in settings(fragment).items() if have.get(name, "n") != value]


def the_kernel(name: str) -> DebugKernel:
    stock = kernel.stock()
    return DebugKernel(f"{stock.upstream}-ferrule-{name}", stock.version, name)
