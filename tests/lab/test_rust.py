# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the tools around Rust code: which crates kbuild has compiled, and which files there are."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import rust


class Files(unittest.TestCase):
    def test_all_crates_are_formatted(self):
        files = rust.rust_files()
        self.assertEqual(len(files), len(set(files)))
        for manifest in rust.tree.CHECKOUT.rglob("Cargo.toml"):
            crate = manifest.parent.relative_to(rust.tree.CHECKOUT)
            if {"target", "build"}.isdisjoint(crate.parts):
                with self.subTest(crate=crate):
                    self.assertTrue(any(crate in file.parents for file in files))


class Crates(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.work = Path(directory.name)

    def compiled(self, root: str, words: str = "") -> None:
        source = self.work / root
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
        command = f"savedcmd_{Path(root).with_suffix('.o')} := RUST_MODFILE=x rustc {words} {root}; true\n"
        source.with_name(f".{source.stem}.o.cmd").write_text(command)

    def test_order_and_names(self):
        self.compiled("b/driver.rs", "--extern a=a/liba.rmeta")
        self.compiled("c/lib.rs", "--crate-name a")
        found = rust.crates(self.work)
        self.assertEqual([(crate.name, str(crate.root)) for crate in found], [("a", "c/lib.rs"), ("driver", "b/driver.rs")])

    def test_a_crate_that_has_moved(self):
        self.compiled("old/lib.rs", "--crate-name a")
        (self.work / "old/lib.rs").unlink()
        self.compiled("moved/lib.rs", "--crate-name a")
        self.compiled("z/gone.rs")
        (self.work / "z/gone.rs").unlink()
        self.assertEqual([str(crate.root) for crate in rust.crates(self.work)], ["moved/lib.rs"])


if __name__ == "__main__":
    unittest.main()
