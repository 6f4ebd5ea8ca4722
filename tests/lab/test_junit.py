# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the file for CI services (qemu/labkit/junit.py), and of what it is made of (qemu/labkit/tap.py)."""

import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import junit, tap


class Lines(unittest.TestCase):
    def test_plan(self):
        self.assertEqual((tap.plan("1..3"), tap.plan("1..0 # SKIP all"), tap.plan("ok 1")), (3, 0, None))

    def test_results(self):
        self.assertEqual(tap.test("ok 1 - a b"), tap.Test("a b", False))
        self.assertEqual(tap.test("not ok 2 - a"), tap.Test("a", True))
        self.assertEqual(tap.test("ok 3 - a # SKIP: none here"), tap.Test("a", False, "none here"))
        self.assertEqual(tap.test("ok 4 - a # 0.1 s"), tap.Test("a", False))
        self.assertIsNone(tap.test("okay"))
        self.assertIsNone(tap.test("# ok 1"))


class Written(unittest.TestCase):
    def written(self, output: bytes, status=0, problems=(), pieces=7):
        with tempfile.TemporaryDirectory() as directory:
            report = junit.Report(Path(directory, "x.xml"), ["a", "test"])
            for start in range(0, len(output), pieces):
                report.feed(output[start:start + pieces])
            report.write(status, list(problems))
            suite = ElementTree.parse(report.path).getroot().find("testsuite")
        cases = []
        for case in suite:
            child = next(iter(case), None)
            cases.append((case.get("name"), child.tag if child is not None else "passed"))
        self.assertEqual(int(suite.get("tests")), len(cases))
        self.assertEqual(int(suite.get("failures")), [how for _, how in cases].count("failure"))
        self.assertEqual(int(suite.get("skipped")), [how for _, how in cases].count("skipped"))
        return cases, suite

    def test_each_result(self):
        cases, suite = self.written(b"1..3\nok 1 - good\n# why <&>\x1b\nnot ok 2 - bad\nok 3 - other # SKIP no time\n", 1)
        self.assertEqual(cases, [("good", "passed"), ("bad", "failure"), ("other", "skipped")])
        self.assertIn("why <&>\ufffd", suite.find("testcase/failure").text)
        self.assertEqual(suite.find("testcase/skipped").get("message"), "no time")
        self.assertEqual(suite.get("name"), "a test")

    def test_a_plan_that_is_not_kept(self):
        self.assertEqual(self.written(b"1..2\nok 1 - good\n")[0], [("good", "passed"), ("plan", "failure")])
        self.assertEqual(self.written(b"1..1\nok 1 - good\nBail out! no disk\n", 1)[0][1], ("Bail out! no disk", "failure"))

    def test_a_program_that_dies(self):
        cases, suite = self.written(b"ok 1 - good\nabout to\ndie", 139)
        self.assertEqual(cases, [("good", "passed"), ("command", "failure")])
        self.assertEqual(suite.find("testcase/failure").text, "exit status 139\nabout to\ndie")
        self.assertEqual(self.written(b"1..1\nok 1 - good\n", 3)[0][1:], [("command", "failure")])

    def test_a_program_without_tests(self):
        self.assertEqual(self.written(b"ok, this is no test\n")[0], [("command", "passed")])
        self.assertEqual(self.written(b"", 1)[0], [("command", "failure")])

    def test_reports_of_kernels(self):
        cases, suite = self.written(b"1..1\nok 1 - good\n", 125, ["node 1: BUG: x\nmore"])
        self.assertEqual(cases, [("good", "passed"), ("kernel log", "failure")])
        self.assertEqual(suite.find("testcase/failure").get("message"), "node 1: BUG: x")

    def test_a_file_of_the_run_before_goes_first(self):
        with tempfile.TemporaryDirectory() as directory:
            old = Path(directory, "x.xml")
            old.write_text("old")
            junit.Report(old, ["x"])
            self.assertFalse(old.exists())


if __name__ == "__main__":
    unittest.main()
