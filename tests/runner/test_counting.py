# SPDX-License-Identifier: GPL-2.0
"""Tests of the runner: its counts, and that nothing passes by saying nothing."""

import shlex
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

from runner import again, guest, host, suite, table, usage
from runner.counting import READERS, Result
from runner.lanes import Lanes


def count(form: str, text: str, status: int = 0) -> Result:
    reader = READERS[form]("suite", "stock")
    for line in text.splitlines():
        reader.line(line)
    return reader.end(status)


def numbers(result: Result) -> tuple[int, int, int]:
    return result.passed, result.failed, result.skipped


class Tap(unittest.TestCase):
    def test_counts(self):
        result = count("tap", "ok 1 - a # 0.1 s\n# why\nnot ok 2 - b\nok 3 - c # SKIP no such thing\n1..3\n", 1)
        self.assertEqual(numbers(result), (1, 1, 1))
        self.assertEqual(result.reasons, {"no such thing": 1})
        self.assertEqual(result.failures, ["b"])

    def test_notes_are_shown_with_the_failure(self):
        reader = READERS["tap"]("suite", "stock")
        self.assertEqual(reader.line("# 1 is not 2"), [])
        self.assertEqual(reader.line("not ok 1 - a"), ["# 1 is not 2", "not ok 1 - a"])

    def test_tables_are_shown(self):
        reader = READERS["tap"]("suite", "stock")
        self.assertEqual(reader.line("#| of 3"), [" of 3"])
        self.assertEqual(reader.line("not ok 1 - a"), ["not ok 1 - a"])

    def test_no_plan_fails(self):
        self.assertEqual(numbers(count("tap", "ok 1 - a\n", 139)), (1, 1, 0))

    def test_wrong_plan_fails(self):
        self.assertEqual(numbers(count("tap", "1..2\nok 1 - a\n")), (1, 1, 0))

    def test_nothing_fails(self):
        self.assertEqual(count("tap", "1..0\n").failed, 1)
        self.assertEqual(count("tap", "").failed, 1)

    def test_status_fails(self):
        self.assertEqual(numbers(count("tap", "ok 1 - a\n1..1\n", 1)), (1, 1, 0))

    def test_bail_out_fails(self):
        self.assertGreater(count("tap", "1..1\nok 1 - a\nBail out! no device\n").failed, 0)

    def test_other_output_is_no_result(self):
        self.assertEqual(numbers(count("tap", "okay\nnot okay\nok 1 - a\n1..1\n")), (1, 0, 0))


class Unittest(unittest.TestCase):
    TEXT = """test_a (m.C.test_a) ... ok
test_b (m.C.test_b)
A doc string ... skipped 'no device'
test_c (m.C.test_c) ... FAIL

======================================================================
FAIL: test_c (m.C.test_c)
----------------------------------------------------------------------
Ran 3 tests in 0.1s

FAILED (failures=1, skipped=1)
"""

    def test_counts(self):
        result = count("unittest", self.TEXT, 1)
        self.assertEqual(numbers(result), (1, 1, 1))
        self.assertEqual(result.reasons, {"no device": 1})
        self.assertEqual(result.failures, ["test_c (m.C.test_c)"])

    def test_crash_fails(self):
        self.assertEqual(numbers(count("unittest", "test_a (m.C.test_a) ... ", 139)), (0, 1, 0))

    def test_crash_after_the_summary_fails(self):
        self.assertEqual(count("unittest", "Ran 1 test in 0.1s\n\nOK\n", 139).failed, 1)

    def test_nothing_fails(self):
        self.assertGreater(count("unittest", "Ran 0 tests in 0.0s\n\nNO TESTS RAN\n", 5).failed, 0)


class Cargo(unittest.TestCase):
    def test_counts(self):
        result = count("cargo", "test a ... ok\ntest b ... FAILED\ntest c ... ignored, slow\n"
                                "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n", 101)
        self.assertEqual(numbers(result), (1, 1, 1))
        self.assertEqual(result.reasons, {"slow": 1})

    def test_does_not_build(self):
        self.assertEqual(numbers(count("cargo", "error[E0308]: mismatched types\n", 101)), (0, 1, 0))


class Kernel(unittest.TestCase):
    """A report of a guest's kernel is laid to the suite that ran."""

    def boot(self, *consoles: str, expected: tuple[str, ...] = (), known: dict[str, str] = {}, status: int = 125,
             messages: list[str] = []):
        boot = guest.Boot([], "stock", False, "ferrule", None, lambda line: None, lambda result: None)
        boot.results = [Result("a", "stock", passed=1), Result("b", "stock", passed=1)]
        boot.expected, boot.known = expected, known
        boot.read_messages(messages)
        for console in consoles:
            with tempfile.NamedTemporaryFile("w", suffix=".log", delete=False) as file:
                file.write(console)
            boot.consoles.append(Path(file.name))
            self.addCleanup(boot.consoles[-1].unlink)
        boot.attribute_reports(status)
        return boot

    def test_attribution(self):
        boot = self.boot("[    1.0] ferrule-suite: begin a\n[    2.0] quiet\n[    3.0] ferrule-suite: begin b\n"
                         "[    4.0] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\n")
        self.assertEqual([result.failed for result in boot.results], [0, 1])
        self.assertEqual([result.broken for result in boot.results], [False, True])

    def test_quiet(self):
        boot = self.boot("[    1.0] ferrule-suite: begin a\n[    3.0] ferrule-suite: begin b\n")
        self.assertEqual([result.failed for result in boot.results], [0, 0])

    def test_each_node(self):
        boot = self.boot("[    1.0] ferrule-suite: begin b\n[    4.0] WARNING: a.c:1 at f+0x1/0x2\n",
                         "[    4.0] WARNING: a.c:1 at g+0x1/0x2\n[    4.0]  peer_code+0x1/0x2\n[    5.0] BUG: x\n",
                         known={"peer_code": "its own"})
        self.assertEqual([result.failures for result in boot.results], [["the kernel reported (BUG): BUG: x"],
                         ["the kernel reported (WARNING): WARNING: a.c:1 at f+0x1/0x2"]])

    def test_a_fault_beside_the_guest(self):
        boot = self.boot(messages=["lab: ferrule-nic has panicked: thread 'switch' panicked at src/switch.rs:7:9:; the end of its log:\n"])
        self.assertEqual([result.failed for result in boot.results], [0, 1])
        self.assertIn("src/switch.rs:7:9", boot.results[1].failures[0])

    def test_the_log_may_be_in_any_directory(self):
        boot = guest.Boot([], "stock", False, "ferrule", None, lambda line: None, lambda result: None)
        boot.read_messages(["lab: 1 kernel report(s) on node 1; its whole log is /a cache/runs/1/node1.log\n"])
        self.assertEqual(boot.consoles, [Path("/a cache/runs/1/node1.log")])

    REPORTS = ("[    2.0] WARNING: possible recursive locking detected\n[    3.0] BUG: sleeping function called from x\n"
               "[    4.0] BUG: KASAN: slab-use-after-free in f+0x1/0x2\n")

    def test_expected_reports_pass(self):
        boot = self.boot(self.REPORTS, expected=("lockdep", "BUG", "KASAN"))
        self.assertEqual((boot.results[0].passed, boot.results[0].failed), (4, 0))

    def test_each_expected_report_has_to_come(self):
        boot = self.boot(self.REPORTS, expected=("lockdep", "kmemleak", "KASAN"))
        self.assertEqual(boot.results[0].failures, ["the kernel did not report (kmemleak)",
                         "the kernel reported (BUG): BUG: sleeping function called from x"])
        self.assertEqual(self.boot(self.REPORTS, expected=("lockdep", "lockdep")).results[0].passed, 2)

    def test_a_kernel_that_sleeps_fails(self):
        boot = self.boot("[    1.0] quiet\n", expected=("lockdep",), status=0)
        self.assertEqual((boot.results[0].passed, boot.results[0].failed), (1, 2))


def make(name: str, backends=("soft",), **keys) -> suite.Suite:
    return suite.Suite(name=name, about="", format="exit", timeout=keys.pop("timeout", 1), rounds=0,
                       kernels=("stock",), backend=backends[0], backends=backends, only_long={},
                       leaks_only_long=keys.pop("leaks", ""),
                       **{"where": "guest", "command": "true", "device": "none", "boot": "shared", "alone": "", "options": (),
                          "reports": (), "known": {}, **keys})


class Again(unittest.TestCase):
    """A suite that failed beside others may pass alone, unless it is broken."""

    def candidates(self, results: list[Result], suites: list[suite.Suite]) -> list[str]:
        return [one.name for one in again.candidates(results, suites)]

    def test_what_is_run_again(self):
        suites = [make("a"), make("b"), make("c", boot="each"), make("d", where="host"), make("e")]
        results = [Result(one.name, "stock", failed=1) for one in suites[1:4]]
        self.assertEqual(self.candidates(results, suites), ["b"])
        results[0].broken = True
        self.assertEqual(self.candidates(results, suites), [])

    def test_many_failures_are_no_matter_of_time(self):
        suites = [make(name) for name in "abcd"]
        results = [Result(name, "stock", failed=1) for name in "abcd"]
        self.assertEqual(self.candidates(results, suites), [])
        self.assertEqual(self.candidates(results[:3], suites), ["a", "b", "c"])

    def test_the_second_run_counts_if_it_passes(self):
        first = Result("a", "stock", passed=1, failed=1, failures=["late"], seconds=2)
        settled = again.settle(first, Result("a", "stock", passed=2, seconds=1))
        self.assertEqual((*numbers(settled), settled.unsteady, settled.seconds), (2, 0, 0, ["late"], 3))

    def test_what_fails_twice_has_failed(self):
        first = Result("a", "stock", failed=1, failures=["late"])
        settled = again.settle(first, Result("a", "stock", failed=1, failures=["wrong"], broken=True))
        self.assertEqual((settled.failures, settled.failed, settled.unsteady, settled.broken),
                         (["late", "wrong (alone)"], 2, [], True))


class Boots(unittest.TestCase):
    def names(self, *suites: suite.Suite, jobs: int = 1) -> list[list[str]]:
        return [[one.name for one in boot] for boot in guest.boots(list(suites), jobs)]

    def test_a_boot_is_shared_where_it_can_be(self):
        self.assertEqual(self.names(make("a"), make("b"), make("c", device="ferrule"),
                                    make("d", boot="own")), [["a", "b"], ["c"], ["d"]])

    def test_backends_do_not_share_a_boot(self):
        both = make("c", ("soft", "nic"))
        self.assertEqual(self.names(make("a"), make("b", ("nic",)), both, both.on("nic")), [["a", "c"], ["b", "c.nic"]])

    def test_what_is_for_each_boot_comes_last_in_each(self):
        look = make("look", boot="each")
        self.assertEqual(self.names(look, make("a"), make("b", boot="own"),
                                    make("c", reports=("KASAN",))), [["a", "look"], ["b", "look"], ["c"]])
        self.assertEqual(self.names(look), [["look"]])

    def test_several_at_a_time_share_out_what_shares_a_boot(self):
        suites = [*(make(name) for name in "abcde"), make("f", boot="own"), make("look", boot="each")]
        self.assertEqual(self.names(*suites, jobs=2),
                         [["a", "c", "e", "look"], ["b", "d", "look"], ["f", "look"]])
        self.assertEqual(self.names(*suites[:4], jobs=2), [["a", "b", "c", "d"]])

    def test_leaks_are_looked_for_in_long_runs_alone(self):
        suites = [make("a", boot="own", leaks="slow"), make("look", boot="each")]
        self.assertEqual(self.names(*suites), [["a"]])
        self.assertEqual([[one.name for one in boot] for boot in guest.boots(suites, long=True)], [["a", "look"]])

    def test_what_may_take_longest_comes_first(self):
        self.assertEqual(self.names(make("a", boot="own"), make("b", boot="own", timeout=2), make("c")),
                         [["c"], ["b"], ["a"]])

    def test_the_other_node_knows_how_slow_it_is(self):
        boot = guest.Boot([], "debug", True, "ferrule", None, None, None)
        self.assertEqual(boot.lab_words(("--nodes", "2", "--peer", "serve 1")),
                         ["--nodes", "2", "--peer", "export TEST_SLOW=6 TEST_LONG=1; serve 1"])

    def test_several_boots_make_one_result(self):
        merged = guest.merge([Result("look", "debug", passed=1, skipped=1, reasons={"why": 1}), Result("a", "debug"),
                              Result("look", "debug", failed=1, failures=["x"], skipped=1, reasons={"why": 1})])
        self.assertEqual([(one.suite, one.passed, one.failed) for one in merged], [("look", 1, 1), ("a", 0, 0)])
        self.assertEqual((merged[0].reasons, merged[0].failures), ({"why": 2}, ["x"]))


class SeveralAtATime(unittest.TestCase):
    """Several at a time: the order of results, and what an interruption does."""

    def test_results_come_in_order(self):
        first_may_end = threading.Event()

        def first() -> list[Result]:
            self.assertTrue(first_may_end.wait(10))
            return [Result("a", "stock")]

        def second() -> list[Result]:
            first_may_end.set()
            return [Result("b", "stock")]

        self.assertEqual([one.suite for one in Lanes(2).run([first, second])], ["a", "b"])

    def test_an_interruption_ends_what_runs_and_begins_no_more(self):
        lanes, ended, begun = Lanes(2), threading.Event(), []

        def long() -> list[Result]:
            lanes.on_interrupt(ended.set)
            self.assertTrue(ended.wait(10))
            return []

        def interrupted() -> list[Result]:
            raise KeyboardInterrupt

        def never() -> list[Result]:
            begun.append(1)
            return []

        with self.assertRaises(KeyboardInterrupt):
            lanes.run([interrupted, long, long, long, never])
        self.assertTrue(ended.is_set())
        late = threading.Event()
        lanes.on_interrupt(late.set)
        self.assertTrue(late.is_set())

    def run_on_host(self, command: str, lanes: Lanes, writes: bool = False) -> tuple[Result, str]:
        """The result of a suite of this machine, and the content of the file that it may write. The time of one that `writes`
        begins when it has."""
        with tempfile.TemporaryDirectory() as directory:
            written = Path(directory, "written")

            class Limit(threading.Timer):
                def run(self):
                    while writes and not written.exists() and not self.finished.wait(0.02):
                        pass
                    super().run()

            one = make("end", where="host", timeout=1, command=command.replace("FILE", str(written)))
            with unittest.mock.patch.object(host.threading, "Timer", Limit):
                result = host.run(one, "stock", False, "ferrule", lanes, lambda line: None, lambda line: None)
            return result, written.read_text() if written.exists() else ""

    TIDY = "import time\ntry: open('FILE', 'w').close(); time.sleep(30)\nfinally: open('FILE', 'w').write('tidy')"

    def test_a_suite_that_is_late_can_tidy_up(self):
        result, written = self.run_on_host(f"{sys.executable} -c {shlex.quote(self.TIDY)}; true", Lanes(1), writes=True)
        self.assertEqual((result.failed, written), (1, "tidy"))
        self.assertLess(result.seconds, 20)

    def test_a_suite_that_does_not_listen_is_killed(self):
        deaf = "trap '' INT; sleep 30 & sleep 30"
        with unittest.mock.patch.object(host, "END_SECONDS", 1):
            result, _ = self.run_on_host(deaf, Lanes(1))
        self.assertEqual(result.failed, 1)
        self.assertLess(result.seconds, 20)

    def test_nothing_stays_of_a_suite_that_has_ended(self):
        result, written = self.run_on_host("trap '' INT; sleep 30 > /dev/null 2>&1 & echo $! > FILE; trap - INT; sleep 30", Lanes(1))
        self.assertEqual(result.failed, 1)
        time.sleep(0.5)
        # Nobody may have taken note of its end yet: then it has no words any more.
        words = Path("/proc", written.strip(), "cmdline")
        self.assertFalse(words.exists() and words.read_text())

    def test_a_suite_of_this_machine_is_timed_by_itself(self):
        busy = make("busy", where="host", timeout=60, command=f"{sys.executable} -c {shlex.quote(Usage.BUSY)}")
        lanes = Lanes(2)
        results = lanes.run([lambda: [host.run(busy, "stock", False, "ferrule", lanes, print, print)]] * 2)
        self.assertEqual([(one.passed, one.failed, 0.29 <= one.processor < 0.9) for one in results], [(1, 0, True)] * 2)


class Suites(unittest.TestCase):
    def read(self, text: str) -> suite.Suite:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "a.toml"
            path.write_text(text)
            return suite.read(path)

    def test_all_suites_can_be_read(self):
        for one in suite.read_all():
            for kernel in suite.KERNELS:
                self.assertTrue(one.command_line(kernel, False, "ferrule"))
                self.assertGreater(one.seconds(kernel, True), 0)

    def test_rounds(self):
        one = self.read('about = "a"\nwhere = "guest"\ncommand = "x {device} {rounds}"\ntimeout = 10\n'
                        'rounds = { stock = 1, debug = 2, long = 3, long_debug = 4 }\n')
        self.assertEqual([one.command_line(kernel, long, "rxe") for long in (False, True) for kernel in suite.KERNELS],
                         ["x rxe0 1", "x rxe0 2", "x rxe0 3", "x rxe0 4"])
        self.assertEqual(one.seconds("debug", False), 10 * suite.SLOW["debug"])

    def test_mistakes(self):
        for text in ("about = 1", 'about = "a"', 'about = "a"\nwhere = "moon"\ncommand = "x"\ntimeout = 1',
                     'about = "a"\nwhere = "host"\ncommand = "x"\ntimeout = 1\nmore = 1', "about =",
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nonly_long = { moon = "" }',
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nleaks_only_long = "slow"',
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nbackends = ["moon"]',
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nbackends = []',
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nlab = { nic = ["--wire-only"] }',
                     'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nrounds = { stock = 1, moon = 2 }'):
            with self.assertRaises(suite.SuiteError):
                self.read(text)

    def test_what_is_for_each_boot_is_chosen_unasked(self):
        with tempfile.TemporaryDirectory() as directory:
            text = 'about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\n'
            (Path(directory) / "a.toml").write_text(text)
            (Path(directory) / "look.toml").write_text(text + 'boot = "each"\nkernels = ["debug"]\n')
            suites = suite.read_all(Path(directory))
        self.assertEqual([one.name for one in suite.choose(suites, ["a"], "debug")], ["a", "look"])
        self.assertEqual([one.name for one in suite.choose(suites, ["a"], "stock")], ["a"])

    def test_a_suite_is_one_on_each_backend(self):
        both = make("c", ("soft", "nic"))
        suites = [make("a"), make("b", ("nic",)), both, both.on("nic"), make("d", where="host")]
        for patterns, backend, wanted in (([], None, "a:soft b:nic c:soft c.nic:nic d:soft"), ([], "nic", "b:nic c.nic:nic"),
                                          ([], "soft", "a:soft c:soft"), (["a", "d"], "nic", "a.nic:nic d:soft"),
                                          (["c"], None, "c:soft c.nic:nic"), (["c"], "soft", "c:soft"),
                                          (["c.nic"], None, "c.nic:nic"), (["*.nic"], None, "c.nic:nic")):
            chosen = suite.choose(suites, patterns, "stock", backend=backend)
            self.assertEqual(" ".join(f"{one.name}:{one.backend}" for one in chosen), wanted)

    def test_each_backend_may_have_its_rounds(self):
        one = self.read('about = "a"\nwhere = "guest"\ncommand = "{rounds}"\ntimeout = 1\nbackends = ["soft", "nic"]\n'
                        'rounds = { stock = 1, debug = 2, nic = 3, long = 4 }\n')
        self.assertEqual([one.on(backend).command_line(kernel, long, "rxe") for backend in one.backends
                          for long in (False, True) for kernel in suite.KERNELS], list("12443344"))

    def test_each_backend_may_have_its_options(self):
        one = self.read('about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nbackends = ["soft", "nic"]\n'
                        'lab = { nic = ["--wire-only"] }\n')
        self.assertEqual([one.on(backend).lab for backend in one.backends], [(), ("--wire-only",)])

    def test_each_backend_may_have_its_reason_for_long_runs(self):
        one = self.read('about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nbackends = ["soft", "nic"]\n'
                        'only_long = { debug = "slow", nic = "two boots", nic_debug = "both" }\n')
        self.assertEqual([one.on(backend).why_only_long(kernel) for backend in one.backends for kernel in suite.KERNELS],
                         ["", "slow", "two boots", "both"])

    def test_what_is_for_long_runs_is_left_out_unless_named(self):
        one = self.read('about = "a"\nwhere = "guest"\ncommand = "x"\ntimeout = 1\nonly_long = { debug = "slow" }\n')
        name = [one.name]
        for kernel, patterns, long, chosen in (("stock", [], False, [one]), ("debug", [], False, []),
                                               ("debug", name, False, [one]), ("debug", [], True, [one])):
            self.assertEqual(suite.choose([one], patterns, kernel, long), chosen)
        self.assertEqual(suite.left_out([one], [], "debug", False), [one])
        self.assertEqual(suite.left_out([one], name, "debug", False), [])

    def test_another_architecture_is_as_the_stock_kernel(self):
        text = 'about = "a"\nwhere = "guest"\ncommand = "{rounds}"\ntimeout = { stock = 3, debug = 4 }\n' \
               'rounds = { stock = 1, debug = 2 }\nbackends = ["soft", "nic"]\n'
        one = self.read(text)
        self.assertEqual((one.command_line("arm64", False, "ferrule"), one.seconds("arm64", False)),
                         ("1", 3 * suite.SLOW["arm64"]))
        self.assertTrue(one.is_for("arm64"))
        self.assertFalse(one.on("nic").is_for("arm64"))
        self.assertFalse(one.is_for("arm64-amd64"))
        two = self.read(text + 'lab = ["--nodes", "2"]\nonly_long = { stock = "slow" }\n')
        self.assertTrue(two.is_for("arm64-amd64"))
        self.assertEqual([two.why_only_long(kernel) for kernel in ("arm64", "arm64-amd64")], ["slow", ""])
        self.assertFalse(self.read(text + 'kernels = ["debug"]\n').is_for("arm64"))

    def test_unknown_pattern(self):
        with self.assertRaises(suite.SuiteError):
            suite.choose(suite.read_all(), ["nosuch*"], "stock")


class Table(unittest.TestCase):
    def test_totals_are_the_last_line(self):
        results = [Result("a", "stock", passed=2, skipped=1, reasons={"why": 1}), Result("b", "debug", failed=1)]
        self.assertEqual(table.draw(results).splitlines()[-1], "2 passed, 1 failed, 1 skipped")

    def test_results_survive_a_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "r.json"
            results = [Result("a", "stock", passed=2, skipped=1, reasons={"why": 1}, failures=["x"])]
            table.save(path, results)
            self.assertEqual(table.load(path), results)


class Usage(unittest.TestCase):
    BUSY = "import os\nwhile sum(os.times()[:2]) < 0.3: pass\n"

    def test_a_running_child_counts(self):
        # The child of a child, which has ended.
        program = ("import subprocess, sys\n"
                   f"subprocess.run([sys.executable, '-c', {self.BUSY!r}])\nprint(flush=True)\ninput()")
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            self.assertGreaterEqual(usage.processor_seconds(child.pid), 0.29)
            child.kill()

    def test_an_ended_child_counts(self):
        before = usage.ended_children()
        subprocess.run([sys.executable, "-c", self.BUSY], check=True)
        self.assertGreaterEqual(usage.ended_children() - before, 0.29)

    def test_of_nobody(self):
        self.assertEqual(usage.processor_seconds(0x7fffffff), 0)
