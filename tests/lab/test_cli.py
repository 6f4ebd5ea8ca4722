# SPDX-License-Identifier: GPL-2.0
"""Tests of the lab's command line (qemu/labkit/cli.py): its words, and the one line that it answers to the rest."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "qemu/lab"
sys.path.insert(0, str(LAB.parent))

from labkit import cli, errors
from labkit.arch import AMD64, ARM64


class Taken(unittest.TestCase):
    def test_defaults(self):
        options = cli.parse(["run", "--", "true"])
        self.assertEqual((options.device, options.backend, options.kernel, options.nodes, options.smp, options.mem,
                          options.timeout), ("ferrule", "soft", "stock", 1, 2, 1024, 300))
        self.assertEqual(options.argv, ["true"])

    def test_everything(self):
        with tempfile.TemporaryDirectory() as share:
            options = cli.parse(["run", "--device", "rxe", "--backend", "soft", "--kernel", "debug", "--nodes", "2", "--peer", "a b",
                                 "--share", share, "--smp", "4", "--mem", "512", "--accel", "icount", "--timeout", "9", "--",
                                 "x"])
            self.assertEqual(options.share, share)
        self.assertEqual((options.device, options.kernel, options.nodes, options.peer, options.smp, options.mem,
                          options.accel, options.timeout), ("rxe", "debug", 2, "a b", 4, 512, "icount", 9))

    def test_the_program_keeps_its_own_options_and_dashes(self):
        options = cli.parse(["run", "--device=none", "--", "sh", "-c", "--", "--device", "x"])
        self.assertEqual(options.argv, ["sh", "-c", "--", "--device", "x"])
        self.assertEqual(options.device, "none")

    def test_each_node_has_its_architecture(self):
        both = ["run", "--nodes", "2"]
        self.assertEqual(cli.parse([*both, "--", "x"]).arches, [AMD64, AMD64])
        self.assertEqual(cli.parse([*both, "--arch", "arm64", "--", "x"]).arches, [ARM64, ARM64])
        self.assertEqual(cli.parse([*both, "--peer-arch", "arm64", "--", "x"]).arches, [AMD64, ARM64])

    def test_the_debug_kernel_has_more_memory(self):
        self.assertEqual(cli.parse(["run", "--kernel", "debug", "--", "x"]).mem, 2048)


class Refused(unittest.TestCase):
    def check(self, words, telling):
        with self.assertRaises(errors.UsageError) as caught:
            cli.parse(words)
        self.assertEqual(caught.exception.status, 2)
        self.assertIn(telling, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_wrong_values(self):
        for option, value in (("--device", "mlx5"), ("--backend", "hard"), ("--kernel", "old"), ("--nodes", "3"),
                              ("--nodes", "x"), ("--smp", "0"), ("--smp", "two"), ("--mem", "-1"), ("--mem", "1"), ("--timeout", "0"),
                              ("--timeout", "1e3"), ("--smp", "٣")):
            with self.subTest(option=option, value=value):
                self.check(["run", option, value, "--", "x"], option)

    def test_options_that_do_not_exist_or_are_cut_short(self):
        self.check(["run", "--frob", "--", "x"], "--frob")
        self.check(["run", "--dev", "rxe", "--", "x"], "--dev")
        self.check(["frob"], "frob")

    def test_a_value_that_is_missing(self):
        self.check(["run", "--device", "--", "x"], "--device")

    def test_no_program(self):
        self.check(["run"], "which program")
        self.check(["run", "--"], "which program")
        self.check(["run", "--device", "rxe", "ls"], "after --")
        self.check(["exec"], "which program")

    def test_a_program_where_none_belongs(self):
        self.check(["clean", "--", "x"], "no program")

    def test_options_that_do_not_go_together(self):
        self.check(["run", "--peer", "x", "--", "y"], "--nodes 2")
        self.check(["run", "--peer-device", "rxe", "--", "y"], "--nodes 2")
        self.check(["run", "--peer-backend", "nic", "--", "y"], "--nodes 2")
        self.check(["run", "--peer-arch", "arm64", "--", "y"], "--nodes 2")
        self.check(["run", "--arch", "arm64", "--backend", "nic", "--", "y"], "--backend nic")
        self.check(["run", "--arch", "arm64", "--kernel", "debug", "--", "y"], "--kernel")
        self.check(["run", "--nodes", "2", "--peer-arch", "arm64", "--accel", "kvm", "--", "y"], "--accel kvm")
        self.check(["build", "--arch", "arm64", "--kernel", "previous"], "--arch arm64")
        self.check(["build", "--arch", "arm64", "provider-test"], "--arch arm64")
        for more in ([], ["--nodes", "2", "--peer-backend", "soft"]):
            self.check(["run", "--backend", "nic", "--link", *more, "--", "y"], "--link needs two nodes")
        self.check(["run", "--wire-only", "--", "y"], "--wire-only needs --backend nic")
        self.check(["run", "--backend", "nic", "--accel", "icount", "--", "y"], "--backend nic")
        with unittest.mock.patch.dict(os.environ, FERRULE_ACCEL="icount"):
            self.check(["run", "--backend", "nic", "--", "y"], "--backend nic")
            self.assertEqual(cli.parse(["run", "--backend", "nic", "--accel", "tcg", "--", "y"]).backend, "nic")

        for more in (["--device", "rxe"], ["--device", "none", "--nodes", "2"], ["--device", "none", "--share", "/tmp"]):
            with self.subTest(more=more):
                self.check(["run", "--system", *more, "--", "x"], "--system needs")
        self.check(["run", "--system", "--device", "none", "--kernel", "debug", "--", "x"], "without --system")
        self.check(["run", "--kernel", "cloud", "--", "x"], "with --system")

    def test_a_share_that_is_no_directory(self):
        self.check(["run", "--share", str(LAB), "--", "x"], "not a directory")
        self.check(["run", "--share", "/nonexistent", "--", "x"], "not a directory")

    def test_something_unknown_to_build(self):
        self.check(["build", "frob"], "frob")

    def test_a_shell_without_a_terminal(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.check(["shell"], "terminal")


class Program(unittest.TestCase):
    """The program itself, as far as it goes without a cache."""

    def lab(self, *words, **environment):
        return subprocess.run([sys.executable, LAB, *words], capture_output=True, text=True, timeout=60,
                              env=os.environ | environment)

    def test_help_of_all_commands(self):
        for words in ((), ("--help",), ("run", "--help"), ("shell", "--help"), ("build", "--help"), ("exec", "--help"),
                      ("setup", "--help"), ("clean", "--help"), ("rust", "--help")):
            done = self.lab(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertGreater(len(done.stdout), 100)

    def test_a_wrong_command_line_is_told_in_one_line(self):
        done = self.lab("run", "--smp", "many", "--", "x")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_cache_that_cannot_be_written_is_told_in_one_line(self):
        done = self.lab("clean", FERRULE_CACHE="/proc/nowhere")
        self.assertEqual(done.returncode, 0)
        done = self.lab("exec", "--", "true", FERRULE_CACHE="/proc/nowhere")
        self.assertEqual(done.returncode, errors.LAB_FAILED, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("/proc/nowhere", done.stderr)

    def test_a_missing_mmdebstrap_is_told_with_its_remedy(self):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as path:
            for tool in ("sh", "unshare", "mount", "apt-get", "apt-config", "env"):
                for place in ("/usr/bin", "/bin", "/sbin"):
                    if os.path.exists(f"{place}/{tool}"):
                        os.symlink(f"{place}/{tool}", f"{path}/{tool}")
                        break
            done = self.lab("exec", "--", "true", FERRULE_CACHE=cache, PATH=path, CI="")
            self.assertEqual(done.returncode, errors.LAB_FAILED, done.stderr)
            self.assertIn("apt-get install --no-install-recommends mmdebstrap", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual([str(p) for p in Path(cache).rglob("tree-*") if p.is_dir()], [])

    def test_a_kernel_that_the_archive_cannot_have(self):
        done = self.lab("build", "kernel", FERRULE_KERNEL="latest")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
