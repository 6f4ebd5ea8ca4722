# SPDX-License-Identifier: GPL-2.0
"""How things are measured: each way of measuring is a dataclass whose run() is called in the guest.

The host reads the same objects, to know what will be measured.
"""

import concurrent.futures
import contextlib
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Iterator, NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "guest"))

from guestlib import CLOCK_UNKNOWN, Failure, check, gid_index, must, pair, read, run  # noqa: E402

PROGRAMS = "/ferrule/build/tests"
ALWAYS = 1 << 30

# Iterations are numbered for rdma_rxe to take a good half second. ferrule does as many times more.
MORE = {"ferrule": 8}


class Figure(NamedTuple):
    """One number that was measured."""

    measure: str
    value: float
    series: str = ""
    x: int | None = None


class Late(Failure):
    """It took too long, or has no figure, as happens to perftest at times: another try may help."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """A program that is not done in time is Late."""
    try:
        yield
    except Failure as failure:
        if "not done within" in str(failure):
            raise Late(str(failure)) from None
        raise


@dataclass(frozen=True, kw_only=True)
class Way:
    """The parts that all ways of measuring have."""

    measure: str            # whose figures these are
    rounds: int = ALWAYS    # in so many rounds, and not in the later ones
    series: str = ""
    x: int | None = None

    # The devices that are measured, in turn, or the guest itself, without a device.
    drivers = ("ferrule", "rxe")

    def run(self, driver: str) -> Iterator[Figure]:
        raise NotImplementedError

    def figure(self, value: float, series: str = "") -> Figure:
        return Figure(self.measure, value, series or self.series, self.x)


@dataclass(frozen=True, kw_only=True)
class Limits(Way):
    """The limits of the guest itself: tests/bench/limits.c."""

    measure: str = "limits"
    drivers = ("guest",)

    def run(self, driver: str) -> Iterator[Figure]:
        for line in must(f"{PROGRAMS}/limits", seconds=60).splitlines():
            name, value, _ = line.split()
            yield Figure(name, float(value))


# perftest

@dataclass(frozen=True, kw_only=True)
class Perftest(Way):
    """A figure of perftest's: half the round trip (of READ and atomics the whole) in us, MiB/s, or messages a second."""

    program: str
    size: int               # bytes
    count: int              # iterations, for rdma_rxe
    more: int = MORE["ferrule"]     # so many times as many for ferrule
    options: tuple = ()
    slow: bool = False      # for ferrule, too: as many iterations

    def iterations(self, driver: str) -> int:
        return self.count * (self.more if driver == "ferrule" and not self.slow else 1)

    def command(self, count: int) -> list:
        """The program with the options that both ends have."""
        size = [] if "atomic" in self.program else ["-s", self.size]
        return [self.program, "-n", count, "-F", *self.options, *size]

    def pair(self, driver: str, count: int, seconds: int = 25):
        """Run server and client, which have to succeed; returns their results."""
        device = f"{driver}0"
        command = [*self.command(count), "-d", device, "-x", gid_index(device)]
        with in_time():
            return pair(command, command, seconds)

    def output(self, driver: str, count: int) -> str:
        """Run server and client, which have to succeed; returns what the client printed."""
        _, client = self.pair(driver, count)
        return client.output

    def run(self, driver: str) -> Iterator[Figure]:
        yield self.figure(self.told(self.output(driver, self.iterations(driver))))

    def told(self, output: str) -> float:
        """The figure in what the client printed."""
        if CLOCK_UNKNOWN in output:
            raise Late(f"perftest did not learn the rate of the processor's clock:\n{output}")
        for line in output.splitlines():
            words = line.split()
            if words[:1] == [str(self.size)] and len(words) > 4:
                return self.value(words)
        raise Failure(f"no row of results:\n{output}")

    def value(self, words: list[str]) -> float:
        """The figure in a row of results."""
        # Latency: size, iterations, t_min, t_max, t_typical, …
        # Bandwidth: size, iterations, peak, average in MiB/s, and millions of messages a second. Of small messages the
        # rate has more digits, of large ones the average.
        if self.program.endswith("_lat"):
            return float(words[4])
        return float(words[4]) * 1e6 * self.size / (1 << 20) if self.size < 4096 else float(words[3])

    @property
    def senders(self) -> int:
        """How many of the two processes send messages."""
        return 2 if self.program in ("ib_send_lat", "ib_write_lat") else 1


@dataclass(frozen=True, kw_only=True)
class Rate(Perftest):
    """The same, in thousands of messages a second."""

    def value(self, words: list[str]) -> float:
        return float(words[4]) * 1000


@dataclass(frozen=True, kw_only=True)
class OneProcessor(Perftest):
    """A latency of perftest's in us, with both ends on one processor."""

    def command(self, count: int) -> list:
        return ["taskset", "-c", 0, *super().command(count)]

    def value(self, words: list[str]) -> float:
        # The average, since a message that waits for a time slice is not typical.
        return float(words[5])


@dataclass(frozen=True, kw_only=True)
class Pairs(Perftest):
    """The sum of so many pairs of programs at once, each with a connection of its own. All of them run for the same time,
    of which perftest counts the middle."""

    pairs: int
    count: int = 0
    SECONDS = 4

    def command(self, count: int) -> list:
        return [self.program, "-D", self.SECONDS, "-F", *self.options, "-s", self.size]

    def run(self, driver: str) -> Iterator[Figure]:
        with concurrent.futures.ThreadPoolExecutor(self.pairs) as pool:
            outputs = pool.map(lambda _: self.output(driver, 0), range(self.pairs))
            yield self.figure(sum(map(self.told, outputs)))


@dataclass(frozen=True, kw_only=True)
class PairsRate(Pairs, Rate):
    """The same, in thousands of messages a second."""


@dataclass(frozen=True, kw_only=True)
class KernelUsers(Way):
    """The sum of so many kernel users at once (tests/kernel_user): threads that keep 16 RDMA WRITEs outstanding and sleep
    until one has ended. In MiB/s."""

    size: int               # bytes
    users: int
    SECONDS = 2

    def run(self, driver: str) -> Iterator[Figure]:
        must("/run/lab/load", "/ferrule/module/ferrule_user.ko", f"device={driver}0", f"streams={self.users}",
             f"bytes={self.size}", f"ms={self.SECONDS * 1000}", seconds=30)
        must("rmmod", "ferrule_user")
        told = re.findall(r"ferrule_user: (\d+) messages", must("dmesg"))
        check(bool(told), "the kernel user tells no number of messages")
        yield self.figure(int(told[-1]) * self.size / self.SECONDS / (1 << 20))


@dataclass(frozen=True, kw_only=True)
class Threads(Way):
    """The sum of so many threads of one program (tests/bench/writers.c). In MiB/s, or of 8 bytes in thousands a second."""

    size: int               # bytes
    threads: int
    SECONDS = 2

    def run(self, driver: str) -> Iterator[Figure]:
        rate = float(must(f"{PROGRAMS}/writers", f"{driver}0", self.threads, self.size, self.SECONDS, seconds=30))
        yield self.figure(rate / 1000 if self.size == 8 else rate * self.size / (1 << 20))


@dataclass(frozen=True, kw_only=True)
class PerMessage(Perftest):
    """The cost of a message: the difference of a short and a long run, so that beginning and end do not count.

    The figure is of both processes together; `client` and `server`, and what else is told, are series of their own
    where this is none itself.
    """

    rounds: int = 1
    LONGER = 4

    def observe(self, driver: str, count: int) -> dict[str, float]:
        """The totals of one run."""
        raise NotImplementedError

    def run(self, driver: str) -> Iterator[Figure]:
        count = self.iterations(driver)
        short, long = (self.observe(driver, number) for number in (count, count * self.LONGER))
        messages = count * (self.LONGER - 1) * self.senders
        each = {name: (long[name] - short[name]) / messages for name in long}
        yield self.figure(each["client"] + each["server"])
        if not self.series:
            for name, value in each.items():
                yield self.figure(value, name)


@dataclass(frozen=True, kw_only=True)
class SystemCalls(PerMessage):
    """System calls a message, counted by a histogram of the kernel's tracing: no process is stopped for it.

    sched_yield(2) does not count. It does nothing for a message: a program that waits calls it for others.
    """

    EVENT = "/sys/kernel/tracing/events/raw_syscalls/sys_enter"
    SCHED_YIELD = {"x86_64": 24, "aarch64": 124}[platform.machine()]
    HISTOGRAM = f"hist:keys=common_pid:size=8192 if id != {SCHED_YIELD}"

    def observe(self, driver: str, count: int) -> dict[str, float]:
        with open(f"{self.EVENT}/trigger", "w") as file:
            file.write(self.HISTOGRAM)
        try:
            server, client = self.pair(driver, count)
            text = read(f"{self.EVENT}/hist")
        finally:
            with open(f"{self.EVENT}/trigger", "w") as file:
                file.write("!" + self.HISTOGRAM)
        return {"client": self.calls(text, client.pid), "server": self.calls(text, server.pid)}

    @staticmethod
    def calls(text: str, pid: int) -> int:
        for line in text.splitlines():
            # { common_pid:        183 } hitcount:        109
            words = line.split()
            if words[:2] == ["{", "common_pid:"] and words[2] == str(pid):
                return int(words[5])
        raise Failure(f"the histogram has no process {pid}:\n{text}")


@dataclass(frozen=True, kw_only=True)
class CpuTime(PerMessage):
    """Microseconds of processor time a message: of the processes, and what of it they were in the kernel, where they run
    the engine; and beside them of all kernel threads (the engine's worker among them) and of softirqs (which are also
    part of what they interrupted)."""

    rounds: int = 2

    def observe(self, driver: str, count: int) -> dict[str, float]:
        threads, softirq = self.kernel_threads(), self.softirqs()
        server, client = self.pair(driver, count)
        return {"client": (client.usage.ru_utime + client.usage.ru_stime) * 1e6,
                "server": (server.usage.ru_utime + server.usage.ru_stime) * 1e6,
                "of both in the kernel": (client.usage.ru_stime + server.usage.ru_stime) * 1e6,
                "kernel threads": self.kernel_threads() - threads,
                "softirq": self.softirqs() - softirq}

    @staticmethod
    def kernel_threads() -> float:
        """Microseconds that the kernel threads of now have run."""
        total = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                # A thread may end meanwhile.
                with contextlib.suppress(OSError):
                    # Behind the name, which may have spaces: state, then the parent, which is kthreadd.
                    if read(f"/proc/{name}/stat").rpartition(")")[2].split()[1] == "2":
                        total += int(read(f"/proc/{name}/schedstat").split()[0])
        return total / 1000

    @staticmethod
    def softirqs() -> float:
        ticks = int(read("/proc/stat").split("\n", 1)[0].split()[7])
        return ticks * 1e6 / os.sysconf("SC_CLK_TCK")


# tests/bench/load.c

class Load:
    """A process that makes loads which perftest cannot."""

    def __init__(self, driver: str):
        self.process = subprocess.Popen([f"{PROGRAMS}/load", f"{driver}0"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def start(self, command: str) -> None:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self, seconds: int = 60) -> float:
        limit = threading.Timer(seconds, self.process.kill)
        limit.start()
        line = self.process.stdout.readline()
        limit.cancel()
        try:
            return float(line)
        except ValueError:
            raise Failure(f"tests/bench/load.c: {line.strip() or f'no answer within {seconds} s'}") from None

    def ask(self, command: str, seconds: int = 60) -> float:
        self.start(command)
        return self.answer(seconds)


@dataclass(frozen=True, kw_only=True)
class Writes(Way):
    """Thousands of WRITEs a second."""

    command: str            # of load.c, less its count
    count: int

    def run(self, driver: str) -> Iterator[Figure]:
        with Load(driver) as load:
            yield self.figure(1000 / load.ask(f"{self.command} count={self.count * MORE.get(driver, 1)}"))


@dataclass(frozen=True, kw_only=True)
class Registration(Way):
    """Microseconds of registering and deregistering a memory region."""

    size: int
    count: int

    def run(self, driver: str) -> Iterator[Figure]:
        with Load(driver) as load:
            yield self.figure(load.ask(f"register size={self.size} count={self.count}"))


def engine_counters(driver: str) -> dict[str, int]:
    """The counters of a device's engine; none if there is no engine."""
    counters = {}
    with contextlib.suppress(OSError), open(f"/sys/kernel/debug/{driver}/{driver}0/engine") as file:
        for line in file:
            words = line.replace(":", " ").replace(",", " ").split()
            if len(words) == 2 and words[1].isdigit():
                counters[words[0]] = int(words[1])
    return counters


@dataclass(frozen=True, kw_only=True)
class IdleQueues(Way):
    """An active queue pair alone, beside idle ones of its process, and beside as many of other processes.

    Beside the time of a WRITE it tells, where there is an engine, the slots of queue pairs and the contexts that the
    engine looked at for each message.
    """

    measure: str = "idle_time"
    rounds: int = 1
    queues: int = 10000
    others: int = 100
    count: int = 2000
    # Nothing is held against rdma_rxe here, which takes minutes to make and destroy that many.
    drivers = ("ferrule",)
    # A second and a half of them: the machine below has slow moments of half a second.
    SAMPLES = 25

    def run(self, driver: str) -> Iterator[Figure]:
        with Load(driver) as active:
            self.sample(active, driver)
            alone = [self.sample(active, driver)]
            active.ask(f"idle count={self.queues}", 180)
            own = self.sample(active, driver)
            active.ask("drop", 180)
            alone.append(self.sample(active, driver))
            with contextlib.ExitStack() as stack:
                others = [stack.enter_context(Load(driver)) for _ in range(self.others)]
                for other in others:
                    other.start(f"idle count={self.queues // self.others}")
                for other in others:
                    other.answer(180)
                beside = self.sample(active, driver)
            alone.append(self.sample(active, driver))
        # A drift changes "alone" as much: it was measured before, between and after.
        first = {name: statistics.mean(one[name] for one in alone) for name in alone[0]}
        for series, sample in (("alone", first), ("own process", own), ("others", beside)):
            for name, value in sample.items():
                yield Figure(f"idle_{name}", value, series)

    def sample(self, active: Load, driver: str) -> dict[str, float]:
        count = self.count * MORE.get(driver, 1)
        before = engine_counters(driver)
        times = [active.ask(f"write count={count}") for _ in range(self.SAMPLES)]
        after = engine_counters(driver)
        told = {"time": statistics.median(times)}
        if before:
            done = {name: (after[name] - before[name]) / (count * self.SAMPLES) for name in before}
            check(0.99 < done["messages"] < 1.01, f"the engine counted {done['messages']} messages for each")
            told["slots"] = done["doorbells"] + done["turns"] + done["timers"]
            told["contexts"] = done["contexts"]
        return told


@dataclass(frozen=True, kw_only=True)
class Lateness(Way):
    """Microseconds by which a thread with real-time priority gets its processor later beside the device than without, in
    99 of 100 times: tests/guest/late.c."""

    case: str
    # The clock counts instructions, so another round tells the same.
    rounds: int = 1
    drivers = ("ferrule",)

    def run(self, driver: str) -> Iterator[Figure]:
        # It fails where that is too much, and tells the figure all the same.
        _, output = run(f"{PROGRAMS}/late", "--only", self.case, f"{driver}0", seconds=600)
        yield self.figure(self.told(output))

    @staticmethod
    def told(output: str) -> float:
        """The figure among what the program has printed."""
        for line in output.splitlines():
            words = line.split()
            if words[:3] == ["#", "later", "by"] and words[4:] == ["us"]:
                return float(words[3])
        raise Failure(f"no figure:\n{output}")


@dataclass(frozen=True, kw_only=True)
class QueueMemory(Way):
    """KiB of kernel memory that an idle queue pair of depth 16 takes, from what a thousand take."""

    measure: str = "qp_memory"
    rounds: int = 1
    queues: int = 1000

    def run(self, driver: str) -> Iterator[Figure]:
        with Load(driver) as load:
            load.ask("idle count=100")
            before = self.memory()
            load.ask(f"idle count={self.queues}")
            after = self.memory()
        each = {name: (after[name] - before[name]) / self.queues for name in after}
        yield self.figure(each.pop("all"))
        for name, value in each.items():
            yield self.figure(value, name)

    @staticmethod
    def memory() -> dict[str, int]:
        """KiB by use. All is what is not free, less what belongs to programs and to cached files."""
        info = {line.split(":")[0]: int(line.split()[1]) for line in read("/proc/meminfo").splitlines()}
        # Free pages that each processor keeps at hand do not count as free: "count: 123" below "pagesets".
        at_hand = sum(int(line.split()[1]) for line in read("/proc/zoneinfo").splitlines()
                      if line.split()[:1] == ["count:"])
        free = info["MemFree"] + at_hand * os.sysconf("SC_PAGE_SIZE") // 1024
        return {"all": info["MemTotal"] - free - info["AnonPages"] - info["Cached"] - info["Buffers"],
                "slab": info["Slab"], "vmalloc": info["VmallocUsed"], "page tables": info["PageTables"]}
