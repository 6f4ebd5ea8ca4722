# SPDX-License-Identifier: GPL-2.0
"""ferrule against rdma_rxe with both ends in one guest, for `make bench`."""

from nvme_ways import NvmeReads
from scenario import KIB, LIMITS, MIB, Measure, Scenario
from ways import CpuTime, IdleQueues, Limits, OneProcessor, Perftest, QueueMemory, Rate, SystemCalls, Way

MEASURES = {
    "send_lat": Measure("SEND latency, 10 B", "us"),
    "send_lat_one": Measure("SEND latency, 10 B, both ends on one processor", "us"),
    "write_lat": Measure("WRITE latency, 8 B", "us"),
    "read_lat": Measure("READ latency, 8 B", "us"),
    "atomic_lat": Measure("fetch-and-add latency", "us"),
    "write_bw": Measure("WRITE bandwidth", "MiB/s", "bytes", False),
    "read_bw": Measure("READ bandwidth", "MiB/s", "bytes", False),
    "send_bw": Measure("SEND bandwidth", "MiB/s", "bytes", False),
    "write_rate": Measure("WRITE rate, 8 B", "k/s", "", False),
    "write_rate_list": Measure("WRITE rate, 8 B, lists of 16", "k/s", "", False),
    "nvme_4k": Measure("NVMe over RDMA, reads of 4 KiB one by one", "k/s", "", False),
    "nvme_1m": Measure("NVMe over RDMA, reads of 1 MiB one by one", "MiB/s", "", False),
    "calls_send_lat": Measure("system calls, SEND latency 10 B", "/message"),
    "calls_write_lat": Measure("system calls, WRITE latency 8 B", "/message"),
    "calls_read_lat": Measure("system calls, READ latency 8 B", "/message"),
    "calls_atomic_lat": Measure("system calls, fetch-and-add latency", "/message"),
    "calls_write_bw": Measure("system calls, WRITE bandwidth 64 KiB", "/message"),
    "calls_read_bw": Measure("system calls, READ bandwidth 64 KiB", "/message"),
    "calls_send_bw": Measure("system calls, SEND bandwidth 64 KiB", "/message"),
    "calls_write_rate": Measure("system calls, WRITE rate 8 B", "/message"),
    "cpu_send_lat": Measure("CPU time, SEND latency 10 B", "us/message"),
    "cpu_write_bw": Measure("CPU time, WRITE bandwidth 64 KiB", "us/message"),
    "cpu_send_bw": Measure("CPU time, SEND bandwidth 64 KiB", "us/message"),
    "cpu_write_rate": Measure("CPU time, WRITE rate 8 B", "us/message"),
    "idle_time": Measure("WRITE 8 B beside 10,000 idle QPs", "us"),
    "idle_slots": Measure("QP slots looked at a message", ""),
    "idle_contexts": Measure("contexts looked at a message", ""),
    "qp_memory": Measure("kernel memory of an idle QP", "KiB"),
    **LIMITS,
}

CURVE = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
CURVE_ROUNDS = 2


def _count(size: int) -> int:
    """Messages of a size that rdma_rxe sends in a good half second."""
    return max(16, min(16000, 96 * MIB // size))


def _bandwidth(measure: str, program: str) -> tuple[Way, ...]:
    # Sizes for which there is a target are measured in every round.
    often = (64 * KIB, MIB)
    return tuple(Perftest(measure=measure, program=program, size=size, count=_count(size), x=size,
                          **({} if size in often else {"rounds": CURVE_ROUNDS})) for size in CURVE)


SCENARIO = Scenario(
    about="both ends in one guest",
    lab=("--smp", "2", "--mem", "2048"),
    measures=MEASURES,
    drawn=("send_lat", "send_lat_one", "write_lat", "read_lat", "atomic_lat", "write_bw", "read_bw", "send_bw", "write_rate",
           "write_rate_list", "nvme_4k", "nvme_1m", "cpu_send_lat", "cpu_write_bw", "cpu_write_rate", "idle_time", "qp_memory"),
    ways=(
        Limits(),
        Perftest(measure="send_lat", program="ib_send_lat", size=10, count=4000),
        OneProcessor(measure="send_lat_one", program="ib_send_lat", size=10, count=500),
        Perftest(measure="write_lat", program="ib_write_lat", size=8, count=4000),
        Perftest(measure="read_lat", program="ib_read_lat", size=8, count=8000),
        Perftest(measure="atomic_lat", program="ib_atomic_lat", size=8, count=8000),
        Rate(measure="write_rate", program="ib_write_bw", size=8, count=16000),
        Rate(measure="write_rate_list", program="ib_write_bw", size=8, count=16000, options=("--post_list", "16")),
        *_bandwidth("write_bw", "ib_write_bw"),
        *_bandwidth("read_bw", "ib_read_bw"),
        *_bandwidth("send_bw", "ib_send_bw"),
        NvmeReads(measure="nvme_4k", size=4 * KIB, count=2000),
        NvmeReads(measure="nvme_1m", size=MIB, count=64, in_bytes=True),
        SystemCalls(measure="calls_send_lat", program="ib_send_lat", size=10, count=500),
        SystemCalls(measure="calls_write_lat", program="ib_write_lat", size=8, count=500),
        SystemCalls(measure="calls_read_lat", program="ib_read_lat", size=8, count=500),
        SystemCalls(measure="calls_atomic_lat", program="ib_atomic_lat", size=8, count=500),
        SystemCalls(measure="calls_write_bw", program="ib_write_bw", size=64 * KIB, count=500),
        SystemCalls(measure="calls_read_bw", program="ib_read_bw", size=64 * KIB, count=500),
        SystemCalls(measure="calls_send_bw", program="ib_send_bw", size=64 * KIB, count=500),
        # So many that a second of work is between the two runs: until the engine's worker has a processor
        # of its own, hundreds of kicks come, more in one run than in another.
        SystemCalls(measure="calls_write_rate", program="ib_write_bw", size=8, count=20000),
        CpuTime(measure="cpu_send_lat", program="ib_send_lat", size=10, count=2000),
        CpuTime(measure="cpu_write_bw", program="ib_write_bw", size=64 * KIB, count=500),
        CpuTime(measure="cpu_send_bw", program="ib_send_bw", size=64 * KIB, count=500),
        CpuTime(measure="cpu_write_rate", program="ib_write_bw", size=8, count=8000),
        QueueMemory(),
        IdleQueues(),
    ))
