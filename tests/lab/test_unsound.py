# SPDX-License-Identifier: GPL-2.0
"""Tests of the judge of programs that must not compile (qemu/labkit/unsound.py)."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import unsound

FILE = "tests/unsound/x.rs"
SOURCE = """\
fn good() {}
#[cfg(unsound)]
fn bad() {
    //~ E0133
    write();
}
"""


def error(line: int, code: str | None, file: str = FILE, text: str = "call to unsafe function", expansion=None) -> str:
    """A message as rustc prints it."""
    span = {"is_primary": True, "file_name": file, "line_start": line, "expansion": expansion}
    return json.dumps({"level": "error", "message": text, "code": code and {"code": code}, "spans": [span]})


ABORTED = json.dumps({"level": "error", "message": "aborting due to 1 previous error", "code": None, "spans": []})
COMPILES = (0, "")


def fails(*messages: str) -> tuple[int, str]:
    return 1, "\n".join([*messages, ABORTED, ""])


class Judge(unittest.TestCase):
    def judge(self, sound: tuple[int, str], unsafe: tuple[int, str], source: str = SOURCE) -> list[str]:
        return unsound.judge(unsound.marks(source), sound, unsafe, FILE)

    def test_marked_error(self):
        self.assertEqual(self.judge(COMPILES, fails(error(5, "E0133"))), [])

    def test_more_on_the_marked_line(self):
        self.assertEqual(self.judge(COMPILES, fails(error(5, "E0495"), error(5, "E0133"))), [])

    def test_it_compiles(self):
        self.assertEqual(len(self.judge(COMPILES, COMPILES)), 1)

    def test_another_code(self):
        self.assertEqual(len(self.judge(COMPILES, fails(error(5, "E0425")))), 1)

    def test_another_line(self):
        self.assertEqual(len(self.judge(COMPILES, fails(error(5, "E0133"), error(4, "E0133")))), 1)

    def test_another_file(self):
        self.assertEqual(len(self.judge(COMPILES, fails(error(5, "E0133", "rust/kernel/infiniband/lib.rs")))), 1)

    def test_one_of_two_marks(self):
        source = SOURCE + "//~ E0133\nread();\n"
        self.assertEqual(len(self.judge(COMPILES, fails(error(5, "E0133")), source)), 1)

    def test_no_compiler(self):
        self.assertEqual(len(self.judge(COMPILES, (127, "rustc: not found"))), 1)

    def test_what_is_sound_fails(self):
        self.assertEqual(len(self.judge(fails(error(1, "E0425")), fails(error(5, "E0133")))), 1)

    def test_no_mark(self):
        self.assertEqual(len(self.judge(COMPILES, fails(error(5, "E0133")), "fn bad() {}\n")), 2)

    def test_error_in_a_macro_of_another_file(self):
        called = {"span": {"file_name": FILE, "line_start": 5, "expansion": None}}
        self.assertEqual(self.judge(COMPILES, fails(error(900, "E0133", "/kernel/src/x.rs", expansion=called))), [])

    def test_error_without_a_code(self):
        source = SOURCE.replace("E0133", "lifetime")
        message = error(5, None, text="lifetime may not live long enough")
        self.assertEqual(self.judge(COMPILES, fails(message), source), [])


if __name__ == "__main__":
    unittest.main()
