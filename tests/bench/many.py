# SPDX-License-Identifier: GPL-2.0
"""Several pairs of programs, threads of one, or kernel users, at once on one device, both ends in one guest, for
`make bench`."""

from scenario import KIB, LIMITS, Measure, Scenario
from ways import KernelUsers, Limits, Pairs, PairsRate, Threads

NUMBERS = (1, 2, 4, 8)

MEASURES = {
    "many_64k": Measure("WRITE bandwidth of all, 64 KiB", "MiB/s", "pairs", False),
    "many_4k": Measure("WRITE bandwidth of all, 4 KiB", "MiB/s", "pairs", False),
    "many_8": Measure("WRITE rate of all, 8 B", "k/s", "pairs", False),
    "many_send_4k": Measure("SEND bandwidth of all, 4 KiB", "MiB/s", "pairs", False),
    "many_threads_64k": Measure("WRITE bandwidth of all threads, 64 KiB", "MiB/s", "threads", False),
    "many_threads_4k": Measure("WRITE bandwidth of all threads, 4 KiB", "MiB/s", "threads", False),
    "many_threads_8": Measure("WRITE rate of all threads, 8 B", "k/s", "threads", False),
    "many_kernel_64k": Measure("WRITE bandwidth of all kernel users, 64 KiB", "MiB/s", "users", False),
    "many_kernel_4k": Measure("WRITE bandwidth of all kernel users, 4 KiB", "MiB/s", "users", False),
    **LIMITS,
}

SCENARIO = Scenario(
    about="several pairs of programs at once in one guest",
    lab=("--smp", "2", "--mem", "2048"),
    measures=MEASURES,
    drawn=tuple(name for name in MEASURES if name not in LIMITS),
    ways=(
        Limits(),
        *(Pairs(measure="many_64k", program="ib_write_bw", size=64 * KIB, pairs=pairs, x=pairs) for pairs in NUMBERS),
        *(Pairs(measure="many_4k", program="ib_write_bw", size=4 * KIB, pairs=pairs, x=pairs) for pairs in NUMBERS),
        *(PairsRate(measure="many_8", program="ib_write_bw", size=8, pairs=pairs, x=pairs) for pairs in NUMBERS),
        # Both ends of a SEND poll, so there are twice as many programs that want a processor.
        *(Pairs(measure="many_send_4k", program="ib_send_bw", size=4 * KIB, pairs=pairs, x=pairs) for pairs in NUMBERS),
        *(Threads(measure=f"many_threads_{name}", size=size, threads=threads, x=threads)
          for name, size in (("64k", 64 * KIB), ("4k", 4 * KIB), ("8", 8)) for threads in (1, 2, 4)),
        *(KernelUsers(measure="many_kernel_64k", size=64 * KIB, users=users, x=users) for users in NUMBERS),
        *(KernelUsers(measure="many_kernel_4k", size=4 * KIB, users=users, x=users) for users in NUMBERS),
    ))
