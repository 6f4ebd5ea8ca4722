# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the bundle (qemu/labkit/bundle.py, frozen.py): what it refuses, and how it starts QEMU. tests/packages runs
a whole one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

QEMU = Path(__file__).resolve().parents[2] / "qemu"
sys.path.insert(0, str(QEMU))

from labkit import bundle, cache, cli, errors, frozen, tree


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def patch(self, target, name, value):
        patch = unittest.mock.patch.object(target, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def be_a_bundle(self):
        (self.directory / "manifest.json").write_text("{}")
        self.patch(frozen, "MANIFEST", self.directory / "manifest.json")
        self.patch(frozen, "ENTRIES", self.directory / "frozen")


class Options(Directory):
    def setUp(self):
        super().setUp()
        self.be_a_bundle()

    def refused(self, words, telling):
        with self.assertRaises(errors.UsageError) as caught:
            cli.parse(words)
        self.assertIn(telling, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_commands(self):
        self.assertEqual(cli.parse(["run", "--", "true"]).device, "ferrule")
        for command in ("build", "deb", "bundle", "setup", "clean"):
            self.refused([command], f"{command} needs a checkout")

    def test_options(self):
        for words in (["--backend", "nic"], ["--kernel", "debug"], ["--stacks"], ["--system", "--device", "none"]):
            self.refused(["run", *words, "--", "true"], f"{words[0]} needs a checkout")
        with unittest.mock.patch.dict(os.environ, FERRULE_KERNEL="7.3"):
            self.refused(["run", "--", "true"], "FERRULE_KERNEL needs a checkout")


class Entries(Directory):
    def setUp(self):
        super().setUp()
        self.be_a_bundle()

    def test_what_came_along_is_not_made(self):
        (self.directory / "frozen/guest").mkdir(parents=True)

        def build(*_):
            raise AssertionError("it is made")

        self.assertEqual(cache.entry("guest", {}, "x", build), self.directory / "frozen/guest")

    def test_what_did_not_come_along(self):
        with self.assertRaises(errors.LabError) as caught:
            cache.entry("debug", {}, "x", lambda *_: None)
        self.assertIn("a bundle has no debug: this needs a checkout", str(caught.exception))

    def test_a_program_finds_its_files_below_its_directory(self):
        root = self.directory / "frozen/tree/root"
        (root / "lib").mkdir(parents=True)
        (root / "usr/bin").mkdir(parents=True)
        (self.directory / "a, b").mkdir()
        (self.directory / "a, b/file").write_text("found\n")
        # In the place of the loader, which has the program and its arguments behind its own.
        loader = root / "lib" / frozen.LOADER
        loader.write_text('#!/bin/sh\nwhile [ "$1" != -L ]; do shift; done\nshift 2\nexec "$@"\n')
        loader.chmod(0o755)
        binds = [(self.directory, "/lab/parts"), (self.directory / "a, b", "/lab/parts/")]
        with unittest.mock.patch.dict(os.environ, FERRULE_CACHE=str(self.directory / "cache")):
            words = tree.command(["qemu", "cat", "lab/parts/file"], binds)
        self.assertEqual(subprocess.run(words, capture_output=True, text=True).stdout, "found\n")


class Files(Directory):
    def setUp(self):
        super().setUp()
        self.entries, self.listing = self.directory / "frozen", self.directory / "manifest.json"
        (self.entries / "guest").mkdir(parents=True)
        self.image = self.entries / "guest/root.erofs"
        self.image.write_text("content")
        self.listing.write_text(json.dumps(bundle.manifest(self.entries)))
        environment = unittest.mock.patch.dict(os.environ, FERRULE_CACHE=str(self.directory / "cache"))
        environment.start()
        self.addCleanup(environment.stop)

    def check(self):
        bundle.check_files(self.entries, self.listing)

    def damaged(self, how):
        with self.assertRaises(errors.LabError) as caught:
            self.check()
        self.assertIn("the bundle is damaged", str(caught.exception))
        self.assertIn(how, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_whole(self):
        self.check()
        self.check()

    def test_a_file_that_is_short(self):
        self.image.write_text("conten")
        self.damaged("has 6 bytes and not 7")

    def test_a_file_that_is_not_there(self):
        self.image.unlink()
        self.damaged("is not there")

    def test_other_content(self):
        self.check()
        os.utime(self.image, ns=(1, 1))
        self.image.write_text("CONTENT")
        self.damaged("has another content")

    def test_a_listing_that_is_cut(self):
        self.listing.write_text('{"guest/root')
        self.damaged("cannot be read")


class Command(Directory):
    """The shell script that a bundle begins with."""

    def setUp(self):
        super().setUp()
        self.bundle, self.path = self.directory / "bundle", self.directory / "path"
        self.path.mkdir()
        shutil.copytree(bundle.FILES, self.bundle)
        for name in ("qemu/lab", "manifest.json"):
            (self.bundle / name).parent.mkdir(exist_ok=True)
            (self.bundle / name).write_text("import sys; print(sys.argv[1:])")
        for tool in ("readlink", "dirname", "uname", "sh"):
            self.path.joinpath(tool).symlink_to(shutil.which(tool))

    def tool(self, name, text):
        file = self.path / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def run_it(self, **environment):
        return subprocess.run([self.bundle / "ferrule-lab", "run", "a b"], capture_output=True, text=True,
                              env={"PATH": str(self.path)} | environment)

    def refused(self, telling, **environment):
        done = self.run_it(**environment)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (errors.LAB_FAILED, "", 1), done.stderr)
        self.assertIn(telling, done.stderr)

    def test_started(self):
        self.assertEqual(self.run_it(PYTHON=sys.executable).stdout, "['run', 'a b']\n")

    def test_no_python(self):
        self.refused("there is no python3: install Python 3.11 or newer")
        self.refused("there is no /none/python", PYTHON="/none/python")

    def test_an_older_python(self):
        self.tool("python3", '[ "$1" != -V ] || echo "Python 3.9.2"; [ "$1" != -c ]')
        self.refused("python3 is Python 3.9.2: set PYTHON")

    def test_another_machine(self):
        self.tool("uname", '[ "$1" = -s ] && echo Linux || echo aarch64')
        self.refused("Linux on aarch64, but the bundle's QEMU is for Linux on x86-64", PYTHON=sys.executable)

    def test_a_bundle_that_is_not_complete(self):
        (self.bundle / "manifest.json").unlink()
        self.refused("the bundle is damaged", PYTHON=sys.executable)


if __name__ == "__main__":
    unittest.main()
