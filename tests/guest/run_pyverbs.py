#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs modules of rdma-core's own tests (pyverbs) on a device, and judges the skips by a list.

usage: run_pyverbs.py [--skips FILE] [--beside FILE] [--seconds N] DEVICE [MODULE...]

Without a name, it is all modules that are not for one vendor's devices, so none that a newer rdma-core adds is left out.
Prints TAP. A skip that is in the list is a skip; one that is not has failed, and so has an entry of the list whose
test was not skipped, or is not there any more. The list has a line for each expected skip: module.Class.method and
the reason, behind a '#'; one whose reason begins with "nic:" is for the PCI function alone, and with "65:" for the
tests of rdma-core 65. Each module runs in a process of its own, which tells each result before it goes on: if it crashes
or hangs, it is known where.

At the end comes a table of what passed, failed and was skipped, before any judgement, beside that of another device:
a file with a line for each module, which a run on that device has printed.
"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import time

from guestlib import huge_pages

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.environ.get("RDMA_CORE_TESTS", "/usr/lib/rdma-core-tests")
GPU = os.path.join(HERE, "../../build/tests/gpu.so")
VENDORS = ("test_efa", "test_mlx5")
# Some tests do not ask whether the device has what they need: they fail by its errno value.
NOT_SUPPORTED = "Errno: 95, Operation not supported"


def run_module(device, module, pipe):
    """In the process for one module: runs it as rdma-core's run_tests.py does, and tells the results in the pipe."""
    import importlib
    import multiprocessing
    import types
    import unittest

    tests = os.path.join(TESTS, "tests")
    # The tests' processes go on with objects of their parents, as Python's did before 3.14.
    multiprocessing.set_start_method("fork")
    sys.path[0] = tests
    os.chdir(TESTS)
    # The package's own __init__ loads every module there is, and with them what is not installed.
    package = types.ModuleType("tests")
    package.__path__ = [tests]
    sys.modules["tests"] = package
    sys.argv = ["run_tests.py", "--dev", device]
    from args_parser import parser
    parser.parse_args()

    def tell(kind, test, more=""):
        name = test.id() if hasattr(test, "id") else str(test)
        name = name.removeprefix("tests.")
        more = " ".join(str(more).split())
        os.write(pipe, f"{kind}\t{name}\t{more}\n".encode())

    class Results(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            tell("begin", test)

        def addSuccess(self, test):
            tell("pass", test)

        def addSkip(self, test, reason):
            tell("skip", test, reason)

        def addFailure(self, test, err):
            super().addFailure(test, err)
            self.explain(test)

        def addError(self, test, err):
            super().addError(test, err)
            self.explain(test)

        def addExpectedFailure(self, test, err):
            tell("pass", test)

        def addUnexpectedSuccess(self, test):
            tell("fail", test, "an unexpected success")

        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err:
                self.explain(test)

        def explain(self, test):
            text = (self.failures + self.errors)[-1][1] if self.failures or self.errors else ""
            for line in text.splitlines()[-12:]:
                print(f"# {line}", flush=True)
            tell("fail", test, text.strip().splitlines()[-1] if text.strip() else "")

    imported = importlib.import_module(f"tests.{module}")
    if module == "test_mr":
        mend_dma_bufs(imported)
    suite = unittest.defaultTestLoader.loadTestsFromModule(imported)
    suite.run(Results())
    tell("end", module)


def mend_dma_bufs(tests):
    """pyverbs 56.1 cannot register a buffer: for that it calls a method of DmaBuf that Python does not see. The method only
    keeps account of regions, for one who closes the buffer before them."""
    from pyverbs.dmabuf import DmaBuf
    from pyverbs.mr import DmaBufMR

    class Buffer(DmaBuf):
        def add_ref(self, region):
            pass

    class Region(DmaBufMR):
        def __init__(self, pd, length, access, offset=0, gpu=0, gtt=0):
            super().__init__(pd, length, access, Buffer(length + offset, gpu, gtt), offset)

    tests.DmaBufMR = Region


def general_modules():
    """The modules that are not for one vendor's devices."""
    names = (os.path.basename(path).removesuffix(".py") for path in glob.glob(os.path.join(TESTS, "tests/test_*.py")))
    return sorted(name for name in names if not name.startswith(VENDORS))


def read_skips(path, modules, device):
    """The list, as far as these modules and this device go: test → reason."""
    on_function = os.path.exists(f"/sys/class/infiniband/{device}/device")
    is_65 = bool(glob.glob("/usr/lib/*/libibverbs/*-rdmav65.so"))
    skips = {}
    with open(path) as file:
        for number, line in enumerate(file, 1):
            entry, _, reason = line.partition("#")
            entry, reason = entry.strip(), reason.strip()
            if not entry:
                continue
            if not reason:
                sys.exit(f"{path}:{number}: {entry} has no reason")
            if entry in skips:
                sys.exit(f"{path}:{number}: {entry} stands there twice")
            if (reason.startswith("nic:") and not on_function) or (reason.startswith("65:") and not is_65):
                continue
            if entry.split(".")[0] in modules:
                skips[entry] = reason
    return skips


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = False
        # Of each module what passed, failed and was skipped.
        self.tally = {}

    def note(self, name, kind, more=""):
        counts = self.tally.setdefault(name.split(".")[0], [0, 0, 0])
        if kind == "fail" and NOT_SUPPORTED in more:
            kind = "skip"
        counts[("pass", "fail", "skip").index(kind)] += 1

    def tell(self, good, name, more=""):
        self.count += 1
        self.failed |= not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}{more}", flush=True)


def judge(tap, skips, seen, kind, name, more):
    """One result of one test."""
    seen.add(name)
    tap.note(name, kind, more)
    if kind == "pass" and name in skips:
        print(f"# stale entry in the list of skips: {name} passes")
        tap.tell(False, name)
    elif kind == "pass":
        tap.tell(True, name)
    elif name in skips and (kind == "skip" or NOT_SUPPORTED in more):
        tap.tell(True, name, f" # SKIP {skips[name]}")
    elif kind == "skip":
        print(f"# a skip that is not in the list: {more}")
        tap.tell(False, name)
    else:
        print(f"# {more}")
        tap.tell(False, name)


def watch_module(tap, skips, device, module, seconds):
    """Run a module in its own process and judge what it tells."""
    read_end, write_end = os.pipe()
    # Buffers of a GPU are those of a stand-in.
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--in", str(write_end), device, module],
                               pass_fds=[write_end], stdin=subprocess.DEVNULL, start_new_session=True,
                               env={**os.environ, "LD_PRELOAD": GPU} if module == "test_mr" else None)
    os.close(write_end)

    def give_up(_signal, _frame):
        os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    begin, current, ended, seen = time.monotonic(), None, False, set()
    with open(read_end, errors="replace") as results:
        for line in results:
            kind, name, more = line.rstrip("\n").split("\t", 2)
            if kind == "begin":
                current = name
            elif kind == "end":
                ended = True
            else:
                judge(tap, skips, seen, kind, name, more)
                current = None
    status = process.wait()
    signal.alarm(0)
    late = time.monotonic() - begin >= seconds
    # A child that a test left behind must not outlive its module.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not ended:
        print(f"# {module} " + ("was not done within its time" if late else f"ended with status {status}"))
        seen.add(current)
        tap.note(module, "fail")
        tap.tell(False, current or f"{module} (before its first test)")
    elif status:
        # All tests were told, and then the interpreter crashed.
        print(f"# {module} ended with status {status} after its last test")
        tap.tell(False, f"{module} (its end)")
    for name in sorted(set(skips) - seen):
        if name.split(".")[0] == module and ended:
            print(f"# stale entry in the list of skips: there is no {name}")
            tap.tell(False, name)


def read_tally(path):
    """The table of another device, and what its first line says of it."""
    with open(path) as file:
        lines = [line.strip() for line in file if line.strip()]
    words = [line.split() for line in lines if not line.startswith("#")]
    return lines[0].lstrip("# "), {word[0]: [int(number) for number in word[1:4]] for word in words}


def table(tally, device, path):
    """Lines for tests/run to show."""
    about, other = read_tally(path)
    rows = [(module, counts, other.get(module)) for module, counts in tally.items()]
    rows.append(("all", [sum(counts) for counts in zip(*tally.values())],
                 [sum(counts) for counts in zip(*(other[module] for module in tally if module in other))]))
    for module, counts, beside in [("passed, failed, skipped", [device], [about]), *rows]:
        mine, theirs = (" ".join(f"{count!s:>4}" for count in side or ["-"]) for side in (counts, beside))
        print(f"#| {module:24} {mine:16} {theirs}".rstrip(), flush=True)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--in":
        run_module(sys.argv[3], sys.argv[4], int(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--skips", default=os.path.join(HERE, "..", "pyverbs-skips.txt"))
    parser.add_argument("--beside", default=os.path.join(HERE, "..", "pyverbs-rxe.txt"))
    parser.add_argument("--seconds", type=int, default=120, help="time limit of a module")
    parser.add_argument("device")
    parser.add_argument("modules", nargs="*")
    options = parser.parse_args()
    modules = options.modules or general_modules()
    if not modules:
        sys.exit(f"run_pyverbs.py: rdma-core's tests are not in {TESTS}")
    slow = int(os.environ.get("TEST_SLOW", "1"))
    skips = read_skips(options.skips, modules, options.device)
    tap = Tap()
    # One for each of two ends, and as many to spare.
    with huge_pages(4):
        for module in modules:
            watch_module(tap, skips, options.device, module, options.seconds * slow)
    table(tap.tally, options.device, options.beside)
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
