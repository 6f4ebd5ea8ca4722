# SPDX-License-Identifier: GPL-2.0
"""How much of the stack each function of a module takes, and how much it may.

A kernel thread has 16 KiB of stack, on x86 and on arm64, and its users call the driver with most of it gone. The compilers
put values there that the source has in the heap, and say nothing: so what counts is read from the machine code.

The limits are the same for all of Debian's kernels. With PREEMPT_RT softirqs have a thread of their own, but what posts and
polls has as much below it as elsewhere. On arm64 the same functions take up to a tenth more, since registers are saved in
pairs and frames are aligned.
"""

import re
from collections import defaultdict

from .errors import BUILD_FAILED, LabError

# Bytes. The data path runs in softirqs, and in what posts and polls in the kernel, on top of whatever was interrupted.
LIMIT = 1024

# Functions beside the data path: they make objects, in process context, or tell of them.
SETUP_LIMIT = 2048
SETUP = [
    r"kernel_ext::boxed::fill::<",
    r"ferrule::verbs::new_device",
    r"<ferrule::soft::shared::Shared as ferrule::backend::Commands>::add_qp",
    r"<ferrule::soft::report::Report as .*>::write",
]

_FUNCTION = re.compile(r"^(?:[0-9a-f]+ )?<(.*)>:$")

# On x86, and on arm64. There a store may move the stack pointer first, and a step of the frame is shifted.
_PUSH = re.compile(r"\tpush\s|\tst[pr]\s.*\[sp, #-(\d+)\]!")
_FRAME = re.compile(r"\tsub\s+(?:\$0x([0-9a-f]+),%rsp|%\w+,%rsp|sp, sp, (?:#0x([0-9a-f]+)(, lsl #12)?|\w+))")
_HASH = re.compile(r"\[[0-9a-f]{16}\]")


def measure(disassembly: str) -> dict[str, float]:
    """The bytes of stack of each function in what `objdump --disassemble --demangle` prints; infinity if they vary."""
    frames: dict[str, float] = defaultdict(int)
    name = ""
    for line in disassembly.splitlines():
        if found := _FUNCTION.match(line):
            name = _HASH.sub("", found[1])
        elif found := _PUSH.search(line):
            frames[name] += int(found[1] or 8)
        elif found := _FRAME.search(line):
            # A large frame is made in steps.
            size = found[1] or found[2]
            frames[name] += int(size, 16) << (12 if found[3] else 0) if size else float("inf")
    return frames


def excesses(frames: dict[str, float]) -> list[str]:
    """A line for each function that takes more than it may, the greatest first."""
    lines = []
    for name, size in sorted(frames.items(), key=lambda item: -item[1]):
        is_setup = any(re.match(pattern, name) for pattern in SETUP)
        limit = SETUP_LIMIT if is_setup else LIMIT
        if size > limit:
            lines.append(f"{size} bytes of stack, and may have {limit}: {name}")
    return lines


def check(title: str, disassembly: str) -> None:
    """Raise LabError if a function takes more of the stack than it may, or if none was found at all."""
    frames = measure(disassembly)
    if not frames:
        raise LabError(f"{title}: no function's frame was found in the module", BUILD_FAILED)
    if lines := excesses(frames):
        raise LabError("\n".join([f"{title}: frames are too large (qemu/labkit/frames.py)", *lines]), BUILD_FAILED)
