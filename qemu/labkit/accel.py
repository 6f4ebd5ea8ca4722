# SPDX-License-Identifier: GPL-2.0
"""KVM or TCG: the accelerator that QEMU runs a guest's code with here, and the CPU model that goes with it."""

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from . import cache, image, kernel, tree
from .arch import AMD64, Arch
from .ui import Step

PROBE_SECONDS = 15

# TCG runs `rep movs` byte by byte: without these flags the guest's copies use loops that are four times as fast.
SLOW_UNDER_TCG = ("erms", "fsrm", "fsrs", "fzrm")


# Under TCG, one processor at a time, with a clock that goes by a nanosecond an instruction: the figures of a run are
# numbers of instructions, and the same on a busy machine.
COUNTING = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]


def choose(qemu: Path | None = None, target: Arch = AMD64) -> tuple[list[str], str]:
    """QEMU's words for the accelerator and the CPU; and for a person which it is and why. QEMU is that of the tree `qemu`,
    or of the build tree."""
    if target.crossed:
        counting = os.environ.get("FERRULE_ACCEL") == "icount"
        words = COUNTING if counting else ["-accel", "tcg,thread=multi"]
        return [*words, "-cpu", target.cpu], f"TCG (for {target.name})"
    qemu = qemu or tree.path()
    if os.environ.get("FERRULE_ACCEL") == "icount":
        return [*COUNTING, "-cpu", tcg_cpu(qemu)], "TCG (FERRULE_ACCEL=icount: a nanosecond is an instruction)"
    usable, why = kvm(qemu)
    if usable:
        return ["-accel", "kvm", "-cpu", "host"], "KVM"
    return ["-accel", "tcg,thread=multi", "-cpu", tcg_cpu(qemu)], f"TCG ({why})"


def kvm(qemu: Path) -> tuple[bool, str]:
    """Whether the stock kernel boots under KVM here, found out by a short boot; and why not."""
    if os.environ.get("FERRULE_ACCEL") in ("kvm", "tcg"):
        return os.environ["FERRULE_ACCEL"] == "kvm", "FERRULE_ACCEL=tcg"
    if not os.path.exists("/dev/kvm"):
        return False, "there is no /dev/kvm"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False, "/dev/kvm is closed to you; for speed: sudo usermod --append --groups kvm $USER"
    stock = kernel.stock()
    initramfs = image.initramfs(stock.image / "modules")

    def build(directory: Path, step: Step) -> None:
        log = directory / "console.log"
        log.touch()
        argv = ["qemu-system-x86_64", "-nodefaults", "-machine", "q35", "-accel", "kvm",
                "-cpu", "host", "-m", "512", "-display", "none", "-no-reboot", "-serial", "file:probe/console.log",
                "-kernel", "kernel.image/vmlinuz", "-initrd", "initramfs",
                "-append", "console=ttyS0 panic=-1 lab.probe"]
        binds = [(directory, "/probe"), (stock.image, "/kernel.image"), (initramfs, "/initramfs")]
        with step.log.open("ab") as out, suppress(subprocess.TimeoutExpired):
            subprocess.run(tree.command(argv, binds, root=qemu), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                           env=tree.environment(), timeout=PROBE_SECONDS)
        booted = "lab: booted" in log.read_text(errors="replace")
        (directory / "answer").write_text("yes" if booted else "no")

    inputs = {"host": platform.release(), "machine": platform.version(), "cpu": _cpu_name(), "kernel": stock.release,
              "qemu": qemu.parent.name}
    answer = cache.entry("kvm", inputs, f"trying KVM (at most {PROBE_SECONDS} s, once)", build) / "answer"
    return answer.read_text() == "yes", "/dev/kvm is there, but a stock kernel does not boot under it"


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""


def tcg_cpu(qemu: Path) -> str:
    """The CPU model under TCG: all that it can emulate, less what makes copies slow, as far as this QEMU knows it."""

    def build(directory: Path, _step: Step) -> None:
        listed = tree.output(["qemu-system-x86_64", "-cpu", "help"], root=qemu).split()
        (directory / "cpu").write_text(",".join(["max", *(f"-{flag}" for flag in SLOW_UNDER_TCG if flag in listed)]))

    inputs = {"qemu": qemu.parent.name, "flags": SLOW_UNDER_TCG}
    return (cache.entry("cpu", inputs, "asking QEMU for its CPU flags", build) / "cpu").read_text()
